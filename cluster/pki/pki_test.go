package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/url"
	"slices"
	"testing"
	"time"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// seed is entropy that repeats.
func seed(n byte) *mathrand.ChaCha8 { return mathrand.NewChaCha8([32]byte{n}) }

func newCA(t testing.TB, cluster string, n byte) *CA {
	t.Helper()
	ca, err := NewCA(cluster, epoch, seed(n))
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func issue(t testing.TB, ca *CA, id Identity, n byte) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := GenerateKey(seed(n))
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.Issue(&key.PublicKey, id, Names{DNS: []string{"h1.example"}, IPs: []net.IP{net.IPv4(10, 0, 0, 1)}}, epoch, DefaultLife, seed(n+100))
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func pool(certs ...*x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	for _, c := range certs {
		p.AddCert(c)
	}
	return p
}

func TestIssueAndVerify(t *testing.T) {
	ca, other := newCA(t, "01ABC", 1), newCA(t, "01ABC", 2)
	both := Identity{Cluster: "01ABC", Name: "h1", Server: true, Agent: true}
	agent := Identity{Cluster: "01ABC", Name: "h2", Agent: true}
	cert, _ := issue(t, ca, both, 3)
	agentCert, _ := issue(t, ca, agent, 4)
	strange, _ := issue(t, other, both, 5)
	far, _ := issue(t, ca, Identity{Cluster: "01XYZ", Name: "h1", Server: true}, 6)
	if err := cert.VerifyHostname("h1.example"); err != nil {
		t.Error(err)
	}
	if err := cert.VerifyHostname("10.0.0.1"); err != nil {
		t.Error(err)
	}
	if len(agentCert.DNSNames)+len(agentCert.IPAddresses) != 0 {
		t.Errorf("an agent that is no server has names %v %v", agentCert.DNSNames, agentCert.IPAddresses)
	}
	if len(SerialOf(cert)) != 32 {
		t.Errorf("serial %q", SerialOf(cert))
	}
	here := Want{Cluster: "01ABC"}
	with := func(change func(*Want)) Want { w := here; change(&w); return w }
	known := &chains{}
	for _, seen := range []*x509.Certificate{cert, agentCert, far} {
		if err := known.lead([]*x509.Certificate{seen}, pool(ca.Certificate()), epoch); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		what    string
		cert    *x509.Certificate
		at      time.Time
		revoked bool
		want    Want
		reason  Reason
	}{
		{"server and agent", cert, epoch, false, here, ""},
		{"as a server", cert, epoch, false, with(func(w *Want) { w.Server = true; w.Agent = true; w.Name = "h1" }), ""},
		{"an agent as itself", agentCert, epoch, false, with(func(w *Want) { w.Agent = true }), ""},
		{"last moment", cert, cert.NotAfter, false, here, ""},
		{"after its life", cert, cert.NotAfter.Add(time.Second), false, here, Expired},
		{"before its life", cert, cert.NotBefore.Add(-time.Second), false, here, NotYetValid},
		{"another CA of the same name", strange, epoch, false, here, WrongCA},
		{"revoked", cert, epoch, true, here, Revoked},
		{"another cluster", far, epoch, false, here, WrongCluster},
		{"an agent as a server", agentCert, epoch, false, with(func(w *Want) { w.Server = true }), NoRole},
		{"a server as another", cert, epoch, false, with(func(w *Want) { w.Name = "h2" }), WrongName},
		{"the CA itself", ca.Certificate(), epoch, false, here, Malformed},
	} {
		t.Run(c.what, func(t *testing.T) {
			revoked := func(serial string) bool { return c.revoked && serial == SerialOf(cert) }
			id, err := Verify([][]byte{c.cert.Raw}, pool(ca.Certificate()), c.at, revoked, c.want)
			again, err2 := verify([]*x509.Certificate{c.cert}, pool(ca.Certificate()), known, c.at, revoked, c.want)
			if again != id || fmt.Sprint(err2) != fmt.Sprint(err) {
				t.Errorf("as one that was seen before: %v, %v; else: %v, %v", again, err2, id, err)
			}
			if c.reason == "" {
				if err != nil || (id != both && id != agent) {
					t.Fatalf("got %v, %v", id, err)
				}
				return
			}
			var refusal *Refusal
			if !errors.As(err, &refusal) || refusal.Reason != c.reason || refusal.Serial != SerialOf(c.cert) {
				t.Fatalf("got %v, want reason %s", err, c.reason)
			}
			if id != (Identity{}) {
				t.Fatalf("refused, but said to be %v", id)
			}
		})
	}
	for what, chain := range map[string][][]byte{"nothing": nil, "garbage": {[]byte("x")}, "too many": slices.Repeat([][]byte{cert.Raw}, maxChain+1)} {
		if _, err := Verify(chain, pool(ca.Certificate()), epoch, nil, here); !errors.As(err, new(*Refusal)) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Chains are remembered for a bounded time, and only those that were valid.
func TestChainsAreRememberedForAWhile(t *testing.T) {
	ca, other := newCA(t, "c", 1), newCA(t, "c", 2)
	cert, _ := issue(t, ca, Identity{Cluster: "c", Name: "h1", Agent: true}, 3)
	strange, _ := issue(t, other, Identity{Cluster: "c", Name: "h1", Agent: true}, 4)
	known := &chains{}
	if err := known.lead([]*x509.Certificate{strange}, pool(ca.Certificate()), epoch); err == nil || len(known.until) > 0 {
		t.Errorf("a stranger: %v; %d chains are remembered", err, len(known.until))
	}
	if err := known.lead([]*x509.Certificate{cert}, pool(ca.Certificate()), epoch); err != nil || len(known.until) != 1 {
		t.Errorf("a member: %v; %d chains are remembered", err, len(known.until))
	}
	for _, v := range known.until {
		if !v.from.Equal(cert.NotBefore) || !v.to.Equal(cert.NotAfter) {
			t.Errorf("remembered from %s to %s; the certificate: from %s to %s", v.from, v.to, cert.NotBefore, cert.NotAfter)
		}
	}
	for i := range maxChains {
		known.until[[32]byte{byte(i), byte(i >> 8), 1}] = validity{}
	}
	if err := known.lead([]*x509.Certificate{cert, strange}, pool(ca.Certificate()), epoch); err != nil || len(known.until) != 1 {
		t.Errorf("after too many: %v; %d chains are remembered", err, len(known.until))
	}
}

// How long the check of a chain takes, and of one that was seen before.
func BenchmarkVerify(b *testing.B) {
	ca := newCA(b, "c", 1)
	cert, _ := issue(b, ca, Identity{Cluster: "c", Name: "h1", Agent: true}, 3)
	roots := pool(ca.Certificate())
	for name, known := range map[string]*chains{"first": nil, "again": {}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := verify([]*x509.Certificate{cert}, roots, known, epoch, nil, Want{Cluster: "c"}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A PKI of the operator's own: what must be in a certificate, and what may be.
func TestForeignCertificates(t *testing.T) {
	ca := newCA(t, "c", 1)
	key, err := GenerateKey(seed(9))
	if err != nil {
		t.Fatal(err)
	}
	uri := func(s string) *url.URL {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	usage := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, c := range []struct {
		what  string
		uris  []*url.URL
		usage []x509.ExtKeyUsage
		good  bool
	}{
		{"with a SPIFFE id beside", []*url.URL{uri("spiffe://x/y"), uri("evenkeel://c/server/h1")}, usage, true},
		{"for clients only", []*url.URL{uri("evenkeel://c/server/h1")}, usage[1:], false},
		{"no identity", []*url.URL{uri("spiffe://x/y")}, usage, false},
		{"two names", []*url.URL{uri("evenkeel://c/server/h1"), uri("evenkeel://c/agent/h2")}, usage, false},
	} {
		cert := &x509.Certificate{SerialNumber: big.NewInt(7), NotBefore: epoch, NotAfter: epoch.Add(time.Hour), URIs: c.uris, ExtKeyUsage: c.usage,
			Subject: pkix.Name{CommonName: "evenkeel://c/server/h9"}}
		der, err := x509.CreateCertificate(rand.Reader, cert, ca.cert, &key.PublicKey, ca.key)
		if err != nil {
			t.Fatal(err)
		}
		id, err := Verify([][]byte{der}, pool(ca.cert), epoch, nil, Want{Cluster: "c", Server: true})
		if c.good != (err == nil) || (c.good && id.Name != "h1") {
			t.Errorf("%s: %v, %v", c.what, id, err)
		}
	}
}

func TestIssueRefuses(t *testing.T) {
	ca := newCA(t, "c", 1)
	key, err := GenerateKey(seed(2))
	if err != nil {
		t.Fatal(err)
	}
	good := Identity{Cluster: "c", Name: "h1", Server: true}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for what, try := range map[string]func() error{
		"no role": func() error {
			_, err := ca.Issue(&key.PublicKey, Identity{Cluster: "c", Name: "h1"}, Names{}, epoch, time.Hour, seed(3))
			return err
		},
		"a name that is none": func() error {
			_, err := ca.Issue(&key.PublicKey, Identity{Cluster: "c", Name: "h1/../h2", Server: true}, Names{}, epoch, time.Hour, seed(3))
			return err
		},
		"P-384": func() error {
			_, err := ca.Issue(&p384.PublicKey, good, Names{}, epoch, time.Hour, seed(3))
			return err
		},
		"no life": func() error {
			_, err := ca.Issue(&key.PublicKey, good, Names{}, epoch, 0, seed(3))
			return err
		},
		"CA expired": func() error {
			_, err := ca.Issue(&key.PublicKey, good, Names{}, epoch.Add(caLife), time.Hour, seed(3))
			return err
		},
		"cluster": func() error { _, err := NewCA("a/b", epoch, seed(3)); return err },
		"entropy": func() error { _, err := NewCA("c", epoch, zeros{}); return err },
	} {
		if try() == nil {
			t.Errorf("%s: no error", what)
		}
	}
	cert, err := ca.Issue(&key.PublicKey, good, Names{}, epoch.Add(caLife-time.Hour), DefaultLife, seed(3))
	if err != nil || !cert.NotAfter.Equal(ca.cert.NotAfter) {
		t.Errorf("a certificate that outlives its CA: %v, %v", cert, err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestCAEncoding(t *testing.T) {
	ca := newCA(t, "01ABC", 1)
	key, err := ca.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	other := newCA(t, "01ABC", 2)
	again, err := ParseCA(append(other.CertPEM(), ca.CertPEM()...), key)
	if err != nil {
		t.Fatal(err)
	}
	if !again.cert.Equal(ca.cert) || PinOf(again.cert) != PinOf(ca.cert) || PinOf(other.cert) == PinOf(ca.cert) {
		t.Error("not the same CA")
	}
	if _, err := ParseCA(other.CertPEM(), key); err == nil {
		t.Error("took another CA's certificate")
	}
	if same := newCA(t, "01ABC", 1); !same.key.Equal(ca.key) || same.cert.SerialNumber.Cmp(ca.cert.SerialNumber) != 0 {
		t.Error("the same entropy gave another CA")
	}
}

func TestRequest(t *testing.T) {
	key, err := GenerateKey(seed(1))
	if err != nil {
		t.Fatal(err)
	}
	request, err := NewRequest(key)
	if err != nil {
		t.Fatal(err)
	}
	got, err := KeyOfRequest(request)
	if err != nil || !key.PublicKey.Equal(got) {
		t.Fatal(got, err)
	}
	big, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := NewRequest(big)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(request)
	broken := slices.Clone(block.Bytes)
	broken[len(broken)-1] ^= 1
	for what, text := range map[string][]byte{
		"empty": nil, "RSA": wrong, "twice": slices.Concat(request, request), "long": make([]byte, maxRequest+1),
		"signature": pem.EncodeToMemory(&pem.Block{Type: pemRequest, Bytes: broken}),
		"kind":      pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: block.Bytes}),
	} {
		if _, err := KeyOfRequest(text); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// A proof is good for one key and one purpose, whatever kind of key it is.
func TestProof(t *testing.T) {
	k, err := OpenStore(foreignFiles(t, big.NewInt(7), "h1"), true, epoch)
	if err != nil {
		t.Fatal(err)
	}
	chain, proof, err := k.Chain("to join")
	if err != nil {
		t.Fatal(err)
	}
	certs, err := ParseCertificates(chain)
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckProof(proof, certs[0], "to join"); err != nil {
		t.Error(err)
	}
	other, err := OpenStore(foreignFiles(t, big.NewInt(7), "h1"), true, epoch)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := NewRequest(k.now.Load().pair.PrivateKey.(crypto.Signer))
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"another purpose": CheckProof(proof, certs[0], "to leave"), "what was sent to a CA": CheckProof(plain, certs[0], "to join"),
		"another key": CheckProof(proof, other.Leaf(), "to join"), "nothing": CheckProof(nil, certs[0], "to join"),
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// CAs that count from 1 do not name two certificates alike.
func TestShortSerials(t *testing.T) {
	seen := map[string]bool{}
	for _, serial := range []*big.Int{big.NewInt(1), big.NewInt(1), new(big.Int).SetUint64(math.MaxUint64), new(big.Int).Lsh(big.NewInt(1), 64), new(big.Int).Lsh(big.NewInt(1), 150)} {
		k, err := OpenStore(foreignFiles(t, serial, "h1"), true, epoch)
		if err != nil {
			t.Fatal(err)
		}
		name := SerialOf(k.Leaf())
		if seen[name] || len(name) < 32 {
			t.Errorf("%v is named %s", serial, name)
		}
		seen[name] = true
	}
	if !seen[fmt.Sprintf("%032x", new(big.Int).Lsh(big.NewInt(1), 64))] {
		t.Errorf("a long number names itself: %v", seen)
	}
}

// foreignFiles of a member with a certificate of that number from a PKI that is not ours, with an RSA key.
func foreignFiles(t *testing.T, serial *big.Int, name string) Files {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ca, caKey := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ours"}, NotBefore: epoch.Add(-time.Hour), NotAfter: epoch.Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}, key
	sign := func(what, by *x509.Certificate) *x509.Certificate {
		der, err := x509.CreateCertificate(rand.Reader, what, by, key.Public(), caKey)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	ca = sign(ca, ca)
	id := Identity{Cluster: "c", Name: name, Agent: true}
	leaf := sign(&x509.Certificate{SerialNumber: serial, NotBefore: epoch.Add(-time.Hour), NotAfter: epoch.Add(time.Hour), URIs: id.uris(),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}, ca)
	pem, err := EncodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	files := FilesIn(t.TempDir())
	if err := files.Write(Material{Cert: EncodeCertificates(leaf), Key: pem, CA: EncodeCertificates(ca)}); err != nil {
		t.Fatal(err)
	}
	return files
}
