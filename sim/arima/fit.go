package arima

import (
	"fmt"
	"math"
)

// Method is what a fit optimises.
type Method int

const (
	ML  Method = iota // the exact likelihood
	CSS               // the conditional sum of squares: quicker, cruder, for series without gaps
)

// Options of a fit. The zero value is a good one.
type Options struct {
	X           [][]float64 // regressors, one slice per regressor, each as long as the series, without gaps
	Method      Method
	Evaluations int     // most evaluations of the likelihood; 0 means 5,000, in a search 300 for its last fit
	Tolerance   float64 // gain in log-likelihood per value below which the optimiser rests, 0 means 1e-10
	StdErr      bool    // compute Model.StdErr, at the cost of some 2 k^2 evaluations for k coefficients

	// Starts is how many points a fit starts from, 0 means 4 and 10 is all there are. Likelihoods with moving averages
	// have several optima, and more starts find a better one. A warm fit has its one start, a candidate of a search too.
	Starts int

	rough bool // one-sided differences will do: for the candidates of a search
}

// largest absolute value that is taken for a measurement: squares and their sums must stay finite.
const largest = 1e150

// Fitter fits models and keeps its memory for the next fit. The zero value is ready. A Fitter serves one goroutine.
type Fitter struct {
	o       objective
	d       descent
	u, best []float64
	start   []float64
	long    longAR

	tried []Spec // by a search
	rough Model  // its candidates
}

// Fit is a fit with a Fitter of its own.
func Fit(y []float64, s Spec, opts Options) (*Model, error) {
	return new(Fitter).Fit(y, s, opts)
}

// Fit estimates the parameters of s from y (NaN: not measured) and returns the model at the end of y. It refuses
// series that are too short or not finite. A series that the model explains without error, such as a constant
// one, gets coefficients of 0, a variance of 0 and a log-likelihood of +Inf.
func (f *Fitter) Fit(y []float64, s Spec, opts Options) (*Model, error) {
	m := &Model{}
	if err := f.fit(m, y, s, opts, false); err != nil {
		return nil, err
	}
	return m, nil
}

// Refit fits m again to y, from its present parameters instead of from several points, and moves it to the end of y. It
// finds the optimum next to the present one, to a millionth or so of the log-likelihood. On an error m is as it was,
// unless the error is of the state (ErrCollinear).
func (f *Fitter) Refit(m *Model, y []float64, opts Options) error {
	return f.fit(m, y, m.Spec, opts, true)
}

func (f *Fitter) fit(m *Model, y []float64, s Spec, opts Options, warm bool) error {
	o := &f.o
	o.evaluations = 0
	if err := o.prepare(s, y, opts.X); err != nil {
		return err
	}
	o.css, o.current = opts.Method == CSS, false
	o.c.reset(s)
	n := s.coefficients()
	if o.css {
		if o.gaps {
			return fmt.Errorf("arima %s: the conditional sum of squares needs a series without gaps", s)
		}
		if o.n-len(o.delta)-o.c.p < n+len(o.level)+1 {
			return fmt.Errorf("arima %s: %d values: %w", s, o.used, ErrTooShort)
		}
	}
	limit, tol := opts.Evaluations, opts.Tolerance
	if limit <= 0 {
		limit = 5000
	}
	if tol <= 0 {
		tol = 1e-10
	}
	f.u, f.best, f.start = grow(f.u, n), grow(f.best, n), grow(f.start, n)
	clear(f.u)

	// Without coefficients first: whether the regressors can be distinguished, and whether anything is left to explain.
	plain := o.at(f.u)
	if math.IsInf(plain, 1) {
		return fmt.Errorf("arima %s: %w", s, ErrCollinear)
	}
	if o.explained(y) {
		f.adopt(m, s, f.u, 0)
		return f.finish(m, y, opts)
	}

	value := math.Inf(1)
	converged := false
	f.d.general = o.general
	try := func(known float64) {
		if o.general {
			known = math.NaN()
		}
		v, ok := f.d.minimise(o.at, f.u, known, limit-o.evaluations, tol, !opts.rough && (!warm || opts.StdErr))
		if !math.IsNaN(known) {
			o.evaluations++ // so that short ways change no budget
		}
		if v < value {
			value, converged = v, ok
			copy(f.best, f.u)
		}
	}
	if warm && m.Params.usable(s, len(opts.X)) {
		f.startFrom(s, &m.Params)
		try(math.NaN())
	} else {
		starts := opts.Starts
		if starts <= 0 {
			starts = 4
		}
		for i := 0; i < starts && (i == 0 || n > 0 && o.evaluations < limit); i++ {
			if known, ok := f.startAt(i); ok {
				try(known)
			}
		}
	}
	if math.IsInf(value, 1) {
		return fmt.Errorf("arima %s: no coefficients with a finite likelihood were found", s)
	}
	o.at(f.best)
	f.adopt(m, s, f.best, o.ssq/float64(o.terms))
	m.Converged = converged
	if err := f.finish(m, y, opts); err != nil {
		return err
	}
	if opts.StdErr {
		m.StdErr = f.standardErrors()
	}
	m.Evaluations = o.evaluations
	return nil
}

