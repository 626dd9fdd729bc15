package attack

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"errors"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/pki"
)

// memberProtocols are those that take a certificate of a member.
var memberProtocols = []string{"ek-peer/1", "ek-raft/1", "ek-forward/1"}

// forger makes certificates with the cluster's own CA, as a thief of its key could, and with another CA.
type forger struct {
	t       *testing.T
	cluster string
	ca, own *pki.CA
	key     *ecdsa.PrivateKey // of the CA of that cluster
	ownKey  *ecdsa.PrivateKey
}

func newForger(t *testing.T, c *cluster) *forger {
	t.Helper()
	dir := c.servers[0].dir
	cert, err1 := os.ReadFile(filepath.Join(dir, "pki", "ca.pem"))
	key, err2 := os.ReadFile(filepath.Join(dir, "ca.key"))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	f := &forger{t: t, cluster: c.id}
	f.ca, f.key = parseCA(t, cert, key)
	own, err := pki.NewCA(c.id, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ownKey, err := own.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	f.own, f.ownKey = parseCA(t, own.CertPEM(), ownKey)
	return f
}

func parseCA(t *testing.T, cert, key []byte) (*pki.CA, *ecdsa.PrivateKey) {
	t.Helper()
	ca, err := pki.ParseCA(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	k, err := pki.ParseKey(key)
	if err != nil {
		t.Fatal(err)
	}
	private, ok := k.(*ecdsa.PrivateKey)
	if !ok {
		t.Fatalf("the CA has a key of type %T", k)
	}
	return ca, private
}

// certificate of the cluster's CA for these names, changed in one way.
func (f *forger) certificate(uris []string, change func(*x509.Certificate, *signer)) *tls.Certificate {
	f.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		f.t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{Organization: []string{"Evenkeel"}, CommonName: "s2"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true}
	for _, text := range uris {
		u, err := url.Parse(text)
		if err != nil {
			f.t.Fatal(err)
		}
		template.URIs = append(template.URIs, u)
	}
	by := &signer{f.ca.Certificate(), f.key}
	if change != nil {
		change(template, by)
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, by.cert, key.Public(), by.key)
	if err != nil {
		f.t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
}

// signer of a certificate.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// knock speaks a list of protocols with a certificate and sends a request. It returns what the server says, past the handshake.
func knock(ctx context.Context, to string, cert *tls.Certificate, protocols []string, send string) (string, error) {
	conf := &tls.Config{NextProtos: protocols}
	if cert != nil {
		conf.Certificates = []tls.Certificate{*cert}
	}
	conn, err := dial(ctx, place(), to, conf)
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // nothing is kept in it
	_ = conn.SetDeadline(time.Now().Add(answerMax))
	if _, err := io.WriteString(conn, send); err != nil {
		return "", err
	}
	b := make([]byte, 4096)
	n, err := conn.Read(b)
	return string(b[:n]), err
}

func closing(method, path, body string) string {
	return string(plain(method, path, "Connection: close\r\n", body))
}

// TestForgedCertificates: servers speak no protocol of members with a certificate that is not a member's.
func TestForgedCertificates(t *testing.T) {
	t.Parallel()
	c := reuse(t)
	f := newForger(t, c)
	at := "evenkeel://" + f.cluster
	server := []string{at + "/server/s2"}
	usage := func(u x509.ExtKeyUsage) func(*x509.Certificate, *signer) {
		return func(c *x509.Certificate, _ *signer) { c.ExtKeyUsage = []x509.ExtKeyUsage{u} }
	}
	bad := map[string]*tls.Certificate{
		"none":                  nil,
		"another CA, same name": f.certificate(server, func(_ *x509.Certificate, by *signer) { by.cert, by.key = f.own.Certificate(), f.ownKey }),
		"expired":               f.certificate(server, func(c *x509.Certificate, _ *signer) { c.NotAfter = time.Now().Add(-time.Minute) }),
		"not valid yet": f.certificate(server, func(c *x509.Certificate, _ *signer) {
			c.NotBefore = time.Now().Add(time.Hour)
			c.NotAfter = c.NotBefore.Add(time.Hour)
		}),
		"another cluster":  f.certificate([]string{"evenkeel://01AAAAAAAAAAAAAAAAAAAAAAAA/server/s2"}, nil),
		"no name":          f.certificate(nil, nil),
		"two names":        f.certificate([]string{at + "/server/s2", at + "/agent/s3"}, nil),
		"a name twice":     f.certificate([]string{server[0], server[0]}, nil),
		"another role":     f.certificate([]string{at + "/admin/s2"}, nil),
		"a longer path":    f.certificate([]string{server[0] + "/x"}, nil),
		"a query":          f.certificate([]string{server[0] + "?x=1"}, nil),
		"a user":           f.certificate([]string{"evenkeel://a@" + f.cluster + "/server/s2"}, nil),
		"another case":     f.certificate([]string{at + "/server/S2"}, nil),
		"for clients only": f.certificate(server, usage(x509.ExtKeyUsageClientAuth)),
		"for servers only": f.certificate(server, usage(x509.ExtKeyUsageServerAuth)),
		"an empty name":    f.certificate([]string{at + "/agent/"}, nil),
		"escapes":          f.certificate([]string{at + "/server/%73%32"}, nil),
		"a CA of its own":  f.certificate(server, func(c *x509.Certificate, _ *signer) { c.IsCA = true; c.KeyUsage |= x509.KeyUsageCertSign }),
	}
	lists := [][]string{{"ek-peer/1"}, {"ek-raft/1"}, {"ek-forward/1"}, {"ek-peer/1", "h2"}, {"ek-x"}, {"http/1.1", "ek-peer/1"}, {"h2", "ek-forward/1"}}
	y := &tally{}
	for _, s := range c.targets(t) {
		if s == c.dev {
			continue
		}
		for what, cert := range bad {
			for _, protocols := range lists {
				for _, path := range []string{"/v1/about", "/v1/vms"} {
					said, err := knock(t.Context(), s.address, cert, protocols, closing("GET", path, ""))
					y.add(said != "", true, "%s, certificate %q, %v, %s: %.120q %v", s.name, what, protocols, path, said, err)
				}
			}
		}
	}
	y.report(t, "forged certificates")
	// A right certificate is accepted; otherwise the rest would prove nothing.
	good := f.certificate(append(server, at+"/agent/s2"), nil)
	if said, err := knock(t.Context(), c.servers[0].address, good, []string{"ek-peer/1"}, closing("GET", "/v1/about", "")); !strings.HasPrefix(said, "HTTP/1.1 200") {
		t.Errorf("a right certificate: %.100q %v", said, err)
	}
}

// TestAgentAsAnother: an agent's certificate speaks for its own host only, by every protocol and in every form of a path.
func TestAgentAsAnother(t *testing.T) {
	c := reuse(t)
	f := newForger(t, c)
	agent := f.certificate([]string{"evenkeel://" + f.cluster + "/agent/a9"}, nil)
	renewal := string(certificateRequest(t))
	var requests []string
	for _, path := range []string{"/v1/about", "/forwarded/v1/vms", "/forwarded/livez", "/v1/vms", "/livez", "/v1/host/vms/x/console", "/v1/host/vms/x/history", "/v1/host/vms/x/forecast", "/v1/hosts/s1/desired", "/v1/hosts/s3/desired",
		"/v1/hosts/%73%31/desired", "/v1/hosts/a9/../s1/desired", "/v1/hosts/a9%2f..%2fs1/desired", "x:https://a/v1/about", "x:https://a/v1/hosts/s1/desired", "x:https://a/forwarded/v1/vms", "https://a/v1/about", "//v1/about", "*", "/v1/hosts/A9/desired"} {
		requests = append(requests, closing("GET", path, ""))
	}
	for _, path := range []string{"report", "renew", "permit", "session", "events", "history"} {
		requests = append(requests, closing("POST", "/v1/hosts/s1/"+path, "{}"), closing("POST", "/v1/hosts/s1/"+path, `{"Host":"s1"}`), closing("POST", "x:https://a/v1/hosts/s1/"+path, "{}"))
	}
	requests = append(requests, closing("POST", "x:https://a/v1/certificate", renewal))
	y := &tally{}
	for _, s := range c.servers {
		for _, protocol := range memberProtocols {
			for _, q := range requests {
				said, err := knock(t.Context(), s.address, agent, []string{protocol}, q)
				through := strings.HasPrefix(said, "HTTP/1.1 2") || strings.HasPrefix(said, "HTTP/1.1 1") || strings.Contains(said, "BEGIN CERTIFICATE") || protocol == "ek-raft/1" && said != ""
				y.add(through, true, "%s by %s: %.60q: %.120q %v", s.name, protocol, q, said, err)
			}
		}
	}
	y.report(t, "an agent as another host or a server")
	if said, err := knock(t.Context(), c.servers[0].address, agent, []string{"ek-peer/1"}, closing("GET", "/v1/nothing", "")); !strings.HasPrefix(said, "HTTP/1.1 404") {
		t.Errorf("an agent is not heard at all: %.100q %v", said, err)
	}
}

func TestOldTLS(t *testing.T) {
	c := reuse(t)
	f := newForger(t, c)
	good := f.certificate([]string{"evenkeel://" + f.cluster + "/server/s2"}, nil)
	y := &tally{}
	for _, s := range c.targets(t) {
		for _, version := range []uint16{tls.VersionTLS10, tls.VersionTLS11} {
			conn, err := dial(t.Context(), place(), s.address, &tls.Config{NextProtos: []string{"http/1.1"}, MinVersion: version, MaxVersion: version})
			if err == nil {
				_ = conn.Close()
			}
			y.add(err == nil, true, "%s: %s for the API", s.name, tls.VersionName(version))
		}
		if s == c.dev {
			continue
		}
		for _, protocol := range memberProtocols {
			conn, err := dial(t.Context(), place(), s.address, &tls.Config{NextProtos: []string{protocol}, MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*good}})
			if err == nil {
				_ = conn.Close()
			}
			y.add(err == nil, true, "%s: TLS 1.2 for %s", s.name, protocol)
		}
	}
	y.report(t, "versions of TLS")
}

// TestGossipOfStrangers: without the key a stranger hears nothing, whatever it sends.
func TestGossipOfStrangers(t *testing.T) {
	c := reuse(t)
	leader, followers := c.roles(t)
	random := mathrand.New(mathrand.NewPCG(1, 1))
	noise := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return b
	}
	kinds := []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 244, 255}
	y := &tally{}
	for _, s := range []*server{leader, followers[0]} {
		udp, err := net.Dial("udp", s.gossip)
		if err != nil {
			t.Fatal(err)
		}
		packets := 300
		for i := range packets {
			if _, err := udp.Write(append([]byte{kinds[i%len(kinds)]}, noise(random.IntN(1200))...)); err != nil {
				t.Logf("packet %d: %v", i, err)
			}
		}
		for i := range 25 {
			conn, err := net.Dial("tcp", s.gossip)
			if err != nil {
				t.Fatal(err)
			}
			message := binary.BigEndian.AppendUint32([]byte{kinds[i%len(kinds)]}, []uint32{0, 10, 100, 4 << 20, 0xffffffff}[i%5])
			_, _ = conn.Write(append(message, noise(200)...))
			_ = conn.(*net.TCPConn).CloseWrite()
			_ = conn.SetReadDeadline(time.Now().Add(answerMax))
			said, err := io.ReadAll(conn)
			y.add(len(said) > 0 || errors.Is(err, os.ErrDeadlineExceeded), true, "%s, stream %d: %q %v", s.name, i, said, err)
			_ = conn.Close()
		}
		// The streams, sent later, were read: answers to packets would be here by now.
		_ = udp.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		b := make([]byte, 2000)
		n, err := udp.Read(b)
		y.add(err == nil, true, "%s: a packet is answered with %q", s.name, b[:n])
		y.tried += packets - 1
		_ = udp.Close()
	}
	y.report(t, "gossip of strangers")
	c.eventually(t, "the cluster is healthy after it", c.healthy)
}
