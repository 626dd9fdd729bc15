package placement

import (
	"fmt"
	"math"
	"slices"
	"time"

	"evenkeel/cluster/state"
	"evenkeel/forecast/periodic"
)

// Horizon is how far ahead the agenda reserves, and how long a VC counts as running whose owner does not say for how long.
const Horizon = 24 * time.Hour

// early is how long before its slot a run may start and still be the run of that slot. It must have arrived nearer to that slot than to
// the one before. Otherwise a run that comes too late, or runs on for too long, would take the next slot.
const early = 30 * time.Minute

// JobOf returns the full name of the job that a VC is a run of: the declared one, or the template of its name.
func JobOf(vc *state.VC) string {
	tenant, name := state.SplitName(vc.Name)
	if declared := vc.Periodic.Name; declared != "" {
		return state.FullName(tenant, declared)
	}
	return state.FullName(tenant, periodic.Template(name))
}

// Claim returns the occurrence of the agenda that a VC is the run of if it starts now: of its job the one whose slot is open, or opens
// soon, and which has no run yet.
func Claim(s *state.Snapshot, vc *state.VC, now time.Time) (state.Occurrence, bool) {
	if !s.HasAgenda() {
		return state.Occurrence{}, false
	}
	arrived := now
	if run, open := s.OpenRun(vc.ID); open { // it waits, or starts again
		arrived = run.Submitted
	}
	var before time.Time
	for _, o := range s.Occurrences(JobOf(vc)) {
		nearer := before.IsZero() || !arrived.Before(before.Add(o.Start.Sub(before)/2))
		before = o.Start
		if o.VC == vc.ID && o.State == state.RunningNow {
			return o, true
		}
		if o.VC == "" && !o.State.Over() && nearer && !now.Before(o.Start.Add(-early)) && now.Before(o.End) {
			return o, true
		}
	}
	return state.Occurrence{}, false
}

// StaysFor is how long a VC that starts now counts as running.
func StaysFor(vc *state.VC) time.Duration {
	if vc.Duration > 0 {
		return time.Duration(vc.Duration) * time.Second
	}
	return Horizon
}

// Step is that of the agenda where it has no finer one.
const Step = 5 * time.Minute

// RunsUntil is until when a VC that starts now counts as running. The agenda counts the step in which it ends as its own: no slot may
// begin there on a host without room for both.
func RunsUntil(vc *state.VC, now time.Time) time.Time {
	return now.Add(StaysFor(vc) + Step - 1).Truncate(Step)
}

// SlotNeed is what a VM of a group needs in each step of its slot, cores: the highest value that its part of the skyline may have
// there, however late the run arrives within its lateness, and at least what admission asks for.
func SlotNeed(c *state.SignOff, g state.RunGroup) []float64 {
	declared := 0.0
	for _, x := range c.Groups {
		declared += float64(x.Count) * x.CPU
	}
	share := 0.0 // of the skyline, for one VM
	if declared > 0 {
		share = g.CPU / declared
	}
	late := int((c.Lateness + c.Step - 1) / c.Step)
	out := make([]float64, len(c.Cores)+late)
	for k := range out {
		need := c.MinYield * g.CPU
		for from := max(0, k-late); from <= min(k, len(c.Cores)-1); from++ {
			need = max(need, share*c.Cores[from])
		}
		out[k] = min(need, g.CPU)
	}
	return out
}

// KeptFor says whether the hosts of an occurrence keep room for all that a run of it asks for: no more VMs, cores and bytes than its owner
// signed off.
func KeptFor(s *state.Snapshot, o *state.Occurrence, vc *state.VC) bool {
	job, signed := s.PeriodicJob(o.Job)
	if !signed || len(o.Hosts) == 0 {
		return false
	}
	for _, g := range vc.Groups {
		at := slices.IndexFunc(job.SignOff.Groups, func(c state.RunGroup) bool { return c.Name == g.Name })
		if at < 0 {
			return false
		}
		kept := job.SignOff.Groups[at]
		if g.Count > kept.Count || g.Memory > kept.Memory || min(vc.MinYield, 1)*g.CPU > slices.Max(SlotNeed(&job.SignOff, kept))*(1+TooMuch) {
			return false
		}
	}
	return true
}

