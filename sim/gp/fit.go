package gp

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/optimize"
)

// Prior is what is believed of one hyper-parameter's logarithm before any observation: a normal distribution, between
// bounds. It keeps the search from where the evidence is flat: a length scale far beyond all distances, a noise far
// below what a float64 can show.
type Prior struct {
	Mean, Deviation float64 // Deviation +Inf: all values within the bounds are equally likely
	Low, High       float64
}

// wall is how steeply the objective rises beyond a bound, per squared distance. The evidence itself counts there as
// at the bound.
const wall = 100

// penalty is minus the logarithm of the prior, up to a constant, with its derivative; at is v within the bounds.
func (p Prior) penalty(v float64) (cost, slope, at float64) {
	z := (v - p.Mean) / p.Deviation
	cost, slope = z*z/2, z/p.Deviation
	at = min(max(v, p.Low), p.High)
	if beyond := v - at; beyond != 0 {
		cost += wall * beyond * beyond
		slope += 2 * wall * beyond
	}
	return cost, slope, at
}

func (p Prior) check() error {
	if !(p.Low <= p.High && -maxLog <= p.Low && p.High <= maxLog && p.Deviation > 0 && math.Abs(p.Mean) <= maxLog) {
		return fmt.Errorf("gp: prior %+v: want Low <= High within ±%v and a deviation above 0", p, float64(maxLog))
	}
	return nil
}

// Effort bounds one search for hyper-parameters.
type Effort struct {
	Evaluations int     // of the evidence with its gradient, at most, of all starts together
	Gradient    float64 // a start is done when no derivative exceeds this: nats per e-fold of a hyper-parameter
}

// Maximize looks for the hyper-parameters of the greatest evidence plus log prior, by BFGS with analytic gradients,
// from each of the starts in turn, and returns the best with its evidence (without the prior). One prior per
// hyper-parameter. A start from which nothing can be evaluated is passed over; if that is all of them, their last error
// is returned. Same input, same result. It undoes Condition.
func (r *Regression) Maximize(starts []Hyper, priors []Prior, effort Effort) (Hyper, float64, error) {
	if len(starts) == 0 {
		return nil, 0, fmt.Errorf("gp: no start")
	}
	if len(priors) != r.kernel.Hypers() {
		return nil, 0, fmt.Errorf("gp: %d priors for %d hyper-parameters", len(priors), r.kernel.Hypers())
	}
	for _, p := range priors {
		if err := p.check(); err != nil {
			return nil, 0, err
		}
	}
	s := search{r: r, priors: priors, left: effort.Evaluations, within: effort.Gradient,
		at: make(Hyper, len(priors)), best: make(Hyper, len(priors)), cost: math.Inf(1)}
	for i, start := range starts {
		if len(start) != len(priors) {
			return nil, 0, fmt.Errorf("gp: start of %d hyper-parameters, the kernel has %d", len(start), len(priors))
		}
		// What is left is shared fairly with the starts to come.
		s.descend(start, s.left/(len(starts)-i))
	}
	if math.IsInf(s.cost, 1) {
		if s.err == nil {
			s.err = fmt.Errorf("gp: no evaluation was allowed")
		}
		return nil, 0, s.err
	}
	return s.best, s.evidence, nil
}

// search is the state of one Maximize. Costs are minus log evidence minus log prior.
type search struct {
	r      *Regression
	priors []Prior
	left   int
	within float64
	at     Hyper

	best           Hyper
	cost, evidence float64
	err            error
}

// evaluate fills the cost and the gradient at loc.X, and keeps the best point of all.
func (s *search) evaluate(loc *optimize.Location) bool {
	s.left--
	penalty := 0.0
	for i, p := range s.priors {
		var cost float64
		cost, _, s.at[i] = p.penalty(loc.X[i])
		penalty += cost
	}
	evidence, err := s.r.Evidence(s.at, loc.Gradient)
	if err != nil {
		s.err = err
		return false
	}
	loc.F = penalty - evidence
	for i, p := range s.priors {
		_, slope, at := p.penalty(loc.X[i])
		if at != loc.X[i] {
			loc.Gradient[i] = 0 // the evidence does not change beyond a bound
		}
		loc.Gradient[i] = slope - loc.Gradient[i]
		if math.IsNaN(loc.Gradient[i]) || math.IsInf(loc.Gradient[i], 0) {
			s.err = fmt.Errorf("gp: the gradient at %v is %v", []float64(s.at), loc.Gradient)
			return false
		}
	}
	if loc.F < s.cost {
		s.cost, s.evidence = loc.F, evidence
		copy(s.best, s.at)
	}
	return true
}

// descend runs BFGS from start with at most this many evaluations. It drives the steps of gonum itself:
// optimize.Minimize would run them in goroutines.
func (s *search) descend(start Hyper, evaluations int) {
	loc := &optimize.Location{X: make([]float64, len(start)), Gradient: make([]float64, len(start))}
	for i, p := range s.priors {
		v := start[i]
		if math.IsNaN(v) {
			v = p.Mean
		}
		_, _, loc.X[i] = p.penalty(v)
	}
	if evaluations < 1 || !s.evaluate(loc) || s.flat(loc) {
		return
	}
	steps := optimize.LinesearchMethod{NextDirectioner: &optimize.BFGS{}, Linesearcher: &optimize.MoreThuente{DecreaseFactor: 1e-4, CurvatureFactor: 0.9}}
	op, err := steps.Init(loc)
	for used := 1; err == nil; op, err = steps.Iterate(loc) {
		if op == optimize.MajorIteration {
			if s.flat(loc) {
				return
			}
			continue
		}
		if used >= evaluations || !s.evaluate(loc) {
			return
		}
		used++
	}
}

func (s *search) flat(loc *optimize.Location) bool {
	for _, g := range loc.Gradient {
		if math.Abs(g) > s.within {
			return false
		}
	}
	return true
}

// Cold and Warm are efforts for a search from several places and from hyper-parameters found before.
var (
	Cold = Effort{Evaluations: 90, Gradient: 0.2}
	Warm = Effort{Evaluations: 20, Gradient: 0.1}
)
