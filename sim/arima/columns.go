package arima

import (
	"errors"
	"fmt"
	"math"
)

// Why a series is refused.
var (
	ErrTooShort  = errors.New("too few values for the model")
	ErrNotFinite = errors.New("a value that is infinite or beyond 1e150")
	ErrCollinear = errors.New("the regressors are not independent, or the gaps leave a past value unknown")
)

// prepare fills c from the series and its regressors. y is not changed and not kept.
func (c *columns) prepare(s Spec, y []float64, x [][]float64) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if c.kept && s.D == c.spec.D && s.SD == c.spec.SD && s.Period == c.spec.Period && s.Mean == c.spec.Mean {
		// The columns are what they were; there may be more coefficients.
		c.spec = s
		return s.explains(c.used, len(c.level)-1)
	}
	c.kept = false
	c.delta = differencing(s, c.spec, c.delta)
	c.spec = s
	nd := len(c.delta)
	first, seen := -1, 0
	for t, v := range y {
		if math.Abs(v) > largest {
			return fmt.Errorf("arima %s: value %d: %w", s, t, ErrNotFinite)
		}
		if !math.IsNaN(v) {
			if seen++; first < 0 {
				first = t
			}
		}
	}
	for j, col := range x {
		if len(col) != len(y) {
			return fmt.Errorf("arima %s: regressor %d has %d values, the series %d", s, j, len(col), len(y))
		}
		for t, v := range col {
			if !(math.Abs(v) <= largest) {
				return fmt.Errorf("arima %s: regressor %d, value %d: %w or missing", s, j, t, ErrNotFinite)
			}
		}
	}
	means := 0
	if s.Mean {
		means = 1
	}
	if err := s.explains(seen-nd, means+len(x)); err != nil {
		return err
	}
	c.first, c.n, c.used = first, len(y)-first, seen-nd
	c.gaps = seen != c.n
	y = y[first:]

	k := 1 + means + len(x)
	c.buffer = grow(c.buffer, 2*k*c.n)
	c.level, c.diff = c.level[:0], c.diff[:0]
	for j := range k {
		c.level = append(c.level, c.buffer[2*j*c.n:(2*j+1)*c.n])
		c.diff = append(c.diff, c.buffer[(2*j+1)*c.n:(2*j+2)*c.n-nd])
	}
	// Where there is a mean, or differences of which none sees an origin, the middle of the series is as good a one.
	c.center = 0
	if s.Mean || nd > 0 {
		c.center = average(y)
	}
	c.scale = c.standardise(c.level[0], c.diff[0], y, c.center)
	if s.Mean {
		c.integrate(c.level[1])
		for t := range c.diff[1] {
			c.diff[1][t] = 1
		}
	}
	c.xcenter, c.xscale = grow(c.xcenter, len(x)), grow(c.xscale, len(x))
	for j, col := range x {
		c.xcenter[j] = 0
		if s.Mean && nd == 0 {
			c.xcenter[j] = average(col[first:])
		}
		c.xscale[j] = c.standardise(c.level[1+means+j], c.diff[1+means+j], col[first:], c.xcenter[j])
	}
	c.kept = c.searching
	return nil
}

// explains refuses too few values: without those that differencing takes, they must determine the coefficients and k regressors, the
// mean among them.
func (s Spec) explains(values, k int) error {
	if need := s.coefficients() + k + 2; values < need {
		return fmt.Errorf("arima %s: %d values, want %d at least: %w", s, values+s.lags(), s.lags()+need, ErrTooShort)
	}
	return nil
}

// standardise writes (in - center) / scale into level and its differences into diff, and returns the scale: the root
// mean square of the differences that are there, or of the values where all differences have a gap.
func (c *columns) standardise(level, diff, in []float64, center float64) float64 {
	for t, v := range in {
		level[t] = v - center
	}
	c.difference(level, diff)
	scale := rootMeanSquare(diff)
	if !(scale > 0) || math.IsInf(scale, 0) {
		scale = rootMeanSquare(level)
	}
	if !(scale > 0) || math.IsInf(scale, 0) {
		return 1
	}
	for t := range level {
		level[t] /= scale
	}
	for t := range diff {
		diff[t] /= scale
	}
	return scale
}

func (c *columns) difference(level, diff []float64) {
	nd := len(c.delta)
	if nd == 1 {
		for t := range diff {
			diff[t] = level[t+1] - level[t]
		}
		return
	}
	for t := range diff {
		v := level[t+nd]
		for j, d := range c.delta {
			if d != 0 {
				v -= d * level[t+nd-1-j]
			}
		}
		diff[t] = v
	}
}

// integrate fills level with the series whose differences are all 1, from values of 0.
func (c *columns) integrate(level []float64) {
	nd := len(c.delta)
	for t := range level {
		if t < nd {
			level[t] = 0
			continue
		}
		level[t] = 1
		for j, d := range c.delta {
			if d != 0 {
				level[t] += d * level[t-1-j]
			}
		}
	}
}

// average of what is there.
func average(x []float64) float64 {
	var sum float64
	n := 0
	for _, v := range x {
		if !math.IsNaN(v) {
			n++
			sum += (v - sum) / float64(n)
		}
	}
	return sum
}

func rootMeanSquare(x []float64) float64 {
	// Scaled by the greatest, so that squares of huge values stay finite.
	var highest, sum float64
	n := 0
	for _, v := range x {
		if a := math.Abs(v); a > highest {
			highest = a
		}
	}
	if highest == 0 || math.IsInf(highest, 0) {
		return highest
	}
	for _, v := range x {
		if !math.IsNaN(v) {
			n++
			sum += (v / highest) * (v / highest)
		}
	}
	return highest * math.Sqrt(sum/float64(n))
}