// Slot is that of an occurrence for which no hosts have room.
type Slot struct {
	Occurrence state.Occurrence
	VC         state.VC                   // its run, as the contract has it
	Reserved   map[string]state.Resources // by others, on each host, from now on
}

// piece is room on a host that is reserved for a while.
type piece struct {
	from, to time.Time
	cpu      float64
	memory   int64
}

// Reserved is the most that occurrences whose runs have not begun have reserved on each host at any moment from a time to another. The
// one named except does not count. nil: nothing is reserved.
func Reserved(s *state.Snapshot, from, to time.Time, except string) map[string]state.Resources {
	return reserved(s, func(o *state.Occurrence) bool { return o.ID != except && o.Start.Before(to) && from.Before(o.End) }, from, to, nil)
}

// ReservedOn is the most that is reserved on each of the named hosts at any moment.
func ReservedOn(s *state.Snapshot, hosts map[string]bool) map[string]state.Resources {
	return reserved(s, func(o *state.Occurrence) bool {
		return slices.ContainsFunc(o.Hosts, func(h string) bool { return hosts[h] })
	}, time.Time{}, time.Time{}, hosts)
}

// reserved is the most that some occurrences have reserved on hosts at any moment from a time to another; no times: ever; no hosts: on all.
func reserved(s *state.Snapshot, counts func(*state.Occurrence) bool, from, to time.Time, hosts map[string]bool) map[string]state.Resources {
	if !s.HasAgenda() {
		return nil
	}
	pieces := map[string][]piece{}
	jobs := map[string]*slotNeeds{}
	overhead := map[string]int64{}
	s.EachHost(func(h *state.Host) bool { overhead[h.Name] = h.VMOverhead; return true })
	s.EachAhead(func(o *state.Occurrence) bool {
		if !o.Reserves() || !counts(o) {
			return true
		}
		job := jobs[o.Job]
		if job == nil {
			job = needsOf(s, o.Job)
			jobs[o.Job] = job
		}
		vm := 0
		for i, g := range job.contract.Groups {
			need := job.peak[i]
			if !to.IsZero() {
				need = peakWithin(o, &job.contract, job.need[i], from, to)
			}
			for range g.Count {
				if vm < len(o.Hosts) && (hosts == nil || hosts[o.Hosts[vm]]) {
					h := o.Hosts[vm]
					pieces[h] = withPiece(pieces[h], piece{o.Start, o.End, need, g.Memory + overhead[h]})
				}
				vm++
			}
		}
		return true
	})
	out := make(map[string]state.Resources, len(pieces))
	for host, all := range pieces {
		out[host] = peakOf(all)
	}
	return out
}

// slotNeeds is what the VMs of a job's groups need in its slots.
type slotNeeds struct {
	contract state.SignOff
	need     [][]float64 // by group and step of the contract
	peak     []float64   // by group
}

func needsOf(s *state.Snapshot, job string) *slotNeeds {
	row, _ := s.PeriodicJob(job)
	out := &slotNeeds{contract: row.SignOff}
	for _, g := range row.SignOff.Groups {
		need := SlotNeed(&row.SignOff, g)
		out.need, out.peak = append(out.need, need), append(out.peak, slices.Max(need))
	}
	return out
}

// peakWithin is the most CPU that a VM of an occurrence, which needs so much in each step, needs from a time to another.
func peakWithin(o *state.Occurrence, c *state.SignOff, needs []float64, from, to time.Time) (peak float64) {
	step := time.Duration(c.Step) * time.Second
	for k, need := range needs {
		at := o.Start.Add(time.Duration(k) * step)
		if at.Before(to) && from.Before(at.Add(step)) {
			peak = max(peak, need)
		}
	}
	return peak
}

