package node

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	autopilot "github.com/hashicorp/raft-autopilot"
)

// Autopilot gives new servers their vote and removes dead ones, on the leader.
type Autopilot struct {
	Off   bool          // it only watches
	Every time.Duration // between two looks at all servers; 0 = 2 s
	// Stable is how long a server must have been healthy before it gets a vote; 0 = 10 s.
	Stable time.Duration
	// Contact is the longest silence of a healthy server; 0 = 1 s. MaxBehind is how many entries its
	// log may lack; 0 = 1000.
	Contact   time.Duration
	MaxBehind uint64
	// DeadAfter is the silence after which a server is removed, as long as a majority of healthy voters and at least MinVoters
	// (0 = 3) voters remain. 0 = never.
	DeadAfter time.Duration
	MinVoters int
	// SlowAppend is how long an append to a log may take; 0 = 1 s. A leader whose appends all took longer for SlowFor (0 = 5 s)
	// transfers leadership to a voter whose log is quick.
	SlowAppend, SlowFor time.Duration
	// Votes says whether a server is to have a vote; nil: all of them. It must not wait.
	Votes func(id string) bool
}

func (a Autopilot) defaults() Autopilot {
	or := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	or(&a.Every, 2*time.Second)
	or(&a.Stable, 10*time.Second)
	or(&a.Contact, time.Second)
	or(&a.SlowAppend, time.Second)
	or(&a.SlowFor, 5*time.Second)
	if a.MaxBehind == 0 {
		a.MaxBehind = 1000
	}
	if a.MinVoters == 0 {
		a.MinVoters = 3
	}
	if a.Votes == nil {
		a.Votes = func(string) bool { return true }
	}
	return a
}

// pilot runs autopilot while this server leads, and keeps what the servers reported.
type pilot struct {
	node *Node
	conf Autopilot

	mu      sync.Mutex
	run     *autopilot.Autopilot
	since   time.Time // this server leads
	answers map[raft.ServerID]serverAnswer
	added   map[raft.ServerID]added
	end     func()
	runs    sync.WaitGroup
}

// added is when a server was added in this term, and the last entry of the leader's log then.
type added struct {
	at    time.Time
	index uint64
}

// caughtUp says whether a server has answered since it was added, and has the entries from before. Autopilot's own state of a
// server that was removed and added again may be from before: the server may have lost its log meanwhile.
func (a added) caughtUp(t serverAnswer) bool {
	return t.asked && t.err == nil && !t.begun.Before(a.at) && t.stats.Index >= a.index
}

// serverAnswer is what a server last answered, and whether it answered when it was last asked.
type serverAnswer struct {
	stats Stats
	at    time.Time // of its last answer; of the first look at it, if there was none
	asked bool      // it was asked at all
	err   error     // of the last question
	begun time.Time // of the last question that was answered
}

func (p *pilot) init(n *Node) { p.node, p.conf, p.end = n, n.o.Autopilot.defaults(), func() {} }

// start runs autopilot for one term. It does not wait.
func (p *pilot) start(ctx context.Context, l *life) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since, p.answers, p.added = time.Now(), map[raft.ServerID]serverAnswer{}, map[raft.ServerID]added{}
	if p.node.o.Health == nil || ctx.Err() != nil {
		return
	}
	run := autopilot.New(guarded{Raft: l.raft, node: p.node}, delegate{p, l},
		autopilot.WithLogger(p.node.hclog), autopilot.WithUpdateInterval(p.conf.Every),
		autopilot.WithReconcileInterval(p.conf.Every), autopilot.WithPromoter(promoter{new(autopilot.StablePromoter), p.conf}))
	if p.conf.Off {
		run.DisableReconciliation()
	}
	ctx, p.end = context.WithCancel(ctx)
	p.runs.Go(func() {
		run.Start(ctx) // asks all servers first
		<-ctx.Done()
		<-run.Stop()
	})
	if !p.conf.Off {
		p.runs.Go(func() { p.watchLog(ctx) })
	}
	p.run = run
}

// stop ends autopilot; runs says when it has ended.
func (p *pilot) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
	p.end, p.run = func() {}, nil
}

// add notes that a server is being added, while the leader's log ends at that index.
func (p *pilot) add(id raft.ServerID, index uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.added != nil {
		p.added[id] = added{time.Now(), index}
	}
}

func (p *pilot) caughtUp(id raft.ServerID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, known := p.added[id]
	return !known || a.caughtUp(p.answers[id])
}

