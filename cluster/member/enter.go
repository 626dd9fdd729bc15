package member

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/oklog/ulid/v2"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/lease"
	"evenkeel/cluster/pki"
	"evenkeel/cluster/state"
	"evenkeel/cluster/transport"
)

// ErrMember says that the directory is a member's already.
var ErrMember = errors.New("this host is a member of a cluster already")

// Init makes a new cluster whose first server is this member: its CA, its keys, and an
// identity in dir. Start then makes the cluster itself. It returns the cluster's id.
func Init(dir, name, advertise string, agent bool) (string, error) {
	if HasIdentity(dir) {
		return "", ErrMember
	}
	id := ulid.MustNew(ulid.Now(), rand.Reader).String()
	ca, err := pki.NewCA(id, time.Now(), rand.Reader)
	if err != nil {
		return "", fmt.Errorf("make the cluster's CA: %w", err)
	}
	key, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		return "", fmt.Errorf("make this member's key: %w", err)
	}
	names, err := namesOf(advertise)
	if err != nil {
		return "", err
	}
	principal := pki.Identity{Cluster: id, Name: name, Server: true, Agent: agent}
	cert, err := ca.Issue(key.Public(), principal, names, time.Now(), pki.DefaultLife, rand.Reader)
	if err != nil {
		return "", fmt.Errorf("certificate of %s: %w", principal, err)
	}
	keyPEM, err := pki.EncodeKey(key)
	if err != nil {
		return "", err
	}
	caKey, err := ca.KeyPEM()
	if err != nil {
		return "", err
	}
	return id, write(dir, pki.Material{Cert: pki.EncodeCertificates(cert), Key: keyPEM, CA: ca.CertPEM()}, caKey, newGossipKey(), []string{advertise})
}

// InitAs makes a new cluster whose first server is this member, by a certificate of the operator's own PKI: the cluster has the
// id that the certificate has, and no CA of its own.
func InitAs(dir string, own pki.Files, advertise string) (pki.Identity, error) {
	certificates, err := openOwn(dir, own, advertise)
	if err != nil {
		return pki.Identity{}, err
	}
	if principal := certificates.Identity(); !principal.Server {
		return principal, fmt.Errorf("%w: it is of %s, and the first member must be a server", ErrCertificate, principal)
	}
	return certificates.Identity(), writeKnown(dir, newGossipKey(), []string{advertise})
}

// ErrCertificate says that the host's certificate of the operator's own PKI cannot be used here.
var ErrCertificate = errors.New("the certificate that the configuration names")

// openOwn reads the certificate of a host that is no member yet. The certificate must have the address at which API clients
// find the server.
func openOwn(dir string, own pki.Files, advertise string) (*pki.CertificateStore, error) {
	if Entered(dir, true) {
		return nil, ErrMember
	}
	certificates, err := pki.OpenStore(own, true, time.Now())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCertificate, err)
	}
	leaf := certificates.Leaf()
	if now := time.Now(); now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		return nil, fmt.Errorf("%w: it is good from %s to %s", ErrCertificate, leaf.NotBefore.UTC().Format(time.RFC3339), leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	host, _, err := net.SplitHostPort(advertise)
	if err != nil {
		return nil, fmt.Errorf("advertised address %q: %w", advertise, err)
	}
	if err := leaf.VerifyHostname(host); certificates.Identity().Server && err != nil {
		return nil, fmt.Errorf("%w: clients of the API would not believe it: %w", ErrCertificate, err)
	}
	return certificates, nil
}

// write writes an identity. The certificate, which makes it one, comes last.
func write(dir string, m pki.Material, caKey, gossipKey []byte, servers []string) error {
	if len(caKey) > 0 {
		if err := writeSecret(filepath.Join(dir, caKeyFile), caKey); err != nil {
			return err
		}
	}
	if err := writeKnown(dir, gossipKey, servers); err != nil {
		return err
	}
	if err := os.MkdirAll(pkiDir(dir), 0o700); err != nil {
		return err
	}
	return pki.FilesIn(pkiDir(dir)).Write(m)
}

// writeKnown writes what a member must know of its cluster. The list of servers makes a host with a certificate of the
// operator's PKI a member, so it comes last.
func writeKnown(dir string, gossipKey []byte, servers []string) error {
	if err := writeSecret(filepath.Join(dir, gossipKeyFile), gossipKey); err != nil {
		return err
	}
	return writeServers(dir, servers)
}

// namesOf returns the names in a member's certificate: where API clients find the member.
func namesOf(advertise string) (pki.Names, error) {
	host, _, err := net.SplitHostPort(advertise)
	if err != nil {
		return pki.Names{}, fmt.Errorf("advertised address %q: %w", advertise, err)
	}
	return pki.NamesOf(net.JoinHostPort(host, "0"), "localhost:0", "127.0.0.1:0")
}

