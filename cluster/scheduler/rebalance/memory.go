package rebalance

import (
	"fmt"
	"time"

	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/state"
	"evenkeel/migration"
)

// MemoryPlan is how moves make a host's memory suffice.
type MemoryPlan struct {
	Plan  *state.MovePlan // to propose; it has no id and no time yet
	Waits bool            // moves that are under way may do
	Why   string          // neither: no move does, and this is why
}

// PlanMemory plans the moves of fewest bytes that free so many more bytes on a host whose VMs use more memory than it has. The fleet
// pins the VMs that are short of memory themselves: they may grow further on any host. A plan has maxMemoryPeriods periods to end,
// beside the time that its moves are predicted to take. After one that ended badly the host gets none for memoryRest periods.
func PlanMemory(s *state.Snapshot, host string, bytes int64, now time.Time, period time.Duration, fleet func() *moves.Fleet) MemoryPlan {
	meta, _ := s.Meta()
	set := meta.Settings.Moves.WithDefaults()
	if set.Mode != state.MovesAuto {
		return MemoryPlan{Why: "the settings let no VM move by itself (moves.mode)"}
	}
	if last := lastMemoryPlan(s, host); last != nil {
		patience := maxMemoryPeriods*period + time.Duration(last.Seconds*float64(time.Second))
		switch {
		case last.State == state.MovesRunning && now.Sub(last.CreatedAt) < patience:
			return MemoryPlan{Waits: true}
		case last.State == state.MovesRunning:
			return MemoryPlan{Why: fmt.Sprintf("the moves of plan %s are not over after %s", last.ID, now.Sub(last.CreatedAt).Round(time.Second))}
		case last.State == state.MovesDone && now.Sub(last.EndedAt) < period: // what hosts report may be older
			return MemoryPlan{Waits: true}
		case last.State != state.MovesDone && now.Sub(last.EndedAt) < memoryRest*period:
			return MemoryPlan{Why: fmt.Sprintf("the moves of plan %s did not bring it: %s", last.ID, last.Reason)}
		}
	}
	f := fleet()
	at := f.Host(host)
	if at < 0 || !f.KeepFree(at, float64(bytes)) {
		return MemoryPlan{Why: "the host is not known"}
	}
	planner, err := migration.New(f.Problem)
	if err != nil {
		return MemoryPlan{Why: err.Error()}
	}
	budget := set.Budget()
	p := planner.Cheapest(0)
	switch {
	case !p.Feasible || p.Moves == 0:
		return MemoryPlan{Why: "no other host was found to have room for VMs of this one"}
	case p.Bytes > moves.Budget(budget):
		return MemoryPlan{Why: fmt.Sprintf("the moves found would send %d MiB, and a plan may send %d (moves.maxBytes)", int64(p.Bytes)>>20, budget>>20)}
	}
	out := f.MovePlan(p, state.MovesMemory, budget)
	out.Host = host
	out.Text = fmt.Sprintf("host %s lacks %d MiB of memory for what its VMs use", host, (bytes+1<<20-1)>>20)
	return MemoryPlan{Plan: &out}
}

// lastMemoryPlan is the last plan of moves that was made for the memory of a host; nil: there was none.
func lastMemoryPlan(s *state.Snapshot, host string) (last *state.MovePlan) {
	for _, p := range s.MovePlans() {
		if p.Kind == state.MovesMemory && p.Host == host && (last == nil || p.CreateIndex > last.CreateIndex) {
			last = &p
		}
	}
	return last
}
