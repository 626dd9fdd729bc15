package workload

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mathext"
	"gonum.org/v1/gonum/stat/distuv"
)

// Lublin is the model of rigid parallel jobs of Lublin and Feitelson, "The workload on parallel supercomputers: modeling
// the characteristics of rigid jobs", JPDC 63(11), 2003, with one stream of jobs that are not distinguished as batch and
// interactive. Distributions are over natural logarithms of seconds and binary logarithms of nodes. A Gamma(a, b) has mean
// a*b.
type Lublin struct {
	Nodes int // of the machine; no job is larger

	// Sizes: a job is serial with probability Serial; otherwise the binary logarithm of its size is uniform between Low and
	// Medium with probability Below, else between Medium and High, and a whole number with probability PowerOfTwo (of all jobs).
	Serial, PowerOfTwo float64
	Low, Medium, High  float64
	Below              float64

	// Run times: the logarithm is Gamma(ShortA, ShortB) with probability SizeA*nodes + SizeB, else Gamma(LongA, LongB).
	ShortA, ShortB float64
	LongA, LongB   float64
	SizeA, SizeB   float64

	// Arrivals: the logarithm of the gaps is Gamma(GapA*RushRatio, GapB) before the daily cycle stretches them, which is
	// Gamma(DayA, DayB) over half hours.
	GapA, GapB, RushRatio float64
	DayA, DayB            float64
}

// Bounds of the model, and the half hour of the day at which its daily cycle begins.
const (
	lublinLongest  = 12 // logarithm of the run time
	lublinGap      = 13 // logarithm of the gap
	lublinBuckets  = 48
	lublinBucket   = 1800 // seconds
	lublinDayStart = 11
)

// NewLublin is the model with its published parameters for a machine of so many nodes: its largest job has all of them,
// and the middle of the sizes is 2.5 below that in binary logarithms, as its authors recommend.
func NewLublin(nodes int) Lublin {
	high := math.Log2(float64(nodes))
	return Lublin{
		Nodes:  nodes,
		Serial: 0.244, PowerOfTwo: 0.576,
		Low: 0.8, Medium: high - 2.5, High: high, Below: 0.86,
		ShortA: 4.2, ShortB: 0.94, LongA: 312, LongB: 0.03, SizeA: -0.0054, SizeB: 0.78,
		GapA: 10.2303, GapB: 0.4871, RushRatio: 1.0225, DayA: 8.1737, DayB: 3.9631,
	}
}

// BatchJob is a parallel job as fractional sharing sees it: equal tasks that all make progress at the same rate.
type BatchJob struct {
	Submit float64 // seconds
	Run    float64 // seconds that it takes if every task gets all it needs, at least 1
	Tasks  int
	CPU    float64 // need of one task, as a part of a node, in (0, 1]
	Memory float64 // of one task, as a part of a node, in (0, 1]
}

// Draw is n jobs in order of submission, of whole seconds. CPU and Memory are 0: the model does not have them. Equal seeds
// give equal jobs.
func (m Lublin) Draw(seed uint64, n int) ([]BatchJob, error) {
	if m.Nodes < 1 || n < 0 {
		return nil, fmt.Errorf("%d jobs on %d nodes cannot be drawn", n, m.Nodes)
	}
	if !(m.Low <= m.Medium && m.Medium <= m.High) {
		return nil, fmt.Errorf("sizes from 2^%g over 2^%g to 2^%g are not in order: the model wants 11 nodes or more", m.Low, m.Medium, m.High)
	}
	random := rand.New(rand.NewPCG(seed, 0x6c75626c696e))
	gap := distuv.Gamma{Alpha: m.GapA * m.RushRatio, Beta: 1 / m.GapB, Src: random}
	short := distuv.Gamma{Alpha: m.ShortA, Beta: 1 / m.ShortB, Src: random}
	long := distuv.Gamma{Alpha: m.LongA, Beta: 1 / m.LongB, Src: random}
	day := m.day()

	jobs := make([]BatchJob, n)
	var at, points, rest float64
	bucket := 0
	for i := range jobs {
		points += math.Exp(below(gap, lublinGap)) / lublinBucket
		for points > day[bucket] {
			points -= day[bucket]
			bucket = (bucket + 1) % lublinBuckets
			at += lublinBucket
		}
		part := points / day[bucket]
		at += lublinBucket * (part - rest)
		rest = part

		tasks := m.size(random)
		length := long
		if random.Float64() < min(1, max(0, m.SizeA*float64(tasks)+m.SizeB)) {
			length = short
		}
		jobs[i] = BatchJob{Submit: math.Floor(at), Run: max(1, math.Floor(math.Exp(below(length, lublinLongest)))), Tasks: tasks}
	}
	return jobs, nil
}

