package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"evenkeel/cluster/lease"
	"evenkeel/hypervisor"
)

// Options are the options of an agent. The zero durations stand for the defaults.
type Options struct {
	Host       string // the host's name in the cluster
	Hypervisor hypervisor.Host
	Leader     Leader
	// Allowance is what Evenkeel may use of a machine of that capacity.
	Allowance func(hypervisor.Capacity) Limits
	// Overhead is what a VM costs a machine beyond its own memory, bytes.
	Overhead func(hypervisor.Capacity) int64
	Log      *slog.Logger

	StopGrace   time.Duration // from the power button to the plug; default 30 s
	SampleEvery time.Duration // default 1 s
	ListEvery   time.Duration // how often to look even if no event arrives; default 15 s
	UseWindow   time.Duration // over which CPU use is averaged; default 5 s
	Step        time.Duration // of forecasts, as the Recorder's; what guests get for being short of memory stays for ten; default a minute

	Watchdog Watchdog // nil: none guards the host's leases
	// WatchdogAs identifies one configuration of the watchdog, its time-out included. If an agent before this one armed another
	// one, Earlier makes a Watchdog of its identifier. The agent pets that one, and never reports it as armed, until the leader
	// knows that it counts on it no more. Then the agent disarms it, and Watchdog takes its place.
	WatchdogAs string
	Earlier    func(as string) (Watchdog, error)
	Recorder   *Recorder  // of the VMs' histories; nil: none are kept
	State      StateStore // nil: nothing is known again after a restart, restartable VMs are stopped at it
	Boot       string     // differs from one run of the machine to the next
	Machine    string     // differs from one machine to another; "" = not known
	MigrateURI string     // where other hosts reach this one's hypervisor
	// Peers asks the leader which hosts VMs may be sent to: see reach. nil: whether this host reaches others is not looked at.
	Peers func(context.Context, PeersWanted) (Peers, error)
	// Clock neither jumps nor stops while the machine sleeps; default CLOCK_BOOTTIME.
	Clock func() lease.Instant
}

// Run drives the host until ctx ends. It changes nothing on its way out: VMs go on as they are. It gives up moves that go on,
// as no agent would count their bytes.
func Run(ctx context.Context, o Options) error {
	if o.StopGrace == 0 {
		o.StopGrace = defaultStopGrace
	}
	if o.SampleEvery == 0 {
		o.SampleEvery = defaultSampleEvery
	}
	if o.ListEvery == 0 {
		o.ListEvery = defaultListEvery
	}
	if o.Step == 0 {
		o.Step = forecastStep
	}
	o.SampleEvery = min(o.SampleEvery, o.Step/2) // each step is to be measured, also where that takes its time
	if o.UseWindow == 0 {
		o.UseWindow = defaultUseWindow
	}
	if o.Clock == nil {
		o.Clock = lease.Boottime
	}
	r := &runner{Options: o, log: o.Log.With("host", o.Host), asked: map[string]time.Time{}, balloons: map[string]balloonTry{},
		attempts: map[string]attempt{}, ended: map[string]string{}, cleared: map[string]uint64{}, use: map[string]*useWindow{}, caps: map[string]hypervisor.VM{}, shares: map[string]float64{},
		guests: map[string]*guestWatch{}, load: newHostLoad(), moves: map[string]*moving{}, acknowledged: map[string]estimateDigest{}, orphans: map[string]int64{}, begun: map[string]Sending{}, starts: map[string]*starting{}, moved: make(chan struct{}, 1), sent: map[string]sentStatus{}, refused: map[Instance]time.Time{}, resumed: map[uint64]hypervisor.Moved{}, failing: map[uint64]time.Time{}, last: Report{Host: o.Host, MigrateURI: o.MigrateURI, Resumes: true}}
	manager, err := newLeaseManager(r.Options, r.log)
	if err != nil {
		return err
	}
	r.lease = manager
	if o.Peers != nil {
		r.reach = &reach{host: o.Host, hyp: o.Hypervisor, peers: o.Peers, news: r.wake, seen: map[string]probeResult{},
			failed: func(err error) { r.log.Debug("whether other hosts are reached is not known", "error", err) }}
	}
	defer r.awaitMoves()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer r.beside.Wait()
	defer cancel()
	wg.Go(func() { manager.run(ctx) })
	if r.reach != nil {
		wg.Go(func() { r.reach.run(ctx) })
	}
	if o.Recorder != nil {
		wg.Go(func() { o.Recorder.run(ctx) })
	}
	events, err := r.subscribe(ctx)
	if err != nil || events == nil {
		return err
	}
	return r.loop(ctx, events)
}

