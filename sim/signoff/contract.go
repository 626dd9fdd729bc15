package signoff

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"evenkeel/cluster/scheduler/reservation"
	"evenkeel/forecast/periodic"
)

// trainShare of a job's runs, and at least periodic.MinRuns, are learned from; the others are played (sec. 9.1 learns from 70% of the time).
const trainShare = 0.7

// arrivalAt is the percentile of the begins of runs that a slot waits for (sec. 4).
const arrivalAt = 0.95

// run is one run of a job, in steps after the begin of its period.
type run struct {
	*periodic.Recorded
	period time.Time // its begin, on a step of the agenda
}

// contract is what was learned of a job.
type contract struct {
	job          periodic.Job
	runs         []run           // whose use is known, in order of time
	learned      int             // of them; the others are played
	peers        []periodic.Peer // other jobs of the same owner
	phase        int             // step of the agenda at which its first period starts
	period       int             // steps
	arrival, due int             // steps after the begin of a period
	deadline     time.Duration
	source       string // of the deadline
	miss         float64
	count        int     // VMs
	cpu, memory  float64 // declared, of all its VMs; 0: not known
	request      reservation.Request
}

// trainedOn is how many of n runs are learned from.
func trainedOn(n int) int {
	return min(n, max(periodic.MinRuns, int(math.Ceil(trainShare*float64(n)))))
}

// peersOf are the other jobs of a job's owner, with the runs that are learned from.
func peersOf(jobs []periodic.Job, of int, runs []periodic.Recorded) (out []periodic.Peer) {
	for i := range jobs {
		if i == of || jobs[i].Owner != jobs[of].Owner {
			continue
		}
		var use [][]float64
		for _, k := range jobs[i].Runs {
			if len(runs[k].Usage) > 0 {
				use = append(use, runs[k].Usage)
			}
		}
		if p, ok := periodic.NewPeer(use[:trainedOn(len(use))]); ok {
			out = append(out, p)
		}
	}
	return out
}

// clockSeconds are those of a zone's wall clock since 1970.
func clockSeconds(t time.Time, zone *time.Location) int {
	_, offset := t.In(zone).Zone()
	return int(t.Unix()) + offset
}

// occurrences sets the period of each run of a job: the nearest of its recurrence, rounded down to a step.
func (c *contract) occurrences(all []periodic.Recorded, o *Options) error {
	members := c.job.Runs
	first, last := all[members[0]].Begin, all[members[len(members)-1]].Begin
	at, err := c.job.Recurrence.Between(first.Add(-c.job.Period), last.Add(c.job.Period), c.job.Clock(o.Zone))
	if err != nil {
		return err
	}
	if len(at) == 0 {
		return errors.New("its rule has no time near its runs")
	}
	step := int(o.Step)
	for _, i := range members {
		r := &all[i]
		near := slices.MinFunc(at, func(a, b time.Time) int { return int(a.Sub(r.Begin).Abs() - b.Sub(r.Begin).Abs()) })
		seconds := clockSeconds(near, o.Zone)
		c.phase = seconds / step
		c.runs = append(c.runs, run{r, near.Add(-time.Duration(seconds%step) * time.Second)})
	}
	return nil
}

// findDeadline takes the operator's word, then the owner's, then what happened to the outputs of past runs, then the job that follows.
func (c *contract) findDeadline(all []periodic.Recorded, jobs []periodic.Job, o *Options) string {
	var flows []periodic.Dataflow
	var begins []float64
	for _, r := range c.runs {
		flows = append(flows, periodic.Dataflow{Period: r.period, Begin: r.From(), End: r.End, Inputs: r.Inputs, Read: r.Read})
		begins = append(begins, r.Begin.Sub(r.period).Seconds())
		if r.Deadline > 0 {
			c.deadline, c.source = r.Deadline, "declared"
		}
	}
	slices.Sort(begins)
	arrival := max(0, begins[min(len(begins)-1, int(math.Ceil(arrivalAt*float64(len(begins))))-1)])
	c.arrival = int(math.Ceil(arrival/o.Step - 1e-9))
	if d, ok := o.Deadlines[c.job.Name]; ok {
		c.deadline, c.source = d, "operator"
	}
	reason := ""
	if c.deadline == 0 {
		var d periodic.Deadline
		if d, reason = periodic.DeadlineOfData(flows, c.job.Period); reason == "" {
			c.deadline, c.source = d.Due, d.Source
		}
	}
	for i := range jobs {
		other := &jobs[i]
		if c.source != "" && c.source != "follower" || other.Key == c.job.Key {
			continue
		}
		var follows []time.Time
		for _, at := range other.Runs {
			follows = append(follows, all[at].Begin)
		}
		if d, no := periodic.DeadlineOfFollower(flows, follows, c.job.Period); no == "" && (c.deadline == 0 || d.Due < c.deadline) {
			c.deadline, c.source = d.Due, d.Source
		}
	}
	if c.deadline == 0 {
		return "it has no deadline: none is declared, " + reason + ", and no other job follows it at a steady time"
	}
	c.due = int(c.deadline.Seconds()/o.Step + 1e-9)
	if c.due <= c.arrival || c.due > c.arrival+c.period {
		return fmt.Sprintf("its deadline of %v is not within one period after %v, by when its runs have begun", c.deadline, time.Duration(float64(c.arrival)*o.Step)*time.Second)
	}
	return ""
}

