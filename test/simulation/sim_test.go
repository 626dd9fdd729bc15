package simulation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/node"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor/simulated"
	"evenkeel/test/quota"

	"github.com/anishathalye/porcupine"
)

// options of a run.
type options struct {
	seed           uint64
	servers, hosts int
	clients        int
	needs          float64 // of VMs for CPU, times this
	settings       state.Settings
	names          []string // of the VCs that clients know
	snapshotEvery  uint64
	timers         node.Timers
	watchdogs      func(*rand.Rand) time.Duration // of each host
	devices        func(*rand.Rand) string
	lose, repeat   float64
	slow           float64
	script         []step
	quiet          time.Duration    // after the last step, for all to come right
	sized          map[string]sized // VCs of a scenario, by name
	rightsized     bool             // guests use now more, now less memory, and needs are estimated
	bursts         bool             // and most want all of their memory at the same time, now and then
	tenants        *tenants         // beside the VCs of the default tenant
	periodic       *periodicWork    // jobs that are signed off, and what fills the hosts beside them
	unhealed       bool             // a scenario that ends as it is
	broken         broken
	verbose        bool
}

// sized is the memory of each VM of a VC, and the hosts that it must not be on.
type sized struct {
	mebibytes int64
	avoid     []string
}

// broken is a variant: wrappers around what is tested.
type broken struct {
	name    string
	agent   func(*host, agent.Leader) agent.Leader
	log     func(*sim, leader.Log) leader.Log
	leading func(context.Context, *serving) // runs beside the leader's service
}

// sim is one run.
type sim struct {
	o       options
	ctx     context.Context
	cancel  context.CancelFunc
	began   time.Time
	log     *slog.Logger
	answers *lastAnswers
	net     *network
	world   *simulated.World
	servers map[string]*server
	names   []string // of servers
	hosts   map[string]*host
	order   []string // of hosts
	titles  sync.Map // of VMs that hosts were to start, by id: their full names
	group   sync.WaitGroup
	history *history
	clients gate
	uses    uses

	mu          sync.Mutex
	rng         *rand.Rand
	trace       []string
	violations  []string
	counts      map[string]int
	doubled     int
	frozenSince time.Time // zero: there is none
	restored    bool
	furthest    uint64 // index that any server was seen at
	saved       []byte
	sent        map[string]int64 // bytes, by move plan, as the hypervisors know it
	resets      map[string]int   // made, by VM id
	up          map[string]bool  // VMs that were seen to run though they were stopped alone, by id and generation
	unexplained map[string]bool  // what waited for too long without a reason

	logs []*quota.Log // of each cluster that was made, the last one last
	runs runWatch
}

// outcome of a run.
type outcome struct {
	violations []string
	trace      []string
	counts     map[string]int
}

// play a run, in simulated time. It returns all violations that were found.
func play(t *testing.T, o options) outcome {
	s := &sim{o: o, servers: map[string]*server{}, hosts: map[string]*host{}, counts: map[string]int{}, sent: map[string]int64{}, resets: map[string]int{}, up: map[string]bool{}, unexplained: map[string]bool{},
		history: &history{byName: map[string][]porcupine.Operation{}, answer: map[string]int{}}}
	s.bubbled(t, func() {
		s.ctx, s.cancel = context.WithCancel(context.Background())
		s.began = time.Now()
		s.clients = newGate()
		s.answers = &lastAnswers{began: s.began}
		s.log = slog.New(speaker{to: s.answers})
		if o.verbose {
			s.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
		}
		s.rng = seeded(o.seed, 2)
		s.net = newNetwork(o.seed, s.count)
		s.run()
		s.end()
	})
	s.violations = append(s.violations, s.history.check()...)
	s.counts["requests"] += s.history.asked
	for k, n := range s.history.answer {
		s.counts["requests answered: "+k] += n
	}
	return outcome{s.violations, s.trace, s.counts}
}

