package morpheus

import (
	"math"

	"evenkeel/forecast/periodic"
)

// chances to need more than is reserved that owners ask for.
var chances = []float64{0.01, 0.05, 0.1}

// borrowedChances are those asked for where jobs of few runs borrow from others.
var borrowedChances = []float64{0.003, 0.01, 0.05, 0.1}

// maxPromised runs of a job, the latest, are what a promise is learned from: a model is fitted 63 times.
const maxPromised = 60

// promise is what is reserved for a job whose owner asks for a chance (periodic.Learn): the weight of over-allocation is the job's own.
type promise struct {
	periodic.Model
	learned bool // no: its runs are too few or too unlike, and the most that they used is reserved
}

// promised are the promises to all contracts.
func (s *Study) promised(chance float64) (promises []promise, skylines [][]float64) {
	for i := range s.learned {
		c := &s.learned[i]
		m, err := periodic.Learn(c.past[max(0, len(c.past)-maxPromised):], periodic.Options{Miss: chance, Debts: true, Peers: s.peers, Steps: c.window()})
		p := promise{m, err == nil}
		if err != nil {
			p.Skyline = c.quantile(1)
		}
		promises, skylines = append(promises, p), append(skylines, p.Skyline)
	}
	return promises, skylines
}

// servedChance is what follows for the work of the next run where a chance was asked for (periodic.ToServe), as a mean over jobs.
func (s *Study) servedChance(chance float64) (mean float64) {
	for i := range s.learned {
		_, promised := periodic.ToServe(s.learned[i].past, nil, chance, 0)
		mean += promised / float64(len(s.learned))
	}
	return mean
}

// kept compares promises with the runs that are played: the chance that was promised, and the share of runs that needed more, as means over the jobs with a model.
func (s *Study) kept(promises []promise) (promised, more float64) {
	n := 0.0
	for i := range promises {
		p, future := &promises[i], s.learned[i].future
		if !p.learned || len(future) == 0 {
			continue
		}
		exceeded := 0.0
		for k := range future {
			usage := future[k].Usage
			if p.Score(usage[:min(len(usage), s.learned[i].window())]) > 1+done { // as those that were learned from
				exceeded++
			}
		}
		n++
		promised += p.Miss
		more += exceeded / float64(len(future))
	}
	if n == 0 {
		return math.NaN(), math.NaN()
	}
	return promised / n, more / n
}
