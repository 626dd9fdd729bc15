package ets

import (
	"fmt"
	"math"
)

// Bounds of smoothing parameters, R's usual ones: alpha in [low, high], beta in [low, alpha], gamma in [low, 1-alpha],
// phi in [phiLow, phiHigh].
const (
	low, high       = 1e-4, 0.9999
	phiLow, phiHigh = 0.8, 0.98

	linearSeasons = 24 // longest period whose initial seasons are solved for, and
	searchSeasons = 12 // searched for; longer ones are held at what a decomposition says
)

// Fit finds the parameters and the initial state that make ys most likely, NaN being values not measured, and
// returns the model after the last of them. It refuses series with fewer than two values more than parameters, models with any
// multiplicative part for values that are not above 0, and seasons of less than two periods. See Fitter.
func Fit(ys []float64, spec Spec) (*Model, error) {
	f, err := NewFitter(spec)
	if err != nil {
		return nil, err
	}
	m, err := New(spec, Params{Alpha: 0.5, Beta: 0.1, Gamma: 0.1, Phi: 0.95}, State{Level: 1, Growth: 1, Season: make([]float64, spec.Period)})
	if err != nil {
		return nil, err
	}
	return m, f.Fit(m, ys)
}

// Fitter fits models of one Spec, over and over, in memory of its own.
//
// With additive errors what is stated is linear in the initial state, so the initial state that is best for given smoothing
// parameters is solved for by least squares, and only one to four smoothing parameters are searched for. With
// multiplicative parts the search is for all, from the state that weighted least squares or a decomposition gives. The
// search is Nelder and Mead's, within R's usual bounds, from the best of a grid. The same series gives the same fit.
type Fitter struct {
	spec   Spec
	direct bool   // the initial state is solved for, not searched for
	fixed  bool   // the initial seasons are neither
	trial  *Model // run for each likelihood
	free   int    // initial states that are solved or searched for

	ys      []float64
	floor   float64 // squares below it are rounding
	state   State
	x       []float64
	starts  [][]float64
	values  []float64
	steps   []float64
	search  *simplex
	runs    []*Model // what each initial state does by itself, the last one: all that is not free
	normal  []float64
	right   []float64
	stated  []float64 // by each run
	weights []float64 // of squares, nil if all are 1
}

// searched is how many starts are searched from after the first, cold one.
const searched = 4

// NewFitter is a fitter of models of one kind.
func NewFitter(spec Spec) (*Fitter, error) {
	if err := spec.Check(); err != nil {
		return nil, err
	}
	f := &Fitter{spec: spec, direct: spec.Error == Additive, state: State{Season: make([]float64, spec.Period)}}
	f.fixed = spec.Period > searchSeasons
	if f.direct {
		f.fixed = spec.Period > linearSeasons
	}
	f.free = spec.states()
	if f.fixed {
		f.free -= spec.Period - 1
	}
	begin := State{Level: 1, Growth: 1, Season: make([]float64, spec.Period)}
	model := func(s Spec) *Model {
		m, _ := New(s, Params{Alpha: 0.5, Phi: 0.95}, begin) // spec was checked
		return m
	}
	f.trial = model(spec)
	if spec.linear() {
		plain := spec
		plain.Error = Additive
		for range f.free + 1 {
			f.runs = append(f.runs, model(plain))
		}
		f.normal = make([]float64, f.free*f.free)
		f.right = make([]float64, f.free)
		f.stated = make([]float64, f.free)
	}
	n := spec.smoothing()
	if !f.direct {
		n += f.free
	}
	f.search = newSimplex(n, f.cost)
	f.x, f.steps = make([]float64, n), make([]float64, n)
	for range searched {
		f.starts = append(f.starts, make([]float64, n))
	}
	f.values = make([]float64, searched)
	return f, nil
}

