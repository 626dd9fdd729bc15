package forecast

import "math"

// residuals learns how the errors of point forecasts are distributed, in units of what the forecaster itself says they
// are. Use of a VM is not normal: the mean and variance of a model are worth more with the quantiles its errors had.
//
// The quantiles follow their levels by steps (the stochastic gradient of the pinball loss): a value above one raises
// it by p, one below lowers it by 1 - p, so that in the long run a share p of the values lies below.
type residuals struct {
	point [slots]float32            // that wait for their value
	unit  [slots]float32            // standard deviation that was stated for them, 1 if none was; 0: nothing waits
	size  [scorings]float32         // decayed mean absolute error, in the unit of the series
	scale [scorings]float32         // decayed mean absolute error, in units of what was stated
	score [scorings][levels]float32 // quantiles of errors in units of scale times what was stated
}

const (
	residualStep = 0.05 // of a quantile in each step, in units of its reach
	residualRate = 0.03 // of the scale
)

// errorReach is how far a quantile may have to move in comparison: errors have heavy tails.
var errorReach = [levels]float64{3.2, 2.2, 1.7, 1.2, 0.9, 0.5, 0.9, 1.2, 1.7, 2.2, 3.2}

// learn takes in the value of step t.
func (r *residuals) learn(t int, y float64) {
	for s := range scored {
		i, kept := slot(s, t)
		if !kept || !(r.unit[i] > 0) {
			continue
		}
		unit := float64(r.unit[i])
		r.unit[i] = 0
		e := y - float64(r.point[i])
		size := float64(r.size[s])
		if size == 0 {
			size = math.Abs(e)
		}
		r.size[s] = float32(size + residualRate*(math.Abs(e)-size))
		e /= unit
		if !(math.Abs(e) <= math.MaxFloat32) {
			continue
		}
		scale := float64(r.scale[s])
		if scale == 0 {
			scale = math.Abs(e)
			for l := range levels {
				r.score[s][l] = float32(1.25 * normalQuantiles[l])
			}
		}
		if scale > 0 {
			z := e / scale
			for l, p := range Levels {
				q := float64(r.score[s][l])
				switch {
				case z > q:
					q += residualStep * errorReach[l] * p
				case z < q:
					q -= residualStep * errorReach[l] * (1 - p)
				}
				r.score[s][l] = float32(q)
			}
		}
		r.scale[s] = float32(scale + residualRate*(math.Abs(e)-scale))
	}
}

// spread writes the quantiles about point forecasts for the values from step t on, and keeps these until then. deviation
// is the forecaster's estimate of its errors, and is changed; nil: it states none.
//
// The deviation counts within a factor of 3 of the size that errors had: otherwise one that is nearly 0 would
// make a unit in which the error that follows is huge.
func (r *residuals) spread(t int, point, deviation []float64, out *grid) {
	for h := range deviation {
		b := scoredPlace[h]
		low, high := float64(r.size[b.low]), float64(r.size[b.high])
		if low > 0 && high > 0 {
			size := low + b.share*(high-low)
			deviation[h] = max(size/3, min(3*size, deviation[h]))
		}
	}
	for s, h := range scored {
		if i, kept := slot(s, t+h-1); kept {
			r.point[i], r.unit[i] = float32(point[h-1]), 1
			if deviation != nil {
				r.unit[i] = float32(deviation[h-1])
			}
		}
	}
	for h := range Horizon {
		unit := 1.0
		if deviation != nil {
			unit = deviation[h]
		}
		b := scoredPlace[h]
		// A horizon that has not been scored yet is as its neighbour that has, or normal.
		low, high := b.low, b.high
		for low > 0 && r.scale[low] == 0 {
			low--
		}
		if r.scale[high] == 0 {
			high = low
		}
		if r.scale[low] == 0 && deviation != nil {
			for l, z := range normalQuantiles {
				out[h][l] = point[h] + z*unit
			}
			continue
		}
		for l := range levels {
			a := float64(r.scale[low]) * float64(r.score[low][l])
			c := float64(r.scale[high]) * float64(r.score[high][l])
			out[h][l] = point[h] + unit*(a+b.share*(c-a))
		}
		out[h].order()
	}
}

// lose forgets what waits: values were not measured meanwhile.
func (r *residuals) lose() { clear(r.unit[:]) }

func (r *residuals) archive(a *archive) {
	a.singles(r.point[:], false)
	a.singles(r.unit[:], false)
	a.singles(r.size[:], false)
	a.singles(r.scale[:], false)
	for s := range r.score {
		a.singles(r.score[s][:], false)
	}
}
