package agent

import (
	"maps"
	"math"
	"time"

	"evenkeel/cluster/history"
	"evenkeel/forecast"
	"evenkeel/hypervisor"
)

// Available is what a host reports to be available for new VMs (Ha, eq. 5 and 6). It is the lesser of two values: the allowance less
// what VMs use, and the capacity less what the host estimates to be in use. CPU counts by its mean use in a step: a VM that gets less
// is only slower. Memory counts by its peaks: in a step, and of what VMs used together in a day.
type Available struct {
	Available Limits // below 0 where the host is overloaded
	Used      Limits // by the VMs of the cluster, in the last step; memory with what a VM costs the host beyond its own
	// Estimated is in use on the machine: by each VM, as estimated from its use (a new VM counts with its request), and by all else.
	Estimated Limits
	// VMs are those that are counted, with their generations. Other VMs came later.
	VMs map[string]uint64 `json:",omitempty"`
}

// hostLoad estimates what is in use on a host. Every VM has an estimate of its own, which is dropped with the VM. Ha's eq. 4 is for
// hosts that know only the sum.
type hostLoad struct {
	vms   map[string]*vmLoad
	other damped // what is no VM's of the cluster
	step  time.Duration
	until time.Time // end of this step
	// past returns what the history of a VM says of each five minutes since a time, the oldest first.
	past      func(vm string, since time.Time) []history.Bucket
	left      int64      // memory that the kernel could give out, as last measured, bytes; hypervisor.Unknown
	available *Available // of the last step that ended, never changed; nil: none did
}

func newHostLoad(past func(vm string, since time.Time) []history.Bucket) hostLoad {
	return hostLoad{vms: map[string]*vmLoad{}, left: hypervisor.Unknown, past: past}
}

// damped is an estimate of both resources, cores and bytes.
type damped struct{ cpu, memory forecast.Damped }

func (d *damped) observe(cpu, memory float64) {
	d.cpu.Observe(cpu)
	d.memory.Observe(memory)
}

type vmLoad struct {
	generation uint64
	load       damped
	cpu        float64 // sum of the cores used at n looks in this step
	n          int
	memory     float64 // most bytes in use at a look in this step
	reported   float64 // as memory, of looks at which its guest reported what it uses; 0: there was none
	request    float64 // bytes that it may use at most, with what it costs the host beyond its own
	past       forecast.PastUse
	steps      int  // that it was measured in
	silent     int  // steps since its guest reported what it uses, or since it came
	seen       bool // it was measured once; CPU use takes two measurements
}

// machine is what a host knows of itself besides its VMs.
type machine struct {
	capacity  hypervisor.Capacity
	allowance Limits
	foreign   Limits // of VMs that are not the cluster's
	overhead  int64
}

// measure takes in what VMs use now. listed are the VMs with this cluster's mark that the hypervisor lists, used the cores of
// those that were measured. Once a step is over, or a VM that was in it is gone, measure publishes a new Available.
func (l *hostLoad) measure(stats []hypervisor.Stats, used map[string]float64, listed map[string]hypervisor.VM, m machine, now time.Time, step time.Duration) {
	l.step = step
	left := false
	for id, v := range l.vms {
		if vm, is := listed[id]; !is || vm.Generation != v.generation || vm.State == hypervisor.Incoming {
			delete(l.vms, id)
			left = true
		}
	}
	for id, vm := range listed {
		if l.vms[id] == nil && vm.State != hypervisor.Incoming {
			cpu := vm.CPU.Cap
			if cpu <= 0 {
				cpu = float64(vm.VCPUs)
			}
			v := &vmLoad{generation: vm.Generation, request: float64(vm.Memory + m.overhead)}
			v.past.Remember(togetherSlots)
			v.load.cpu.Place(cpu)
			v.load.memory.Place(float64(vm.Memory + m.overhead))
			l.vms[id] = v
		}
	}
	for i := range stats {
		s := &stats[i]
		if v := l.vms[s.Identity.VM]; v != nil && v.generation == s.Generation {
			v.memory = max(v.memory, float64(inUse(s)+m.overhead))
			if s.Available >= 0 {
				v.reported = max(v.reported, float64(inUse(s)+m.overhead))
			}
			if v.seen {
				v.cpu, v.n = v.cpu+used[s.Identity.VM], v.n+1
			}
			v.seen = true
		}
	}
	switch {
	case l.until.IsZero() || l.until.Sub(now) > step: // the first look, or the clock was set back
		l.until = now.Add(step)
	case !now.Before(l.until):
		l.until = now.Add(step)
		l.publish(m, l.observe(m, now), now)
	case left && l.available != nil:
		l.publish(m, l.available.Used, now)
	}
}

// togetherSlots and togetherSteps: what VMs used together is kept for 288 slots of 5 steps each. With steps of a minute that is a day
// in slots of five minutes, as in histories.
const (
	togetherSlots = 288
	togetherSteps = 5
)

// slotWidth is how long a slot is.
func (l *hostLoad) slotWidth() time.Duration { return togetherSteps * l.step }

