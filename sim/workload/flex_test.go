package workload

import (
	"math"
	"reflect"
	"testing"
)

// The sums that the paper and the trace state, on a tenth of the nodes.
func TestFlexIsLikeTheTrace(t *testing.T) {
	w, err := Flex{Nodes: 400}.Draw(1)
	if err != nil {
		t.Fatal(err)
	}
	if len(w.Apps) != 71403 {
		t.Errorf("%d tasks, wanted 71403", len(w.Apps))
	}
	var asked, used [2]float64
	short, alone, above, occupied := 0, 0, 0.0, 0.0
	size := map[int32]int{}
	for i, a := range w.Apps {
		if a.Arrival >= flexDay {
			t.Fatalf("task %d comes at %v s", i, a.Arrival)
		}
		g := w.Of(i)[0]
		there := min(a.Work, flexDay-a.Arrival)
		c, m := w.Patterns[g.CPUUse.Pattern].Mean(), w.Patterns[g.MemoryUse.Pattern].Mean()
		asked[0] += g.CPU * there
		asked[1] += g.Memory * there
		used[0] += g.CPU * c * there
		used[1] += g.Memory * m * there
		if a.Work < 1800 {
			short++
		}
		if a.Work >= flexDay {
			occupied += g.CPU * there
		}
		if c > 1 {
			above += 1 / float64(len(w.Apps))
		}
		size[a.Source]++
		if g.CPU > FlexNodeCPU/2 || g.Memory > FlexNodeMemory/2 {
			t.Fatalf("task %d asks for %v cores and %v bytes", i, g.CPU, g.Memory)
		}
	}
	largest := 0
	for _, n := range size {
		largest = max(largest, n)
		if n == 1 {
			alone++
		}
	}
	for _, c := range []struct {
		what      string
		got, want float64
		by        float64
	}{
		{"CPU asked for, of the nodes", asked[0] / (400 * FlexNodeCPU * flexDay), flexAskedCPU, 0.05},
		{"memory asked for", asked[1] / (400 * FlexNodeMemory * flexDay), flexAskedMemory, 0.05},
		{"CPU used", used[0] / (400 * FlexNodeCPU * flexDay), flexUsedCPU, 1e-3},
		{"memory used", used[1] / (400 * FlexNodeMemory * flexDay), flexUsedMemory, 1e-3},
		{"tasks that take minutes", float64(short) / float64(len(w.Apps)), 0.72, 0.1},
		{"jobs of one task", float64(alone) / float64(len(size)), 0.7, 0.05},
		{"CPU held by those that run all day", occupied / asked[0], 0.9, 0.07},
		{"tasks that use more CPU than they ask for", above, 0.12, 0.1},
	} {
		if math.Abs(c.got-c.want) > c.by {
			t.Errorf("%s: %.4f, wanted %.4f", c.what, c.got, c.want)
		}
	}
	if largest < 50 || largest > 200 {
		t.Errorf("the largest job has %d tasks", largest)
	}
}

func TestFlexSeeds(t *testing.T) {
	draw := func(f Flex, seed uint64) *Workload {
		t.Helper()
		w, err := f.Draw(seed)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	small := Flex{Nodes: 5, Tasks: 300}
	if a := draw(small, 1); !reflect.DeepEqual(a, draw(small, 1)) {
		t.Error("equal seeds give unequal days")
	} else if reflect.DeepEqual(a, draw(small, 2)) {
		t.Error("other seeds give equal days")
	}
	// Demand changes what is used, and nothing else.
	twice := small
	twice.Demand = 2
	a, b := draw(small, 1), draw(twice, 1)
	if !reflect.DeepEqual(a.Apps, b.Apps) || !reflect.DeepEqual(a.Groups, b.Groups) {
		t.Error("twice the demand changes what is asked for")
	}
	for i := range a.Patterns {
		for j := range a.Patterns[i] {
			if ratio := float64(b.Patterns[i][j]) / float64(a.Patterns[i][j]); math.Abs(ratio-2) > 1e-4 {
				t.Fatalf("pattern %d changes by %v", i, ratio)
			}
		}
	}
	for _, f := range []Flex{{}, {Nodes: 1, Tasks: -1}, {Nodes: 1, Demand: -1}, {Nodes: 1, Demand: math.NaN()}} {
		if _, err := f.Draw(1); err == nil {
			t.Errorf("drawn: %+v", f)
		}
	}
}

// Tasks of one job are at the same place of their patterns at the same time of day.
func TestFlexPeaksCoincide(t *testing.T) {
	w, err := Flex{Nodes: 50}.Draw(3)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range w.Apps {
		u := w.Of(i)[0].CPUUse
		if at := u.Begin(0) * float64(u.Step); math.Abs(at-a.Arrival) > 1 {
			t.Fatalf("task %d comes at %v s and begins at %v s of its pattern", i, a.Arrival, at)
		}
	}
}
