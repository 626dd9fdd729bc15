package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"evenkeel/hypervisor"
)

// acting is an Act step under way.
type acting struct {
	outcome
	// uncleared are VMs of which an Undefine failed in this step. The agent does not report that they are gone.
	uncleared map[string]bool
}

// failed notes what went wrong; nil = nothing did.
func (a *acting) failed(err error) { a.err = errors.Join(a.err, err) }

// did notes the outcome of an operation that may change something.
func (a *acting) did(changed bool, err error) {
	a.failed(err)
	if changed {
		a.acted++
	}
}

// perform carries the operations out in order. It stops at a Destroy or SetCPU that fails (those after it count on it), at a Shutdown,
// SetBalloon or Undefine for which libvirt cannot be reached, after a batch of starts, and decidedFor after the decision. Any other
// operation that fails only loses its own report, so that one VM's trouble does not stop the rest.
func (r *runner) perform(ctx context.Context, d decision) outcome {
	a := &acting{uncleared: map[string]bool{}}
	decided := r.Clock()
	for ops := d.ops; len(ops) > 0; {
		if took := r.Clock() - decided; took > decidedFor {
			a.failed(fmt.Errorf("what is left to do was decided %s ago", took.Round(time.Second)))
			break
		}
		n := r.next(ctx, d.want, ops, a)
		if n == 0 {
			break
		}
		ops = ops[n:]
	}
	return a.outcome
}

// next carries out the first operations of ops, and returns how many: 0 = none that are left may be carried out.
func (r *runner) next(ctx context.Context, want Desired, ops []Operation, a *acting) int {
	switch op := ops[0].(type) {
	case Blocked:
		r.log.Debug("held back", "vm", op.Name, "why", op.Why)
	case ReportStatus:
		r.confirm(ctx, want, op.Status, a)
	case Start:
		started, acted, err := r.startSome(ctx, ops)
		a.acted += acted
		a.statuses = append(a.statuses, started...)
		a.failed(err)
		return 0 // one batch a round: shrinking must not wait behind many boots
	case Clear:
		a.did(r.clearAway(ctx, op))
	case Resume:
		a.did(r.resume(ctx, op))
	case GiveUp:
		r.giveUp(op, a)
	case Reset:
		a.did(r.reset(ctx, op))
	case Migrate:
		permitted, err := r.mayHandOver(ctx, op)
		a.failed(err)
		if permitted {
			r.log.Info(op.String())
			r.migrate(ctx, op)
		}
	case AbortMove:
		if m := r.moves[op.VM]; m != nil && m.open == op.Move && m.abort != nil {
			r.log.Info(op.String())
			m.abort(errors.New(op.Why))
		}
	case Destroy:
		n, err := r.destroyRun(ctx, ops)
		a.acted += n
		a.failed(err)
		if err != nil {
			return 0
		}
		return n
	default:
		return r.change(ctx, op, a)
	}
	return 1
}

// confirm makes sure, right before a status is reported, that it is still true. A status of which it cannot be sure is not reported.
func (r *runner) confirm(ctx context.Context, want Desired, st Status, a *acting) {
	var err error
	switch st.Phase {
	case PhaseStayed:
		st, err = r.stays(ctx, st)
	case PhaseRoom:
		if want.leased(st.VM) {
			if err = r.lease.guarded(ctx); err != nil {
				err = fmt.Errorf("take VM %s in: %w", st.VM, err)
			}
		}
	case PhaseArrived:
		st = r.arrives(ctx, st)
	}
	if err != nil {
		a.failed(err)
		return
	}
	if a.uncleared[st.VM] {
		return
	}
	if st.SourceLost {
		r.Recorder.leaves(st.VM)
	}
	a.statuses = append(a.statuses, st)
}

// leased says whether a VM is restartable.
func (d Desired) leased(id string) bool {
	return slices.ContainsFunc(d.VMs, func(vm VM) bool { return vm.Spec.Identity.VM == id && vm.Spec.Leased })
}

// giveUp gives up a start. The agent reports that only once it is on disk: the next agent must not start that generation either.
func (r *runner) giveUp(op GiveUp, a *acting) {
	r.log.Warn(op.String())
	if err := r.lease.givesUp(op.VM, op.Generation); err != nil {
		a.failed(err)
		return
	}
	a.statuses = append(a.statuses, Status{VM: op.VM, Generation: op.Generation, Phase: PhaseLost, Reason: op.Why})
}

