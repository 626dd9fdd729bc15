package morpheus

import "testing"

// A run that missed its deadline in its slot did so for one reason.
func TestWhy(t *testing.T) {
	few, many := make([][]float64, 20), make([][]float64, 100)
	in := &slot{start: 2, amounts: []float64{2, 2, 2}}
	for name, c := range map[string]struct {
		past   [][]float64
		inputs float64
		usage  []float64
		want   cause
	}{
		"longer than its window":    {many, 0, []float64{1, 1, 1, 1, 1, 1, 1}, byFate},
		"inputs after the deadline": {many, 6, []float64{1}, byFate},
		"more work, few runs":       {few, 0, []float64{7}, byFewRuns},
		"more work":                 {many, 0, []float64{7}, byMoreWork},
		"half of the slot gone":     {few, 4, []float64{3}, byInputs},
		"its work comes last":       {few, 0, []float64{0, 0, 0, 0, 3}, byLateWork},
	} {
		k := contract{due: 6, past: c.past}
		r := Run{Inputs: c.inputs, Usage: c.usage}
		if inTime(&r, &k, in) {
			t.Errorf("%s: it ended in time", name)
		}
		if got := k.why(&r, in); got != c.want {
			t.Errorf("%s: cause %d, not %d", name, got, c.want)
		}
	}
}

// The causes are all misses, and no rule misses less than a clairvoyant.
func TestCausesAddUp(t *testing.T) {
	s := small(t)
	table, err := s.Figure("causes")
	if err != nil {
		t.Fatal(err)
	}
	all := s.clairvoyant()
	for _, r := range table.Rows {
		sum := 0.0
		for _, v := range r.Values[1:] {
			sum += v
		}
		near(t, r.Name, sum, r.Values[0], 1e-9)
		near(t, r.Name+", unavoidable", r.Values[1], all.missShare(), 1e-9)
	}
	again := cells(t, s, "10b")
	if a, b := again(borrowedRow, missedName), again("alpha 1%", missedName); a > b {
		t.Errorf("with a borrowed run %v missed, without %v", a, b)
	}
}
