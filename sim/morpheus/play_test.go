package morpheus

import (
	"slices"
	"testing"
)

// A run does in later minutes what earlier ones fell short of, and no work before it is there (sec. 5: debts are paid, credit is not kept).
func TestAlone(t *testing.T) {
	in := func(v ...float64) func(int) float64 {
		return func(minute int) float64 {
			if minute < len(v) {
				return v[minute]
			}
			return 0
		}
	}
	for name, c := range map[string]struct {
		inputs     float64
		usage      []float64
		due        int
		containers func(int) float64
		end        int
		inTime     bool
	}{
		"as it asks":                   {0, []float64{2, 3}, 5, in(2, 3), 2, true},
		"a debt is paid":               {0, []float64{2, 3}, 5, in(1, 3, 1), 3, true},
		"credit is not kept":           {0, []float64{2, 3}, 3, in(5, 2), 3, false},
		"its inputs are late":          {0.5, []float64{2}, 4, in(2, 1, 1), 3, true},
		"they come after its slot":     {2, []float64{2}, 4, in(2, 2), 4, false},
		"due before it can have ended": {0, []float64{1, 1, 1}, 2, in(9, 9, 9), 2, false},
	} {
		end, inTime := alone(&Run{Inputs: c.inputs, Usage: c.usage}, c.due, c.containers)
		if end != c.end || inTime != c.inTime {
			t.Errorf("%s: ended at %d, in time %t; want %d, %t", name, end, inTime, c.end, c.inTime)
		}
	}
}

func TestMaxMin(t *testing.T) {
	for _, c := range []struct {
		demands []float64
		amount  float64
		want    []float64
	}{
		{[]float64{1, 2, 3}, 10, []float64{1, 2, 3}},
		{[]float64{9, 1, 9}, 7, []float64{3, 1, 3}},
		{[]float64{5, 5}, 0, []float64{0, 0}},
		{nil, 5, []float64{}},
	} {
		if got := maxMin(c.demands, c.amount); !slices.Equal(got, c.want) {
			t.Errorf("%v of %v: %v, not %v", c.demands, c.amount, got, c.want)
		}
	}
}

// Played together in their slots without re-provisioning, runs do as each alone.
func TestTogetherAsAlone(t *testing.T) {
	s := small(t)
	p, err := s.plan("0.25", lowCost)
	if err != nil {
		t.Fatal(err)
	}
	none := asInPaper()
	none.MaxShare = 0
	a, b := p.onlyReserved(s.learned), p.reprovisioned(s.learned, p.peak, none)
	if b.Granted != 0 || a.Missed == 0 || !slices.Equal(a.ByJob, b.ByJob) {
		t.Errorf("alone %v, together %v, granted %v", a.ByJob, b.ByJob, b.Granted)
	}
}

// Ad-hoc jobs ask for three quarters of a cluster at most, and get no more than they are given.
func TestAdHoc(t *testing.T) {
	a := newAdHoc(3, 1000)
	given := 0.0
	for range 500 {
		asked := 0.0
		for _, j := range a.running {
			asked += j.containers
		}
		if asked > 750 {
			t.Fatalf("%v containers are asked for", asked)
		}
		got := maxMin(a.demands(), 400)
		for _, v := range got {
			given += v
		}
		a.pass(got)
	}
	if a.ended == 0 || given != a.used || given > 400*500+1e-6 || given < 300*500 {
		t.Errorf("%d ended, %v given, %v used", a.ended, given, a.used)
	}
}
