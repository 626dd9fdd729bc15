package forecast

import (
	"math"
	"math/bits"
	"slices"
)

// Mixture is a Model made of others. It weighs what they say by what they were worth on this series so far, for
// each level and horizon apart, corrects the result by how often it held, and keeps account of both.
//
//	experts -> weights (regret, pinball loss) -> conformal (coverage) -> prediction
//
// No expert has to be right, not even mostly: where none is, the corrected mixture still covers what it says it
// covers, with intervals as wide as that takes.
type Mixture struct {
	h         history
	w         *Workspace
	experts   []expert
	weights   weights
	conformal conformal
	record    []calibration // by expert, what was stated in the end last
	change    changeTest
	able      uint32 // bits of the experts that had something to say of what comes now
	ahead     grid   // stated of what comes now
	ready     bool
	unknown   int // values at the end that were not measured
}

// NewMixture is a mixture of the experts that production uses. period is how many steps a day has. A nil w is a workspace of its
// own.
func NewMixture(period int, w *Workspace) *Mixture {
	if w == nil {
		w = NewWorkspace()
	}
	m := &Mixture{w: w, conformal: newConformal(), experts: []expert{
		recent{8}, recent{24}, recent{96}, recent{window},
		walk{96},
		analog{length: 3, nearest: 40},
		analog{length: 1, nearest: 40},
		analog{length: 6, nearest: 40, relative: true},
		newAutoregression(),
		newSeasonal(period),
	}}
	m.weights = newWeights(len(m.experts))
	m.record = make([]calibration, len(m.experts)+1)
	return m
}

// priors are logarithms of what each expert counts before anything is known, in their order: use of VMs jumps about a
// level more often than not, and clever models need many values. An hour of measurements overrules them.
var priors = [maxExperts]float64{
	math.Log(0.5), 0, math.Log(4), math.Log(12), // recent
	math.Log(0.05),      // walk
	0, 0, math.Log(0.1), // analogs
	math.Log(0.3), math.Log(0.1), // ar, seasonal
}

// trivial is the expert that the mixture must not be worse than.
const trivial = 4

// Name implements Model.
func (m *Mixture) Name() string { return "mixture" }

// Observe implements Model.
func (m *Mixture) Observe(y float64) { m.observe(y, false) }

// ObserveCensored takes a value at a cap: the true one is no less, and not known. The value judges the quantiles
// below it, and none above it. In the history it counts as the median of what the mixture expects above it, and as
// a quarter more at least: forecasts grow beyond a cap while it binds.
func (m *Mixture) ObserveCensored(y float64) { m.observe(y, true) }

func (m *Mixture) observe(y float64, censored bool) {
	t := m.h.n
	measured := countable(y)
	if measured {
		m.learn(t, y, censored)
		if censored {
			y = m.beyond(y)
		}
		m.unknown = 0
	} else {
		y = m.expected()
		m.unknown++
	}
	m.h.push(y, measured)
	for _, e := range m.experts {
		e.observe(&m.h, m.w)
	}
	m.look(t + 1)
}

// skip passes n steps in which nothing was measured and no forecast was asked for. It costs next to nothing per step.
func (m *Mixture) skip(n int) {
	if n <= 0 || m.h.n == 0 {
		return
	}
	y := m.expected()
	for range n {
		m.h.push(y, false)
		for _, e := range m.experts {
			e.observe(&m.h, m.w)
		}
	}
	// Predictions that wait are for steps that are gone. They must not be taken for another step's.
	m.weights.lose()
	m.conformal.lose()
	for _, e := range m.experts {
		if e, ok := e.(interface{ lose() }); ok {
			e.lose()
		}
	}
	m.unknown = min(m.unknown+n, window)
	m.look(m.h.n)
}

// expected is what stands for a value that is not known.
func (m *Mixture) expected() float64 {
	switch {
	case m.ready:
		return m.ahead[0][Median]
	case m.h.n > 0:
		return m.h.at(0)
	}
	return 0
}

// beyond is what stands for a value of at least y: the median of what was stated above y.
func (m *Mixture) beyond(y float64) float64 {
	lowest := y + math.Abs(y)/4
	if !m.ready {
		return lowest
	}
	q := &m.ahead[0]
	p := (1 + q.below(y)) / 2
	for l := 1; l < levels; l++ {
		if Levels[l] >= p {
			return max(lowest, q[l-1]+(q[l]-q[l-1])*(p-Levels[l-1])/(Levels[l]-Levels[l-1]))
		}
	}
	return max(lowest, min(q[levels-1], largest))
}

// calibrateFrom is the step from which what is stated counts for calibration: before it models know too little.
const calibrateFrom = 20

