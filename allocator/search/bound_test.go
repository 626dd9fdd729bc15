package search

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestSortDown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{0, 1, 5, 1023, 1024, 3000}).Draw(t, "n")
		limit := rapid.SampledFrom([]int64{0, 1, 50, 1 << 52}).Draw(t, "most")
		draw := rapid.Int64Range(0, limit)
		a := make([]int64, n)
		for i := range a {
			a[i] = draw.Draw(t, "x")
			if rapid.Bool().Draw(t, "small") {
				a[i] >>= 30
			}
		}
		got, want := make([]int64, n), slices.Clone(a)
		sortDown(got, a)
		slices.Sort(want)
		slices.Reverse(want)
		if !slices.Equal(got, want) {
			t.Fatalf("%v: %v", a, got)
		}
	})
}

// The bound by counting is, within rounding, the greatest of the levels below which the
// hosts do not take the k largest VMs.
func TestCountLevel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &Model{}
		for range rapid.IntRange(1, 60).Draw(t, "hosts") {
			m.CPU = append(m.CPU, rapid.Int64Range(1, 100).Draw(t, "cpu"))
		}
		for range rapid.IntRange(1, 60).Draw(t, "vms") {
			m.Weight = append(m.Weight, rapid.Int64Range(0, 200).Draw(t, "weight"))
		}
		w := slices.Clone(m.Weight)
		slices.Sort(w)
		slices.Reverse(w)
		takes := func(x float64) bool {
			for k, a := range w[:min(len(w), 4*len(m.CPU)+1)] {
				room := 0
				for _, c := range m.CPU {
					if a > 0 {
						room += int(float64(c) * x / float64(a))
					}
				}
				if a > 0 && room <= k {
					return false
				}
			}
			return true
		}
		got := countLevel(m, 0)
		if !takes(got*(1+1e-9)) || got > 1e-9 && takes(got*(1-1e-9)) {
			t.Fatalf("%v on %v: %v", m.Weight, m.CPU, got)
		}
	})
}
