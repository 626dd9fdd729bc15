package replay

import "evenkeel/forecast"

// Series forecast as production does: by the mixture, within the bounds of what was asked for, and only where it has shown that it can be trusted.
type Series struct {
	Steps int // ticks ahead; 0: forecast.Horizon

	// Untrusted: forecasts count also where they are not trusted.
	Untrusted bool

	series []two    // [slot]
	of     []uint32 // [slot]: component that they are of
	w      *forecast.Workspace
	step   int64
	out    [2][]forecast.Prediction
}

type two [2]*forecast.Series

// Name implements Foresight.
func (f *Series) Name() string { return "mixture" }

// Begin implements Foresight.
func (f *Series) Begin(*Cluster) {
	f.series, f.of = nil, nil
	if f.w == nil {
		f.w = forecast.NewWorkspace()
	}
	n := f.Steps
	if n == 0 {
		n = forecast.Horizon
	}
	for r := range f.out {
		f.out[r] = make([]forecast.Prediction, n)
	}
}

// Watch implements Foresight.
func (f *Series) Watch(c *Cluster) {
	day := int(86400 / c.Tick)
	f.step = int64(c.Ticks)
	for s, app := range c.App {
		if app < 0 || c.Measured[s] == 0 {
			continue
		}
		for s >= len(f.series) {
			f.series, f.of = append(f.series, two{}), append(f.of, 0)
		}
		if f.of[s] != c.Born[s] {
			f.of[s] = c.Born[s]
			for r, highest := range []float64{c.RequestCPU[s], c.RequestMemory[s]} {
				f.series[s][r] = forecast.New(forecast.Options{Period: day, Max: highest, Positive: true, Workspace: f.w})
			}
		}
		// Each step is observed once, and later than the one before: Observe has nothing to refuse.
		_ = f.series[s][0].Observe(f.step, c.UsedCPU[s], c.Short[s])
		_ = f.series[s][1].Observe(f.step, c.UsedMemory[s], false)
	}
}

// Ahead implements Foresight.
func (f *Series) Ahead(c *Cluster, s int32) (cpu, memory []forecast.Prediction) {
	if int(s) >= len(f.series) || f.of[s] != c.Born[s] {
		return nil, nil
	}
	var out [2][]forecast.Prediction
	for r, m := range f.series[s] {
		if trusted, _ := m.Trusted(); (trusted || f.Untrusted) && m.Predict(f.out[r]) {
			out[r] = f.out[r]
		}
	}
	return out[0], out[1]
}