// window is how many steps lie between its begin and its deadline.
func (c *contract) window() int { return c.due - c.arrival }

// learn fits what a run needs to the earlier runs; a reason, and what would help, if it cannot.
func (c *contract) learn(o *Options) (reason string, changes []string) {
	c.runs = slices.DeleteFunc(c.runs, func(r run) bool { return len(r.Usage) == 0 })
	n := len(c.runs)
	if n < periodic.MinRuns {
		return fmt.Sprintf("the use of %d of its runs is known, and %d are needed", n, periodic.MinRuns), nil
	}
	c.learned = trainedOn(n)
	var lengths []int
	for _, r := range c.runs[:c.learned] {
		lengths = append(lengths, len(r.Usage))
	}
	slices.Sort(lengths)
	// What lies behind the deadline is not learned from, so only the share of runs that may miss may reach there.
	if longest := lengths[int(math.Ceil((1-o.Miss)*float64(c.learned)))-1]; longest > c.window() {
		reason = fmt.Sprintf("its runs take up to %v with all they ask for, and %v lie between the begin of a run and its deadline", seconds(float64(longest)*o.Step), seconds(float64(c.window())*o.Step))
		if longest <= c.period {
			changes = append(changes, c.later(c.arrival+longest, o))
		}
		return reason, changes
	}
	var cpu, memory [][]float64
	var censored [][]bool
	measured := true
	for _, r := range c.runs[:c.learned] {
		cut := func(v []float64) []float64 { return v[:min(len(v), c.window())] }
		cpu, memory = append(cpu, cut(r.Usage)), append(memory, cut(r.MemoryUsage))
		censored = append(censored, r.Throttled[:min(len(r.Throttled), c.window())])
		measured = measured && len(r.MemoryUsage) > 0
		c.count = max(c.count, r.Count)
		c.cpu, c.memory = max(c.cpu, float64(r.Count)*r.CPU), max(c.memory, float64(r.Count)*r.Memory)
	}
	of, err := periodic.Learn(cpu, periodic.Options{Miss: o.Miss, Debts: true, Censored: censored, Peers: c.peers, Steps: c.window()})
	if err != nil {
		return "no model of its CPU: " + err.Error(), nil
	}
	c.miss = of.Miss
	room := slices.Repeat([]float64{c.memory}, len(of.Skyline))
	if measured {
		m, err := periodic.Learn(memory, periodic.Options{Miss: o.Miss})
		if err != nil {
			return "no model of its memory: " + err.Error(), nil
		}
		room, c.miss = m.Skyline, max(c.miss, m.Miss)
	}
	c.request = reservation.Request{Name: c.job.Name + "\x00" + c.job.Owner + "\x00" + c.job.Kind, Period: c.period, Phase: c.phase, Earliest: c.arrival, Due: c.due, MinYield: o.MinYield}
	for k := range max(len(of.Skyline), len(room)) {
		s := reservation.Stage{VMs: c.count}
		if k < len(of.Skyline) {
			s.Cores = bounded(of.Skyline[k], c.cpu)
		}
		if k < len(room) {
			s.Memory = bounded(room[k], c.memory)
		}
		c.request.Stages = append(c.request.Stages, s)
	}
	return "", nil
}

// bounded bounds what is reserved by what is declared, which VMs cannot exceed; 0: not known.
func bounded(v, declared float64) float64 {
	if declared > 0 {
		return min(v, declared)
	}
	return v
}

// asDeclared is the request of a run without a model: all that was declared, from its begin on for as long as the longest run took.
func (c *contract) asDeclared() reservation.Request {
	longest, cores, bytes := 1, c.cpu, c.memory
	for _, r := range c.runs {
		longest = max(longest, len(r.Usage))
		if c.cpu == 0 {
			cores = max(cores, slices.Max(r.Usage))
		}
		if c.memory == 0 && len(r.MemoryUsage) > 0 {
			bytes = max(bytes, slices.Max(r.MemoryUsage))
		}
	}
	longest = min(longest, c.period)
	q := c.request
	q.Due, q.MinYield = q.Earliest+longest, 1
	q.Stages = slices.Repeat([]reservation.Stage{{VMs: c.count, Cores: cores, Memory: bytes}}, longest)
	return q
}
