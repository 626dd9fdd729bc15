package member

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/control"
	"evenkeel/cluster/pki"
	"evenkeel/cluster/state"
	"evenkeel/cluster/transport"
)

// ErrNoCA: this cluster's certificates come from elsewhere.
var ErrNoCA = errors.New("the certificates of this cluster come from a PKI of the operator's own: give the host one, name it in its configuration (pki), and let it join then")

// issue a certificate and record its number, so that it can be revoked.
func (m *Member) issue(ctx context.Context, id pki.Identity, address string, request []byte) (transport.Certificate, error) {
	if m.ca == nil {
		return transport.Certificate{}, ErrNoCA
	}
	key, err := pki.KeyOfRequest(request)
	if err != nil {
		return transport.Certificate{}, &control.Invalid{Fields: []control.FieldError{{Field: "request", Text: err.Error()}}}
	}
	names, err := namesOf(address)
	if err != nil {
		return transport.Certificate{}, &control.Invalid{Fields: []control.FieldError{{Field: "address", Text: err.Error()}}}
	}
	cert, err := m.ca.Issue(key, id, names, time.Now(), pki.DefaultLife, rand.Reader)
	if err != nil {
		return transport.Certificate{}, fmt.Errorf("certificate of %s: %w", id, err)
	}
	if err := m.number(ctx, id, cert); err != nil {
		return transport.Certificate{}, err
	}
	return transport.Certificate{Cert: string(pki.EncodeCertificates(cert)), CA: string(pki.EncodeCertificates(m.keeper.CAs()...))}, nil
}

// number records the number of a member's certificate.
func (m *Member) number(ctx context.Context, id pki.Identity, cert *x509.Certificate) error {
	serial := state.Serial{Number: pki.SerialOf(cert), Until: cert.NotAfter.UTC()}
	if err := m.Propose(ctx, state.KindCertificate, state.Certificate{Member: id.Name, Serial: serial}); err != nil {
		return fmt.Errorf("record the certificate of %s: %w", id, err)
	}
	return nil
}

// Record implements transport.Issuer: what a member of a PKI of the operator's own shows by now is to be revoked with it.
func (m *Member) Record(ctx context.Context, id pki.Identity, serial string, chain []byte) error {
	row, ok := m.State.Snapshot().Member(id.Name)
	if !ok {
		return fmt.Errorf("%s: %w", id, control.ErrNotFound)
	}
	certs, err := pki.ParseCertificates(chain)
	if err != nil {
		return &control.Invalid{Fields: []control.FieldError{{Field: "chain", Text: err.Error()}}}
	}
	if pki.SerialOf(certs[0]) != serial {
		return &control.Invalid{Fields: []control.FieldError{{Field: "chain", Text: "it is of another certificate than the one shown"}}}
	}
	if slices.ContainsFunc(row.Serials, func(s state.Serial) bool { return s.Number == serial }) {
		return nil
	}
	return m.number(ctx, id, certs[0])
}

// holds says what certificate of the operator's own PKI a joiner holds, or why it is none for this cluster and that token.
func (m *Member) holds(t state.JoinToken, q transport.JoinRequest) (*x509.Certificate, error) {
	invalid := func(field, format string, args ...any) error {
		return &control.Invalid{Fields: []control.FieldError{{Field: field, Text: fmt.Sprintf(format, args...)}}}
	}
	if !pki.SecretMatches(t.Hash, q.Secret) { // before anything is read that a stranger sent
		return nil, fmt.Errorf("member %s: join token %.16q is not known, or came with the wrong secret: %w", q.Name, q.ID, state.ErrToken)
	}
	certs, err := pki.ParseCertificates([]byte(q.Chain))
	if err != nil {
		return nil, invalid("chain", "%v", err)
	}
	id, err := m.keeper.Verify(certs, time.Now(), m.revoked, pki.Want{Cluster: m.identity.Cluster, Name: q.Name})
	if err != nil {
		return nil, invalid("chain", "%v", err)
	}
	if err := pki.CheckProof([]byte(q.Request), certs[0], q.Purpose(m.identity.Cluster)); err != nil {
		return nil, invalid("request", "%v", err)
	}
	if gives := (pki.Identity{Name: q.Name, Server: t.Server, Agent: t.Agent}); gives.Server != id.Server || gives.Agent != id.Agent {
		return nil, invalid("token", "it is for one %s, and the certificate is of %s", rolesOf(gives), rolesOf(id))
	}
	if row, known := m.State.Snapshot().Member(q.Name); known {
		number := pki.SerialOf(certs[0])
		if slices.ContainsFunc(row.Serials, func(s state.Serial) bool { return s.Number == number }) {
			return nil, invalid("chain", "member %s was in with this certificate before, and the certificates from then count no more once it is let in again: give it a new one", q.Name)
		}
	}
	return certs[0], nil
}

