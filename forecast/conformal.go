package forecast

import (
	"math"
	"slices"
)

// conformal corrects quantiles by how often they held, for each level and horizon apart: adaptive conformal inference
// (Gibbs and Candes 2021), with the correction in standard normal scores. A level whose quantile is exceeded too often
// is read off further out in the distribution; how far that is, is the distribution's own width there, so that a wide
// forecast is corrected by much, a narrow one by little, and one that is a single value hardly at all.
//
// Whatever the series does, over n steps the share of values beyond an outer quantile (0.5 to 5%, 95 to 99.5%) differs from
// its level by no more than a constant over n, as long as the correction is within its bounds: it needs no model to be
// right. Levels further in are corrected with less haste, the median not at all: they are as good as the experts.
type conformal struct {
	waiting [conformalRows][levels]float32 // by horizon, then step; NaN: nothing waits
	shift   [corrections][levels]float32   // in standard normal scores
	scale   [corrections]float32           // decayed mean absolute error of the median
}

const (
	corrections   = 6
	conformalRows = 1 + 2 + 3 + 5 + 7 + 10

	shiftStep  = 0.05 // of a shift for each value beyond, in standard normal scores
	shiftDelay = 0.1  // how much slower per further step ahead: what is judged late is corrected with care
	maxShift   = 3.0
	scaleRate  = 0.03

	// shiftFloor of the mean absolute error is the least that one standard normal score is worth: a quantile must be
	// able to leave a mass point that the values left.
	shiftFloor = 0.03
)

var (
	// corrected are the horizons with corrections of their own; the others' are interpolated.
	corrected      = [corrections]int{1, 2, 3, 5, 7, 10}
	correctedPlace = place(corrected[:])
	correctedRow   = func() (at [corrections]int) {
		for i := 1; i < corrections; i++ {
			at[i] = at[i-1] + corrected[i-1]
		}
		return at
	}()
	// haste is how much of a step levels take. Decisions rest on the bounds of wide intervals, and models are least
	// accurate there. The median is left as it is.
	haste = [levels]float64{1, 1, 1, 0.3, 0.05, 0, 0.05, 0.3, 1, 1, 1}
)

func newConformal() (c conformal) {
	c.lose()
	return c
}

// lose forgets what waits.
func (c *conformal) lose() {
	for i := range c.waiting {
		c.waiting[i][0] = float32(math.NaN())
	}
}

// stated is what was stated corrected[i] steps before step t for it, nil if nothing was.
func (c *conformal) stated(i, t int) *[levels]float32 {
	row := &c.waiting[correctedRow[i]+t%corrected[i]]
	if row[0] != row[0] {
		return nil
	}
	return row
}

// learn takes in the value of step t. A censored value is y at least: it changes no quantile above y.
func (c *conformal) learn(t int, y float64, censored bool) {
	z := float32(y)
	for i, h := range corrected {
		row := c.stated(i, t)
		if row == nil {
			continue
		}
		if !censored {
			e := float32(math.Abs(float64(z - row[Median])))
			if c.scale[i] == 0 {
				c.scale[i] = e
			}
			c.scale[i] += scaleRate * (e - c.scale[i])
		}
		for l, p := range Levels {
			step := p // a value above
			switch q := row[l]; {
			case l < Median && z < q, l > Median && z <= q:
				step = p - 1
				if censored {
					step = 0
				}
			}
			step *= shiftStep * haste[l] / (1 + shiftDelay*float64(h-1))
			c.shift[i][l] = float32(within(float64(c.shift[i][l])+step, maxShift))
		}
		row[0] = float32(math.NaN())
	}
}

// correct rewrites the quantiles for the next Horizon values, stated after so many values.
func (c *conformal) correct(g *grid, values int) {
	for h := range Horizon {
		b := correctedPlace[h]
		q := g[h]
		floor := shiftFloor * (float64(c.scale[b.low]) + b.share*float64(c.scale[b.high]-c.scale[b.low]))
		for l, z := range normalQuantiles {
			shift := float64(c.shift[b.low][l]) + b.share*float64(c.shift[b.high][l]-c.shift[b.low][l]) + fewValues(z, h+1, values)
			g[h][l] = q.at(z+shift) + floor*shift
		}
		g[h].order()
	}
}

// minFreedom is the fewest degrees of freedom that a spread counts with.
const minFreedom = 2

// fewValues is how much further out the quantile of standard normal score z lies where the spread is known from few errors: Student's quantile less the
// normal one, by the first two terms of Cornish and Fisher's expansion (Abramowitz and Stegun 1964, 26.7.5). Errors of h steps ahead overlap: of n values
// n/h are independent.
func fewValues(z float64, h, values int) float64 {
	f := max(minFreedom, float64(values)/float64(h)-1)
	z2 := z * z
	return z*(z2+1)/(4*f) + z*((5*z2+16)*z2+3)/(96*f*f)
}

// keep remembers what was stated for the values from step t on; nil: nothing was.
func (c *conformal) keep(t int, g *grid) {
	for i, h := range corrected {
		row := &c.waiting[correctedRow[i]+(t+h-1)%h]
		if g == nil {
			row[0] = float32(math.NaN())
			continue
		}
		for l, q := range g[h-1] {
			row[l] = float32(q)
		}
	}
}

func (c *conformal) archive(a *archive) {
	for i := range c.waiting {
		a.singles(c.waiting[i][:], true)
		a.require(modest(c.waiting[i][:]), "a forecast that waits is too great")
	}
	for i := range c.shift {
		a.singles(c.shift[i][:], false)
		for _, x := range c.shift[i] {
			a.require(math.Abs(float64(x)) <= maxShift, "a correction is too great")
		}
	}
	a.singles(c.scale[:], false)
	a.require(modest(c.scale[:]) && slices.Min(c.scale[:]) >= 0, "an error of less than nothing, or too great")
}
