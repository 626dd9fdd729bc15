package agent_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"evenkeel/cluster/agent"
	"evenkeel/hypervisor"
)

func needs(id string, keep, raise int64) agent.Past {
	return agent.Past{Guests: map[string]agent.GuestNeed{id: {MinBalloon: keep, Raise: raise}}}
}

// What the host does for guests that are short of memory.
func TestEmergencyGrant(t *testing.T) {
	full := func(memory int64, vms ...agent.VM) agent.Desired {
		d := host(vms...)
		d.Memory = memory
		return d
	}
	const over = 64 << 20
	for _, c := range []struct {
		name  string
		want  agent.Desired
		there []hypervisor.VM
		past  agent.Past
		ops   []string
	}{
		{"raised without asking, and reported", host(wanted("a", seen, balloon(gib/2), withCharged(gib/2))), []hypervisor.VM{runs("a", has(gib/2))},
			needs("a", 3*gib/4, 3*gib/4), []string{"balloon ek-a: 536870912 -> 805306368 bytes", "report a generation 1 running"}},
		{"no further than the machine goes", full(3*gib/4+over, wanted("a", seen, balloon(gib/2), withCharged(gib/2))), []hypervisor.VM{runs("a", has(gib/2))},
			needs("a", gib, gib), []string{"hold ek-a: it is short of memory, and 268435456 bytes more do not fit", "balloon ek-a: 536870912 -> 805306368 bytes", "report a generation 1 running"}},
		{"not at all where there is nothing", full(gib/2+over, wanted("a", seen, balloon(gib/2), withCharged(gib/2))), []hypervisor.VM{runs("a", has(gib/2))},
			needs("a", gib, gib), []string{"hold ek-a: it is short of memory, and 536870912 bytes more do not fit"}},
		{"two share what there is", full(gib+gib/2+2*over, wanted("a", seen, balloon(gib/2), withCharged(gib/2)), wanted("b", seen, balloon(gib/2), withCharged(gib/2))),
			[]hypervisor.VM{runs("a", has(gib/2)), runs("b", has(gib/2))},
			agent.Past{Guests: map[string]agent.GuestNeed{"a": {Raise: gib}, "b": {Raise: gib}}},
			[]string{"hold ek-a: it is short of memory, and 268435456 bytes more do not fit", "balloon ek-a: 536870912 -> 805306368 bytes",
				"hold ek-b: it is short of memory, and 268435456 bytes more do not fit", "balloon ek-b: 536870912 -> 805306368 bytes",
				"report a generation 1 running", "report b generation 1 running"}},
		{"before others grow", full(gib+gib/2+2*over, wanted("a", seen, withCharged(gib)), wanted("b", seen, balloon(gib/2), withCharged(gib/2))),
			[]hypervisor.VM{runs("a", has(gib/2)), runs("b", has(gib/2))}, needs("b", gib, gib),
			[]string{"balloon ek-b: 536870912 -> 1073741824 bytes", "hold ek-a: 536870912 bytes of memory more do not fit yet", "report b generation 1 running"}},
		{"and before others start", full(gib+gib/2+2*over, wanted("a"), wanted("b", seen, balloon(gib/2), withCharged(gib/2))),
			[]hypervisor.VM{runs("b", has(gib/2))}, needs("b", gib, gib),
			[]string{"balloon ek-b: 536870912 -> 1073741824 bytes", "report b generation 1 running", "hold ek-a: 1140850688 bytes of memory do not fit yet"}},
		{"the leader gives more than that", host(wanted("a", seen)), []hypervisor.VM{runs("a", has(gib/2))}, needs("a", 3*gib/4, 3*gib/4),
			[]string{"balloon ek-a: 536870912 -> 1073741824 bytes"}},
		{"it stays above the leader's target", host(wanted("a", seen, balloon(gib/2), withCharged(3*gib/4))), []hypervisor.VM{runs("a", has(3*gib/4))}, needs("a", 3*gib/4, 0), nil},
		{"it comes, and is not asked for again", host(wanted("a", seen, balloon(gib/2), withCharged(3*gib/4))), []hypervisor.VM{runs("a", has(gib/2))},
			agent.Past{Balloon: map[string]int64{"a": 3 * gib / 4}, Guests: map[string]agent.GuestNeed{"a": {MinBalloon: 3 * gib / 4, Raise: 3 * gib / 4}}}, nil},
		{"shrunk as far as it can bear", host(wanted("a", seen, balloon(gib/4))), []hypervisor.VM{runs("a")}, needs("a", gib/2, 0), []string{"balloon ek-a: 1073741824 -> 536870912 bytes"}},
		{"what it keeps is never more than it has", host(wanted("a", seen, balloon(gib/4), withCharged(gib/2))), []hypervisor.VM{runs("a", has(gib/2))}, needs("a", gib, 0), nil},
		{"not while it moves", host(wanted("a", seen, balloon(gib/2), withCharged(gib/2), func(vm *agent.VM) { vm.Move = &agent.Move{To: "h2", Open: 3} })),
			[]hypervisor.VM{runs("a", has(gib/2))}, agent.Past{Moving: map[string]bool{"a": true}, Guests: map[string]agent.GuestNeed{"a": {Raise: gib}}}, nil},
		{"nor of one that is to stop", host(wanted("a", seen, stop, balloon(gib/2))), []hypervisor.VM{runs("a", has(gib/2))},
			agent.Past{Asked: map[string]bool{"a": true}, Guests: map[string]agent.GuestNeed{"a": {Raise: gib}}}, nil},
		{"nor of another generation", host(wanted("a", seen, generation(2), balloon(gib/2))), []hypervisor.VM{runs("a", has(gib/2))}, needs("a", gib, gib),
			[]string{"hold ek-a: generation 1 runs, 2 is wanted"}},
	} {
		if diff := cmp.Diff(c.ops, texts(agent.Decide(c.want, c.there, c.past)), cmp.Transformer("", func(s []string) []string { return slices.Clip(append([]string{}, s...)) })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// Where hosts make no emergency grants, a guest under memory pressure gets nothing beyond the leader's target. All else stays as it is, its
// protection included: its balloon is not shrunk for others.
func TestEmergencyGrantsSwitchedOff(t *testing.T) {
	want, there := host(wanted("a", seen, balloon(gib/2), withCharged(gib/2))), []hypervisor.VM{runs("a", has(gib/2))}
	for _, off := range []bool{false, true} {
		want.NoEmergencyGrants = off
		ops := texts(agent.Decide(want, there, needs("a", 3*gib/4, 3*gib/4)))
		if raised := slices.Contains(ops, "balloon ek-a: 536870912 -> 805306368 bytes"); raised == off {
			t.Errorf("switched off: %v; %q", off, ops)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		want, there, past := drawHost(t)
		none := past
		none.Guests = maps.Clone(past.Guests)
		for _, vm := range there {
			if need, in := none.Guests[vm.Identity.VM]; in {
				need.Raise = min(need.Raise, vm.Balloon) // it is under pressure, and has that much
				none.Guests[vm.Identity.VM] = need
			}
		}
		expected := texts(agent.Decide(want, there, none))
		want.NoEmergencyGrants = true
		if got := texts(agent.Decide(want, there, past)); !slices.Equal(got, expected) {
			t.Fatalf("%q, want %q", got, expected)
		}
	})
}

// withoutMemory are the operations but those that set balloons, report memory, or depend on what room there is.
func withoutMemory(ops []agent.Operation) (out []string) {
	for _, op := range ops {
		switch op := op.(type) {
		case agent.SetBalloon, agent.Blocked, agent.Start:
		case agent.ReportStatus:
			if op.Status.Phase != agent.PhaseRunning { // of a start, or of memory
				out = append(out, op.String())
			}
		default:
			out = append(out, op.String())
		}
	}
	return out
}

// Looking after guests changes balloons alone: whatever else is to be done is done the same way, but for what finds less room.
func TestEmergencyGrantLeavesOthersUnchanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want, there, past := drawHost(t)
		byID := map[string]agent.VM{}
		for i := range want.VMs {
			vm := &want.VMs[i]
			if rapid.IntRange(0, 3).Draw(t, "moves") == 0 {
				vm.Move = &agent.Move{To: "h2", Open: 1 + uint64(i), Incoming: rapid.Bool().Draw(t, "incoming"), Wait: rapid.Bool().Draw(t, "wait"), Abort: rapid.SampledFrom([]string{"", "no"}).Draw(t, "abort")}
			}
			byID[vm.Spec.Identity.VM] = *vm
		}
		with := agent.Decide(want, slices.Clone(there), past)
		plain := past
		plain.Guests = nil
		without := agent.Decide(want, slices.Clone(there), plain)

		if diff := cmp.Diff(withoutMemory(without), withoutMemory(with)); diff != "" {
			t.Fatalf("something else is done (-without +with guests):\n%s", diff)
		}
		// What was set in an earlier round shrinks as well, until the guest has given the memory.
		shrunk, started := maps.Clone(past.Balloon), map[string]bool{}
		for _, op := range without {
			switch op := op.(type) {
			case agent.SetBalloon:
				if op.To < op.From {
					shrunk[op.VM] = op.To
				}
			case agent.Start:
				started[op.Spec.Identity.VM] = true
			}
		}
		for _, op := range with {
			switch op := op.(type) {
			case agent.Start:
				if !started[op.Spec.Identity.VM] {
					t.Fatalf("%s, but not without guests:\n%v", op, without)
				}
			case agent.SetBalloon:
				vm := byID[op.VM]
				to, is := shrunk[op.VM]
				switch {
				case vm.Move != nil:
					t.Fatalf("%s while it moves", op)
				case op.Why != "": // see TestCuts
				case op.To < op.From && (!is || op.To < to):
					t.Fatalf("%s: without guests it is %v", op, shrunk)
				case op.To < op.From && op.To < vm.Spec.Balloon:
					t.Fatalf("%s, below what the leader says: %d", op, vm.Spec.Balloon)
				case op.To > vm.Spec.Memory:
					t.Fatalf("%s, more than there is of it", op)
				}
			}
		}
	})
}