// rolesOf an identity, for people.
func rolesOf(id pki.Identity) string { return strings.TrimSuffix(id.String(), " "+id.Name) }

// Renew implements transport.Issuer: the same identity, another key or a longer life.
func (m *Member) Renew(ctx context.Context, id pki.Identity, _ string, request []byte) (transport.Certificate, error) {
	row, ok := m.State.Snapshot().Member(id.Name)
	if !ok || row.Server != id.Server || row.Agent != id.Agent {
		return transport.Certificate{}, fmt.Errorf("%s: %w", id, control.ErrNotFound)
	}
	return m.issue(ctx, id, row.Address, request)
}

// Admit lets a new member in on a join token (POST /v1/cluster/join).
func (m *Member) Admit(ctx context.Context, q transport.JoinRequest) (transport.JoinAnswer, error) {
	var none transport.JoinAnswer
	if m.ca == nil && q.Chain == "" {
		return none, ErrNoCA
	}
	if !pki.ValidName(q.Name) {
		return none, &control.Invalid{Fields: []control.FieldError{{Field: "name", Text: "must be a DNS label in lower case"}}}
	}
	if _, _, err := net.SplitHostPort(q.Address); err != nil {
		return none, &control.Invalid{Fields: []control.FieldError{{Field: "address", Text: "must be host:port: " + err.Error()}}}
	}
	t, _ := m.State.Snapshot().JoinToken(q.ID) // what is not known is refused below
	var own *x509.Certificate
	if q.Chain != "" {
		var err error
		if own, err = m.holds(t, q); err != nil {
			m.refusedJoin(ctx, err.Error())
			return none, err
		}
	} else if _, err := pki.KeyOfRequest([]byte(q.Request)); err != nil {
		return none, &control.Invalid{Fields: []control.FieldError{{Field: "request", Text: err.Error()}}}
	}
	if err := m.forget(ctx, t, q); err != nil {
		return none, err
	}
	row := state.Member{Name: q.Name, Server: t.Server, Agent: t.Agent, NoVote: t.NoVote, Address: q.Address, Format: state.FormatVersion}
	if err := m.Propose(ctx, state.KindJoin, state.Join{Token: q.ID, Hash: pki.HashSecret(q.Secret), Member: row, Held: m.State.Snapshot().Format() >= 3}); err != nil {
		if errors.Is(err, state.ErrToken) {
			m.refusedJoin(ctx, err.Error())
		}
		return none, fmt.Errorf("join of %s: %w", q.Name, err)
	}
	m.port.Recheck() // of who was in under that name before
	out := transport.JoinAnswer{Cluster: m.identity.Cluster, Servers: m.Servers(), Revoked: m.revocations()}
	id := pki.Identity{Cluster: m.identity.Cluster, Name: q.Name, Server: t.Server, Agent: t.Agent}
	var err error
	if own != nil {
		err = m.number(ctx, id, own)
	} else {
		out.Certificate, err = m.issue(ctx, id, q.Address, []byte(q.Request))
	}
	if err != nil {
		return none, err
	}
	if out.GossipKey, err = os.ReadFile(filepath.Join(m.o.Dir, gossipKeyFile)); err != nil {
		return none, fmt.Errorf("key of the gossip: %w", err)
	}
	if t.Server && own == nil {
		key, err := m.ca.KeyPEM()
		if err != nil {
			return none, err
		}
		out.CAKey = string(key)
	}
	if t.Server {
		if err := m.node.AddServer(ctx, q.Name, q.Address, false); err != nil {
			return none, fmt.Errorf("join of %s: make it a server: %w", q.Name, err)
		}
		m.servers.Store(nil)
		out.Servers = m.Servers()
	}
	return out, nil
}

// forget the vote of a server that is let in again: it comes without the log that it voted with, and a voter must
// never forget what it acknowledged. The token is looked at first, and again by the state.
func (m *Member) forget(ctx context.Context, t state.JoinToken, q transport.JoinRequest) error {
	_, known := m.State.Snapshot().Member(q.Name)
	if !known || t.For != q.Name || t.UsedBy != "" || time.Now().After(t.Until) || !pki.SecretMatches(t.Hash, q.Secret) {
		return nil
	}
	if err := m.node.RemoveServer(ctx, q.Name, false); err != nil {
		return fmt.Errorf("let server %s in again without its vote: %w", q.Name, err)
	}
	return nil
}

// NewJoinToken makes a token that lets one member in, one that was never in. Its text is shown once.
func (m *Member) NewJoinToken(ctx context.Context, server, agent, noVote bool, life time.Duration, comment string) (string, state.JoinToken, error) {
	return m.NewToken(ctx, life, state.JoinToken{Server: server, Agent: agent, NoVote: noVote, Comment: comment})
}

