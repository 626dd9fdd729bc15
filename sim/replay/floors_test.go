package replay

import (
	"testing"

	"pgregory.net/rapid"

	"evenkeel/allocator/rightsizing"
	"evenkeel/sim/workload"
)

// pinnedAbove checks that every component has at least its floor of memory.
type pinnedAbove struct {
	*Rightsizing
	t *rapid.T
}

func (p pinnedAbove) Schedule(c *Cluster) {
	p.Rightsizing.Schedule(c)
	for s, app := range c.App {
		if app >= 0 && c.Memory[s] < p.floor(c, int32(s))*(1-1e-9) {
			p.t.Fatalf("at %v a component of group %d has %v bytes, and is never to have less than %v", c.Now, c.Group[s], c.Memory[s], p.Floors[c.Group[s]])
		}
	}
}

func TestFloorsAreKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, hosts := drawn(t)
		p := &Rightsizing{Foresight: &Persist{}, Yield: rapid.SampledFrom([]float64{0.5, 1}).Draw(t, "yield"), Trust: 1, EmergencyEviction: true,
			Options: rightsizing.Options{Policy: rapid.SampledFrom([]rightsizing.Policy{rightsizing.Pessimistic, rightsizing.Optimistic}).Draw(t, "policy")}}
		for _, g := range w.Groups {
			p.Floors = append(p.Floors, g.Memory*rapid.Float64Range(0, 1).Draw(t, "floor"))
		}
		if _, err := Run(w, hosts, pinnedAbove{p, t}, Options{Until: 20000}); err != nil {
			t.Skip(err)
		}
	})
}

// Half of what is used is taken back, and no more where more must stay.
func TestFloorByHand(t *testing.T) {
	w := small([]workload.Pattern{{0.25}}, []workload.App{{Work: 1000, Groups: 1}},
		workload.Group{Count: 1, CPU: 1, Memory: 4 * gib, CPUUse: flat(0), MemoryUse: flat(0)})
	for floor, want := range map[float64]float64{0: 0, 2 * gib: 0.25, 9 * gib: 0.75} {
		p := &Rightsizing{Foresight: &Oracle{}, Floors: []float64{floor}}
		r := run(t, w, []Host{{CPU: 4, Memory: 8 * gib}}, p, Options{})
		if got := r.SlackMemory; got < want*0.9 || got > want+0.1 {
			t.Errorf("with a floor of %v GiB %v of the memory is idle, not %v", floor/gib, got, want)
		}
	}
}
