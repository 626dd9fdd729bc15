package casanova

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestSpecificationsAreThoseOfThePaper(t *testing.T) {
	for set, want := range map[Set]int{Small: 1440, Large: 10_800, Parallel: 10_800} {
		if n := len(set.specs()) * set.Instances(); n != want {
			t.Errorf("%s: %d instances, the paper has %d", set, n, want)
		}
	}
}

func TestInstancesAreAsSpecified(t *testing.T) {
	for _, set := range []Set{Small, Large, Parallel} {
		for i, s := range set.specs() {
			p := s.draw(set, 1, i, 0, Reject)
			tasks := 0
			for _, g := range p.Groups {
				tasks += g.Count
				if !(g.CPU >= 0 && g.CPU <= 1 && g.Memory >= 0 && g.Memory <= 1) || set != Parallel && g.Count != 1 {
					t.Fatalf("%s %+v: %+v", set, s, g)
				}
			}
			if tasks != s.tasks || len(p.Hosts) != s.hosts || p.Validate() != nil {
				t.Fatalf("%s %+v: %d tasks, %d hosts", set, s, tasks, len(p.Hosts))
			}
			if !reflect.DeepEqual(p, s.draw(set, 1, i, 0, Reject)) || reflect.DeepEqual(p, s.draw(set, 2, i, 0, Reject)) {
				t.Fatalf("%s %+v: the seed does not decide", set, s)
			}
		}
	}
}

// Where truncation hardly matters the mean memory is what the slack says.
func TestMeanMemoryFollowsTheSlack(t *testing.T) {
	s := spec{hosts: 64, tasks: 500, slack: 0.4, cpuCV: 0.25, memCV: 0.25}
	sum := 0.0
	for i := range 50 {
		for _, g := range s.draw(Large, 3, 0, i, Reject).Groups {
			sum += g.Memory
		}
	}
	if got := sum / 50 / 64; math.Abs(got-0.6) > 0.01 {
		t.Errorf("memory asked for is %.3f of what there is, want 0.6", got)
	}
}

func TestJobSizes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const n = 20_000
	serial, power := 0, 0
	for range n {
		k := jobSize(r, 64)
		if k < 1 || k > 64 {
			t.Fatalf("a job of %d tasks", k)
		}
		if k == 1 {
			serial++
		} else if k&(k-1) == 0 {
			power++
		}
	}
	// A quarter is serial; most of the others are powers of two, some by chance.
	if f := float64(serial) / n; math.Abs(f-0.244) > 0.02 {
		t.Errorf("%.3f of the jobs are serial", f)
	}
	if f := float64(power) / n; f < 0.576 || f > 0.75 {
		t.Errorf("%.3f of the jobs are powers of two", f)
	}
}

func TestReportIsTheSameForASeed(t *testing.T) {
	write := func(workers int) map[string][]byte {
		dir := t.TempDir()
		o := Options{Seed: 5, Instances: 1, Workers: workers}
		small, err := Run(context.Background(), Small, o)
		if err != nil {
			t.Fatal(err)
		}
		few := Options{Seed: 5, Instances: 1, Workers: workers, Only: []string{boundName, "MCB8", "GR", "SG", "RRND", "RRNZ"}}
		parallel, err := Run(context.Background(), Parallel, few)
		if err != nil {
			t.Fatal(err)
		}
		r := Report{Command: "a test", Small: small, SmallClamped: small, Parallel: parallel}
		if err := r.Write(dir); err != nil {
			t.Fatal(err)
		}
		files := map[string][]byte{}
		for _, f := range stats() {
			if f.set != Large && !f.tasks {
				if files[f.file()], err = os.ReadFile(filepath.Join(dir, "casanova", f.file())); err != nil {
					t.Fatal(err)
				}
			}
		}
		text, err := os.ReadFile(filepath.Join(dir, "casanova.md"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, " ms") && !strings.Contains(line, "time over") {
				files["text"] = append(files["text"], line...)
			}
		}
		return files
	}
	one, two := write(1), write(3)
	if len(one) != 10 {
		t.Errorf("%d files", len(one))
	}
	for name := range one {
		if !bytes.Equal(one[name], two[name]) {
			t.Errorf("%s differs between two runs", name)
		}
		if bytes.Contains(one[name], []byte("NaN")) || bytes.Contains(one[name], []byte("%!")) {
			t.Errorf("%s has what is no number", name)
		}
	}
}

func TestDegradation(t *testing.T) {
	r := &Results{algorithms: []string{"a", "b"}, Instances: 1, specs: make([]spec, 4), outcomes: [][]outcome{
		{{solved: true, yield: 0.5}, {solved: true, yield: 1}},
		{{solved: true, yield: 0.8}, {}},
		{{}, {solved: true, yield: 0.3}},
		{{solved: true, yield: 0.9}, {solved: true, yield: 0.6}},
	}}
	average, highest, withFailures := r.degradation("a", r.algorithms)
	if math.Abs(average-50.0/3) > 1e-9 || highest != 50 || math.Abs(withFailures-150.0/4) > 1e-9 {
		t.Errorf("average %v, most %v, with failures %v", average, highest, withFailures)
	}
}

func TestRunStops(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, Large, Options{Workers: 1}); err == nil {
		t.Error("a run that was stopped has results")
	}
}

func TestOpenInstancesAreListed(t *testing.T) {
	r := &Results{Set: Large, Seed: 1, Instances: 1, algorithms: []string{BestName}, specs: Large.specs()[:3], outcomes: [][]outcome{
		{{solved: true}}, {{}}, {{infeasible: true}},
	}}
	dir := t.TempDir()
	if err := r.WriteOpen(dir, "a test"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "casanova-best.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"3 instances: 1 placed, 1 proved infeasible, 1 left open.", "| 100 | 0.1 | 0.25, 0.75 | 0 | "} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