// withPiece adds a piece. Those that follow one another and are of the same time, as VMs of an occurrence are, are one.
func withPiece(all []piece, p piece) []piece {
	if n := len(all); n > 0 && all[n-1].from.Equal(p.from) && all[n-1].to.Equal(p.to) {
		all[n-1].cpu, all[n-1].memory = all[n-1].cpu+p.cpu, all[n-1].memory+p.memory
		return all
	}
	return append(all, p)
}

// peakOf is the most that pieces take at one moment: at the start of one of them. It passes once over their begins and ends, in order of time.
func peakOf(all []piece) (peak state.Resources) {
	all = slices.DeleteFunc(all, func(p piece) bool { return !p.from.Before(p.to) })
	ends := slices.Clone(all)
	slices.SortFunc(all, func(a, b piece) int { return a.from.Compare(b.from) })
	slices.SortFunc(ends, func(a, b piece) int { return a.to.Compare(b.to) })
	var cpu compensated
	var memory int64
	gone := 0
	for i, p := range all {
		for ; gone < len(ends) && !ends[gone].to.After(p.from); gone++ {
			cpu.add(-ends[gone].cpu)
			memory -= ends[gone].memory
		}
		cpu.add(p.cpu)
		memory += p.memory
		if i+1 == len(all) || all[i+1].from.After(p.from) {
			peak.CPU, peak.Memory = max(peak.CPU, cpu.value()), max(peak.Memory, memory)
		}
	}
	return peak
}

// compensated is a sum to which terms are added and from which they are taken again. Its rounding error does not grow with the terms
// (Neumaier 1974).
type compensated struct{ sum, lost float64 }

func (c *compensated) add(x float64) {
	t := c.sum + x
	if math.Abs(c.sum) >= math.Abs(x) {
		c.lost += (c.sum - t) + x
	} else {
		c.lost += (x - t) + c.sum
	}
	c.sum = t
}

func (c *compensated) value() float64 { return c.sum + c.lost }

// Beside returns the problem with hosts that have less by what is reserved there, but no less than what runs there is sure of.
func (p *Problem) Beside(reserved map[string]state.Resources) Problem {
	q := *p
	q.Hosts = slices.Clone(p.Hosts)
	owed := make([]state.Resources, len(p.Hosts))
	for i, g := range p.Groups {
		for k, at := range g.Hosts {
			if at >= 0 && p.Refs[i].VMs[k].ConsumesResources() {
				owed[at].CPU += g.MinYield * g.CPU
				owed[at].Memory += int64(g.Memory)
			}
		}
	}
	for j := range q.Hosts {
		h, r := &q.Hosts[j], reserved[q.Hosts[j].Name]
		h.CPU = max(h.CPU-r.CPU, min(h.CPU, owed[j].CPU))
		h.Memory = max(h.Memory-float64(r.Memory), min(h.Memory, float64(owed[j].Memory)))
	}
	return q
}

// KeepTo takes all hosts but the named ones out of the candidates for the VMs of a VC that are to be placed: they are to start on their
// witness.
func (p *Problem) KeepTo(vc string, hosts []string) {
	barred := slices.Clone(p.barred)
	for i, ref := range p.Refs {
		if ref.VC.ID != vc || i >= len(barred) {
			continue
		}
		own := map[string]bar{}
		for host, b := range barred[i] {
			own[host] = b
		}
		for _, h := range p.Rows {
			if _, there := own[h.Name]; !there && !slices.Contains(hosts, h.Name) {
				own[h.Name] = bar{why: "is not in the witness of its slot"}
			}
		}
		barred[i] = own
	}
	p.barred = barred
}

// ReservedText says what periodic work keeps a VC from, for a refusal.
func ReservedText(reserved map[string]state.Resources) string {
	var sum state.Resources
	for _, r := range reserved {
		sum.CPU, sum.Memory = sum.CPU+r.CPU, sum.Memory+r.Memory
	}
	return fmt.Sprintf("periodic work has up to %.2f cores and %d MiB reserved on %d hosts in the time it may run for", sum.CPU, sum.Memory>>20, len(reserved))
}
