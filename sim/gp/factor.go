package gp

import (
	"errors"
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack/lapack64"
)

// ErrNotPositive is returned when a covariance matrix is not positive definite even with the most jitter.
var ErrNotPositive = errors.New("gp: covariance matrix is not positive definite")

// Jitter is added to the diagonal of a covariance matrix only when its factorization fails: first firstJitter times
// its mean diagonal, then ten times as much each time, until jitters attempts have failed. The most is 1e-5 of the
// mean diagonal: 0.3% in standard deviations, which no prediction shows.
const (
	firstJitter = 1e-10
	jitters     = 6
)

// factor is a covariance matrix K of n observations y, taken apart.
type factor struct {
	n       int
	l       []float64 // n x n by rows: lower triangle L of K = L Lᵀ
	inverse []float64 // n x n by rows: lower triangle of K⁻¹, when invert was called
	alpha   []float64 // K⁻¹ y
	jitter  float64   // what was added to the diagonal

	inverted []float64 // of the diagonal of l, where there are few observations
	lower    []float64 // and L⁻¹, when invert was called
	general  bool      // for tests: by the library however few there are
}

// few says whether plain loops are quicker than the library.
func (f *factor) few() bool { return f.n <= handful && !f.general }

func (f *factor) size(n int) {
	f.n = n
	f.l = resize(f.l, n*n)
	f.inverse = resize(f.inverse, n*n)
	f.alpha = resize(f.alpha, n)
}

// set factorizes the matrix whose lower triangle is k, n x n by rows, and solves for y, unless that is nil.
func (f *factor) set(n int, k, y []float64) error {
	f.size(n)
	mean := 0.0
	for i := range n {
		mean += k[i*n+i] / float64(n)
	}
	if !(mean > 0) || math.IsInf(mean, 0) {
		return ErrNotPositive
	}
	f.jitter = 0
	for attempt := range jitters + 1 {
		copy(f.l, k[:n*n])
		if attempt > 0 {
			f.jitter = mean * firstJitter * math.Pow(10, float64(attempt-1))
			for i := range n {
				f.l[i*n+i] += f.jitter
			}
		}
		if !f.decompose() {
			continue
		}
		if y != nil {
			copy(f.alpha, y)
			f.solveLower(f.alpha)
			f.solveUpper(f.alpha)
		}
		return nil
	}
	return ErrNotPositive
}

func (f *factor) triangle() blas64.Triangular {
	return blas64.Triangular{Uplo: blas.Lower, Diag: blas.NonUnit, N: f.n, Stride: f.n, Data: f.l}
}

// decompose makes L of the matrix in l, and says whether it is positive definite.
func (f *factor) decompose() bool {
	if f.few() {
		return f.decomposeFew()
	}
	_, ok := lapack64.Potrf(blas64.Symmetric{Uplo: blas.Lower, N: f.n, Stride: f.n, Data: f.l})
	return ok
}

// solveLower makes L⁻¹ v of v.
func (f *factor) solveLower(v []float64) {
	if f.few() {
		f.forward(v)
		return
	}
	blas64.Trsv(blas.NoTrans, f.triangle(), blas64.Vector{N: f.n, Inc: 1, Data: v[:f.n]})
}

// solveUpper makes L⁻ᵀ v of v.
func (f *factor) solveUpper(v []float64) {
	if f.few() {
		f.backward(v)
		return
	}
	blas64.Trsv(blas.Trans, f.triangle(), blas64.Vector{N: f.n, Inc: 1, Data: v[:f.n]})
}

// evidence is log p(y | K) = -½ yᵀK⁻¹y - ½ log|K| - n/2 log 2π (GPML eq. 2.30).
func (f *factor) evidence(y []float64) float64 {
	n := f.n
	sum := -0.5 * float64(n) * math.Log(2*math.Pi)
	if f.few() {
		product := 1.0 // of a few numbers between e^-50 and e^50 or so
		for i := range n {
			sum -= 0.5 * y[i] * f.alpha[i]
			product *= f.l[i*n+i]
		}
		return sum - math.Log(product)
	}
	for i := range n {
		sum -= 0.5*y[i]*f.alpha[i] + math.Log(f.l[i*n+i])
	}
	return sum
}

// invert fills the lower triangle of inverse.
func (f *factor) invert() {
	if f.few() {
		f.invertFew()
		return
	}
	copy(f.inverse, f.l)
	lapack64.Potri(blas64.Triangular{Uplo: blas.Lower, Diag: blas.NonUnit, N: f.n, Stride: f.n, Data: f.inverse})
}

// weight is the derivative of the evidence by the elements (i, j) and (j, i), j <= i, of K together: ½ (ααᵀ - K⁻¹),
// counted twice off the diagonal (GPML eq. 5.9).
func (f *factor) weight(i, j int) float64 {
	w := f.alpha[i]*f.alpha[j] - f.inverse[i*f.n+j]
	if i == j {
		w /= 2
	}
	return w
}

func resize(s []float64, n int) []float64 {
	if cap(s) < n {
		return make([]float64, n)
	}
	return s[:n]
}
