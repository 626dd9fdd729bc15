package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"evenkeel/hypervisor"
)

// Options of an agent. The zero durations mean the defaults.
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
	ListEvery   time.Duration // how often to look even if nothing is said to have changed; default 15 s
	UseWindow   time.Duration // over which CPU use is averaged; default 5 s
}

// How a round is paced.
const (
	startsAtOnce   = 4
	destroysAtOnce = 8
	startAttempts  = 3
	balloonPatient = 10 * time.Second
	firstBackoff   = 200 * time.Millisecond
	lastBackoff    = 5 * time.Second
)

// Run drives the host until ctx ends. It changes nothing on its way out: VMs go
// on as they are.
func Run(ctx context.Context, o Options) error {
	if o.StopGrace == 0 {
		o.StopGrace = 30 * time.Second
	}
	if o.SampleEvery == 0 {
		o.SampleEvery = time.Second
	}
	if o.ListEvery == 0 {
		o.ListEvery = 15 * time.Second
	}
	if o.UseWindow == 0 {
		o.UseWindow = 5 * time.Second
	}
	r := &runner{Options: o, log: o.Log.With("host", o.Host), asked: map[string]time.Time{}, balloons: map[string]balloonTry{},
		attempts: map[string]attempt{}, ended: map[string]string{}, use: map[string]*useWindow{}, caps: map[string]hypervisor.VM{}, shares: map[string]float64{},
		last: Report{Host: o.Host}}
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

// outOfReach tells the leader that nothing is known of this host's VMs.
func (r *runner) outOfReach(ctx context.Context, err error) error {
	r.last.Reach, r.last.Error, r.last.Index = false, err.Error(), 0
	r.last.Statuses, r.last.Samples = nil, nil
	return r.Leader.Report(ctx, r.last)
}

type balloonTry struct {
	target int64
	at     time.Time
}

type attempt struct {
	generation uint64
	n          int
	final      string
}

type runner struct {
	Options
	log *slog.Logger

	capacity hypervisor.Capacity
	asked    map[string]time.Time
	balloons map[string]balloonTry
	attempts map[string]attempt
	ended    map[string]string
	use      map[string]*useWindow
	caps     map[string]hypervisor.VM // as last listed
	shares   map[string]float64       // caps as last set, cores
	cluster  string                   // id; "" until the leader said it
	steps    string                   // of the last round that acted
	index    uint64                   // highest index of desired state seen; older ones are refused
	last     Report                   // limits and health as last reported
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
			r.log.Warn("round failed", "error", err, "retry", backoff)
		case again:
			backoff = 0
			continue
		default:
			backoff = 0
		}
	wait:
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
				break wait
			case <-retry:
				break wait
			case e, open := <-events:
				if !open {
					return nil
				}
				if r.note(e) {
					break wait
				}
			case <-tick.C:
				if len(r.asked) > 0 || r.balloonDue() || time.Since(listed) >= r.ListEvery {
					break wait
				}
				if err := r.sample(ctx); err != nil {
					break wait // the round finds out and reports
				}
			}
		}
	}
}

