package rightsizing

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestOnce(t *testing.T) {
	type vm struct{ deficit, deviation float64 }
	for name, c := range map[string]struct {
		vms     []vm
		largest bool
		want    float64
	}{
		"no VM":                                 {nil, false, 0},
		"one VM may take back all it lacks":     {[]vm{{6, 5}}, false, 0},
		"the reserve is more":                   {[]vm{{6, 2}, {6, 2}}, false, 0},
		"deviations are more":                   {[]vm{{4, 3}, {4, 3}, {4, 3}, {4, 3}, {4, 3}, {4, 3}}, false, (18 - 6) / (0.75 * 18)},
		"the largest of few":                    {[]vm{{6, 0}, {6, 4}, {6, 4}}, false, (8.0 - 6) / (8 - 4)},
		"only the largest is kept":              {[]vm{{4, 3}, {4, 3}, {4, 3}, {4, 3}, {4, 3}, {4, 3}}, true, (18.0 - 4) / (18 - 3)},
		"a deviation is at most what is lacked": {[]vm{{2, 5}, {-1, 3}, {2, -1}, {2, 2}, {2, 2}}, false, (6 - 2) / (0.75 * 6)},
	} {
		k := Once{}
		k.Reserve.LargestOnly = c.largest
		for _, v := range c.vms {
			k.Add(v.deficit, v.deviation)
		}
		if got := k.Share(); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// What VMs are given of their deviations and the reserve beside it are as much as all deviations, and as the reserve without them; less than both together.
func TestOnceKeepsTheGreater(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "VMs")
		deficits, deviations := make([]float64, n), make([]float64, n)
		k := Once{}
		k.Reserve.LargestOnly = rapid.Bool().Draw(t, "largest only")
		all := 0.0
		for i := range deficits {
			deficits[i] = rapid.Float64Range(0, 64).Draw(t, "deficit")
			deviations[i] = deficits[i] * rapid.Float64Range(0, 1).Draw(t, "deviation")
			all += deviations[i]
			k.Add(deficits[i], deviations[i])
		}
		share, left := k.Share(), Once{}
		left.Reserve.LargestOnly = k.Reserve.LargestOnly
		if share < 0 || share > 1 {
			t.Fatalf("a share of %v", share)
		}
		for i := range deficits {
			left.Add(deficits[i]-share*deviations[i], 0)
		}
		kept, reserve := share*all+left.Reserve.Bytes(), k.Reserve.Bytes()
		if greater := max(all, reserve); kept < greater-1e-9*greater {
			t.Fatalf("%v is kept, the deviations are %v and the reserve %v", kept, all, reserve)
		}
		if kept > all+reserve+1e-9*all {
			t.Fatalf("%v is kept, more than deviations (%v) and reserve (%v)", kept, all, reserve)
		}
	})
}
