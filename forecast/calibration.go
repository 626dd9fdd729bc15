package forecast

// CoverageLevels are the probabilities of the central intervals whose coverage is measured.
var CoverageLevels = [...]float64{0.50, 0.80, 0.95, 0.99}

// coverageBounds are the places of their lower ends in Levels.
var coverageBounds = [len(CoverageLevels)]int{4, 3, 1, 0}

// Calibration is how good forecasts of one horizon have been. Old values fade: one of 200 steps ago counts a third.
type Calibration struct {
	Steps    int                          // ahead
	Values   float64                      // how many values it rests on, faded ones in part
	Pinball  float64                      // mean loss over Levels, in the unit of the series
	Coverage [len(CoverageLevels)]float64 // share of values within each interval or on its ends
	Above    float64                      // share of values above the 97.5% quantile
}

const (
	calibrationDecay = 0.995
	calibrationSlack = 1.001 // of parts that are the whole, rounded apart from it
)

// calibration of one model at scored horizons: decayed sums.
type calibration [scorings]struct {
	values, loss, above float32
	inside              [len(CoverageLevels)]float32
}

// add counts what was said of a value.
func (c *calibration) add(s int, stated *[levels]float32, y float64) {
	z := float32(y)
	t := &c[s]
	var loss float64
	for l, p := range Levels {
		loss += pinball(float64(stated[l]), float64(z), p)
	}
	t.values = t.values*calibrationDecay + 1
	t.loss = float32(min(float64(t.loss)*calibrationDecay+loss/float64(levels), largest*1e3))
	t.above *= calibrationDecay
	if z > stated[levels-2] {
		t.above++
	}
	for i, at := range coverageBounds {
		t.inside[i] *= calibrationDecay
		if stated[at] <= z && z <= stated[levels-1-at] {
			t.inside[i]++
		}
	}
}

// of scored horizon s.
func (c *calibration) of(s int) Calibration {
	t := c[s]
	out := Calibration{Steps: scored[s], Values: float64(t.values)}
	if t.values > 0 {
		out.Pinball = float64(t.loss / t.values)
		out.Above = float64(t.above / t.values)
		for i, n := range t.inside {
			out.Coverage[i] = float64(n / t.values)
		}
	}
	return out
}

func (c *calibration) archive(a *archive) {
	for s := range c {
		t := &c[s]
		x := []float32{t.values, t.loss, t.above}
		x = append(x, t.inside[:]...)
		a.singles(x, false)
		t.values, t.loss, t.above = x[0], x[1], x[2]
		copy(t.inside[:], x[3:])
		a.require(t.values >= 0 && t.loss >= 0, "calibration of less than nothing")
		for _, part := range append([]float32{t.above}, t.inside[:]...) {
			a.require(part >= 0 && part <= t.values*calibrationSlack, "calibration: a part is more than the whole")
		}
	}
}
