package arima

import (
	"errors"
	"fmt"
	"math"
)

// Model is a fitted model and where it stands in its series. It holds no past values beyond those that the next step
// needs. It is not safe for concurrent use, reading included.
type Model struct {
	Spec   Spec
	Params Params

	// LogLik is the log-likelihood of the series at the fit, +Inf for a series that the model explains without error;
	// after the method CSS it is the conditional one. The criteria count sigma2 as a parameter. They are those of the
	// last fit: Update does not change them.
	LogLik, AIC, AICc, BIC float64
	Used                   int // values that LogLik is computed from: those measured, less those that differencing takes

	Evaluations int  // of the likelihood, spent on the fit
	Converged   bool // the optimiser came to rest before it was out of evaluations

	// StdErr are the standard errors of the coefficients (AR, MA, SAR, SMA, mean, regressors), from the curvature of the
	// likelihood, if Options.StdErr asked for them and there is a sigma2; NaN where the curvature gives none (at the edge of the
	// region).
	StdErr []float64

	coefs   coefs
	mom     moments
	delta   []float64
	cov     covariance
	state   []float64
	scratch []float64 // a state to forecast with
	past    []float64 // what the state began with
	ahead   covariance
	edge    float64 // greatest partial autocorrelation
}

// ErrRegressors is returned where values of the regressors are missing or not asked for.
var ErrRegressors = errors.New("values of the regressors do not fit the model")

// At is the model with given parameters at the end of the series y: filtered, not fitted. x are the regressors, one
// slice per regressor, each as long as y.
func At(s Spec, p Params, y []float64, x [][]float64) (*Model, error) {
	m := &Model{}
	if err := m.Set(s, p, y, x); err != nil {
		return nil, err
	}
	return m, nil
}

// Set makes m what At returns, in the memory that m has: with a structure of the same size as before it does not
// allocate. After an error m is not to be used but for another Set.
func (m *Model) Set(s Spec, p Params, y []float64, x [][]float64) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if err := p.fits(s, len(x)); err != nil {
		return err
	}
	for j, col := range x {
		if len(col) != len(y) {
			return fmt.Errorf("arima %s: regressor %d has %d values, the series %d: %w", s, j, len(col), len(y), ErrRegressors)
		}
	}
	m.Spec = s
	m.Params.assign(p)
	m.Evaluations, m.Converged, m.StdErr = 0, false, nil
	if err := m.run(y, x); err != nil {
		return err
	}
	m.edge = m.coefs.edgeOf()
	n := 0
	for _, v := range y {
		if !math.IsNaN(v) {
			n++
		}
	}
	m.criteria(m.LogLik, n-s.lags())
	return nil
}

// criteria sets the criteria from the log-likelihood of n values.
func (m *Model) criteria(loglik float64, n int) {
	k := float64(m.Spec.coefficients() + len(m.Params.Beta) + 1)
	if m.Spec.Mean {
		k++
	}
	m.LogLik, m.Used = loglik, n
	m.AIC = -2*loglik + 2*k
	m.BIC = -2*loglik + k*math.Log(float64(n))
	m.AICc = math.Inf(1)
	if rest := float64(n) - k - 1; rest > 0 {
		m.AICc = m.AIC + 2*k*(k+1)/rest
	} else if math.IsInf(m.AIC, -1) {
		m.AICc = m.AIC
	}
}

