package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/scheduler/agenda"
	"evenkeel/cluster/state"
)

// periodicWork of a run: jobs whose owner signed them off, each with one run in the time of the script, and fillers, which take all room
// that is not reserved, and wait for more.
type periodicWork struct {
	vms     int             // of a run
	filler  int             // VMs of a filler, at most
	slots   []time.Duration // of each job, after it is signed off
	arrives []time.Duration // of each job's run, after its slot has begun
	fillers int
}

const (
	evaluateRuns = 10 * time.Second // period of the leader's evaluations
	maxRunWaits  = 25 * time.Second // of a run in its slot with nothing in its way: some evaluations
	maxRunStarts = 40 * time.Second // of a run that has hosts
	jobVM        = 2 << 30          // bytes
)

func jobName(n int) string { return fmt.Sprintf("p%c", 'a'+n) }
func runName(n int) string { return jobName(n) + "-1" }

// somePeriodicWork comes beside all else of a run. Draws are its own.
func somePeriodicWork(o *options) {
	r := seeded(o.seed, 21)
	w := &periodicWork{vms: max(1, o.hosts/5), filler: max(1, o.hosts/4), fillers: 4}
	for n := range 3 {
		w.slots = append(w.slots, time.Duration(25+n*35+r.IntN(20))*time.Second)
		w.arrives = append(w.arrives, time.Duration(r.IntN(3)*r.IntN(20))*time.Second)
	}
	o.periodic = w
	for n := range w.slots {
		o.names = append(o.names, runName(n))
	}
	for n := range w.fillers {
		o.names = append(o.names, fmt.Sprintf("f%c", 'a'+n))
	}
}

// knows says whether a VC is one of the periodic work's.
func (w *periodicWork) knows(name string) bool {
	return !strings.Contains(name, "/") && (name[0] == 'p' || name[0] == 'f')
}

// shape a VC of the periodic work; false: it is another.
func (w *periodicWork) shape(vc *state.VC) bool {
	if !w.knows(vc.Name) {
		return false
	}
	g := &vc.Groups[0]
	vc.OnHostLoss, vc.Needs, vc.Aggressiveness, g.Role = "", state.NeedsDeclared, "", "core"
	if vc.Name[0] == 'f' {
		g.CPU, g.Memory, g.MemoryMin, vc.MinYield = 0.3, jobVM+256<<20, 0, 0.1
		if vc.Name[1]%2 == 0 {
			vc.Duration = 40
		}
		return true
	}
	g.CPU, g.Memory, g.MemoryMin, vc.MinYield = 0.5, jobVM, 0, 0.5
	g.Affinity.Spread = "host"
	vc.Periodic.Name = vc.Name[:2]
	if vc.Name[1] == 'a' {
		vc.OnHostLoss = state.RestartOnLoss
	}
	return true
}

// signOffJobs lets each job run once, and has its owner sign it off.
func (s *sim) signOffJobs() error {
	w := s.o.periodic
	if w == nil {
		return nil
	}
	for n := range w.slots {
		job, vc := jobName(n), jobName(n)+"-0"
		steps := []func(context.Context, *serving) error{
			func(ctx context.Context, p *serving) error {
				_, err := p.ctl.Create(ctx, s.spec(vc, w.vms), leader.Call{IdempotencyKey: vc})
				return err
			},
			func(ctx context.Context, p *serving) error {
				row, _ := p.store.Snapshot().VCNamed(vc)
				if run, ok := p.store.Snapshot().OpenRun(row.ID); !ok || run.Started.IsZero() {
					return fmt.Errorf("%s does not run", vc)
				}
				return nil
			},
			func(ctx context.Context, p *serving) error {
				_, err := p.ctl.Delete(ctx, vc, leader.Call{})
				return err
			},
			func(ctx context.Context, p *serving) error {
				at := time.Now().Add(w.slots[n] + time.Duration(len(w.slots)-n)*2*time.Second).UTC().Truncate(time.Second)
				ask := agenda.Ask{Rule: "FREQ=DAILY;COUNT=1", Start: at, Length: 5 * time.Minute, Deadline: 5 * time.Minute, Cores: 0.6 * float64(w.vms) * 0.5}
				_, err := p.ctl.DecidePeriodic(ctx, job, leader.PeriodicAsk{Verb: "accept", Ask: ask}, leader.Call{IdempotencyKey: job})
				return err
			},
		}
		for _, step := range steps {
			var err error
			if !s.eventually(time.Minute, func() bool { err = s.withLeader(step); return err == nil }) {
				return fmt.Errorf("sign off %s: %w", job, err)
			}
		}
	}
	return nil
}

