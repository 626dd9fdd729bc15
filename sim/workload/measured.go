package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"evenkeel/sim/trace"
)

// BitbrainsCore is how much of its capacity counts as a core: its hosts have cores of 2,600 to 2,926 MHz.
const BitbrainsCore = 2600.0 // MHz

// absent is after how many values that were not measured a VM was off, and used nothing; fewer are as the value before.
const absent = 12

// vmSizes are drawn for VMs whose size is not known. They are the commonest of Azure's VM arrivals of 2017: share, cores, GiB.
var vmSizes = []struct{ share, cpu, memory float64 }{
	{0.45, 1, 1.75}, {0.28, 2, 3.5}, {0.11, 4, 7}, {0.11, 8, 14}, {0.05, 8, 56},
}

func drawSize(rng *rand.Rand) (cpu, memory float64) {
	u := rng.Float64()
	for _, s := range vmSizes {
		cpu, memory = s.cpu, s.memory*(1<<30)
		if u -= s.share; u < 0 {
			break
		}
	}
	return cpu, memory
}

// measuredVM is what was measured of one VM.
type measuredVM struct {
	cpu, memory *trace.Series
	begin       float64 // seconds from the beginning of the set to its first value that was measured
	first, last int     // places of the first and the last
	step        float64
}

// place is where the VM is in its record when the play begins, or when it comes.
func (v *measuredVM) place(c Cut) float32 {
	steps := (c.From - v.begin) / v.step
	if !c.ByClock {
		return float32(max(0, steps))
	}
	length := float64(v.last - v.first + 1)
	return float32(math.Mod(math.Mod(steps, length)+length, length))
}

func (v *measuredVM) life() float64 { return float64(v.last-v.first+1) * v.step }

// measuredVMs pairs the series of each VM. together: all begin at once, whatever their days.
func measuredVMs(series []trace.Series, together bool) []measuredVM {
	var out []measuredVM
	at := map[string]int{}
	var start time.Time
	for i := range series {
		s := &series[i]
		if start.IsZero() || !s.Start.IsZero() && s.Start.Before(start) {
			start = s.Start
		}
		k := s.Set + "\x00" + s.VM
		n, ok := at[k]
		if !ok {
			n = len(out)
			at[k] = n
			out = append(out, measuredVM{})
		}
		if s.Resource == trace.CPU {
			out[n].cpu = s
		} else {
			out[n].memory = s
		}
	}
	out = slices.DeleteFunc(out, func(v measuredVM) bool { return v.cpu == nil || v.cpu.Measured() == 0 || v.cpu.Step <= 0 })
	for i := range out {
		v := &out[i]
		known := func(x float64) bool { return !math.IsNaN(x) }
		v.step = v.cpu.Step.Seconds()
		v.first, v.last = slices.IndexFunc(v.cpu.Values, known), len(v.cpu.Values)-1
		for !known(v.cpu.Values[v.last]) {
			v.last--
		}
		if !together && !v.cpu.Start.IsZero() {
			v.begin = v.cpu.Start.Sub(start).Seconds() + float64(v.first)*v.step
		}
	}
	return out
}

// shape is a series from place first to place last as shares of a whole. Nothing is above all of it but the CPU of a VM that bursts.
func shape(s *trace.Series, first, last int, whole float64) Pattern {
	highest := 1.0
	if s.Resource == trace.CPU && s.Limit > 0 && s.Set == string(trace.Bitbrains) {
		highest = math.MaxFloat32
	}
	p := make(Pattern, 0, last-first+1)
	latest, gap := float32(0), 0
	for i := first; i <= last; i++ {
		v := math.NaN()
		if i < len(s.Values) {
			v = s.Values[i]
		}
		if gap++; !math.IsNaN(v) {
			latest, gap = float32(min(highest, max(0, v/whole))), 0
		}
		if gap == absent+1 { // off all along
			for k := len(p) - absent; k < len(p); k++ {
				p[max(0, k)] = 0
			}
			latest = 0
		}
		p = append(p, latest)
	}
	return p
}

// whole is what 1 stands for in a pattern of a series: what the VM had, else 100 (percent).
func whole(s *trace.Series) float64 {
	if s.Limit > 0 {
		return s.Limit
	}
	return 100
}

// MeasuredUses are the shapes of series, for others to be given. Where memory was not measured it is that of ServiceUses.
func MeasuredUses(series []trace.Series, seed uint64) (*Uses, error) {
	drawn := ServiceUses(seed)
	u := &Uses{}
	for i, v := range measuredVMs(series, true) {
		if u.Step == 0 {
			u.Step = v.step
		}
		if v.step != u.Step {
			return nil, fmt.Errorf("workload: use of VM %s is measured every %g s, that of others every %g s", v.cpu.VM, v.step, u.Step)
		}
		cpu := shape(v.cpu, v.first, v.last, whole(v.cpu))
		memory := drawn.Patterns[drawn.Of[i%len(drawn.Of)].Memory]
		if v.memory != nil && whole(v.memory) > 0 {
			memory = shape(v.memory, v.first, v.last, whole(v.memory))
		}
		u.add(cpu, memory)
	}
	return u, u.check()
}

