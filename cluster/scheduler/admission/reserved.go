package admission

import (
	"slices"

	"evenkeel/allocator"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
)

// recordRun lets the plan of an answer record a run of the VC's job, once all servers know runs.
func recordRun(s *state.Snapshot, a Answer) Answer {
	if a.Plan != nil && a.Plan.VC != nil && s.KeepsRuns() {
		a.Plan.Job = placement.JobOf(a.Plan.VC)
	}
	return a
}

// admitBeside is admitNew beside the agenda. A run of a signed-off job starts in its slot, on the hosts of its witness if they still
// have room, else on any. If the admission margin leaves it no room, and it asks for no more than was signed off, it starts on its
// witness without the margin: the agenda kept those hosts by the estimates. Any other VC gets what is not reserved in the time for
// which it may run.
func (p *problem) admitBeside(s *state.Snapshot, vc *state.VC, wanted []state.VM, env placement.Env) (allocator.Admission, state.Occurrence) {
	if !s.HasAgenda() {
		return p.admitUnreserved(nil, env.KeptForHead(s, vc), wanted), state.Occurrence{}
	}
	occurrence, claimed := placement.Claim(s, vc, env.Now)
	until := placement.RunsUntil(vc, env.Now)
	if claimed {
		until = occurrence.End
	} else {
		p.HonorGrants()
	}
	reserved := placement.Reserved(s, env.Now, until, occurrence.ID)
	if !claimed {
		return p.admitUnreserved(reserved, env.KeptForHead(s, vc), wanted), occurrence
	}
	witness := *p
	if len(occurrence.Hosts) > 0 {
		witness.KeepTo(vc.ID, occurrence.Hosts)
		if adm := witness.admitUnreserved(reserved, nil, wanted); adm.Admitted {
			return adm, occurrence
		}
	}
	adm := p.admitUnreserved(reserved, nil, wanted)
	if !adm.Admitted && p.headroom != nil && placement.KeptFor(s, &occurrence, vc) {
		witness.headroom = nil
		if kept := witness.admitUnreserved(reserved, nil, wanted); kept.Admitted {
			return kept, occurrence
		}
	}
	return adm, occurrence
}

// reservedBeside is the room of each host that admitBeside keeps from a VC.
func reservedBeside(s *state.Snapshot, vc *state.VC, env placement.Env) map[string]state.Resources {
	occurrence, claimed := placement.Claim(s, vc, env.Now)
	if claimed {
		return placement.Reserved(s, env.Now, occurrence.End, occurrence.ID)
	}
	return placement.Together(placement.Reserved(s, env.Now, placement.RunsUntil(vc, env.Now), ""), env.KeptForHead(s, vc))
}

// admitUnreserved is admitNew on what is neither reserved nor kept for the first VC of the queue. CPU that is reserved for later is divided
// until then.
func (p *problem) admitUnreserved(reserved, kept map[string]state.Resources, wanted []state.VM) allocator.Admission {
	if len(reserved)+len(kept) == 0 {
		return p.admitNew(wanted)
	}
	q := p.beside(placement.Together(reserved, kept))
	adm := q.admitNew(wanted)
	if adm.Admitted {
		if sol, err := p.divide(adm.Solution.Hosts); err == nil {
			sol.UpperBound = max(adm.Solution.UpperBound, sol.MinYield)
			adm.Solution = sol
		}
		return adm
	}
	p.Unavailable = q.Unavailable
	adm.NeverFits = false // it may fit once the reservations end
	if len(reserved) > 0 {
		adm.Summary += "; " + placement.ReservedText(reserved)
	}
	if len(kept) > 0 {
		adm.Summary += "; room is kept for a virtual cluster that has waited longer: one with a shorter duration could have it until then"
	}
	return adm
}

// beside is the problem on what is not reserved.
func (p *problem) beside(reserved map[string]state.Resources) *problem {
	q := *p
	q.Problem = p.Beside(reserved)
	q.headroom = slices.Clone(p.headroom)
	for j := range q.headroom {
		r := reserved[p.Hosts[j].Name]
		q.headroom[j].cpu, q.headroom[j].memory = q.headroom[j].cpu-r.CPU, q.headroom[j].memory-float64(r.Memory)
	}
	return &q
}

// maxTriedBesideAgenda is how many VCs of the queue with a duration are tried one by one where room is reserved.
const maxTriedBesideAgenda = 64

// besideAgenda returns the ids of the VCs of the queue that Admit is to decide on: the runs whose slots are open first, then those that
// fit in what no slot ahead needs (fits), and those that end before and may have the room until then.
func besideAgenda(s *state.Snapshot, queue []state.VC, env placement.Env, fits []string) []string {
	var first, others []string
	short, head := 0, env.WaitingHead(s)
	for i := range queue {
		vc := &queue[i]
		_, claims := placement.Claim(s, vc, env.Now)
		switch {
		case claims:
			first = append(first, vc.ID)
		case slices.Contains(fits, vc.ID), head != nil && head.VC == vc.ID:
			others = append(others, vc.ID)
		case (placement.StaysFor(vc) < placement.Horizon || head != nil && env.KeptForHead(s, vc) == nil) && short < maxTriedBesideAgenda:
			short++
			others = append(others, vc.ID)
		}
	}
	return append(first, others...)
}
