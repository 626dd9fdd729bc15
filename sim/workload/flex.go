package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Flex is a day of tasks like the one on which Flex was evaluated (Le and Liu, sec. 2.2 and 5.1): the first day of Google's trace of
// 2011, whose machines were many and small, on fewer and larger nodes. The trace is not drawn from here; what the paper
// and the trace's own documentation state of it is:
//
//   - 714,030 tasks in 24 h on 4,000 nodes of 64 cores and 128 GB. In sum they ask for about 1.8 times the nodes' CPU and 1.3 times
//     their memory (the trace's 1.1 and 0.9 of 12,500 machines of about half the size) and use 0.7 of both (0.43 and 0.5).
//   - Most tasks are short; those that hold most of the resources run when the trace begins, and on to its end.
//   - Tasks come in jobs, most of them of one task, a few of thousands; a job's tasks are alike and peak together.
//   - Use is below the request on average (under 45%). Of CPU it goes far beyond the request for some batch and system tasks, of
//     memory seldom; production tasks stay below it. Both vary by about as much (figures 4 and 5).
//
// The zero value of every field but Nodes is that of the paper.
type Flex struct {
	Nodes  int     // that the load is measured against; tasks and job sizes go with them
	Tasks  int     // 0: 714,030 for every 4,000 nodes
	Demand float64 // factor on what tasks use, not on what they ask for (figure 11); 0: 1
}

// What of the nodes is asked for and used, averaged over the day, were all tasks to start when they come.
const (
	flexAskedCPU, flexAskedMemory = 1.72, 1.27
	flexUsedCPU, flexUsedMemory   = 0.70, 0.68
)

// FlexNodeCPU and FlexNodeMemory are a node of the evaluation: cores and bytes.
const (
	FlexNodeCPU    = 64.0
	FlexNodeMemory = 128 << 30
	flexDay        = 86400.0
)

// flexClass is one of the trace's three kinds of tasks.
type flexClass struct {
	share     float64 // of jobs
	size      float64 // of their requests, relative to each other: those of batch and system jobs are small, and fit into what is left
	cpu       float64 // median of use over request, of CPU
	cpuSpread float64 // its logarithm's standard deviation among jobs
	memory    float64 // as cpu
	peak      float64 // how many times its mean CPU use rises in a peak
}

// flexClasses are batch, production and system.
var flexClasses = [...]flexClass{
	{share: 0.62, size: 0.5, cpu: 0.55, cpuSpread: 0.70, memory: 0.50, peak: 2.2},
	{share: 0.32, size: 1.5, cpu: 0.30, cpuSpread: 0.45, memory: 0.60, peak: 1.6},
	{share: 0.06, size: 0.5, cpu: 0.70, cpuSpread: 0.80, memory: 0.55, peak: 3.0},
}

// flexKind is how long tasks of a job run: share of tasks, median seconds, standard deviation of the logarithm.
type flexKind struct{ share, median, spread float64 }

var flexKinds = [...]flexKind{
	{0.16, 0, 0},      // from the first hour to the end of the day and beyond
	{0.08, 7200, 0.9}, // hours
	{0.76, 240, 1.1},  // minutes
}

const (
	flexRushes   = 6   // times of the day at which many jobs peak
	flexShapes   = 700 // that use takes over time, of a job
	flexSiblings = 4   // tasks of a job follow one of so many variants of its shape
	flexStep     = 300 // seconds, as in the trace
	flexLength   = 288
)

// Draw is the day. Equal seeds give equal workloads.
func (f Flex) Draw(seed uint64) (*Workload, error) {
	if f.Nodes < 1 || f.Tasks < 0 || !(f.Demand >= 0 && f.Demand < 100) {
		return nil, fmt.Errorf("a day of %d tasks on %d nodes with %g times the demand cannot be drawn", f.Tasks, f.Nodes, f.Demand)
	}
	if f.Tasks == 0 {
		f.Tasks = max(1, int(math.Round(714030*float64(f.Nodes)/4000)))
	}
	if f.Demand == 0 {
		f.Demand = 1
	}
	random := rand.New(rand.NewPCG(seed, 0x666c6578))
	w := &Workload{Apps: make([]App, 0, f.Tasks), Groups: make([]Group, 0, f.Tasks)}
	cpu, memory := f.patterns(w, random)
	for source := int32(0); len(w.Apps) < f.Tasks; source++ {
		f.job(w, random, source, cpu, memory)
	}
	f.scale(w, cpu, memory)
	w.Sort()
	return w, w.Validate()
}

// patterns draws shapes of use over the day, of every class, and says where those of CPU and of memory begin: shape after shape, each with its
// siblings.
func (f Flex) patterns(w *Workload, random *rand.Rand) (cpu, memory int32) {
	var rush [flexRushes]int
	for i := range rush {
		rush[i] = random.IntN(flexLength)
	}
	for _, of := range []*int32{&cpu, &memory} {
		*of = int32(len(w.Patterns))
		for shape := range flexShapes {
			class := flexClasses[flexClassOf(shape)]
			level, noise, peak := class.cpu*math.Exp(class.cpuSpread*random.NormFloat64()), 0.22, class.peak
			if of == &memory {
				level, noise, peak = min(0.95, class.memory*math.Exp(0.3*random.NormFloat64())), 0.10, 1.25
			}
			common := flexShape(random, noise, peak, rush[:])
			for range flexSiblings {
				own := level * math.Exp(0.25*random.NormFloat64())
				p := make(Pattern, flexLength)
				wander := 0.0
				for i := range p {
					wander = 0.8*wander + 0.6*noise*random.NormFloat64()
					p[i] = float32(own * common[i] * math.Exp(wander))
				}
				w.Patterns = append(w.Patterns, p)
			}
		}
	}
	return cpu, memory
}

