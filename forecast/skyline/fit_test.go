package skyline

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// q12 are the runs of testdata, in containers of 8,192 MB.
func q12(t testing.TB) (runs [][]float64) {
	t.Helper()
	data, err := os.ReadFile("testdata/tpch-q12/runs.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		_, points, _ := strings.Cut(strings.TrimSpace(line), " ")
		var run []float64
		for point := range strings.SplitSeq(strings.Trim(points, "|"), "|") {
			mb, _, _ := strings.Cut(point, ":")
			v, err := strconv.ParseFloat(mb, 64)
			if err != nil {
				t.Fatal(err)
			}
			run = append(run, v/8192)
		}
		runs = append(runs, run)
	}
	return runs
}

func near(a, b, relative float64) bool {
	return math.Abs(a-b) <= relative*max(math.Abs(a), math.Abs(b))
}

// The optima were computed with glpsol 5.0. The reference is the answer that Hadoop's own test expects; the optimum is
// not unique.
func TestRunsOfHadoop(t *testing.T) {
	o := Options{Alpha: 0.1, Beta: 0.1, Debts: true}
	runs := q12(t)
	whole, err := Fit(runs, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(runs) != 13 || !near(whole.Objective, 1800.441027, 1e-9) || whole.Gap > 1e-12 {
		t.Errorf("%d runs: objective %.9f, gap %g", len(runs), whole.Objective, whole.Gap)
	}
	for i := range runs {
		runs[i] = runs[i][:7]
	}
	begin, err := Fit(runs, o)
	if err != nil {
		t.Fatal(err)
	}
	if !near(begin.Objective, 50.20019024, 1e-8) || begin.Gap > 1e-12 {
		t.Errorf("seven steps: objective %.9f, gap %g", begin.Objective, begin.Gap)
	}
	for k, want := range []float64{1, 1, 1738, 2537, 2484, 2476, 2468} {
		if !near(begin.Skyline[k], want, 0.005) {
			t.Errorf("step %d has %v, not %v", k, begin.Skyline[k], want)
		}
	}
}

// draw makes runs of few steps, with values that are often equal and often 0.
func draw(r *rand.Rand) ([][]float64, Options) {
	runs := make([][]float64, 1+r.IntN(5))
	o := Options{Alpha: []float64{0.01, 0.1, 0.3, 0.5, 0.9, 1, r.Float64()}[r.IntN(7)], Debts: r.IntN(4) > 0}
	o.Beta = []float64{0, 0.1, 3, 1000 * r.Float64()}[r.IntN(4)]
	o.BetaOfV = r.IntN(2) == 0
	whole, top := r.IntN(2) == 0, 1+r.IntN(9)
	steps := 1 + r.IntN(5)
	for i := range runs {
		runs[i] = make([]float64, 1+r.IntN(steps))
		for k := range runs[i] {
			v := max(0, r.Float64()*1.2-0.2) * float64(top)
			if whole {
				v = math.Floor(v)
			}
			runs[i][k] = v
		}
	}
	if r.IntN(3) == 0 {
		o.Censored = make([][]bool, len(runs))
		for i := range runs {
			for range runs[i] {
				o.Censored[i] = append(o.Censored[i], r.IntN(3) == 0)
			}
		}
	}
	return runs, o
}

func TestEqualsTheDenseProgram(t *testing.T) {
	worst := 0.0
	for seed := range uint64(1000) {
		runs, o := draw(rand.New(rand.NewPCG(seed, 24)))
		m, err := Fit(runs, o)
		if err != nil {
			t.Fatal(err)
		}
		weight := o.Beta
		if o.BetaOfV {
			weight = o.Beta * dense(t, runs, o, 0)
		}
		want := dense(t, runs, o, weight)
		off := math.Abs(m.Objective-want) / max(want, 1e-3)
		worst = max(worst, off)
		if off > 1e-9 || m.Gap > 1e-9 {
			t.Fatalf("seed %d: runs %v, %+v: objective %.15g, the dense program's %.15g; gap %g", seed, runs, o, m.Objective, want, m.Gap)
		}
	}
	t.Logf("largest relative difference %.2g", worst)
}

// No small change makes an optimum better; the certificate would have to be wrong, too.
func TestNoNeighbourIsBetter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 7))
		n, k := 1+r.IntN(20), 1+r.IntN(40)
		runs := made(r, n, k, rapid.Bool().Draw(t, "whole"))
		o := Options{Alpha: r.Float64(), Beta: 2 * r.Float64(), BetaOfV: true, Debts: true}
		m, err := Fit(runs, o)
		if err != nil || m.Gap > 1e-9 {
			t.Fatalf("%v; gap %g", err, m.Gap)
		}
		p, _ := newProblem(runs, o)
		for range 50 {
			s := slices.Clone(m.Skyline)
			for range 1 + r.IntN(3) {
				at := r.IntN(len(s))
				s[at] = max(0, s[at]+r.NormFloat64()*10)
			}
			if c := p.model(s, m.Weight, 0).Objective; c < m.Objective*(1-1e-9) {
				t.Fatalf("%v costs %v, less than %v", s, c, m.Objective)
			}
		}
	})
}

