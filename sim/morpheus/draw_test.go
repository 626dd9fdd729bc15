package morpheus

import (
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"testing"

	"gonum.org/v1/gonum/stat"
)

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if !(math.Abs(got-want) <= within) {
		t.Errorf("%s: %.3f, not %.3f within %.3f", what, got, want, within)
	}
}

// The marginals that the paper states.
func TestMarginals(t *testing.T) {
	const jobs = 4000
	rng := rand.New(rand.NewPCG(7, 0))
	above, tenfold, twice := 0.0, 0.0, 0.0
	for range jobs {
		j := Job{Period: Day}
		j.draw(rng, Options{Days: 1}, class{1, 600, 300}, 0, 0)
		if j.User > j.Peak {
			above += 1.0 / jobs
		}
		if j.User > 10*j.Peak {
			tenfold += 1.0 / jobs
		}
		if slack, _ := drawLength(rng, Day, 10); slack >= 2 {
			twice += 1.0 / jobs
		}
	}
	near(t, "share that asks for more than the peak (fig. 2a)", above, 0.75, 0.03)
	near(t, "share that asks for ten times the peak (fig. 2a)", tenfold, 0.20, 0.03)
	near(t, "share that could run twice in its slack (fig. 9a)", twice, 0.69, 0.03)
}

// Correlated with the size, what owners ask for keeps its marginals, nearly.
func TestCorrelatedAsks(t *testing.T) {
	for _, correlation := range []float64{0, -0.8} {
		rng := rand.New(rand.NewPCG(7, 2))
		var sizes, over []float64
		for range 4000 {
			j := Job{Period: Day}
			j.draw(rng, Options{Days: 1, Correlation: correlation}, drawClass(rng), 0, 0)
			if j.Peak > 1 { // of one container nothing can be less
				sizes, over = append(sizes, math.Log(float64(j.Peak))), append(over, math.Log(float64(j.User)/float64(j.Peak)))
			}
		}
		near(t, "correlation", stat.Correlation(sizes, over, nil), correlation, 0.05)
		near(t, "mean of what is asked for, log", stat.Mean(over, nil), userMean, 0.12)
		near(t, "deviation of what is asked for, log", stat.StdDev(over, nil), userSpread, 0.12)
		near(t, "mean size, log", stat.Mean(sizes, nil), sizeMean, 0.25)
		near(t, "deviation of sizes, log", stat.StdDev(sizes, nil), sizeDeviation, 0.2)
	}
}

// q12 are the runs of TPC-H Q12 on a Hadoop cluster, in containers by minute.
func q12(t *testing.T) [][]float64 {
	t.Helper()
	data, err := os.ReadFile("../../forecast/skyline/testdata/tpch-q12/runs.txt")
	if err != nil {
		t.Fatal(err)
	}
	runs, err := ParseRuns(data)
	if err != nil || len(runs) != 13 {
		t.Fatalf("%d runs: %v", len(runs), err)
	}
	return runs
}

// Runs spread as those of Q12 do, in their work and their length.
func TestNoise(t *testing.T) {
	var work, length []float64
	for _, run := range q12(t) {
		sum := 0.0
		for _, v := range run {
			sum += v
		}
		work, length = append(work, math.Log(sum)), append(length, math.Log(float64(len(run))))
	}
	rng := rand.New(rand.NewPCG(7, 1))
	var drawnWork, drawnLength []float64
	for range 4000 {
		usage, minutes := drawUse(rng, []stage{{1830, 1}, {1450, 1}, {1020, 1}, {420, 1}})
		sum := 0.0
		for _, v := range usage {
			sum += v
		}
		drawnWork, drawnLength = append(drawnWork, math.Log(sum)), append(drawnLength, math.Log(minutes))
	}
	// 13 runs of which one is far out: the deviation of a sample varies by half.
	near(t, "deviation of the logarithm of work", stat.StdDev(drawnWork, nil), stat.StdDev(work, nil), 0.03)
	near(t, "deviation of the logarithm of length", stat.StdDev(drawnLength, nil), stat.StdDev(length, nil), 0.06)
	t.Logf("work %.3f, Q12 %.3f; length %.3f, Q12 %.3f; correlation %.2f, Q12 %.2f", stat.StdDev(drawnWork, nil), stat.StdDev(work, nil),
		stat.StdDev(drawnLength, nil), stat.StdDev(length, nil), stat.Correlation(drawnWork, drawnLength, nil), stat.Correlation(work, length, nil))
}

func TestDrawIsDeterministic(t *testing.T) {
	o := Options{Seed: 101, Jobs: 5, Days: minDays}
	a, err := Draw(o)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := Draw(o)
	if !reflect.DeepEqual(a, b) {
		t.Error("equal seeds gave unequal jobs")
	}
	o.Seed++
	if c, _ := Draw(o); reflect.DeepEqual(a, c) {
		t.Error("another seed gave the same jobs")
	}
	for _, o := range []Options{{Seed: 1, Days: 30}, {Jobs: 10, Days: 3}, {Jobs: 10, Days: 1000}, {Jobs: 1e6, Days: 30}, {Jobs: 10, Days: 30, Correlation: -1}} {
		if _, err := Draw(o); err == nil {
			t.Errorf("%+v was drawn", o)
		}
	}
}

func TestDrawnRuns(t *testing.T) {
	jobs, err := Draw(Options{Seed: 102, Jobs: 60, Days: minDays})
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		if len(j.Runs) != minDays*Day/j.Period || j.Phase < 0 || j.Phase >= j.Period {
			t.Fatalf("%s: %d runs, phase %d of %d", j.Name, len(j.Runs), j.Phase, j.Period)
		}
		for _, r := range j.Runs {
			if len(r.Usage) != int(math.Ceil(r.Length-1e-6)) || r.Read < r.Inputs+r.Length-1e-9 {
				t.Fatalf("%s: a run of %v minutes has %d, read at %v", j.Name, r.Length, len(r.Usage), r.Read)
			}
			for _, v := range r.Usage {
				if !(v >= 0 && v <= float64(j.Peak)+1e-6) {
					t.Fatalf("%s uses %v of a peak of %d", j.Name, v, j.Peak)
				}
			}
		}
	}
}