// subscribe waits for a hypervisor that is out of reach. It returns nil once ctx has ended.
func (r *runner) subscribe(ctx context.Context) (<-chan hypervisor.Event, error) {
	for backoff := firstBackoff; ; backoff = min(2*backoff, lastBackoff) {
		events, err := r.Hypervisor.Events(ctx)
		switch {
		case err == nil:
			return events, nil
		case ctx.Err() != nil:
			return nil, nil
		case !errors.Is(err, hypervisor.ErrUnavailable):
			return nil, fmt.Errorf("agent of host %s: %w", r.Host, err)
		}
		if e := r.outOfReach(ctx, err); e != nil {
			err = errors.Join(err, e)
		}
		r.log.Warn("no events from the hypervisor", "error", err, "retry", backoff)
		select {
		case <-ctx.Done():
			return nil, nil
		case <-time.After(backoff):
		}
	}
}

// outOfReach reports to the leader that nothing is known of this host's VMs.
func (r *runner) outOfReach(ctx context.Context, err error) error {
	r.last.Reach, r.last.Error, r.last.Index, r.last.Hangs = false, err.Error(), 0, r.hangs()
	r.last.Statuses, r.last.Samples, r.last.Estimates, r.last.Pressure, r.last.Available = nil, nil, nil, nil, nil
	return r.Leader.Report(ctx, r.last)
}

type balloonTry struct {
	target int64
	at     time.Time
}

// waiting is a VM that waits for the target of its move to have room.
type waiting struct {
	open  uint64
	since time.Time
}

type attempt struct {
	generation uint64
	n          int
	final      string
}

type runner struct {
	Options
	log *slog.Logger

	capacity     hypervisor.Capacity
	asked        map[string]time.Time
	balloons     map[string]balloonTry
	attempts     map[string]attempt
	ended        map[string]string
	cleared      map[string]uint64
	use          map[string]*useWindow
	caps         map[string]hypervisor.VM // as last listed
	shares       map[string]float64       // caps as last set, cores
	guests       map[string]*guestWatch
	load         hostLoad
	raised       map[string]int64                  // what guests that are short of memory were to have in the last round
	cluster      string                            // id; "" until the leader sent it; see belong
	epoch        uint64                            // in which the leader sent it
	steps        string                            // of the last round that acted
	lost         map[string]uint64                 // generations of VMs that were stopped for want of a lease
	moves        map[string]*moving                // migrations that this agent began
	leaving      map[string]bool                   // VMs whose migration went on when the hypervisor was last asked
	counts       map[string]uint64                 // generations of VMs that the leader was last seen to know here, by id
	known        map[known]bool                    // moves that the leader last reported
	waits        map[string]waiting                // VMs whose move waits for room
	alone        bool                              // no migration goes on that an agent before this one began
	acknowledged map[string]estimateDigest         // estimates that the leader has, by VM
	orphans      map[string]int64                  // bytes that such migrations sent, by VM, until that is reported
	begun        map[string]Sending                // moves that an agent before this one began, and whose VMs were here after it, by VM
	leftover     map[Instance]time.Time            // what migrations left behind, VM and Generation, and since when that is seen
	frozen       bool                              // by the leader's last desired state nothing is to change here: see Desired.Freeze
	coming       map[string]VM                     // of open moves to this host, as the leader last sent them, by id
	standing     map[Instance]time.Time            // VMs that came by a migration and stand paused, and since when that is seen
	failing      map[uint64]time.Time              // since when VMs that came cannot be resumed, by Move.Open
	resumed      map[uint64]hypervisor.Moved       // what open moves took that brought VMs which were resumed, by Move.Open
	refused      map[Instance]time.Time            // when the leader may be asked again whether such a VM is destroyed
	toStart      map[string]toStart                // VMs that may start and do not run, by id; nil before the first round
	moved        chan struct{}                     // a migration ended
	ending       sync.WaitGroup                    // migrations that go on
	starts       map[string]*starting              // under way, by VM
	beside       sync.WaitGroup                    // starts that have not ended
	lateStarts   error                             // what went wrong with starts that no round waited for; until a round has reported it
	hung         map[hypervisor.Hung]time.Duration // calls of the hypervisor that hang, as they were reported
	left         []Status                          // of VMs that were handed over, yet to be reported
	sent         map[string]sentStatus             // what was last reported of VMs to the leader, by id
	unspoken     time.Time                         // since when rounds that acted were not reported; zero: the last one was
	partner      Migrates                          // what the host has for moves, as last asked
	surveyed     time.Time                         // when that was
	lease        *leaseManager
	reach        *reach // nil: it is not looked at
	last         Report // limits and health as last reported
}

