package skyline

import (
	"errors"
	"fmt"
	"math"
)

// flowBits is how many bits the flows of the network may take.
const flowBits = 60

// minAlpha is the smallest Alpha above 0: flows are whole numbers.
const minAlpha = 1e-9

// Fit finds the skyline of minimum cost for the runs: what each used per step, starts aligned; shorter runs count as 0
// behind their ends. It solves the linear program of sec. 5 of the paper exactly:
//
//	minimise  alpha*A_o + (1-alpha)*A_u + weight*eps
//	A_o = 1/N sum_ik (s_k - s_ik)+          A_u = 1/N sum_i D_iK,  D_ik = (D_i,k-1 + s_ik - s_k)+
//	eps = 1/N sum_i [sum_k (s_ik - s_k)+ / sum_k s_ik]
//
// Unrolled, a debt is the largest suffix sum, D_iK = max(0, max_t sum_{k>=t} (s_ik - s_k)), and all else is a sum of
// functions of single steps. The dual is a flow of minimum cost through the steps (network).
//
// Optima need not be unique.
func Fit(runs [][]float64, o Options) (Model, error) {
	p, err := newProblem(runs, o)
	if err != nil {
		return Model{}, fmt.Errorf("fitting a skyline: %w", err)
	}
	weight := o.Beta
	if o.BetaOfV && o.Beta > 0 {
		weight *= p.fit(0).Objective
	}
	return p.fit(weight), nil
}

// problem is the runs, all of one length.
type problem struct {
	n, k     int
	options  Options
	use      []float64 // by run, then step
	censored []bool    // the same; nil: none
	work     []float64 // the sum of use from this step on
}

func newProblem(runs [][]float64, o Options) (*problem, error) {
	if err := o.valid(len(runs)); err != nil {
		return nil, err
	}
	p := &problem{n: len(runs), options: o}
	for _, r := range runs {
		p.k = max(p.k, len(r))
	}
	if p.k == 0 {
		return nil, errors.New("no run has a step")
	}
	p.use, p.work = make([]float64, p.n*p.k), make([]float64, p.n*p.k)
	if len(o.Censored) > 0 {
		p.censored = make([]bool, p.n*p.k)
	}
	largest := math.MaxFloat64 / float64(p.n) / float64(p.k) / 16
	for i, r := range runs {
		copy(p.use[i*p.k:], r)
		if i < len(o.Censored) {
			copy(p.censored[i*p.k:(i+1)*p.k], o.Censored[i])
		}
		sum := 0.0
		for t := p.k - 1; t >= 0; t-- {
			v := p.use[i*p.k+t]
			if !(v >= 0 && v <= largest) {
				return nil, fmt.Errorf("run %d uses %v in step %d: not between 0 and %.3g", i+1, v, t+1, largest)
			}
			sum += v
			p.work[i*p.k+t] = sum
		}
	}
	return p, nil
}

func (o *Options) valid(runs int) error {
	switch {
	case !(o.Alpha >= 0 && o.Alpha <= 1):
		return fmt.Errorf("alpha %v is not between 0 and 1", o.Alpha)
	case o.Alpha > 0 && o.Alpha < minAlpha:
		return fmt.Errorf("alpha %v is above 0 and below %v", o.Alpha, minAlpha)
	case !(o.Beta >= 0) || math.IsInf(o.Beta, 1):
		return fmt.Errorf("beta %v is no finite number from 0 on", o.Beta)
	case runs == 0:
		return errors.New("there is no run")
	case len(o.Censored) > runs:
		return fmt.Errorf("there are censored steps of %d runs, but %d runs", len(o.Censored), runs)
	}
	return nil
}

