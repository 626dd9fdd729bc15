package replay

import "evenkeel/forecast"

// Models forecast the use of every component by a model of its own for each resource, from what was measured of it in whole ticks. Where a
// model cannot say anything yet nothing is known, and the request counts.
type Models struct {
	Kind string // its name

	// New makes what makes a model for a series; phase differs from one to the next, so that not all are fitted in the same tick. Models of one call may
	// share scratch memory, those of two must not.
	New func() func(phase int) forecast.Model

	Steps int // ticks ahead that are asked for; 0: 1

	// Parts is how many parts components fall into, whose models share nothing; 0: 1. Beside does all parts of the work of a tick, side by side if it
	// likes; nil: one after the other. What comes of it is the same.
	Parts  int
	Beside func(parts int, do func(part int))

	makers []func(phase int) forecast.Model // [part]
	models [][2]forecast.Model              // [slot]: CPU, memory
	of     []uint32                         // [slot]: component that they are of
	phase  int
	out    [2][]forecast.Prediction
}

// Name implements Foresight.
func (f *Models) Name() string { return f.Kind }

// Begin implements Foresight.
func (f *Models) Begin(*Cluster) {
	f.models, f.of, f.phase = nil, nil, 0
	f.makers = f.makers[:0]
	for range max(1, f.Parts) {
		f.makers = append(f.makers, f.New())
	}
	for r := range f.out {
		f.out[r] = make([]forecast.Prediction, max(1, f.Steps))
	}
}

// Watch implements Foresight.
func (f *Models) Watch(c *Cluster) {
	for s, app := range c.App {
		if app < 0 || c.Measured[s] == 0 {
			continue
		}
		for s >= len(f.models) {
			f.models, f.of = append(f.models, [2]forecast.Model{}), append(f.of, 0)
		}
		m := &f.models[s]
		if f.of[s] != c.Born[s] {
			f.of[s] = c.Born[s]
			for r := range m {
				m[r] = f.makers[s%len(f.makers)](f.phase)
				f.phase++
			}
		}
	}
	do := func(part int) {
		for s := part; s < len(f.models); s += len(f.makers) {
			if c.App[s] < 0 || c.Measured[s] == 0 {
				continue
			}
			observe(f.models[s][0], c.UsedCPU[s], c.Short[s])
			observe(f.models[s][1], c.UsedMemory[s], false)
		}
	}
	if f.Beside != nil {
		f.Beside(len(f.makers), do)
		return
	}
	for part := range f.makers {
		do(part)
	}
}

// observe gives a model what was measured. Use at a limit is a lower bound of what was wanted; models without censored values take it as measured.
func observe(m forecast.Model, used float64, short bool) {
	if m, ok := m.(interface{ ObserveCensored(float64) }); ok && short {
		m.ObserveCensored(used)
		return
	}
	m.Observe(used)
}

// Ahead implements Foresight.
func (f *Models) Ahead(c *Cluster, s int32) (cpu, memory []forecast.Prediction) {
	if int(s) >= len(f.models) || f.of[s] != c.Born[s] {
		return nil, nil
	}
	if f.models[s][0].Predict(f.out[0]) {
		cpu = f.out[0]
	}
	if f.models[s][1].Predict(f.out[1]) {
		memory = f.out[1]
	}
	return cpu, memory
}
