package admission_test

import (
	"slices"
	"testing"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// A host that nothing can be decided for takes no VM, and a request that only it could take waits.
func TestOutOfReach(t *testing.T) {
	for _, onFull := range []state.OnFull{state.Queue, state.Reject} {
		c := scheduling.NewCluster(t, "h1")
		env := c.Env()
		env.Unavailable = map[string]string{"h1": "has a hypervisor that does not answer"}
		a1 := scheduling.VC("a", 0.5, scheduling.Group(1, 1, scheduling.GiB))
		a1.OnFull = onFull
		a := admission.Create(c.Snapshot(), a1, env)
		if a.Plan != nil != (onFull == state.Queue) || a.Queued != (onFull == state.Queue) {
			t.Errorf("%s: %+v", onFull, a)
		}
		if len(a.Decision.Hosts) != 1 || a.Decision.Hosts[0].Text != env.Unavailable["h1"] || a.Decision.Hosts[0].Cordoned {
			t.Errorf("%s: reasons %+v", onFull, a.Decision.Hosts)
		}
		if slices.Contains(a.Decision.Advice, "uncordon host h1") {
			t.Error("advice to open a host that was not closed")
		}
		// The advice goes on to one that was.
		c.Host("h2", 4, 8*scheduling.GiB, state.Resources{})
		c.Must(state.KindHostCordon, state.HostCordon{Host: "h2", Cordoned: true})
		if a := admission.Create(c.Snapshot(), scheduling.VC("b", 0.5, scheduling.Group(1, 1, scheduling.GiB)), env); !slices.Contains(a.Decision.Advice, "uncordon host h2") {
			t.Errorf("advice %q", a.Decision.Advice)
		}
	}
}
