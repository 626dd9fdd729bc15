package dfrs

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"evenkeel/sim/batch"
	"evenkeel/sim/trace"
)

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range Policies() {
		if strings.Contains(e.Name, ":") || seen[e.Name] {
			t.Errorf("policy %q", e.Name)
		}
		seen[e.Name] = true
	}
	seen = map[string]bool{}
	for _, e := range Sweeps() {
		if strings.Contains(e.Name, ":") || seen[e.Name] {
			t.Errorf("setting %q", e.Name)
		}
		seen[e.Name] = true
	}
	for _, v := range periods {
		if v != batch.DefaultEvenkeel().Period && !seen[ourPeriod(v)] || !seen[theirPeriod(v)] {
			t.Errorf("period %g is missing", v)
		}
	}
}

// All of it with few jobs: equal seeds make equal pages, but for the column of times, which is last in its table.
func TestReportOfEqualSeeds(t *testing.T) {
	var pages []string
	for range 2 {
		state, err := OpenState(filepath.Join(t.TempDir(), "state"))
		if err != nil {
			t.Fatal(err)
		}
		defer state.Close()
		instances, err := Synthetic(5, 1, 40, []float64{0.5, sweptLoad})
		if err != nil {
			t.Fatal(err)
		}
		if len(instances) != 3 || len(instances[0].Jobs) != 40 || len(Swept(instances, 1)) != 1 {
			t.Fatalf("%d instances", len(instances))
		}
		log := trace.Log{Computer: "none", Processors: 16}
		for i := range 30 {
			log.Jobs = append(log.Jobs, trace.ParallelJob{Submit: float64(500 * i), Run: float64(100 * (i%7 + 1)), Processors: i%16 + 1})
		}
		weeks, _, err := Weeks("none", log, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		instances = append(instances, weeks...)
		reported := 0
		r, err := Run(context.Background(), instances, Policies(), 2, state, func(done, all int) { reported++ })
		if err != nil {
			t.Fatal(err)
		}
		if want := len(instances) * len(Policies()); reported != want {
			t.Errorf("%d replays reported, wanted %d", reported, want)
		}
		for i := range r.Outcomes {
			for e, o := range r.Outcomes[i] {
				if o.Degradation < 1-1e-6 || math.IsInf(o.Degradation, 0) {
					t.Errorf("%s: %s has degradation %g", r.Instances[i].Set, r.Entries[e].Name, o.Degradation)
				}
			}
		}
		s, err := Run(context.Background(), Swept(instances, 1), Sweeps(), 1, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := (&Report{Command: "test", Results: r, Sweeps: s, Notes: []string{"a note"}}).Write(dir); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, "dfrs.md"))
		if err != nil {
			t.Fatal(err)
		}
		page := string(text)
		for _, link := range regexp.MustCompile(`\]\((dfrs/[^)]*)\)`).FindAllStringSubmatch(page, -1) {
			if svg, err := os.ReadFile(filepath.Join(dir, link[1])); err != nil || !strings.Contains(string(svg), "</svg>") {
				t.Errorf("%s: %v", link[1], err)
			}
		}
		if strings.Contains(page, "NaN") || strings.Contains(page, "%!") {
			t.Error(page)
		}
		for _, row := range []string{"| EASY | 4955.4 |", "| Evenkeel |  |", "- a note.", "| none |", "| period 3600 s |"} {
			if !strings.Contains(page, row) {
				t.Errorf("%q is not in the page", row)
			}
		}
		if csv := r.CSV(); strings.Count(csv, "\n") != 1+reported {
			t.Errorf("%d lines of CSV", strings.Count(csv, "\n"))
		}
		begin, end := strings.Index(page, "## What it costs"), strings.Index(page, "![bytes by load]")
		pages = append(pages, page[:begin]+regexp.MustCompile(`\| [^|]* \|\n`).ReplaceAllString(page[begin:end], "|\n")+page[end:])
	}
	if pages[0] != pages[1] {
		t.Errorf("equal seeds make other pages:\n%s\n%s", pages[0], pages[1])
	}
}

