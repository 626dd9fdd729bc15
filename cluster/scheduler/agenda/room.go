package agenda

import (
	"slices"
	"time"

	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
)

// WithoutRoom are the slots that begin soon and for which no hosts have room, by start.
func WithoutRoom(s *state.Snapshot, now time.Time) (out []placement.Slot) {
	var soon []state.Occurrence
	s.EachAhead(func(o *state.Occurrence) bool {
		if o.State == state.Degraded && !o.Reserves() && !o.Start.Before(now) && o.Start.Before(now.Add(roomAhead)) {
			soon = append(soon, *o)
		}
		return true
	})
	if len(soon) == 0 {
		return nil
	}
	slices.SortStableFunc(soon, byStart)
	reserved := placement.Reserved(s, now, now.Add(horizon), "") // none of these reserves anything
	for _, o := range soon[:min(len(soon), maxRoomSlots)] {
		job, ok := s.PeriodicJob(o.Job)
		if ok && job.SignOff.State == state.SignedOff {
			out = append(out, placement.Slot{Occurrence: o, VC: runOf(&o, &job.SignOff), Reserved: reserved})
		}
	}
	return out
}

// runOf is the run of an occurrence, with the most that each of its VMs needs in the slot.
func runOf(o *state.Occurrence, c *state.SignOff) state.VC {
	vc := state.VC{ID: o.ID, Name: o.ID, MinYield: 1, Goal: state.GoalRun}
	for _, g := range c.Groups {
		group := state.Group{Name: g.Name, Count: g.Count, CPU: slices.Max(placement.SlotNeed(c, g)), Memory: g.Memory}
		if g.Spread {
			group.Affinity.Spread = "host"
		}
		vc.Groups = append(vc.Groups, group)
	}
	return vc
}

// roomComes says whether moves are under way that make room for an occurrence.
func (x *planner) roomComes(occurrence string) bool {
	return slices.ContainsFunc(x.s.RunningMovePlans(), func(p state.MovePlan) bool { return p.Occurrence == occurrence })
}
