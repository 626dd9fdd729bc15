package batch

import (
	"fmt"
	"math"
	"slices"
)

// Policy decides where jobs run.
type Policy interface {
	Name() string
	// start is a scheduler with nothing in it yet.
	start(s *state) scheduler
}

// scheduler is a policy during a replay.
type scheduler interface {
	// decide places jobs and lifts them; jobs that are placed in the end run on.
	decide(e event) error
	// wake is when decide is to be called next though nothing happens; +Inf: never.
	wake() float64
	// share sets the yield of every job that is placed.
	share() error
}

// event is all that happens at one instant.
type event struct {
	arrived []*job // in order of submission
	ended   bool   // some job did
	woken   bool   // wake's time has come
}

// job is a Job in the cluster.
type job struct {
	Job
	number  int
	nodes   []int // of each task, ascending; nil: not placed. Never changed, only replaced.
	done    float64
	yield   float64
	penalty float64 // seconds until it makes progress
	ends    float64 // when it will, if nothing changes; +Inf: not placed
	begun   bool
	since   float64 // when it was last resumed or moved; -Inf: never

	before []int // nodes, before the decision that goes on
	out    *Outcome
}

// flow is how long the job is in the cluster.
func (j *job) flow(now float64) float64 { return now - j.Submit }

// paperRank is one over the paper's priority, which is flow time / (virtual time)^2.
func (s *state) paperRank(j *job) float64 {
	if j.done == 0 {
		return 0
	}
	return j.done * j.done / max(j.flow(s.now), 1e-9)
}

// state is the cluster at an instant.
type state struct {
	Cluster
	now    float64
	jobs   []*job             // in the cluster, in order of submission
	cpu    []float64          // of each node: needs of the tasks on it
	memory []float64          // of each node: used
	tasks  []int              // of each node
	rank   func(*job) float64 // the least has the highest priority
	result *Result
}

// place puts a job that is not placed on nodes, one for each task.
func (s *state) place(j *job, nodes []int) {
	nodes = slices.Clone(nodes)
	slices.Sort(nodes)
	j.nodes = nodes
	for _, n := range nodes {
		s.cpu[n] += j.CPU
		s.memory[n] += j.Memory
		s.tasks[n]++
	}
}

// lift takes a job off its nodes.
func (s *state) lift(j *job) {
	for _, n := range j.nodes {
		s.cpu[n] -= j.CPU
		s.memory[n] -= j.Memory
		if s.tasks[n]--; s.tasks[n] == 0 {
			s.cpu[n], s.memory[n] = 0, 0
		}
	}
	j.nodes = nil
}

// fits says whether one more task has the memory on a node.
func (s *state) fits(j *job, n int) bool { return s.memory[n]+j.Memory <= 1+slack }

// byRank is the jobs that are kept, the highest priority first; of equal ones the oldest.
func (s *state) byRank(keep func(*job) bool) []*job {
	var some []*job
	for _, j := range s.jobs {
		if keep(j) {
			some = append(some, j)
		}
	}
	slices.SortStableFunc(some, func(a, b *job) int {
		switch ra, rb := s.rank(a), s.rank(b); {
		case ra < rb:
			return -1
		case ra > rb:
			return 1
		}
		return 0
	})
	return some
}

func placed(j *job) bool  { return j.nodes != nil }
func waiting(j *job) bool { return j.nodes == nil }

// Run replays jobs, which are in order of submission, until all have ended.
func Run(c Cluster, jobs []Job, p Policy) (Result, error) { return replay(c, jobs, p, nil) }

