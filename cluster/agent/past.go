package agent

import (
	"maps"
	"time"
)

// past gathers what Decide takes besides what is wanted and what is there, and forgets what was noted of VMs that the leader does
// not have here any more.
func (r *runner) past(want Desired, there listing) Past {
	p := Past{Cores: r.capacity.CPU, Overdue: map[string]bool{}, Asked: map[string]bool{}, CPU: r.shares, Balloon: map[string]int64{}, FailedStart: map[string]Failure{}, Ended: r.ended,
		Lost: there.lost, Cleared: r.cleared, Moving: map[string]bool{}, Moved: map[string]MoveEnd{}, Handed: map[string]bool{}, Standing: map[string]bool{}, Resumed: map[string]bool{}, Unresumable: map[string]bool{}, Waited: map[string]bool{}}
	p.Fresh, p.Lapsed = r.lease.went()
	p.Guests, p.Starting = r.needs(), r.notEnded()
	r.forgetResets(want)
	p.Resets = r.resets
	p.Waits, p.GivenUp, p.Leftover = r.startsDue(time.Now()), r.lease.givenUp(want), r.mayClear(time.Now())
	r.pastMoves(want, p)
	for i := range r.standing {
		p.Standing[i.VM] = true
	}
	for id, vm := range r.coming {
		_, p.Resumed[id] = r.resumed[vm.Move.Open]
		since, fails := r.failing[vm.Move.Open]
		p.Unresumable[id] = fails && time.Since(since) > resumeWithin
	}
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
	maps.DeleteFunc(r.cleared, func(id string, _ uint64) bool { return forgotten(id) })
	for _, vm := range want.VMs {
		id := vm.Spec.Identity.VM
		if a, ok := r.attempts[id]; ok && a.generation == vm.Spec.Generation && a.final != "" {
			p.FailedStart[id] = Failure{Generation: a.generation, Reason: a.final}
		}
	}
	return p
}

// pastMoves adds what was done before for the moves that are open, and forgets the others.
func (r *runner) pastMoves(want Desired, p Past) {
	open, waits := map[string]uint64{}, map[string]waiting{}
	for _, vm := range want.VMs {
		id := vm.Spec.Identity.VM
		if vm.Move == nil || vm.Move.Incoming {
			continue
		}
		open[id] = vm.Move.Open
		if r.moves[id] == nil {
			if bytes, is := r.orphans[id]; is {
				r.moves[id] = never(id, vm.Move.Open, bytes, errOrphan.Error())
				r.moves[id].end.Unknown = !r.lease.sending()[id].Kept
			} else if begun := r.begun[id]; begun.Open != 0 && begun.Open == vm.Move.Open {
				r.moves[id] = never(id, vm.Move.Open, begun.MaxBytes, errUncounted.Error())
				r.moves[id].end.Unknown = !r.lease.sending()[id].Kept
			} else if begun := r.lease.sending()[id]; begun.Open != 0 && begun.Open == vm.Move.Open && !begun.Kept {
				p.Handed[id] = true // it was not here when this agent began
			}
		}
		delete(r.orphans, id)
		if !vm.Move.Wait {
			continue
		}
		w, known := r.waits[id]
		if !known || w.open != vm.Move.Open {
			w = waiting{vm.Move.Open, time.Now()}
		}
		waits[id], p.Waited[id] = w, time.Since(w.since) > roomWithin
	}
	r.waits = waits
	r.lease.sent(open)
	for id, m := range r.moves {
		at, is := open[id]
		switch {
		case !m.over: // or it ended since, and what was listed is older than that
			p.Moving[id] = true
		case !is || at != m.open:
			delete(r.moves, id)
		default:
			p.Moved[id], p.Handed[id] = m.end, m.end.Error == "" || m.end.Unknown
		}
	}
}