// flexClassOf deals the shapes to the classes by their shares.
func flexClassOf(shape int) int {
	at := (float64(shape) + 0.5) / flexShapes
	for k, class := range flexClasses {
		if at -= class.share; at < 0 {
			return k
		}
	}
	return len(flexClasses) - 1
}

// flexShape is what the tasks of a job have in common over a day, with mean 1 apart from its peaks: the time of day, a slow wander, and some peaks
// of 10 to 60 minutes, half of which begin at one of the times at which many jobs' do.
func flexShape(random *rand.Rand, noise, peak float64, rush []int) []float64 {
	shape := make([]float64, flexLength)
	phase, swing := 0.15*random.NormFloat64(), 0.3*random.Float64()
	wander := 0.0
	for i := range shape {
		wander = 0.95*wander + 0.31*noise*random.NormFloat64()
		shape[i] = (1 + swing*math.Sin(2*math.Pi*(float64(i)/flexLength-0.25+phase))) * math.Exp(wander)
	}
	for range 2 + random.IntN(5) {
		at, long := random.IntN(flexLength), 2+random.IntN(11)
		if random.Float64() < 0.5 {
			at = rush[random.IntN(len(rush))]
		}
		high := 1 + (peak-1)*(0.5+random.Float64())
		for i := at; i < at+long; i++ {
			shape[i%flexLength] *= high
		}
	}
	return shape
}

// job adds the tasks of one job, no more than are still to come.
func (f Flex) job(w *Workload, random *rand.Rand, source, cpu, memory int32) {
	size := 1
	if random.Float64() > 0.7 { // Pareto with a shape of 0.9, up to half a task per node
		highest := max(2, float64(f.Nodes)/2)
		size = int(min(highest, 2*math.Pow(1-random.Float64(), -1/0.9)))
	}
	size = min(size, f.Tasks-len(w.Apps))
	kind, share := len(flexKinds)-1, random.Float64()
	for k := range flexKinds {
		if share -= flexKinds[k].share; share < 0 {
			kind = k
			break
		}
	}
	shape := random.IntN(flexShapes)
	// What tasks ask for, in any unit yet: scale gives the sums their size.
	asks := flexClasses[flexClassOf(shape)].size * math.Exp(0.8*random.NormFloat64())
	bytes := asks * math.Exp(0.7*random.NormFloat64())
	begin := flexDay * random.Float64()
	if kind == 0 {
		begin = 3600 * random.Float64()
	}
	for range size {
		arrival := min(begin+60*random.ExpFloat64(), flexDay-1)
		work := 2 * flexDay
		if kind > 0 {
			work = min(flexDay, max(10, flexKinds[kind].median*math.Exp(flexKinds[kind].spread*random.NormFloat64())))
		}
		sibling := int32(flexSiblings*shape + random.IntN(flexSiblings))
		// Time of day and not the work done says where in its pattern a task is, as long as it neither waits nor is slowed: peaks coincide.
		use := Use{Offset: float32(arrival / flexStep), Step: flexStep}
		g := Group{Count: 1, CPU: asks, Memory: bytes, CPUUse: use, MemoryUse: use}
		g.CPUUse.Pattern, g.MemoryUse.Pattern = cpu+sibling, memory+sibling
		w.Apps = append(w.Apps, App{Arrival: arrival, Work: work, Source: source, First: int32(len(w.Groups)), Groups: 1})
		w.Groups = append(w.Groups, g)
	}
}

// scale gives requests and patterns the sums that are stated.
func (f Flex) scale(w *Workload, cpu, memory int32) {
	mean := make([]float64, len(w.Patterns))
	for i, p := range w.Patterns {
		mean[i] = p.Mean()
	}
	var asked [2]float64 // core-seconds, byte-seconds
	for i := range w.Apps {
		a, g := &w.Apps[i], &w.Groups[w.Apps[i].First]
		there := min(a.Work, flexDay-a.Arrival)
		asked[0] += g.CPU * there
		asked[1] += g.Memory * there
	}
	nodes := float64(f.Nodes) * flexDay
	by := [2]float64{flexAskedCPU * FlexNodeCPU * nodes / asked[0], flexAskedMemory * FlexNodeMemory * nodes / asked[1]}
	var used [2]float64
	for i := range w.Apps {
		a, g := &w.Apps[i], &w.Groups[w.Apps[i].First]
		// No task asks for more than half of a node.
		g.CPU = min(g.CPU*by[0], FlexNodeCPU/2)
		g.Memory = min(g.Memory*by[1], FlexNodeMemory/2)
		there := min(a.Work, flexDay-a.Arrival)
		used[0] += g.CPU * there * mean[g.CPUUse.Pattern]
		used[1] += g.Memory * there * mean[g.MemoryUse.Pattern]
	}
	by = [2]float64{f.Demand * flexUsedCPU * FlexNodeCPU * nodes / used[0], f.Demand * flexUsedMemory * FlexNodeMemory * nodes / used[1]}
	for i, p := range w.Patterns {
		k := 0
		if int32(i) >= memory && memory > cpu {
			k = 1
		}
		for j := range p {
			p[j] *= float32(by[k])
		}
	}
}