// bubbled runs f in simulated time, and reports a run that hangs, or leaves goroutines behind.
func (s *sim) bubbled(t *testing.T, f func()) {
	name := make(chan string, 1)
	defer guardRun(t, s.o.seed, name)()
	var mine string
	defer func() {
		switch p := recover(); {
		case p == nil:
		case mine != "" && onlyTransfers(stacks(), mine):
			s.count("transfers of leadership that raft did not end")
		default: // goroutines that wait for each other, or are left
			report(t, s.o, outcome{[]string{fmt.Sprint(p)}, s.trace, s.counts})
			panic(p)
		}
	}()
	synctest.Test(t, func(*testing.T) {
		mine = bubble()
		name <- mine
		f()
	})
}

func (s *sim) entropy() (seed [32]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range seed {
		seed[i] = byte(s.rng.UintN(256))
	}
	return seed
}

func (s *sim) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := fmt.Sprintf("%9.3fs ", time.Since(s.began).Seconds()) + fmt.Sprintf(format, args...)
	s.trace = append(s.trace, line)
	if s.o.verbose {
		fmt.Fprintln(os.Stderr, line)
	}
}

func (s *sim) violate(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.note("VIOLATION: %s", text)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.violations) == 0 {
		s.trace = append(s.trace, "what members logged last:", s.answers.String())
	}
	if len(s.violations) < 20 {
		s.violations = append(s.violations, fmt.Sprintf("at %.3fs: ", time.Since(s.began).Seconds())+text)
	}
}

func (s *sim) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[what]++
}

// gate lets many in, or one alone. A goroutine that waits at it waits in simulated time.
type gate struct{ slots, alone chan struct{} }

func newGate() gate { return gate{make(chan struct{}, 64), make(chan struct{}, 1)} }

func (g gate) RLock()   { g.slots <- struct{}{} }
func (g gate) RUnlock() { <-g.slots }
func (g gate) Lock() {
	g.alone <- struct{}{} // of two that each had some of the slots neither would get all
	for range cap(g.slots) {
		g.slots <- struct{}{}
	}
}
func (g gate) Unlock() {
	for range cap(g.slots) {
		<-g.slots
	}
	<-g.alone
}

// leader that serves now, nil if there is none.
func (s *sim) leader() *serving {
	var best *serving
	for _, name := range s.names {
		if p := s.servers[name].alive(); p != nil {
			if l := p.lead(); l.here && (best == nil || l.term > best.lead().term) {
				best = p
			}
		}
	}
	return best
}

// eventually waits for something, in simulated time.
func (s *sim) eventually(within time.Duration, f func() bool) bool {
	for end := time.Now().Add(within); ; {
		if f() {
			return true
		}
		if time.Now().After(end) || wait(s.ctx, 200*time.Millisecond) != nil {
			return false
		}
	}
}

func (s *sim) run() {
	var err error
	o := s.o
	s.world, err = simulated.New(simulated.Options{Hosts: o.hosts, CPU: 4, Memory: 4 << 30, Seed: o.seed, Guest: o.guests(), Timing: &simulated.Timing{
		Call: time.Millisecond, Define: 4 * time.Millisecond, Start: 50 * time.Millisecond, Destroy: 20 * time.Millisecond, SetCPU: 2 * time.Millisecond,
		Boot: 500 * time.Millisecond, Shutdown: 2 * time.Second, Jitter: 0.3, Balloon: 1 << 30, Timeout: hangs, Link: 128 << 20,
		Downtime: 300 * time.Millisecond, Progress: 500 * time.Millisecond}})
	if err != nil {
		s.violate("make the world: %v", err)
		return
	}
	rng := seeded(o.seed, 3)
	for n := range o.servers {
		name := fmt.Sprintf("s%d", n+1)
		s.names = append(s.names, name)
		s.servers[name] = &server{s: s, name: name, rate: 0.995 + 0.01*rng.Float64()}
	}
	s.newDisks()
	for n := range o.hosts {
		name := fmt.Sprintf("h%d", n+1)
		h := &host{s: s, name: name, rate: 0.995 + 0.01*rng.Float64(), on: true, watchdog: o.watchdogs(rng), device: o.devices(rng)}
		h.dog = &dog{h: h}
		s.order = append(s.order, name)
		s.hosts[name] = h
	}
	if err := s.form(); err != nil {
		s.violate("form the cluster: %v", err)
		return
	}
	s.net.change(func() { s.net.lose, s.net.repeat, s.net.slow = o.lose, o.repeat, o.slow })
	s.note("cluster of %d servers and %d hosts", o.servers, o.hosts)
	watching, stop := context.WithCancel(s.ctx)
	s.group.Go(func() { s.watch(watching) })
	s.group.Go(func() { s.watchRuns(watching) })
	asking, quit := context.WithCancel(s.ctx)
	var clients sync.WaitGroup
	for id := range o.clients {
		clients.Go(func() { s.client(asking, id) })
	}
	if o.tenants != nil {
		for id := range o.tenants.clients {
			clients.Go(func() { s.tenantClient(asking, 500+id) })
		}
	}
	if o.periodic != nil {
		s.periodicClients(asking, &clients)
	}
	s.follow()
	quit()
	clients.Wait()
	if !o.unhealed {
		s.heal()
		s.calm()
		s.awaitQuiet()
		for id, name := range o.names {
			s.request(s.ctx, rng, 100+id, 0, name, want{Verb: "read"})
		}
		s.fillTenants()
	}
	stop()
	s.audit()
	s.checkQuotas()
	s.checkAgenda()
	if !o.unhealed {
		s.replay()
	}
}

