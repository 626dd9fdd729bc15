package rightsizing_test

import (
	"math"
	"testing"

	"evenkeel/cluster/scheduler/rightsizing"
	"evenkeel/cluster/state"
	"evenkeel/forecast"
	"evenkeel/test/scheduling"
)

// Deviations of CPU count for conservative virtual clusters alone; those of memory for all.
func TestBuffers(t *testing.T) {
	ahead := []forecast.Prediction{{Mean: 1, Variance: 0.01}} // a deviation of 0.1
	for _, c := range []struct {
		aggressiveness string
		cpu, memory    float64
	}{
		{state.Conservative, 1 + 0.2*4 + 4*0.1, 1 + 0.2*4 + 4*0.1},
		{state.Balanced, 1 + 0.05*4, 1 + 0.05*4 + 3*0.1},
		{state.Aggressive, 1 + 0.05*4, 1 + 0.05*4 + 1.64*0.1},
	} {
		if got := rightsizing.CPUBufferFor(c.aggressiveness).Need(4, ahead); math.Abs(got-c.cpu) > 1e-9 {
			t.Errorf("%s: CPU need %v, want %v", c.aggressiveness, got, c.cpu)
		}
		if got := rightsizing.BufferFor(c.aggressiveness).Need(4, ahead); math.Abs(got-c.memory) > 1e-9 {
			t.Errorf("%s: memory need %v, want %v", c.aggressiveness, got, c.memory)
		}
	}
}

// The need of a group whose forecast has deviations is its mean and 5% of what was declared.
func TestCPUNeedHasNoDeviations(t *testing.T) {
	for _, c := range []struct {
		aggressiveness string
		want           float64
	}{
		{state.Balanced, 0.3 + 0.05*2},
		{state.Conservative, 0.3 + 0.2*2 + 4*0.1},
	} {
		w := scheduling.NewRightsized(t, state.RightsizingOn, "h1")
		w.Set(state.RightsizingSettings{Mode: state.RightsizingOn, Aggressiveness: c.aggressiveness})
		w.AddVC("a", state.NeedsEstimated, "core", 1, scheduling.Resources(2, scheduling.GiB), scheduling.Resources(0.3, scheduling.GiB/2))
		w.Odd["a-g0-0"] = func(o *rightsizing.VMObservation) {
			for i := range o.CPU.Deviation {
				o.CPU.Deviation[i] = 0.1
			}
		}
		w.Minutes(45) // a need falls ten minutes after it rose
		if _, g := w.VM("a-g0-0"); math.Abs(g.Need()-c.want) > 0.01 {
			t.Errorf("%s: a need of %v, want %v", c.aggressiveness, g.Need(), c.want)
		}
	}
}
