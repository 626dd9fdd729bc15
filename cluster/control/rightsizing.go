package control

import (
	"context"
	"time"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/rightsizing"
	"evenkeel/cluster/state"
)

// RightsizingStatus is the present status of rightsizing.
type RightsizingStatus struct {
	rightsizing.Status
	Settings  state.RightsizingSettings // with defaults
	Waiting   []string                  // VMs that were preempted and wait for room, by name
	Admission AdmissionStatus
}

// RightsizingStats are counted since the server began to lead.
type RightsizingStats struct {
	rightsizing.Stats
	Margins [len(boldnesses)]MarginStatus
	Quality float64 // below 0: not known
}

// newRightsizing makes the runner of a term.
func (c *Control) newRightsizing() *rightsizing.Runner {
	return rightsizing.New(rightsizing.Options{Period: c.o.Period, Now: c.o.Now, Log: c.log, Snapshot: c.o.State.Snapshot, Leads: c.o.Log.Leads, Propose: c.propose,
		Unavailable: c.failover.Load().Unavailable, Measured: c.measured, Evaluated: c.evaluated})
}

// measured returns what hosts last measured of VMs, by id.
func (c *Control) measured(s *state.Snapshot) map[string]rightsizing.VMObservation {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]rightsizing.VMObservation{}
	s.EachVM(func(vm *state.VM) bool {
		live := c.live[vm.Host]
		sample, sampled := live.VMs[vm.ID]
		if !sampled || sample.Generation != vm.Generation {
			return true
		}
		see := rightsizing.VMObservation{At: live.Sampled, Cap: sample.Cap, Used: sample.Used, MemoryUsed: sample.Memory, Balloon: sample.Balloon}
		if g := sample.Guest; g != nil {
			see.Reports, see.Follows, see.Pressure = true, g.Follows, g.Pressure
		}
		out[vm.ID] = see
		return true
	})
	return out
}

// evaluated takes in a result: the margin of admission follows it, and so may VMs that wait for room, which follows what is seen
// besides the state.
func (c *Control) evaluated(s *state.Snapshot, out rightsizing.Result, now time.Time) {
	c.admissionMargin.Load().observe(&out, now, c.o.Period)
	if c.waitsAgain(s, now) || out.Mode == state.RightsizingOn && s.AnyQueued() {
		c.evaluations.Add(1)
		c.wakeLoop()
	}
}

// waitsAgain says whether a VM that was preempted may start again.
func (c *Control) waitsAgain(s *state.Snapshot, now time.Time) bool {
	found := false
	s.EachVM(func(vm *state.VM) bool {
		found = admission.ComesBack(vm, now)
		return !found
	})
	return found
}

// Rightsizing returns the present status of rightsizing. Only the leader has it.
func (c *Control) Rightsizing(ctx context.Context) (RightsizingStatus, error) {
	s, err := c.before(ctx, "rightsizing")
	if err != nil {
		return RightsizingStatus{}, err
	}
	meta, _ := s.Meta()
	out := RightsizingStatus{Status: c.rightsizing.Load().Status(), Settings: meta.Settings.Rightsizing.WithDefaults(), Admission: c.admission(s)}
	s.EachVM(func(vm *state.VM) bool {
		if vm.PreemptedAt > 0 && vm.Goal == state.GoalStop {
			out.Waiting = append(out.Waiting, vm.Name)
		}
		return true
	})
	return out, nil
}

// RightsizingStats returns the counts of a server that leads.
func (c *Control) RightsizingStats() RightsizingStats {
	margin := c.admissionMargin.Load().last()
	return RightsizingStats{Stats: c.rightsizing.Load().Stats(), Margins: [len(boldnesses)]MarginStatus(marginsOf(margin)), Quality: margin.Quality}
}
