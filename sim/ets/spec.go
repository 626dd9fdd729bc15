package ets

import "fmt"

// Component is how errors, trend or season enter a model.
type Component byte

const (
	None           Component = 'N'
	Additive       Component = 'A'
	Multiplicative Component = 'M'
)

// Spec names a model.
type Spec struct {
	Error  Component // Additive or Multiplicative
	Trend  Component
	Damped bool // the trend dies down by Params.Phi at each step
	Season Component
	Period int // steps in a season, 2 to 366; 0 without one
}

// String is the usual form: ETS(A,Ad,N), with the period where there is one: ETS(M,A,M)[12].
func (s Spec) String() string {
	damped, period := "", ""
	if s.Damped {
		damped = "d"
	}
	if s.Season != None {
		period = fmt.Sprintf("[%d]", s.Period)
	}
	return fmt.Sprintf("ETS(%c,%c%s,%c)%s", s.Error, s.Trend, damped, s.Season, period)
}

// Check says what is wrong with s, nil if nothing is. Refused, as by R, are additive errors with a multiplicative trend
// or season, and a multiplicative trend with an additive season: their variances are infinite, or their recursions divide by
// what may pass through 0 (Hyndman et al. 2008, sec. 15.2).
func (s Spec) Check() error {
	one := func(c Component, of ...Component) bool {
		for _, o := range of {
			if c == o {
				return true
			}
		}
		return false
	}
	switch {
	case !one(s.Error, Additive, Multiplicative), !one(s.Trend, None, Additive, Multiplicative), !one(s.Season, None, Additive, Multiplicative):
		return fmt.Errorf("model %q, %q, %q: a component is none of N, A, M, or the error is N", s.Error, s.Trend, s.Season)
	case s.Damped && s.Trend == None:
		return fmt.Errorf("model %v: no trend, yet damped", s)
	case s.Season == None && s.Period != 0:
		return fmt.Errorf("model %v: no season, yet a period of %d", s, s.Period)
	case s.Season != None && (s.Period < 2 || s.Period > 366):
		return fmt.Errorf("model %v: a period of %d is not 2 to 366", s, s.Period)
	case s.Error == Additive && (s.Trend == Multiplicative || s.Season == Multiplicative),
		s.Trend == Multiplicative && s.Season == Additive:
		return fmt.Errorf("model %v: unstable", s)
	}
	return nil
}

// multiplicative says whether any part is: such models are of values above 0.
func (s Spec) multiplicative() bool {
	return s.Error == Multiplicative || s.Trend == Multiplicative || s.Season == Multiplicative
}

// linear says whether what is stated is linear in the state: multiplicative errors may be so too.
func (s Spec) linear() bool { return s.Trend != Multiplicative && s.Season != Multiplicative }

// smoothing is the number of smoothing parameters: alpha, beta, gamma and phi as far as s has them.
func (s Spec) smoothing() int {
	n := 1
	for _, has := range []bool{s.Trend != None, s.Season != None, s.Damped} {
		if has {
			n++
		}
	}
	return n
}

// states is the number of free initial states; seasons add up to 0, or have the mean 1.
func (s Spec) states() int {
	n := 1
	if s.Trend != None {
		n++
	}
	if s.Season != None {
		n += s.Period - 1
	}
	return n
}

// Params are the smoothing parameters, in the form of the state-space models (Hyndman et al. 2008, table 2.2): the
// growth takes Beta of an error, where Holt's method takes Beta/Alpha of the level's step; a season takes Gamma of it,
// where Holt and Winters take Gamma/(1-Alpha). What the model does not have is not looked at.
type Params struct {
	Alpha, Beta, Gamma float64
	Phi                float64 // damping, 1 counts as none; not looked at unless the model is damped
}

// State is what a model knows between two values.
type State struct {
	Level  float64
	Growth float64   // per step: to be added, or a factor
	Season []float64 // of the latest Period steps, the newest first; the last is that of the next value
}
