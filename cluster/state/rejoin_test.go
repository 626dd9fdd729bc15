package state_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/state"
)

// A host that lost its disk takes its name again while its VMs run, in the run of the machine for which its agent last renewed,
// and in no other. What the agent before it reported of its lease proves nothing from then on.
func TestNameIsTakenAgainInTheSameRun(t *testing.T) {
	was := state.Machine{ID: "m1", Boot: "b1"}
	for _, c := range []struct {
		name string
		on   state.Machine
		says string // "" = it is let in
	}{
		{"the same run", was, ""},
		{"not said", state.Machine{}, "not known"},
		{"another run", state.Machine{ID: "m1", Boot: "b2"}, "was started again"},
		{"another machine", state.Machine{ID: "m2", Boot: "b2"}, "another machine"},
		{"another machine of that boot id", state.Machine{ID: "m2", Boot: "b1"}, "another machine"},
		{"no boot id", state.Machine{ID: "m1"}, "was started again"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := small(t, 2)
			restartable(t, k, "r", "h1")
			k.must(t, state.KindMemberPut, state.Member{Name: "h1", Agent: true, Address: "10.0.0.1:7480", Format: state.FormatVersion})
			k.must(t, state.KindTokenPut, state.JoinToken{ID: "t", Hash: "f00d", Agent: true, For: "h1", Until: start.Add(time.Hour)})
			guard(t, k, "h1")
			h, _ := k.Snapshot().Host("h1")
			k.must(t, state.KindFencing, state.HostFencing{Host: "h1", Fencing: h.Fencing, Machine: was})
			guard(t, k, "h1") // a server that does not say it changes nothing
			again := state.Join{Token: "t", Hash: "f00d", Member: state.Member{Name: "h1", Agent: true, Address: "10.0.0.9:7480", Format: state.FormatVersion}, Machine: c.on}
			err := k.apply(t, state.KindJoin, again)
			lost := k.apply(t, state.KindHostLost, state.HostLost{Host: "h1", Proof: state.ProofLease, Text: "silent"})
			if c.says != "" {
				if !errors.Is(err, state.ErrConflict) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "vcctl host confirm-dead h1") {
					t.Errorf("%v; it must say %q", err, c.says)
				}
				if lost != nil {
					t.Errorf("it was refused, and changed what is proved: %v", lost)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !errors.Is(lost, state.ErrConflict) {
				t.Errorf("the lease of the agent before proves that its VMs are gone: %v", lost)
			}
			phase(t, k, "vm-r-0", state.Running)
		})
	}
}

// What an operator confirmed dead is another run when it comes back.
func TestConfirmedDeadHostIsNoRunOfItsMachine(t *testing.T) {
	k := small(t, 2)
	on := state.Machine{ID: "m1", Boot: "b1"}
	k.must(t, state.KindFencing, state.HostFencing{Host: "h1", Machine: on})
	if h, _ := k.Snapshot().Host("h1"); !h.RunsOn(on) {
		t.Fatalf("%+v", h)
	}
	k.must(t, state.KindHostLost, state.HostLost{Host: "h1", Proof: state.ProofOperator, Text: "it is off"})
	if h, _ := k.Snapshot().Host("h1"); h.RunsOn(on) || h.RunsOn(state.Machine{}) {
		t.Errorf("%+v", h)
	}
}
