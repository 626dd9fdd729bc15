package baseline

import (
	"math"

	"evenkeel/forecast"
)

// Histogram says that values to come are spread as those of the past were, the older the less: a value weighs half
// of one that came a half-life later. This is how Kubernetes' vertical pod autoscaler and Google's Autopilot (Rzadca et
// al. 2020, sec. 3.2.1) set requests; these take one percentile of it and a margin. It knows nothing of order: all
// horizons get the same prediction, and a change of level is learnt within a few half-lives.
//
// Buckets are exponential, each 5% wider than the one below it, as in the autoscaler; they follow the greatest value up, so
// that no unit or maximum need be said, and cover a factor of 11,000 below it. What is less than that is one bucket.
// Quantiles are linear between the least and the greatest value that ever came into their bucket (the autoscaler takes the
// bucket's upper end): use that is the same again and again, or measured in whole numbers, is met exactly. Mean and
// variance are those of the values, not of buckets.
//
// It predicts after 3 values. 4.9 kB; a step costs a logarithm and a power, a prediction one pass over 192 buckets.
type Histogram struct {
	halfLife float64                   // in steps
	weight   float64                   // of the next value; doubles with every half-life
	buckets  [histogramBuckets]float64 // weights
	lowest   [histogramBuckets]float64 // values that came into each
	greatest [histogramBuckets]float64
	top      int // exponent of the last bucket: it holds histogramRatio^top and above, up to the next power
	total    float64

	n                   int
	mean, sum, sumScale float64 // weighted mean; squares about it and weights by the latest value's
}

const (
	histogramRatio   = 1.05
	histogramBuckets = 192

	// HistogramHalfLife is the usual half-life of a Histogram: a day of minutes.
	HistogramHalfLife = 24 * 60
)

// NewHistogram is a Histogram that has seen nothing, with a half-life in steps; one below 1, or not a number, counts as
// HistogramHalfLife.
func NewHistogram(halfLife float64) *Histogram {
	if !(halfLife >= 1) {
		halfLife = HistogramHalfLife
	}
	return &Histogram{halfLife: halfLife, weight: 1}
}

// Name implements Model.
func (h *Histogram) Name() string { return "histogram" }

// Observe implements Model. Magnitudes above 1e100 count as not measured.
func (h *Histogram) Observe(y float64) {
	decay := math.Exp2(-1 / h.halfLife)
	if h.weight /= decay; h.weight > 1e30 {
		h.rescale()
	}
	h.sum *= decay
	h.sumScale *= decay
	if y = usable(y); math.IsNaN(y) {
		return
	}
	if h.n++; h.n == 1 {
		h.top = exponent(y)
	}
	h.sumScale++
	d := y - h.mean
	h.mean += d / h.sumScale
	h.sum += d * (y - h.mean)

	e := exponent(y)
	if e > h.top {
		h.shift(e - h.top)
	}
	i := max(0, e-h.top+histogramBuckets-1)
	if h.buckets[i] == 0 {
		h.lowest[i], h.greatest[i] = y, y
	}
	h.buckets[i] += h.weight
	h.lowest[i], h.greatest[i] = min(h.lowest[i], y), max(h.greatest[i], y)
	h.total += h.weight
}

// exponent is that of the bucket of y; values that are not above 0 get one below all others.
func exponent(y float64) int {
	if !(y > 0) {
		return math.MinInt32
	}
	return int(math.Floor(math.Log(y) / math.Log(histogramRatio)))
}

// shift raises all buckets by steps; what falls out below is kept in the lowest.
func (h *Histogram) shift(steps int) {
	h.top += steps
	for i := range h.buckets {
		w, lowest, greatest := h.buckets[i], h.lowest[i], h.greatest[i]
		h.buckets[i] = 0
		if w == 0 {
			continue
		}
		j := max(0, i-steps)
		if h.buckets[j] > 0 { // the lowest
			lowest, greatest = min(lowest, h.lowest[j]), max(greatest, h.greatest[j])
		}
		h.buckets[j] += w
		h.lowest[j], h.greatest[j] = lowest, greatest
	}
}

// rescale makes the weight of the next value 1 again.
func (h *Histogram) rescale() {
	for i := range h.buckets {
		h.buckets[i] /= h.weight
	}
	h.total /= h.weight
	h.weight = 1
}

// Predict implements Model.
func (h *Histogram) Predict(out []forecast.Prediction) bool {
	if h.n < 3 || h.sumScale <= 0 || h.total <= 0 {
		return false
	}
	p := forecast.Prediction{Mean: h.mean, Variance: max(0, h.sum/h.sumScale)}
	below, at := 0.0, 0 // weight before the bucket
	for l, level := range forecast.Levels {
		want := level * h.total
		for at < histogramBuckets-1 && below+h.buckets[at] < want {
			below += h.buckets[at]
			at++
		}
		for at > 0 && h.buckets[at] == 0 { // rounding went past the last value
			at--
			below -= h.buckets[at]
		}
		if !(h.buckets[at] > 0) {
			return false // all of the past has faded
		}
		part := min(1, max(0, (want-below)/h.buckets[at]))
		p.Quantiles[l] = h.lowest[at] + part*(h.greatest[at]-h.lowest[at])
	}
	for i := range out {
		out[i] = p
	}
	return true
}
