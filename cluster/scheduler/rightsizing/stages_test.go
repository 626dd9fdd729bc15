package rightsizing_test

import (
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/cluster/scheduler/rightsizing"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// With the forecast stage off VMs get what they would get if no forecast of theirs were trusted, minute by minute: no more, no less, and
// for that reason.
func TestForecastSwitchedOff(t *testing.T) {
	const why = "forecasts are switched off (rightsizing.disabledStages)"
	rapid.Check(t, func(t *rapid.T) {
		mode := rapid.SampledFrom([]state.RightsizingMode{state.RightsizingOn, state.RightsizingShadow}).Draw(t, "mode")
		off, untrusted := scheduling.NewRightsized(t, mode, "h1"), scheduling.NewRightsized(t, mode, "h1")
		count, before := rapid.IntRange(1, 3).Draw(t, "count"), rapid.IntRange(0, 6).Draw(t, "before")
		for _, c := range []*scheduling.Rightsized{off, untrusted} {
			c.AddVC("a", state.NeedsEstimated, "elastic", count, scheduling.Resources(1, 2*scheduling.GiB), scheduling.Resources(0.1, scheduling.GiB/4))
			c.Minutes(before)
		}
		distrust := rapid.Bool().Draw(t, "switched off")
		if distrust {
			off.Set(state.RightsizingSettings{Mode: mode, DisabledStages: []string{state.StageForecast}})
			untrusted.Set(state.RightsizingSettings{Mode: mode})
		}
		for range rapid.IntRange(1, 6).Draw(t, "minutes") {
			share := rapid.Float64Range(0, 1).Draw(t, "use")
			for name := range off.Use {
				use := scheduling.Resources(share, int64(share*2*float64(scheduling.GiB)))
				off.Use[name], untrusted.Use[name] = use, use
				if distrust {
					untrusted.Odd[name] = func(see *rightsizing.VMObservation) {
						see.CPU, see.Memory = rightsizing.Ahead{Reason: why}, rightsizing.Ahead{Reason: why}
					}
				}
			}
			if got, want := off.Minute(), untrusted.Minute(); !reflect.DeepEqual(got, want) {
				t.Fatalf("%+v, want %+v", got, want)
			}
		}
	})
	c := scheduling.NewRightsized(t, state.RightsizingOn, "h1")
	c.AddVC("a", state.NeedsEstimated, "core", 1, scheduling.Resources(1, 2*scheduling.GiB), scheduling.Resources(0.1, scheduling.GiB/4))
	c.Minutes(5)
	if low := c.Due("a-g0-0"); low >= 2*scheduling.GiB {
		t.Fatalf("it was not shrunk: %d MiB", low>>20)
	}
	c.Set(state.RightsizingSettings{Mode: state.RightsizingOn, DisabledStages: []string{state.StageForecast}})
	c.Minute()
	if _, g := c.VM("a-g0-0"); c.Due("a-g0-0") != 2*scheduling.GiB || g.Need() != 1 || !strings.Contains(c.Last.VMs[0].Text, why) {
		t.Errorf("%d MiB, %+v: %s", c.Due("a-g0-0")>>20, g, c.Last.VMs[0].Text)
	}
}

// With the reserve off a VM grows into the quarter that its host does not keep any more. With any other stage off it does not.
func TestGrowthIntoTheQuarter(t *testing.T) {
	for _, stage := range append(state.Stages[1:], "") {
		c := scheduling.NewRightsized(t, state.RightsizingOn, "h1")
		c.AddVC("a", state.NeedsEstimated, "core", 8, scheduling.Resources(0.4, 900*scheduling.MiB), scheduling.Resources(0.05, 200*scheduling.MiB))
		c.Minutes(20)
		load := c.Snapshot().LoadOf("h1")
		if load.Reserve.Bytes() <= load.Reserve.Largest() {
			t.Fatalf("the quarter is not more than the largest: %+v", load)
		}
		c.Host("h1", 4, load.Memory+(load.Reserve.Bytes()+load.Reserve.Largest())/2, state.Resources{})
		set := state.RightsizingSettings{Mode: state.RightsizingOn}
		if stage != "" {
			set.DisabledStages = []string{stage}
		}
		c.Set(set)
		was := c.Due("a-g0-0")
		c.Use["a-g0-0"] = scheduling.Resources(0.05, was+10*scheduling.MiB)
		c.Minute()
		if grew := c.Due("a-g0-0") > was; grew != (stage == state.StageReserve) || c.Last.Preempt != nil {
			t.Errorf("%q off: it has %d MiB, had %d: %s", stage, c.Due("a-g0-0")>>20, was>>20, c.Last.VMs[0].Text)
		}
	}
}
