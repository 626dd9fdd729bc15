package workload

import (
	"math"
	"reflect"
	"testing"
)

// What the paper states of its containers.
func TestHaIsLikeTheTrace(t *testing.T) {
	w, err := Ha{}.Draw(1)
	if err != nil {
		t.Fatal(err)
	}
	n := float64(len(w.Apps))
	minute, below, half := 0.0, 0.0, 0.0
	for i, a := range w.Apps {
		g := w.Of(i)[0]
		if a.Work > 1000 {
			t.Fatalf("task %d takes %v s", i, a.Work)
		}
		if a.Work >= 10 && a.Work <= 100 {
			minute += 1 / n
		}
		if w.Patterns[g.CPUUse.Pattern].Mean() < 1 {
			below += 1 / n
		}
		if w.Patterns[g.MemoryUse.Pattern].Mean() < 0.5 {
			half += 1 / n
		}
		for _, v := range w.Patterns[g.CPUUse.Pattern] {
			if v > 2 {
				t.Fatalf("task %d uses %v of its cores", i, v)
			}
		}
	}
	if len(w.Apps) != 18000 || minute < 0.7 {
		t.Errorf("%d tasks, %.2f of them take 10 to 100 s", len(w.Apps), minute)
	}
	if math.Abs(below-0.6) > 0.06 || half < 0.9 {
		t.Errorf("%.3f use less CPU than they reserve and %.3f less than half of the memory, not 0.6 and 0.9", below, half)
	}
}

// A task that reserves what it will use at most uses all of that at some time, and what it always used.
func TestHaExtremeFit(t *testing.T) {
	asked, err := Ha{Tasks: 500}.Draw(4)
	if err != nil {
		t.Fatal(err)
	}
	fit, err := Ha{Tasks: 500, ExtremeFit: true}.Draw(4)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(asked.Apps, fit.Apps) {
		t.Fatal("the tasks differ")
	}
	for i := range asked.Apps {
		a, b := asked.Of(i)[0], fit.Of(i)[0]
		highest := 0.0
		for j, v := range fit.Patterns[b.MemoryUse.Pattern] {
			highest = max(highest, float64(v))
			if was := a.Memory * float64(asked.Patterns[a.MemoryUse.Pattern][j]); math.Abs(b.Memory*float64(v)-was) > 1e-5*was {
				t.Fatalf("task %d uses %v bytes, not %v", i, b.Memory*float64(v), was)
			}
		}
		if math.Abs(highest-1) > 1e-6 {
			t.Fatalf("task %d uses at most %v of its memory", i, highest)
		}
	}
	if again, err := (Ha{Tasks: 500}).Draw(4); err != nil || !reflect.DeepEqual(again, asked) {
		t.Errorf("equal seeds give unequal days: %v", err)
	}
	if _, err := (Ha{Tasks: -1}).Draw(1); err == nil {
		t.Error("drawn")
	}
}