// Measured are VMs as they were measured: each an application of one component, which asks for what the VM had and uses, at each time of its life, what it
// used then. The unit of the set decides what is known of sizes:
//
//	Bitbrains          CPU in MHz, of BitbrainsCore per core, bursts above the request included; memory in KB. All is measured. A VM that was off for more
//	                   than an hour used nothing.
//	Google2011         CPU and memory in percent of an unstated whole: sizes are drawn from those of Azure's VMs.
//	PlanetLab, NAB     CPU in percent: sizes are drawn, and memory is that of ServiceUses. Every VM-day is a VM, and all days begin together.
//
// Memory above what the VM had, and percents above 100, count as all of it.
//
// A VM is there from its first measurement to its last, and outlasts what is played if it outlasts the record. With more applications or load than were
// measured there are copies, at another time of their history.
func Measured(series []trace.Series, c Cut) (*Workload, float64, []string, error) {
	if err := c.check(); err != nil {
		return nil, 0, nil, err
	}
	if len(series) == 0 {
		return nil, 0, nil, fmt.Errorf("workload: no series")
	}
	set := trace.Format(series[0].Set)
	vms := measuredVMs(series, set == trace.PlanetLab || set == trace.NAB)
	rng := rand.New(rand.NewPCG(c.Seed, 0x6d656173))
	var drawn *Uses // where memory was not measured
	var patterns []Pattern
	var asks []ask
	record, sizes, memories := 0.0, 0, 0
	for i := range vms {
		record = max(record, vms[i].begin+vms[i].life())
	}
	span := c.Span
	if span == 0 {
		span = min(week, record-c.From)
	}
	if !(span > 0) {
		return nil, 0, nil, fmt.Errorf("workload: the record is %g days long, nothing is left after %g days", record/86400, c.From/86400)
	}
	end := c.From + span
	for i := range vms {
		v := &vms[i]
		if v.begin >= end || v.begin+v.life() <= c.From {
			continue
		}
		a := ask{arrival: max(0, v.begin-c.From), life: min(v.begin+v.life()-c.From, v.life()), count: 1, source: int32(i), of: len(asks)}
		a.stays = v.begin+v.life() >= min(record, end)-v.step
		a.cpu, a.memory = drawSize(rng)
		own := set == trace.Bitbrains && v.cpu.Limit > 0 && v.memory != nil && v.memory.Limit > 0
		if own {
			a.cpu, a.memory = v.cpu.Limit/BitbrainsCore, v.memory.Limit*1024
		} else {
			sizes++
		}
		place := v.place(c)
		n := int32(len(patterns))
		patterns = append(patterns, shape(v.cpu, v.first, v.last, whole(v.cpu)))
		a.cpuUse = Use{Pattern: n, Offset: place, Step: float32(v.step)}
		if v.memory != nil {
			patterns = append(patterns, shape(v.memory, v.first, v.last, whole(v.memory)))
			a.memoryUse = Use{Pattern: n + 1, Offset: place, Step: float32(v.step)}
		} else {
			if memories++; drawn == nil {
				drawn = ServiceUses(c.Seed)
			}
			patterns = append(patterns, drawn.Patterns[drawn.Of[rng.IntN(len(drawn.Of))].Memory])
			a.memoryUse = Use{Pattern: n + 1, Offset: float32(rng.IntN(serviceDays * serviceDay)), Step: serviceStep}
		}
		asks = append(asks, a)
	}
	asks, notes := fitting(asks, c.Hosts, "VMs")
	if sizes > 0 {
		notes = append(notes, "sizes of VMs are drawn, from the commonest of Azure's VMs of 2017: the set does not have them")
	}
	if memories > 0 {
		notes = append(notes, "memory use is drawn: the set does not have it")
	}
	elsewhere := func(a ask) ask {
		if c.ByClock {
			return a
		}
		for _, u := range []*Use{&a.cpuUse, &a.memoryUse} {
			u.Offset = float32(rng.IntN(len(patterns[u.Pattern])))
		}
		if len(patterns[a.cpuUse.Pattern]) == len(patterns[a.memoryUse.Pattern]) {
			a.memoryUse.Offset = a.cpuUse.Offset
		}
		return a
	}
	if c.Poisson {
		asks = poisson(rng, asks, &c, span, elsewhere)
		notes = append(notes, fmt.Sprintf("arrivals are a Poisson process, lives exponential with a mean of %.3g hours: %d VMs, each like one that was measured", c.Life/3600, len(asks)))
	} else {
		was, when := len(asks), ", at another time of their history"
		if c.ByClock {
			when = ""
		}
		if asks = some(rng, asks, &c, span, elsewhere); len(asks) > was {
			notes = append(notes, fmt.Sprintf("%d of %d VMs are copies of others%s", len(asks)-was, len(asks), when))
		}
	}
	w, err := workloadOf(asks, patterns, span)
	if err == nil {
		w.ByClock = c.ByClock
	}
	return w, span, notes, err
}

// poisson draws arrivals of VMs like those that were measured. Without load and number there are as many as were measured.
func poisson(rng *rand.Rand, like []ask, c *Cut, span float64, elsewhere func(ask) ask) []ask {
	if len(like) == 0 {
		return nil
	}
	if c.Life == 0 {
		c.Life = span / 8
	}
	one := func(a ask) ask {
		a = elsewhere(a)
		a.arrival, a.life, a.stays = span*rng.Float64(), max(60, c.Life*rng.ExpFloat64()), false
		return a
	}
	all := make([]ask, len(like))
	for i := range like {
		all[i] = one(like[i])
	}
	return some(rng, all, c, span, one)
}
