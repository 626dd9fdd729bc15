// Package casanova repeats the simulations of Casanova, Schanzenbach, Stillwell
// and Vivien, "Resource Allocation using Virtual Clusters" (INRIA RR-6692, 2008),
// sections 4 and 5: it draws the problem instances, runs the algorithms of package
// allocator on them, and writes figures 2 to 22 and the tables beside the
// published numbers. Equal seeds give equal instances and results; run times are
// what the machine makes of them.
package casanova

import (
	"math"
	"math/rand/v2"

	"evenkeel/allocator"
)

// Set is a set of problem instances of sec. 4.1.
type Set int

// The sets.
const (
	Small    Set = iota // 4 hosts with 6, 8, 10 or 12 tasks
	Large               // 64 hosts with 100, 250 or 500 tasks
	Parallel            // as Large, the tasks being those of parallel jobs (sec. 5.2)
)

func (s Set) String() string { return [...]string{"small", "large", "parallel"}[s] }

// Instances is how many instances of each specification the paper has.
func (s Set) Instances() int {
	if s == Small {
		return 10
	}
	return 100
}

func (s Set) hosts() int {
	if s == Small {
		return 4
	}
	return 64
}

func (s Set) tasks() []int {
	if s == Small {
		return []int{6, 8, 10, 12}
	}
	return []int{100, 250, 500}
}

// spec is one problem specification.
type spec struct {
	hosts, tasks  int
	slack         float64
	cpuCV, memCV  float64
	parallelTasks bool
}

// specs is every combination of tasks, memory slack and coefficients of variation.
func (s Set) specs() (specs []spec) {
	for _, tasks := range s.tasks() {
		for slack := 1; slack <= 9; slack++ {
			for _, cpuCV := range []float64{0.25, 0.75} {
				for _, memCV := range []float64{0.25, 0.75} {
					specs = append(specs, spec{s.hosts(), tasks, float64(slack) / 10, cpuCV, memCV, s == Parallel})
				}
			}
		}
	}
	return specs
}

// meanCPU is the mean CPU requirement of a task (sec. 4.1).
const meanCPU = 0.5

// Truncation is how a normal variable is kept between 0 and 1. The paper says
// "truncated so that values are between 0 and 1".
type Truncation int

// The two ways.
const (
	Reject Truncation = iota // drawn again: the truncated normal distribution
	Clamp                    // moved to the nearer end
)

// draw makes an instance. Every instance has a random stream of its own.
func (s spec) draw(set Set, seed uint64, specification, instance int, how Truncation) allocator.Problem {
	r := rand.New(rand.NewPCG(seed, uint64(set)<<48|uint64(specification)<<24|uint64(instance)))
	p := allocator.Problem{Hosts: make([]allocator.Host, s.hosts)}
	for j := range p.Hosts {
		p.Hosts[j] = allocator.Host{CPU: 1, Memory: 1}
	}
	meanMemory := float64(s.hosts) * (1 - s.slack) / float64(s.tasks)
	for left := s.tasks; left > 0; {
		n := 1
		if s.parallelTasks {
			n = min(left, jobSize(r, s.hosts))
		}
		left -= n
		p.Groups = append(p.Groups, allocator.Group{
			Count:  n,
			CPU:    normal(r, meanCPU, s.cpuCV, how),
			Memory: normal(r, meanMemory, s.memCV, how),
		})
	}
	return p
}

func normal(r *rand.Rand, mean, cv float64, how Truncation) float64 {
	for {
		x := mean * (1 + cv*r.NormFloat64())
		if how == Clamp {
			return min(max(0, x), 1)
		}
		if x >= 0 && x <= 1 {
			return x
		}
	}
}

// Parameters of the size of a job in the model of Lublin and Feitelson ("The
// workload on parallel supercomputers", JPDC 2003) for jobs of no known type. The
// greatest size is the system's; umed lies 2.5 below its logarithm, as they advise.
const (
	serialProbability = 0.244
	powerProbability  = 0.576
	lowerProbability  = 0.86
	minLog            = 0.8
	middleBelow       = 2.5
)

// jobSize draws the number of tasks of a parallel job, 1 to limit: one task, or a two-stage
// log-uniform number that is often a power of two.
func jobSize(r *rand.Rand, limit int) int {
	greatest := math.Log2(float64(limit))
	middle := greatest - middleBelow
	u := r.Float64()
	if u <= serialProbability {
		return 1
	}
	from, to := minLog, middle
	if r.Float64() > lowerProbability {
		from, to = middle, greatest
	}
	log := from + (to-from)*r.Float64()
	if u <= serialProbability+powerProbability {
		log = math.Round(log)
	}
	return min(max(1, int(math.Round(math.Exp2(log)))), limit)
}
