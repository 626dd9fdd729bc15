package replay

import (
	"testing"

	"pgregory.net/rapid"

	"evenkeel/forecast"
)

// What a series is forecast hangs on its own values alone: fits are remembered, and those of series that began alike and went on differently are not mixed up.
func TestRememberedFitsAreOfTheSameValues(t *testing.T) {
	makers := map[string]func() func(int) forecast.Model{
		"arima10": FewARIMA,
		"gp10": func() func(int) forecast.Model {
			f, err := FewGP()
			if err != nil {
				t.Fatal(err)
			}
			return f
		},
	}
	for name, maker := range makers {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				together := maker()
				var models, alone []forecast.Model
				for range 4 {
					models, alone = append(models, together(0)), append(alone, maker()(0))
				}
				for tick := range 31 {
					common := rapid.Float64Range(0, 4).Draw(t, "common")
					for i := range models {
						y := common
						if rapid.IntRange(0, 19).Draw(t, "own") == 0 {
							y = rapid.Float64Range(0, 4).Draw(t, "y")
						}
						models[i].Observe(y)
						alone[i].Observe(y)
					}
					for i := range models {
						var a, b [1]forecast.Prediction
						said, saidAlone := models[i].Predict(a[:]), alone[i].Predict(b[:])
						if said != saidAlone || a[0].Mean != b[0].Mean || a[0].Variance != b[0].Variance {
							t.Fatalf("tick %d, series %d: %v %v ± %v, alone %v %v ± %v", tick, i, said, a[0].Mean, a[0].Variance, saidAlone, b[0].Mean, b[0].Variance)
						}
					}
				}
			})
		})
	}
}
