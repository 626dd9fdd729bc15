package batch

import (
	"fmt"
	"math"
	"slices"

	"evenkeel/allocator"
)

// Evenkeel runs jobs as virtual clusters, by the code of the product: package allocator admits them and divides the CPU, package
// migration plans moves within a bound on their bytes. Jobs that find no memory wait in a queue by priority.
type Evenkeel struct {
	// Period at which the policy examines which jobs wait and what moves would gain, seconds.
	Period float64

	// Behind is how much it counts that a job got little so far: priority is (flow time / virtual time)^Behind / virtual time.
	// 1 is the paper's.
	Behind float64

	// Precedence: a job that waits takes the place of running jobs only if its priority is more than so many times theirs.
	Precedence float64

	// Young jobs, with fewer seconds of progress than this, are never paused; nor are jobs that were resumed or moved less long ago. Young
	// jobs are served first: they are promised what a node can give, and the others the rest, as floors (MinYield) that the allocator keeps.
	Young float64

	// MinResidency is for how many seconds after it was resumed or moved a job is not paused for one that waits, unless that is
	// new, and not moved; and how many seconds of progress it has made before it is moved.
	MinResidency float64

	// Moves: a plan moves at most MoveBytes of all memory, is wanted if the minimum yield rises by MinGain, relative, and
	// comes no sooner than CoolDown seconds after the last. MoveBytes 0: no moves.
	MoveBytes, MinGain, CoolDown float64
}

// DefaultEvenkeel is what the figures are made with.
func DefaultEvenkeel() Evenkeel {
	return Evenkeel{Period: 600, Behind: 2, Precedence: 2, Young: 60, MinResidency: 600, MoveBytes: 0.05, MinGain: 0.1, CoolDown: 3600}
}

func (p Evenkeel) Name() string { return "Evenkeel" }

func (p Evenkeel) start(s *state) scheduler {
	e := &evenkeel{Evenkeel: p, state: s, clock: newClock(p.Period, s.now), planned: math.Inf(-1), retry: math.Inf(1)}
	s.rank = e.inverse
	return e
}

type evenkeel struct {
	Evenkeel
	*state
	clock
	retry   float64 // when one that is new and found no room is tried again
	planned float64 // when a plan last moved something
}

// retryAfter is how long one that is new and found no room waits for the next try, seconds.
const retryAfter = 10

// inverse of the priority.
func (p *evenkeel) inverse(j *job) float64 {
	if j.done == 0 {
		return 0
	}
	return j.done * math.Pow(j.done/max(j.flow(p.now), 1e-9), p.Behind)
}

func (p *evenkeel) wake() float64 { return min(p.next, p.retry) }

func (p *evenkeel) decide(e event) error {
	p.retry = math.Inf(1)
	var lifted []*job
	for _, j := range e.arrived {
		if !p.admit(j) {
			lifted = append(lifted, p.makeRoom(j, p.old)...)
		}
	}
	p.admit(p.byRank(func(j *job) bool { return waiting(j) && !contains(lifted, j) })...)
	tick := e.woken && p.now >= p.next-1e-6 && p.strikes(e, p.now)
	for _, j := range p.byRank(waiting) {
		// Between periods only those that have hardly begun are looked at.
		if !tick && j.done >= p.MinResidency {
			continue
		}
		p.makeRoom(j, func(other *job) bool {
			return p.old(other) && (j.done == 0 || p.now-other.since >= p.MinResidency) && p.rank(other) > p.Precedence*p.rank(j)
		})
		if waiting(j) && j.done == 0 {
			p.retry = p.now + retryAfter
		}
	}
	if !tick {
		return nil
	}
	return p.rebalance()
}

// old says whether a job may be paused at all.
func (p *evenkeel) old(j *job) bool { return j.done >= p.Young && p.now-j.since >= p.Young }

// movable says whether a job may be moved.
func (p *evenkeel) movable(j *job) bool {
	return j.done >= p.MinResidency && p.now-j.since >= p.MinResidency
}

// hosts are the nodes as the allocator sees them.
func (p *evenkeel) hosts() []allocator.Host {
	hosts := make([]allocator.Host, p.Nodes)
	for n := range hosts {
		hosts[n] = allocator.Host{CPU: 1, Memory: 1 + slack}
	}
	return hosts
}

func (j *job) group() allocator.Group {
	return allocator.Group{Name: fmt.Sprint(j.number), Count: j.Tasks, CPU: j.CPU, Memory: j.Memory, Hosts: j.nodes}
}

// admit starts what has room of the jobs, the first in the list first. It says whether some was started.
func (p *evenkeel) admit(jobs ...*job) bool {
	problem := allocator.Problem{Hosts: p.hosts()}
	var requests []allocator.Request
	var asking []*job
	for _, j := range jobs {
		if p.room(j) >= j.Tasks {
			asking = append(asking, j)
			requests = append(requests, allocator.Request{Groups: []allocator.Group{j.group()}})
		}
	}
	if len(asking) == 0 {
		return false
	}
	for _, j := range p.jobs {
		if placed(j) {
			problem.Groups = append(problem.Groups, j.group())
		}
	}
	queue := allocator.AdmitQueue(problem, nil, requests, false)
	for i, j := range asking {
		if hosts := queue.Hosts[i]; hosts != nil {
			p.place(j, hosts[0])
		}
	}
	return queue.Admitted > 0
}

// room is for how many tasks of a job there is memory.
func (s *state) room(j *job) int {
	room := 0
	for n := range s.memory {
		room += int((1 + slack - s.memory[n]) / j.Memory)
	}
	return room
}

// makeRoom starts a job in place of others that may be paused, those of the lowest priority first. Of these, jobs that then fit
// beside it stay. It returns the jobs that are paused; if the job cannot be started none is.
func (p *evenkeel) makeRoom(j *job, may func(*job) bool) []*job {
	was := map[*job][]int{}
	runs := p.byRank(func(other *job) bool { return placed(other) && may(other) })
	var lifted []*job
	for len(runs) > 0 && waiting(j) {
		last := runs[len(runs)-1]
		runs = runs[:len(runs)-1]
		was[last] = last.nodes
		lifted = append(lifted, last)
		p.lift(last)
		if p.room(j) >= j.Tasks {
			p.admit(j)
		}
	}
	slices.Reverse(lifted)
	return slices.DeleteFunc(lifted, func(l *job) bool {
		p.place(l, was[l])
		for _, n := range l.nodes {
			if p.memory[n] > 1+slack {
				p.lift(l)
				return false
			}
		}
		return true
	})
}
