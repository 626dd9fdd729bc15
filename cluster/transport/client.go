package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/pki"
)

// ClientOptions are the options of a Client.
type ClientOptions struct {
	Log *slog.Logger
}

// RecordCertificate asks a server (which asks the leader) to record the certificate of the operator's own PKI that this member
// shows now.
func (c *Client) RecordCertificate(ctx context.Context, address string, chain []byte) error {
	if err := post(ctx, c.http, urlOf(address, "certificate").String(), nil, certificateRequest{Chain: string(chain)}, nil); err != nil {
		return fmt.Errorf("record the certificate at %s: %w", address, err)
	}
	return nil
}

// RenewCertificate asks a server (which asks the leader) for another certificate of this member's own identity, for the key of
// a request (pki.NewRequest). Pass the result to pki.CertificateStore.Replace.
func (c *Client) RenewCertificate(ctx context.Context, address string, request []byte) (Certificate, error) {
	var out Certificate
	err := post(ctx, c.http, urlOf(address, "certificate").String(), nil, certificateRequest{Request: string(request)}, &out)
	if err != nil {
		return Certificate{}, fmt.Errorf("renew the certificate at %s: %w", address, err)
	}
	return out, nil
}

// post sends a call and reads its answer into out, if out is not nil.
func post(ctx context.Context, t http.RoundTripper, url string, header http.Header, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode %T: %w", in, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := t.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // nothing is kept in it
	if resp.StatusCode/100 != 2 {
		return problemOf(resp)
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxCall+1))
	switch {
	case err != nil:
		return fmt.Errorf("read the answer: %w", err)
	case len(answer) > maxCall:
		return fmt.Errorf("the answer: more than %d bytes: %w", maxCall, ErrTooLarge)
	case out == nil:
		return nil
	}
	return decodeOne(answer, out)
}

// JoinAnswer is what a new member is given.
type JoinAnswer struct {
	Cluster     string   `json:"cluster"`
	Certificate          // empty for a member that has one
	CAKey       string   `json:"caKey,omitempty"`     // PEM; for servers only
	GossipKey   []byte   `json:"gossipKey,omitempty"` // for servers and agents that gossip
	Servers     []string `json:"servers"`             // "host:port"
	// Revoked certificates of the cluster, which the new member believes no more than the others do.
	Revoked []pki.Revocation `json:"revoked,omitempty"`
	// Agent is what the member's agent begins with, if the member came back in the same run of its machine.
	Agent *agent.Beginning `json:"agent,omitempty"`
}

// joinPath is where the public API admits new members.
const joinPath = "/v1/cluster/join"

// Join enters a cluster through the server at an address. The secret of the token is sent only after the server has shown a
// certificate of a server of the cluster with the token's CA: any other machine that answers at the address learns nothing.
// connect nil: TCP.
func Join(ctx context.Context, address string, token pki.JoinToken, ask JoinRequest, connect func(ctx context.Context, address string) (net.Conn, error)) (JoinAnswer, error) {
	out, err := join(ctx, address, token, ask, connect, func(certs []*x509.Certificate) error { return verifyPinned(certs, token.Pin, time.Now()) })
	if err != nil {
		return JoinAnswer{}, fmt.Errorf("join at %s: %w", address, err)
	}
	// The holder of the CA's key controls the cluster; still, what it gave is checked before it is kept.
	certs, err := pki.ParseCertificates([]byte(out.Cert))
	if err != nil {
		return JoinAnswer{}, fmt.Errorf("join at %s: the certificate it gave: %w", address, err)
	}
	id, err := pki.IdentityOf(certs[0])
	if err != nil {
		return JoinAnswer{}, fmt.Errorf("join at %s: the certificate it gave: %w", address, err)
	}
	if id.Cluster != out.Cluster || id.Name != ask.Name {
		return JoinAnswer{}, fmt.Errorf("join at %s: the certificate it gave is of %s of cluster %s, not of %s of %s", address, id, id.Cluster, ask.Name, out.Cluster)
	}
	return out, nil
}

