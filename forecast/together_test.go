package forecast

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Where all is known the peak is the largest sum of one step.
func TestPeakTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps, day := rapid.IntRange(1, 40).Draw(t, "steps"), rapid.IntRange(1, 30).Draw(t, "day")
		vms := make([]Neighbor, rapid.IntRange(0, 5).Draw(t, "VMs"))
		sums := make([]float64, steps)
		for i := range vms {
			vms[i] = Neighbor{Request: 10, Past: &PastUse{}}
			vms[i].Past.Remember(day)
			value := 0.0
			for s := range steps {
				if s == 0 || rapid.IntRange(0, 3).Draw(t, "measured") > 0 { // what is left out is as before
					value = float64(rapid.IntRange(0, 10).Draw(t, "use"))
					vms[i].Past.Note(int64(s), value)
				}
				sums[s] += value
			}
			vms[i].Past.Note(int64(steps-1), value)
		}
		want := 0.0
		for s := max(0, steps-day); s < steps; s++ {
			want = max(want, sums[s])
		}
		if got := PeakTogether(vms, int64(steps-1), day); math.Abs(got-want) > 1e-6 {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

// One that came later is taken to have used what the others did at least.
func TestPeakTogetherOfNewcomers(t *testing.T) {
	var all [3]PastUse
	for i, uses := range [][]float64{{8, 1}, {8, 1}, {0, 1}} {
		all[i].Remember(10)
		for s, use := range uses {
			if i < 2 || s > 0 {
				all[i].Note(int64(s), use)
			}
		}
	}
	vms := []Neighbor{{10, &all[0]}, {10, &all[1]}, {5, &all[2]}}
	if got := PeakTogether(vms, 1, 10); got != 8+8+4 {
		t.Errorf("both others used 8 of 10: %v, want 20", got)
	}
	all[1].Remember(10)
	all[1].Note(0, 2)
	all[1].Note(1, 1)
	if got := PeakTogether(vms, 1, 10); math.Abs(got-(10+5*max(0, 0.5-2*0.3/math.Sqrt2))) > 1e-6 {
		t.Errorf("one used 8, one 2: %v", got)
	}
	if got := PeakTogether(vms[2:], 1, 10); got != 1 {
		t.Errorf("alone: %v, want 1", got)
	}
	all[0].Note(1, 3) // again: the larger stays
	all[0].Note(1, 2)
	if used, known := all[0].at(1); used != 3 || !known {
		t.Errorf("%v, %v, want 3", used, known)
	}
	all[0].Note(1000, 4) // the step before it counts as the last one known
	if used, known := all[0].at(999); used != 3 || !known {
		t.Errorf("after a gap: %v, %v, want 3", used, known)
	}
	if _, known := all[0].at(1); known {
		t.Error("what was long ago is known")
	}
	all[0].Note(2, 1) // the clock was set back
	if used, known := all[0].at(2); used != 1 || !known {
		t.Errorf("after the clock was set back: %v, %v, want 1", used, known)
	}
	if got := PeakTogether(vms[:2], 3, 10); got != 2 {
		t.Errorf("of the present step nothing is known: %v, want what one used before it, 2", got)
	}
}
