package ets

import (
	"math"
	"math/rand/v2"
)

// Forecast puts means and variances of the next len(mean) values into mean and variance, which are of one length. After a
// gap the next value is the one after the gap.
//
// Means are what the state says if there are no more errors (for models of class 3 to 5 that is not quite the
// expectation; R states the same). Variances are exact for additive errors (class 1, Hyndman et al. 2008, eq. 6.9) and for
// multiplicative errors with no or an additive trend and no or an additive season (class 2, eq. 6.13). With a multiplicative
// season upon these (class 3) they are exact within one period, as the seasons ahead are known by then, and to the first
// order of the errors' variance beyond it. For a multiplicative trend there is no formula: they come from 500 paths that are drawn
// with a fixed seed. These allocate, as may the first Forecast of others with multiplicative errors. A gap makes
// variances grow over its first 1000 values only.
func (m *Model) Forecast(mean, variance []float64) {
	sigma2 := m.Sigma2()
	for i := range mean {
		steps := m.gap + i + 1
		mean[i] = m.stated(steps, m.damped(steps))
	}
	switch {
	case m.spec.Trend == Multiplicative:
		m.drawn(variance, sigma2)
	case m.spec.Error == Additive:
		m.additive(variance, sigma2)
	default:
		m.relative(variance, sigma2)
	}
}

// impulse is what an error of 1 adds to the value steps later (c_j); phi is phi + ... + phi^steps.
func (m *Model) impulse(steps int, phi float64) float64 {
	c := m.par.Alpha
	if m.spec.Trend != None {
		c += m.par.Beta * phi
	}
	if m.spec.Season == Additive && steps%m.spec.Period == 0 {
		c += m.par.Gamma
	}
	return c
}

// additive: sigma^2 (1 + sum of the squares of c_j, j before the step).
func (m *Model) additive(variance []float64, sigma2 float64) {
	sum, phi, p := 1.0, 0.0, m.par.Phi
	gap := min(m.gap, longestGap)
	for i := range gap + len(variance) {
		if i >= gap {
			variance[i-gap] = sigma2 * sum
		}
		phi += p
		p *= m.par.Phi
		c := m.impulse(i+1, phi)
		sum += c * c
	}
}

// relative: with mu the means, theta_h = mu_h^2 + sigma^2 (sum of c_j^2 theta_{h-j}, j before h), the variance is
// (1 + sigma^2) theta_h - mu_h^2. A multiplicative season is a factor upon that; its own errors count once it comes again.
func (m *Model) relative(variance []float64, sigma2 float64) {
	gap := min(m.gap, longestGap)
	n := gap + len(variance)
	if cap(m.moments) < 3*n {
		m.moments = make([]float64, 3*n)
	}
	mu, theta, c := m.moments[:n], m.moments[n:2*n], m.moments[2*n:3*n]
	phi, p := 0.0, m.par.Phi
	for i := range n {
		phi += p
		p *= m.par.Phi
		c[i] = m.impulse(i+1, phi)
		mu[i] = m.level
		if m.spec.Trend == Additive {
			mu[i] += phi * m.growth
		}
		if m.spec.Season == Additive {
			mu[i] += m.season[(m.at+i)%len(m.season)]
		}
		sum := 0.0
		for j := 1; j <= i; j++ {
			cj := c[j-1]
			if m.spec.Season == Multiplicative && j%m.spec.Period == 0 {
				cj += m.par.Gamma * mu[i] / apart(mu[i-j])
			}
			sum += cj * cj * theta[i-j]
		}
		theta[i] = mu[i]*mu[i] + sigma2*sum
		if i < gap {
			continue
		}
		v := theta[i] - mu[i]*mu[i] + sigma2*theta[i]
		if m.spec.Season == Multiplicative {
			s := m.season[(m.at+m.gap-gap+i)%len(m.season)]
			v *= s * s
		}
		variance[i-gap] = v
	}
}

// longestGap is the most values not measured that variances look back over.
const longestGap = 1000

// paths that variances of models with a multiplicative trend are taken from.
const paths = 500

// drawn takes variances about the mean of values that are drawn, always the same ones.
func (m *Model) drawn(variance []float64, sigma2 float64) {
	skip := min(m.gap, longestGap)
	path := make([]float64, skip+len(variance))
	mean := make([]float64, len(path))
	squares := make([]float64, len(path))
	r := rand.New(rand.NewPCG(1, uint64(len(m.season))))
	for n := range paths {
		m.simulate(path, math.Sqrt(sigma2), r)
		for i, y := range path {
			d := y - mean[i]
			mean[i] += d / float64(n+1)
			squares[i] += d * (y - mean[i])
		}
	}
	for i := range variance {
		variance[i] = squares[skip+i] / (paths - 1)
	}
}

// Simulate puts one path that the model may take from its state on into path, the errors being normal, drawn from a
// seed. The first value of a path is the one after the latest value taken, in the gap if there is one.
func (m *Model) Simulate(path []float64, seed uint64) {
	m.simulate(path, math.Sqrt(m.Sigma2()), rand.New(rand.NewPCG(seed, 0)))
}

func (m *Model) simulate(path []float64, sd float64, r *rand.Rand) {
	run := *m
	run.season = append([]float64(nil), m.season...)
	run.gap = 0
	for i := range path {
		f := run.stated(1, run.par.Phi)
		e := sd * r.NormFloat64()
		if m.spec.Error == Multiplicative {
			e *= f
			if m.spec.Trend == Multiplicative {
				e = max(e, tiny-f) // values stay above 0
			}
		}
		path[i] = f + e
		run.step(path[i])
	}
}