// below draws until the value is at most the bound.
func below(d distuv.Gamma, bound float64) float64 {
	for {
		if v := d.Rand(); v <= bound {
			return v
		}
	}
}

func (m Lublin) size(random *rand.Rand) int {
	u := random.Float64()
	if u <= m.Serial {
		return 1
	}
	from, to := m.Low, m.Medium
	if random.Float64() > m.Below {
		from, to = m.Medium, m.High
	}
	power := from + (to-from)*random.Float64()
	if u <= m.Serial+m.PowerOfTwo {
		power = math.RoundToEven(power)
	}
	return min(m.Nodes, max(1, int(math.Round(math.Exp2(power)))))
}

// day is how busy each half hour from midnight on is, with mean 1.
func (m Lublin) day() (w [lublinBuckets]float64) {
	sum := 0.0
	for i := lublinDayStart; i < lublinDayStart+lublinBuckets; i++ {
		share := mathext.GammaIncReg(m.DayA, (float64(i)+0.5)/m.DayB) - mathext.GammaIncReg(m.DayA, (float64(i)-0.5)/m.DayB)
		w[(i-1)%lublinBuckets] = share
		sum += share
	}
	for i := range w {
		w[i] *= lublinBuckets / sum
	}
	return w
}

// DrawNeeds gives every job the CPU and memory of Stillwell, Vivien and Casanova, "Dynamic Fractional Resource Scheduling vs.
// Batch Scheduling" (arXiv 1106.4985, the section on synthetic workloads), for nodes of four cores: the task of a job that has
// only one is sequential and needs a quarter of a node, those of all others a whole one. Tasks have 10% of a node's memory with
// probability 0.55, else 20%, 30% to 100%, each as likely.
func DrawNeeds(seed uint64, jobs []BatchJob) {
	random := rand.New(rand.NewPCG(seed, 0x6e65656473))
	for i := range jobs {
		jobs[i].CPU = 1
		if jobs[i].Tasks == 1 {
			jobs[i].CPU = 0.25
		}
		jobs[i].Memory = DrawMemory(random)
	}
}

// DrawMemory is what a task has of its node's memory: see DrawNeeds.
func DrawMemory(random *rand.Rand) float64 {
	if random.Float64() < 0.55 {
		return 0.1
	}
	return float64(2+random.IntN(9)) / 10
}

// OfferedLoad is what the jobs keep busy, every task a whole node, over what the nodes could do from the first to the last
// submission. It is +Inf if all come at once.
func OfferedLoad(nodes int, jobs []BatchJob) float64 {
	if len(jobs) == 0 {
		return 0
	}
	work := 0.0
	for _, j := range jobs {
		work += j.Run * float64(j.Tasks)
	}
	return work / (float64(nodes) * (jobs[len(jobs)-1].Submit - jobs[0].Submit))
}

// ScaleLoad is the jobs with all gaps between submissions multiplied by one number, such that OfferedLoad is load.
func ScaleLoad(nodes int, jobs []BatchJob, load float64) ([]BatchJob, error) {
	now := OfferedLoad(nodes, jobs)
	if !(load > 0 && now > 0 && now <= math.MaxFloat64) {
		return nil, fmt.Errorf("the load of %d jobs on %d nodes is %g, and cannot be made %g", len(jobs), nodes, now, load)
	}
	scaled := append([]BatchJob(nil), jobs...)
	for i := range scaled {
		scaled[i].Submit = jobs[0].Submit + (jobs[i].Submit-jobs[0].Submit)*(now/load)
	}
	return scaled, nil
}
