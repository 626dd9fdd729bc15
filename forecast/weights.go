package forecast

import (
	"math"
	"slices"
)

// weights says how much each expert counts, for each scored horizon and level apart: one may know the middle of the
// next minute, another the upper tail in ten.
//
// They are exponential in the regrets: what the mixture lost, less what the expert would have lost instead, decayed
// (Littlestone and Warmuth 1994; a second-order rate as in Cesa-Bianchi, Mansour, Stoltz 2007: the unit is the root of
// the sum of squares of the greatest regret of each step, so that neither the unit of the series nor one outlier
// matters). A part of each loss is taken linear in the mixture's quantile (the gradient trick), which finds good
// combinations where no expert alone is good.
type weights struct {
	waiting [][slots][levels]float32 // by expert, the mixture itself last; NaN: nothing waits
	regret  [][scorings][levels]float32
	square  [scorings][levels]float32
}

const (
	maxExperts   = 16
	rateOwn      = 1.5 // of regrets in units of the root of their squares' sum
	rateLevel    = 2.0
	rateBeside   = 2.0
	regretDecay  = 0.999 // half of it in 700 steps
	regretLinear = 0.25
)

func newWeights(experts int) weights {
	v := weights{waiting: make([][slots][levels]float32, experts+1), regret: make([][scorings][levels]float32, experts)}
	v.lose()
	return v
}

func (v *weights) lose() {
	for i := range v.waiting {
		for j := range v.waiting[i] {
			v.waiting[i][j][0] = float32(math.NaN())
		}
	}
}

// learn takes in the value of step t. Of a censored one it is known only that the true one is no less: what said less lost
// that much, what said more lost nothing that is known.
func (v *weights) learn(t int, y float64, censored bool) {
	experts := len(v.regret)
	for s := range scored {
		i, kept := slot(s, t)
		if !kept {
			continue
		}
		mix := &v.waiting[experts][i]
		if mix[0] != mix[0] {
			continue
		}
		for l, p := range Levels {
			stated := float64(mix[l])
			if censored && stated >= y {
				continue
			}
			slope := -p
			switch {
			case y < stated:
				slope = 1 - p
			case y == stated:
				slope = 0.5 - p
			}
			lost := pinball(stated, y, p)
			var greatest float64
			for k := range experts {
				row := &v.waiting[k][i]
				if row[0] != row[0] {
					continue
				}
				q := float64(row[l])
				if censored {
					q = min(q, y) // to have said more is not known to be wrong
				}
				r := regretLinear*slope*(stated-q) + (1-regretLinear)*(lost-pinball(q, y, p))
				v.regret[k][s][l] = float32(within(regretDecay*float64(v.regret[k][s][l])+r, largest))
				greatest = max(greatest, math.Abs(r))
			}
			v.square[s][l] = float32(min(regretDecay*float64(v.square[s][l])+greatest*greatest, math.MaxFloat32))
		}
		mix[0] = float32(math.NaN())
	}
}

// shares are the weights of experts: by scored horizon, then level.
type shares [scorings][levels][maxExperts]float64

// share fills out with the weights of the experts that are able, which sum to 1; those that are not have 0.
//
// To an expert's regret at one level and horizon is added what it is on average at this level over the horizons, and at the two
// levels beside it. The regrets of one are noisy: few values lie beyond an outer quantile. (Smoothing of weights
// over levels: Berrisch and Ziel 2023, CRPS learning.)
func (v *weights) share(able []bool, out *shares) {
	var average [levels][maxExperts]float64
	for s := range scored {
		for l := range levels {
			rate := 0.0
			if q := float64(v.square[s][l]); q > 0 {
				rate = 1 / math.Sqrt(q)
			}
			for k := range able {
				z := rate * float64(v.regret[k][s][l])
				out[s][l][k] = z
				average[l][k] += z / scorings
			}
		}
	}
	for s := range scored {
		for l := range levels {
			below, above := &average[max(0, l-1)], &average[min(levels-1, l+1)]
			z := &out[s][l]
			top := math.Inf(-1)
			for k, ok := range able {
				z[k] = priors[k] + rateOwn*z[k] + rateLevel*average[l][k] + rateBeside*(below[k]+above[k])/2
				if ok {
					top = max(top, z[k])
				}
			}
			var sum float64
			for k, ok := range able {
				if ok {
					z[k] = math.Exp(z[k] - top)
					sum += z[k]
				} else {
					z[k] = 0
				}
			}
			for k := range able {
				z[k] /= sum
			}
		}
	}
}

// keep remembers what experts and mixture say of the values from step t on. With no grids nothing was said.
func (v *weights) keep(t int, able []bool, stated []grid, mix *grid) {
	for s, h := range scored {
		i, kept := slot(s, t+h-1)
		if !kept {
			continue
		}
		for k := range v.waiting {
			row := &v.waiting[k][i]
			from := mix
			if from != nil && k < len(stated) {
				if from = &stated[k]; !able[k] {
					from = nil
				}
			}
			if from == nil {
				row[0] = float32(math.NaN())
				continue
			}
			for l, q := range from[h-1] {
				row[l] = float32(q)
			}
		}
	}
}

func (v *weights) archive(a *archive) {
	for i := range v.waiting {
		for j := range v.waiting[i] {
			a.singles(v.waiting[i][j][:], true)
			a.require(modest(v.waiting[i][j][:]), "what an expert said is too great")
		}
	}
	for k := range v.regret {
		for s := range v.regret[k] {
			a.singles(v.regret[k][s][:], false)
		}
	}
	for s := range v.square {
		a.singles(v.square[s][:], false)
		a.require(slices.Min(v.square[s][:]) >= 0, "a square is below 0")
	}
}
