package member

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/node"
	"evenkeel/cluster/pki"
	"evenkeel/cluster/state"
	"evenkeel/cluster/transport"
)

// ErrNoCA says that this cluster's certificates come from the operator's own PKI.
var ErrNoCA = errors.New("the certificates of this cluster come from a PKI of the operator's own: give the host one, name it in its configuration (pki), and let it join then")

// issue issues a certificate and records its number, so that it can be revoked.
func (m *Member) issue(ctx context.Context, id pki.Identity, address string, request []byte) (transport.Certificate, error) {
	if m.ca == nil {
		return transport.Certificate{}, ErrNoCA
	}
	key, err := pki.KeyOfRequest(request)
	if err != nil {
		return transport.Certificate{}, &leader.Invalid{Fields: []leader.FieldError{{Field: "request", Text: err.Error()}}}
	}
	names, err := namesOf(address)
	if err != nil {
		return transport.Certificate{}, &leader.Invalid{Fields: []leader.FieldError{{Field: "address", Text: err.Error()}}}
	}
	cert, err := m.ca.Issue(key, id, names, time.Now(), pki.DefaultLife, rand.Reader)
	if err != nil {
		return transport.Certificate{}, fmt.Errorf("certificate of %s: %w", id, err)
	}
	if err := m.number(ctx, id, cert); err != nil {
		return transport.Certificate{}, err
	}
	return transport.Certificate{Cert: string(pki.EncodeCertificates(cert)), CA: string(pki.EncodeCertificates(m.certificates.CAs()...))}, nil
}