func (r *runner) loop(ctx context.Context, events <-chan hypervisor.Event) error {
	tick := time.NewTicker(r.SampleEvery)
	defer tick.Stop()
	var listed time.Time
	var backoff time.Duration
	for {
		again, changed, err := r.round(ctx)
		if ctx.Err() != nil {
			return nil
		}
		listed = time.Now()
		var retry <-chan time.Time
		switch {
		case err != nil:
			backoff = min(max(2*backoff, firstBackoff), lastBackoff)
			retry = time.After(backoff)
			if _, heard, e := r.Leader.Desired(ctx, r.Host); e != nil && changed == nil {
				changed = heard // again: there is no point in waiting any longer
			}
			r.log.Warn("round failed", "error", err, "retry", backoff)
		case again:
			backoff = 0
			continue
		default:
			backoff = 0
		}
		tick.Reset(r.pace())
	wait:
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
				break wait
			case <-retry:
				break wait
			case <-r.moved:
				break wait
			case e, open := <-events:
				if !open {
					return nil
				}
				if r.note(e) {
					break wait
				}
			case <-tick.C:
				if len(r.asked)+len(r.toStart)+len(r.mayClear(time.Now())) > 0 || r.balloonDue() || time.Since(listed) >= r.ListEvery {
					break wait
				}
				if err := r.sample(ctx); err != nil || r.underPressure() {
					break wait // the round finds out and reports
				}
				tick.Reset(r.pace())
			}
		}
	}
}

// note takes an event in and says whether it calls for a round.
func (r *runner) note(e hypervisor.Event) bool {
	r.log.Debug("hypervisor event", "kind", e.Kind, "vm", e.VM, "name", e.Name, "reason", e.Reason)
	switch e.Kind {
	case hypervisor.Resync:
		r.capacity, r.surveyed = hypervisor.Capacity{}, time.Time{}
	case hypervisor.Stopped:
		if e.VM != "" {
			r.ended[e.VM] = e.Reason
		}
	}
	return true
}

func (r *runner) balloonDue() bool {
	for _, t := range r.balloons {
		if time.Since(t.at) < balloonPatient+r.SampleEvery {
			return true
		}
	}
	return false
}

