package scheduling

import (
	"slices"
	"strings"

	"evenkeel/cluster/state"
)

// keepsRules checks, from the definition of affinity alone, the VMs that have a place now and had none before.
func keepsRules(t TB, what string, before, after *state.Snapshot) {
	t.Helper()
	group := func(vm state.VM) (string, state.Group) {
		x, _ := after.VC(vm.VC)
		g, _ := x.GroupOf(vm)
		return x.Name, g
	}
	is := func(vm state.VM, term string) bool {
		name, g := group(vm)
		if k, v, ok := strings.Cut(term, "="); ok {
			got, has := g.Labels[k]
			return has && got == v
		}
		return term == "vc:"+name
	}
	there := func(vm state.VM) bool { return vm.ConsumesResources() && vm.Goal == state.GoalRun }
	isNew := func(vm state.VM) bool {
		old, known := before.VM(vm.ID)
		return !known || !there(old)
	}
	for _, vm := range after.VMs() {
		if !there(vm) {
			continue
		}
		_, g := group(vm)
		var others []state.VM
		for _, o := range after.VMsOn(vm.Host) {
			if o.ID != vm.ID && there(o) {
				others = append(others, o)
			}
		}
		for _, o := range others {
			together := o.VC == vm.VC && o.Group == vm.Group && g.Affinity.Spread == "host"
			if (isNew(vm) || isNew(o)) && (together || slices.ContainsFunc(g.Affinity.Avoid, func(term string) bool { return is(o, term) })) {
				t.Fatalf("%s: %s (%+v) and %s are both on %s", what, vm.Name, g.Affinity, o.Name, vm.Host)
			}
		}
		if !isNew(vm) {
			continue
		}
		if slices.Contains(g.Affinity.Avoid, "host:"+vm.Host) {
			t.Fatalf("%s: %s is on %s, which it avoids", what, vm.Name, vm.Host)
		}
		named, found := false, false
		for _, term := range g.Affinity.Require {
			if strings.HasPrefix(term, "host:") {
				named, found = true, found || term == "host:"+vm.Host
			} else if !slices.ContainsFunc(others, func(o state.VM) bool { return is(o, term) }) {
				t.Fatalf("%s: %s requires %s, and has none on %s", what, vm.Name, term, vm.Host)
			}
		}
		if named && !found {
			t.Fatalf("%s: %s is on %s, not on one of %v", what, vm.Name, vm.Host, g.Affinity.Require)
		}
	}
}
