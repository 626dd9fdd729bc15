package flex

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestShareByHand(t *testing.T) {
	for name, c := range map[string]struct {
		capacity              float64
		request, demand, want []float64
	}{
		"no VM":                         {10, nil, nil, nil},
		"case 1: all have their demand": {10, []float64{1, 8}, []float64{5, 5}, []float64{5, 5}},
		"case 2: requests first, the rest by WFS":   {10, []float64{5, 2}, []float64{6, 8}, []float64{6, 4}}, // 3 left: 15/7 to the first, who wants 1; all else to the second
		"case 2: one is idle":                       {10, []float64{5, 2, 2}, []float64{0, 8, 8}, []float64{0, 5, 5}},
		"case 2: the rest in proportion":            {9, []float64{4, 2}, []float64{20, 20}, []float64{6, 3}},
		"case 2: one that requests nothing is last": {10, []float64{8, 0}, []float64{9, 5}, []float64{9, 1}},
		"case 3: in proportion to requests":         {10, []float64{10, 5, 5}, []float64{20, 20, 20}, []float64{5, 2.5, 2.5}},
		"case 3: one below its share":               {10, []float64{10, 5, 5}, []float64{2, 20, 20}, []float64{2, 4, 4}},
		"case 3: requests met, the rest by demand":  {10, []float64{10, 2, 2}, []float64{4, 4, 6}, []float64{4, 2 + 2.0/3, 2 + 4.0/3}}, // 2 left; 2 and 4 wanted
	} {
		t.Run(name, func(t *testing.T) {
			got := Share(c.capacity, c.request, c.demand, make([]float64, len(c.demand)))
			if !slices.EqualFunc(got, c.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// No task gets more than its demand. All capacity is used while a task wants more. A task is owed more than it got if and
// only if what all tasks are owed exceeds the capacity.
func TestShareLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "tasks")
		amount := rapid.OneOf(rapid.Float64Range(0, 10), rapid.Just(0.0), rapid.Just(1.0), rapid.Float64Range(0, 1e-9), rapid.Just(1.1125369292536007e-308))
		request := rapid.SliceOfN(amount, n, n).Draw(t, "request")
		demand := rapid.SliceOfN(amount, n, n).Draw(t, "demand")
		capacity := rapid.Float64Range(0, 40).Draw(t, "capacity")
		given := Share(capacity, request, demand, make([]float64, n))
		var sum, wanted, owed float64
		satisfied := true
		for j, g := range given {
			if !(g >= 0) || g > demand[j]*(1+1e-12) {
				t.Fatalf("task %d of request %v and demand %v is given %v", j, request[j], demand[j], g)
			}
			sum, wanted, owed = sum+g, wanted+demand[j], owed+Owed(request[j], demand[j])
			satisfied = satisfied && Satisfies(request[j], demand[j], g)
		}
		if math.Abs(sum-min(capacity, wanted)) > 1e-9 {
			t.Fatalf("%v given of %v; %v are wanted", sum, capacity, wanted)
		}
		if satisfied && owed > capacity*(1+2e-9) || !satisfied && owed < capacity*(1-2e-9) {
			t.Fatalf("capacity %v, owed %v, all hold: %v; requests %v, demands %v, given %v", capacity, owed, satisfied, request, demand, given)
		}
	})
}

func TestQueueByHand(t *testing.T) {
	a, b, c := Vector{1, 1}, Vector{1, 3}, Vector{9, 2}
	for _, o := range []struct {
		name  string
		order Order
		want  []int
	}{{"first come", FirstCome, []int{0, 1, 2, 0, 1, 2}}, {"largest memory", LargestMemory, []int{1, 2, 0, 1, 2, 0}}} {
		q, err := NewQueue(o.order, Backoff{First: 1, Max: 4})
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range []Vector{a, b, c} {
			q.Push(i, r)
		}
		var got []int
		for range 3 {
			w, ok := q.Next(0)
			if !ok {
				t.Fatal("no VM waits")
			}
			got = append(got, w.Task)
			q.Retry(w, 0)
		}
		if _, ok := q.Next(0.5); ok || q.Len() != 3 {
			t.Errorf("%s: one of %d is tried again at once", o.name, q.Len())
		}
		if at, ok := q.Wake(); !ok || at != 1 {
			t.Errorf("%s: wakes at %v, %v", o.name, at, ok)
		}
		for range 3 {
			w, _ := q.Next(1)
			got = append(got, w.Task)
			if w.Tries != 1 {
				t.Errorf("%s: %d tries", o.name, w.Tries)
			}
		}
		if !slices.Equal(got, o.want) {
			t.Errorf("%s: %v, want %v", o.name, got, o.want)
		}
	}
}

func TestBackoffDoubles(t *testing.T) {
	q, err := NewQueue(FirstCome, Backoff{First: 1, Max: 5})
	if err != nil {
		t.Fatal(err)
	}
	q.Push(7, Vector{1, 1})
	at := 0.0
	for _, want := range []float64{1, 3, 7, 12, 17} { // waits of 1, 2, 4, 5, 5
		w, ok := q.Next(at)
		if !ok {
			t.Fatalf("no VM at %v", at)
		}
		q.Retry(w, at)
		if at, _ = q.Wake(); at != want {
			t.Fatalf("ready at %v, want %v", at, want)
		}
	}
}

// Whatever is pushed comes out, exactly once, and in order among those that are ready.
func TestQueueLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		order := rapid.SampledFrom([]Order{FirstCome, LargestMemory}).Draw(t, "order")
		q, err := NewQueue(order, Backoff{First: rapid.Float64Range(0, 2).Draw(t, "first"), Max: 8})
		if err != nil {
			t.Fatal(err)
		}
		in := map[int]bool{}
		n, now := 0, 0.0
		for _, step := range rapid.SliceOf(rapid.IntRange(0, 5)).Draw(t, "steps") {
			now += float64(step) / 4
			if step < 3 {
				q.Push(n, Vector{1, float64(rapid.IntRange(1, 5).Draw(t, "memory"))})
				in[n] = true
				n++
			}
			if step == 5 { // try all that are ready, half of which fit
				last := math.Inf(1)
				for {
					w, ok := q.Next(now)
					if !ok {
						break
					}
					if !in[w.Task] {
						t.Fatalf("task %d comes out twice", w.Task)
					}
					if order == LargestMemory && w.Request[Memory] > last {
						t.Fatalf("memory of %v after %v", w.Request[Memory], last)
					}
					if last = w.Request[Memory]; (w.Task+w.Tries)%2 == 0 {
						q.Retry(w, now)
					} else {
						delete(in, w.Task)
					}
				}
			}
			if q.Len() != len(in) {
				t.Fatalf("%d wait, want %d", q.Len(), len(in))
			}
		}
	})
}

func TestNewQueueRefuses(t *testing.T) {
	for _, c := range []struct {
		order Order
		b     Backoff
	}{{2, Backoff{1, 2}}, {FirstCome, Backoff{-1, 2}}, {FirstCome, Backoff{2, 1}}, {LargestMemory, Backoff{1, math.Inf(1)}}, {FirstCome, Backoff{math.NaN(), 1}}} {
		if _, err := NewQueue(c.order, c.b); err == nil {
			t.Errorf("taken: %+v", c)
		}
	}
}