// endPeriodicWork rejects all jobs: what was reserved is free for VMs that wait for room.
func (s *sim) endPeriodicWork(ctx context.Context, p *serving) error {
	if s.o.periodic == nil {
		return nil
	}
	var faults []error
	for _, job := range p.store.Snapshot().PeriodicJobs() {
		if job.SignOff.State == state.SignedOff {
			_, err := p.ctl.DecidePeriodic(ctx, job.Name, leader.PeriodicAsk{Verb: "reject"}, leader.Call{})
			faults = append(faults, err)
		}
	}
	for n := range s.o.periodic.fillers {
		if name := fmt.Sprintf("f%c", 'a'+n); true {
			if vc, there := p.store.Snapshot().VCNamed(name); there && vc.Goal != state.GoalDelete {
				if _, err := p.ctl.Delete(ctx, name, leader.Call{}); !errors.Is(err, leader.ErrNotFound) {
					faults = append(faults, err)
				}
				s.history.add(900+n, name, want{Verb: "delete"}, got{Is: "unknown"}, int64(time.Since(s.began))-1, 0)
			}
		}
	}
	return errors.Join(faults...)
}

// periodicClients ask for runs, and for fillers.
func (s *sim) periodicClients(ctx context.Context, clients *sync.WaitGroup) {
	w := s.o.periodic
	l := s.leader()
	for n := range w.slots {
		var slot time.Time
		if l != nil {
			if all := l.store.Snapshot().Occurrences(jobName(n)); len(all) > 0 {
				slot = all[0].Start
			}
		}
		if slot.IsZero() {
			slot = time.Now().Add(w.slots[n])
		}
		clients.Go(func() { s.runClient(ctx, n, slot.Add(w.arrives[n])) })
	}
	for n := range w.fillers {
		clients.Go(func() { s.fillerClient(ctx, n) })
	}
}

// untilDone asks until the request is carried out, or cannot be.
func (s *sim) untilDone(ctx context.Context, rng *rand.Rand, id int, name string, w want) string {
	for n := 0; ctx.Err() == nil; n++ {
		s.clients.RLock()
		g := s.request(ctx, rng, id, int(time.Since(s.began)/time.Millisecond)*10+n, name, w)
		s.clients.RUnlock()
		if g.Is != "refused" && g.Is != "unknown" {
			return g.Is
		}
		_ = wait(ctx, time.Second)
	}
	return ""
}

// runClient asks for the run of a job at a time, and ends it after a while.
func (s *sim) runClient(ctx context.Context, n int, at time.Time) {
	rng := seeded(s.o.seed, uint64(3000+n))
	if wait(ctx, time.Until(at)) != nil {
		return
	}
	if s.untilDone(ctx, rng, 600+n, runName(n), want{Verb: "create", Count: s.o.periodic.vms}) != "" {
		s.count("periodic: runs that arrived")
	}
	if wait(ctx, time.Duration(30+rng.IntN(60))*time.Second) == nil {
		s.untilDone(ctx, rng, 620+n, runName(n), want{Verb: "delete"})
	}
}

// fillerClient creates a VC again and again that waits for room, and deletes it a while later.
func (s *sim) fillerClient(ctx context.Context, n int) {
	rng := seeded(s.o.seed, uint64(3100+n))
	name := fmt.Sprintf("f%c", 'a'+n)
	for wait(ctx, time.Duration(500+rng.IntN(4000))*time.Millisecond) == nil {
		s.untilDone(ctx, rng, 640+n, name, want{Verb: "create", Count: 1 + rng.IntN(s.o.periodic.filler)})
		if wait(ctx, time.Duration(5+rng.IntN(40))*time.Second) == nil {
			s.untilDone(ctx, rng, 660+n, name, want{Verb: "delete"})
		}
	}
}

// throttled reports that runs use all of their caps: they could do with more.
func (s *sim) throttled(samples []agent.Sample) []agent.Sample {
	out := slices.Clone(samples)
	for i := range out {
		if title, _ := s.titles.Load(out[i].VM); title != nil && title.(string)[0] == 'p' {
			out[i].Used = out[i].Cap
		}
	}
	return out
}

// runWatch is what is seen of runs as they arrive.
type runWatch struct {
	mu       sync.Mutex
	troubled map[string][]time.Time // by host: when something kept it from taking VMs
	since    map[string]time.Time   // by run and what it waits for: with nothing in its way
	saved    [][]byte               // states that were to be restored
}

// asksForRuns notes a state that is to be restored: it may be, whatever the answer is.
func (s *sim) asksForRuns(saved []byte) {
	s.runs.mu.Lock()
	defer s.runs.mu.Unlock()
	s.runs.saved = append(s.runs.saved, saved)
}

// refusedRun: a run whose slot has hosts must not be refused.
func (s *sim) refusedRun(name string, why *leader.Refused) {
	l := s.leader()
	if s.o.periodic == nil || name[0] != 'p' || l == nil {
		return
	}
	if o, ok := promised(l.store.Snapshot(), name[:2], time.Now()); ok {
		s.violate("run %s was refused in its slot, which is %s on %s: %v", name, o.State, o.Hosts, why)
	}
}

// promised is the occurrence of a job whose slot is open, and for which hosts were found.
func promised(snap *state.Snapshot, job string, now time.Time) (state.Occurrence, bool) {
	row, _ := snap.PeriodicJob(job)
	for _, o := range snap.Occurrences(job) {
		if (o.State == state.Confirmed || o.State == state.Reconfirmed) && !now.Before(o.Start) && !now.After(o.End.Add(-row.SignOff.Length())) {
			return o, true
		}
	}
	return state.Occurrence{}, false
}

