package arima

import (
	"fmt"
	"math"
	"slices"
)

// Criterion is what a search makes least.
type Criterion int

const (
	AICc Criterion = iota // Akaike's, corrected for short series: the default
	AIC
	BIC
)

// Bounds are what a search may try.
type Bounds struct {
	P, Q   int // highest orders
	SP, SQ int // highest seasonal orders
	SD     int // seasonal differences: taken as given
	Period int

	// D is the number of differences; -1 lets KPSS tests at 5% decide, up to two (Differences).
	D int

	// Drift: with one difference in all, models with a drift are tried as well. Without differences a model always has
	// its mean, with two or more never.
	Drift bool

	Criterion Criterion

	// Full tries every order within the bounds; else the search walks from few good guesses to better neighbours
	// (Hyndman and Khandakar 2008), which tries a third as many and seldom ends elsewhere.
	Full bool

	// From is where a walk begins, with its coefficients: the model that was found for the series before. nil begins
	// at the usual guesses.
	From *Model

	// Models bounds how many are fitted, 0 means 40. Evaluations bounds how often a likelihood is evaluated in all, 0
	// means 2,000: some 10 ms for 200 values. A search that runs out of either returns the best that it has seen.
	Models, Evaluations int
}

// Shares of a search's evaluations. A candidate that takes more than roughly wanders along a ridge where two roots nearly
// cancel, and a smaller one is as good.
const (
	roughly = 150 // most for one candidate
	finally = 300 // most for the last fit
)

// Found is what a search did.
type Found struct {
	*Model
	Tried   int // models that were fitted
	Refused int // of them, those that could not be, or that ended next to a unit root
	Spent   int // evaluations of likelihoods, the last fit's included
}

// Search is a search with a Fitter of its own.
func Search(y []float64, b Bounds, opts Options) (Found, error) {
	return new(Fitter).Search(y, b, opts)
}

// edgy is the partial autocorrelation past which a model is held to be next to a unit root, and set aside for any other:
// it says that the number of differences is wrong, and its forecasts are fragile.
const edgy = 0.999

// candidate is what a search knows of a structure.
type candidate struct {
	spec  Spec
	score float64
	edgy  bool
	raw   []float64
}

func (c *candidate) better(than *candidate) bool {
	if c.edgy != than.edgy {
		return than.edgy
	}
	if c.score != than.score {
		return c.score < than.score
	}
	return c.spec.coefficients() < than.spec.coefficients() // all explain it without error
}

// Search fits models within the bounds to y and returns the one of the least criterion. Candidates are fitted roughly
// and the best of them then further. It refuses what Fit refuses; series that only the smaller models can be
// fitted to get one of these.
func (f *Fitter) Search(y []float64, b Bounds, opts Options) (Found, error) {
	f.o.searching, f.o.kept = !f.o.general, false
	defer func() { f.o.searching, f.o.kept = false, false }()
	if opts.Evaluations <= 0 {
		opts.Evaluations = finally
	}
	x := newExploration(f, y, b, opts)
	defer func() { f.tried = x.tried[:0] }()
	switch from := b.From; {
	case b.Full:
		x.tryAll()
	case from != nil && from.Spec.D == x.base.D && from.Spec.SD == b.SD && from.Spec.Period == x.base.Period && x.tryFrom(from):
		x.walk()
	default:
		x.tryUsual()
		x.walk()
	}
	if x.best == nil {
		if x.failure == nil {
			x.failure = fmt.Errorf("arima: the bounds %+v allow no model", x.b)
		}
		return x.found, x.failure
	}
	m := &Model{Spec: x.best.spec}
	f.o.c.reset(m.Spec)
	ar, ma, sar, sma := m.Spec.parts(x.best.raw)
	m.Params = Params{AR: ar, MA: ma, SAR: sar, SMA: sma, Beta: make([]float64, len(opts.X)), Sigma2: 1}
	if err := f.fit(m, y, m.Spec, opts, true); err != nil {
		return x.found, err
	}
	x.found.Model = m
	x.found.Spent += m.Evaluations
	return x.found, nil
}

// exploration is a search that goes on.
type exploration struct {
	f     *Fitter
	y     []float64
	b     Bounds
	base  Spec    // of every candidate: its differences
	rough Options // of fits of candidates
	drift bool    // with and without are tried

	found         Found
	tried         []Spec
	best, scratch *candidate
	failure       error // why the first candidates could not be fitted
}

func newExploration(f *Fitter, y []float64, b Bounds, opts Options) *exploration {
	if b.Models <= 0 {
		b.Models = 40
	}
	if b.Evaluations <= 0 {
		b.Evaluations = 2000
	}
	d := b.D
	if d < 0 {
		d = Differences(y, b.SD, b.Period, 2)
	}
	x := &exploration{f: f, y: y, b: b, base: Spec{D: d, SD: b.SD, Period: b.Period}, rough: opts, drift: b.Drift && d+b.SD == 1, tried: f.tried[:0]}
	if b.SP+b.SD+b.SQ == 0 {
		x.base.Period = 0
	}
	x.rough.Starts, x.rough.Tolerance, x.rough.StdErr, x.rough.rough = 1, 1e-7, false, true
	x.rough.Evaluations = min(x.rough.Evaluations, roughly)
	return x
}