// Join enters a cluster with a token, through one of the servers at the addresses. Where the options name the
// machine's run, a member that lost its disk while VMs run on it is admitted again.
func Join(ctx context.Context, dir, name, advertise string, o JoinOptions) (pki.Identity, error) {
	var none pki.Identity
	if HasIdentity(dir) {
		return none, ErrMember
	}
	t, err := pki.ParseJoinToken(o.Token)
	if err != nil {
		return none, err
	}
	key, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		return none, fmt.Errorf("make this member's key: %w", err)
	}
	request, err := pki.NewRequest(key)
	if err != nil {
		return none, err
	}
	keyPEM, err := pki.EncodeKey(key)
	if err != nil {
		return none, err
	}
	ask := o.request(transport.JoinRequest{Name: name, Address: advertise, Request: string(request)})
	a, sent, err := enter(ctx, o.Addresses, func(address string) (transport.JoinAnswer, error) {
		return transport.Join(ctx, address, t, ask, o.Connect)
	})
	if err != nil {
		return none, err
	}
	certs, err := pki.ParseCertificates([]byte(a.Cert))
	if err != nil {
		return none, fmt.Errorf("the certificate from the cluster: %w", err)
	}
	principal, err := pki.IdentityOf(certs[0])
	if err != nil {
		return none, fmt.Errorf("the certificate from the cluster: %w", err)
	}
	if err := writeHeard(dir, principal.Name, ask, a, sent); err != nil {
		return none, err
	}
	return principal, write(dir, pki.Material{Cert: []byte(a.Cert), Key: keyPEM, CA: []byte(a.CA)}, []byte(a.CAKey), a.GossipKey, a.Servers)
}

// JoinAs enters, with a token, the cluster that a certificate of the operator's own PKI names; see Join.
func JoinAs(ctx context.Context, dir string, own pki.Files, advertise string, o JoinOptions) (pki.Identity, error) {
	var none pki.Identity
	certificates, err := openOwn(dir, own, advertise)
	if err != nil {
		return none, err
	}
	t, err := pki.ParseJoinToken(o.Token)
	if err != nil {
		return none, err
	}
	ask := o.request(transport.JoinRequest{Address: advertise})
	a, sent, err := enter(ctx, o.Addresses, func(address string) (transport.JoinAnswer, error) {
		return transport.JoinAs(ctx, address, certificates, t, ask, o.Connect)
	})
	if err != nil {
		return none, err
	}
	if err := writeHeard(dir, certificates.Identity().Name, ask, a, sent); err != nil {
		return none, err
	}
	return certificates.Identity(), writeKnown(dir, a.GossipKey, a.Servers)
}

// connect connects to a server of the cluster, below TLS.
type connect = func(ctx context.Context, address string) (net.Conn, error)

// JoinOptions say by what a host enters a cluster.
type JoinOptions struct {
	Token     string        // a join token
	Addresses []string      // of servers of the cluster
	Machine   state.Machine // on which the new member runs; zero: it is not known
	Connect   connect       // nil: TCP
}

func (o JoinOptions) request(q transport.JoinRequest) transport.JoinRequest {
	q.Machine, q.Boot = o.Machine.ID, o.Machine.Boot
	return q
}

// agentFile is the file of the state of the agent of that name.
func agentFile(dir, name string) agent.StateFile {
	return agent.StateFile(filepath.Join(dir, "agents", name+".json"))
}

// writeHeard writes the cluster's answer, except for what makes this host a member. sent is when the request was sent.
func writeHeard(dir, name string, ask transport.JoinRequest, a transport.JoinAnswer, sent lease.Instant) error {
	if a.Agent != nil {
		if err := agentFile(dir, name).Save(a.Agent.Memory(ask.Boot, sent)); err != nil {
			return fmt.Errorf("keep what the agent of %s begins with: %w", name, err)
		}
	}
	return writeRevoked(dir, a.Revoked)
}

func writeRevoked(dir string, list []pki.Revocation) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	shut, err := pki.OpenRevoked(filepath.Join(dir, revokedFile))
	if err == nil {
		_, err = shut.Add(list, time.Now())
	}
	return err
}

// While servers elect a leader, or have too many requests to join, no member can be let in. A host that joins asks again every
// askAgain, for admittedWithin.
const (
	admittedWithin = 10 * time.Second
	askAgain       = 300 * time.Millisecond
)

// passes says whether the same request may be answered otherwise in a moment.
func passes(a transport.Answer) bool { return a == transport.Leaderless || a == transport.Busy }

// enter enters a cluster through the first of the addresses that answers. The request was not sent before the instant that it
// returns.
func enter(ctx context.Context, addresses []string, ask func(address string) (transport.JoinAnswer, error)) (transport.JoinAnswer, lease.Instant, error) {
	end := time.Now().Add(admittedWithin)
	for {
		sent := lease.Boottime()
		a, err := enterOnce(addresses, ask)
		if said, _ := transport.AnswerOf(err); err == nil || !passes(said) || !time.Now().Before(end) {
			return a, sent, err
		}
		select {
		case <-ctx.Done():
			return a, sent, err
		case <-time.After(askAgain):
		}
	}
}

// enterOnce asks each address once.
func enterOnce(addresses []string, ask func(address string) (transport.JoinAnswer, error)) (transport.JoinAnswer, error) {
	var failed error
	for _, address := range addresses {
		a, err := ask(address)
		if err == nil {
			return a, nil
		}
		if said, _ := transport.AnswerOf(err); said != transport.NoAnswer && !passes(said) { // another server would not answer otherwise
			return a, fmt.Errorf("join the cluster: %w", err)
		}
		failed = errors.Join(failed, err)
	}
	return transport.JoinAnswer{}, fmt.Errorf("join the cluster: %w", failed)
}
