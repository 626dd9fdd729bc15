package gp

import (
	"fmt"
	"math"
)

// Regression is a Gaussian process with zero prior mean, conditioned on observations y at points x:
// y = f(x) + noise (Pace, eq. 7, 8). Load gives it the points, Condition the hyper-parameters; Predict then answers.
type Regression struct {
	kernel   Kernel
	n, d     int
	x, y     []float64   // n x d by rows, n
	distance [][]float64 // of each group, n x n by rows, lower triangle: squared distances

	k      []float64 // covariance of the observations, lower triangle
	slope  []float64 // derivative of the kernel by the squared distance in length scales
	factor factor
	scales scales
	ready  bool      // Condition was called
	cross  []float64 // of the point that was asked for last: L⁻¹ k(x, X)
}

// Load takes the points: x holds len(y) rows of as many columns as the groups of the kernel have together. It copies
// what it keeps, and refuses numbers that are not finite, no points, and more than 2,000.
func (r *Regression) Load(kernel Kernel, x, y []float64) error {
	r.ready = false
	r.n = 0
	if err := kernel.check(); err != nil {
		return err
	}
	n, d := len(y), kernel.columns()
	if n == 0 || n > maxPoints {
		return fmt.Errorf("gp: %d points, want 1 to %d", n, maxPoints)
	}
	if len(x) != n*d {
		return fmt.Errorf("gp: %d numbers for %d points of %d columns", len(x), n, d)
	}
	for i, v := range x {
		if !usable(v) {
			return fmt.Errorf("gp: point %d, column %d: %v is out of range", i/d, i%d, v)
		}
	}
	for i, v := range y {
		if !usable(v) {
			return fmt.Errorf("gp: observation %d: %v is out of range", i, v)
		}
	}
	r.kernel, r.d = kernel, d
	r.x, r.y = resize(r.x, n*d), resize(r.y, n)
	copy(r.x, x)
	copy(r.y, y)
	r.measure(n)
	return nil
}

// usable numbers are those whose squares and sums of squares stay finite.
func usable(v float64) bool { return math.Abs(v) <= 1e100 }

// measure fills what of the kernel matrix does not depend on hyper-parameters.
func (r *Regression) measure(n int) {
	r.n = n
	if len(r.distance) < len(r.kernel.Groups) {
		r.distance = append(r.distance, make([][]float64, len(r.kernel.Groups)-len(r.distance))...)
	}
	first := 0
	for g, columns := range r.kernel.Groups {
		dist := resize(r.distance[g], n*n)
		r.distance[g] = dist
		for i := range n {
			a := r.x[i*r.d+first : i*r.d+first+columns]
			for j := range i {
				b := r.x[j*r.d+first : j*r.d+first+columns]
				sum := 0.0
				for c, v := range a {
					sum += (v - b[c]) * (v - b[c])
				}
				dist[i*n+j] = sum
			}
			dist[i*n+i] = 0
		}
		first += columns
	}
}

// Condition makes h the hyper-parameters that Predict answers for.
func (r *Regression) Condition(h Hyper) error {
	r.ready = false
	if r.n == 0 {
		return fmt.Errorf("gp: no points")
	}
	if err := r.kernel.checkHyper(h); err != nil {
		return err
	}
	if err := r.build(h); err != nil {
		return err
	}
	r.ready = true
	return nil
}

// build fills and factorizes the covariance of the observations.
func (r *Regression) build(h Hyper) error {
	n := r.n
	r.kernel.scales(h, &r.scales)
	s := &r.scales
	r.k, r.slope = resize(r.k, n*n), resize(r.slope, n*n)
	one := len(r.kernel.Groups) == 1
	for i := range n {
		k, slope := r.k[i*n:i*n+i+1], r.slope[i*n:i*n+i+1]
		first := r.distance[0][i*n : i*n+i+1]
		for j := range i {
			q := first[j] * s.precision[0]
			if !one {
				for g := 1; g < len(s.precision); g++ {
					q += r.distance[g][i*n+j] * s.precision[g]
				}
			}
			v, dv := r.kernel.Shape.at(q)
			k[j], slope[j] = s.signal*v, s.signal*dv
		}
		k[i], slope[i] = s.signal+s.noise, 0
	}
	return r.factor.set(n, r.k, r.y)
}