// formServers makes the control plane.
func (s *sim) formServers() error {
	for _, name := range s.names {
		if err := s.servers[name].start(false); err != nil {
			return err
		}
		if !s.eventually(time.Minute, func() bool { return s.leader() != nil }) {
			return fmt.Errorf("no leader")
		}
		if name == "s1" {
			continue
		}
		var err error
		if !s.eventually(time.Minute, func() bool { // in a bad network a leader may be gone again
			err = s.withLeader(func(ctx context.Context, p *serving) error { return p.node.AddServer(ctx, name, name, true) })
			return err == nil
		}) {
			return fmt.Errorf("add server %s: %w", name, err)
		}
	}
	return nil
}

// form the cluster, with all hosts reporting.
func (s *sim) form() error {
	if err := s.formServers(); err != nil {
		return err
	}
	var err error
	if !s.eventually(time.Minute, func() bool {
		err = s.withLeader(func(ctx context.Context, p *serving) error {
			_, _, err := p.ctl.AddImage(ctx, state.Image{Name: "tiny", Kind: state.KernelImage, File: "/images/tiny"}, leader.Call{})
			if exists := (*leader.Exists)(nil); errors.As(err, &exists) { // an earlier try was heeded after all
				return nil
			}
			return err
		})
		return err == nil
	}) {
		return err
	}
	if err := s.makeTenants(); err != nil {
		return err
	}
	for _, name := range s.order {
		s.hosts[name].startAgent()
	}
	if !s.eventually(time.Minute, func() bool { l := s.leader(); return l != nil && len(l.store.Snapshot().Hosts()) == len(s.order) }) {
		return fmt.Errorf("not all hosts report")
	}
	return s.signOffJobs()
}

// end everything, so that nothing is left in the bubble.
func (s *sim) end() {
	s.cancel()
	for _, h := range s.hosts {
		h.mu.Lock()
		h.dog.stop()
		h.mu.Unlock()
		h.killAgent()
	}
	for _, v := range s.servers {
		v.crash()
	}
	s.group.Wait()
	if s.world != nil {
		_ = s.world.Close()
	}
	time.Sleep(2 * time.Minute) // sleep: simulated time, for what waits with a time-out to end
}

// report a run that failed: what was found, how to see it again, and the trace.
func report(t *testing.T, o options, r outcome) {
	t.Helper()
	run := "TestRandom -seeds 1"
	if o.bursts {
		run = "TestCrowded -crowded 1"
	}
	t.Errorf("seed %d: %d violations:\n  %s\nreplay (the faults are the same, the order of what happens at one instant is not):\n"+
		"  go test ./test/simulation -run %s -first %d -verbose\nthe script:\n%s\ntrace:\n%s",
		o.seed, len(r.violations), strings.Join(r.violations, "\n  "), run, o.seed, scriptText(o.script), strings.Join(r.trace, "\n"))
}

// stats of many runs.
func stats(counts map[string]int) string {
	var out []string
	for k, n := range counts {
		out = append(out, fmt.Sprintf("%8d %s", n, k))
	}
	slices.SortFunc(out, func(a, b string) int { return strings.Compare(a[9:], b[9:]) })
	return strings.Join(out, "\n")
}
