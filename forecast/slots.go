package forecast

import "math"

// A prediction waits for its value. Experts are judged at scored horizons, and weights between these are
// interpolated. At the longest horizon only every second prediction is kept: neighbours say almost the same.
var (
	scored  = [...]int{1, 3, 10}
	strides = [scorings]int{1, 1, 2}
	starts  = func() (at [scorings]int) {
		for s := 1; s < scorings; s++ {
			at[s] = at[s-1] + scored[s-1]/strides[s-1]
		}
		return at
	}()
)

const (
	scorings = 3
	slots    = 1 + 3 + 5
)

// slot is the place where what is predicted scored[s] steps before step t waits for it, if it is kept.
func slot(s, t int) (int, bool) {
	return starts[s] + t/strides[s]%(scored[s]/strides[s]), t%strides[s] == 0
}

// between is a horizon's place among given ones, ascending: between which two it lies, and which share the second has,
// linear in the logarithm.
type between struct {
	low, high int
	share     float64
}

func place(horizons []int) (out [Horizon]between) {
	for h := 1; h <= Horizon; h++ {
		b := &out[h-1]
		for i, x := range horizons {
			if x <= h {
				b.low, b.high = i, min(i+1, len(horizons)-1)
			}
		}
		if x, y := horizons[b.low], horizons[b.high]; y > x {
			b.share = math.Log(float64(h)/float64(x)) / math.Log(float64(y)/float64(x))
		}
	}
	return out
}

var scoredPlace = place(scored[:])