// judge adds what the leader knows of a server.
func (p *pilot) judge(l *life, s *Server) {
	p.mu.Lock()
	run, since := p.run, p.since
	t := p.answers[raft.ServerID(s.ID)]
	p.mu.Unlock()
	if s.ID == p.node.id {
		s.Healthy, s.Since, s.Stats = true, since, p.node.Stats()
		s.Behind = s.Stats.Commit - min(s.Stats.Commit, s.Stats.Applied)
		s.Slow = p.conf.slowLog(s.Stats.Appends)
		return
	}
	s.Contact = -1
	if at := p.node.wire.contact(raft.ServerID(s.ID)); !at.IsZero() {
		s.Contact = time.Since(at)
	}
	s.Healthy = s.Contact >= 0 && s.Contact <= p.conf.Contact
	if t.asked {
		s.Stats = t.stats
		commit := l.raft.CommitIndex()
		s.Behind = commit - min(commit, t.stats.Applied)
		s.Slow = p.conf.slowLog(s.Stats.Appends)
	}
	switch {
	case s.Contact < 0:
		s.Trouble = "it has not answered this leader yet"
	case !s.Healthy:
		s.Trouble = fmt.Sprintf("it has not answered for %s", s.Contact.Round(time.Millisecond))
	case t.asked && t.err != nil:
		s.Trouble = t.err.Error()
	case t.asked && t.stats.Down != "":
		s.Trouble = t.stats.Down
	}
	if run == nil {
		return
	}
	if h := run.GetServerHealth(raft.ServerID(s.ID)); h != nil {
		// Whatever autopilot saw at its last look, a server that is silent now is not well.
		s.Healthy, s.Since = s.Healthy && h.Healthy, h.StableSince
		if !h.Healthy && s.Trouble == "" {
			s.Trouble = fmt.Sprintf("its log is %d entries behind, or of an older term", l.raft.LastIndex()-min(l.raft.LastIndex(), t.stats.Index))
		}
	}
}

// guarded is raft as autopilot sees it. Autopilot and the node change the servers one at a time.
type guarded struct {
	*raft.Raft
	node *Node
}

// AddVoter implements autopilot.Raft. Autopilot may have decided before the server was removed. Raft would then add it again, and count
// on it for its quorum. So AddVoter checks again.
func (g guarded) AddVoter(id raft.ServerID, a raft.ServerAddress, prev uint64, _ time.Duration) raft.IndexFuture {
	_ = g.node.members.take(context.Background()) // it fails only if its context ends, which this one does not
	defer g.node.members.give()
	there := slices.ContainsFunc(g.GetConfiguration().Configuration().Servers, func(s raft.Server) bool { return s.ID == id && s.Address == a })
	if !there || !g.node.pilot.conf.Votes(string(id)) {
		return refused{fmt.Errorf("give server %s at %s a vote: %w: it is not one that is to have one any more", id, a, ErrRefused)}
	}
	if p := &g.node.pilot; !p.caughtUp(id) {
		return refused{fmt.Errorf("give server %s at %s a vote: %w: it has not caught up since it was added", id, a, ErrRefused)}
	}
	f := addVoter(g.Raft, id, a, prev)
	_ = f.Error() // wait until the vote is in force; autopilot reads the error itself
	return f
}

// refused is the outcome of a change that was not begun.
type refused struct{ err error }

// Error implements raft.Future.
func (f refused) Error() error { return f.err }

// Index implements raft.IndexFuture.
func (refused) Index() uint64 { return 0 }

// RemoveServer implements autopilot.Raft.
func (g guarded) RemoveServer(id raft.ServerID, prev uint64, _ time.Duration) raft.IndexFuture {
	_ = g.node.members.take(context.Background()) // which does not end
	defer g.node.members.give()
	f := g.Raft.RemoveServer(id, prev, changeTimeout)
	_ = f.Error()
	return f
}

// delegate gives autopilot the list of servers.
type delegate struct {
	*pilot
	life *life
}

// AutopilotConfig implements autopilot.ApplicationIntegration.
func (d delegate) AutopilotConfig() *autopilot.Config {
	return &autopilot.Config{CleanupDeadServers: d.conf.DeadAfter > 0, LastContactThreshold: d.conf.Contact, MaxTrailingLogs: d.conf.MaxBehind,
		MinQuorum: uint(max(0, d.conf.MinVoters)), ServerStabilizationTime: d.conf.Stable}
}

// NotifyState implements autopilot.ApplicationIntegration.
func (delegate) NotifyState(*autopilot.State) {}