// fit solves with that weight of eps.
func (p *problem) fit(weight float64) Model {
	if p.options.Alpha == 0 {
		return p.model(p.maximum(), weight, 0)
	}
	short := p.shortfallPrices(weight)
	if !p.options.Debts {
		for i := range short {
			short[i] += 1 - p.options.Alpha
		}
	}
	costs := make([]stepCost, p.k)
	for t := range costs {
		costs[t] = newStepCost(func(i int) (float64, bool) {
			return p.use[i*p.k+t], p.censored != nil && p.censored[i*p.k+t]
		}, p.options.Alpha, short)
	}
	if p.options.Debts {
		s, excess := p.withDebts(costs)
		return p.model(s, weight, excess)
	}
	s := make([]float64, p.k)
	for t := range s {
		s[t] = costs[t].minimum(0)
	}
	return p.model(s, weight, 0)
}

// shortfallPrices is what a unit costs by which run i falls short in its own step: weight / W_i.
func (p *problem) shortfallPrices(weight float64) []float64 {
	prices := make([]float64, p.n)
	for i := range prices {
		if w := p.work[i*p.k]; w > 0 {
			prices[i] = weight / w
		}
	}
	return prices
}

func (p *problem) maximum() []float64 {
	s := make([]float64, p.k)
	for i := range p.n {
		for t := range s {
			s[t] = max(s[t], p.use[i*p.k+t])
		}
	}
	return s
}

// withDebts returns the optimum, and by how much N times its objective may be above the minimum.
func (p *problem) withDebts(costs []stepCost) (s []float64, excess float64) {
	total := float64(p.n) * p.options.Alpha
	supply := min(1-p.options.Alpha, total) // no step passes more than total
	scale := math.Ldexp(1, flowBits) / (float64(p.n)*supply + total)
	steps := make([]stepArc, p.k)
	for t := range steps {
		steps[t] = costs[t].arc(scale)
	}
	w := newNetwork(p.n, p.k, p.work, steps, int64(supply*scale))
	w.solve()
	s = make([]float64, p.k)
	for t := range s {
		v := p.n + t
		s[t] = max(0, w.potential[v]-w.potential[v+1])
		if a := &w.steps[t]; a.inTree {
			s[t] = a.price[a.level]
		}
	}
	return s, p.certify(w, s, costs, scale)
}

// certify bounds what the skyline costs above the minimum, from the flows of the network, which are feasible prices: the
// sum of what each step and each run is away from its best answer to these prices (Fenchel). No term is below 0.
func (p *problem) certify(w *network, s []float64, costs []stepCost, scale float64) (excess float64) {
	left := make([]float64, p.k+1) // the skyline's work from step t on
	for t := p.k - 1; t >= 0; t-- {
		left[t] = left[t+1] + s[t]
	}
	price := make([]float64, p.k)
	for i := range p.n {
		row := p.work[i*p.k : (i+1)*p.k]
		debt := 0.0
		for t, c := range row {
			debt = max(debt, c-left[t])
		}
		excess += (1 - p.options.Alpha) * debt
		w.sent(i, func(t int, flow int64) {
			f := float64(flow) / scale
			price[t] += f
			excess -= f * (row[t] - left[t])
		})
	}
	for t := range s {
		if t > 0 {
			price[t] += price[t-1]
		}
		excess += costs[t].excess(s[t], costs[t].minimum(price[t]), price[t])
	}
	return max(0, excess)
}

// model computes the terms of the objective as the paper defines them, from the runs and the skyline alone.
func (p *problem) model(s []float64, weight, excess float64) Model {
	m := Model{Skyline: s, Weight: weight}
	n, meanWork := float64(p.n), 0.0
	for i := range p.n {
		debt, short := 0.0, 0.0
		for t, r := range s {
			v := p.use[i*p.k+t]
			short += max(0, v-r)
			debt = max(0, debt+v-r)
			if p.censored != nil && p.censored[i*p.k+t] {
				v *= growth
			}
			m.Over += max(0, r-v) / n
		}
		if !p.options.Debts {
			debt = short
		}
		m.Under += debt / n
		if w := p.work[i*p.k]; w > 0 {
			m.Eps += short / w / n
			meanWork += w / n
		}
	}
	m.Objective = p.options.Alpha*m.Over + (1-p.options.Alpha)*m.Under + weight*m.Eps
	if excess > 0 {
		m.Gap = excess / n / max(m.Objective, 1e-9*meanWork)
	}
	return m
}