// change carries out one operation on the hypervisor that needs no permit, and returns as next does.
func (r *runner) change(ctx context.Context, op Operation, a *acting) int {
	r.log.Info(op.String())
	err := r.do(ctx, op)
	if err == nil {
		a.acted++
		return 1
	}
	a.failed(fmt.Errorf("%s: %w", op, err))
	if _, counted := op.(SetCPU); counted || ctx.Err() != nil || errors.Is(err, hypervisor.ErrUnavailable) {
		return 0
	}
	if u, is := op.(Undefine); is {
		a.uncleared[u.Spec.Identity.VM] = true
	}
	return 1
}

func (r *runner) do(ctx context.Context, op Operation) error {
	switch op := op.(type) {
	case Shutdown:
		err := absentIsFine(r.Hypervisor.Stop(ctx, op.VM))
		if !errors.Is(err, hypervisor.ErrUnavailable) { // else libvirt was not asked: the grace does not begin
			r.asked[op.VM] = time.Now()
		}
		return err
	case SetCPU:
		err := r.Hypervisor.SetCPU(ctx, op.VM, op.To)
		if err != nil {
			delete(r.shares, op.VM) // the cap in force is what the hypervisor lists
		} else {
			r.shares[op.VM] = op.To.Cap
		}
		return err
	case SetBalloon:
		r.balloons[op.VM] = balloonTry{op.To, time.Now()}
		r.guest(op.VM).set(op.From, op.To, time.Now())
		return r.Hypervisor.SetBalloon(ctx, op.VM, op.To)
	case Undefine:
		err := r.Hypervisor.Undefine(ctx, op.Spec)
		if err == nil {
			r.cleared[op.Spec.Identity.VM] = op.Spec.Generation
		}
		return err
	}
	return fmt.Errorf("no way to carry out a %T", op)
}

// destroyRun carries out the Destroy operations at the head of ops, up to a few, side by side, and returns how many there were.
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

// startSome begins the first few starts of a list that begins with a start, side by side. What follows them in the list waits
// for the next round.
func (r *runner) startSome(ctx context.Context, ops []Operation) ([]Status, int, error) {
	var specs []hypervisor.Spec
	var report []Status
	limit := startsAtOnce - len(r.notEnded())
	for _, op := range ops {
		switch op := op.(type) {
		case Start:
			if len(specs) < limit {
				specs = append(specs, op.Spec)
			}
		case ReportStatus:
			report = append(report, op.Status)
		}
	}
	asked := specs
	specs, count, err := r.permitted(ctx, specs)
	if err != nil {
		r.lease.started(count)
		return unstarted(asked, nil, err.Error()), 0, err
	}
	for _, spec := range specs {
		r.tries(spec.Identity.VM)
	}
	for _, spec := range specs {
		if spec.Leased {
			count--
		}
	}
	r.lease.started(count) // of those that were not permitted
	statuses := unstarted(asked, specs, "the leader does not permit its start now")
	var failed error
	acted := 0
	if len(specs) == 0 {
		failed = fmt.Errorf("no start was permitted")
	}
	for _, s := range r.begin(ctx, specs) {
		if err := r.takeStart(ctx, s); err != nil {
			failed = errors.Join(failed, err)
			statuses = append(statuses, Status{VM: s.spec.Identity.VM, Generation: s.spec.Generation, Phase: PhaseStarting, Reason: "its start failed and is tried again: " + s.err.Error()})
			continue
		}
		acted++
		for _, st := range report {
			if st.VM == s.spec.Identity.VM {
				statuses = append(statuses, st)
			}
		}
	}
	return statuses, acted, failed
}

// unstarted returns, for the VMs of all that are not in some, a status that says why they do not start.
func unstarted(all, some []hypervisor.Spec, why string) []Status {
	var out []Status
	for _, spec := range all {
		if !slices.ContainsFunc(some, func(s hypervisor.Spec) bool { return s.VM == spec.VM }) {
			out = append(out, Status{VM: spec.VM, Generation: spec.Generation, Phase: PhaseStarting, Reason: why})
		}
	}
	return out
}
