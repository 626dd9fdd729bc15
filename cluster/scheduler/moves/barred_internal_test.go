package moves

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
	"evenkeel/migration"
)

// Which hosts and VMs differ is what comparing each VM's host with each other one gives.
func TestBarredComparesEachPair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one := func(name string, of ...string) string { return rapid.SampledFrom(of).Draw(t, name) }
		see := Observation{Partners: map[string]hypervisor.Partner{}}
		var hosts []state.Host
		for n := range rapid.IntRange(1, 8).Draw(t, "hosts") {
			h := fmt.Sprintf("h%d", n)
			hosts = append(hosts, state.Host{Name: h})
			if rapid.IntRange(0, 5).Draw(t, "known") == 0 {
				continue
			}
			see.Partners[h] = hypervisor.Partner{KVM: one("kvm", "yes", "yes", "no") == "yes", CPUModel: one("model", "", "a", "b"), Machines: []string{one("machine", "q35", "pc"), "q35"},
				Networks: [][]string{nil, {"lan"}, {"lan", "dmz"}, {}}[rapid.IntRange(0, 3).Draw(t, "networks")]}
		}
		g := fleetGroup{group: state.Group{Network: one("network", "", "lan", "dmz")}}
		for n := range rapid.IntRange(1, 6).Draw(t, "VMs") {
			g.vms = append(g.vms, state.VM{ID: fmt.Sprint(n), Host: rapid.SampledFrom(hosts).Draw(t, "host").Name, Phase: rapid.SampledFrom([]state.Phase{state.Running, state.Stopped}).Draw(t, "phase")})
		}
		f := &Fleet{Problem: migration.Problem{Groups: make([]migration.Group, 1)}, pinned: map[string]pin{}, s: state.New().Snapshot(), hosts: hosts, groups: []fleetGroup{g}}
		got := f.barred(0, see, f.classes(see))

		home, want, pinned := map[string]bool{}, map[string]bool{}, map[string]bool{}
		for _, vm := range g.vms {
			home[vm.Host] = true
		}
		for _, vm := range g.vms {
			for _, h := range hosts {
				if h.Name == vm.Host || !vm.ConsumesResources() || f.unlike(see, vm.Host, h.Name, g.group) == "" {
					continue
				}
				if home[h.Name] {
					pinned[vm.ID] = true
				} else {
					want[h.Name] = true
				}
			}
		}
		if !slices.Equal(got, slices.Sorted(maps.Keys(want))) || !slices.Equal(slices.Sorted(maps.Keys(f.pinned)), slices.Sorted(maps.Keys(pinned))) {
			t.Fatalf("barred %v, pinned %v; want %v, %v", got, f.pinned, want, pinned)
		}
	})
}
