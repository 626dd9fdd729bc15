package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/scheduler/rebalance"
	"evenkeel/cluster/scheduler/rightsizing"
	"evenkeel/cluster/state"
)

// RightsizingStatus is the present status of rightsizing.
type RightsizingStatus struct {
	rightsizing.Status
	Settings  state.RightsizingSettings // with defaults
	Waiting   []string                  // VMs that were preempted and wait for room, by name
	Admission AdmissionStatus
	Stages    []StageStatus // all of them, in the order in which they act
}

// StageStatus is what a stage of rightsizing does now.
type StageStatus struct {
	Stage string
	On    bool
	// Effect of forecasts: reclaimed of what was declared. Of margin and host availability: kept from new VMs. Of the reserve: kept free
	// beyond what one VM may take back. Of emergency grants: that guests under memory pressure have beyond the leader's targets.
	Effect state.Resources
}

// RightsizingStats are counted since the server began to lead.
type RightsizingStats struct {
	rightsizing.Stats
	Margins [len(boldnesses)]MarginStatus
	Quality float64 // below 0: not known
}

// evaluated takes in a result. The margin of admission follows it. So may VMs and VCs that wait for room, so the loop evaluates them
// again.
func (t *term) evaluated(s *state.Snapshot, out rightsizing.Result, now time.Time) {
	t.admissionMargin.observe(&out, now, t.c.o.Period)
	if waitsAgain(s, now) || out.Mode == state.RightsizingOn && s.AnyQueued() {
		t.evaluations.Add(1)
		t.c.wakeLoop()
	}
}

// moveAway has VMs move away from a host that is short of memory. If the state has changed since the plan's snapshot it plans once
// more.
func (t *term) moveAway(ctx context.Context, short rightsizing.Shortage, pinned map[string]string) rightsizing.MovesAway {
	var err error
	for range 2 {
		s := t.c.o.State.Snapshot()
		meta, _ := s.Meta()
		m := rebalance.PlanMemory(s, short.Host, short.Bytes, t.c.o.Now().UTC(), t.c.o.Period, func() *moves.Fleet {
			return moves.NewFleet(s, t.env(), t.reports.fleet(s), moves.Options{Pinned: pinned, CopyStorage: meta.Settings.Moves.CopyStorage})
		})
		if m.Plan == nil {
			return rightsizing.MovesAway{Moves: m.Waits, Why: m.Why}
		}
		m.Plan.ID, m.Plan.By = t.c.ids.next(), "rightsizing"
		t.c.log.Info("plan of moves", "kind", m.Plan.Kind, "host", short.Host, "moves", len(m.Plan.Steps), "bytes", m.Plan.Bytes, "text", m.Plan.Text)
		if err = t.propose(ctx, state.KindMovePlan, state.MovePlanPut{Plan: *m.Plan}); err == nil {
			return rightsizing.MovesAway{Moves: true}
		}
		if !errors.Is(err, state.ErrConflict) {
			break
		}
	}
	return rightsizing.MovesAway{Why: fmt.Sprintf("plan the moves: %v", err)}
}

// waitsAgain says whether a VM that was preempted may start again.
func waitsAgain(s *state.Snapshot, now time.Time) bool {
	found := false
	s.EachVM(func(vm *state.VM) bool {
		found = admission.ComesBack(vm, now)
		return !found
	})
	return found
}

// Rightsizing returns the present status of rightsizing. Only the leader has it.
func (c *Service) Rightsizing(ctx context.Context) (RightsizingStatus, error) {
	s, err := c.before(ctx, "rightsizing")
	if err != nil {
		return RightsizingStatus{}, err
	}
	t := c.current.Load()
	meta, _ := s.Meta()
	out := RightsizingStatus{Status: t.rightsizing.Status(), Settings: meta.Settings.Rightsizing.WithDefaults(), Admission: t.admission(s)}
	s.EachVM(func(vm *state.VM) bool {
		if vm.PreemptedAt > 0 && vm.Goal == state.GoalStop {
			out.Waiting = append(out.Waiting, vm.Name)
		}
		return true
	})
	out.Stages = stagesOf(s, out)
	return out, nil
}

// stagesOf says what each stage does, from the status of all.
func stagesOf(s *state.Snapshot, x RightsizingStatus) []StageStatus {
	effect := map[string]state.Resources{state.StageForecast: x.Reclaimed}
	add := func(stage string, cpu float64, memory int64) {
		sum := effect[stage]
		effect[stage] = state.Resources{CPU: sum.CPU + cpu, Memory: sum.Memory + memory}
	}
	for _, h := range x.Admission.Hosts {
		add(state.StageMargin, h.FreeByEstimates.CPU-h.FreeByMargin.CPU, h.FreeByEstimates.Memory-h.FreeByMargin.Memory)
		add(state.StageAvailability, h.FreeByMargin.CPU-h.Free.CPU, h.FreeByMargin.Memory-h.Free.Memory)
		reserve := s.LoadOf(h.Host).Reserve
		add(state.StageReserve, 0, reserve.Bytes()-reserve.Largest())
	}
	for _, one := range x.VMs {
		if vm, ok := s.VM(one.VM); ok && one.UnderPressure {
			vc, _ := s.VC(vm.VC)
			g, _ := vc.GroupOf(vm)
			add(state.StageEmergency, 0, max(0, vm.ChargedMemory-vm.Due(g)))
		}
	}
	out := make([]StageStatus, len(state.Stages))
	for i, stage := range state.Stages {
		out[i] = StageStatus{Stage: stage, On: x.Settings.Runs(stage), Effect: effect[stage]}
	}
	return out
}

// RightsizingStats returns the counts of a server that leads.
func (c *Service) RightsizingStats() RightsizingStats {
	t := c.current.Load()
	meta, _ := c.o.State.Snapshot().Meta()
	margin := t.admissionMargin.last().Under(meta.Settings.Rightsizing)
	return RightsizingStats{Stats: t.rightsizing.Stats(), Margins: [len(boldnesses)]MarginStatus(marginsOf(margin)), Quality: margin.Quality}
}
