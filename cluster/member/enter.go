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

	"evenkeel/cluster/pki"
	"evenkeel/cluster/transport"
)

// ErrMember: the directory is a member's already.
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
	who := pki.Identity{Cluster: id, Name: name, Server: true, Agent: agent}
	cert, err := ca.Issue(key.Public(), who, names, time.Now(), pki.DefaultLife, rand.Reader)
	if err != nil {
		return "", fmt.Errorf("certificate of %s: %w", who, err)
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

// write an identity: what makes it one, the certificate, comes last.
func write(dir string, m pki.Material, caKey, gossipKey []byte, servers []string) error {
	if err := writeServers(dir, servers); err != nil {
		return err
	}
	if len(caKey) > 0 {
		if err := writeSecret(filepath.Join(dir, caKeyFile), caKey); err != nil {
			return err
		}
	}
	if err := writeSecret(filepath.Join(dir, gossipKeyFile), gossipKey); err != nil {
		return err
	}
	if err := os.MkdirAll(pkiDir(dir), 0o700); err != nil {
		return err
	}
	return pki.FilesIn(pkiDir(dir)).Write(m)
}

// namesOf a member's certificate: where API clients find it.
func namesOf(advertise string) (pki.Names, error) {
	host, _, err := net.SplitHostPort(advertise)
	if err != nil {
		return pki.Names{}, fmt.Errorf("advertised address %q: %w", advertise, err)
	}
	return pki.NamesOf(net.JoinHostPort(host, "0"), "localhost:0", "127.0.0.1:0")
}

// Join enters a cluster with a token, through one of the servers at the addresses.
func Join(ctx context.Context, dir, name, advertise, token string, addresses []string) (pki.Identity, error) {
	var none pki.Identity
	if HasIdentity(dir) {
		return none, ErrMember
	}
	t, err := pki.ParseJoinToken(token)
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
	ask := transport.JoinRequest{ID: t.ID, Secret: t.Secret, Name: name, Address: advertise, Request: string(request)}
	end := time.Now().Add(electedWithin)
	for {
		who, err := enter(ctx, dir, t, ask, addresses, keyPEM)
		if said, _ := transport.AnswerOf(err); said != transport.Leaderless || !time.Now().Before(end) {
			return who, err
		}
		select {
		case <-ctx.Done():
			return none, err
		case <-time.After(askAgain):
		}
	}
}

// While servers elect a leader nobody can be let in: who joins asks again so often, for so long.
const (
	electedWithin = 10 * time.Second
	askAgain      = 300 * time.Millisecond
)

// enter asks each address once.
func enter(ctx context.Context, dir string, t pki.JoinToken, ask transport.JoinRequest, addresses []string, keyPEM []byte) (pki.Identity, error) {
	var none pki.Identity
	var failed error
	for _, address := range addresses {
		a, err := transport.Join(ctx, address, t, ask, nil)
		if said, _ := transport.AnswerOf(err); said != transport.NoAnswer && said != transport.Leaderless { // another server would not say otherwise
			return none, fmt.Errorf("join the cluster: %w", err)
		}
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		certs, err := pki.ParseCertificates([]byte(a.Cert))
		if err != nil {
			return none, fmt.Errorf("the certificate from %s: %w", address, err)
		}
		who, err := pki.IdentityOf(certs[0])
		if err != nil {
			return none, fmt.Errorf("the certificate from %s: %w", address, err)
		}
		shut, err := pki.OpenRevoked(filepath.Join(dir, revokedFile))
		if err == nil {
			err = os.MkdirAll(dir, 0o700)
		}
		if err == nil {
			_, err = shut.Add(a.Revoked, time.Now())
		}
		if err != nil {
			return none, err
		}
		return who, write(dir, pki.Material{Cert: []byte(a.Cert), Key: keyPEM, CA: []byte(a.CA)}, []byte(a.CAKey), a.GossipKey, a.Servers)
	}
	return none, fmt.Errorf("join the cluster: %w", failed)
}