// made are runs of three phases that begin a little earlier or later.
func made(r *rand.Rand, n, k int, whole bool) [][]float64 {
	runs := make([][]float64, n)
	for i := range runs {
		runs[i] = make([]float64, k-r.IntN(k/5+1))
		shift := r.IntN(4)
		for t := range runs[i] {
			v := max(0, 20+15*float64((t+shift)/7%3)+5*r.NormFloat64())
			if whole {
				v = math.Floor(v)
			}
			runs[i][t] = v
		}
	}
	return runs
}

func TestFitKnows(t *testing.T) {
	for name, c := range map[string]struct {
		runs [][]float64
		o    Options
		want []float64
		cost float64
	}{
		"one run":                          {runs: [][]float64{{0, 3, 1}}, o: Options{Alpha: 0.1, Debts: true}, want: []float64{0, 3, 1}},
		"nothing used":                     {runs: [][]float64{{0, 0}, {0}}, o: Options{Alpha: 0.5, Beta: 1, Debts: true}, want: []float64{0, 0}},
		"alpha 0 is the maximum":           {runs: [][]float64{{1, 4}, {2, 3, 1}}, o: Options{Debts: true}, want: []float64{2, 4, 1}},
		"alpha 1 is the minimum":           {runs: [][]float64{{1, 4}, {2, 3, 1}}, o: Options{Alpha: 1, Debts: true}, want: []float64{1, 3, 0}},
		"the median":                       {runs: [][]float64{{1}, {5}, {2}}, o: Options{Alpha: 0.5}, want: []float64{2}, cost: 2.0 / 3},
		"a debt is paid later":             {runs: [][]float64{{2, 0}, {0, 2}}, o: Options{Alpha: 0.4, Debts: true}, want: []float64{0, 2}, cost: 0.4},
		"memory is not":                    {runs: [][]float64{{2, 0}, {0, 2}}, o: Options{Alpha: 0.4}, want: []float64{2, 2}, cost: 1.6 / 2},
		"lazy without beta":                {runs: [][]float64{{2, 0}, {0, 2}, {0, 2}}, o: Options{Alpha: 0.3, Debts: true}, want: []float64{0, 2}, cost: 0.2},
		"a held-back step may need more":   {runs: [][]float64{{2}, {4}, {4}}, o: Options{Alpha: 0.7, Censored: [][]bool{{true}}}, want: []float64{4}},
		"a lower bound is no upper bound":  {runs: [][]float64{{2}, {2}, {4}}, o: Options{Alpha: 0.4, Censored: [][]bool{{true}, {true}}}, want: []float64{4}},
		"but what is used twice over is":   {runs: [][]float64{{2}, {2}, {6}}, o: Options{Alpha: 0.4, Censored: [][]bool{{true}, {true}}}, want: []float64{4}, cost: 0.4},
		"a mask shorter than its run":      {runs: [][]float64{{1, 1}, {1, 1}}, o: Options{Alpha: 0.4, Debts: true, Censored: [][]bool{{true}}}, want: []float64{1, 1}},
		"a tiny alpha is nearly the limit": {runs: [][]float64{{1, 4}, {2, 3, 1}}, o: Options{Alpha: 1e-9}, want: []float64{2, 4, 1}, cost: 1.5e-9},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := Fit(c.runs, c.o)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(m.Skyline, c.want) || c.cost > 0 && !near(m.Objective, c.cost, 1e-12) {
				t.Errorf("got %+v, want %v at %v", m, c.want, c.cost)
			}
		})
	}
}

func TestFitRefuses(t *testing.T) {
	one := [][]float64{{1}}
	for want, c := range map[string]struct {
		runs [][]float64
		o    Options
	}{
		"alpha 2 is not":        {one, Options{Alpha: 2}},
		"alpha NaN is not":      {one, Options{Alpha: math.NaN()}},
		"alpha 1e-12 is above":  {one, Options{Alpha: 1e-12}},
		"beta -1 is no":         {one, Options{Beta: -1}},
		"beta +Inf is no":       {one, Options{Beta: math.Inf(1)}},
		"there is no run":       {nil, Options{}},
		"no run has a step":     {[][]float64{{}}, Options{}},
		"run 1 uses -1 in":      {[][]float64{{-1}}, Options{}},
		"uses NaN in step 2":    {[][]float64{{1, math.NaN()}}, Options{}},
		"uses 1e+308 in step 1": {[][]float64{{1e308}}, Options{}},
		"but 1 runs":            {one, Options{Censored: [][]bool{nil, nil}}},
	} {
		if _, err := Fit(c.runs, c.o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want %q", c, err, want)
		}
	}
}

// Figures of one core: CPU time of two linear programs (V, then the fit), 3NK+K variables each.
func BenchmarkFit(b *testing.B) {
	for _, c := range []struct {
		runs, steps int
		whole       bool
	}{{30, 60, false}, {740, 45, true}, {740, 45, false}, {30, 1440, false}} {
		for _, alpha := range []float64{0.01, 0.5} {
			b.Run(fmt.Sprintf("runs=%d/steps=%d/whole=%t/alpha=%g", c.runs, c.steps, c.whole, alpha), func(b *testing.B) {
				runs := made(rand.New(rand.NewPCG(1, 2)), c.runs, c.steps, c.whole)
				b.ReportMetric(float64(3*c.runs*c.steps+c.steps+1), "variables")
				for b.Loop() {
					m, err := Fit(runs, Options{Alpha: alpha, Beta: 0.1, BetaOfV: true, Debts: true})
					if err != nil || m.Gap > 1e-9 {
						b.Fatal(err, m.Gap)
					}
				}
			})
		}
	}
}
