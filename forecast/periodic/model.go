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

var errNoNeed = errors.New("no run needs anything")

const (
	// folds is how often a model is fitted to all runs but some, which say how good it is.
	folds = 8
	// betweenAlarms is how many runs pass on average before a model is withdrawn without a change of the job, at least.
	betweenAlarms = 100
	// bet is the exponent of the bets against a model: small ones win more on p-values that are far too small.
	bet = 0.3
	// surestAlpha is so small a weight of over-allocation that a fit to a thousand runs or fewer leaves none of them
	// short: a unit that a run falls short of costs more than all that is reserved for it.
	surestAlpha = 0.001
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
	// Peers are other jobs, of the same owner, from which a job of too few runs for the chance borrows a run. See ToServe.
	Peers []Peer
	// Steps that a run may have; 0: as many as the longest.
	Steps int
}

// Model is what to reserve for the next run of a job.
type Model struct {
	Skyline []float64 // by step, in the unit of the usage
	// Alpha is the weight of over-allocation of the fit that reserves least.
	Alpha float64
	// Factor by which the fitted skyline is multiplied, so that the chance holds.
	Factor float64
	// Miss is the chance that the next run needs more, if it is like the others. It may be more than was asked for: n runs
	// say nothing about less than 1/(n+1).
	Miss float64
	// Asked is the chance that was asked for.
	Asked float64
	Runs  int
	// Borrowed: the skyline serves a run besides that is as heavy as those of the job's peers may be. It promises nothing more.
	Borrowed bool

	debts  bool
	own    []float64 // the skyline without what is borrowed
	scores []float64 // of the runs, each by a model that was not fitted to it, over Factor; sorted
}

// Learn fits what to reserve for the next run to past ones, in order of time. It makes one choice (choose) of all runs, and eight of all
// runs but an eighth. The score of a run is the factor by which the choice that has not seen the run would have had to be larger. The
// quantile of the scores at ceil((n+1)(1-miss)) is a conformal bound for the next run: no run takes part in the choice that scores it, so
// that the choice favours no score. The bound is not exact, because the choices share most of their runs: the chance to miss is at most
// twice miss by proof, and about miss by experience.
func Learn(runs [][]float64, o Options) (Model, error) {
	n := len(runs)
	if n < MinRuns {
		return Model{}, fmt.Errorf("%w: %d, and %d are needed", ErrFewRuns, n, MinRuns)
	}
	if !(o.Miss > 0 && o.Miss < 1) {
		return Model{}, fmt.Errorf("chance to miss %v: it must be between 0 and 1", o.Miss)
	}
	all, err := choose(runs, o, nil)
	if err != nil {
		return Model{}, err
	}
	if !(slices.Max(all.skyline) > 0) {
		return Model{}, errNoNeed
	}
	m := Model{Asked: o.Miss, Alpha: all.alpha, Runs: n, debts: o.Debts}
	if err := m.score(runs, o); err != nil {
		return Model{}, err
	}
	within := coveredAt(m.scores, o.Miss)
	if within == 0 {
		return Model{}, errors.New("each run needs something in steps in which no other does")
	}
	m.Factor, m.Miss = m.scores[within-1], 1-float64(within)/float64(n+1)
	if m.Factor == 0 {
		return Model{}, errNoNeed
	}
	for _, v := range all.skyline {
		m.own = append(m.own, m.Factor*v)
	}
	for i := range m.scores {
		m.scores[i] /= m.Factor
	}
	m.Factor *= all.factor
	m.Skyline = m.own
	return m, m.borrow(runs, o)
}

// coveredAt is the rank, from 1 on, of the score that the next run stays below with the chance 1-miss. Where that score is infinite,
// because no factor covers its run, it is the rank of the largest finite score; 0 = there is none.
func coveredAt(sorted []float64, miss float64) int {
	n := len(sorted)
	within := min(n, int(math.Ceil(float64(n+1)*(1-miss)-1e-9)))
	for within > 0 && math.IsInf(sorted[within-1], 1) {
		within--
	}
	return within
}

// chosen is a skyline that serves the runs that it was fitted to, as far as a factor can.
type chosen struct {
	skyline       []float64
	alpha, factor float64
}

// choose fits a skyline at each weight, and multiplies it by the factor at which it serves these runs. It takes the one that serves most
// runs, and of several the one that reserves least. out are runs whose marks are left out. The chance to miss plays no part here: a choice
// of 17 runs must not leave out another share of them than one of 20, or its scores promise too much.
func choose(runs [][]float64, o Options, out []int) (best chosen, err error) {
	covered, cost := 0, math.Inf(1)
	for _, alpha := range alphas {
		fitted, err := skyline.Fit(runs, o.weights(alpha, out))
		if err != nil {
			return best, err
		}
		scores := make([]float64, len(runs))
		for i, r := range runs {
			scores[i] = factor(r, fitted.Skyline, o.Debts)
		}
		slices.Sort(scores)
		within := coveredAt(scores, 0)
		c := chosen{alpha: alpha, factor: 1}
		if within > 0 && scores[within-1] > 0 {
			c.factor = scores[within-1]
		}
		sum := 0.0
		for _, v := range fitted.Skyline {
			c.skyline = append(c.skyline, c.factor*v)
			sum += c.factor * v
		}
		if best.skyline == nil || within > covered || within == covered && sum < cost {
			best, covered, cost = c, within, sum
		}
	}
	return best, nil
}

// borrow raises the skyline until it serves an unseen run as well, where the job has too few runs for the chance that was asked for.
// With debts it then has, from each step on, at least what it had and what that run needs: what was promised stays so.
func (m *Model) borrow(runs [][]float64, o Options) error {
	steps := o.Steps
	if steps == 0 {
		for _, r := range runs {
			steps = max(steps, len(r))
		}
	}
	unseen := unseenRun(runs, o.Peers, o.Miss, steps)
	if unseen == nil {
		return nil
	}
	both, err := skyline.Fit([][]float64{m.own, unseen}, skyline.Options{Alpha: surestAlpha, Debts: o.Debts})
	if err != nil {
		return err
	}
	m.Skyline, m.Borrowed = both.Skyline, true
	return nil
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

// score sets the scores of all runs, sorted, each by a choice of the runs outside of its fold.
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
		c, err := choose(rest, o, out)
		if err != nil {
			return err
		}
		for _, i := range out {
			m.scores = append(m.scores, factor(runs[i], c.skyline, m.debts))
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

// Observe takes in a run, and bets against its two conformal p-values: the shares of scores at least as large, and at least as
// small. A gain of betweenAlarms withdraws the model: without a change of the job that happens once in 100 runs on average, at
// most.
func (w *Watch) Observe(m Model, run []float64) Drift {
	s := factor(run, m.own, m.debts) // what is borrowed would look like less need
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
