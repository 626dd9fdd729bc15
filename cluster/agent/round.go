package agent

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// step is a step of a round. A round takes them in the order in which they stand here; each takes what the step before it
// returned. A step that fails ends the round: no later step runs, except that Report runs after Act and reports
// what went wrong there. The next round begins with Identify: it rests on nothing that an earlier one listed, fetched or decided.
//
// What does outlive a round is the memory in runner, where each field names the step that changes it.
type step string

// The steps of a round.
const (
	stepIdentify step = "identify" // list what runs here, as a member of which cluster
	stepAnnounce step = "announce" // report the machine, if the leader does not know it as it is
	stepFetch    step = "fetch"    // take the leader's desired state in
	stepDecide   step = "decide"   // compare, and decide on operations
	stepAct      step = "act"      // carry them out
	stepReport   step = "report"   // report what was done and what runs
)

// roundEnd is how a round ended.
type roundEnd struct {
	step step  // the last one that ran, or the one that failed
	err  error // why it failed; nil = it did not
	// again: the host or its orders are others now than they were listed or fetched; the next round must begin at once.
	again bool
	// changed closes when the desired state may have changed; nil: the leader gave no channel.
	changed <-chan struct{}
}

// fetched is the result of Fetch: what the leader wants, and what runs, listed when all moves in it were known.
type fetched struct {
	want    Desired
	there   listing
	changed <-chan struct{} // closes when want may have changed
	// outdated: want is of a later epoch than there. Nothing may be decided on the two.
	outdated bool
}

// decision is the result of Decide: the operations, and what they rest on.
type decision struct {
	fetched
	past Past
	ops  []Operation
}

// outcome is the result of Act: how many operations changed something, what to report of VMs, and what went wrong.
type outcome struct {
	acted    int
	statuses []Status
	err      error
}

// unreachableError says that the hypervisor did not answer: nothing is known of this host's VMs, and none counts as gone.
type unreachableError struct{ error }

func (e unreachableError) Unwrap() error { return e.error }

// round takes the steps once.
func (r *runner) round(ctx context.Context) roundEnd {
	there, changed, err := r.identify(ctx)
	if err != nil {
		return r.endedAt(ctx, stepIdentify, changed, err)
	}
	if err := r.announce(ctx, there); err != nil {
		return r.endedAt(ctx, stepAnnounce, nil, err)
	}
	got, err := r.fetch(ctx, there)
	if err != nil {
		return r.endedAt(ctx, stepFetch, got.changed, err)
	}
	if got.outdated {
		return roundEnd{step: stepFetch, again: true, changed: got.changed}
	}
	decided := r.decide(got)
	done := r.act(ctx, decided)
	if done.err == nil && r.mayWait(done) {
		return roundEnd{step: stepAct, again: true, changed: got.changed}
	}
	if err := r.report(ctx, decided, done); err != nil {
		return r.endedAt(ctx, stepReport, got.changed, errors.Join(done.err, err))
	}
	if done.err != nil {
		return r.endedAt(ctx, stepAct, got.changed, done.err)
	}
	return roundEnd{step: stepReport, again: done.acted > 0 || r.underPressure(), changed: got.changed}
}

// endedAt ends a round in a step that failed. The leader learns at once that the hypervisor is out of reach.
func (r *runner) endedAt(ctx context.Context, at step, changed <-chan struct{}, err error) roundEnd {
	if errors.As(err, new(unreachableError)) {
		err = errors.Join(err, r.outOfReach(ctx, err))
	}
	return roundEnd{step: at, err: err, changed: changed}
}

// identify lists what runs here, as a member of the cluster that the leader names.
//
//   - Reads: the hypervisor; the leader's desired state, until it has said which cluster this is: without that the VMs of
//     another cluster could not be distinguished from ours.
//   - Changes: no VM. An agent's first round gives up the migrations that the agent before it began.
//   - Fails if the hypervisor or the leader does not answer, or if the leader's answer is older than one seen before; then a
//     channel closes when it may have changed.
//   - Keeps: silence is no answer. A VM is listed as absent only by a hypervisor that answered after the starts and migrations
//     that the list rests on had ended.
func (r *runner) identify(ctx context.Context) (listing, <-chan struct{}, error) {
	there, err := r.listVMs(ctx)
	if err != nil {
		return listing{}, nil, err
	}
	if r.cluster == "" {
		want, changed, err := r.desired(ctx)
		if err != nil {
			return listing{}, changed, err
		}
		r.belong(want)
		if there, err = r.listVMs(ctx); err != nil {
			return listing{}, nil, err
		}
		r.learn(want)
	}
	if !r.alone {
		if there, err = r.giveUpOrphans(ctx, there); err != nil {
			return listing{}, nil, err
		}
	}
	return there, nil, nil
}

