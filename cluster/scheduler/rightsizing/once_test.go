package rightsizing_test

import (
	"fmt"
	"math"
	"testing"

	"evenkeel/cluster/scheduler/rightsizing"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// Of their deviations VMs are given what these are more than the reserve of their host; conservative VCs keep both.
func TestDeviationsAndReserveAreKeptOnce(t *testing.T) {
	const gib = float64(scheduling.GiB)
	for _, c := range []struct {
		name           string
		aggressiveness string
		vms            int
		declared, uses float64 // GiB
		deviation      float64 // GiB
		want           float64 // GiB
	}{
		{"one VM: what it lacks is the reserve", state.Balanced, 1, 4, 1, 0.3, 1.2},
		{"the reserve is more", state.Balanced, 3, 2, 0.5, 0.1, 0.6},
		{"deviations are more", state.Balanced, 6, 1, 0.5, 0.4 / 3, 0.6 + 0.35*(6*0.35-6*0.4/4)/(0.75*6*0.35)},
		{"both", state.Conservative, 3, 2, 0.5, 0.1, 0.5 + 0.2*2 + 4*0.1},
	} {
		w := scheduling.NewRightsized(t, state.RightsizingOn, "h1")
		w.Set(state.RightsizingSettings{Mode: state.RightsizingOn, Aggressiveness: c.aggressiveness})
		w.AddVC("a", state.NeedsEstimated, "core", c.vms, scheduling.Resources(0.5, int64(c.declared*gib)), scheduling.Resources(0.1, int64(c.uses*gib)))
		for i := range c.vms {
			w.Odd[fmt.Sprintf("a-g0-%d", i)] = func(o *rightsizing.VMObservation) {
				for i := range o.Memory.Deviation {
					o.Memory.Deviation[i] = c.deviation * gib
				}
			}
		}
		w.Minutes(45) // a target falls by a tenth a minute, and ten minutes after it rose
		for i := range c.vms {
			if got := float64(w.Due(fmt.Sprintf("a-g0-%d", i))) / gib; math.Abs(got-c.want) > 0.03*c.declared {
				t.Errorf("%s: VM %d has %.3f GiB, want %.3f", c.name, i, got, c.want)
			}
		}
	}
}

// What a VM is given of its deviation comes and goes; only a need of its own that rose does not fall for ten minutes.
func TestDeviationsDoNotRest(t *testing.T) {
	const gib = float64(scheduling.GiB)
	w := scheduling.NewRightsized(t, state.RightsizingOn, "h1")
	w.AddVC("a", state.NeedsEstimated, "core", 6, scheduling.Resources(0.5, scheduling.GiB), scheduling.Resources(0.1, scheduling.GiB/2))
	deviation := 0.0
	for i := range 6 {
		w.Odd[fmt.Sprintf("a-g0-%d", i)] = func(o *rightsizing.VMObservation) {
			for i := range o.Memory.Deviation {
				o.Memory.Deviation[i] = deviation
			}
		}
	}
	w.Minutes(45)
	low := w.Due("a-g0-0")
	deviation = 0.4 / 3 * gib
	w.Minute()
	high := w.Due("a-g0-0")
	deviation = 0
	w.Minutes(4)
	if got := w.Due("a-g0-0"); high <= low+scheduling.GiB/5 || got > high-scheduling.GiB/5 {
		t.Errorf("%d MiB, with a deviation %d, four minutes later %d", low>>20, high>>20, got>>20)
	}
}
