package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Ha is a day of containers like the one that Ha, Brown and Michiardi recorded on a YARN cluster and replayed (sec. III and V). The trace was not
// published; what they state of it is:
//
//   - about 18,000 tasks in a day, most of which run for 10 to 100 seconds, and none for more than 1,000;
//   - 90% of the containers use less than half of the memory they reserve; sizes are few, for users take what is configured;
//   - 60% use less CPU than they reserve, and some up to twice as much;
//   - tasks need some seconds to load data: memory is used little by little;
//   - on 8 hosts that may give 18 cores and 28 GB each, reservations make memory the bottleneck, of which about half is then used, and
//     use alone would make CPU the bottleneck: the work takes 16% less time.
//
// Tasks arrive as fast as the cluster can take them: under both policies tasks always wait.
type Ha struct {
	Tasks int // 0: 18,000

	// ExtremeFit lets every task reserve what it will use at most, as in the worst case for estimates (sec. V-B).
	ExtremeFit bool
}

// The hosts of the first experiment and of the others: cores and bytes that there are, and that tasks may be given.
const (
	HaHosts                         = 8
	HaMemory, HaAllowedMemory       = 32 << 30, 28 << 30
	HaCPU, HaAllowedCPU             = 24, 18
	HaManyCores, HaAllowedManyCores = 64, 58
)

const (
	haShapes    = 400
	haLength    = 64
	haArrival   = 1200 // seconds in which tasks come: far less than they take
	haGiB       = 1 << 30
	haLongest   = 1000.0
	haMedianRun = 38.0
)

// Draw is the day. Equal seeds give equal workloads, and the tasks of both kinds of reservation are the same.
func (h Ha) Draw(seed uint64) (*Workload, error) {
	if h.Tasks < 0 {
		return nil, fmt.Errorf("a day of %d containers cannot be drawn", h.Tasks)
	}
	if h.Tasks == 0 {
		h.Tasks = 18000
	}
	random := rand.New(rand.NewPCG(seed, 0x6861))
	w := &Workload{}
	for range haShapes {
		w.Patterns = append(w.Patterns, haCPU(random))
	}
	for range haShapes {
		w.Patterns = append(w.Patterns, haMemory(random))
	}
	top := make([]float64, len(w.Patterns))
	for i, p := range w.Patterns {
		for _, v := range p {
			top[i] = max(top[i], float64(v))
		}
	}
	at, source := 0.0, int32(-1)
	left := 0
	var begin, reserved, cores float64
	var shape int
	for len(w.Apps) < h.Tasks {
		if left == 0 { // the next job: about 14 containers, as 110,000 in 8,000 jobs
			left = 1 + int(13*random.ExpFloat64())
			source++
			begin = haArrival * random.Float64()
			at = begin
			reserved = []float64{1, 1, 1.5, 2, 2, 3}[random.IntN(6)] * haGiB
			cores = 1
			shape = random.IntN(haShapes)
		}
		left--
		at += 2 * random.ExpFloat64()
		work := min(haLongest, max(4, haMedianRun*math.Exp(0.85*random.NormFloat64())))
		// Tasks of a job are alike, not equal.
		one := (shape + random.IntN(5)) % haShapes
		step := float32(work / (haLength - 1))
		g := Group{Count: 1, CPU: cores, Memory: reserved,
			CPUUse:    Use{Pattern: int32(one), Step: step},
			MemoryUse: Use{Pattern: int32(haShapes + one), Step: step}}
		w.Apps = append(w.Apps, App{Arrival: at, Work: work, Source: source, First: int32(len(w.Groups)), Groups: 1})
		w.Groups = append(w.Groups, g)
	}
	if h.ExtremeFit {
		h.fit(w, top)
	}
	w.Sort()
	return w, w.Validate()
}

// haCPU is what a container uses of its cores over its life: mean below 1 for 60%, up to 2.
func haCPU(random *rand.Rand) Pattern {
	level := min(1.9, 0.92*math.Exp(0.35*random.NormFloat64()))
	p := make(Pattern, haLength)
	wander := 0.0
	for i := range p {
		wander = 0.7*wander + 0.15*random.NormFloat64()
		p[i] = float32(min(2, max(0.05, level*(1+wander))))
	}
	return p
}

// haMemory is what a container uses of its memory: it rises over the first part of its life, for a third of the containers in a second step later,
// to a level below half for 90%.
func haMemory(random *rand.Rand) Pattern {
	level := min(0.92, 0.42*math.Exp(0.15*random.NormFloat64()))
	rise, late, before := 0.05+0.4*random.Float64(), 0.0, 1.0
	if random.Float64() < 1.0/3 {
		late, before = 0.5+0.4*random.Float64(), 0.5
	}
	p := make(Pattern, haLength)
	for i := range p {
		at := float64(i) / haLength
		height := before * (0.25 + 0.75*min(1, at/rise))
		if at >= late && late > 0 {
			height = 1
		}
		p[i] = float32(level * height * (1 - 0.04*random.Float64()))
	}
	return p
}

// fit makes every request what is used at most, and patterns shares of that.
func (h Ha) fit(w *Workload, top []float64) {
	for i := range w.Groups {
		g := &w.Groups[i]
		g.CPU *= top[g.CPUUse.Pattern]
		g.Memory *= top[g.MemoryUse.Pattern]
	}
	for i, p := range w.Patterns {
		for j := range p {
			p[j] = float32(float64(p[j]) / top[i])
		}
	}
}
