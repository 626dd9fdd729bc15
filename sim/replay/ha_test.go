package replay

import (
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/sim/flex"
	"evenkeel/sim/workload"
)

// A host of 10 cores and 10 GiB that allows 8 of both. The first task reserves 7 GiB and uses 1, with a damping factor of 0.5. The estimate of
// memory is 7, and at each second half of what it was and half of 1: 4, 2.5, 1.75. The second asks for 6.9, at 0.5 s: by eq. 5 there are 7 (8-1) once
// anything was measured, by eq. 6 there are 10-7 = 3, and after the measurement at 1 s 6, at 2 s 7.5. So it starts at 2 s; by reservation not
// before the first ends at 100 s.
func TestHaByHand(t *testing.T) {
	w := &workload.Workload{Patterns: []workload.Pattern{{1.0 / 7}}}
	one(w, 0, 100, 1, 7*gib, 0, 0)
	one(w, 0.5, 100, 1, 6.9*gib, 0, 1)
	hosts := []Host{{10, 10 * gib}}
	ha, err := Ha(8, 8*gib, 0.5)
	if r := run(t, w, hosts, must(t, ha, err), Options{Tick: 1}); r.PerApp[1].Start != 2 {
		t.Errorf("by estimate the second starts at %v s", r.PerApp[1].Start)
	}
	reserved, err := HaReservation(8, 8*gib)
	if r := run(t, w, hosts, must(t, reserved, err), Options{Tick: 1}); math.Abs(r.PerApp[1].Start-100) > 1 {
		t.Errorf("by reservation the second starts at %v s", r.PerApp[1].Start)
	}
	// Nothing is known of tasks at first, so Evenkeel reserves; then of both resources 1/7 is used, always, and no buffer is needed.
	even, err := HaEvenkeel(8, 8*gib)
	if r := run(t, w, hosts, must(t, even, err), Options{Tick: 1}); r.PerApp[1].Start < 1 || r.PerApp[1].Start > 3 {
		t.Errorf("under Evenkeel the second starts at %v s", r.PerApp[1].Start)
	}
}

// In order: a large task that does not fit holds up the small one behind it.
func TestHaWaitsInOrder(t *testing.T) {
	w := &workload.Workload{Patterns: []workload.Pattern{{1}}}
	one(w, 0, 100, 1, 5*gib, 0, 0)
	one(w, 1, 100, 1, 5*gib, 0, 1)
	one(w, 2, 100, 1, gib, 0, 2)
	p, err := HaReservation(8, 8*gib)
	r := run(t, w, []Host{{10, 10 * gib}}, must(t, p, err), Options{Tick: 1})
	if r.PerApp[1].Start < 100 || r.PerApp[2].Start < r.PerApp[1].Start {
		t.Errorf("they start at %v, %v and %v s", r.PerApp[0].Start, r.PerApp[1].Start, r.PerApp[2].Start)
	}
}

// What the buffer is, by hand: four tasks of 2 GiB each on one host use 0.25 and 0.75 of them in turn, so the mean is 0.5 and the
// deviation 0.25. Their sum is likely to be 4 GiB and to deviate by 0.25*sqrt(4*2^2) = 1: with 2.75 deviations the need is 6.75 GiB.
func TestHaEvenkeelNeedByHand(t *testing.T) {
	p, err := HaEvenkeel(8, 8*gib)
	h := must(t, p, err).counting.(*haKnown)
	h.Begin([]flex.Vector{{10, 10 * gib}})
	m := &measuredTick{Used: []flex.Vector{{1, 4 * gib}}, Asked: []flex.Vector{{4, 8 * gib}}, Mean: flex.Vector{0.25, 0.5}, Square: flex.Vector{0.0625, 0.25 + 0.0625}, Components: 4}
	for range 4 {
		h.Placed(0, flex.Vector{1, 2 * gib})
	}
	if got := h.Taken(0); got[flex.Memory] != 10*gib {
		t.Errorf("before anything was measured %v GiB are taken", got[flex.Memory]/gib)
	}
	h.Measure(m)
	got := h.Taken(0)
	if math.Abs(got[flex.Memory]/gib-6.75) > 1e-9 || math.Abs(got[flex.CPU]-1) > 1e-9 {
		t.Errorf("%v cores and %v GiB are taken, not 1 and 6.75", got[flex.CPU], got[flex.Memory]/gib)
	}
	if c := h.Counts(flex.Vector{4, 4 * gib}); c != (flex.Vector{1, 2 * gib}) {
		t.Errorf("a request counts as %v", c)
	}
}

// By reservation no task fails that uses no more than its request; all tasks are done in any case; equal inputs give equal results.
func TestHaLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, err := workload.Ha{Tasks: rapid.IntRange(1, 60).Draw(t, "tasks"), ExtremeFit: rapid.Bool().Draw(t, "fit")}.Draw(rapid.Uint64Range(0, 1000).Draw(t, "seed"))
		if err != nil {
			t.Fatal(err)
		}
		hosts := []Host{{23, 31 * gib}, {23, 31 * gib}}[:rapid.IntRange(1, 2).Draw(t, "hosts")]
		for name, make := range map[string]func() (*Placer, error){
			"reservation": func() (*Placer, error) { return HaReservation(18, 28*gib) },
			"Ha":          func() (*Placer, error) { return Ha(18, 28*gib, 0.125) },
			"Evenkeel":    func() (*Placer, error) { return HaEvenkeel(18, 28*gib) },
		} {
			var first *Result
			for range 2 {
				p, err := make()
				if err != nil {
					t.Fatal(err)
				}
				r, err := Run(w, hosts, p, Options{Tick: 1})
				if err != nil {
					t.Fatal(err)
				}
				if r.Unfinished != 0 || name == "reservation" && r.Failures != 0 {
					t.Fatalf("%s: %d never end, %d failures", name, r.Unfinished, r.Failures)
				}
				if first != nil && !reflect.DeepEqual(first, r) {
					t.Fatalf("%s: a second run differs", name)
				}
				first = r
			}
		}
	})
}