// Fit fits m, which must be of the fitter's kind, to ys: see the function Fit. An error leaves m as it was.
func (f *Fitter) Fit(m *Model, ys []float64) error {
	if err := f.take(m, ys); err != nil {
		return err
	}
	n := f.spec.smoothing()
	for i := range f.values {
		f.values[i] = math.Inf(1)
	}
	grid := [4][]float64{{0.02, 0.1, 0.3, 0.6, 0.95}, {0.02, 0.3}, {0.05, 0.5}, {0.85, 0.95}}
	var at [4]float64 // alpha, beta/alpha, gamma/(1-alpha), phi
	one := []float64{0}
	for i := range grid {
		if i == 1 && f.spec.Trend == None || i == 2 && f.spec.Season == None || i == 3 && !f.spec.Damped {
			grid[i] = one
		}
	}
	for _, at[0] = range grid[0] {
		for _, at[1] = range grid[1] {
			for _, at[2] = range grid[2] {
				for _, at[3] = range grid[3] {
					f.place(Params{at[0], at[0] * at[1], (1 - at[0]) * at[2], at[3]})
					f.keep(f.cost(f.x))
				}
			}
		}
	}
	best := math.Inf(1)
	for i, start := range f.starts {
		if math.IsInf(f.values[i], 1) {
			continue
		}
		if v := f.descend(start, 150*len(start), 1e-6); v < best {
			best = v
			copy(f.x, start)
		}
	}
	if math.IsInf(best, 1) {
		return fmt.Errorf("fit %v: no start has a likelihood", f.spec)
	}
	f.descend(f.x[:len(f.x)], 200*n+1000*(len(f.x)-n), 1e-9)
	f.finish(m)
	return nil
}

// Refit is a fit that begins at m's own parameters, and ends sooner: for a series that is the last one with a few values
// more. With additive errors it does not allocate.
func (f *Fitter) Refit(m *Model, ys []float64) error {
	if err := f.take(m, ys); err != nil {
		return err
	}
	f.place(m.par)
	if v := f.descend(f.x, 60*len(f.x), 1e-4); math.IsInf(v, 1) {
		return fmt.Errorf("fit %v again: the start has no likelihood", f.spec)
	}
	f.finish(m)
	return nil
}

// take checks and remembers a series.
func (f *Fitter) take(m *Model, ys []float64) error {
	if m.spec != f.spec {
		return fmt.Errorf("fit %v: the fitter is of %v", m.spec, f.spec)
	}
	n, squares := 0, 0.0
	for i, y := range ys {
		switch {
		case math.IsNaN(y):
			continue
		case math.IsInf(y, 0):
			return fmt.Errorf("fit %v: value %d is %v", f.spec, i, y)
		case y <= 0 && f.spec.multiplicative():
			return fmt.Errorf("fit %v: value %d is %v, must be above 0", f.spec, i, y)
		}
		n++
		squares += y * y
	}
	if need := f.trial.free() + 2; n < need {
		return fmt.Errorf("fit %v: %d values, %d are needed", f.spec, n, need)
	}
	if n < 2*f.spec.Period {
		return fmt.Errorf("fit %v: %d values are less than two periods", f.spec, n)
	}
	f.ys, f.floor, f.weights = ys, 1e-20*squares, nil
	f.begin()
	return nil
}

// keep puts f.x among the starts if its value is one of the least.
func (f *Fitter) keep(v float64) {
	worst := 0
	for i, w := range f.values {
		if w > f.values[worst] {
			worst = i
		}
	}
	if v < f.values[worst] {
		f.values[worst] = v
		copy(f.starts[worst], f.x)
	}
}

// descend searches from x: for smoothing parameters where the rest is solved for, else for all.
func (f *Fitter) descend(x []float64, calls int, tolerance float64) float64 {
	n := f.spec.smoothing()
	for i := range f.steps[:n] {
		f.steps[i] = 0.15
	}
	for i := range f.steps[n:] {
		f.steps[n+i] = 0.05
		if f.spec.linear() || i == 0 {
			f.steps[n+i] = 0.05 * math.Abs(f.state.Level)
		}
		if f.spec.Trend == Additive && i == 1 {
			f.steps[n+i] = 0.005*math.Abs(f.state.Level) + 0.1*math.Abs(f.state.Growth)
		}
	}
	return f.search.search(x, f.steps, calls, tolerance)
}

