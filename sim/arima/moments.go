package arima

import "math"

// moments are those of the stationary ARMA process with innovations of variance 1.
type moments struct {
	psi   []float64 // weights of e(t), e(t-1), ...; one per order of the moving average and one
	gamma []float64 // autocovariances at lags 0..p
	first []float64 // covariance of each element of the state with its first, which is w(t) itself

	matrix []float64
}

// reset computes the moments of c. It is false if the process is not stationary within the precision of doubles.
func (m *moments) reset(c *coefs) bool {
	p, q, r := c.p, c.q, len(c.phi)
	m.psi, m.gamma, m.first = grow(m.psi, q+1), grow(m.gamma, p+1), grow(m.first, r)
	impulse(m.psi, c)
	// gamma(k) - sum phi(i) gamma(|k-i|) = sum over j >= k of theta(j) psi(j-k), for k = 0..p.
	for k := range m.gamma {
		m.gamma[k] = 0
		for j := k; j <= q; j++ {
			m.gamma[k] += c.theta[j] * m.psi[j-k]
		}
	}
	if p > 0 {
		n := p + 1
		m.matrix = grow(m.matrix, n*n)
		clear(m.matrix)
		for k := range n {
			row := m.matrix[k*n : (k+1)*n]
			row[k] += 1
			for i := 1; i <= p; i++ {
				lag := k - i
				if lag < 0 {
					lag = -lag
				}
				row[lag] -= c.phi[i-1]
			}
		}
		if !eliminate(m.matrix, m.gamma) {
			return false
		}
	}
	if !(m.gamma[0] > 0) || math.IsInf(m.gamma[0], 0) {
		return false
	}
	m.first[0] = m.gamma[0]
	for i := 1; i < r; i++ {
		var v float64
		for j := i; j < p; j++ {
			v += c.phi[j] * m.gamma[j-i+1]
		}
		for j := i; j <= q; j++ {
			v += c.theta[j] * m.psi[j-i]
		}
		m.first[i] = v
	}
	return true
}

// covariance fills p, whose rows are stride long, with the stationary covariance of the ARMA state: the solution of
// P = T P T' + R R'. Its first column is known, and the rest follows up the diagonals from the last row.
func (m *moments) covariance(c *coefs, p []float64, stride int) {
	r := len(c.phi)
	at := func(x []float64, i int) float64 {
		if i < r {
			return x[i]
		}
		return 0
	}
	for i := r - 1; i >= 0; i-- {
		for j := r - 1; j >= i; j-- {
			v := c.phi[i]*c.phi[j]*m.first[0] + c.phi[i]*at(m.first, j+1) + c.phi[j]*at(m.first, i+1) + c.theta[i]*c.theta[j]
			if j+1 < r {
				v += p[(i+1)*stride+j+1]
			}
			if i == 0 {
				v = m.first[j]
			}
			p[i*stride+j], p[j*stride+i] = v, v
		}
	}
}

// impulse fills psi with the weights of the infinite moving average: the answer of the process to one innovation.
func impulse(psi []float64, c *coefs) {
	for k := range psi {
		var v float64
		if k <= c.q {
			v = c.theta[k]
		}
		for i := 1; i <= min(k, c.p); i++ {
			v += c.phi[i-1] * psi[k-i]
		}
		psi[k] = v
	}
}

// eliminate solves A x = b by Gaussian elimination with partial pivoting: a is n by n by rows, b is n long and becomes
// x. Both are overwritten. It is false where A is singular.
func eliminate(a, b []float64) bool {
	n := len(b)
	for k := range n {
		pivot := k
		for i := k + 1; i < n; i++ {
			if math.Abs(a[i*n+k]) > math.Abs(a[pivot*n+k]) {
				pivot = i
			}
		}
		if a[pivot*n+k] == 0 || math.IsNaN(a[pivot*n+k]) {
			return false
		}
		rk := a[k*n : (k+1)*n]
		if pivot != k {
			rp := a[pivot*n : (pivot+1)*n]
			for j := k; j < n; j++ {
				rk[j], rp[j] = rp[j], rk[j]
			}
			b[k], b[pivot] = b[pivot], b[k]
		}
		inv := 1 / rk[k]
		for i := k + 1; i < n; i++ {
			ri := a[i*n : (i+1)*n]
			f := ri[k] * inv
			if f == 0 {
				continue
			}
			for j := k + 1; j < n; j++ {
				ri[j] -= f * rk[j]
			}
			b[i] -= f * b[k]
		}
	}
	for k := n - 1; k >= 0; k-- {
		v := b[k]
		for j := k + 1; j < n; j++ {
			v -= a[k*n+j] * b[j]
		}
		b[k] = v / a[k*n+k]
	}
	return true
}
