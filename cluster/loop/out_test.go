package loop_test

import (
	"slices"
	"testing"

	"evenkeel/cluster/loop"
	"evenkeel/cluster/state"
)

// A host that nothing can be decided for takes no VM, and a request that only it could take waits.
func TestOutOfReach(t *testing.T) {
	for _, onFull := range []state.OnFull{state.Queue, state.Reject} {
		c := newCluster(t, "h1")
		env := c.env()
		env.Unavailable = map[string]string{"h1": "has a hypervisor that does not answer"}
		a1 := vc("a", 0.5, group(1, 1, gib))
		a1.OnFull = onFull
		a := loop.Create(c.Snapshot(), a1, env)
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
		c.host("h2", 4, 8*gib, state.Resources{})
		c.must(state.KindHostCordon, state.HostCordon{Host: "h2", Cordoned: true})
		if a := loop.Create(c.Snapshot(), vc("b", 0.5, group(1, 1, gib)), env); !slices.Contains(a.Decision.Advice, "uncordon host h2") {
			t.Errorf("advice %q", a.Decision.Advice)
		}
	}
}
