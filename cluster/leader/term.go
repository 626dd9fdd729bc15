package leader

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/agenda"
	"evenkeel/cluster/scheduler/drain"
	"evenkeel/cluster/scheduler/failover"
	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/scheduler/rebalance"
	"evenkeel/cluster/scheduler/reprovision"
	"evenkeel/cluster/scheduler/rightsizing"
	"evenkeel/cluster/state"
)

// term is what this server knows in one term in which it leads, besides the state. StartTerm makes the next one; nothing of a term
// outlives it. A caller goes on with the term in which it began. Once another term has begun, the earlier one grants nothing, records no
// loss and proposes nothing of its own, even if this server leads again.
type term struct {
	c      *Service // what outlives the term
	number uint64   // 0: this server has not led yet

	// Each part has its own lock, or none if one goroutine uses it. A part that has taken its lock calls no other part, except to read
	// reports.
	reports         liveReports
	desired         desiredCache
	clocks          hostClocks
	duplicates      duplicates
	waiting         waiting
	admissionMargin *admissionMargin
	failover        *failover.Runner
	rightsizing     *rightsizing.Runner
	moves           *moves.Runner
	rebalance       *rebalance.Runner
	drains          *drain.Runner
	agenda          *agenda.Runner
	reprovision     *reprovision.Runner
	queue           admission.QueueCache // under planning

	evaluations atomic.Uint64 // of needs after which VMs may be started again
	relisted    atomic.Uint64 // counts changes of what migrations left behind, or bring
}

// newTerm makes a term that begins now: nothing is known of any host, and each lease counts as renewed now.
func (c *Service) newTerm(number uint64) *term {
	t := &term{c: c, number: number, reports: newLiveReports(), desired: newDesiredCache(), clocks: newHostClocks(), admissionMargin: newAdmissionMargin()}
	o := failover.Options{Lease: c.o.Lease, Clock: c.o.Clock, Now: c.o.Now, Log: c.log, Snapshot: c.o.State.Snapshot, Leads: c.o.Log.Leads, Propose: t.propose,
		Unknown: func(err error) bool { return errors.Is(err, ErrTimeout) }, Report: t.reports.hypervisor, Changed: c.wakeLoop}
	if c.o.Fence != nil {
		o.Fence = countedFence{c.o.Fence, &c.fenced}
	}
	t.failover = failover.New(o)
	t.rightsizing = rightsizing.New(rightsizing.Options{Period: c.o.Period, Now: c.o.Now, Log: c.log, Snapshot: c.o.State.Snapshot, Leads: c.o.Log.Leads, Propose: t.propose,
		Unavailable: t.failover.Unavailable, Measured: t.reports.measured, MoveAway: t.moveAway, Evaluated: t.evaluated})
	t.rebalance = rebalance.NewRunner(rebalance.RunnerOptions{Log: c.log, Now: c.o.Now, NewID: c.ids.next, Propose: t.propose, Env: t.env, Observation: t.reports.fleet,
		Silent: func(s *state.Snapshot) string { return moves.Names(t.failover.Unreported(s)) }, Queue: admission.Queue, Slots: agenda.WithoutRoom})
	t.moves = moves.NewRunner(moves.RunnerOptions{Log: c.log, Propose: t.propose, Routes: t.reports.routes, Synced: t.reports.synced, Replan: t.rebalance.Replan})
	t.drains = drain.NewRunner(drain.RunnerOptions{Log: c.log, Snapshot: c.o.State.Snapshot, Leads: c.o.Log.Leads, Turn: c.turn, Drained: c.inflight.drained, Propose: t.propose,
		Env: t.env, Inventory: t.reports.inventory, Fleet: t.drainFleet})
	t.agenda = agenda.NewRunner(agenda.Options{Queue: admission.Queue, Period: c.o.Period, Now: c.o.Now, Log: c.log, Snapshot: c.o.State.Snapshot, Leads: c.o.Log.Leads, Propose: t.propose,
		Turn: c.turn, Drained: c.inflight.drained, Unavailable: t.failover.Unavailable, Pools: t.reports.pools, Silent: func(s *state.Snapshot) bool { return len(t.failover.Awaited(s)) > 0 }, Samples: t.samples, Evaluated: t.timePassed})
	t.reprovision = reprovision.New(reprovision.Options{Period: c.o.Period, Now: c.o.Now, Log: c.log, Snapshot: c.o.State.Snapshot, Leads: c.o.Log.Leads, Propose: t.propose,
		Silent: func(s *state.Snapshot) bool { return len(t.failover.Awaited(s)) > 0 }, Samples: t.use, Granted: c.wakeLoop})
	return t
}

// samples are what hosts last measured of VMs.
func (t *term) samples(s *state.Snapshot) map[string]agenda.Sample {
	out := map[string]agenda.Sample{}
	for id, m := range t.reports.measured(s) {
		out[id] = agenda.Sample{At: m.At, Cap: m.Cap, Used: m.Used, Memory: m.MemoryUsed}
	}
	return out
}

// use is what hosts last measured of the CPU of VMs.
func (t *term) use(s *state.Snapshot) map[string]reprovision.Sample {
	out := map[string]reprovision.Sample{}
	for id, m := range t.reports.measured(s) {
		if !m.At.IsZero() {
			out[id] = reprovision.Sample{At: m.At, Cap: m.Cap, Used: m.Used}
		}
	}
	return out
}

// timePassed has the loop evaluate the queue again: slots open and end though nothing changes.
func (t *term) timePassed() {
	t.evaluations.Add(1)
	t.c.wakeLoop()
}

// over says whether another term has begun.
func (t *term) over() bool { return t.c.current.Load() != t }

// propose proposes a command that was decided in this term.
func (t *term) propose(ctx context.Context, kind state.Kind, body any) error {
	if t.over() {
		return fmt.Errorf("%w: term %d is over", ErrNoLeader, t.number)
	}
	return t.c.propose(ctx, kind, body)
}

// env is what decisions depend on besides the state.
func (t *term) env() placement.Env {
	s := t.c.o.State.Snapshot()
	return t.withMargin(s, placement.Env{Now: t.c.o.Now().UTC(), NewID: t.c.ids.next, Unavailable: t.failover.Unavailable(s), Awaited: t.failover.Awaited(s),
		Lists: listerOf(t.reports.each), Pools: t.reports.pools()})
}

// allReported returns the error of a request that cannot be answered rightly before all hosts have reported; nil: it can.
func (t *term) allReported(s *state.Snapshot, what string) error {
	if hosts := t.failover.Awaited(s); len(hosts) > 0 {
		return fmt.Errorf("%s: hosts that have yet to report to the new leader: %s; try again in a moment: %w", what, moves.Names(hosts), ErrNoLeader)
	}
	return nil
}

// Guard watches for hosts that fell silent, until ctx ends: see failover.Runner.
func (c *Service) Guard(ctx context.Context) { c.current.Load().failover.Run(ctx) }
