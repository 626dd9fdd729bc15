package leader_test

import (
	"testing"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
)

// A virtual cluster lacks what it is promised if it waits, or if VMs of it are known to run with less.
func TestLacking(t *testing.T) {
	for name, x := range map[string]struct {
		state            state.VCState
		running, unknown int
		yield            float64
		want             bool
	}{
		"queued":                {state.VCQueued, 0, 0, 0, true},
		"below its promise":     {state.VCRunning, 2, 0, 0.4, true},
		"as promised":           {state.VCRunning, 2, 0, 0.5, false},
		"one of two is unknown": {state.VCDegraded, 2, 1, 0.4, true},
		"all are unknown":       {state.VCDegraded, 2, 2, 0.4, false},
		"stopped":               {state.VCStopped, 0, 0, 0, false},
	} {
		vc := leader.VCView{VC: state.VC{MinYield: 0.5}, State: x.state, Count: state.Count{Running: x.running}, Unknown: x.unknown, Yield: x.yield}
		if got := vc.Lacking(); got != x.want {
			t.Errorf("%s: %v, want %v", name, got, x.want)
		}
	}
}
