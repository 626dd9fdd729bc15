package ets

import "math"

// begin puts into f.state what a look at the series says of the time before it: seasons from a decomposition by centered
// moving averages, level and growth from a line through the first 10 values without them.
func (f *Fitter) begin() {
	s := &f.state
	m := f.spec.Period
	if f.spec.Season != None {
		f.decompose()
	}
	var n, st, sy, stt, sty float64
	for t, y := range f.ys {
		if math.IsNaN(y) {
			continue
		}
		switch f.spec.Season {
		case Additive:
			y -= s.Season[m-1-t%m]
		case Multiplicative:
			y /= s.Season[m-1-t%m]
		}
		x := float64(t + 1)
		n, st, sy, stt, sty = n+1, st+x, sy+y, stt+x*x, sty+x*y
		if n == max(10, float64(m)) {
			break
		}
	}
	slope := (n*sty - st*sy) / apart(n*stt-st*st)
	level := (sy - slope*st) / n
	if f.spec.Trend == None {
		slope, level = 0, sy/n
	}
	if f.spec.multiplicative() && !(level > 0) {
		level, slope = sy/n, 0
	}
	s.Level, s.Growth = level, slope
	if f.spec.Trend == Multiplicative {
		s.Growth = min(2, max(0.5, 1+slope/apart(sy/n)))
	}
}

// decompose puts the mean seasons of the series into f.state, newest first: Season[m-1] is that of the first value.
func (f *Fitter) decompose() {
	m := f.spec.Period
	season := f.state.Season
	for k := range season {
		sum, n := 0.0, 0
		for t := m - 1 - k; t < len(f.ys); t += m {
			trend := f.around(t)
			if math.IsNaN(trend) || math.IsNaN(f.ys[t]) {
				continue
			}
			if f.spec.Season == Additive {
				sum += f.ys[t] - trend
			} else {
				sum += f.ys[t] / apart(trend)
			}
			n++
		}
		switch {
		case n > 0:
			season[k] = sum / float64(n)
		case f.spec.Season == Additive:
			season[k] = 0
		default:
			season[k] = 1
		}
	}
	total := 0.0
	for k := range season {
		if f.spec.Season == Multiplicative {
			season[k] = max(0.01, season[k])
		}
		total += season[k]
	}
	for k := range season {
		if f.spec.Season == Additive {
			season[k] -= total / float64(m)
		} else {
			season[k] *= float64(m) / total
		}
	}
}

// around is the mean of the period centered on t, the ends counting half where the period is even; NaN where fewer than
// half of it was measured or it reaches beyond the series.
func (f *Fitter) around(t int) float64 {
	half := f.spec.Period / 2
	if t-half < 0 || t+half >= len(f.ys) {
		return math.NaN()
	}
	sum, weight := 0.0, 0.0
	for i := t - half; i <= t+half; i++ {
		if math.IsNaN(f.ys[i]) {
			continue
		}
		w := 1.0
		if f.spec.Period%2 == 0 && (i == t-half || i == t+half) {
			w = 0.5
		}
		sum, weight = sum+w*f.ys[i], weight+w
	}
	if 2*weight < float64(f.spec.Period) {
		return math.NaN()
	}
	return sum / weight
}

// solve puts into f.state the initial state with the least (weighted) squares for the trial's parameters. What is stated of
// each value is a sum: what the values before it and the seasons that are held give, from a state of 0, and what each
// free initial state gives by itself, were all values 0.
func (f *Fitter) solve() {
	k, m := f.free, f.spec.Period
	for i, run := range f.runs {
		run.par = f.trial.par
		run.level, run.growth, run.at = 0, 0, 0
		for j := range run.season {
			run.season[j] = 0
		}
		trend := 0
		if f.spec.Trend != None {
			trend = 1
		}
		switch {
		case i == k: // the values, and seasons that are held
			if f.fixed {
				for j := range run.season {
					run.season[j] = f.state.Season[m-1-j]
				}
			}
		case i == 0:
			run.level = 1
		case i == trend:
			run.growth = 1
		default: // one season up, the one of the first value down, for they add up to 0
			run.season[m-1-(i-1-trend)] = 1
			run.season[0] = -1
		}
	}
	clear(f.normal)
	clear(f.right)
	phi := f.trial.par.Phi
	for t, y := range f.ys {
		missing := math.IsNaN(y)
		for i, run := range f.runs[:k] {
			f.stated[i] = run.stated(1, phi)
			if missing {
				run.step(f.stated[i])
			} else {
				run.step(0)
			}
		}
		all := f.runs[k]
		base := all.stated(1, phi)
		if missing {
			all.step(base)
			continue
		}
		all.step(y)
		w := 1.0
		if f.weights != nil {
			w = f.weights[t]
		}
		for i, a := range f.stated {
			a *= w
			f.right[i] += a * (y - base)
			for j, b := range f.stated[:i+1] {
				f.normal[i*k+j] += a * b
			}
		}
	}
	f.cholesky()
	f.state.Level = f.right[0]
	i := 1
	if f.spec.Trend != None {
		f.state.Growth = f.right[i]
		i++
	}
	if f.spec.Season != None && !f.fixed {
		first := 0.0
		for j, s := range f.right[i:] {
			f.state.Season[j] = s
			first -= s
		}
		f.state.Season[m-1] = first
	}
}

// cholesky solves f.normal x = f.right into f.right, of f.normal the lower triangle. What cannot be distinguished from the
// series is made small.
func (f *Fitter) cholesky() {
	k := f.free
	a, b := f.normal, f.right
	highest := 0.0
	for i := range k {
		highest = max(highest, a[i*k+i])
	}
	for i := range k {
		a[i*k+i] += 1e-13 * highest
		for j := range i + 1 {
			v := a[i*k+j]
			for l := range j {
				v -= a[i*k+l] * a[j*k+l]
			}
			if i == j {
				a[i*k+i] = math.Sqrt(max(v, 1e-15*highest, 1e-300))
			} else {
				a[i*k+j] = v / a[j*k+j]
			}
		}
	}
	for i := range k {
		for l := range i {
			b[i] -= a[i*k+l] * b[l]
		}
		b[i] /= a[i*k+i]
	}
	for i := k - 1; i >= 0; i-- {
		for l := i + 1; l < k; l++ {
			b[i] -= a[l*k+i] * b[l]
		}
		b[i] /= a[i*k+i]
	}
}

// reweigh solves for the initial state of a linear model with multiplicative errors: squares weigh by what was stated, which
// the state before decides.
func (f *Fitter) reweigh() {
	weights := make([]float64, len(f.ys))
	f.weights = weights
	level, growth := f.state.Level, f.state.Growth
	for range 3 {
		f.trial.restart(f.state)
		for t, y := range f.ys {
			fitted, _ := f.trial.Update(y)
			if !(fitted > 0) {
				f.state.Level, f.state.Growth = level, growth
				f.weights = nil
				return
			}
			weights[t] = 1 / (fitted * fitted)
		}
		f.solve()
	}
	f.weights = nil
}
