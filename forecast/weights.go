package forecast

import "math"

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
	prior   []float64 // logarithms of what each counts before anything is known
}

const (
	regretRate   = 4.0
	regretDecay  = 0.999 // half of it in 700 steps
	regretLinear = 0.25
)

func newWeights(prior []float64) weights {
	experts := len(prior)
	v := weights{prior: prior, waiting: make([][slots][levels]float32, experts+1), regret: make([][scorings][levels]float32, experts)}
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

// learn takes in the value of step t; all of one that is censored is that the true one is no less.
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
			said := float64(mix[l])
			if censored && said >= y {
				continue
			}
			slope := -p
			switch {
			case y < said:
				slope = 1 - p
			case y == said:
				slope = 0.5 - p
			}
			lost := pinball(said, y, p)
			var greatest float64
			for k := range experts {
				row := &v.waiting[k][i]
				if row[0] != row[0] {
					continue
				}
				q := float64(row[l])
				r := regretLinear*slope*(said-q) + (1-regretLinear)*(lost-pinball(q, y, p))
				v.regret[k][s][l] = float32(within(regretDecay*float64(v.regret[k][s][l])+r, largest))
				greatest = max(greatest, math.Abs(r))
			}
			v.square[s][l] = float32(min(regretDecay*float64(v.square[s][l])+greatest*greatest, math.MaxFloat32))
		}
		mix[0] = float32(math.NaN())
	}
}

// shares are the weights of the experts that are able, at a scored horizon and a level; they sum to 1.
func (v *weights) shares(s, l int, able []bool, out []float64) {
	rate := 0.0
	if q := float64(v.square[s][l]); q > 0 {
		rate = regretRate / math.Sqrt(q)
	}
	top := math.Inf(-1)
	for k, ok := range able {
		if ok {
			top = max(top, v.prior[k]+rate*float64(v.regret[k][s][l]))
		}
	}
	var sum float64
	for k, ok := range able {
		out[k] = 0
		if ok {
			out[k] = math.Exp(v.prior[k] + rate*float64(v.regret[k][s][l]) - top)
			sum += out[k]
		}
	}
	for k := range out {
		out[k] /= sum
	}
}

// keep remembers what experts and mixture say of the values from step t on. With no grids nothing was said.
func (v *weights) keep(t int, able []bool, said []grid, mix *grid) {
	for s, h := range scored {
		i, kept := slot(s, t+h-1)
		if !kept {
			continue
		}
		for k := range v.waiting {
			row := &v.waiting[k][i]
			from := mix
			if from != nil && k < len(said) {
				if from = &said[k]; !able[k] {
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
		}
	}
	for k := range v.regret {
		for s := range v.regret[k] {
			a.singles(v.regret[k][s][:], false)
		}
	}
	for s := range v.square {
		a.singles(v.square[s][:], false)
	}
}
