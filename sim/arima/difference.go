package arima

import "math"

// kpss5 is the 5% point of the KPSS statistic for a series that is stationary about a level (Kwiatkowski, Phillips,
// Schmidt, Shin 1992, table 1).
const kpss5 = 0.463

// Differences is how many plain differences a series needs, up to most, after sd seasonal ones: as many as it takes
// until a KPSS test at 5% no longer rejects that what is left is stationary about a level. Values that are missing are
// passed over: their neighbours count as adjacent.
func Differences(y []float64, sd, period, limit int) int {
	x := make([]float64, 0, len(y))
	for _, v := range y {
		if math.Abs(v) <= largest {
			x = append(x, v)
		}
	}
	if period >= 2 {
		for range sd {
			x = lagged(x, period)
		}
	}
	d := 0
	for d < limit && len(x) >= 8 && kpss(x) > kpss5 {
		x = lagged(x, 1)
		d++
	}
	return d
}

// lagged replaces x by its differences at the given lag, in place.
func lagged(x []float64, lag int) []float64 {
	if len(x) <= lag {
		return x[:0]
	}
	for t := 0; t+lag < len(x); t++ {
		x[t] = x[t+lag] - x[t]
	}
	return x[:len(x)-lag]
}

// kpss is the statistic: the sum of squares of the partial sums of the deviations from the mean, over n^2 times their
// long-run variance, which is estimated with Bartlett weights over 4 (n/100)^(1/4) lags.
func kpss(x []float64) float64 {
	n := len(x)
	mean := average(x)
	var highest float64
	for _, v := range x {
		highest = max(highest, math.Abs(v-mean))
	}
	if highest <= 1e-14*math.Abs(mean) || highest == 0 {
		return 0
	}
	lags := int(4 * math.Pow(float64(n)/100, 0.25))
	var sum, top float64
	for _, v := range x {
		sum += (v - mean) / highest
		top += sum * sum
	}
	var long float64
	for l := 0; l <= min(lags, n-1); l++ {
		var c float64
		for t := l; t < n; t++ {
			c += (x[t] - mean) / highest * ((x[t-l] - mean) / highest)
		}
		if l > 0 {
			c *= 2 * (1 - float64(l)/float64(lags+1))
		}
		long += c
	}
	if !(long > 0) {
		return 0
	}
	return top / (float64(n) * long)
}