// Evidence is the log marginal likelihood of the observations (GPML eq. 2.30) under hyper-parameters h. If gradient
// is not nil it must have len(h) and receives the derivatives by the elements of h (GPML eq. 5.9). It undoes Condition.
func (r *Regression) Evidence(h Hyper, gradient []float64) (float64, error) {
	if gradient != nil && len(gradient) != len(h) {
		return 0, fmt.Errorf("gp: gradient of length %d for %d hyper-parameters", len(gradient), len(h))
	}
	if err := r.Condition(h); err != nil {
		return 0, err
	}
	r.ready = false
	if gradient != nil {
		r.gradient(gradient)
	}
	v := r.factor.evidence(r.y)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("gp: the evidence at %v is %v", []float64(h), v)
	}
	return v, nil
}

func (r *Regression) gradient(into []float64) {
	n, f, s := r.n, &r.factor, &r.scales
	f.invert()
	groups := len(r.kernel.Groups)
	clear(into)
	var amplitude, noise float64
	for i := range n {
		row, k, slope, alpha := f.inverse[i*n:i*n+i], r.k[i*n:i*n+i], r.slope[i*n:i*n+i], f.alpha[i]
		for j, inverse := range row {
			w := alpha*f.alpha[j] - inverse // as factor.weight has it
			amplitude += w * k[j]
			w *= slope[j]
			for g := range groups {
				into[g] += w * r.distance[g][i*n+j]
			}
		}
		noise += f.weight(i, i)
	}
	for g := range groups {
		into[g] *= -2 * s.precision[g]
	}
	into[groups] = 2 * (amplitude + s.signal*noise)
	into[groups+1] = 2 * s.noise * noise
}

// Prediction is what a Regression says of one point.
type Prediction struct {
	Mean     float64 // of the function, and of an observation
	Variance float64 // of the function: >= 0
	Observed float64 // variance of an observation: that of the function and of the noise
}

// Predict answers for the point x (Pace, eq. 7 and 8; GPML eq. 2.25, 2.26). Call Condition first.
func (r *Regression) Predict(x []float64) (Prediction, error) {
	if !r.ready {
		return Prediction{}, fmt.Errorf("gp: no hyper-parameters to predict by")
	}
	if len(x) != r.d {
		return Prediction{}, fmt.Errorf("gp: a point of %d columns, want %d", len(x), r.d)
	}
	for c, v := range x {
		if !usable(v) {
			return Prediction{}, fmt.Errorf("gp: column %d: %v is out of range", c, v)
		}
	}
	return r.predict(x), nil
}

func (r *Regression) predict(x []float64) Prediction {
	s := &r.scales
	r.correlate(x)
	var p Prediction
	for i, k := range r.cross {
		p.Mean += k * r.factor.alpha[i]
	}
	r.factor.solveLower(r.cross)
	p.Variance = s.signal
	for _, v := range r.cross {
		p.Variance -= v * v
	}
	p.Variance = max(p.Variance, 0) // rounding
	p.Observed = p.Variance + s.noise
	return p
}

// correlate fills cross with the prior covariances k(x, X) of x and the points.
func (r *Regression) correlate(x []float64) {
	r.cross = resize(r.cross, r.n)
	for i := range r.cross {
		at := r.x[i*r.d : (i+1)*r.d]
		q, first := 0.0, 0
		for g, columns := range r.kernel.Groups {
			sum := 0.0
			for c := first; c < first+columns; c++ {
				sum += (x[c] - at[c]) * (x[c] - at[c])
			}
			q += sum * r.scales.precision[g]
			first += columns
		}
		v, _ := r.kernel.Shape.at(q)
		r.cross[i] = r.scales.signal * v
	}
}
