package member

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/node"
	"evenkeel/cluster/pki"
	"evenkeel/cluster/state"
)

// about is what a server reports to the others of itself.
type about struct {
	Stats   node.Stats     `json:"stats"`
	Version string         `json:"version"`
	Format  int            `json:"format"`
	Address string         `json:"address"`
	Gossip  string         `json:"gossip"`
	Audits  []refusalEvent `json:"audits,omitempty"` // the last ones
	// TokenUses are the last uses of tokens of the API on this server, by id.
	TokenUses map[string]time.Time `json:"tokenUses,omitempty"`
}

func (m *Member) about() any {
	return about{Stats: m.node.Stats(), Version: m.o.Version, Format: state.FormatVersion, Address: m.o.Advertise,
		Gossip: m.o.GossipAdvertise, Audits: m.audits.last(time.Now()), TokenUses: m.TokenUses()}
}

// healths are what servers last reported of themselves, on the leader.
type healths struct {
	mu sync.Mutex
	of map[string]about
}

func (m *Member) askHealth(ctx context.Context, of node.Server) (node.Stats, error) {
	var a about
	if err := m.client.About(ctx, of.Address, &a); err != nil {
		return node.Stats{}, err
	}
	m.health.mu.Lock()
	defer m.health.mu.Unlock()
	if m.health.of == nil {
		m.health.of = map[string]about{}
	}
	m.health.of[of.ID] = a
	return a.Stats, nil
}

// registerEvery is how often the leader checks whether servers run another version.
const registerEvery = 5 * time.Second

// register keeps the rows of servers up to date, this one's first.
func (m *Member) register(ctx context.Context) {
	recorded, events := map[string]uint64{}, m.newRecording()
	for {
		m.health.mu.Lock()
		now := map[string]about{m.identity.Name: m.about().(about)}
		for name, a := range m.health.of {
			now[name] = a
		}
		m.health.mu.Unlock()
		s := m.State.Snapshot()
		for name, a := range now {
			row, ok := s.Member(name)
			if !ok && name != m.identity.Name {
				continue // it was removed
			}
			if !ok {
				row = state.Member{Name: name, Server: true, Agent: m.identity.Agent}
			}
			if ok && row.Version == a.Version && row.Format == a.Format && row.Address == a.Address && row.Gossip == a.Gossip {
				continue
			}
			row.Version, row.Format, row.Address, row.Gossip = a.Version, a.Format, a.Address, a.Gossip
			if err := m.Propose(ctx, state.KindMemberPut, row); err != nil {
				m.log.Warn("register", "member", name, "error", err)
				continue
			}
			if !ok { // the member that made the cluster has no record of its own joining
				leaf := m.certificates.Leaf()
				serial := state.Serial{Number: pki.SerialOf(leaf), Until: leaf.NotAfter.UTC()}
				if err := m.Propose(ctx, state.KindCertificate, state.Certificate{Member: name, Serial: serial}); err != nil {
					m.log.Warn("register the certificate", "member", name, "error", err)
				}
			}
		}
		for name, a := range now {
			recorded[name] = events.take(a.Audits, recorded[name], time.Now())
			for id, at := range a.TokenUses {
				m.UseToken(id, at)
			}
		}
		events.record(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-time.After(registerEvery):
		}
	}
}

// Nodes returns the servers as Raft knows them, and what would make the cluster survive more failures.
func (m *Member) Nodes() ([]node.Server, string) {
	servers := m.node.Servers()
	return servers, node.Advice(servers)
}

// Remove removes a member: its vote, its certificates, and the row of its host, which must have no VM but those that leave with
// it.
func (m *Member) Remove(ctx context.Context, name string, force bool) error {
	row, ok := m.State.Snapshot().Member(name)
	if !ok {
		return fmt.Errorf("member %s: %w", name, leader.ErrNotFound)
	}
	if err := mayLeave(m.State.Snapshot(), name); err != nil {
		return fmt.Errorf("remove member %s: %w", name, err)
	}
	if row.Server {
		if err := m.node.RemoveServer(ctx, name, force); err != nil {
			return fmt.Errorf("remove member %s: %w", name, err)
		}
	}
	if err := m.Propose(ctx, state.KindMemberDrop, state.MemberDrop{Name: name}); err != nil {
		return fmt.Errorf("remove member %s: %w", name, err)
	}
	m.port.Recheck()
	return nil
}

// mayLeave says why a member cannot be removed: VMs that its host has, and what to do about them.
func mayLeave(s *state.Snapshot, name string) error {
	h, _ := s.Host(name)
	n, deleted := 0, 0
	for _, vm := range s.VMsOn(name) {
		switch {
		case vm.LeavesWith(h):
		case vm.Goal == state.GoalDelete:
			deleted++
		default:
			n++
		}
	}
	switch {
	case n > 0:
		return fmt.Errorf("its host has %d VMs; drain it, or stop and delete them: %w", n+deleted, leader.ErrConflict)
	case deleted > 0:
		return fmt.Errorf("its host has %d deleted VMs to clear away; if it is dead for good, say so first (vcctl host confirm-dead %s): %w", deleted, name, leader.ErrConflict)
	}
	return nil
}

// TransferLeadership transfers leadership to a server; "" is the one whose log is the newest.
func (m *Member) TransferLeadership(ctx context.Context, to string) error {
	if _, ok := m.State.Snapshot().Member(to); !ok && to != "" {
		return fmt.Errorf("hand leadership to %s: member %s: %w", to, to, leader.ErrNotFound)
	}
	return m.node.TransferLeadership(ctx, to)
}

// SaveSnapshot writes the state of the cluster, with all that was acknowledged.
func (m *Member) SaveSnapshot(ctx context.Context, w io.Writer) error { return m.node.Save(ctx, w) }

// RestoreSnapshot puts a saved state in force. A recovery freeze follows until the hosts, and those in waitFor, have reported
// what they run.
func (m *Member) RestoreSnapshot(ctx context.Context, r io.Reader, foreign bool, waitFor ...string) (node.Saved, error) {
	for _, name := range waitFor {
		if !pki.ValidName(name) {
			return node.Saved{}, &leader.Invalid{Fields: []leader.FieldError{{Field: "waitFor", Text: "must be names of hosts, DNS labels in lower case", Value: name}}}
		}
	}
	return m.node.Restore(ctx, r, foreign, waitFor...)
}

// LastBackup is when this server last saved the state by itself, zero if it does not.
func (m *Member) LastBackup() (time.Time, error) {
	if m.backups == nil {
		return time.Time{}, nil
	}
	return m.backups.Last()
}
