package simulated

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestShareTable(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name     string
		capacity float64
		limits   []float64
		weights  []float64
		want     []float64
	}{
		{"no VM", 1, nil, nil, nil},
		{"room for all", 4, []float64{1, 2}, []float64{1, 100}, []float64{1, 2}},
		{"by weight", 1, []float64{1, 1}, []float64{3, 1}, []float64{0.75, 0.25}},
		{"what one leaves goes to the rest by weight", 2, []float64{0.5, 2, 2}, []float64{1, 1, 2}, []float64{0.5, 0.5, 1}},
		{"idle ones take nothing", 1, []float64{0, 5}, []float64{1000, 1}, []float64{0, 1}},
		{"host without CPU", 0, []float64{1, 1}, []float64{1, 1}, []float64{0, 0}},
	} {
		cs := make([]contender, len(x.limits))
		for i := range cs {
			cs[i] = contender{limit: x.limits[i], weight: x.weights[i]}
		}
		share(x.capacity, cs)
		var got []float64
		for i := range cs {
			got = append(got, cs[i].gets)
		}
		if !slices.EqualFunc(got, x.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-12 }) {
			t.Errorf("%s: %v, want %v", x.name, got, x.want)
		}
	}
}

// level is the dumb way to the same answer: the water level per weight is
// searched for by halving.
func level(capacity float64, cs []contender) []float64 {
	given := func(l float64) (sum float64) {
		for _, c := range cs {
			sum += min(c.limit, l*c.weight)
		}
		return sum
	}
	low, high := 0.0, 1.0
	for range 200 {
		if given(high) >= capacity {
			break
		}
		high *= 2
	}
	for range 200 {
		if mid := (low + high) / 2; given(mid) > capacity {
			high = mid
		} else {
			low = mid
		}
	}
	gets := make([]float64, len(cs))
	for i, c := range cs {
		gets[i] = min(c.limit, high*c.weight)
	}
	return gets
}

func TestShareProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.Float64Range(0, 64).Draw(t, "capacity")
		n := rapid.IntRange(0, 40).Draw(t, "n")
		cs := make([]contender, n)
		sum := 0.0
		for i := range cs {
			cs[i].limit = rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0, 8)).Draw(t, "limit")
			cs[i].weight = rapid.OneOf(rapid.Just(1.0), rapid.Float64Range(minWeight, 100)).Draw(t, "weight")
			sum += cs[i].limit
		}
		share(capacity, cs)
		given := 0.0
		for i, c := range cs {
			if c.gets < 0 || c.gets > c.limit {
				t.Fatalf("%d gets %v of %v", i, c.gets, c.limit)
			}
			given += c.gets
		}
		if want := min(capacity, sum); math.Abs(given-want) > 1e-9*max(1, want) {
			t.Fatalf("%v given in all, want %v: %+v", given, want, cs)
		}
		for i, want := range level(capacity, cs) {
			if math.Abs(cs[i].gets-want) > 1e-6 {
				t.Fatalf("%d gets %v, want %v: %+v", i, cs[i].gets, want, cs)
			}
		}
	})
}

func BenchmarkShare1000(b *testing.B) {
	cs := make([]contender, 1000)
	for i := range cs {
		cs[i] = contender{limit: float64(i%7) / 3, weight: float64(i%5 + 1)}
	}
	for b.Loop() {
		share(100, cs)
	}
}
