package replay

import (
	"testing"

	"evenkeel/forecast"
	"evenkeel/sim/workload"
)

// One that fits passes one that does not, also if it arrives while that waits.
func TestPassing(t *testing.T) {
	w := small([]workload.Pattern{{1}},
		[]workload.App{{Work: 300, First: 0, Groups: 1}, {Arrival: 1, Work: 100, First: 1, Groups: 1}, {Arrival: 2, Work: 100, First: 2, Groups: 1}},
		workload.Group{Count: 1, CPU: 1, Memory: 3 * gib}, workload.Group{Count: 1, CPU: 1, Memory: 3 * gib}, workload.Group{Count: 1, CPU: 1, Memory: gib})
	for i := range w.Groups {
		w.Groups[i].CPUUse, w.Groups[i].MemoryUse = flat(0), flat(0)
	}
	hosts := []Host{{CPU: 4, Memory: 4 * gib}}
	r := run(t, w, hosts, &Reservation{}, Options{})
	near(t, "turnaround behind one that waits", r.PerApp[2].Turnaround, 298+100)
	r = run(t, w, hosts, &Reservation{Passing: true}, Options{})
	near(t, "turnaround past one that waits", r.PerApp[2].Turnaround, 100)
	near(t, "turnaround of the one that is passed", r.PerApp[1].Turnaround, 299+100)
}

// alarm foresees that much memory from the third minute on, and a quarter of it before.
type alarm struct {
	memory   float64
	cpu, mem [1]forecast.Prediction
}

func (*alarm) Name() string   { return "alarm" }
func (*alarm) Begin(*Cluster) {}
func (*alarm) Watch(*Cluster) {}
func (f *alarm) Ahead(c *Cluster, s int32) (cpu, memory []forecast.Prediction) {
	f.cpu[0].Mean, f.mem[0].Mean = 1, f.memory
	if c.Now < 180 {
		f.mem[0].Mean /= 4
	}
	return f.cpu[:], f.mem[:]
}

// Two applications have asked for 4 GiB each, on a host with 5, and use 1. That they are foreseen to need all of it evicts the second, but not with OnUse. That
// they use it does.
func TestEvictionOnUse(t *testing.T) {
	for _, c := range []struct {
		uses     float64 // of 4 GiB, from the third minute on
		onUse    bool
		requeued bool
	}{{0.25, false, true}, {0.25, true, false}, {1, true, true}} {
		w := small([]workload.Pattern{{1}, {0.25, 0.25, 0.25, float32(c.uses), float32(c.uses), float32(c.uses), float32(c.uses), float32(c.uses)}},
			[]workload.App{{Work: 400, First: 0, Groups: 1}, {Arrival: 1, Work: 400, First: 1, Groups: 1}},
			workload.Group{Count: 1, CPU: 1, Memory: 4 * gib, CPUUse: flat(0), MemoryUse: workload.Use{Pattern: 1, Step: 60}},
			workload.Group{Count: 1, CPU: 1, Memory: 4 * gib, CPUUse: flat(0), MemoryUse: workload.Use{Pattern: 1, Step: 60}})
		r := run(t, w, []Host{{CPU: 4, Memory: 5 * gib}}, &Rightsizing{Label: "alarm", Foresight: &alarm{memory: 4 * gib}, EmergencyEviction: true, OnUse: c.onUse}, Options{Until: 3000})
		if r.Failures != 0 || r.Requeues > 0 != c.requeued || r.PerApp[0].Preemptions != 0 {
			t.Errorf("%+v: %d failures, %d requeues, %d of the first", c, r.Failures, r.Requeues, r.PerApp[0].Preemptions)
		}
	}
}

// latest says after nine values that use stays as it is.
type latest struct {
	value float64
	seen  int
}

func (*latest) Name() string        { return "latest" }
func (m *latest) Observe(y float64) { m.value, m.seen = y, m.seen+1 }
func (m *latest) Predict(out []forecast.Prediction) bool {
	for i := range out {
		out[i].Mean = m.value
	}
	return m.seen >= 9
}

// Before a forecast is trusted another model counts, once it can say something.
func TestInterim(t *testing.T) {
	for _, interim := range []bool{false, true} {
		w := small([]workload.Pattern{{1}, {0.25}}, []workload.App{{Work: 2400, First: 0, Groups: 1}},
			workload.Group{Count: 1, CPU: 1, Memory: 4 * gib, CPUUse: flat(0), MemoryUse: workload.Use{Pattern: 1, Step: 60}})
		f := &Series{Steps: 10}
		if interim {
			f.Interim = func() forecast.Model { return &latest{} }
		}
		first := 0
		begun := false
		run(t, w, []Host{{CPU: 4, Memory: 5 * gib}}, &greedy{rightsize: func(c *Cluster) {
			if !begun {
				f.Begin(c)
				begun = true
			}
			f.Watch(c)
			s := c.FirstOf(0)
			if s < 0 {
				return
			}
			if _, memory := f.Ahead(c, s); memory != nil && first == 0 {
				first = int(c.Measured[s])
				near(t, "mean in ten minutes, GiB", memory[9].Mean/gib, 1)
			}
		}}, Options{})
		if want := map[bool]int{false: 0, true: 9}[interim]; first != want {
			t.Errorf("with interim estimates %v: the first after %d values, not %d", interim, first, want)
		}
	}
}
