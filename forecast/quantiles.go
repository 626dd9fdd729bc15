package forecast

import "slices"

const levels = len(Levels)

// quantiles of one distribution, at Levels.
type quantiles [levels]float64

// ofSample are the quantiles of sorted values, of which there must be one at least: that of probability p lies at place
// p n - 1/2, between two values by linear interpolation (Hyndman and Fan 1996, definition 5). Between equal values it
// is exactly their value: a quantile can sit on a mass point.
func (q *quantiles) ofSample(sorted []float64) {
	n := len(sorted)
	for i, p := range Levels {
		at := p*float64(n) - 0.5
		switch lo := int(at); {
		case at <= 0:
			q[i] = sorted[0]
		case lo >= n-1:
			q[i] = sorted[n-1]
		default:
			x, y := sorted[lo], sorted[lo+1]
			q[i] = x
			if y > x {
				q[i] += (at - float64(lo)) * (y - x)
			}
		}
	}
}

// order rearranges the quantiles so that they ascend, which never makes them worse (Chernozhukov, Fernandez-Val,
// Galichon 2010).
func (q *quantiles) order() { slices.Sort(q[:]) }

// at is the quantile of the probability whose standard normal score is z: linear in the score between two Levels, and
// as steep beyond the outermost as between the last two.
func (q *quantiles) at(z float64) float64 {
	i := 0
	for i < levels-2 && normalQuantiles[i+1] < z {
		i++
	}
	z0, z1 := normalQuantiles[i], normalQuantiles[i+1]
	return q[i] + (z-z0)/(z1-z0)*(q[i+1]-q[i])
}

// moments are mean and variance of the distribution whose quantile function is linear between Levels and constant
// beyond the outermost.
func (q *quantiles) moments() (mean, variance float64) {
	base := q[Median]
	first, last := q[0]-base, q[levels-1]-base
	tail := Levels[0]
	mean = tail * (first + last)
	square := tail * (first*first + last*last)
	for i := 1; i < levels; i++ {
		x, y := q[i-1]-base, q[i]-base
		p := Levels[i] - Levels[i-1]
		mean += p * (x + y) / 2
		square += p * (x*x + x*y + y*y) / 3
	}
	return base + mean, max(0, square-mean*mean)
}

// below is the probability of a value of at most y, linear between quantiles.
func (q *quantiles) below(y float64) float64 {
	switch {
	case y < q[0]:
		return 0
	case y >= q[levels-1]:
		return 1
	}
	i := 0
	for q[i+1] <= y {
		i++
	}
	return Levels[i] + (Levels[i+1]-Levels[i])*(y-q[i])/(q[i+1]-q[i])
}

// pinball is the loss of having said q for the quantile of probability p where y came.
func pinball(q, y, p float64) float64 {
	if y > q {
		return p * (y - q)
	}
	return (1 - p) * (q - y)
}
