package agent

import (
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