// slotOf is the slot of the step that ends at that time.
func (l *hostLoad) slotOf(end time.Time) int64 {
	return end.Add(-l.step/2).UnixNano() / int64(l.slotWidth())
}

// historySteps is for how many steps after a VM came its history is read as well: the VM may come from another host, or the agent may
// be new. For as many steps a guest that reports nothing may be booting.
const historySteps = 15

// remember takes in what a VM used of memory in a step that is over.
func (l *hostLoad) remember(id string, v *vmLoad, m machine, now time.Time) {
	width := l.slotWidth()
	v.steps++
	if v.steps <= historySteps && width == history.FiveMinutes.Step() && l.past != nil {
		v.past.Remember(togetherSlots)
		for _, b := range l.past(id, now.Add(-togetherSlots*width)) {
			if b.MemorySamples > 0 {
				v.past.Note(b.At.UnixNano()/int64(width), b.MemoryMax+float64(m.overhead))
			}
		}
	}
	if v.silent++; v.reported > 0 {
		v.silent = 0
	}
	switch {
	case v.silent == 0:
		v.past.Note(l.slotOf(now), v.reported)
	case v.silent > historySteps: // no balloon driver answers
		v.past.Note(l.slotOf(now), v.memory)
	default:
		// It boots, or boots again: its use is not known. Nothing is noted: otherwise all its memory, and that of all VMs that boot with
		// it, would count for a day.
	}
}

// together is the most memory that the VMs here used at the same time in the last day, and TogetherMargin more. The forecasts of single
// VMs do not show that several will need their memory at once.
func (l *hostLoad) together(now time.Time) float64 {
	all, vms := 0.0, make([]forecast.Neighbor, 0, len(l.vms))
	for _, v := range l.vms {
		all += v.request
		vms = append(vms, forecast.Neighbor{Request: v.request, Past: &v.past})
	}
	return min(all, (1+forecast.TogetherMargin)*forecast.PeakTogether(vms, l.slotOf(now), togetherSlots))
}

// inUse is the memory that a guest uses; for a guest that reports nothing, all that it has.
func inUse(s *hypervisor.Stats) int64 {
	if s.Available < 0 {
		return s.Balloon
	}
	return max(0, s.Balloon-s.Available)
}

// observe ends a step, and returns what VMs used in it.
func (l *hostLoad) observe(m machine, now time.Time) (used Limits) {
	for id, v := range l.vms {
		if v.n == 0 {
			continue // nothing is known but what it asked for
		}
		cpu := v.cpu / float64(v.n)
		v.load.observe(cpu, v.memory)
		l.remember(id, v, m, now)
		used.CPU, used.Memory = used.CPU+cpu, used.Memory+int64(v.memory)
		v.cpu, v.n, v.memory, v.reported = 0, 0, 0, 0
	}
	other := float64(m.foreign.Memory)
	if l.left >= 0 { // what the kernel has given out is in use, whatever process has it; VMs are counted by themselves
		other = max(other, float64(m.capacity.Memory-l.left-used.Memory))
	}
	l.other.observe(m.foreign.CPU, other)
	return used
}

// publish computes what is available from the estimates.
func (l *hostLoad) publish(m machine, used Limits, now time.Time) {
	cpu, memory, known := l.other.cpu.Estimate(), l.other.memory.Estimate(), make(map[string]uint64, len(l.vms))
	for id, v := range l.vms {
		cpu, memory = cpu+v.load.cpu.Estimate(), memory+v.load.memory.Estimate()
		known[id] = v.generation
	}
	l.available = &Available{Used: used, Estimated: limits(cpu, memory), VMs: known, Available: limits(
		min(m.allowance.CPU-m.foreign.CPU-used.CPU, m.capacity.CPU-cpu),
		min(float64(m.allowance.Memory-m.foreign.Memory)-max(float64(used.Memory), l.together(now)), float64(m.capacity.Memory)-memory))}
}

func limits(cpu, memory float64) Limits { return Limits{CPU: cpu, Memory: int64(math.Floor(memory))} }

// report returns the last Available if there are samples, else nil: without samples nothing is known to hold any more.
func (l *hostLoad) report(samples []Sample) *Available {
	if samples == nil {
		return nil
	}
	return l.available
}

// observe takes in what VMs use now.
func (r *runner) observe(stats []hypervisor.Stats, out []Sample) {
	if r.capacity.CPU == 0 {
		return // it is not known yet
	}
	used := make(map[string]float64, len(out))
	for i := range out {
		used[out[i].VM] = out[i].Used
	}
	listed := maps.Clone(r.caps)
	maps.DeleteFunc(listed, func(_ string, vm hypervisor.VM) bool { return vm.Cluster != r.cluster })
	m := machine{capacity: r.capacity, allowance: r.Allowance(r.capacity), foreign: r.last.Foreign, overhead: r.Overhead(r.capacity)}
	r.load.measure(stats, used, listed, m, time.Now(), r.Step)
}
