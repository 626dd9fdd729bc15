package forecast

import (
	"math"
	"time"
)

// Spread says what of a prediction a Buffer takes for V, its uncertainty.
type Spread int

const (
	// Deviation is the standard deviation, in the unit of the resource. It is the default: three of them hold 99.87% of
	// what a normal distribution gives, whatever the unit is called.
	Deviation Spread = iota

	// Variance is what Pace writes. Its unit is that of the resource squared: a need of 2 cores with a deviation of 0.5
	// gets 3*0.25 = 0.75 cores of buffer, the same need in millicores 3*250,000 = 750,000 millicores, and a deviation of a
	// hundredth of a core next to nothing. It is here to repeat the paper's figures, with values in its unit.
	Variance

	// Quantile is how far the quantile at Buffer.Level lies above the mean. It takes a distribution as it is, also one
	// that is not symmetric; with it a K2 of 1 says that use passes the buffer in 1-Level of all cases.
	Quantile
)

// Buffer is the headroom that is left above a predicted use: beta = K1*R + K2*V, with the request R and the
// prediction's uncertainty V (Pace, sec. III-B).
type Buffer struct {
	K1     float64 // share of the request
	K2     float64
	Spread Spread
	Level  float64 // for Quantile; the next of Levels that is not below it is taken

	// AboveRequest lets a need grow above the request, where what is above may be had.
	AboveRequest bool

	// MinAge is how long a VM is observed before its need is estimated; until then its need is the request. This package
	// does not enforce it. The simulator has rightsizing.Options.MinAge; the daemons wait for a trusted forecast, or for a
	// quarter of an hour of measured use (agent.Ahead).
	MinAge time.Duration
}

// DefaultBuffer holds Pace's figures (sec. IV-C and V), with the standard deviation for V: see Spread.
var DefaultBuffer = Buffer{K1: 0.05, K2: 3, Spread: Deviation, Level: 0.975, MinAge: 10 * time.Minute}

// Size is beta, in the unit of request and prediction; never below 0.
func (b Buffer) Size(request float64, p Prediction) float64 { return b.size(request, &p) }

// size is Size: a prediction is large, and this is asked for every component at every look.
func (b *Buffer) size(request float64, p *Prediction) float64 {
	v := 0.0
	switch b.Spread {
	case Deviation:
		v = math.Sqrt(max(0, p.Variance))
	case Variance:
		v = p.Variance
	case Quantile:
		i := 0
		for i < len(Levels)-1 && Levels[i] < b.Level {
			i++
		}
		v = p.Quantiles[i] - p.Mean
	}
	return max(0, b.K1*request+b.K2*max(0, v))
}

// Need is the amount into which the predicted use fits with its buffer at every one of the steps ahead: the
// greatest mean + beta, a mean below 0 counting as 0. So it is at least K1*request, and it is at most the request unless
// AboveRequest. Without a prediction, or with one that is not finite, the need is the request.
func (b Buffer) Need(request float64, ahead []Prediction) float64 {
	need := 0.0
	for i := range ahead {
		p := &ahead[i]
		need = max(need, max(0, p.Mean)+b.size(request, p)) // NaN stays
	}
	if len(ahead) == 0 || math.IsNaN(need) || math.IsInf(need, 0) || need > request && !b.AboveRequest {
		return request
	}
	return need
}
