package periodic

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

// noisy makes a run: a rise, a plateau with stragglers and a tail, times noise of the run.
func noisy(rng *rand.Rand, scale float64) []float64 {
	steps := 12 + rng.IntN(4)
	size := scale * math.Exp(0.2*rng.NormFloat64())
	run := make([]float64, steps)
	for k := range run {
		run[k] = size * math.Exp(0.15*rng.NormFloat64()) * []float64{1, 6, 10, 10, 9, 8, 8, 7, 5, 3, 2, 1, 1, 1, 1}[k]
	}
	return run
}

func noisyRuns(rng *rand.Rand, n int) [][]float64 {
	runs := make([][]float64, n)
	for i := range runs {
		runs[i] = noisy(rng, 1)
	}
	return runs
}

// TestMissesAsPromised: of many jobs, about the share of next runs needs more than their models promise, and not twice that.
func TestMissesAsPromised(t *testing.T) {
	rng := newRand(3)
	for _, c := range []struct {
		runs  int
		miss  float64
		debts bool
	}{{8, 0.2, true}, {20, 0.1, true}, {40, 0.05, true}, {20, 0.1, false}} {
		missed, promised := 0.0, 0.0
		jobs := 30 * *more
		const next = 5
		for range jobs {
			m, err := Learn(noisyRuns(rng, c.runs), Options{Miss: c.miss, Debts: c.debts})
			if err != nil {
				t.Fatal(err)
			}
			if m.Miss < c.miss-1e-9 && m.Miss < 1-float64(c.runs)/float64(c.runs+1)-1e-9 {
				t.Errorf("%+v: promises a chance of %v", c, m.Miss)
			}
			promised += m.Miss * next
			for range next {
				if m.Score(noisy(rng, 1)) > 1 {
					missed++
				}
			}
		}
		n := float64(jobs * next)
		t.Logf("%+v: missed %.3f, promised %.3f", c, missed/n, promised/n)
		if sd := math.Sqrt(promised / n * (1 - promised/n) / n); missed/n > promised/n+4*sd {
			t.Errorf("%+v: missed %.3f of the runs, promised %.3f", c, missed/n, promised/n)
		}
	}
}

// TestWatch: a job that stays as it was keeps its model; one whose runs need a third more, or a third less, loses it within a
// few runs.
func TestWatch(t *testing.T) {
	rng := newRand(4)
	for _, c := range []struct {
		name  string
		scale float64
		want  Drift
		after int // runs, at most, in nine of ten jobs
	}{{"as before", 1, Alike, 0}, {"twice as much", 2, NeedsMore, 12}, {"half as much", 0.5, NeedsLess, 12}} {
		jobs, right := 20**more, 0
		for range jobs {
			m, err := Learn(noisyRuns(rng, 30), Options{Miss: 0.1, Debts: true})
			if err != nil {
				t.Fatal(err)
			}
			var w Watch
			ends := Alike
			for i := 0; i < 30 && ends == Alike; i++ {
				if ends = w.Observe(m, noisy(rng, c.scale)); ends != Alike && c.want != Alike && i >= c.after {
					ends = "late"
				}
			}
			if ends == c.want {
				right++
			}
		}
		t.Logf("%s: %d of %d", c.name, right, jobs)
		if share := float64(right) / float64(jobs); share < map[bool]float64{true: 0.7, false: 0.9}[c.want == Alike] {
			t.Errorf("%s: right for %.2f of the jobs", c.name, share)
		}
	}
}

func TestLearnRefuses(t *testing.T) {
	seven := make([][]float64, 7)
	for i := range seven {
		seven[i] = []float64{1, 2}
	}
	if _, err := Learn(seven, Options{Miss: 0.1}); !errors.Is(err, ErrFewRuns) {
		t.Errorf("seven runs: %v", err)
	}
	eight := append(seven, []float64{1, 2})
	for _, miss := range []float64{0, 1, -1, math.NaN()} {
		if _, err := Learn(eight, Options{Miss: miss}); err == nil {
			t.Errorf("chance %v is taken", miss)
		}
	}
	if _, err := Learn(make([][]float64, 8), Options{Miss: 0.1}); err == nil {
		t.Error("runs without steps are taken")
	}
	zero := make([][]float64, 8)
	for i := range zero {
		zero[i] = []float64{0, 0}
	}
	if _, err := Learn(zero, Options{Miss: 0.1}); err == nil {
		t.Error("runs that need nothing are taken")
	}
	m, err := Learn(eight, Options{Miss: 0.01, Debts: true})
	if err != nil || math.Abs(m.Miss-1.0/9) > 1e-9 || m.Factor != 1 || m.Skyline[0] != 1 || m.Skyline[1] != 2 {
		t.Errorf("eight equal runs: %+v, %v; they promise a chance of 1 in 9", m, err)
	}
	// Weights that buy too little in steps that few runs need cover none; those that buy more do.
	few := make([][]float64, 9)
	for i := range few {
		few[i] = make([]float64, 3)
		few[i][i%3] = 1
	}
	if m, err := Learn(few, Options{Miss: 0.2}); err != nil || m.Score(few[0]) > 1 {
		t.Errorf("steps that a third of the runs need: %+v, %v", m, err)
	}
	alone := make([][]float64, 8)
	for i := range alone {
		alone[i] = make([]float64, 8)
		alone[i][i] = 1
	}
	if _, err := Learn(alone, Options{Miss: 0.2}); err == nil {
		t.Error("runs of which each needs another step are taken")
	}
	// A run that goes on where no other does cannot be covered, and the promise says so.
	long := append(append([][]float64{}, eight...), []float64{1, 2, 5})
	if m, err := Learn(long, Options{Miss: 0.01, Debts: true}); err != nil || m.Miss < 0.2-1e-9 {
		t.Errorf("a run that is longer: %+v, %v", m, err)
	}
}

func TestFactor(t *testing.T) {
	for _, c := range []struct {
		run, reserved []float64
		debts         bool
		want          float64
	}{
		{[]float64{4, 0, 2}, []float64{2, 2, 2}, true, 1},
		{[]float64{4, 0, 2}, []float64{2, 2, 2}, false, 2},
		{[]float64{0, 0, 6}, []float64{2, 2, 2}, true, 3}, // what is left over cannot be kept
		{[]float64{6}, []float64{2, 2, 2}, true, 1},
		{[]float64{1, 1, 1}, []float64{2, 2}, true, math.Inf(1)},
		{nil, []float64{1}, true, 0},
	} {
		if got := factor(c.run, c.reserved, c.debts); got != c.want {
			t.Errorf("factor(%v, %v, %v) = %v, want %v", c.run, c.reserved, c.debts, got, c.want)
		}
	}
}