// NewToken makes a token that lets one member in, as the row says. Its text is shown once.
func (m *Member) NewToken(ctx context.Context, life time.Duration, row state.JoinToken) (string, state.JoinToken, error) {
	t, err := pki.NewJoinToken(m.keeper.CAs()[0], rand.Reader)
	if m.ca != nil {
		t, err = pki.NewJoinToken(m.ca.Certificate(), rand.Reader)
	}
	if err != nil {
		return "", state.JoinToken{}, err
	}
	row.ID, row.Hash, row.Until = t.ID, pki.HashSecret(t.Secret), time.Now().Add(life).UTC()
	if err := m.Propose(ctx, state.KindTokenPut, row); err != nil {
		return "", row, fmt.Errorf("join token: %w", err)
	}
	return t.Text(), row, nil
}

// takeDownAgain is how long after its start, or after it could not, a member has its certificate taken down.
const takeDownAgain = 2 * time.Second

// keepCertificate renews this member's certificate in time, and takes in files that changed.
func (m *Member) keepCertificate(ctx context.Context) error {
	recorded := "" // of a PKI of the operator's own: what the leader has taken down
	for {
		pause := min(time.Minute, max(time.Second, time.Until(m.keeper.RenewAt())/2))
		if m.keeper.Foreign() && recorded == "" {
			pause = min(pause, takeDownAgain)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		if _, err := m.keeper.Refresh(time.Now()); err != nil {
			m.log.Error("read the certificate again", "error", err)
		}
		if now := pki.SerialOf(m.keeper.Leaf()); m.keeper.Foreign() && now != recorded {
			if err := m.takenDown(ctx); err != nil {
				recorded = ""
				m.log.Debug("record the certificate", "error", err)
			} else {
				recorded = now
			}
		}
		if !m.keeper.RenewDue(time.Now()) {
			continue
		}
		if err := m.renew(ctx); err != nil {
			m.log.Error("renew the certificate", "ends", m.keeper.Leaf().NotAfter, "error", err)
		} else {
			m.log.Info("certificate renewed", "ends", m.keeper.Leaf().NotAfter)
		}
	}
}

func (m *Member) renew(ctx context.Context) error {
	key, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	request, err := pki.NewRequest(key)
	if err != nil {
		return err
	}
	keyPEM, err := pki.EncodeKey(key)
	if err != nil {
		return err
	}
	return m.atServer(func(address string) error {
		c, err := m.client.RenewCertificate(ctx, address, request)
		if err != nil {
			return err
		}
		return m.keeper.Replace(pki.Material{Cert: []byte(c.Cert), Key: keyPEM, CA: []byte(c.CA)}, time.Now())
	})
}

// takenDown has the leader take down which certificate of the operator's own PKI this member shows.
func (m *Member) takenDown(ctx context.Context) error {
	chain := pki.EncodeCertificates(m.keeper.Leaf())
	return m.atServer(func(address string) error { return m.client.RecordCertificate(ctx, address, chain) })
}

// atServer does something at one server after the other, until one has done it.
func (m *Member) atServer(f func(address string) error) error {
	var servers []string
	var err error
	if m.State != nil {
		servers = m.Servers()
	} else if servers, err = readServers(m.o.Dir); err != nil {
		return err
	}
	var failed error
	for _, address := range servers {
		if err = f(address); err == nil {
			return nil
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// known is the leader's service for agents that are members.
type known struct{ *Member }

var errNoMember = fmt.Errorf("this host is no member of the cluster: %w", control.ErrNotFound)

func (k known) is(host string) error {
	if row, ok := k.State.Snapshot().Member(host); !ok || !row.Agent {
		return errNoMember
	}
	return nil
}

// Desired implements agent.Leader.
func (k known) Desired(ctx context.Context, host string) (agent.Desired, <-chan struct{}, error) {
	if err := k.is(host); err != nil {
		return agent.Desired{}, nil, err
	}
	return k.Control.Desired(ctx, host)
}

// Report implements agent.Leader.
func (k known) Report(ctx context.Context, r agent.Report) error {
	if err := k.is(r.Host); err != nil {
		return err
	}
	return k.Control.Report(ctx, r)
}

// Permit implements agent.Leader.
func (k known) Permit(ctx context.Context, q agent.PermitRequest) (agent.Permit, error) {
	if err := k.is(q.Host); err != nil {
		return agent.Permit{}, err
	}
	return k.Control.Permit(ctx, q)
}

// Renew implements agent.Leader.
func (k known) Renew(ctx context.Context, r agent.Renewal) (agent.Grant, error) {
	if err := k.is(r.Host); err != nil {
		return agent.Grant{}, err
	}
	return k.Control.Renew(ctx, r)
}