// explained says whether the last evaluation left no error but that of rounding.
func (o *objective) explained(y []float64) bool {
	var highest float64
	for _, v := range y {
		if a := math.Abs(v); a > highest {
			highest = a
		}
	}
	rms := o.scale * math.Sqrt(o.ssq/float64(o.terms))
	return rms <= 4e-16*highest*float64(1+len(o.delta)) || rms == 0
}

// startFrom sets u to the coefficients of a model of s.
func (f *Fitter) startFrom(s Spec, p *Params) {
	ar, ma, sar, sma := s.parts(f.start)
	copy(ar, p.AR)
	copy(ma, p.MA)
	copy(sar, p.SAR)
	copy(sma, p.SMA)
	f.o.c.untransform(f.start, f.u, 0.995)
}

// startAt sets u to the start of the given number, and says what the objective is there, if it is known, or else NaN. It is
// false if it is none worth trying.
func (f *Fitter) startAt(i int) (known float64, ok bool) {
	known = math.NaN()
	switch i {
	case 0:
		clear(f.u)
		if len(f.u) == 0 {
			return known, true
		}
		zero := f.o.at(f.u)
		if !f.long.start(&f.o, f.start) {
			clear(f.u)
			return zero, true
		}
		f.o.c.untransform(f.start, f.u, 0.9)
		if known = f.o.at(f.u); !(known < zero) {
			clear(f.u)
			known = zero
		}
	case 1:
		// An autoregression alone, as if there were no moving average; and the other way round where there is no
		// autoregression.
		if !f.long.alone(&f.o, f.start) {
			return known, false
		}
		f.o.c.untransform(f.start, f.u, 0.99)
	default:
		// A fixed lattice of the signs and sizes that optima have: no random numbers, so the same answer always.
		from := lattice[(i-2)%len(lattice)]
		ar, ma, sar, sma := f.o.spec.parts(f.u)
		for _, group := range [...]struct {
			u, from []float64
		}{{ar, from.ar[:]}, {sar, from.ar[:]}, {ma, from.ma[:]}, {sma, from.ma[:]}} {
			for j := range group.u {
				group.u[j] = group.from[j%len(group.from)]
			}
		}
	}
	return known, true
}

// lattice are points to start from, by the place of the coefficient among those of its kind: a persistent
// autoregression, moving averages near the edge and far from it, of either sign.
var lattice = [...]struct{ ar, ma [3]float64 }{
	{[3]float64{1.8, 0.2, -0.5}, [3]float64{0.1, -1.8, 0.1}},
	{[3]float64{1.8, -0.5, 0.2}, [3]float64{-0.5, 0.3, 0.1}},
	{[3]float64{0.35, 0.35, 0.35}, [3]float64{0.35, -0.35, 0.35}},
	{[3]float64{-0.35, 0.35, -0.35}, [3]float64{-0.35, -0.35, 0.35}},
	{[3]float64{1.5, 1.0, 0.5}, [3]float64{0.4, 1.0, 0.4}},
	{[3]float64{0.9, -0.9, 0.9}, [3]float64{0.9, -0.9, -0.9}},
	{[3]float64{-0.9, 0.4, 0.9}, [3]float64{-0.9, 0.4, -0.4}},
	{[3]float64{2.2, -1.0, 0.0}, [3]float64{1.5, 0.5, -1.0}},
}

// adopt gives m the coefficients that u stands for and the regression of the last evaluation, in the unit of the series.
func (f *Fitter) adopt(m *Model, s Spec, u []float64, sigma2 float64) {
	o := &f.o
	o.c.transform(u)
	ar, ma, sar, sma := s.parts(o.c.raw)
	m.Spec = s
	p := &m.Params
	p.AR, p.MA = append(p.AR[:0], ar...), append(p.MA[:0], ma...)
	p.SAR, p.SMA = append(p.SAR[:0], sar...), append(p.SMA[:0], sma...)
	p.Sigma2 = sigma2 * o.scale * o.scale
	beta := o.beta
	p.Mean = 0
	if s.Mean {
		p.Mean = beta[0] * o.scale
		beta = beta[1:]
	}
	p.Beta = p.Beta[:0]
	for j, b := range beta {
		b *= o.scale / o.xscale[j]
		p.Beta = append(p.Beta, b)
		if s.Mean && len(o.delta) == 0 {
			p.Mean -= b * o.xcenter[j]
		}
	}
	if s.Mean && len(o.delta) == 0 {
		p.Mean += o.center
	}
	m.edge = o.c.edge(u)
	m.Converged, m.StdErr = true, nil
}

// finish moves m to the end of y and sets its criteria.
func (f *Fitter) finish(m *Model, y []float64, opts Options) error {
	o := &f.o
	if opts.rough && !o.gaps && !o.css && !o.general {
		// Of a candidate only the criterion is asked; run would refuse coefficients that are not stationary.
		if !o.c.stationary() {
			return fmt.Errorf("arima %s: the coefficients %v are not those of a stationary process", m.Spec, o.c.raw)
		}
	} else if err := m.run(y, opts.X); err != nil {
		return err
	}
	loglik := math.Inf(1)
	if m.Params.Sigma2 > 0 {
		loglik = -0.5 * (float64(o.used)*(math.Log(2*math.Pi*m.Params.Sigma2)+1) + o.logdet)
	}
	m.criteria(loglik, o.used)
	m.Evaluations = o.evaluations
	return nil
}