// watchRuns: a run that arrived in its slot starts as soon as nothing is in its way that is not the agenda's.
func (s *sim) watchRuns(ctx context.Context) {
	if s.o.periodic == nil {
		return
	}
	s.runs.mu.Lock()
	s.runs.troubled, s.runs.since = map[string][]time.Time{}, map[string]time.Time{}
	s.runs.mu.Unlock()
	term := uint64(0)
	for wait(ctx, watchEvery) == nil {
		in := s.troubles()
		l := s.leader()
		if l == nil {
			clear(s.runs.since)
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
		view, err := l.ctl.View(bounded, false)
		cancel()
		if now := l.lead().term; err != nil || now != term {
			term = now
			clear(s.runs.since)
			if err != nil {
				continue
			}
		}
		if m, _ := view.Meta(); m.RecoveryFreeze.On() {
			clear(s.runs.since)
			continue
		}
		s.troublesSeen(view, in)
		for n := range s.o.periodic.slots {
			s.watchRun(view, n, in)
		}
	}
}

// unheard is after how long without a word between a host and its leader the leader may look for others.
const unheard = 8 * time.Second

// troubles are the hosts that are off, whose agent or hypervisor is not well, or whose reports no leader has answered for some time,
// whether a leader knows of that or not. They are noted.
func (s *sim) troubles() map[string]bool {
	in := map[string]bool{}
	for _, name := range s.order {
		h := s.hosts[name]
		h.mu.Lock()
		unwell := !h.on || h.proc == nil || h.proc.still.Load() || len(h.faults) > 0 || time.Since(h.uneasy) < 5*time.Second || time.Since(h.heard) > unheard
		h.mu.Unlock()
		if unwell {
			s.noteTrouble(name, in)
		}
	}
	return in
}

// troublesSeen adds the hosts that take no VMs now, or may not, as a leader has it.
func (s *sim) troublesSeen(view *leader.View, in map[string]bool) {
	for _, name := range s.order {
		row, ok := view.Host(name)
		seen := hostOf(view, name)
		if !in[name] && (!ok || row.Cordoned || row.Drain.State != "" || seen.State != "ready" || seen.Heard > unheard || seen.Error != "" || len(seen.Hangs) > 0) {
			s.noteTrouble(name, in)
		}
	}
}

// troubledBefore says when hosts were last in trouble, and when a leader last answered them.
func (s *sim) troubledBefore(hosts []string) string {
	s.runs.mu.Lock()
	defer s.runs.mu.Unlock()
	var out []string
	for _, name := range hosts {
		last, h := "never", s.hosts[name]
		if all := s.runs.troubled[name]; len(all) > 0 {
			last = time.Since(all[len(all)-1]).String() + " ago"
		}
		h.mu.Lock()
		out = append(out, fmt.Sprintf("%s in trouble %s, answered %s ago", name, last, time.Since(h.heard)))
		h.mu.Unlock()
	}
	return strings.Join(out, "; ")
}

func (s *sim) noteTrouble(host string, in map[string]bool) {
	in[host] = true
	s.runs.mu.Lock()
	defer s.runs.mu.Unlock()
	s.runs.troubled[host] = append(s.runs.troubled[host], time.Now())
}

// watchRun looks at the run of a job.
func (s *sim) watchRun(view *leader.View, n int, in map[string]bool) {
	name := runName(n)
	vc, there := view.VCNamed(name)
	waits, starts := name+" waits", name+" starts"
	var what string
	var hosts []string
	limit := maxRunWaits
	run, open := view.OpenRun(vc.ID)
	o, ok := promised(view.Snapshot, jobName(n), time.Now())
	switch {
	case !there || vc.Goal != state.GoalRun:
	case !vc.Admitted && ok:
		what, hosts = waits, o.Hosts
	case vc.Admitted && open && run.Started.IsZero():
		what, limit = starts, maxRunStarts
		for _, vm := range view.VMsOf(vc.ID) {
			if hosts = append(hosts, vm.Host, vm.MovingTo); vm.Goal != state.GoalRun {
				what = "" // an operator stopped it alone
			}
		}
	}
	for _, key := range []string{waits, starts} {
		if key != what || slices.ContainsFunc(hosts, func(h string) bool { return in[h] }) {
			delete(s.runs.since, key)
		}
	}
	if what == "" || slices.ContainsFunc(hosts, func(h string) bool { return in[h] }) {
		return
	}
	since, known := s.runs.since[what]
	switch {
	case !known:
		s.runs.since[what] = time.Now()
	case time.Since(since) > limit:
		s.violate("run %s in its slot (%s on %s) for %s, and nothing is in its way: %+v", what, o.State, hosts, time.Since(since), leader.Explain(view, vc))
		s.runs.since[what] = time.Now().Add(time.Hour) // once is enough
	}
}
