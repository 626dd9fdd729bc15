package forecast_test

import (
	"math/rand/v2"
	"testing"

	"evenkeel/forecast"
	"evenkeel/sim/baseline"
	"evenkeel/sim/fitted"
	"evenkeel/sim/score"
	"evenkeel/test/series"
)

// On series of different kinds, taken together, the mixture must beat every simple model, and be about as good as the two
// of the paper, which are dear. None of them is among its experts.
func TestMixtureBeatsSingleModels(t *testing.T) {
	all := map[string][]float64{
		"smooth":  series.Autoregressive(900, 6),
		"jumps":   make([]float64, 900),
		"on/off":  make([]float64, 900),
		"pattern": make([]float64, 900),
	}
	r := rand.New(rand.NewPCG(2, 2))
	for i := range 900 {
		all["jumps"][i] = 10*float64(i/150%3) + r.NormFloat64()
		all["on/off"][i] = float64(r.IntN(2))*float64(i/40%2) + 0.1*r.NormFloat64()
		all["pattern"][i] = 5*float64(i%12/9) + 0.2*r.NormFloat64()
	}
	relative := map[string]float64{}
	for _, ys := range all {
		w := fitted.NewWorkspace()
		r := score.Run(ys, []forecast.Model{
			forecast.NewMixture(1440, nil),
			baseline.NewLast(), baseline.NewPeak(baseline.PeakWindow), baseline.NewHistogram(baseline.HistogramHalfLife), baseline.NewSmooth(),
			fitted.NewARIMA(0, w), fitted.NewGP(0, w),
		}, score.Options{Steps: forecast.Horizon, Warmup: 100})
		if r.Origins == 0 {
			t.Fatal("nothing was scored")
		}
		mixed := r.Models[0].Total().Pinball
		for _, m := range r.Models {
			if m.Broken > 0 {
				t.Errorf("%s stated %d times what is no prediction", m.Name, m.Broken)
			}
		}
		for _, m := range r.Models[1:] {
			relative[m.Name] += m.Total().Pinball / mixed / float64(len(all))
		}
	}
	for name, x := range relative {
		lowest := 1.03
		if name == "arima" || name == "gp" {
			lowest = 0.98
		}
		if x < lowest {
			t.Errorf("%s loses %.3f times what the mixture loses, %.2f are needed", name, x, lowest)
		}
	}
}
