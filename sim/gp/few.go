package gp

import "math"

// handful is how many observations at most are taken apart by plain loops: for so few a library's calls cost more than
// what they compute. The result differs from the library's by rounding.
const handful = 12

// decomposeFew is decompose by plain loops.
func (f *factor) decomposeFew() bool {
	n := f.n
	f.inverted = resize(f.inverted, n)
	inverted := f.inverted
	for i := range n {
		row := f.l[i*n : i*n+i+1]
		for j := range i {
			other := f.l[j*n : j*n+j]
			v := row[j]
			for k, o := range other {
				v -= row[k] * o
			}
			row[j] = v * inverted[j]
		}
		v := row[i]
		for _, o := range row[:i] {
			v -= o * o
		}
		if !(v > 0) || math.IsInf(v, 0) {
			return false
		}
		v = math.Sqrt(v)
		row[i], inverted[i] = v, 1/v
	}
	return true
}

// forward is solveLower by plain loops.
func (f *factor) forward(v []float64) {
	n := f.n
	v = v[:n]
	for i, scale := range f.inverted {
		sum := v[i]
		for k, l := range f.l[i*n : i*n+i] {
			sum -= l * v[k]
		}
		v[i] = sum * scale
	}
}

// backward is solveUpper by plain loops.
func (f *factor) backward(v []float64) {
	n := f.n
	for i := n - 1; i >= 0; i-- {
		x := v[i] * f.inverted[i]
		v[i] = x
		for k, l := range f.l[i*n : i*n+i] {
			v[k] -= l * x
		}
	}
}

// invertFew is invert by plain loops: L⁻¹, and from it K⁻¹ = L⁻ᵀ L⁻¹.
func (f *factor) invertFew() {
	n := f.n
	f.lower = resize(f.lower, n*n)
	m := f.lower
	for i := range n {
		scale := f.inverted[i]
		row := m[i*n : i*n+i+1]
		clear(row)
		for k, l := range f.l[i*n : i*n+i] {
			for j, v := range m[k*n : k*n+k+1] {
				row[j] -= l * v
			}
		}
		for j := range i {
			row[j] *= scale
		}
		row[i] = scale
	}
	for i := range n {
		out := f.inverse[i*n : i*n+i+1]
		clear(out)
		for k := i; k < n; k++ {
			row := m[k*n : k*n+i+1]
			v := row[i]
			for j, o := range row {
				out[j] += v * o
			}
		}
	}
}
