package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// Stats is what a server reports of itself. The leader asks for it through Options.Health.
type Stats struct {
	ID      string        `json:"id"`
	Term    uint64        `json:"term"`           // of the last entry of its log
	Index   uint64        `json:"index"`          // of the last entry of its log
	Commit  uint64        `json:"commit"`         // it knows that entries up to this one are in force
	Applied uint64        `json:"applied"`        // its state has the entries up to this one
	Contact time.Duration `json:"contact"`        // since it last received something from the leader, nanoseconds; 0 on the leader itself, negative: never
	Down    string        `json:"down,omitempty"` // why its log cannot be written
	Appends Appends       `json:"appends,omitzero"`
}

// Stats returns the stats of this server.
func (n *Node) Stats() Stats {
	s := Stats{ID: n.id, Contact: -1, Appends: n.appends.lately(time.Now())}
	l := n.cur.Load()
	if l == nil {
		s.Down = n.gone().Error()
		return s
	}
	s.Index, s.Commit, s.Applied = l.raft.LastIndex(), l.raft.CommitIndex(), l.raft.AppliedIndex()
	// raft gives the last entry's term only as text.
	if _, err := fmt.Sscan(l.raft.Stats()["last_log_term"], &s.Term); err != nil {
		s.Term = 0
	}
	if l.raft.State() == raft.Leader {
		s.Contact = 0
	} else if at := l.raft.LastContact(); !at.IsZero() {
		s.Contact = time.Since(at)
	}
	return s
}

// Server is one of the cluster's servers. From Healthy on, only the leader knows.
type Server struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	Voter   bool   `json:"voter"`
	Leader  bool   `json:"leader"`

	Healthy bool          `json:"healthy"`
	Since   time.Time     `json:"since,omitzero"`    // Healthy is as it is since then
	Contact time.Duration `json:"contact"`           // since it last answered the leader; negative: it has not yet
	Behind  uint64        `json:"behind"`            // entries in force that its state does not have yet
	Stats   Stats         `json:"stats"`             // as it last reported
	Trouble string        `json:"trouble,omitempty"` // why it is not healthy
	Slow    string        `json:"slow,omitempty"`    // a text about its log, if that is slow
}

// Servers returns the servers of the cluster, as this server knows them.
func (n *Node) Servers() []Server {
	l := n.cur.Load()
	if l == nil {
		return nil
	}
	_, leader := l.raft.LeaderWithID()
	leads := l.raft.State() == raft.Leader
	var out []Server
	for _, r := range l.raft.GetConfiguration().Configuration().Servers {
		s := Server{ID: string(r.ID), Address: string(r.Address), Voter: r.Suffrage == raft.Voter, Leader: r.ID == leader}
		if leads {
			n.pilot.judge(l, &s)
		}
		out = append(out, s)
	}
	return out
}

// Advice says what would make the cluster survive more failures, "" if nothing does.
func Advice(servers []Server) string {
	voters := 0
	for _, s := range servers {
		if s.Voter {
			voters++
		}
	}
	switch {
	case voters == 0:
		return "" // nothing is known
	case voters == 1:
		return "one voting server: the cluster stands still while it is away; add two"
	case voters == 2:
		return "two voting servers: the cluster stands still while either of them is away; add one"
	case voters%2 == 0:
		return fmt.Sprintf("%d voting servers survive the loss of %d, as %d do: add one or remove one", voters, (voters-1)/2, voters-1)
	}
	return ""
}

// AddServer adds a server to the cluster, under its id and address. The server gets the log, and a vote at once if voter is
// set; otherwise when Autopilot finds that it has caught up. A server that is in the cluster gets its new address, and loses no
// vote. Only the leader can.
func (n *Node) AddServer(ctx context.Context, id, address string, voter bool) error {
	if err := n.members.take(ctx); err != nil {
		return fmt.Errorf("add server %s: %w", id, err)
	}
	defer n.members.give()
	l, servers, err := n.leading()
	if err != nil {
		return fmt.Errorf("add server %s: %w", id, err)
	}
	if id == "" || address == "" {
		return fmt.Errorf("add server %q at %q: both a name and an address are needed", id, address)
	}
	if err := CheckAddress(servers, id, address); err != nil {
		return err
	}
	for _, s := range servers {
		switch {
		case s.ID == id && s.Address == address && (s.Voter || !voter):
			return nil
		case s.ID == id:
			voter = voter || s.Voter
		}
	}
	n.pilot.add(raft.ServerID(id), l.raft.LastIndex())
	f := l.raft.AddNonvoter(raft.ServerID(id), raft.ServerAddress(address), 0, changeTimeout)
	if voter {
		f = addVoter(l.raft, raft.ServerID(id), raft.ServerAddress(address), 0)
	}
	if err := n.wait(ctx, l, f); err != nil {
		return fmt.Errorf("add server %s: %w", id, err)
	}
	return nil
}

