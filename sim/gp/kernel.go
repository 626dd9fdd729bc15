package gp

import (
	"fmt"
	"math"
	"slices"
)

// Shape is how the covariance of two points falls with the distance r between them, in length scales.
type Shape uint8

const (
	Exponential        Shape = iota // exp(-r): rough functions, as of a random walk that is pulled back
	Matern32                        // (1 + √3 r) exp(-√3 r): differentiable once
	Matern52                        // (1 + √5 r + 5r²/3) exp(-√5 r): differentiable twice
	SquaredExponential              // exp(-r²/2): differentiable without end
)

func (s Shape) String() string {
	switch s {
	case Exponential:
		return "exponential"
	case Matern32:
		return "matern32"
	case Matern52:
		return "matern52"
	case SquaredExponential:
		return "squared-exponential"
	}
	return fmt.Sprintf("Shape(%d)", uint8(s))
}

// at is the correlation at squared distance q = r², and its derivative by q. The exponential has none at q = 0; 0
// stands for it there, for it is only ever multiplied by a distance of 0.
func (s Shape) at(q float64) (value, slope float64) {
	switch s {
	case Exponential:
		r := math.Sqrt(q)
		value = math.Exp(-r)
		if r > 0 {
			slope = -value / (2 * r)
		}
	case Matern32:
		r := math.Sqrt(3 * q)
		e := math.Exp(-r)
		value, slope = (1+r)*e, -1.5*e
	case Matern52:
		r := math.Sqrt(5 * q)
		e := math.Exp(-r)
		value, slope = (1+r+r*r/3)*e, -5./6*(1+r)*e
	default:
		value = math.Exp(-q / 2)
		slope = -value / 2
	}
	return value, slope
}

// Kernel is the prior covariance of the values at two points x and x' of d columns:
//
//	k(x, x') = sf² shape(r),   r² = Σ over groups g of |x_g - x'_g|² / l_g²
//
// to which observations add the variance sn² of their noise.
type Kernel struct {
	Shape Shape

	// Groups are the numbers of columns, from the first on, that share a length scale each; together they are all
	// columns. One group makes the kernel isotropic (Pace, eq. 6).
	Groups []int
}

// Hyper are the natural logarithms of hyper-parameters: the length scales l of the groups in their order, the
// amplitude sf and the noise sn.
type Hyper []float64

// Hypers is how many hyper-parameters there are.
func (k Kernel) Hypers() int { return len(k.Groups) + 2 }

// columns is d.
func (k Kernel) columns() int {
	d := 0
	for _, g := range k.Groups {
		d += g
	}
	return d
}

func (k Kernel) check() error {
	if k.Shape > SquaredExponential {
		return fmt.Errorf("gp: no such kernel: %v", k.Shape)
	}
	if len(k.Groups) == 0 || slices.Min(k.Groups) < 1 || slices.Max(k.Groups) > maxColumns || k.columns() > maxColumns {
		return fmt.Errorf("gp: groups of columns %v: want one or more, each of one or more, at most %d together", k.Groups, maxColumns)
	}
	return nil
}

func (k Kernel) checkHyper(h Hyper) error {
	if len(h) != k.Hypers() {
		return fmt.Errorf("gp: %d hyper-parameters, the kernel has %d", len(h), k.Hypers())
	}
	for _, v := range h {
		// Beyond this squares and their products leave what a float64 holds.
		if !(math.Abs(v) <= maxLog) {
			return fmt.Errorf("gp: hyper-parameters %v: logarithms must lie within ±%v", []float64(h), float64(maxLog))
		}
	}
	return nil
}

const (
	maxColumns = 1000
	maxPoints  = 2000 // of a Regression: its memory grows with the square, its time with the cube
	maxLog     = 50
)

// scales are the hyper-parameters as the sums need them.
type scales struct {
	precision []float64 // 1/l² of each group
	signal    float64   // sf²
	noise     float64   // sn²
}

func (k Kernel) scales(h Hyper, into *scales) {
	g := len(k.Groups)
	into.precision = into.precision[:0]
	for _, l := range h[:g] {
		into.precision = append(into.precision, math.Exp(-2*l))
	}
	into.signal = math.Exp(2 * h[g])
	into.noise = math.Exp(2 * h[len(h)-1])
}
