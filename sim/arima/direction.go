package arima

import (
	"math"

	"gonum.org/v1/gonum/optimize"
)

// direction gives the directions of quasi-Newton steps (Nocedal, Wright 2006, eq. 6.17, 6.20): gonum's BFGS, or for one
// and two coordinates, where that spends more on making vectors and matrices than on using them, the same written out,
// with the operations in the same order.
type direction struct {
	general bool // for tests: gonum's in any case
	bfgs    optimize.BFGS
	loc     optimize.Location

	first         bool
	x, g          [2]float64
	h00, h01, h11 float64 // the inverse of the curvature
}

// begin writes the direction of steepest descent.
func (d *direction) begin(x []float64, value float64, gradient, dir []float64) {
	if d.general || len(x) > 2 {
		d.bfgs.InitDirection(d.locate(x, value, gradient), dir)
		return
	}
	d.first = true
	copy(d.x[:], x)
	copy(d.g[:], gradient)
	for i, g := range gradient {
		dir[i] = -g
	}
}

// next writes the direction after a step to x.
func (d *direction) next(x []float64, value float64, gradient, dir []float64) {
	switch {
	case d.general || len(x) > 2:
		d.bfgs.NextDirection(d.locate(x, value, gradient), dir)
	case len(x) == 1:
		s, y := x[0]-d.x[0], gradient[0]-d.g[0]
		sy := s * y
		if d.first {
			d.h00, d.first = sy/(y*y), false
		}
		if sy != 0 {
			hy := d.h00 * y
			scale := (1 + y*hy/sy) / sy
			d.h00 += s * (s * scale)
			d.h00 += -1 / sy * (hy*s + s*hy)
		}
		d.x[0], d.g[0] = x[0], gradient[0]
		dir[0] = -(d.h00 * gradient[0])
	default:
		s0, s1 := x[0]-d.x[0], x[1]-d.x[1]
		y0, y1 := gradient[0]-d.g[0], gradient[1]-d.g[1]
		sy := s0*y0 + s1*y1
		if d.first {
			scale := sy / (y0*y0 + y1*y1)
			d.h00, d.h01, d.h11, d.first = scale, 0, scale, false
		}
		if math.Abs(sy) != 0 {
			yhy := y0*(d.h00*y0+d.h01*y1) + y0*(d.h01*y1) + y1*(d.h11*y1)
			hy0, hy1 := d.h00*y0+d.h01*y1, d.h01*y0+d.h11*y1
			scale := (1 + yhy/sy) / sy
			t0, t1 := s0*scale, s1*scale
			d.h00 += s0 * t0
			d.h01 += s1 * t0
			d.h11 += s1 * t1
			a := -1 / sy
			d.h00 += a * (hy0*s0 + hy0*s0)
			d.h01 += a * (hy0*s1 + hy1*s0)
			d.h11 += a * (hy1*s1 + hy1*s1)
		}
		copy(d.x[:], x)
		copy(d.g[:], gradient)
		dir[0] = -(d.h00*gradient[0] + d.h01*gradient[1])
		dir[1] = -(d.h01*gradient[0] + d.h11*gradient[1])
	}
}

func (d *direction) locate(x []float64, value float64, gradient []float64) *optimize.Location {
	d.loc.X, d.loc.F, d.loc.Gradient = x, value, gradient
	return &d.loc
}
