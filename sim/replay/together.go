package replay

import (
	"math"

	"evenkeel/allocator"
	"evenkeel/forecast"
)

// Together keeps memory on each host for the most that its components used together in the last day, as agents report it, and knows what components use
// where no forecast is trusted. No less than allocator.Reserve is kept.
type Together struct {
	day    int                // ticks
	memory []forecast.PastUse // [slot]
	of     []uint32           // [slot]: component that it is of
	had    []float64          // [slot]: memory that it was given last, bytes
	grew   []float64          // [slot]: when that last rose; below 0: never
	here   []forecast.Neighbor
}

// slackOfUse is what a component is given of memory at least beyond what it uses, as a share of that: below it its balloon does not fall.
const slackOfUse = 0.2

// The use of a component counts once it was measured for useAfter seconds, and useValues times.
const (
	useAfter  = 900
	useValues = 3
)

// cutOff is how much more a component counts that got less CPU than it would have used, as a share of what it got.
const cutOff = 0.5

func (x *Together) begin(c *Cluster) { *x = Together{day: max(1, int(86400/c.Tick))} }

// watch takes the latest measurements of all components.
func (x *Together) watch(c *Cluster) {
	for s := range c.each {
		if c.Measured[s] == 0 {
			continue
		}
		for int(s) >= len(x.of) {
			x.of, x.memory = append(x.of, 0), append(x.memory, forecast.PastUse{})
			x.had, x.grew = append(x.had, 0), append(x.grew, 0)
		}
		if x.of[s] != c.Born[s] {
			x.of[s], x.had[s], x.grew[s] = c.Born[s], c.RequestMemory[s], math.Inf(-1)
			x.memory[s].Remember(x.day)
		}
		x.memory[s].Note(int64(c.Ticks), c.UsedMemory[s])
	}
}

// use is what a component uses, cores and bytes; false: it was not measured for long enough.
func (x *Together) use(c *Cluster, s int32) (cpu, memory float64, known bool) {
	if n := c.Measured[s]; n < useValues || float64(n)*c.Tick < useAfter {
		return 0, 0, false
	}
	cpu = c.UsedCPU[s]
	if c.Short[s] {
		cpu *= 1 + cutOff
	}
	return cpu, c.UsedMemory[s], true
}

// rested is what a component is given where it is to be given so much memory: what it had, for so many seconds after that rose.
func (x *Together) rested(c *Cluster, s int32, memory, seconds float64) float64 {
	if int(s) >= len(x.of) || x.of[s] != c.Born[s] {
		return memory // it was not measured yet
	}
	switch had := x.had[s]; {
	case memory > had:
		x.grew[s] = c.Now
	case c.Now-x.grew[s] < seconds:
		memory = had
	}
	x.had[s] = memory
	return memory
}

// keep raises what the components of a host are given of memory by what the host keeps for all of them, in proportion to what they lack of their requests.
func (x *Together) keep(c *Cluster, host int32, memory []float64) {
	var reserve allocator.Reserve[float64]
	x.here = x.here[:0]
	all, has := 0.0, 0.0
	for s := c.FirstOn(host); s >= 0; s = c.NextOn(s) {
		deficit := max(0, c.RequestMemory[s]-memory[s])
		reserve.Add(deficit)
		all, has = all+deficit, has+memory[s]
		v := forecast.Neighbor{Request: c.RequestMemory[s], Past: &unknown}
		if int(s) < len(x.of) && x.of[s] == c.Born[s] {
			v.Past = &x.memory[s]
		}
		x.here = append(x.here, v)
	}
	if all == 0 {
		return
	}
	peak := (1 + forecast.TogetherMargin) * forecast.PeakTogether(x.here, int64(c.Ticks), x.day)
	share := min(1, max(reserve.Bytes(), peak-has)/all)
	for s := c.FirstOn(host); s >= 0; s = c.NextOn(s) {
		memory[s] += share * max(0, c.RequestMemory[s]-memory[s])
	}
}

// unknown is the past of a component that was not measured yet.
var unknown = func() (p forecast.PastUse) { p.Remember(1); return p }()