// announce reports the machine and what runs on it, if the leader does not know it as it is.
//
//   - Reads: the list, and the last report that the leader took.
//   - Changes: nothing here.
//   - Fails if the leader does not take the report.
//   - Keeps: the leader knows a host's limits before it decides what is to run there.
func (r *runner) announce(ctx context.Context, there listing) error {
	now := r.describe(there)
	if r.knows(now) {
		return nil
	}
	if err := r.Leader.Report(ctx, now); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// fetch takes the leader's desired state in. Where that names moves of which the host did not know when VMs were listed, it
// lists them again: the older list proves nothing of which host runs them since. Where balloons may have to shrink, it measures
// first what their guests need.
//
//   - Reads: the leader's desired state, and perhaps the hypervisor.
//   - Changes: no VM. It notes the epoch and index, the VMs that the leader knows here, and since when those that may start
//     are absent.
//   - Fails if the leader or the hypervisor does not answer, or if the desired state is older than one seen before.
//   - Keeps: orders of an old leader are refused, by epoch and index. After a restore (a later epoch) nothing rests on a list
//     from before it.
func (r *runner) fetch(ctx context.Context, there listing) (fetched, error) {
	want, changed, err := r.desired(ctx)
	if err != nil {
		return fetched{changed: changed}, err
	}
	if want.Epoch > r.epoch {
		r.belong(want)
		r.learn(want)
		clear(r.sent)
		return fetched{want: want, changed: changed, outdated: true}, nil
	}
	r.learn(want)
	if r.news(want) {
		if there, err = r.listVMs(ctx); err != nil {
			return fetched{}, err
		}
	}
	if r.squeezes(want) || r.nearLimit(want, there.vms) {
		if _, err := r.samples(ctx); err != nil {
			return fetched{changed: changed}, unreachableError{err}
		}
	}
	r.starting(want, there.vms, time.Now())
	r.lease.expects(want)
	return fetched{want: want, there: there, changed: changed}, nil
}

// desired asks the leader for this host's desired state, and refuses one that is older than one seen before. The channel closes
// when the desired state may have changed; without an answer there is none.
func (r *runner) desired(ctx context.Context) (Desired, <-chan struct{}, error) {
	want, changed, err := r.Leader.Desired(ctx, r.Host)
	if err != nil {
		return Desired{}, nil, fmt.Errorf("desired state: %w", err)
	}
	return want, changed, r.lease.advance(want.Epoch, want.Index)
}

// decide decides what is to be done. Decide is pure; what it needs besides the two lists is gathered here, in Past.
//
//   - Reads: what was fetched, and what the agent remembers of earlier rounds.
//   - Changes: no VM. It forgets what it remembered of VMs and moves that the leader does not have here any more.
//   - Cannot fail.
//   - Keeps: after each operation, in their order, the host is within its limits. The other rules stand at Decide.
func (r *runner) decide(got fetched) decision {
	past := r.past(got.want, got.there)
	r.raised = raises(past.Guests)
	return decision{fetched: got, past: past, ops: Decide(got.want, got.there.vms, past)}
}

// act carries the operations out, in order.
//
//   - Reads: the clock: a decision is good for decidedFor.
//   - Changes: VMs, through the hypervisor; what the next agent must know of moves is on disk before.
//   - Fails if an operation fails. Those that count on it are left for the next round, which decides again; others go on. What
//     went wrong is reported all the same.
//   - Keeps: a VM is started, handed over, resumed, or destroyed as a leftover only by a permit of the leader, asked for right
//     before.
func (r *runner) act(ctx context.Context, d decision) outcome {
	out := r.perform(ctx, d)
	out.err, r.lateStarts = errors.Join(r.lateStarts, out.err), nil
	steps := fmt.Sprint(d.ops)
	switch {
	case out.acted == 0:
		r.steps = ""
		return out
	case out.err == nil && steps == r.steps:
		out.err = fmt.Errorf("done before, with no effect: %s", steps)
	}
	r.steps = steps
	return out
}

// report reports what was done and what runs, with measurements.
//
//   - Reads: the decision, its outcome, and the hypervisor's counters.
//   - Changes: nothing here but what counts as known to the leader, and that only after it took the report.
//   - Fails if the leader does not take the report: the next round reports what is true then. Ends of moves and of VMs are
//     reported until the leader took them; why a start was late, and is tried again, is said once.
//   - Keeps: an index is reported as in force only if no operation failed, and nothing of it is left to do but what Lacking names.
func (r *runner) report(ctx context.Context, d decision, done outcome) error {
	out := r.describe(d.there)
	out.Statuses = r.unacknowledged(append(done.statuses, r.left...))
	for _, vm := range Unmanaged(d.want, d.there.vms) {
		if !vm.Leftover && !r.isStanding(vm) { // Running reports these
			out.Unmanaged = append(out.Unmanaged, vm.Name)
		}
	}
	if done.err != nil {
		out.Error = done.err.Error()
	} else if lacking, all := ungranted(unlessHung(d.ops, d.past.Starting)); all {
		out.Index, out.Lacking = d.want.Index, lacking
		out.Quiet = d.want.RequiredIndex > 0 && r.last.Index >= d.want.RequiredIndex && len(r.last.Lacking)+len(lacking) == 0
	}
	out.Samples, _ = r.samples(ctx)
	out.Pressure, out.Estimates, out.Available = r.pressure(ctx), r.fresh(), r.load.report(out.Samples)
	if err := r.Leader.Report(ctx, out); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	r.acknowledge(out.Estimates)
	r.left = nil
	r.last = out
	r.has(out.Statuses)
	if done.err == nil && d.want.Freeze == "" {
		r.lease.reportAccepted()
	}
	return nil
}

// outOfReach reports to the leader that nothing is known of this host's VMs.
func (r *runner) outOfReach(ctx context.Context, err error) error {
	r.last.Reach, r.last.Error, r.last.Index, r.last.Hangs = false, err.Error(), 0, r.hangs()
	r.last.Statuses, r.last.Samples, r.last.Estimates, r.last.Pressure, r.last.Available = nil, nil, nil, nil, nil
	return r.Leader.Report(ctx, r.last)
}