// run sets the state to that after y, and LogLik to the log-likelihood at the parameters as they are.
func (m *Model) run(y []float64, x [][]float64) error {
	s := m.Spec
	m.delta = differencing(s, m.coefs.spec, m.delta)
	m.coefs.reset(s)
	ar, ma, sar, sma := s.parts(m.coefs.raw)
	copy(ar, m.Params.AR)
	copy(ma, m.Params.MA)
	copy(sar, m.Params.SAR)
	copy(sma, m.Params.SMA)
	m.coefs.expand()
	if !m.coefs.stationary() || !m.mom.reset(&m.coefs) {
		return fmt.Errorf("arima %s: the coefficients %v are not those of a stationary process", s, m.coefs.raw)
	}
	first := 0
	for first < len(y) && math.IsNaN(y[first]) {
		first++
	}
	nd := len(m.delta)
	if len(y)-first < nd {
		return fmt.Errorf("arima %s: %d values: %w", s, len(y)-first, ErrTooShort)
	}
	m.past = grow(m.past, nd)
	past := m.past
	for i := range past {
		past[i] = y[first+nd-1-i]
		for j := range m.Params.Beta {
			past[i] -= m.Params.Beta[j] * x[j][first+nd-1-i]
		}
	}
	m.cov.reset(&m.coefs, &m.mom, m.delta, past)
	n := m.cov.m
	m.state, m.scratch = grow(m.state, n), grow(m.scratch, n)
	clear(m.state)
	near := math.NaN()
	for i := nd - 1; i >= 0; i-- { // an unknown past value starts from the one before it
		if !math.IsNaN(past[i]) {
			near = past[i]
		}
		m.state[len(m.coefs.phi)+i] = near
	}
	k := &m.ahead
	k.p, k.gain, k.scratch = grow(k.p, n*n), grow(k.gain, n), grow(k.scratch, n*n)
	var ssq, logs float64
	terms := 0
	next := first + nd
	if nd == 0 && len(x) == 0 && m.coefs.p <= 1 && m.coefs.q <= 1 {
		terms, ssq, logs = m.runSingle(y[first:])
		next += terms
	}
	for t := next; t < len(y); t++ {
		var known float64
		for j := range x {
			known += m.Params.Beta[j] * x[j][t]
		}
		v, informative := m.step(y[t] - known)
		if informative {
			ssq += v * v / m.cov.f
			logs += math.Log(m.cov.f)
			terms++
		}
	}
	if m.cov.unknown > 0 {
		return fmt.Errorf("arima %s: %w", s, ErrCollinear)
	}
	for _, v := range m.state {
		if !(math.Abs(v) <= largest) { // its covariance lost all digits: several roots next to the unit circle
			return fmt.Errorf("arima %s: the state after %d values, at the coefficients %v, is too large to compute with", s, len(y), m.coefs.raw)
		}
	}
	m.LogLik = math.Inf(1)
	if s2 := m.Params.Sigma2; s2 > 0 {
		m.LogLik = -0.5 * (float64(terms)*math.Log(2*math.Pi*s2) + logs + ssq/s2)
	}
	return nil
}

// step takes in the next value, less what its regressors explain, and returns its innovation.
func (m *Model) step(u float64) (innovation float64, informative bool) {
	a := m.state
	if math.IsNaN(u) {
		m.cov.next(false)
		m.cov.advance(a, m.Params.Mean)
		return 0, false
	}
	v := u - m.Params.Mean - m.cov.along(a)
	informative = m.cov.next(true)
	for i, g := range m.cov.gain {
		a[i] += g * v
	}
	m.cov.advance(a, m.Params.Mean)
	if r := m.cov.r; r < m.cov.m {
		a[r] = u // exactly
	}
	return v, informative
}

// Update takes in the next value of the series, without fitting again; NaN is one that was not measured, and so is an
// infinite one. x are its regressors, none for a model without. It does not allocate.
func (m *Model) Update(y float64, x ...float64) error {
	if len(x) != len(m.Params.Beta) {
		return ErrRegressors
	}
	for j, v := range x {
		y -= m.Params.Beta[j] * v
	}
	if math.Abs(y) > largest {
		y = math.NaN()
	}
	m.step(y)
	return nil
}

// Forecast writes the mean and the variance of the next values, of which there are as many as mean and variance have
// places. They are of the values themselves (prediction intervals), given the coefficients. x are the values to come of
// the regressors, one slice per regressor. Nothing changes that another Forecast or an Update would show. It does not
// allocate.
func (m *Model) Forecast(mean, variance []float64, x ...[]float64) error {
	h := len(mean)
	if len(variance) != h || len(x) != len(m.Params.Beta) {
		return ErrRegressors
	}
	for _, col := range x {
		if len(col) < h {
			return ErrRegressors
		}
	}
	a := m.scratch
	copy(a, m.state)
	for t := range mean {
		mean[t] = m.cov.advance(a, m.Params.Mean)
		for j, b := range m.Params.Beta {
			mean[t] += b * x[j][t]
		}
	}
	s2 := m.Params.Sigma2
	if m.cov.steady {
		// The state is known but for the innovation of the next value: variances are sums of squared impulse weights.
		clear(a)
		copy(a, m.coefs.theta)
		var sum float64
		for t := range variance {
			w := m.cov.advance(a, 0)
			sum += w * w
			variance[t] = s2 * sum
		}
		return nil
	}
	k := &m.ahead
	k.c, k.delta, k.r, k.m = m.cov.c, m.cov.delta, m.cov.r, m.cov.m
	copy(k.p, m.cov.p)
	for t := range variance {
		k.times(k.gain)
		variance[t] = s2 * max(k.along(k.gain), 1)
		k.step()
	}
	return nil
}

// Edge is the greatest partial autocorrelation of the coefficients in absolute value: near 1 the model is next to a
// unit root, and wants one more difference, or one less.
func (m *Model) Edge() float64 { return m.edge }
