package forecast

import "math"

// residuals learns how the errors of point forecasts are distributed. Use of a VM is not normal: a point forecast is worth more with
// the quantiles its errors had.
//
// The quantiles follow their levels by steps (the stochastic gradient of the pinball loss): a value above one raises
// it by p, one below lowers it by 1 - p, so that in the long run a share p of the values lies below.
type residuals struct {
	point [slots]float32            // that wait for their value; NaN: nothing waits
	scale [scorings]float32         // decayed mean absolute error
	score [scorings][levels]float32 // quantiles of errors in units of scale
}

const (
	residualStep = 0.05 // of a quantile in each step, in units of its reach
	residualRate = 0.03 // of the scale
)

// errorReach is how far a quantile may have to move in comparison: errors have heavy tails.
var errorReach = [levels]float64{3.2, 2.2, 1.7, 1.2, 0.9, 0.5, 0.9, 1.2, 1.7, 2.2, 3.2}

func newResiduals() (r residuals) {
	r.lose()
	return r
}

// learn takes in the value of step t.
func (r *residuals) learn(t int, y float64) {
	for s := range scored {
		i, kept := slot(s, t)
		if !kept || r.point[i] != r.point[i] {
			continue
		}
		e := y - float64(r.point[i])
		r.point[i] = float32(math.NaN())
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

// spread writes the quantiles about point forecasts for the values from step t on, and keeps these until then.
func (r *residuals) spread(t int, point []float64, out *grid) {
	for s, h := range scored {
		if i, kept := slot(s, t+h-1); kept {
			r.point[i] = float32(point[h-1])
		}
	}
	for h := range Horizon {
		b := scoredPlace[h]
		// A horizon that has not been scored yet is as its neighbour that has.
		low, high := b.low, b.high
		for low > 0 && r.scale[low] == 0 {
			low--
		}
		if r.scale[high] == 0 {
			high = low
		}
		for l := range levels {
			a := float64(r.scale[low]) * float64(r.score[low][l])
			c := float64(r.scale[high]) * float64(r.score[high][l])
			out[h][l] = point[h] + (a + b.share*(c-a))
		}
		out[h].order()
	}
}

// lose forgets what waits: values were not measured meanwhile.
func (r *residuals) lose() {
	for i := range r.point {
		r.point[i] = float32(math.NaN())
	}
}

func (r *residuals) archive(a *archive) {
	a.singles(r.point[:], true)
	a.singles(r.scale[:], false)
	for s := range r.score {
		a.singles(r.score[s][:], false)
	}
}
