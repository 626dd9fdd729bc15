package workload

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat"

	"evenkeel/sim/trace"
)

func draw(t *testing.T, nodes int, seed uint64, n int) []BatchJob {
	t.Helper()
	jobs, err := NewLublin(nodes).Draw(seed, n)
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

// moments of a workload: those by which a model of jobs is judged.
type moments struct {
	serial, powers  float64 // share of jobs of one node; of the others, share of powers of two
	size, sizeSD    float64 // binary logarithm
	run, runSD      float64 // natural logarithm
	gap, gapSD      float64 // natural logarithm of 1 + seconds
	meanGap, median float64 // seconds
	corr            float64 // between both logarithms
}

func momentsOf(jobs []BatchJob) (m moments) {
	var sizes, runs, gaps, seconds []float64
	powers := 0.0
	for i, j := range jobs {
		sizes = append(sizes, math.Log2(float64(j.Tasks)))
		runs = append(runs, math.Log(j.Run))
		if j.Tasks == 1 {
			m.serial++
		} else if j.Tasks&(j.Tasks-1) == 0 {
			powers++
		}
		if i > 0 {
			g := j.Submit - jobs[i-1].Submit
			gaps, seconds = append(gaps, math.Log1p(g)), append(seconds, g)
		}
	}
	m.powers = powers / (float64(len(jobs)) - m.serial)
	m.serial /= float64(len(jobs))
	m.size, m.sizeSD = stat.MeanStdDev(sizes, nil)
	m.run, m.runSD = stat.MeanStdDev(runs, nil)
	m.gap, m.gapSD = stat.MeanStdDev(gaps, nil)
	m.meanGap = stat.Mean(seconds, nil)
	slices.Sort(seconds)
	m.median = stat.Quantile(0.5, stat.Empirical, seconds, nil)
	m.corr = stat.Correlation(sizes, runs, nil)
	return m
}

// What follows from the parameters without drawing: sizes and run times.
func TestLublinMeans(t *testing.T) {
	m := NewLublin(128)
	jobs := draw(t, 128, 7, 40000)
	got := momentsOf(jobs)
	if math.Abs(got.serial-m.Serial) > 0.02 {
		t.Errorf("%.3f of the jobs are serial, wanted about %.3f", got.serial, m.Serial)
	}
	// The mean of the two-stage uniform is (prob*low + med + (1-prob)*high)/2; rounding to sizes shifts it little.
	size := (1 - m.Serial) * (m.Below*m.Low + m.Medium + (1-m.Below)*m.High) / 2
	if math.Abs(got.size-size) > 0.05 {
		t.Errorf("mean binary logarithm of the size %.3f, wanted about %.3f", got.size, size)
	}
	// Mean over all sizes of the mixture of both Gammas, the bound on run times apart.
	run := 0.0
	for _, j := range jobs {
		p := m.SizeA*float64(j.Tasks) + m.SizeB
		run += (p*m.ShortA*m.ShortB + (1-p)*m.LongA*m.LongB) / float64(len(jobs))
	}
	if math.Abs(got.run-run) > 0.1 {
		t.Errorf("mean logarithm of the run time %.3f, wanted about %.3f", got.run, run)
	}
	day := m.day()
	if mean := stat.Mean(day[:], nil); math.Abs(mean-1) > 1e-9 {
		t.Errorf("half hours weigh %g on average", mean)
	}
	if limit := slices.Index(day[:], slices.Max(day[:])); limit < 20 || limit > 32 {
		t.Errorf("the day is busiest in half hour %d", limit)
	}
	for i, j := range jobs {
		if j.Tasks < 1 || j.Tasks > 128 || j.Run < 1 || j.Run > math.Exp(12) || i > 0 && j.Submit < jobs[i-1].Submit {
			t.Fatalf("job %d: %+v", i, j)
		}
	}
}

func TestLublinSeeds(t *testing.T) {
	a, b, c := draw(t, 64, 1, 300), draw(t, 64, 1, 300), draw(t, 64, 2, 300)
	if !slices.Equal(a, b) || slices.Equal(a, c) {
		t.Error("equal seeds give equal jobs, and others others")
	}
	if longer := draw(t, 64, 1, 400); !slices.Equal(a, longer[:300]) {
		t.Error("more jobs begin with the same ones")
	}
	if _, err := NewLublin(4).Draw(1, 1); err == nil {
		t.Error("4 nodes are too few for the model")
	}
}

func TestNeeds(t *testing.T) {
	jobs := draw(t, 128, 3, 20000)
	DrawNeeds(3, jobs)
	count := map[float64]int{}
	for _, j := range jobs {
		if j.CPU != map[bool]float64{true: 0.25, false: 1}[j.Tasks == 1] {
			t.Fatalf("%+v", j)
		}
		count[j.Memory]++
	}
	if share := float64(count[0.1]) / 20000; math.Abs(share-0.55) > 0.015 {
		t.Errorf("%.3f of the jobs have 10%% of memory", share)
	}
	for m := 2; m <= 10; m++ {
		if share := float64(count[float64(m)/10]) / 20000; math.Abs(share-0.05) > 0.006 {
			t.Errorf("%.3f of the jobs have %d0%% of memory", share, m)
		}
	}
}

func TestScaleLoad(t *testing.T) {
	jobs := draw(t, 128, 3, 1000)
	for _, load := range []float64{0.1, 0.9} {
		scaled, err := ScaleLoad(128, jobs, load)
		if err != nil {
			t.Fatal(err)
		}
		if got := OfferedLoad(128, scaled); math.Abs(got-load) > 1e-9 {
			t.Errorf("load %g, wanted %g", got, load)
		}
		factor := (scaled[999].Submit - scaled[0].Submit) / (jobs[999].Submit - jobs[0].Submit)
		for i := 1; i < 1000; i++ {
			if want := factor * (jobs[i].Submit - jobs[i-1].Submit); math.Abs(scaled[i].Submit-scaled[i-1].Submit-want) > 1e-6 {
				t.Fatalf("gap %d is %g, wanted %g", i, scaled[i].Submit-scaled[i-1].Submit, want)
			}
		}
	}
	if _, err := ScaleLoad(128, []BatchJob{{Run: 1, Tasks: 1}}, 0.5); err == nil {
		t.Error("one job has no load")
	}
}

// The moments of a sample that the model's own program made, where EVENKEEL_LUBLIN names it (10,000 jobs on 256 nodes).
func TestLublinPublished(t *testing.T) {
	name := os.Getenv("EVENKEEL_LUBLIN")
	if name == "" {
		t.Skip("EVENKEEL_LUBLIN names no sample in the standard workload format")
	}
	log, err := trace.LoadSWF(trace.Options{}, trace.Source{FS: os.DirFS(filepath.Dir(name)), Name: filepath.Base(name)})
	if err != nil {
		t.Fatal(err)
	}
	sample := make([]BatchJob, len(log.Jobs))
	for i, j := range log.Jobs {
		sample[i] = BatchJob{Submit: j.Submit, Run: max(1, j.Run), Tasks: j.Processors}
	}
	want, got := momentsOf(sample), momentsOf(draw(t, log.Nodes, 1, len(sample)))
	t.Logf("sample %+v", want)
	t.Logf("ours   %+v", got)
	for _, c := range []struct {
		what          string
		got, want, by float64
	}{
		{"serial", got.serial, want.serial, 0.02}, {"powers of two", got.powers, want.powers, 0.03},
		{"size", got.size, want.size, 0.1}, {"spread of sizes", got.sizeSD, want.sizeSD, 0.1},
		{"run time", got.run, want.run, 0.15}, {"spread of run times", got.runSD, want.runSD, 0.15},
		{"gap", got.gap, want.gap, 0.15}, {"spread of gaps", got.gapSD, want.gapSD, 0.15},
		{"correlation", got.corr, want.corr, 0.05},
	} {
		if math.Abs(c.got-c.want) > c.by {
			t.Errorf("%s: %.3f, the sample has %.3f", c.what, c.got, c.want)
		}
	}
}