// JoinAs enters the cluster that the certificate in the store names, with that certificate. The secret of the token is sent
// only to a server of that cluster by the CAs that the store believes, whatever CA the token names. connect nil: TCP.
func JoinAs(ctx context.Context, address string, certificates *pki.CertificateStore, token pki.JoinToken, ask JoinRequest, connect func(ctx context.Context, address string) (net.Conn, error)) (JoinAnswer, error) {
	principal := certificates.Identity()
	ask.ID, ask.Secret, ask.Name = token.ID, token.Secret, principal.Name
	chain, proof, err := certificates.Chain(ask.Purpose(principal.Cluster))
	if err != nil {
		return JoinAnswer{}, fmt.Errorf("join at %s: %w", address, err)
	}
	ask.Chain, ask.Request = string(chain), string(proof)
	out, err := join(ctx, address, token, ask, connect, func(certs []*x509.Certificate) error {
		_, err := certificates.Verify(certs, time.Now(), nil, pki.Want{Cluster: principal.Cluster, Server: true})
		return err
	})
	if err == nil && (out.Cluster != principal.Cluster || out.Cert != "") {
		err = fmt.Errorf("it lets this host into cluster %s with another certificate than its own, of cluster %s", out.Cluster, principal.Cluster)
	}
	if err != nil {
		return JoinAnswer{}, fmt.Errorf("join at %s: %w", address, err)
	}
	return out, nil
}

func join(ctx context.Context, address string, token pki.JoinToken, ask JoinRequest, connect func(ctx context.Context, address string) (net.Conn, error), believe func([]*x509.Certificate) error) (out JoinAnswer, err error) {
	if connect == nil {
		connect = tcp
	}
	ask.ID, ask.Secret = token.ID, token.Secret
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	t := &http.Transport{DisableKeepAlives: true, Protocols: protocols, DialTLSContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		return dialBelieved(ctx, address, believe, connect)
	}}
	err = post(ctx, t, "https://"+address+joinPath, nil, ask, &out)
	return out, err
}

// dialBelieved connects to the API of a server whose certificates are believed.
func dialBelieved(ctx context.Context, address string, believe func([]*x509.Certificate) error, connect func(ctx context.Context, address string) (net.Conn, error)) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	raw, err := connect(ctx, address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"},
		InsecureSkipVerify: true, // by name; VerifyConnection verifies by what the joiner knows of the cluster
		VerifyConnection:   func(cs tls.ConnectionState) error { return believe(cs.PeerCertificates) },
	})
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return conn, nil
}

// verifyPinned checks that the chain ends at the CA with that fingerprint, and begins with a server of its cluster.
func verifyPinned(certs []*x509.Certificate, pin pki.Pin, now time.Time) error {
	raw := make([][]byte, len(certs))
	roots, found := x509.NewCertPool(), false
	for i, c := range certs {
		raw[i] = c.Raw
		if c.IsCA && pki.PinOf(c) == pin {
			roots.AddCert(c)
			found = true
		}
	}
	if !found {
		return &pki.Refusal{Reason: pki.WrongCA, Detail: "the server's CA is not the one of the join token"}
	}
	_, err := pki.Verify(raw, roots, now, nil, pki.Want{Server: true})
	return err
}

// Console opens the console of a VM at the member that is its host. Errors of the protocol are *Problem.
func (c *Client) Console(ctx context.Context, address, host, id string) (io.ReadWriteCloser, error) {
	t := newTransport(c.dialer, ProtocolPeer, pki.Want{Name: host, Agent: true})
	t.DisableKeepAlives = true
	// The stream outlives the call: ctx bounds the opening only.
	streaming, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	req, err := http.NewRequestWithContext(streaming, http.MethodGet, urlOf(address, "host", "vms", id, "console").String(), nil)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("console of VM %s on host %s: %w", id, host, err)
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", consoleProtocol)
	resp, err := t.RoundTrip(req)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("console of VM %s on host %s: %w", id, host, err)
	}
	stream, ok := resp.Body.(io.ReadWriteCloser)
	if resp.StatusCode != http.StatusSwitchingProtocols || !ok || !upgrades(resp.Header, consoleProtocol) || !stop() {
		err := ctx.Err()
		if err == nil {
			err = problemOf(resp)
		}
		_ = resp.Body.Close()
		cancel()
		return nil, fmt.Errorf("console of VM %s on host %s: %w", id, host, err)
	}
	return &console{ReadWriteCloser: stream, cancel: cancel}, nil
}

type console struct {
	io.ReadWriteCloser
	cancel context.CancelFunc
}

func (c *console) Close() error {
	defer c.cancel()
	return c.ReadWriteCloser.Close()
}
