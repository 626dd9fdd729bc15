package morpheus

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

const (
	estimatorMB   = 8192 // of a container of TPC-H in the Resource Estimator's runs
	estimatorStep = 5    // seconds
	maxRunSteps   = 1 << 16
	minRecorded   = 12 // runs: eight of them are learned from
)

// ParseRuns reads runs in the form of Hadoop's Resource Estimator: a name, then megabytes:second in steps of 5 s, with bars between. It returns containers by minute.
func ParseRuns(file []byte) (runs [][]float64, err error) {
	for n, line := range strings.Split(strings.TrimSpace(string(file)), "\n") {
		_, steps, found := strings.Cut(line, " ")
		if !found || strings.HasPrefix(line, "#") {
			continue
		}
		var run []float64
		for k, step := range strings.Split(strings.Trim(steps, "| \r"), "|") {
			megabytes, _, _ := strings.Cut(step, ":")
			v, err := strconv.ParseFloat(megabytes, 64)
			if err != nil || !(v >= 0 && v <= 1<<40) || k == maxRunSteps {
				return nil, fmt.Errorf("line %d, step %d: %q is no megabytes:second", n+1, k+1, step)
			}
			if k%(60/estimatorStep) == 0 {
				run = append(run, 0)
			}
			run[len(run)-1] += v / estimatorMB * estimatorStep / 60
		}
		runs = append(runs, run)
	}
	if len(runs) < minRecorded {
		return nil, fmt.Errorf("%d runs, and %d are needed", len(runs), minRecorded)
	}
	return runs, nil
}

// NewRunsStudy makes hourly queries of the recorded runs of one: which of them are learned from is drawn by seed, 70% and the same for all jobs, and the others are played, in an order
// of each job. Sizes are those of figure 12's queries; slack, phase and what owners ask for are drawn as elsewhere. Inputs are there in time.
func NewRunsStudy(o Options, runs [][]float64) (*Study, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(o.Seed, 0x72756e73))
	order := rng.Perm(len(runs))
	train := int(math.Round(trainShare * float64(len(runs))))
	peak, lengths := 0.0, []float64{}
	for _, at := range order[:train] {
		for _, v := range runs[at] {
			peak = max(peak, v)
		}
		lengths = append(lengths, float64(len(runs[at])))
	}
	slices.Sort(lengths)
	typical := lengths[len(lengths)/2]
	if typical > queryPeriod-2 || !(peak > 0) {
		return nil, fmt.Errorf("recorded runs: a typical one takes %v minutes and %v containers, and comes every %d minutes", typical, peak, queryPeriod)
	}
	s := &Study{Options: o, fits: map[string][][]float64{}, jobs: make([]Job, o.Jobs)}
	for i := range s.jobs {
		j := &s.jobs[i]
		*j = Job{Name: fmt.Sprintf("query-%03d", i), Period: queryPeriod}
		if rng.Float64() >= fullHour {
			j.Phase = rng.IntN(queryPeriod)
		}
		slack := math.Inf(1)
		for typical*(1+slack) > queryPeriod-1 {
			slack = slackMedian * math.Exp(slackSpread*rng.NormFloat64())
		}
		times := query.containers / peak * math.Exp(sizeSpread*rng.NormFloat64())
		j.Peak = max(1, int(math.Round(times*peak)))
		j.User = max(1, int(math.Round(float64(j.Peak)*math.Exp(userMean+userSpread*rng.NormFloat64()))))
		c := contract{job: j, due: 1 + int(math.Ceil(typical*(1+slack))), slack: slack, arrival: 1}
		add := func(at, index int) Run {
			r := Run{Index: index, Inputs: 1, Length: float64(len(runs[at]))}
			for _, v := range runs[at] {
				r.Usage = append(r.Usage, times*v)
			}
			j.Runs = append(j.Runs, r)
			return r
		}
		for k, x := range rng.Perm(train) {
			r := add(order[x], k)
			c.past = append(c.past, r.Usage[:min(len(r.Usage), c.window())])
		}
		for k, x := range rng.Perm(len(runs) - train) {
			c.future = append(c.future, add(order[train+x], train+k))
		}
		s.learned = append(s.learned, c)
	}
	s.peers = peers(s.learned)
	s.byOwners = byUsers(s.learned, 1)
	return s, nil
}
