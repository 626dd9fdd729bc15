package agent_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"evenkeel/cluster/agent"
	"evenkeel/hypervisor"
)

func minUnused(bytes int64) func(*agent.VM) { return func(vm *agent.VM) { vm.MinMemory = bytes } }

// What the host takes back by itself, where guests take more than there is.
func TestCut(t *testing.T) {
	const why = ": guests of this host need more than there is, and it makes no use of that"
	room := func(memory int64, vms ...agent.VM) agent.Desired {
		d := host(vms...)
		d.Memory = memory + int64(len(vms))*d.Overhead
		return d
	}
	half := func(id string, change ...func(*agent.VM)) agent.VM {
		return wanted(id, append([]func(*agent.VM){seen, balloon(gib / 2), withCharged(gib / 2), minUnused(gib / 4)}, change...)...)
	}
	took := half("a", withCharged(gib)) // it took all of its memory back by itself, and the leader knows
	spares := func(bytes ...int64) agent.Past {
		p := agent.Past{Guests: map[string]agent.GuestNeed{"a": {MinBalloon: gib}}, Balloon: map[string]int64{}} // a holds what it took
		for i, b := range bytes {
			p.Guests[string(rune('b'+i))] = agent.GuestNeed{MinBalloon: min(b, gib/2), Enough: b}
		}
		return p
	}
	granted := func(keep, enough int64) agent.Past {
		return agent.Past{Guests: map[string]agent.GuestNeed{"b": {MinBalloon: keep, Enough: enough}}}
	}
	for _, c := range []struct {
		name  string
		want  agent.Desired
		there []hypervisor.VM
		past  agent.Past
		ops   []string
	}{
		{"there is room for it", room(2*gib, took, half("b"), half("c")), []hypervisor.VM{runs("a"), runs("b", has(gib/2)), runs("c", has(gib/2))}, spares(300*mib, 300*mib), nil},
		{"from each in proportion to what it has to spare", room(2*gib-150*mib, took, half("b"), half("c")), []hypervisor.VM{runs("a"), runs("b", has(gib/2)), runs("c", has(gib/2))},
			spares(312*mib, 412*mib), []string{"balloon ek-b: 536870912 -> 432013312 bytes" + why, "balloon ek-c: 536870912 -> 484442112 bytes" + why}},
		{"all that they have to spare, if it is not enough", room(gib, took, half("b"), half("c")), []hypervisor.VM{runs("a"), runs("b", has(gib/2)), runs("c", has(gib/2))},
			spares(500*mib, 510*mib), []string{"balloon ek-b: 536870912 -> 524288000 bytes" + why, "balloon ek-c: 536870912 -> 534773760 bytes" + why}},
		{"never more than they may count on", room(gib, took, half("b"), half("c", minUnused(0))), []hypervisor.VM{runs("a"), runs("b", has(gib/2)), runs("c", has(gib/2))},
			spares(mib, mib), []string{"balloon ek-b: 536870912 -> 268435456 bytes" + why}},
		{"nor of who has what was declared", room(gib, took, half("b", balloon(gib), withCharged(gib))), []hypervisor.VM{runs("a"), runs("b")}, spares(mib), nil},
		{"nor of one of which it is not known", room(gib, took, half("b")), []hypervisor.VM{runs("a"), runs("b", has(gib/2))}, spares(0), nil},
		{"once", room(2*gib-150*mib, took, half("b"), half("c")), []hypervisor.VM{runs("a"), runs("b", has(gib/2)), runs("c", has(gib/2))},
			func() agent.Past {
				p := spares(0, 300*mib)
				p.Balloon["b"] = 350 * mib
				return p
			}(), nil},
		{"and given back once there is room", room(2*gib, half("a"), half("b")), []hypervisor.VM{runs("a", has(gib/2)), runs("b", has(gib/4))}, spares(gib / 4),
			[]string{"balloon ek-b: 268435456 -> 536870912 bytes"}},
		{"which there is not yet", room(gib, half("a", balloon(3*gib/4), withCharged(3*gib/4)), half("b")), []hypervisor.VM{runs("a", has(3*gib/4)), runs("b", has(gib/4))}, spares(gib / 4),
			[]string{"hold ek-b: 268435456 bytes of memory more do not fit yet"}},
		{"what the host gave goes first, also for who is short of memory", room(gib+gib/4, half("a"), half("b", withCharged(3*gib/4))), []hypervisor.VM{runs("a", has(gib/2)), runs("b", has(3*gib/4))},
			func() agent.Past {
				p := granted(3*gib/4, gib/4)
				p.Guests["a"] = agent.GuestNeed{Raise: 3 * gib / 4}
				return p
			}(), []string{"balloon ek-b: 805306368 -> 536870912 bytes" + why, "hold ek-a: it is short of memory, and 268435456 bytes more do not fit"}},
		{"and stays where no VM is short", room(gib+gib/4, half("a"), half("b", withCharged(3*gib/4))), []hypervisor.VM{runs("a", has(gib/2)), runs("b", has(3*gib/4))}, granted(3*gib/4, gib/4), nil},
		{"what is below the leader's word stays for who is short only", room(gib, half("a"), half("b")), []hypervisor.VM{runs("a", has(gib/2)), runs("b", has(gib/2))},
			func() agent.Past {
				p := granted(gib/4, gib/4)
				p.Guests["a"] = agent.GuestNeed{Raise: 3 * gib / 4}
				return p
			}(), []string{"hold ek-a: it is short of memory, and 268435456 bytes more do not fit"}},
	} {
		if diff := cmp.Diff(c.ops, texts(agent.Decide(c.want, c.there, c.past)), cmp.Transformer("", func(s []string) []string { return slices.Clip(append([]string{}, s...)) })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// mayCut: a balloon that its host shrinks by itself is of a VM that runs and does not move, and whose guest has enough with that.
// Below the leader's target it goes only where that may be and the host has too little.
func mayCut(t *rapid.T, b agent.SetBalloon, vm agent.VM, need agent.GuestNeed, charged, memory int64) {
	switch {
	case b.To >= b.From || vm.Move != nil || vm.Want != agent.WantRun:
		t.Fatalf("%s of %+v", b, vm)
	case need.Enough == 0 || b.To < need.Enough || need.Raise > 0:
		t.Fatalf("%s, with %+v", b, need)
	case b.To < vm.Spec.Balloon && (vm.MinMemory == 0 || b.To < vm.MinMemory || charged <= memory || vm.Spec.Balloon >= vm.Spec.Memory):
		t.Fatalf("%s: the leader says %d, at least %d; %d of %d are in use", b, vm.Spec.Balloon, vm.MinMemory, charged, memory)
	}
}

// However many guests took memory back: what the host takes from others they do not use, it is no more than what is too much or what others
// lack, and where they have enough of that, all fits once they have given it.
func TestCuts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want, there, past := drawHost(t)
		for i := range want.VMs {
			if rapid.IntRange(0, 3).Draw(t, "moves") == 0 {
				want.VMs[i].Move = &agent.Move{To: "h2", Open: 1 + uint64(i)}
			}
		}
		by := map[string]agent.VM{}
		for _, vm := range want.VMs {
			by[vm.Spec.Identity.VM] = vm
		}
		now := map[string]hypervisor.VM{}
		charged, deficit := int64(0), int64(0)
		for _, vm := range there {
			id := vm.Identity.VM
			if _, wanted := by[id]; vm.Foreign || vm.Cluster != want.Cluster || !wanted {
				charged += vm.Memory + want.Overhead // which no agent may shrink
				continue
			}
			now[id] = vm
			charged += max(vm.Balloon, past.Balloon[id]) + want.Overhead
			deficit += max(0, min(vm.Memory, max(past.Guests[id].Raise, by[id].Spec.Balloon))-vm.Balloon)
		}
		cut, left := int64(0), int64(0)
		for _, op := range agent.Decide(want, slices.Clone(there), past) {
			b, is := op.(agent.SetBalloon)
			if !is || b.Why == "" {
				continue
			}
			vm, need := by[b.VM], past.Guests[b.VM]
			if vm.Spec.Generation != now[b.VM].Generation {
				t.Fatalf("%s of %+v", b, vm)
			}
			mayCut(t, b, vm, need, charged, want.Memory)
			cut += min(now[b.VM].Balloon, max(vm.Spec.Balloon, need.MinBalloon)) - b.To
			left++
		}
		if limit := max(0, charged-want.Memory+deficit) + left*2*mib; cut > limit {
			t.Fatalf("%d bytes are cut, %d are too much or lacked", cut, limit)
		}
	})
}