// round looks, decides, acts and reports once. again: the round did something, so that the next one must look whether it holds.
// changed closes when the desired state changes.
func (r *runner) round(ctx context.Context) (again bool, changed <-chan struct{}, err error) {
	there, err := r.listVMs(ctx)
	if err != nil {
		if e := r.outOfReach(ctx, err); e != nil {
			err = errors.Join(err, e)
		}
		return false, nil, err
	}
	if r.cluster == "" { // else the VMs of another cluster could not be distinguished from ours
		want, changed, err := r.Leader.Desired(ctx, r.Host)
		if err != nil {
			return false, nil, fmt.Errorf("desired state: %w", err)
		}
		if err := r.lease.advance(want.Epoch, want.Index); err != nil {
			return false, changed, err
		}
		r.belong(want)
		if there, err = r.listVMs(ctx); err != nil {
			return false, nil, errors.Join(err, r.outOfReach(ctx, err))
		}
		r.learn(want)
	}
	if !r.alone {
		if there, err = r.giveUpOrphans(ctx, there); err != nil {
			return false, nil, errors.Join(err, r.outOfReach(ctx, err))
		}
	}
	// The leader must know the host's limits before it decides what is to run on it.
	report := r.describe(there)
	if !r.knows(report) {
		if err := r.Leader.Report(ctx, report); err != nil {
			return false, nil, fmt.Errorf("report: %w", err)
		}
	}
	want, changed, err := r.Leader.Desired(ctx, r.Host)
	if err != nil {
		return false, nil, fmt.Errorf("desired state: %w", err)
	}
	if err := r.lease.advance(want.Epoch, want.Index); err != nil {
		return false, changed, err
	}
	if want.Epoch > r.epoch { // after a restore the leader waits for a list of VMs made once this host knew of the restore
		r.belong(want)
		r.learn(want)
		clear(r.sent)
		return true, changed, nil
	}
	r.learn(want)
	if r.news(want) {
		if there, err = r.listVMs(ctx); err != nil {
			return false, nil, errors.Join(err, r.outOfReach(ctx, err))
		}
	}

	if r.squeezes(want) || r.nearLimit(want, there) {
		if _, err := r.samples(ctx); err != nil {
			return false, changed, errors.Join(err, r.outOfReach(ctx, err))
		}
	}
	r.starting(want, there, time.Now())
	r.lease.expects(want)
	past := r.past(want)
	r.raised = raises(past.Guests)
	ops := Decide(want, there, past)
	done, opErr := r.act(ctx, ops)
	opErr, r.lateStarts = errors.Join(r.lateStarts, opErr), nil
	if steps := fmt.Sprint(ops); done.acted > 0 {
		if opErr == nil && steps == r.steps {
			opErr = fmt.Errorf("done before, with no effect: %s", steps)
		}
		r.steps = steps
	} else {
		r.steps = ""
	}
	if opErr == nil && r.mayWait(done) {
		return true, changed, nil
	}
	report = r.describe(there)
	report.Statuses = r.unacknowledged(append(done.statuses, r.left...))
	for _, vm := range Unmanaged(want, there) {
		if !vm.Leftover && !r.isStanding(vm) { // Running reports these
			report.Unmanaged = append(report.Unmanaged, vm.Name)
		}
	}
	if opErr != nil {
		report.Error = opErr.Error()
	} else if lacking, all := ungranted(unlessHung(ops, past.Starting)); all {
		report.Index, report.Lacking = want.Index, lacking
		report.Quiet = want.RequiredIndex > 0 && r.last.Index >= want.RequiredIndex && len(r.last.Lacking)+len(lacking) == 0
	}
	report.Samples, _ = r.samples(ctx)
	report.Pressure, report.Estimates, report.Available = r.pressure(ctx), r.fresh(), r.load.report(report.Samples)
	if err := r.Leader.Report(ctx, report); err != nil {
		return false, changed, errors.Join(opErr, fmt.Errorf("report: %w", err))
	}
	r.acknowledge(report.Estimates)
	r.left = nil
	r.last = report
	r.has(report.Statuses)
	if opErr == nil && want.Freeze == "" {
		r.lease.reportAccepted()
	}
	return (done.acted > 0 || r.underPressure()) && opErr == nil, changed, opErr
}

// belong makes this agent's VMs those of the cluster of want, in its epoch: what is listed from now on is reported in that
// epoch. A restore may put the state of another cluster in force, whose VMs were no concern of this agent before.
func (r *runner) belong(want Desired) {
	if r.cluster != want.Cluster {
		r.alone = false
	}
	r.cluster, r.epoch = want.Cluster, want.Epoch
}

