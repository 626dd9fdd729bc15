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

// Two components use a quarter of 4 GiB each, and now and then all of it. Where they do so at the same time, their host of 8 GiB keeps room for both and a
// third has to wait; where they take turns, it starts beside them, and no one goes short.
func TestTogether(t *testing.T) {
	jumps := func(at int) workload.Pattern {
		p := make(workload.Pattern, 20)
		for i := range p {
			p[i] = 0.25
		}
		p[at] = 1
		return p
	}
	for _, c := range []struct {
		name   string
		second int // pattern of the second
		waits  bool
	}{{"together", 1, true}, {"in turn", 2, false}} {
		w := small([]workload.Pattern{{1}, jumps(5), jumps(15)},
			[]workload.App{{Work: 7200, First: 0, Groups: 1}, {Arrival: 1, Work: 7200, First: 1, Groups: 1}, {Arrival: 3000, Work: 600, First: 2, Groups: 1}},
			workload.Group{Count: 1, CPU: 1, Memory: 4 * gib, CPUUse: flat(0), MemoryUse: workload.Use{Pattern: 1, Step: 60}},
			workload.Group{Count: 1, CPU: 1, Memory: 4 * gib, CPUUse: flat(0), MemoryUse: workload.Use{Pattern: int32(c.second), Step: 60}},
			workload.Group{Count: 1, CPU: 1, Memory: 2 * gib, CPUUse: flat(0), MemoryUse: workload.Use{Pattern: 1, Step: 60}})
		p := &Rightsizing{Label: "together", Foresight: &Persist{}, Together: &Together{}, OnUse: true, Passing: true, EmergencyEviction: true}
		r := run(t, w, []Host{{CPU: 8, Memory: 8 * gib}}, p, Options{})
		if waited := r.PerApp[2].Turnaround > 1200; waited != c.waits || r.Failures+r.Requeues+r.MemoryExceeded > 0 {
			t.Errorf("%s: the third took %.0f s; %d failures, %d requeues, short %d times", c.name, r.PerApp[2].Turnaround, r.Failures, r.Requeues, r.MemoryExceeded)
		}
	}
}