// certificateOf returns the certificate of the operator's own PKI that a joining host has, or says why it has none for this
// cluster and that token, which admits it.
func (m *Member) certificateOf(t state.JoinToken, q transport.JoinRequest) (*x509.Certificate, error) {
	invalid := func(field, format string, args ...any) error {
		return &leader.Invalid{Fields: []leader.FieldError{{Field: field, Text: fmt.Sprintf(format, args...)}}}
	}
	certs, err := pki.ParseCertificates([]byte(q.Chain))
	if err != nil {
		return nil, invalid("chain", "%v", err)
	}
	id, err := m.certificates.Verify(certs, time.Now(), m.revoked, pki.Want{Cluster: m.identity.Cluster, Name: q.Name})
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

// rolesOf returns the roles of an identity, for people.
func rolesOf(id pki.Identity) string { return strings.TrimSuffix(id.String(), " "+id.Name) }

// tokenWait is for how long a server that does not lead waits for a join token that its state lacks.
const tokenWait = 500 * time.Millisecond

// MayJoin says whether the token of a request to join is good, by the state of this server. It is asked before anything else of
// the request is read or handed on. A server that does not lead may be behind: it refuses after tokenWait at the earliest,
// whatever is wrong with the token. Errors wrap state.ErrToken, or leader.ErrNoLeader if no server can know.
func (m *Member) MayJoin(ctx context.Context, q transport.JoinRequest) error {
	ctx, cancel := context.WithTimeout(ctx, tokenWait)
	defer cancel()
	for {
		s := m.State.Snapshot()
		_, err := m.admits(s, q)
		if err == nil {
			return nil
		}
		here, name := m.Leader()
		if here {
			return m.refuseToken(ctx, err)
		}
		select {
		case <-s.Watch():
			continue
		case <-ctx.Done():
		}
		if name == "" || !m.CaughtUp() {
			return fmt.Errorf("look up the join token: this server has not caught up, or knows of no leader: %w", leader.ErrNoLeader)
		}
		return m.refuseToken(ctx, err)
	}
}

// admits looks the token of a request up, and says whether it admits that member now.
func (m *Member) admits(s *state.Snapshot, q transport.JoinRequest) (state.JoinToken, error) {
	t, _ := s.JoinToken(q.ID) // the zero one admits no member
	return t, t.Admits(pki.HashSecret(q.Secret), state.Member{Name: q.Name, Server: t.Server, Agent: t.Agent}, time.Now())
}

// refuseToken records that a join token was refused. Of what the request's sender chose, the record has only the address.
func (m *Member) refuseToken(ctx context.Context, why error) error {
	m.refusedJoin(ctx, why.Error())
	return why
}

// Admit admits a new member on a join token (POST /v1/cluster/join). Nothing is parsed, proposed or changed before the token is
// found to be good. The state checks it again when it applies the join: two hosts may show one token at once.
func (m *Member) Admit(ctx context.Context, q transport.JoinRequest) (transport.JoinAnswer, error) {
	var none transport.JoinAnswer
	t, err := m.admits(m.State.Snapshot(), q)
	if err != nil {
		return none, m.refuseToken(ctx, err)
	}
	if err := q.Check(); err != nil {
		return none, err
	}
	if m.ca == nil && q.Chain == "" {
		return none, ErrNoCA
	}
	var own *x509.Certificate
	if q.Chain != "" {
		if own, err = m.certificateOf(t, q); err != nil {
			m.refusedJoin(ctx, err.Error())
			return none, err
		}
	} else if _, err := pki.KeyOfRequest([]byte(q.Request)); err != nil {
		return none, &leader.Invalid{Fields: []leader.FieldError{{Field: "request", Text: err.Error()}}}
	}
	s := m.State.Snapshot()
	row := state.Member{Name: q.Name, Server: t.Server, Agent: t.Agent, NoVote: t.NoVote, Address: q.Address, Format: state.FormatVersion}
	join := state.Join{Token: q.ID, Hash: pki.HashSecret(q.Secret), Member: row}
	if q.Machine != "" && q.Boot != "" {
		join.Machine = state.Machine{ID: q.Machine, Boot: q.Boot}
	}
	if err := s.CheckJoin(join); err != nil { // before its vote is forgotten
		return none, fmt.Errorf("join of %s: %w", q.Name, err)
	}
	if t.Server {
		if err := node.CheckAddress(m.node.Servers(), q.Name, q.Address); err != nil {
			return none, err
		}
	}
	if err := m.forget(ctx, t, q); err != nil {
		return none, err
	}
	if err := m.Propose(ctx, state.KindJoin, join); err != nil {
		if errors.Is(err, state.ErrToken) {
			return none, m.refuseToken(ctx, err)
		}
		return none, fmt.Errorf("join of %s: %w", q.Name, err)
	}
	out, err := m.furnish(ctx, t, q, own, join.Machine)
	if err != nil { // the token is used: the same request would be refused for ever
		return none, fmt.Errorf("join of %s: its token is used, and it did not get what a member needs: %v; make another token (vcctl cluster join-token --for %[1]s) and join with that: %[3]w", q.Name, err, leader.ErrConflict)
	}
	return out, nil
}

// furnish returns what a member that was just let in needs: its certificate, unless it has its own, and the cluster's keys and servers.
func (m *Member) furnish(ctx context.Context, t state.JoinToken, q transport.JoinRequest, own *x509.Certificate, machine state.Machine) (out transport.JoinAnswer, err error) {
	m.port.Recheck() // of the member that had that name before
	out = transport.JoinAnswer{Cluster: m.identity.Cluster, Servers: m.Servers(), Revoked: m.revocations()}
	if b, is := m.Readmit(q.Name, machine); is && t.Agent {
		out.Agent = &b
	}
	id := pki.Identity{Cluster: m.identity.Cluster, Name: q.Name, Server: t.Server, Agent: t.Agent}
	if own != nil {
		err = m.number(ctx, id, own)
	} else {
		out.Certificate, err = m.issue(ctx, id, q.Address, []byte(q.Request))
	}
	if err != nil {
		return out, err
	}
	if out.GossipKey, err = readSecret(m.o.Dir, gossipKeyFile); err != nil {
		return out, fmt.Errorf("key of the gossip: %w", err)
	}
	if t.Server && own == nil {
		key, err := m.ca.KeyPEM()
		if err != nil {
			return out, err
		}
		out.CAKey = string(key)
	}
	if t.Server {
		if err := m.node.AddServer(ctx, q.Name, q.Address, false); err != nil {
			return out, fmt.Errorf("make it a server: %w", err)
		}
		m.servers.Store(nil)
		out.Servers = m.Servers()
	}
	return out, nil
}

// forget removes the vote of a server that is admitted again: it comes without the log with which it voted, and a voter must
// never forget what it acknowledged. The token admits it.
func (m *Member) forget(ctx context.Context, t state.JoinToken, q transport.JoinRequest) error {
	if _, known := m.State.Snapshot().Member(q.Name); !known || t.For != q.Name {
		return nil
	}
	if err := m.node.RemoveServer(ctx, q.Name, false); err != nil {
		return fmt.Errorf("let server %s in again without its vote: %w", q.Name, err)
	}
	return nil
}

// NewJoinToken makes a token that admits one member which never was one. Its text is shown once.
func (m *Member) NewJoinToken(ctx context.Context, server, agent, noVote bool, life time.Duration, comment string) (string, state.JoinToken, error) {
	return m.NewToken(ctx, life, state.JoinToken{Server: server, Agent: agent, NoVote: noVote, Comment: comment})
}

// NewToken makes a token that admits one member, as the row says. Its text is shown once.
func (m *Member) NewToken(ctx context.Context, life time.Duration, row state.JoinToken) (string, state.JoinToken, error) {
	t, err := pki.NewJoinToken(m.certificates.CAs()[0], rand.Reader)
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

// known is the leader's service for agents that are members.
type known struct{ *Member }

var errNoMember = fmt.Errorf("this host is no member of the cluster: %w", leader.ErrNotFound)

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
	return k.Service.Desired(ctx, host)
}

// Report implements agent.Leader.
func (k known) Report(ctx context.Context, r agent.Report) error {
	if err := k.is(r.Host); err != nil {
		return err
	}
	return k.Service.Report(ctx, r)
}

// Permit implements agent.Leader.
func (k known) Permit(ctx context.Context, q agent.PermitRequest) (agent.Permit, error) {
	if err := k.is(q.Host); err != nil {
		return agent.Permit{}, err
	}
	return k.Service.Permit(ctx, q)
}

// Peers returns the hosts to which an agent is to test the route.
func (k known) Peers(ctx context.Context, q agent.PeersWanted) (agent.Peers, error) {
	if err := k.is(q.Host); err != nil {
		return agent.Peers{}, err
	}
	return k.Service.Peers(ctx, q)
}

// Renew implements agent.Leader.
func (k known) Renew(ctx context.Context, r agent.Renewal) (agent.Grant, error) {
	if err := k.is(r.Host); err != nil {
		return agent.Grant{}, err
	}
	return k.Service.Renew(ctx, r)
}
