package rightsizing

import (
	"fmt"
	"slices"
	"time"

	solver "evenkeel/allocator/rightsizing"
)

// withoutClaims is the result if hosts had the memory that is claimed and not used: memory of VMs that stop and will have stopped
// within stopsWithin, and memory kept for VMs that do not run here. No VM is evicted for such memory. The problem is changed: no
// targets may be set after it.
func (x *Rightsizer) withoutClaims(o solver.Options, r *solver.Result) *solver.Result {
	evicts := make([]bool, len(x.p.Hosts))
	for i := range x.refs {
		evicts[x.p.Components[i].Host] = evicts[x.p.Components[i].Host] || r.Outcomes[i].Action == solver.Preempt
	}
	found := false
	for i, ref := range x.refs {
		if c := &x.p.Components[i]; ref.stops && evicts[c.Host] {
			*c, found = solver.Component{Host: c.Host, Coming: true}, true
		}
	}
	for j, bytes := range x.claimed {
		if evicts[j] && bytes > 0 {
			x.p.Hosts[j].Memory += bytes
			found = true
		}
	}
	if !found {
		return r
	}
	return x.search.Rightsize(&x.p, o)
}

// usedOn sums up, in bytes, what the VMs of a host use of its memory, what they leave idle, and the most that one of them may take back.
func (x *Rightsizer) usedOn(host int) (inUse, idle, takesBack float64) {
	for i := range x.p.Components {
		c := &x.p.Components[i]
		if c.Host != host || c.Coming {
			continue
		}
		used := c.InUse
		if used == 0 { // all that it has
			used = c.Present.Memory
		}
		inUse, idle, takesBack = inUse+used, idle+max(0, c.Present.Memory-used), max(takesBack, c.Request.Memory-used)
	}
	return inUse, idle, takesBack
}

// memoryUsed says what the VMs of a host use of its memory, and what they leave idle, which is taken back before any of them is evicted.
func (x *Rightsizer) memoryUsed(host int) string {
	inUse, idle, _ := x.usedOn(host)
	return fmt.Sprintf("; its VMs use %d MiB of %d MiB, and taking back the %d MiB that they leave idle is not enough", int64(inUse)>>20, int64(x.p.Hosts[host].Memory)>>20, int64(idle)>>20)
}

// preempt picks the VMs and VCs that are evicted for memory: those that had no room for a while, or at once where a VM is under memory
// pressure.
func (x *Rightsizer) preempt(in Observations, r *solver.Result, out *Result) {
	underPressure, unserved := map[int]bool{}, map[int]bool{} // hosts with VMs under memory pressure, and with VMs that get less than they use
	unheard := map[int]bool{}                                 // hosts with VMs whose use this leader does not know yet
	for i, ref := range x.refs {
		if ref.rightsized < 0 {
			continue
		}
		c, o, v := &x.p.Components[i], &r.Outcomes[i], &out.VMs[ref.rightsized]
		sampled := x.sampled(in.VMs[ref.vm], in)
		if !sampled && v.Excluded == notHeard {
			unheard[c.Host] = true
		}
		if sampled && v.UnderPressure {
			underPressure[c.Host] = true
			unserved[c.Host] = unserved[c.Host] || o.Why == solver.NoRoom && o.Memory < c.InUse
		}
	}
	now := map[string]time.Time{}
	for i, ref := range x.refs {
		o := r.Outcomes[i]
		if o.Action != solver.Preempt || o.Why == solver.WithCore {
			continue
		}
		c := x.p.Components[i]
		if in.Unavailable[x.p.Hosts[c.Host].Name] != "" {
			continue
		}
		if unheard[c.Host] && !underPressure[c.Host] { // unheard VMs count with all their memory, and may use less
			continue
		}
		one := Preemption{VC: ref.vc, VM: ref.vm, Host: x.p.Hosts[c.Host].Name, Reason: r.Text(&x.p, i) + x.memoryUsed(c.Host)}
		id := ref.vm
		if !c.Elastic {
			id, one.VM = ref.vc, ""
			one.Reason = fmt.Sprintf("its core VM %s has no room: %s", out.VMs[ref.rightsized].Name, one.Reason)
		}
		since, known := x.lost[id]
		if !known {
			since = in.Now
		}
		wait := preemptAfter * x.Period
		switch {
		case o.Why == solver.NoReserve && !unserved[c.Host]: // only the reserve is short: no VM has less than it needs, and it may pass
			wait = rightsizeRest * x.Period
		case o.Why != solver.NoReserve && underPressure[c.Host]:
			wait = 0
		}
		if now[id] = since; in.Now.Sub(since) >= wait {
			out.Preempt = append(out.Preempt, one)
			if !slices.ContainsFunc(out.Short, func(h Shortage) bool { return h.Host == one.Host }) {
				out.Short = append(out.Short, x.shortage(c.Host))
			}
		}
	}
	x.lost = now
}