// learn compares what was said of step t with what came.
func (m *Mixture) learn(t int, y float64, censored bool) {
	if !censored {
		last := len(m.experts)
		for s := range scored {
			if t-scored[s] < calibrateFrom {
				continue
			}
			i, kept := slot(s, t)
			for k := range m.experts {
				if row := &m.weights.waiting[k][i]; kept && row[0] == row[0] {
					m.record[k].add(s, row, y)
				}
			}
			if row := m.conformal.stated(scoredCorrected[s], t); row != nil {
				m.record[last].add(s, row, y)
				if s == 0 && m.h.whole(arWidth) { // others come late, or count one change many times
					m.change.add(row, y)
				}
			}
		}
	}
	m.weights.learn(t, y, censored)
	m.conformal.learn(t, y, censored)
}

// scoredCorrected are the places of the scored horizons among the corrected.
var scoredCorrected = func() (at [scorings]int) {
	for s, h := range scored {
		at[s] = -1
		for i, x := range corrected {
			if x == h {
				at[s] = i
			}
		}
	}
	return at
}()

// look makes the statement about the values from step t on.
func (m *Mixture) look(t int) {
	w, n := m.w, len(m.experts)
	if len(w.grids) < n {
		w.grids, w.able = make([]grid, n), make([]bool, n)
	}
	m.able = 0
	able := w.able[:n]
	low, high := m.h.room()
	for k, e := range m.experts {
		able[k] = m.h.seen > 0 && e.predict(&m.h, w, &w.grids[k]) && w.grids[k].sound()
		if able[k] {
			m.able |= 1 << k
			w.grids[k].clip(low, high)
		}
	}
	m.ready = m.able != 0
	if !m.ready {
		m.weights.keep(t, able, nil, nil)
		m.conformal.keep(t, nil)
		return
	}
	// Differences from one of the experts are mixed: what all agree on comes out as it is, to the last bit.
	base := &w.grids[bits.TrailingZeros32(m.able)]
	m.ahead = *base
	m.weights.share(able, &w.share)
	for h := range Horizon {
		b := scoredPlace[h]
		for l := range levels {
			near, far := &w.share[b.low][l], &w.share[b.high][l]
			for k := range m.experts {
				if share := near[k] + b.share*(far[k]-near[k]); share > 0 {
					m.ahead[h][l] += share * (w.grids[k][h][l] - base[h][l])
				}
			}
		}
	}
	for h := range Horizon {
		m.ahead[h].order()
	}
	m.weights.keep(t, able, w.grids[:n], &m.ahead)
	m.conformal.correct(&m.ahead, m.h.seen)
	m.ready = m.ahead.sound()
	if !m.ready {
		m.ahead = grid{}
		m.conformal.keep(t, nil)
		return
	}
	m.conformal.keep(t, &m.ahead)
}

// sound says whether a grid can be reckoned with.
func (g *grid) sound() bool {
	for h := range g {
		for _, q := range g[h] {
			if !(math.Abs(q) <= stated) {
				return false
			}
		}
	}
	return true
}

// ascends says whether each distribution is one.
func (g *grid) ascends() bool {
	for h := range g {
		if !slices.IsSorted(g[h][:]) {
			return false
		}
	}
	return true
}

// Predict implements Model. Beyond Horizon steps the last distribution is stretched about its median, by the root of the
// steps as a random walk's would be.
func (m *Mixture) Predict(out []Prediction) bool {
	if !m.ready {
		return false
	}
	for i := range out {
		q := m.ahead[min(i, Horizon-1)]
		if i >= Horizon {
			stretch := math.Sqrt(float64(i+1) / Horizon)
			middle := q[Median]
			for l := range q {
				q[l] = middle + stretch*(q[l]-middle)
			}
		}
		out[i].Mean, out[i].Variance = q.moments()
		out[i].Quantiles = q
	}
	return true
}

func (m *Mixture) archive(a *archive) {
	m.h.archive(a)
	for _, e := range m.experts {
		e.archive(a)
	}
	m.weights.archive(a)
	m.conformal.archive(a)
	for i := range m.record {
		m.record[i].archive(a)
	}
	m.change.archive(a)
	able := int(m.able)
	a.count(&able, 1<<len(m.experts)-1)
	m.able = uint32(able)
	for h := range m.ahead {
		a.floats(m.ahead[h][:])
	}
	a.flag(&m.ready)
	if m.ready {
		a.require(m.ahead.sound() && m.ahead.ascends(), "a forecast that descends or is too great")
	}
	a.count(&m.unknown, math.MaxInt32)
}
