package replay

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/forecast"
	"evenkeel/sim/fitted"
	"evenkeel/sim/workload"
)

// The forecast of a series depends on its own values alone: fits are cached, and those of series that began alike and went on differently are not mixed up.
func TestRememberedFitsAreOfTheSameValues(t *testing.T) {
	for name, maker := range map[string]func() func(int) forecast.Model{"arima10": FewARIMA, "gp10": FewGP} {
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

// Models in parts that are worked on side by side forecast what they do alone.
func TestPartsChangeNothing(t *testing.T) {
	p := workload.PaceDefault.Scaled(1, 40, 0.05)
	w, err := p.Draw(rand.New(rand.NewPCG(5, 0)))
	if err != nil {
		t.Fatal(err)
	}
	beside := func(parts int, do func(part int)) {
		var all sync.WaitGroup
		for part := range parts {
			all.Go(func() { do(part) })
		}
		all.Wait()
	}
	arima := func() func(phase int) forecast.Model {
		w := fitted.NewWorkspace()
		return func(phase int) forecast.Model { return fitted.NewARIMA(phase, w) }
	}
	for name, maker := range map[string]func() func(int) forecast.Model{"arima10": FewARIMA, "gp10": FewGP, "arima": arima} {
		of := func(m *Models) []byte {
			m.New = maker
			s := &Rightsizing{Label: name, Foresight: m, Buffer: forecast.Buffer{K1: 0.05, K2: 1}, Yield: 1, Trust: 3, How: Enforcement{Capped: true}}
			var b bytes.Buffer
			if err := WriteJSON(&b, []*Result{run(t, w, []Host{{p.CPU, p.Memory}}, s, Options{Until: 3 * 3600})}); err != nil {
				t.Fatal(err)
			}
			return b.Bytes()
		}
		alone := of(&Models{})
		if !bytes.Equal(alone, of(&Models{Parts: 3})) || !bytes.Equal(alone, of(&Models{Parts: 4, Beside: beside})) {
			t.Errorf("%s: models in parts forecast something else", name)
		}
	}
}
