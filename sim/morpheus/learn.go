package morpheus

import (
	"math"
	"slices"
	"time"

	"evenkeel/forecast/periodic"
	"evenkeel/forecast/skyline"
)

const (
	// maxLearned runs of a job are learned from, the latest: a month of hourly ones.
	maxLearned = 744
	// unsteadyFrom is the spread (MAD) of the times at which inputs come, in lengths of the window, from which on a job pays for distance
	// from the middle of its window. The paper leaves the threshold open.
	unsteadyFrom = 0.02
)

// contract is what was learned of a job: when it may run, and what its past runs used.
type contract struct {
	job      *Job
	arrival  int // minutes after the start of its period
	due      int
	slack    float64 // median, in lengths of its runs
	unsteady bool
	past     [][]float64 // use by minute, of which nothing lies outside of the window
	future   []Run
}

// learn finds the period and the deadline of a job from its past runs; a reason, if it has none that could be acted on.
func learn(j *Job, train int) (contract, string) {
	past, future := j.split(train)
	c := contract{job: j, future: future}
	epoch := time.Unix(0, 0).UTC()
	minutes := func(m float64) time.Duration { return time.Duration(m * float64(time.Minute)) }
	starts := make([]time.Time, len(past))
	flows := make([]periodic.Dataflow, len(past))
	inputs := make([]float64, len(past))
	for i := range past {
		r := &past[i]
		period := epoch.Add(minutes(float64(j.Phase + r.Index*j.Period)))
		starts[i] = period.Add(minutes(r.Inputs))
		flows[i] = periodic.Dataflow{Period: period, Begin: starts[i], Inputs: starts[i], End: starts[i].Add(minutes(r.Length)), Read: period.Add(minutes(r.Read))}
		inputs[i] = r.Inputs
	}
	found := periodic.Patterns(starts, time.UTC)
	if len(found) == 0 || found[0].Period != minutes(float64(j.Period)) {
		return c, "its period was not found"
	}
	d, reason := periodic.DeadlineOfData(flows, found[0].Period)
	if reason != "" {
		return c, reason
	}
	c.arrival, c.due, c.slack = int(math.Ceil(d.Arrival.Minutes()-1e-9)), int(d.Due.Minutes()+1e-9), d.Slack
	c.due = min(c.due, c.arrival+j.Period)
	if c.due <= c.arrival {
		return c, "no minute lies between its inputs and its deadline"
	}
	c.unsteady = spread(inputs) > unsteadyFrom*float64(c.window())
	for _, r := range past[max(0, len(past)-maxLearned):] {
		c.past = append(c.past, r.Usage[:min(len(r.Usage), c.window())])
	}
	return c, ""
}

func (c *contract) window() int { return c.due - c.arrival }

// spread is the median absolute deviation from the median.
func spread(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	middle := v[len(v)/2]
	for i := range v {
		v[i] = math.Abs(v[i] - middle)
	}
	slices.Sort(v)
	return v[len(v)/2]
}

// fitted is the skyline of the paper's linear program.
func (c *contract) fitted(alpha, beta float64) ([]float64, error) {
	m, err := skyline.Fit(c.past, skyline.Options{Alpha: alpha, Beta: beta, BetaOfV: true, Debts: true})
	return m.Skyline, err
}

// peers are the jobs whose runs say what those of others may need.
func peers(contracts []contract) (out []periodic.Peer) {
	for i := range contracts {
		if l, ok := periodic.NewPeer(contracts[i].past); ok {
			out = append(out, l)
		}
	}
	return out
}

// serving is a fit that leaves nothing undone of the runs that have to be served for a chance to need more.
func (c *contract) serving(peers []periodic.Peer, chance float64) ([]float64, error) {
	with := *c
	with.past, _ = periodic.ToServe(c.past, peers, chance, c.window())
	return with.fitted(surestAlpha, paperBeta)
}

// quantile is the skyline that has the use of so many of the past runs, step by step; 1 is the maximum.
func (c *contract) quantile(share float64) []float64 {
	return c.byStep(func(sorted []float64) float64 {
		return sorted[min(len(sorted)-1, max(0, int(math.Ceil(share*float64(len(sorted))))-1))]
	})
}

// mean is the mean of the past runs, step by step.
func (c *contract) mean() []float64 {
	return c.byStep(func(sorted []float64) (m float64) {
		for _, v := range sorted {
			m += v / float64(len(sorted))
		}
		return m
	})
}

func (c *contract) byStep(of func(sorted []float64) float64) []float64 {
	steps := 0
	for _, r := range c.past {
		steps = max(steps, len(r))
	}
	out, column := make([]float64, steps), make([]float64, len(c.past))
	for k := range out {
		for i, r := range c.past {
			if column[i] = 0; k < len(r) {
				column[i] = r[k]
			}
		}
		slices.Sort(column)
		out[k] = of(column)
	}
	return out
}
