package periodic

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"evenkeel/forecast/skyline"
)

// ErrFewRuns is returned for jobs of too few runs: they have no model (the paper has none for weekly jobs of a month either).
var ErrFewRuns = errors.New("too few runs for a model")

const (
	// folds is how often a model is fitted to all runs but some, which say how good it is.
	folds = 8
	// betweenAlarms is how many runs pass on average before a model is withdrawn without a change of the job, at least.
	betweenAlarms = 100
	// bet is the exponent of the bets against a model: small ones win more on p-values that are far too small.
	bet = 0.3
)

// alphas that a job may have, from one that buys safety to one that buys little.
var alphas = []float64{0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9}

// Options of Learn.
type Options struct {
	// Miss is how likely a run may need more than is reserved, in (0, 1).
	Miss float64
	// Debts: later steps can make up for what earlier ones fell short of. See skyline.Options.
	Debts bool
	// Censored marks steps in which a run was held back. See skyline.Options.
	Censored [][]bool
}

// Model is what to reserve for the next run of a job.
type Model struct {
	Skyline []float64 // by step, in the unit of the usage
	// Alpha is the weight of over-allocation that reserves least for the chance that was asked for.
	Alpha float64
	// Factor by which the fitted skyline is multiplied, so that the chance holds.
	Factor float64
	// Miss is the chance that the next run needs more, if it is like the others. It may be more than was asked for: n runs
	// say nothing about less than 1/(n+1).
	Miss float64
	Runs int

	debts  bool
	scores []float64 // of the runs, each by a model that was not fitted to it, over Factor; sorted
}

// Learn fits what to reserve for the next run to past ones, in order of time. For each alpha, models are fitted to all runs but
// an eighth, in turns; the factor by which such a model would have had to be larger is the score of a run that it has not seen.
// The quantile of the scores at ceil((n+1)(1-miss)) is a conformal bound for the next run, which is not exact, as models of
// nearly the same runs are used again: guaranteed is twice the chance, and about the chance itself is seen.
func Learn(runs [][]float64, o Options) (Model, error) {
	n := len(runs)
	if n < MinRuns {
		return Model{}, fmt.Errorf("%w: %d, and %d are needed", ErrFewRuns, n, MinRuns)
	}
	if !(o.Miss > 0 && o.Miss < 1) {
		return Model{}, fmt.Errorf("chance to miss %v: it must be between 0 and 1", o.Miss)
	}
	rank := min(n, int(math.Ceil(float64(n+1)*(1-o.Miss)-1e-9)))
	best, cost := Model{}, math.Inf(1)
	covered := false // by a factor, under some alpha
	for _, alpha := range alphas {
		m := Model{Alpha: alpha, Runs: n, debts: o.Debts}
		if err := m.score(runs, o); err != nil {
			return Model{}, err
		}
		fitted, err := skyline.Fit(runs, o.weights(alpha, nil))
		if err != nil {
			return Model{}, err
		}
		within := rank
		for within > 0 && math.IsInf(m.scores[within-1], 1) { // a run that no factor covers
			within--
		}
		if within == 0 { // a larger skyline may cover some
			continue
		}
		covered = true
		m.Factor, m.Miss = m.scores[within-1], 1-float64(within)/float64(n+1)
		sum := 0.0
		for _, v := range fitted.Skyline {
			m.Skyline = append(m.Skyline, m.Factor*v)
			sum += m.Factor * v
		}
		for i := range m.scores {
			m.scores[i] /= m.Factor
		}
		if m.Factor > 0 && (m.Miss < best.Miss-1e-9 || math.IsInf(cost, 1) || m.Miss < best.Miss+1e-9 && sum < cost) {
			best, cost = m, sum
		}
	}
	switch {
	case !covered:
		return Model{}, errors.New("each run needs something in steps in which no other does")
	case math.IsInf(cost, 1):
		return Model{}, errors.New("no run needs anything")
	}
	return best, nil
}

// weights of the fit at an alpha, without some runs.
func (o Options) weights(alpha float64, without []int) skyline.Options {
	w := skyline.Options{Alpha: alpha, Beta: 0.1, BetaOfV: true, Debts: o.Debts}
	for i, c := range o.Censored {
		if !slices.Contains(without, i) {
			w.Censored = append(w.Censored, c)
		}
	}
	return w
}

// score sets the scores of all runs, sorted.
func (m *Model) score(runs [][]float64, o Options) error {
	for fold := range folds {
		var rest [][]float64
		var out []int
		for i, r := range runs {
			if i%folds == fold {
				out = append(out, i)
			} else {
				rest = append(rest, r)
			}
		}
		if len(out) == 0 {
			continue
		}
		fitted, err := skyline.Fit(rest, o.weights(m.Alpha, out))
		if err != nil {
			return err
		}
		for _, i := range out {
			m.scores = append(m.scores, factor(runs[i], fitted.Skyline, m.debts))
		}
	}
	slices.Sort(m.scores)
	return nil
}

// factor is the smallest by which a skyline must be multiplied for a run to need no more: with debts the run has done its work
// by the end, without it never needs more than there is.
func factor(run, reserved []float64, debts bool) float64 {
	var need, given, f float64
	for k := max(len(run), len(reserved)) - 1; k >= 0; k-- {
		if !debts {
			need, given = 0, 0
		}
		if k < len(run) {
			need += run[k]
		}
		if k < len(reserved) {
			given += reserved[k]
		}
		switch {
		case need <= 0:
		case given <= 0:
			return math.Inf(1)
		default:
			f = max(f, need/given)
		}
	}
	return f
}

// Score is by which factor the skyline would have had to be larger, or could have been smaller, for a run.
func (m Model) Score(run []float64) float64 { return factor(run, m.Skyline, m.debts) }

// Watch watches whether runs are still like those that a model was fitted to. The zero value has seen none.
type Watch struct {
	More, Less float64 // evidence that runs need more, or less, than before: logarithms of what bets have won
}

// Drift is what a watch concludes.
type Drift string

// Conclusions.
const (
	Alike     Drift = ""
	NeedsMore Drift = "runs need more than those that the model was fitted to"
	NeedsLess Drift = "runs need less than those that the model was fitted to"
)

// Observe takes in a run. Its conformal p-values are the shares of scores at least as large, or as small; each is bet against,
// and gains above 100 withdraw the model: without a change that happens once in 100 runs on average, at most.
func (w *Watch) Observe(m Model, run []float64) Drift {
	s := m.Score(run)
	n := float64(len(m.scores))
	from, _ := slices.BinarySearch(m.scores, s)
	to := from
	for to < len(m.scores) && m.scores[to] <= s {
		to++
	}
	gain := func(p float64) float64 { return math.Log(bet) + (bet-1)*math.Log(p) }
	w.More = max(0, w.More+gain((n-float64(from)+1)/(n+1)))
	w.Less = max(0, w.Less+gain((float64(to)+1)/(n+1)))
	switch limit := math.Log(betweenAlarms); {
	case w.More >= limit:
		return NeedsMore
	case w.Less >= limit:
		return NeedsLess
	}
	return Alike
}