// spec of some orders. Without differences it has a mean; drift asks for one where the bounds leave the choice.
func (x *exploration) spec(p, q, sp, sq int, drift bool) Spec {
	s := x.base
	s.P, s.Q, s.SP, s.SQ = p, q, sp, sq
	s.Mean = s.D+s.SD == 0 || drift && x.drift
	return s
}

// may says whether s is within the bounds, and there is work left for it.
func (x *exploration) may(s Spec) bool {
	b := &x.b
	return s.P >= 0 && s.P <= b.P && s.Q >= 0 && s.Q <= b.Q && s.SP >= 0 && s.SP <= b.SP && s.SQ >= 0 && s.SQ <= b.SQ &&
		x.found.Tried < b.Models && x.found.Spent < b.Evaluations
}

// try fits s, once, and says whether it is the best so far.
func (x *exploration) try(s Spec) bool {
	if !x.may(s) || slices.Contains(x.tried, s) {
		return false
	}
	x.tried = append(x.tried, s)
	x.found.Tried++
	if x.scratch == nil {
		x.scratch = new(candidate)
	}
	c := x.scratch
	err := x.f.candidate(c, x.y, s, x.rough, x.b)
	x.found.Spent += x.f.o.evaluations
	if err != nil {
		x.found.Refused++
		if x.failure == nil || x.best == nil {
			x.failure = err
		}
		return false
	}
	if c.edgy {
		x.found.Refused++
	}
	if x.best == nil || c.better(x.best) {
		x.best, x.scratch = c, x.best
		return true
	}
	return false
}

// tryAll tries every order.
func (x *exploration) tryAll() {
	for sp := 0; sp <= x.b.SP; sp++ {
		for sq := 0; sq <= x.b.SQ; sq++ {
			for p := 0; p <= x.b.P; p++ {
				for q := 0; q <= x.b.Q; q++ {
					x.try(x.spec(p, q, sp, sq, false))
					if x.drift {
						x.try(x.spec(p, q, sp, sq, true))
					}
				}
			}
		}
	}
}

// tryFrom tries a model that was found before, and says whether a walk can begin there.
func (x *exploration) tryFrom(m *Model) bool {
	x.try(m.Spec)
	return x.best != nil
}

// tryUsual tries the four models at which Hyndman and Khandakar's walk begins.
func (x *exploration) tryUsual() {
	b, sp, sq := &x.b, min(x.b.SP, 1), min(x.b.SQ, 1)
	x.try(x.spec(min(2, b.P), min(2, b.Q), sp, sq, true))
	x.try(x.spec(0, 0, 0, 0, true))
	x.try(x.spec(min(1, b.P), 0, sp, 0, true))
	x.try(x.spec(0, min(1, b.Q), 0, sq, true))
}

// steps of a walk: what is added to P, Q, SP and SQ.
var steps = [...][4]int{{1, 0, 0, 0}, {-1, 0, 0, 0}, {0, 1, 0, 0}, {0, -1, 0, 0}, {1, 1, 0, 0}, {-1, -1, 0, 0}, {1, -1, 0, 0}, {-1, 1, 0, 0},
	{0, 0, 1, 0}, {0, 0, -1, 0}, {0, 0, 0, 1}, {0, 0, 0, -1}, {0, 0, 1, 1}, {0, 0, -1, -1}}

// walk goes from the best to the first better neighbour, until there is none.
func (x *exploration) walk() {
	for again := x.best != nil; again; {
		at := x.best.spec
		again = slices.ContainsFunc(steps[:], func(step [4]int) bool {
			s := at
			s.P, s.Q, s.SP, s.SQ = at.P+step[0], at.Q+step[1], at.SP+step[2], at.SQ+step[3]
			return x.try(s)
		})
		if !again && x.drift {
			s := at
			s.Mean = !s.Mean
			again = x.try(s)
		}
	}
}

// candidate fits s roughly and keeps its score in c.
func (f *Fitter) candidate(c *candidate, y []float64, s Spec, opts Options, b Bounds) error {
	m := &f.rough
	warm := b.From != nil && b.From.Spec == s && b.From.Params.usable(s, len(opts.X))
	if warm {
		m.Spec = s
		m.Params.assign(b.From.Params)
	}
	if err := f.fit(m, y, s, opts, warm); err != nil {
		return err
	}
	c.spec, c.score, c.edgy = s, m.AICc, m.edge > edgy
	switch b.Criterion {
	case AIC:
		c.score = m.AIC
	case BIC:
		c.score = m.BIC
	}
	if math.IsNaN(c.score) || math.IsInf(c.score, 1) {
		return fmt.Errorf("arima %s: %d values: %w", s, m.Used, ErrTooShort)
	}
	c.raw = append(c.raw[:0], f.o.c.raw...)
	return nil
}
