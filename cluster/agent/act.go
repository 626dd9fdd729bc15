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

// outcome is the outcome of acting: how many operations changed something, and what to report.
type outcome struct {
	acted    int
	statuses []Status
}

// act carries the operations out in order. It stops at a Destroy or SetCPU that fails, because those after it count on it. Any
// other operation that fails only loses its own report, so that one VM's trouble does not hold up the host.
func (r *runner) act(ctx context.Context, ops []Operation) (outcome, error) {
	var out outcome
	var failed error
	left := map[string]bool{} // VMs that are not cleared away
	decided := r.Clock()
	for i := 0; i < len(ops); i++ {
		if took := r.Clock() - decided; took > decidedFor {
			return out, errors.Join(failed, fmt.Errorf("what is left to do was decided %s ago", took.Round(time.Second)))
		}
		switch op := ops[i].(type) {
		case Blocked:
			r.log.Debug("held back", "vm", op.Name, "why", op.Why)
		case ReportStatus:
			st := op.Status
			if st.Phase == PhaseStayed {
				var err error
				if st, err = r.stays(ctx, st); err != nil {
					failed = errors.Join(failed, err)
					break
				}
			}
			if st.Phase == PhaseRoom && r.coming[st.VM].Spec.Leased {
				if err := r.lease.guarded(ctx); err != nil {
					failed = errors.Join(failed, fmt.Errorf("take VM %s in: %w", st.VM, err))
					break
				}
			}
			if st.Phase == PhaseArrived {
				st = r.arrives(ctx, st)
			}
			if !left[st.VM] {
				if st.SourceLost {
					r.Recorder.leaves(st.VM)
				}
				out.statuses = append(out.statuses, st)
			}
		case Start:
			started, n, err := r.startSome(ctx, ops[i:])
			out.acted += n
			out.statuses = append(out.statuses, started...)
			return out, errors.Join(failed, err) // one batch a round: shrinking must not wait behind many boots
		case Clear:
			cleared, err := r.clearAway(ctx, op)
			failed = errors.Join(failed, err)
			if cleared {
				out.acted++
			}
		case Resume:
			resumed, err := r.resume(ctx, op)
			failed = errors.Join(failed, err)
			if resumed {
				out.acted++
			}
		case GiveUp:
			r.log.Warn(op.String())
			if err := r.lease.givesUp(op.VM, op.Generation); err != nil {
				failed = errors.Join(failed, err)
				break
			}
			out.statuses = append(out.statuses, Status{VM: op.VM, Generation: op.Generation, Phase: PhaseLost, Reason: op.Why})
		case Migrate:
			permitted, err := r.mayHandOver(ctx, op)
			failed = errors.Join(failed, err)
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
		if !errors.Is(err, hypervisor.ErrUnavailable) { // then libvirt was not asked, and no grace runs out
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
