package admission

import (
	"fmt"
	"math"
	"sort"

	"evenkeel/allocator"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
)

// decision returns the allocator's answer in the state's terms.
func decision(p *problem, adm allocator.Admission, basis uint64, env placement.Env) state.Decision {
	d := state.Decision{At: env.Now, Admitted: adm.Admitted, Summary: adm.Summary, Advice: adm.Advice, Basis: basis,
		MinYield: min(adm.Solution.MinYield, p.FrozenYield), UpperBound: adm.Solution.UpperBound}
	if adm.Admitted && d.Summary == "" {
		d.Summary = fitsText(d.MinYield, max(d.MinYield, d.UpperBound))
		if policy := p.PolicyText(adm.Solution.Hosts); policy != "" {
			d.Summary += "; " + policy
		}
		if p.headroom != nil {
			if factors := p.factors(); factors != "" {
				d.Summary += "; " + factors
			}
		}
	}
	if d.UpperBound == 0 {
		d.UpperBound = allocator.Bound(p.Problem.Problem)
	}
	for _, r := range adm.Reasons {
		p.ExplainBarred(&r)
		if why := p.Unavailable[r.Host]; why != "" && r.Cordoned {
			r.Cordoned, r.Text = false, why
		}
		if at, ok := p.At(r.Host); ok && p.Rows[at].ForeignVMs > 0 {
			h := p.Rows[at]
			r.Text += fmt.Sprintf(" (VMs that are not of this cluster take %.2f cores and %d MiB there)", h.Foreign.CPU, h.Foreign.Memory>>20)
		}
		d.Hosts = append(d.Hosts, state.HostReason{Host: r.Host, Cordoned: r.Cordoned, CPUMissing: r.CPUMissing,
			MemoryMissing: int64(math.Ceil(r.MemoryMissing)), Rule: r.Rule.String(), Text: r.Text})
	}
	return d
}

func fitsText(lowest, bound float64) string {
	return fmt.Sprintf("fits: minimum yield of the cluster %.3f; no other place for the new VMs could give more than %.3f", lowest, bound)
}

// sortQueue sorts by priority, the highest first, then by age.
func sortQueue(vcs []state.VC) {
	sort.SliceStable(vcs, func(a, b int) bool {
		if vcs[a].Priority != vcs[b].Priority {
			return vcs[a].Priority > vcs[b].Priority
		}
		if !vcs[a].QueuedAt.Equal(vcs[b].QueuedAt) {
			return vcs[a].QueuedAt.Before(vcs[b].QueuedAt)
		}
		return vcs[a].CreateIndex < vcs[b].CreateIndex
	})
}
