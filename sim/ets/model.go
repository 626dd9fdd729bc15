package ets

import (
	"fmt"
	"math"
)

// Model is a model with its parameters, at some place of a series. It is not safe for concurrent use.
type Model struct {
	spec    Spec
	par     Params
	initial State

	level, growth float64
	season        []float64 // a ring: season[at] is that of the next value, the one after it follows
	at            int
	gap           int // values not measured since the state was brought forward

	n             int // values taken
	squares, logs float64

	moments []float64 // memory of Forecast
}

// tiny keeps divisions apart from 0, as R does.
const tiny = 1e-10

// New is a model before its first value.
func New(spec Spec, par Params, initial State) (*Model, error) {
	if err := spec.Check(); err != nil {
		return nil, err
	}
	if !spec.Damped {
		par.Phi = 1
	}
	if spec.Trend == None {
		par.Beta, initial.Growth = 0, 0
	}
	if spec.Season == None {
		par.Gamma, initial.Season = 0, nil
	} else if len(initial.Season) != spec.Period {
		return nil, fmt.Errorf("model %v: %d seasons for a period of %d", spec, len(initial.Season), spec.Period)
	}
	finite := append([]float64{par.Alpha, par.Beta, par.Gamma, par.Phi, initial.Level, initial.Growth}, initial.Season...)
	for _, x := range finite {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return nil, fmt.Errorf("model %v: a parameter or an initial state is %v", spec, x)
		}
	}
	if !(par.Alpha > 0) || spec.Trend == Multiplicative && !(initial.Growth > 0) {
		return nil, fmt.Errorf("model %v: alpha %v and a growth of %v, must be above 0", spec, par.Alpha, initial.Growth)
	}
	m := &Model{spec: spec, par: par, season: make([]float64, len(initial.Season))}
	m.initial.Season = make([]float64, len(initial.Season))
	m.restart(initial)
	return m, nil
}

// restart puts the model before its first value, at an initial state.
func (m *Model) restart(initial State) {
	copy(m.initial.Season, initial.Season)
	m.initial.Level, m.initial.Growth = initial.Level, initial.Growth
	m.level, m.growth = initial.Level, initial.Growth
	for i := range m.season {
		m.season[i] = initial.Season[len(m.season)-1-i]
	}
	m.at, m.gap, m.n, m.squares, m.logs = 0, 0, 0, 0, 0
}

// Spec is the model's kind.
func (m *Model) Spec() Spec { return m.spec }

// Params are the smoothing parameters.
func (m *Model) Params() Params { return m.par }

// Initial is the state before the first value.
func (m *Model) Initial() State {
	return State{m.initial.Level, m.initial.Growth, append([]float64(nil), m.initial.Season...)}
}

// State is the state after the latest value, gaps after it not counted.
func (m *Model) State() State {
	s := State{Level: m.level, Growth: m.growth, Season: make([]float64, len(m.season))}
	for i := range s.Season {
		s.Season[len(s.Season)-1-i] = m.season[(m.at+i)%len(m.season)]
	}
	return s
}

// Level is the level and the growth of State, without a copy of the seasons.
func (m *Model) Level() (level, growth float64) { return m.level, m.growth }

// N is the number of values taken.
func (m *Model) N() int { return m.n }

// stated is what the state says of the value steps ahead; phi is phi + phi^2 + ... + phi^steps.
func (m *Model) stated(steps int, phi float64) float64 {
	f := m.level
	switch m.spec.Trend {
	case Additive:
		f += phi * m.growth
	case Multiplicative:
		f *= math.Pow(m.growth, phi)
	}
	switch m.spec.Season {
	case Additive:
		f += m.season[(m.at+steps-1)%len(m.season)]
	case Multiplicative:
		f *= m.season[(m.at+steps-1)%len(m.season)]
	}
	return f
}

// damped is phi + phi^2 + ... + phi^steps.
func (m *Model) damped(steps int) float64 {
	phi := m.par.Phi
	if phi >= 1 {
		return float64(steps)
	}
	return phi * (1 - math.Pow(phi, float64(steps))) / (1 - phi)
}