func TestRunStops(t *testing.T) {
	instances, err := Synthetic(5, 1, 40, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, instances, Policies(), 2, nil, nil); err == nil {
		t.Error("a run that was ended says nothing")
	}
}

// What is remembered is not done again, and is the same, whichever replay ends first.
func TestState(t *testing.T) {
	name := filepath.Join(t.TempDir(), "state")
	instances, err := Synthetic(5, 1, 40, []float64{0.5})
	if err != nil {
		t.Fatal(err)
	}
	some := Policies()[:4]
	var tables []string
	for _, cut := range []int{0, 10} {
		state, err := OpenState(name)
		if err != nil {
			t.Fatal(err)
		}
		if known := map[int]int{0: 0, 10: 7}[cut]; len(state.done) != known {
			t.Errorf("%d replays are remembered, wanted %d", len(state.done), known)
		}
		r, err := Run(context.Background(), instances, some, 2, state, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := state.Close(); err != nil {
			t.Fatal(err)
		}
		tables = append(tables, regexp.MustCompile(`,[^,]*\n`).ReplaceAllString(r.CSV(), "\n"))
		info, err := os.Stat(name)
		if err != nil || os.Truncate(name, info.Size()-10) != nil {
			t.Fatal(err)
		}
	}
	if tables[0] != tables[1] {
		t.Errorf("%s\n%s", tables[0], tables[1])
	}
	if err := os.WriteFile(name, []byte("{}\nno\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenState(name); err == nil || !strings.Contains(err.Error(), "after byte 3") {
		t.Errorf("a broken file: %v", err)
	}
}

// How the jobs of a log become tasks, by hand.
func TestWeeks(t *testing.T) {
	const gib = 1 << 30
	log := trace.Log{Computer: "Linux cluster (Seth)", Processors: 240, Jobs: []trace.ParallelJob{
		{Submit: 10, Run: 100, Processors: 8, Memory: gib / 2},   // four nodes, half of each
		{Submit: 20, Run: 0, Processors: 3, Memory: gib / 2},     // an odd number: three tasks of one core
		{Submit: 30, Run: 5, Processors: 2, Memory: 1.5 * gib},   // too much for two on a node
		{Submit: 40, Run: 5, Processors: 1, Memory: 0.01 * gib},  // at least a tenth
		{Submit: 50, Run: 5, Processors: 240, Memory: 1.5 * gib}, // 240 nodes are not there
	}}
	want := []batch.Job{{Submit: 10, Run: 100, Tasks: 4, CPU: 1, Memory: 0.5}, {Submit: 20, Run: 1, Tasks: 3, CPU: 0.5, Memory: 0.25},
		{Submit: 30, Run: 5, Tasks: 2, CPU: 0.5, Memory: 0.75}, {Submit: 40, Run: 5, Tasks: 1, CPU: 0.5, Memory: 0.1}}
	for i := range 20 { // a week of them, or it is passed over; the next is too short
		log.Jobs = append(log.Jobs, trace.ParallelJob{Submit: float64(100 + i), Run: 1, Processors: 1, Memory: gib})
	}
	log.Jobs = append(log.Jobs, trace.ParallelJob{Submit: 8 * 86400, Run: 1, Processors: 1, Memory: gib})
	all, notes, err := Weeks("x", log, 0, 1)
	if err != nil || len(all) != 1 {
		t.Fatalf("%d weeks, %v", len(all), err)
	}
	if c := all[0].Cluster; c.Nodes != 120 || c.Memory != 2*gib || len(all[0].Jobs) != 24 {
		t.Errorf("%+v, %d jobs", c, len(all[0].Jobs))
	}
	for i, j := range want {
		if all[0].Jobs[i] != j {
			t.Errorf("job %d: %+v, wanted %+v", i, all[0].Jobs[i], j)
		}
	}
	said := strings.Join(notes, "\n")
	for _, n := range []string{"1 jobs that the cluster cannot hold", "drawn for 0 of 26", "1 weeks with fewer"} {
		if !strings.Contains(said, n) {
			t.Errorf("%q is not among %q", n, notes)
		}
	}
	if _, _, err := Weeks("x", trace.Log{Jobs: log.Jobs}, 0, 1); err == nil {
		t.Error("a machine of unknown size")
	}
}