func (r *runner) listVMs(ctx context.Context) ([]hypervisor.VM, error) {
	if r.capacity.CPU == 0 {
		c, err := r.Hypervisor.Capacity(ctx)
		if err != nil {
			return nil, fmt.Errorf("read capacity: %w", err)
		}
		r.capacity = c
	}
	if r.surveyed.IsZero() || time.Since(r.surveyed) > surveyEvery {
		// Only plans depend on it: a move that the target cannot take fails, and its error says why.
		if p, err := r.Hypervisor.Partner(ctx); err == nil {
			r.partner, r.surveyed = p, time.Now()
		} else if ctx.Err() == nil {
			r.log.Warn("what the host has for moves is not known", "error", err)
		}
	}
	asOf := r.Clock()
	r.leaving = map[string]bool{}
	for id, m := range r.moves {
		select {
		case <-m.done:
			r.over(m)
		default:
			r.leaving[id] = true
		}
	}
	r.takeStarts(ctx)
	there, err := r.Hypervisor.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list VMs: %w", err)
	}
	r.lost = r.lease.observe(asOf, there)
	r.stands(there, time.Now())
	r.leftovers(there, time.Now())
	clear(r.caps)
	for _, vm := range there {
		if !vm.Foreign {
			r.caps[vm.Identity.VM] = vm
			delete(r.ended, vm.Identity.VM)
		}
	}
	r.recordStays()
	maps.DeleteFunc(r.shares, func(id string, _ float64) bool { _, runs := r.caps[id]; return !runs })
	for id := range r.asked {
		if _, runs := r.caps[id]; !runs {
			delete(r.asked, id)
		}
	}
	for id, t := range r.balloons {
		vm, runs := r.caps[id]
		reached := runs && vm.Balloon >= t.target-balloonSlack && vm.Balloon <= t.target+balloonSlack
		if !runs || (!reached && time.Since(t.at) > balloonPatient) {
			delete(r.balloons, id) // gone, or worth another try
		}
	}
	return there, nil
}

// describe is the report on the machine itself.
func (r *runner) describe(there []hypervisor.VM) Report {
	out := Report{Host: r.Host, Capacity: r.capacity, Allowance: r.Allowance(r.capacity), Overhead: r.Overhead(r.capacity), Reach: true,
		MigrateURI: r.MigrateURI, Resumes: true, Migrates: r.partner, Moves: r.progress(), MissingRoutes: r.reach.report(time.Now()), Running: []Instance{}, Epoch: r.epoch, Hangs: r.hangs()}
	for _, vm := range there {
		if !vm.Foreign && vm.Cluster == r.cluster {
			out.Running = append(out.Running, Instance{VM: vm.Identity.VM, Name: vm.Name, Generation: vm.Generation, Incoming: r.isStanding(vm) || vm.State == hypervisor.Incoming, Leftover: r.isLeftover(vm), Leaving: r.leaving[vm.Identity.VM] || !r.alone})
		}
	}
	out.Foreign, out.ForeignVMs = others(r.cluster, out.Overhead, r.capacity.CPU, r.unmanaged(there), there)
	return out
}

// learn notes which VMs the leader knows here.
func (r *runner) learn(want Desired) {
	r.counts = make(map[string]uint64, len(want.VMs))
	r.coming, r.frozen = map[string]VM{}, want.Freeze != ""
	for _, vm := range want.VMs {
		r.counts[vm.Spec.Identity.VM] = vm.Spec.Generation
		if vm.Move != nil && vm.Move.Incoming {
			r.coming[vm.Spec.Identity.VM] = vm
		}
	}
	open := map[uint64]bool{}
	for _, vm := range r.coming {
		open[vm.Move.Open] = true
	}
	maps.DeleteFunc(r.resumed, func(move uint64, _ hypervisor.Moved) bool { return !open[move] })
	maps.DeleteFunc(r.failing, func(move uint64, _ time.Time) bool { return !open[move] })
}

// unmanaged returns the VMs that have this cluster's mark, and that the leader's last desired state did not have here. The
// leader knows a VM that comes or goes by migration, or will in a moment: it records the intent before the move begins.
func (r *runner) unmanaged(there []hypervisor.VM) map[string]bool {
	out := map[string]bool{}
	for _, vm := range there {
		id := vm.Identity.VM
		if _, known := r.counts[id]; r.counts != nil && !vm.Foreign && vm.Cluster == r.cluster && !known && (vm.State != hypervisor.Incoming || vm.Leftover) && r.moves[id] == nil {
			out[id] = true
		}
	}
	return out
}

