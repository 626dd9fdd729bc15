package arima

import (
	"fmt"
	"math"
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
	var found Found
	f.o.searching, f.o.kept = !f.o.general, false
	defer func() { f.o.searching, f.o.kept = false, false }()
	if b.Models <= 0 {
		b.Models = 40
	}
	d := b.D
	if d < 0 {
		d = Differences(y, b.SD, b.Period, 2)
	}
	base := Spec{D: d, SD: b.SD, Period: b.Period}
	if b.SP+b.SD+b.SQ == 0 {
		base.Period = 0
	}
	spec := func(p, q, sp, sq int, drift bool) Spec {
		s := base
		s.P, s.Q, s.SP, s.SQ = p, q, sp, sq
		s.Mean = d+b.SD == 0 || (drift && b.Drift && d+b.SD == 1)
		return s
	}
	if b.Evaluations <= 0 {
		b.Evaluations = 2000
	}
	if opts.Evaluations <= 0 {
		opts.Evaluations = finally
	}
	rough := opts
	rough.Starts, rough.Tolerance, rough.StdErr, rough.rough = 1, 1e-7, false, true
	rough.Evaluations = min(rough.Evaluations, roughly)
	var (
		tried   = f.tried[:0]
		best    *candidate
		failure error
		scratch *candidate
	)
	defer func() { f.tried = tried[:0] }()
	try := func(s Spec) bool {
		if s.P < 0 || s.P > b.P || s.Q < 0 || s.Q > b.Q || s.SP < 0 || s.SP > b.SP || s.SQ < 0 || s.SQ > b.SQ || found.Tried >= b.Models || found.Spent >= b.Evaluations {
			return false
		}
		for _, t := range tried {
			if t == s {
				return false
			}
		}
		tried = append(tried, s)
		found.Tried++
		if scratch == nil {
			scratch = new(candidate)
		}
		c := scratch
		err := f.candidate(c, y, s, rough, b)
		found.Spent += f.o.evaluations
		if err != nil {
			found.Refused++
			if failure == nil || best == nil {
				failure = err
			}
			return false
		}
		if c.edgy {
			found.Refused++
		}
		if best == nil || c.better(best) {
			best, scratch = c, best
			return true
		}
		return false
	}

	sp, sq := min(b.SP, 1), min(b.SQ, 1)
	switch {
	case b.Full:
		for sp := 0; sp <= b.SP; sp++ {
			for sq := 0; sq <= b.SQ; sq++ {
				for p := 0; p <= b.P; p++ {
					for q := 0; q <= b.Q; q++ {
						try(spec(p, q, sp, sq, false))
						if b.Drift && d+b.SD == 1 {
							try(spec(p, q, sp, sq, true))
						}
					}
				}
			}
		}
	case b.From != nil && b.From.Spec.D == d && b.From.Spec.SD == b.SD && b.From.Spec.Period == base.Period:
		try(b.From.Spec)
		fallthrough
	default:
		if best == nil {
			try(spec(min(2, b.P), min(2, b.Q), sp, sq, true))
			try(spec(0, 0, 0, 0, true))
			try(spec(min(1, b.P), 0, sp, 0, true))
			try(spec(0, min(1, b.Q), 0, sq, true))
		}
		for again := best != nil; again; {
			again = false
			at := best.spec
			for _, step := range [...][4]int{{1, 0, 0, 0}, {-1, 0, 0, 0}, {0, 1, 0, 0}, {0, -1, 0, 0}, {1, 1, 0, 0}, {-1, -1, 0, 0}, {1, -1, 0, 0}, {-1, 1, 0, 0},
				{0, 0, 1, 0}, {0, 0, -1, 0}, {0, 0, 0, 1}, {0, 0, 0, -1}, {0, 0, 1, 1}, {0, 0, -1, -1}} {
				s := at
				s.P, s.Q, s.SP, s.SQ = at.P+step[0], at.Q+step[1], at.SP+step[2], at.SQ+step[3]
				if try(s) {
					again = true
					break
				}
			}
			if !again && b.Drift && d+b.SD == 1 {
				s := at
				s.Mean = !s.Mean
				again = try(s)
			}
		}
	}
	if best == nil {
		if failure == nil {
			failure = fmt.Errorf("arima: the bounds %+v allow no model", b)
		}
		return found, failure
	}
	m := &Model{Spec: best.spec}
	o := &f.o
	o.c.reset(best.spec)
	ar, ma, sar, sma := best.spec.parts(best.raw)
	m.Params = Params{AR: ar, MA: ma, SAR: sar, SMA: sma, Beta: make([]float64, len(opts.X)), Sigma2: 1}
	if err := f.fit(m, y, m.Spec, opts, true); err != nil {
		return found, err
	}
	found.Model = m
	found.Spent += m.Evaluations
	return found, nil
}

// candidate fits s roughly and keeps its score in c.
func (f *Fitter) candidate(c *candidate, y []float64, s Spec, opts Options, b Bounds) error {
	m := &f.rough
	warm := b.From != nil && b.From.Spec == s && b.From.Params.fits(s, len(opts.X)) == nil && b.From.Params.Sigma2 > 0
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
