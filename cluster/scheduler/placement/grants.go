package placement

import "evenkeel/cluster/state"

// HonorGrants raises minimum yields to what runs of periodic jobs were granted and have, for decisions on other VCs. NewProblem leaves
// grants out: what has a right to start (a run in its slot, VMs that lost their host) may take that CPU.
func (p *Problem) HonorGrants() {
	p.raiseToGrants(func(ref *GroupRef) float64 { return min(ref.Granted, ref.Group.Yield()) })
}

// raiseToGrants raises the minimum yields of VCs with a grant. It leaves out a VC if a host could not keep all minimum yields then. All
// groups of a VC have one minimum yield: see allocator.Problem.
func (p *Problem) raiseToGrants(granted func(*GroupRef) float64) {
	var floors []float64 // [host]
	done := map[string]bool{}
	for i := range p.Refs {
		vc := p.Refs[i].VC.ID
		if p.Refs[i].Granted == 0 || done[vc] {
			continue
		}
		if done[vc] = true; floors == nil {
			floors = p.floors()
		}
		to := 1.0
		for j := range p.Refs {
			if p.Refs[j].VC.ID == vc {
				to = min(to, granted(&p.Refs[j]))
			}
		}
		need := make([]float64, len(p.Hosts))
		for j := range p.Refs {
			for _, at := range p.Groups[j].Hosts {
				if g := &p.Groups[j]; p.Refs[j].VC.ID == vc && at >= 0 {
					need[at] += max(0, to-g.MinYield) * g.CPU
				}
			}
		}
		fits := true
		for at, n := range need {
			fits = fits && (n == 0 || floors[at]+n <= p.Hosts[at].CPU*(1+TooMuch))
		}
		if !fits {
			continue
		}
		for j := range p.Refs {
			if p.Refs[j].VC.ID == vc {
				p.Groups[j].MinYield = max(p.Groups[j].MinYield, to)
			}
		}
		for at, n := range need {
			floors[at] += n
		}
	}
}

// floors are the cores that minimum yields take on each host.
func (p *Problem) floors() []float64 {
	out := make([]float64, len(p.Hosts))
	for i := range p.Groups {
		for _, at := range p.Groups[i].Hosts {
			if at >= 0 {
				out[at] += p.Groups[i].MinYield * p.Groups[i].CPU
			}
		}
	}
	return out
}

// FreeOfMinYields is the CPU of each host, by name, that minimum yields leave. Grants do not count. Below 0: minimum yields exceed the
// host.
func FreeOfMinYields(s *state.Snapshot) map[string]float64 {
	p := NewProblem(s)
	floors := p.floors()
	out := make(map[string]float64, len(p.Hosts))
	for j, h := range p.Hosts {
		out[h.Name] = h.CPU - floors[j]
	}
	return out
}