// note takes an event in and says whether it calls for a round.
func (r *runner) note(e hypervisor.Event) bool {
	r.log.Debug("hypervisor event", "kind", e.Kind, "vm", e.VM, "name", e.Name, "reason", e.Reason)
	switch e.Kind {
	case hypervisor.Resync:
		r.capacity = hypervisor.Capacity{}
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

// round looks, decides, acts and reports once. again: something was done, so
// look again whether it holds. changed closes when the desired state changes.
func (r *runner) round(ctx context.Context) (again bool, changed <-chan struct{}, err error) {
	there, err := r.look(ctx)
	if err != nil {
		if e := r.outOfReach(ctx, err); e != nil {
			err = errors.Join(err, e)
		}
		return false, nil, err
	}
	if r.cluster == "" { // else the VMs of another cluster could not be told from ours
		want, _, err := r.Leader.Desired(ctx, r.Host)
		if err != nil {
			return false, nil, fmt.Errorf("desired state: %w", err)
		}
		r.cluster = want.Cluster
	}
	// The leader must know the host's limits before it says what is to run on it.
	report := r.describe(there)
	if err := r.Leader.Report(ctx, report); err != nil {
		return false, nil, fmt.Errorf("report: %w", err)
	}
	want, changed, err := r.Leader.Desired(ctx, r.Host)
	if err != nil {
		return false, nil, fmt.Errorf("desired state: %w", err)
	}
	if want.Index < r.index {
		return false, changed, fmt.Errorf("desired state of index %d is older than %d, seen before", want.Index, r.index)
	}
	r.index = want.Index

	ops := Decide(want, there, r.past(want))
	done, opErr := r.act(ctx, ops)
	if steps := fmt.Sprint(ops); done.acted > 0 {
		if opErr == nil && steps == r.steps {
			opErr = fmt.Errorf("done before, with no effect: %s", steps)
		}
		r.steps = steps
	} else {
		r.steps = ""
	}
	report = r.describe(there)
	report.Statuses = done.statuses
	for _, vm := range Unknown(want, there) {
		report.Unknown = append(report.Unknown, vm.Name)
	}
	if opErr != nil {
		report.Error = opErr.Error()
	} else if len(ops) == 0 {
		report.Index = want.Index
	}
	report.Samples, _ = r.samples(ctx)
	if err := r.Leader.Report(ctx, report); err != nil {
		return false, changed, errors.Join(opErr, fmt.Errorf("report: %w", err))
	}
	r.last = report
	return done.acted > 0 && opErr == nil, changed, opErr
}

func (r *runner) look(ctx context.Context) ([]hypervisor.VM, error) {
	if r.capacity.CPU == 0 {
		c, err := r.Hypervisor.Capacity(ctx)
		if err != nil {
			return nil, fmt.Errorf("read capacity: %w", err)
		}
		r.capacity = c
	}
	there, err := r.Hypervisor.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list VMs: %w", err)
	}
	clear(r.caps)
	for _, vm := range there {
		if !vm.Foreign {
			r.caps[vm.Identity.VM] = vm
			delete(r.ended, vm.Identity.VM)
		}
	}
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
	out := Report{Host: r.Host, Capacity: r.capacity, Allowance: r.Allowance(r.capacity), Overhead: r.Overhead(r.capacity), Reach: true}
	for _, vm := range there {
		if vm.Foreign || vm.Cluster != r.cluster { // also what another cluster left here takes its room
			out.ForeignVMs++
			out.Foreign.CPU += min(inForce(vm), r.capacity.CPU)
			out.Foreign.Memory += vm.Memory + out.Overhead
		}
	}
	return out
}

func (r *runner) past(want Desired) Past {
	p := Past{Overdue: map[string]bool{}, Asked: map[string]bool{}, CPU: r.shares, Balloon: map[string]int64{}, FailedStart: map[string]Failure{}, Ended: r.ended}
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
	for _, vm := range want.VMs {
		id := vm.Spec.Identity.VM
		if a, ok := r.attempts[id]; ok && a.generation == vm.Spec.Generation && a.final != "" {
			p.FailedStart[id] = Failure{Generation: a.generation, Reason: a.final}
		}
	}
	return p
}

// outcome of acting: how many operations changed something, and what to tell.
type outcome struct {
	acted    int
	statuses []Status
}

// act carries the operations out in order. It stops at a Destroy or SetCPU that
// fails, because those after it count on it; anything else that fails only takes its own
// report with it, so that one VM's trouble does not hold up the host.
func (r *runner) act(ctx context.Context, ops []Operation) (outcome, error) {
	var out outcome
	var failed error
	left := map[string]bool{} // VMs that are not cleared away
	for i := 0; i < len(ops); i++ {
		switch op := ops[i].(type) {
		case Hold:
			r.log.Debug("held back", "vm", op.Name, "why", op.Why)
		case Tell:
			if !left[op.Status.VM] {
				out.statuses = append(out.statuses, op.Status)
			}
		case Start:
			started, n, err := r.startSome(ctx, ops[i:])
			out.acted += n
			out.statuses = append(out.statuses, started...)
			return out, errors.Join(failed, err) // one batch a round: shrinking must not wait behind many boots
		case Destroy:
			n, err := r.destroyRun(ctx, ops[i:])
			out.acted += n
			if err != nil {
				return out, errors.Join(failed, err)
			}
			i += n - 1
		default:
			r.log.Info(op.String())
			err := r.do(ctx, op)
			if err == nil {
				out.acted++
				break
			}
			failed = errors.Join(failed, fmt.Errorf("%s: %w", op, err))
			if _, counted := op.(SetCPU); counted || ctx.Err() != nil || errors.Is(err, hypervisor.ErrUnavailable) {
				return out, failed
			}
			if u, is := op.(Undefine); is {
				left[u.Spec.Identity.VM] = true
			}
		}
	}
	return out, failed
}

func (r *runner) do(ctx context.Context, op Operation) error {
	switch op := op.(type) {
	case Shutdown:
		err := absentIsFine(r.Hypervisor.Stop(ctx, op.VM))
		if !errors.Is(err, hypervisor.ErrUnavailable) { // then nobody was asked, and no grace runs out
			r.asked[op.VM] = time.Now()
		}
		return err
	case SetCPU:
		err := r.Hypervisor.SetCPU(ctx, op.VM, op.To)
		if err != nil {
			delete(r.shares, op.VM) // what is in force now is read off the host
		} else {
			r.shares[op.VM] = op.To.Cap
		}
		return err
	case SetBalloon:
		r.balloons[op.VM] = balloonTry{op.To, time.Now()}
		return r.Hypervisor.SetBalloon(ctx, op.VM, op.To)
	case Undefine:
		return r.Hypervisor.Undefine(ctx, op.Spec)
	}
	return fmt.Errorf("no way to carry out a %T", op)
}

// destroyRun carries out the Destroy operations at the head of ops, up to a
// few, side by side, and says how many there were.
func (r *runner) destroyRun(ctx context.Context, ops []Operation) (int, error) {
	var run []Destroy
	for _, op := range ops {
		d, is := op.(Destroy)
		if !is || len(run) == destroysAtOnce {
			break
		}
		run = append(run, d)
	}
	errs := make([]error, len(run))
	var wg sync.WaitGroup
	for i, d := range run {
		wg.Go(func() {
			r.log.Info(d.String())
			if err := r.Hypervisor.Destroy(ctx, d.VM); err != nil {
				errs[i] = fmt.Errorf("%s: %w", d, err)
			}
		})
	}
	wg.Wait()
	return len(run), errors.Join(errs...)
}

func absentIsFine(err error) error {
	if errors.Is(err, hypervisor.ErrNotFound) {
		return nil
	}
	return err
}

// startSome carries out the first few starts of a list that begins with one, side by
// side. What follows them in the list waits for the next round.
func (r *runner) startSome(ctx context.Context, ops []Operation) ([]Status, int, error) {
	var specs []hypervisor.Spec
	var tell []Status
	for _, op := range ops {
		switch op := op.(type) {
		case Start:
			if len(specs) < startsAtOnce {
				specs = append(specs, op.Spec)
			}
		case Tell:
			tell = append(tell, op.Status)
		}
	}
	errs := make([]error, len(specs))
	var wg sync.WaitGroup
	for i, spec := range specs {
		wg.Go(func() {
			r.log.Info("start VM", "vm", spec.Name, "generation", spec.Generation)
			if errs[i] = r.Hypervisor.Define(ctx, spec); errs[i] == nil {
				errs[i] = r.Hypervisor.Start(ctx, spec)
			}
		})
	}
	wg.Wait()
	var statuses []Status
	var failed error
	acted := 0
	for i, spec := range specs {
		id := spec.Identity.VM
		if errs[i] == nil {
			acted++
			r.shares[id] = spec.CPU.Cap
			for _, st := range tell {
				if st.VM == id {
					statuses = append(statuses, st)
				}
			}
			continue
		}
		a := r.attempts[id]
		if a.generation != spec.Generation {
			a = attempt{generation: spec.Generation}
		}
		err := fmt.Errorf("start VM %s: %w", spec.Name, errs[i])
		switch {
		case errors.Is(err, hypervisor.ErrUnavailable) || ctx.Err() != nil:
			// says nothing of the VM
		case errors.Is(err, hypervisor.ErrInvalid):
			a.final = errs[i].Error()
		case errors.Is(err, hypervisor.ErrExists):
			if a.n++; a.n >= startAttempts {
				a.final = fmt.Sprintf("its name %s belongs to a VM on the host that is not of this cluster", spec.Name)
			}
		default:
			if a.n++; a.n >= startAttempts {
				a.final = fmt.Sprintf("%v (after %d attempts)", errs[i], a.n)
			}
		}
		r.attempts[id] = a
		failed = errors.Join(failed, err)
	}
	return statuses, acted, failed
}