// Update takes the next value y and returns what was stated of it, and the error: y - fitted, or that over fitted if
// errors are multiplicative. NaN is a value that was not measured, as is an infinite one, and one not above 0 for a
// model with any multiplicative part: time goes on, nothing is learnt, the error is NaN. It does not allocate.
func (m *Model) Update(y float64) (fitted, residual float64) {
	if math.IsNaN(y) || math.IsInf(y, 0) || y <= 0 && m.spec.multiplicative() {
		m.gap++
		return m.stated(m.gap, m.damped(m.gap)), math.NaN()
	}
	for ; m.gap > 0; m.gap-- {
		m.step(m.stated(1, m.par.Phi))
	}
	fitted = m.stated(1, m.par.Phi)
	residual = y - fitted
	if m.spec.Error == Multiplicative {
		f := fitted
		if math.Abs(f) < tiny {
			f += tiny
		}
		residual /= f
		m.logs += math.Log(math.Abs(f))
	}
	m.squares += residual * residual
	m.n++
	m.step(y)
	return fitted, residual
}

// step moves the state on by a value. The recursions are the same for additive and multiplicative errors, once errors
// are written as differences of values (Hyndman et al. 2008, table 2.1).
func (m *Model) step(y float64) {
	alpha := m.par.Alpha
	q, growth, old := m.level, m.growth, m.level // level and growth as stated
	switch m.spec.Trend {
	case Additive:
		growth *= m.par.Phi
		q += growth
	case Multiplicative:
		if m.spec.Damped {
			growth = math.Pow(growth, m.par.Phi)
		}
		q *= growth
	}
	p := y // what the value says of the level
	switch m.spec.Season {
	case Additive:
		p -= m.season[m.at]
	case Multiplicative:
		p /= apart(m.season[m.at])
	}
	m.level = q + alpha*(p-q)
	switch m.spec.Trend {
	case Additive:
		m.growth = growth + m.par.Beta/alpha*(m.level-old-growth)
	case Multiplicative:
		m.growth = max(tiny, growth+m.par.Beta/alpha*(m.level/apart(old)-growth))
	}
	if m.spec.Season != None {
		s := &m.season[m.at]
		if m.spec.Season == Additive {
			*s += m.par.Gamma * (y - q - *s)
		} else {
			*s += m.par.Gamma * (y/apart(q) - *s)
		}
		m.at = (m.at + 1) % len(m.season)
	}
}

// apart is x, or what may be divided by in its place.
func apart(x float64) float64 {
	if math.Abs(x) < tiny {
		return tiny
	}
	return x
}

// LogLikelihood of the values taken, the variance being at its best value, without the constants that R leaves out too:
// -n/2 log(sum of squared errors), less the sum of log|fitted| where errors are multiplicative (Hyndman et al. 2008, eq. 5.3).
func (m *Model) LogLikelihood() float64 {
	return -0.5*float64(m.n)*math.Log(m.squares) - m.logs
}

// free is the number of parameters that a fit finds: smoothing parameters and initial states.
func (m *Model) free() int { return m.spec.smoothing() + m.spec.states() }

// AIC is Akaike's criterion, and AICc that with the correction for few values; the variance counts as a parameter.
func (m *Model) AIC() float64 { return -2*m.LogLikelihood() + 2*float64(m.free()+1) }

// AICc is infinite where there are no more values than parameters.
func (m *Model) AICc() float64 {
	k, n := float64(m.free()+1), float64(m.n)
	if n <= k+1 {
		return math.Inf(1)
	}
	return m.AIC() + 2*k*(k+1)/(n-k-1)
}

// Sigma2 is the variance of errors: the sum of their squares over the values less the parameters fitted, of which at
// least 1 is left. Multiplicative errors are relative, and so is their variance.
func (m *Model) Sigma2() float64 {
	return m.squares / float64(max(1, m.n-m.free()))
}