func (r *runner) past(want Desired) Past {
	p := Past{Cores: r.capacity.CPU, Overdue: map[string]bool{}, Asked: map[string]bool{}, CPU: r.shares, Balloon: map[string]int64{}, FailedStart: map[string]Failure{}, Ended: r.ended,
		Lost: r.lost, Cleared: r.cleared, Moving: map[string]bool{}, Moved: map[string]MoveEnd{}, Handed: map[string]bool{}, Standing: map[string]bool{}, Resumed: map[string]bool{}, Unresumable: map[string]bool{}, Waited: map[string]bool{}}
	p.Fresh, p.Lapsed = r.lease.went()
	p.Guests, p.Starting = r.needs(), r.notEnded()
	p.Waits, p.GivenUp, p.Leftover = r.startsDue(time.Now()), r.lease.givenUp(want), r.mayClear(time.Now())
	r.pastMoves(want, p)
	for i := range r.standing {
		p.Standing[i.VM] = true
	}
	for id, vm := range r.coming {
		_, p.Resumed[id] = r.resumed[vm.Move.Open]
		since, fails := r.failing[vm.Move.Open]
		p.Unresumable[id] = fails && time.Since(since) > resumeWithin
	}
	for id, at := range r.asked {
		p.Asked[id] = true
		p.Overdue[id] = time.Since(at) > r.StopGrace
	}
	for id, t := range r.balloons {
		p.Balloon[id] = t.target
	}
	known := make(map[string]bool, len(want.VMs))
	for _, vm := range want.VMs {
		known[vm.Spec.Identity.VM] = true
	}
	forgotten := func(id string) bool { return !known[id] }
	maps.DeleteFunc(r.attempts, func(id string, _ attempt) bool { return forgotten(id) })
	maps.DeleteFunc(r.ended, func(id string, _ string) bool { return forgotten(id) })
	maps.DeleteFunc(r.cleared, func(id string, _ uint64) bool { return forgotten(id) })
	for _, vm := range want.VMs {
		id := vm.Spec.Identity.VM
		if a, ok := r.attempts[id]; ok && a.generation == vm.Spec.Generation && a.final != "" {
			p.FailedStart[id] = Failure{Generation: a.generation, Reason: a.final}
		}
	}
	return p
}

// pastMoves adds what was done before for the moves that are open, and forgets the others.
func (r *runner) pastMoves(want Desired, p Past) {
	open, waits := map[string]uint64{}, map[string]waiting{}
	for _, vm := range want.VMs {
		id := vm.Spec.Identity.VM
		if vm.Move == nil || vm.Move.Incoming {
			continue
		}
		open[id] = vm.Move.Open
		if r.moves[id] == nil {
			if bytes, is := r.orphans[id]; is {
				r.moves[id] = never(id, vm.Move.Open, bytes, errOrphan.Error())
				r.moves[id].end.Unknown = !r.lease.sending()[id].Kept
			} else if begun := r.begun[id]; begun.Open != 0 && begun.Open == vm.Move.Open {
				r.moves[id] = never(id, vm.Move.Open, begun.MaxBytes, errUncounted.Error())
				r.moves[id].end.Unknown = !r.lease.sending()[id].Kept
			} else if begun := r.lease.sending()[id]; begun.Open != 0 && begun.Open == vm.Move.Open && !begun.Kept {
				p.Handed[id] = true // it was not here when this agent began
			}
		}
		delete(r.orphans, id)
		if !vm.Move.Wait {
			continue
		}
		w, known := r.waits[id]
		if !known || w.open != vm.Move.Open {
			w = waiting{vm.Move.Open, time.Now()}
		}
		waits[id], p.Waited[id] = w, time.Since(w.since) > roomWithin
	}
	r.waits = waits
	r.lease.sent(open)
	for id, m := range r.moves {
		at, is := open[id]
		switch {
		case !m.over: // or it ended since, and what was listed is older than that
			p.Moving[id] = true
		case !is || at != m.open:
			delete(r.moves, id)
		default:
			p.Moved[id], p.Handed[id] = m.end, m.end.Error == "" || m.end.Unknown
		}
	}
}
