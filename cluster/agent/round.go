package agent

import (
	"context"
	"errors"
	"fmt"
	"time"
)

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