// replay shows every stretch of time in which nothing changes to watch, before it passes.
func replay(c Cluster, jobs []Job, p Policy, watch func(s *state, until float64)) (Result, error) {
	if err := validate(c, jobs); err != nil {
		return Result{}, err
	}
	result := Result{Jobs: make([]Outcome, len(jobs)), MinYield: 1}
	s := &state{
		Cluster: c, now: jobs[0].Submit, result: &result,
		cpu: make([]float64, c.Nodes), memory: make([]float64, c.Nodes), tasks: make([]int, c.Nodes),
	}
	s.rank = s.paperRank
	account := accounts{}
	policy := p.start(s)
	for next := 0; next < len(jobs) || len(s.jobs) > 0; {
		at, ending := policy.wake(), math.Inf(1)
		for _, j := range s.jobs {
			ending = min(ending, j.ends)
		}
		if len(s.jobs) == 0 || at < s.now {
			at = math.Inf(1)
		}
		arrival := math.Inf(1)
		if next < len(jobs) {
			arrival = jobs[next].Submit
		}
		at = min(at, ending, arrival)
		if math.IsInf(at, 1) {
			return Result{}, fmt.Errorf("%s: %d jobs wait, and nothing runs", p.Name(), len(s.jobs))
		}
		if watch != nil {
			watch(s, at)
		}
		account.pass(s, at)

		e := event{woken: at >= policy.wake()}
		for i := 0; i < len(s.jobs); i++ {
			if j := s.jobs[i]; j.ends <= at {
				s.end(j)
				s.jobs = slices.Delete(s.jobs, i, i+1)
				i--
				e.ended = true
			}
		}
		for ; next < len(jobs) && jobs[next].Submit <= at; next++ {
			j := &job{Job: jobs[next], number: next, ends: math.Inf(1), since: math.Inf(-1), out: &result.Jobs[next]}
			s.jobs = append(s.jobs, j)
			e.arrived = append(e.arrived, j)
		}
		result.Live = max(result.Live, len(s.jobs))
		if len(s.jobs) == 0 {
			continue
		}
		for _, j := range s.jobs {
			j.before = j.nodes
		}
		result.Decisions++
		err := policy.decide(e)
		if err == nil {
			s.chargeDecision()
			err = policy.share()
		}
		if err == nil {
			err = s.check()
		}
		if err != nil {
			return Result{}, fmt.Errorf("%s, at %g s: %w", p.Name(), s.now, err)
		}
		for _, j := range s.jobs {
			j.ends = math.Inf(1)
			if placed(j) {
				j.ends = s.now + j.penalty + (j.Run-j.done)/j.yield
			}
		}
	}
	result.Makespan = s.now - jobs[0].Submit
	for _, o := range result.Jobs {
		result.MaxStretch = max(result.MaxStretch, o.Stretch)
		result.AvgStretch += o.Stretch / float64(len(jobs))
	}
	account.into(&result)
	return result, nil
}

// end takes a job out that is complete.
func (s *state) end(j *job) {
	s.lift(j)
	j.done = j.Run
	j.out.End = s.now
	j.out.Stretch = Stretch(j.flow(s.now), j.Run)
}

// chargeDecision counts what the decision costs, and lets jobs pay for it.
func (s *state) chargeDecision() {
	for _, j := range s.jobs {
		bytes := j.Memory * s.Memory
		switch {
		case j.before == nil && j.nodes == nil:
		case j.nodes == nil:
			s.result.Pauses++
			j.out.Pauses++
			s.result.PausedBytes += bytes * float64(j.Tasks)
			j.penalty = 0
		case j.before == nil && !j.begun:
			j.begun = true
			j.out.Begin = s.now
		case j.before == nil:
			s.result.PausedBytes += bytes * float64(j.Tasks)
			j.penalty, j.since = s.Penalty, s.now
		default:
			if n := moved(j.before, j.nodes); n > 0 {
				s.result.Moves++
				j.out.Moves++
				s.result.MovedBytes += bytes * float64(n)
				j.penalty, j.since = s.Penalty, s.now
			}
		}
	}
}

// moved is how many tasks are on other nodes afterwards. Tasks are equal: only how many each node has counts.
func moved(before, after []int) int {
	stay := 0
	for i, k := 0, 0; i < len(before) && k < len(after); {
		switch {
		case before[i] == after[k]:
			stay, i, k = stay+1, i+1, k+1
		case before[i] < after[k]:
			i++
		default:
			k++
		}
	}
	return len(after) - stay
}

// check finds what no policy may do.
func (s *state) check() error {
	use := make([]float64, s.Nodes)
	memory := make([]float64, s.Nodes)
	for _, j := range s.jobs {
		if !placed(j) {
			continue
		}
		if len(j.nodes) != j.Tasks || !(j.yield > 0 && j.yield <= 1+slack) {
			return fmt.Errorf("job %d: %d of %d tasks placed, with yield %g", j.number, len(j.nodes), j.Tasks, j.yield)
		}
		for _, n := range j.nodes {
			use[n] += j.yield * j.CPU
			memory[n] += j.Memory
		}
	}
	for n := range use {
		if use[n] > 1+1e-6 || memory[n] > 1+1e-6 {
			return fmt.Errorf("node %d: %g of its CPU and %g of its memory given away", n, use[n], memory[n])
		}
	}
	return nil
}

// accounts are integrals over time.
type accounts struct{ wanted, used, rate, seconds float64 }

// pass lets time pass until an instant.
func (a *accounts) pass(s *state, until float64) {
	d := until - s.now
	wanted := 0.0
	for _, j := range s.jobs {
		wanted += j.CPU * float64(j.Tasks)
		if !placed(j) {
			continue
		}
		wait := min(d, j.penalty)
		j.penalty -= wait
		progress := min(j.Run-j.done, (d-wait)*j.yield)
		j.done += progress
		a.used += progress * j.CPU * float64(j.Tasks)
		a.rate += progress
		a.seconds += d
		s.result.MinYield = min(s.result.MinYield, j.yield)
	}
	a.wanted += d * min(wanted, float64(s.Nodes))
	s.now = until
}

func (a *accounts) into(r *Result) {
	r.Idle = (a.wanted - a.used) / a.used
	r.MeanYield = a.rate / a.seconds
}
