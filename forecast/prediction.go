package forecast

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Levels are the probabilities whose quantiles a Prediction states, ascending. Pairs around the median bound the
// central intervals of 50, 80, 90, 95 and 99%.
var Levels = [...]float64{0.005, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.995}

// Median is the place of the median in Levels.
const Median = len(Levels) / 2

// normalQuantiles are those of the standard normal distribution at Levels.
var normalQuantiles = func() (z [len(Levels)]float64) {
	for i, p := range Levels {
		z[i] = distuv.UnitNormal.Quantile(p)
	}
	return z
}()

// Prediction is what one future value of a series may be, in the unit of the series.
type Prediction struct {
	Mean      float64
	Variance  float64              // of the value itself, not of its mean: >= 0, in the unit squared
	Quantiles [len(Levels)]float64 // at Levels, never descending
}

// Normal is the prediction of a normal distribution; a variance below 0 or not a number counts as 0.
func Normal(mean, variance float64) Prediction {
	if !(variance > 0) {
		variance = 0
	}
	p := Prediction{Mean: mean, Variance: variance}
	sd := math.Sqrt(variance)
	for i, z := range normalQuantiles {
		p.Quantiles[i] = mean + z*sd
	}
	return p
}

// Model learns one series and predicts it. It is not safe for concurrent use.
type Model interface {
	// Name of the kind of model: "arima", "gp", "last". For people and metrics.
	Name() string

	// Observe takes the next value of the series; NaN is one that was not measured. An infinite value counts as NaN.
	Observe(y float64)

	// Predict states the next len(out) values, out[0] the very next one, and says whether it could: false, out
	// untouched, until the model has seen enough. It changes nothing that a later Predict or Observe would show.
	Predict(out []Prediction) bool
}
