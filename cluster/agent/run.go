package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"evenkeel/cluster/lease"
	"evenkeel/hypervisor"
)

// Options are the options of an agent. The zero durations stand for the defaults.
// Many fields: each is one part or one time that the caller may replace.
type Options struct {
	Host       string // the host's name in the cluster
	Hypervisor hypervisor.Host
	Leader     Leader
	// Allowance is what Evenkeel may use of a machine of that capacity.
	Allowance func(hypervisor.Capacity) Limits
	// Overhead is what a VM costs a machine beyond its own memory, bytes.
	Overhead func(hypervisor.Capacity) int64
	Log      *slog.Logger

	StopGrace   time.Duration // from Shutdown to Destroy; default 30 s
	SampleEvery time.Duration // default 1 s
	ListEvery   time.Duration // how often to look even if no event arrives; default 15 s
	UseWindow   time.Duration // over which CPU use is averaged; default 5 s
	Step        time.Duration // of forecasts, as the Recorder's; what guests get for being short of memory stays for ten; default a minute

	Watchdog Watchdog // nil: none guards the host's leases
	// WatchdogAs identifies one configuration of the watchdog, its time-out included. If the agent before this one armed the watchdog
	// of another configuration, Earlier makes that Watchdog of its identifier. The agent pets it, and never reports it as armed. Once
	// the leader has taken a renewal that reports none armed, the agent stops it, and Watchdog takes its place.
	WatchdogAs string
	Earlier    func(as string) (Watchdog, error)
	Recorder   *Recorder  // of the VMs' histories; nil: none are kept
	State      StateStore // nil: nothing is known again after a restart, restartable VMs are stopped at it
	Boot       string     // differs from one run of the machine to the next
	Booted     time.Time  // when the machine was; zero: not known
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
	r, err := newRunner(o)
	if err != nil {
		return err
	}
	defer r.awaitMoves()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer r.beside.Wait()
	defer cancel()
	wg.Go(func() { r.lease.run(ctx) })
	if r.reach != nil {
		wg.Go(func() { r.reach.run(ctx) })
	}
	if r.addresses != nil {
		wg.Go(func() { r.addresses.run(ctx) })
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

// withDefaults returns the options with a default for each that is zero.
func (o Options) withDefaults() Options {
	o.StopGrace = cmp.Or(o.StopGrace, defaultStopGrace)
	o.ListEvery = cmp.Or(o.ListEvery, defaultListEvery)
	o.UseWindow = cmp.Or(o.UseWindow, defaultUseWindow)
	o.Step = cmp.Or(o.Step, forecastStep)
	o.SampleEvery = min(cmp.Or(o.SampleEvery, defaultSampleEvery), o.Step/2) // each step is to be measured, also where that takes its time
	if o.Clock == nil {
		o.Clock = lease.Boottime
	}
	return o
}

// newRunner returns a runner that has done nothing yet. It takes over the watchdog that an agent before it armed.
func newRunner(o Options) (*runner, error) {
	o = o.withDefaults()
	r := &runner{Options: o, log: o.Log.With("host", o.Host), last: Report{Host: o.Host, MigrateURI: o.MigrateURI, Resumes: true, Booted: o.Booted},
		caps: map[string]hypervisor.VM{}, refused: map[Instance]time.Time{}, ended: map[string]string{}, orphans: map[string]int64{}, begun: map[string]Sending{},
		asked: map[string]time.Time{}, balloons: map[string]balloonTry{}, shares: map[string]float64{}, cleared: map[string]uint64{}, attempts: map[string]attempt{},
		starts: map[string]*starting{}, moves: map[string]*moving{}, moved: make(chan struct{}, 1), resumed: map[uint64]hypervisor.Moved{}, resets: map[string]ResetTry{}, failing: map[uint64]time.Time{},
		guests: map[string]*guestWatch{}, load: newHostLoad(o.Recorder.fiveMinutes), use: map[string]*useWindow{}, acknowledged: map[string]estimateDigest{}, sent: map[string]sentStatus{}}
	var err error
	if r.lease, err = newLeaseManager(r.Options, r.log); err != nil {
		return nil, err
	}
	if o.Peers != nil {
		r.reach = &reach{host: o.Host, hyp: o.Hypervisor, peers: o.Peers, news: r.wake, seen: map[string]probeResult{},
			failed: func(err error) { r.log.Debug("whether other hosts are reached is not known", "error", err) }}
	}
	if known, is := o.Hypervisor.(hypervisor.Addressing); is {
		r.addresses = newAddressBook(known)
	}
	return r, nil
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

// runner is what an agent remembers from one round to the next. What one step of a round passes to the next goes by value: see
// round. Each field stands with the step that changes it. Only the runner's goroutine uses them, but for what is said of moving,
// starting, the lease manager and reach.
// Many fields: they are in one place, in the order of the steps, so that a step can be read beside what it changes.
type runner struct {
	Options
	log   *slog.Logger
	lease *leaseManager
	reach *reach // nil: it is not looked at
	// addresses of VMs; nil: the hypervisor knows none.
	addresses *addressBook

	// Identify: the machine, the cluster, and what was listed.
	capacity hypervisor.Capacity
	partner  Migrates                 // what the host has for moves, as last asked
	surveyed time.Time                // when that was
	cluster  string                   // id; "" until the leader sent it; see belong
	epoch    uint64                   // in which the leader sent it
	alone    bool                     // no migration goes on that an agent before this one began
	orphans  map[string]int64         // bytes that such migrations sent, by VM, until that is reported
	begun    map[string]Sending       // moves that an agent before this one began, and whose VMs were here after it, by VM
	caps     map[string]hypervisor.VM // VMs as last listed, by id
	standing map[Instance]time.Time   // VMs that came by a migration and stand paused, and since when that is seen
	leftover map[Instance]time.Time   // what migrations left behind, VM and Generation, and since when that is seen

	// Fetch: what the leader last sent.
	counts  map[string]uint64  // generations of VMs that the leader was last seen to know here, by id
	coming  map[string]VM      // of open moves to this host, by id
	known   map[known]bool     // open moves
	frozen  bool               // nothing is to change here: see Desired.Freeze
	toStart map[string]toStart // VMs that may start and do not run, by id; nil before the first round

	// Decide: what counts the rounds in which something is wanted and cannot be done.
	waits  map[string]waiting // VMs whose move waits for room
	raised map[string]int64   // what guests that are short of memory were to have in the last round

	// Act: what was tried.
	asked    map[string]time.Time        // when VMs were asked to power off, by id
	balloons map[string]balloonTry       // by id
	shares   map[string]float64          // caps as last set, cores
	cleared  map[string]uint64           // generations of which nothing is left here, by id
	attempts map[string]attempt          // starts that failed, by id
	starts   map[string]*starting        // under way, by VM
	moves    map[string]*moving          // migrations that this agent began
	resumed  map[uint64]hypervisor.Moved // bytes and downtime of open moves whose VMs were resumed here, by Move.Open
	failing  map[uint64]time.Time        // since when VMs that arrived cannot be resumed, by Move.Open
	refused  map[Instance]time.Time      // when the leader may be asked again whether a leftover is destroyed
	resets   map[string]ResetTry         // resets that were asked for, by VM.Reset
	steps    string                      // of the last round that acted

	// Report: what the leader has, and has not yet.
	last         Report                            // limits and health as last reported
	sent         map[string]sentStatus             // what was last reported of VMs to the leader, by id
	acknowledged map[string]estimateDigest         // estimates that the leader has, by VM
	hung         map[hypervisor.Hung]time.Duration // calls of the hypervisor that hang, as they were reported
	unspoken     time.Time                         // since when rounds that acted were not reported; zero: the last one was
	left         []Status                          // of VMs that were handed over, yet to be reported
	lateStarts   error                             // what went wrong with starts that no round waited for; until a round has reported it

	// Between rounds: measurements, and what goes on beside them.
	use    map[string]*useWindow
	guests map[string]*guestWatch
	load   hostLoad
	due    time.Time         // when the leader is to have the next measurement
	glance time.Duration     // how long the last look at guests took
	ended  map[string]string // why the hypervisor said that VMs stopped, by id
	moved  chan struct{}     // wakes the loop: see wake
	ending sync.WaitGroup    // migrations that go on
	beside sync.WaitGroup    // starts that have not ended
}

// loop takes rounds until ctx ends, or the hypervisor sends no events any more.
func (r *runner) loop(ctx context.Context, events <-chan hypervisor.Event) error {
	tick := time.NewTicker(r.SampleEvery)
	defer tick.Stop()
	var backoff time.Duration
	for {
		end := r.round(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if end.err == nil {
			backoff = 0
			if end.again {
				continue
			}
		}
		listed := time.Now()
		var retry <-chan time.Time
		if end.err != nil {
			backoff = min(max(2*backoff, firstBackoff), lastBackoff)
			retry = time.After(backoff)
			if _, heard, e := r.Leader.Desired(ctx, r.Host); e != nil && end.changed == nil {
				end.changed = heard // again: there is no point in waiting any longer
			}
			r.log.Warn("round failed", "step", end.step, "error", end.err, "retry", backoff)
		}
		r.due = time.Now().Add(r.pace())
		tick.Reset(r.untilLook())
		if !r.wait(ctx, events, tick, listed, end.changed, retry) {
			return nil
		}
	}
}

// wait waits until there is reason for another round, and measures meanwhile. It returns false where there must be none.
func (r *runner) wait(ctx context.Context, events <-chan hypervisor.Event, tick *time.Ticker, listed time.Time, changed <-chan struct{}, retry <-chan time.Time) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-changed:
			return true
		case <-retry:
			return true
		case <-r.moved:
			return true
		case e, open := <-events:
			if open {
				r.note(e)
			}
			return open
		case <-tick.C:
			if r.roundDue(listed) {
				return true
			}
			if err := r.look(ctx); err != nil || r.underPressure() {
				return true // the round finds out and reports
			}
			tick.Reset(r.untilLook())
		}
	}
}

// roundDue says whether time alone is reason for another round: something that was asked for may have happened, or VMs were last
// listed long ago.
func (r *runner) roundDue(listed time.Time) bool {
	return len(r.asked)+len(r.toStart)+len(r.mayClear(time.Now())) > 0 || r.balloonDue() || time.Since(listed) >= r.ListEvery
}

// note takes in an event. Each calls for a round.
func (r *runner) note(e hypervisor.Event) {
	r.log.Debug("hypervisor event", "kind", e.Kind, "vm", e.VM, "name", e.Name, "reason", e.Reason)
	switch e.Kind {
	case hypervisor.Resync:
		r.capacity, r.surveyed = hypervisor.Capacity{}, time.Time{}
	case hypervisor.Stopped:
		if e.VM != "" {
			r.ended[e.VM] = e.Reason
		}
	}
}

func (r *runner) balloonDue() bool {
	for _, t := range r.balloons {
		if time.Since(t.at) < balloonPatient+r.SampleEvery {
			return true
		}
	}
	return false
}
