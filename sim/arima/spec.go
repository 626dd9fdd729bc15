package arima

import (
	"errors"
	"fmt"
	"strings"
)

// Limits on what is fitted at all. They bound time and memory, not usefulness: the state of the filter is at most
// maxState values and its covariance the square of that.
const (
	maxOrder = 12
	maxState = 400
)

// Spec is the structure of a model: SARIMA(P,D,Q)(SP,SD,SQ) with a period in steps.
type Spec struct {
	P, D, Q    int // autoregressive order, differences, moving-average order
	SP, SD, SQ int // the same at multiples of Period
	Period     int // in steps of the series; 0 without a seasonal part

	// Mean: the (differenced) series has a mean that is to be estimated. With D + SD = 1 that is a drift.
	Mean bool
}

// String is the usual notation: "(1,1,1)(0,1,1)12 with drift".
func (s Spec) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "(%d,%d,%d)", s.P, s.D, s.Q)
	if s.SP+s.SD+s.SQ > 0 {
		fmt.Fprintf(&b, "(%d,%d,%d)%d", s.SP, s.SD, s.SQ, s.Period)
	}
	switch {
	case s.Mean && s.lags() == 0:
		b.WriteString(" with mean")
	case s.Mean:
		b.WriteString(" with drift")
	}
	return b.String()
}

// Validate says what is wrong with s.
func (s Spec) Validate() error {
	var errs []error
	for _, o := range []struct {
		name    string
		value   int
		highest int
	}{{"P", s.P, maxOrder}, {"D", s.D, 2}, {"Q", s.Q, maxOrder}, {"SP", s.SP, maxOrder}, {"SD", s.SD, 2}, {"SQ", s.SQ, maxOrder}, {"Period", s.Period, maxState}} {
		if o.value < 0 || o.value > o.highest {
			errs = append(errs, fmt.Errorf("%s is %d, want 0 to %d", o.name, o.value, o.highest))
		}
	}
	if len(errs) == 0 {
		if s.SP+s.SD+s.SQ > 0 && s.Period < 2 {
			errs = append(errs, fmt.Errorf("a seasonal part needs a period of 2 or more, it is %d", s.Period))
		} else if n := s.order() + s.lags(); n > maxState {
			errs = append(errs, fmt.Errorf("a state of %d values, want %d at most", n, maxState))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("arima %s: %w", s, errors.Join(errs...))
	}
	return nil
}

// lags is how many past values differencing needs.
func (s Spec) lags() int { return s.D + s.SD*s.Period }

// coefficients is how many ARMA coefficients are estimated.
func (s Spec) coefficients() int { return s.P + s.Q + s.SP + s.SQ }

// order is the dimension of the ARMA part of the state.
func (s Spec) order() int { return max(s.P+s.SP*s.Period, s.Q+s.SQ*s.Period+1) }

// Params are the parameters of a model. Slices are as long as the orders of its Spec.
type Params struct {
	AR, MA, SAR, SMA []float64
	Mean             float64   // of the differenced series less its regressors; 0 without one
	Beta             []float64 // one per regressor
	Sigma2           float64   // variance of the innovations, in the unit of the series squared
}

func (p Params) clone() (c Params) {
	c.assign(p)
	return c
}

// assign copies q into the memory of p.
func (p *Params) assign(q Params) {
	p.AR, p.MA = append(p.AR[:0], q.AR...), append(p.MA[:0], q.MA...)
	p.SAR, p.SMA = append(p.SAR[:0], q.SAR...), append(p.SMA[:0], q.SMA...)
	p.Beta = append(p.Beta[:0], q.Beta...)
	p.Mean, p.Sigma2 = q.Mean, q.Sigma2
}

// fits says whether p has the lengths of s, with k regressors.
func (p Params) fits(s Spec, k int) error {
	if len(p.AR) != s.P || len(p.MA) != s.Q || len(p.SAR) != s.SP || len(p.SMA) != s.SQ || len(p.Beta) != k {
		return fmt.Errorf("arima %s: parameters of lengths %d, %d, %d, %d and %d regressors, want %d, %d, %d, %d and %d",
			s, len(p.AR), len(p.MA), len(p.SAR), len(p.SMA), len(p.Beta), s.P, s.Q, s.SP, s.SQ, k)
	}
	return nil
}

// usable says whether a fit of s with k regressors can start from p.
func (p Params) usable(s Spec, k int) bool { return p.fits(s, k) == nil && p.Sigma2 > 0 }