// CheckAddress says why a server may not have an address among these servers: nil, or an error that wraps ErrRefused.
func CheckAddress(servers []Server, id, address string) error {
	for _, s := range servers {
		if s.ID != id && s.Address == address {
			return fmt.Errorf("add server %s: %w: %s is the address of server %s: give it another (advertise in its vcd.yaml), or remove that one first", id, ErrRefused, address, s.ID)
		}
	}
	return nil
}

// addVoter gives a server its vote. Raft 1.7.3 sends the entry that gives it before it counts the server's acknowledgements. If the
// server acknowledges that entry too early, this counts for nothing. Without another voter the entry is then in force only with the
// next one, which a cluster at rest does not have. So addVoter adds a barrier.
func addVoter(r *raft.Raft, id raft.ServerID, address raft.ServerAddress, prev uint64) raft.IndexFuture {
	f := r.AddVoter(id, address, prev, changeTimeout) // the leader has it before the barrier
	r.Barrier(changeTimeout)
	return f
}

// turn is taken by one goroutine at a time. Waiting for it ends with the context: the work in a turn may take long.
type turn chan struct{}

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for other changes of the servers: %w", ctx.Err())
	}
}

func (t turn) give() { <-t }

// changeTimeout bounds how long a change of the servers waits for the one before it.
const changeTimeout = 5 * time.Second

// RemoveServer removes a server from the cluster, if it is in. It refuses, with ErrRefused, to remove the last voter and,
// without force, to leave fewer healthy voters than a majority. A leader that is to be removed transfers leadership and answers
// ErrNotLeader: the caller must ask the new leader.
func (n *Node) RemoveServer(ctx context.Context, id string, force bool) error {
	if err := n.members.take(ctx); err != nil {
		return fmt.Errorf("remove server %s: %w", id, err)
	}
	defer n.members.give()
	l, _, err := n.leading()
	if err != nil {
		return fmt.Errorf("remove server %s: %w", id, err)
	}
	gone, err := removal(n.Servers(), id, force)
	if gone || err != nil {
		return err
	}
	if id == n.id {
		if err := n.transfer(ctx, l, ""); err != nil {
			return fmt.Errorf("remove server %s, which leads: %w", id, err)
		}
		return fmt.Errorf("remove server %s: it has handed leadership on: %w", id, ErrNotLeader)
	}
	if err := n.wait(ctx, l, l.raft.RemoveServer(raft.ServerID(id), 0, changeTimeout)); err != nil {
		return fmt.Errorf("remove server %s: %w", id, err)
	}
	return nil
}

// removal says whether a server may lose its vote. gone: it is not in the cluster.
func removal(servers []Server, id string, force bool) (gone bool, err error) {
	gone = true
	var voter bool
	voters, healthy := 0, 0 // without it
	for _, s := range servers {
		switch {
		case s.ID == id:
			gone, voter = false, s.Voter
		case s.Voter:
			voters++
			if s.Healthy {
				healthy++
			}
		}
	}
	switch {
	case gone || !voter:
		return gone, nil
	case voters == 0:
		return false, fmt.Errorf("remove server %s: %w: it is the only voting server; add another and wait until it votes", id, ErrRefused)
	case 2*healthy <= voters && !force:
		return false, fmt.Errorf("remove server %s: %w: of the %d voting servers left only %d would be healthy, and a majority is needed; "+
			"bring one back or add one first, or say that it is to be forced", id, ErrRefused, voters, healthy)
	}
	return false, nil
}

// TransferLeadership transfers leadership to a voting server; "" is the one whose log is the newest. It returns once this
// server does not lead any more. If the other leads already, it does nothing.
func (n *Node) TransferLeadership(ctx context.Context, to string) error {
	if err := n.members.take(ctx); err != nil {
		return fmt.Errorf("transfer leadership to %q: %w", to, err)
	}
	defer n.members.give()
	if to != "" && n.Leader() == to {
		return nil
	}
	l, servers, err := n.leading()
	if err == nil {
		err = transferable(servers, n.id, to)
	}
	if err == nil {
		err = n.transfer(ctx, l, to)
	}
	if err != nil {
		return fmt.Errorf("transfer leadership to %q: %w", to, err)
	}
	return nil
}

func transferable(servers []Server, from, to string) error {
	others := 0
	for _, s := range servers {
		if s.ID == to && to != "" {
			if !s.Voter {
				return fmt.Errorf("%w: %s has no vote", ErrRefused, to)
			}
			return nil
		}
		if s.Voter && s.ID != from {
			others++
		}
	}
	switch {
	case to != "":
		return fmt.Errorf("%w: there is no such server", ErrRefused)
	case others == 0:
		return fmt.Errorf("%w: there is no other voting server", ErrRefused)
	}
	return nil
}

// leading returns what a change of the servers needs.
func (n *Node) leading() (*life, []Server, error) {
	l := n.cur.Load()
	if l == nil {
		return nil, nil, n.gone()
	}
	if now, _ := n.Leadership(); !now.Leads {
		return nil, nil, ErrNotLeader
	}
	servers := n.Servers()
	if len(servers) == 0 {
		return nil, nil, errors.Join(ErrNotLeader, errDown)
	}
	return l, servers, nil
}
