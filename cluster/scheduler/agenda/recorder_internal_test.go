package agenda

import (
	"slices"
	"testing"

	"evenkeel/cluster/state"
)

// Minutes that were not observed have what the minute before them had, and are marked; a longer run has longer steps, whose highest
// minute counts.
func TestRecorderSkyline(t *testing.T) {
	u := &state.RunUsage{Step: 60}
	add(u, 0, minute{vms: 2, cores: 500, memory: 10})
	add(u, 3, minute{vms: 2, cores: 900, memory: 30, throttled: true})
	add(u, 4, minute{unknown: true})
	if !slices.Equal(u.Cores, []int64{500, 500, 500, 900, 900}) || !slices.Equal(u.Unknown, []int{1, 2, 4}) || !slices.Equal(u.Throttled, []int{3}) {
		t.Errorf("%+v", u)
	}
	coarser(u)
	if u.Step != 120 || !slices.Equal(u.Cores, []int64{500, 900, 900}) || !slices.Equal(u.VMs, []int{2, 2, 2}) || !slices.Equal(u.Unknown, []int{0, 1, 2}) || !slices.Equal(u.Throttled, []int{1}) {
		t.Errorf("%+v", u)
	}
	add(u, 2, minute{vms: 3, cores: 100, memory: 99}) // a second minute of a step
	if u.Cores[2] != 900 || u.VMs[2] != 3 || u.Memory[2] != 99 {
		t.Errorf("%+v", u)
	}
	for len(u.Cores) < state.MaxRunSteps {
		add(u, len(u.Cores), minute{vms: 1})
	}
	coarser(u)
	if len(u.Cores) != state.MaxRunSteps/2 || u.Step != 240 {
		t.Errorf("%d steps of %d s", len(u.Cores), u.Step)
	}
}