// FetchServerStats implements autopilot.ApplicationIntegration: it asks all servers at once.
func (d delegate) FetchServerStats(ctx context.Context, servers map[raft.ServerID]*autopilot.Server) map[raft.ServerID]*autopilot.ServerStats {
	ctx, cancel := context.WithTimeout(ctx, max(d.conf.Every, 100*time.Millisecond))
	defer cancel()
	var wg sync.WaitGroup
	for id, s := range servers {
		if string(id) == d.node.id {
			continue
		}
		wg.Go(func() {
			begun := time.Now()
			stats, err := d.node.o.Health(ctx, Server{ID: string(id), Address: string(s.Address)})
			d.mu.Lock()
			defer d.mu.Unlock()
			t := d.answers[id]
			t.asked = true
			if t.err = err; err == nil {
				t.stats, t.at, t.begun = stats, time.Now(), begun
			}
			d.answers[id] = t
		})
	}
	wg.Wait()
	out := map[raft.ServerID]*autopilot.ServerStats{}
	d.mu.Lock()
	defer d.mu.Unlock()
	for id := range servers {
		stats := d.answers[id].stats
		if string(id) == d.node.id {
			stats = d.node.Stats()
		}
		s := &autopilot.ServerStats{LastContact: stats.Contact, LastTerm: stats.Term, LastIndex: stats.Index}
		if d.answers[id].err != nil || stats.Down != "" {
			s.LastContact = -1 // or autopilot would judge by an earlier answer
		}
		out[id] = s
	}
	return out
}

// KnownServers implements autopilot.ApplicationIntegration.
func (d delegate) KnownServers() map[raft.ServerID]*autopilot.Server {
	out := map[raft.ServerID]*autopilot.Server{}
	for _, s := range d.life.raft.GetConfiguration().Configuration().Servers {
		known := &autopilot.Server{ID: s.ID, Name: string(s.ID), Address: s.Address, NodeStatus: autopilot.NodeAlive, RaftVersion: 3}
		if d.conf.Votes(string(s.ID)) {
			known.NodeType = autopilot.NodeVoter
		}
		if d.dead(s.ID) {
			known.NodeStatus = autopilot.NodeFailed
		}
		out[s.ID] = known
	}
	return out
}

// dead says whether the server has not answered for so long that it is to be removed.
func (d delegate) dead(id raft.ServerID) bool {
	if string(id) == d.node.id || d.conf.DeadAfter == 0 {
		return false
	}
	d.mu.Lock()
	t := d.answers[id]
	if t.at.IsZero() { // a new leader, and a new server, have the whole time before them
		t.at = time.Now()
		d.answers[id] = t
	}
	last := t.at
	d.mu.Unlock()
	if at := d.node.wire.contact(id); at.After(last) {
		last = at
	}
	return time.Since(last) > d.conf.DeadAfter
}

// RemoveFailedServer implements autopilot.ApplicationIntegration.
func (d delegate) RemoveFailedServer(s *autopilot.Server) {
	n := d.node
	if gone, err := removal(n.Servers(), string(s.ID), false); gone || err != nil {
		n.hclog.Warn("a dead server stays in the cluster", "peer", s.ID, "err", err)
		return
	}
	f := guarded{Raft: d.life.raft, node: n}.RemoveServer(s.ID, 0, 0)
	if err := f.Error(); err != nil {
		n.hclog.Warn("remove a dead server", "peer", s.ID, "err", err)
		return
	}
	n.log.Warn("removed a dead server", "server", s.ID, "silent for", d.conf.DeadAfter)
}

// promoter is autopilot's own promoter, for those servers that are to vote.
type promoter struct {
	*autopilot.StablePromoter
	conf Autopilot
}

// CalculatePromotionsAndDemotions implements autopilot.Promoter.
func (p promoter) CalculatePromotionsAndDemotions(c *autopilot.Config, s *autopilot.State) autopilot.RaftChanges {
	all := p.StablePromoter.CalculatePromotionsAndDemotions(c, s)
	var changes autopilot.RaftChanges
	for _, id := range all.Promotions {
		if p.conf.Votes(string(id)) {
			changes.Promotions = append(changes.Promotions, id)
		}
	}
	return changes
}

// FilterFailedServerRemovals implements autopilot.Promoter: it removes one voter at a time, and none while the healthy ones are
// no majority.
func (p promoter) FilterFailedServerRemovals(_ *autopilot.Config, s *autopilot.State, f *autopilot.FailedServers) *autopilot.FailedServers {
	f.StaleVoters, f.StaleNonVoters = nil, nil // all are known: see KnownServers
	healthy := 0
	for _, id := range s.Voters {
		if srv := s.Servers[id]; srv != nil && srv.Health.Healthy {
			healthy++
		}
	}
	if 2*healthy <= len(s.Voters) {
		f.FailedVoters, f.FailedNonVoters = nil, nil
	}
	if len(f.FailedVoters) > 1 {
		f.FailedVoters = f.FailedVoters[:1]
	}
	return f
}