// finish runs m through the series with what was found.
func (f *Fitter) finish(m *Model) {
	f.cost(f.x)
	m.par = f.trial.par
	m.restart(f.trial.initial)
	for _, y := range f.ys {
		m.Update(y)
	}
}

// place puts parameters, and for a search of all the best initial state known for them, into f.x.
func (f *Fitter) place(p Params) {
	in := func(v, from, to float64) float64 {
		if !(to > from) {
			return 0
		}
		return math.Asin(math.Sqrt(min(1, max(0, (v-from)/(to-from)))))
	}
	f.x[0] = in(p.Alpha, low, high)
	i := 1
	if f.spec.Trend != None {
		f.x[i] = in(p.Beta, low, p.Alpha)
		i++
	}
	if f.spec.Season != None {
		f.x[i] = in(p.Gamma, low, 1-p.Alpha)
		i++
	}
	if f.spec.Damped {
		f.x[i] = in(p.Phi, phiLow, phiHigh)
		i++
	}
	if f.direct {
		return
	}
	f.begin()
	if f.spec.linear() {
		f.params(f.x)
		f.reweigh()
	}
	f.x[i] = f.state.Level
	i++
	if f.spec.Trend != None {
		f.x[i] = f.state.Growth
		i++
	}
	if f.spec.Season != None && !f.fixed {
		copy(f.x[i:], f.state.Season[:f.spec.Period-1])
	}
}

// params sets the trial's parameters to those of x. The square of a sine stays within bounds and reaches them.
func (f *Fitter) params(x []float64) (used int) {
	out := func(u, from, to float64) float64 {
		s := math.Sin(u)
		return from + (to-from)*s*s
	}
	p := Params{Alpha: out(x[0], low, high), Phi: 1}
	i := 1
	if f.spec.Trend != None {
		p.Beta = out(x[i], low, p.Alpha)
		i++
	}
	if f.spec.Season != None {
		p.Gamma = out(x[i], low, max(low, 1-p.Alpha))
		i++
	}
	if f.spec.Damped {
		p.Phi = out(x[i], phiLow, phiHigh)
		i++
	}
	f.trial.par = p
	return i
}

// cost is the negative log-likelihood at x; infinite where the model says what is not above 0 of values that are.
func (f *Fitter) cost(x []float64) float64 {
	i := f.params(x)
	if f.direct {
		f.solve()
	} else {
		f.state.Level = x[i]
		i++
		if f.spec.Trend != None {
			f.state.Growth = x[i]
			i++
		}
		if f.spec.Season != None && !f.fixed {
			rest := 0.0
			if f.spec.Season == Multiplicative {
				rest = float64(f.spec.Period)
			}
			for j, s := range x[i:] {
				f.state.Season[j] = s
				rest -= s
			}
			f.state.Season[f.spec.Period-1] = rest
		}
		if f.spec.Trend == Multiplicative && !(f.state.Growth > 0) || !(f.state.Level > 0) {
			return math.Inf(1)
		}
		if f.spec.Season == Multiplicative {
			for _, s := range f.state.Season {
				if !(s > 0) {
					return math.Inf(1)
				}
			}
		}
	}
	t := f.trial
	t.restart(f.state)
	for _, y := range f.ys {
		if fitted, _ := t.Update(y); f.spec.multiplicative() && !(fitted > 0) {
			return math.Inf(1)
		}
	}
	return 0.5*float64(t.n)*math.Log(max(t.squares, f.floorOf())) + t.logs
}

// floorOf are the squares that are rounding: of relative errors, or of values.
func (f *Fitter) floorOf() float64 {
	if f.spec.Error == Multiplicative {
		return 1e-20
	}
	return max(f.floor, 1e-300)
}
