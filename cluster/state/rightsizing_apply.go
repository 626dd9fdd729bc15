package state

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"evenkeel/cluster/capacity"
)

// rightsize sets needs and targets. Memory that a target gives back stays charged until the host reports that it is free
// (VM.ChargedMemory).
func (w *writer) rightsize(b *Rightsize) error {
	if b.Basis >= w.index {
		return fmt.Errorf("rightsized on index %d, which is not before %d: %w", b.Basis, w.index, ErrConflict)
	}
	meta, _ := w.read().Meta()
	if meta.RecoveryFreeze.On() {
		return fmt.Errorf("held after a %s, until these hosts are heard of: %v: %w", meta.RecoveryFreeze.Reason, meta.RecoveryFreeze.Pending, ErrConflict)
	}
	set := meta.Settings.Rightsizing.WithDefaults()
	before := map[string]capacity.Load{}
	for _, t := range b.Targets {
		vm, ok := w.read().VM(t.VM)
		if _, known := before[vm.Host]; ok && !known {
			before[vm.Host] = w.read().LoadOf(vm.Host)
		}
	}
	affected := map[string]bool{}
	for _, n := range b.Needs {
		if err := w.need(n, b.Basis, set, affected); err != nil {
			return err
		}
	}
	for _, t := range b.Targets {
		if err := w.target(t, b.Basis, set); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if err := w.checkLimits(name, before[name]); err != nil {
			return err
		}
		affected[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(affected)) {
		w.touch(name)
	}
	if b.Text != "" {
		w.event("rightsized", "cluster", meta.ID, "%s", b.Text)
	}
	return nil
}

// rightsizes says why a VC must not be given less than was declared; "" = it may be.
func rightsizes(vc *VC, set RightsizingSettings, basis uint64) string {
	switch {
	case vc.ModifyIndex > basis:
		return fmt.Sprintf("changed at index %d, rightsized on %d", vc.ModifyIndex, basis)
	case set.Mode != RightsizingOn:
		return "rightsizing is " + string(set.Mode)
	case !set.Estimates(vc):
		return "its needs are declared"
	}
	return ""
}

func (w *writer) need(n GroupNeed, basis uint64, set RightsizingSettings, affected map[string]bool) error {
	vc, ok := w.read().VC(n.VC)
	at := slices.IndexFunc(vc.Groups, func(g Group) bool { return g.Name == n.Group })
	if !ok || at < 0 {
		return fmt.Errorf("need of virtual cluster %s, group %s: gone: %w", n.VC, n.Group, ErrConflict)
	}
	if why := rightsizes(&vc, set, basis); why != "" && n.CPU > 0 {
		return fmt.Errorf("need of virtual cluster %s: %s: %w", vc.Name, why, ErrConflict)
	}
	if n.CPU > vc.Groups[at].CPU {
		return fmt.Errorf("need of virtual cluster %s, group %s: %v cores, declared were %v: %w", vc.Name, n.Group, n.CPU, vc.Groups[at].CPU, ErrConflict)
	}
	vc.Groups = slices.Clone(vc.Groups)
	vc.Groups[at].Estimated = n.CPU
	w.put(tVCs, &vc)
	for _, vm := range w.read().VMsOf(vc.ID) {
		if vm.Group == n.Group && vm.ConsumesResources() {
			affected[vm.Host] = true
			if vm.MovingTo != "" {
				affected[vm.MovingTo] = true
			}
		}
	}
	return nil
}

func (w *writer) target(t VMTarget, basis uint64, set RightsizingSettings) error {
	vm, ok := w.read().VM(t.VM)
	vc, there := w.read().VC(vm.VC)
	g, known := vc.GroupOf(vm)
	switch {
	case !ok || !there || !known || vm.Generation != t.Generation:
		return fmt.Errorf("target of VM %s: generation %d is gone: %w", t.VM, t.Generation, ErrConflict)
	case vm.Goal != GoalRun || vm.Phase != Running || vm.MovingTo != "":
		return fmt.Errorf("target of VM %s: it is %s, to %s, and on its way to %q: %w", vm.Name, vm.Phase, vm.Goal, vm.MovingTo, ErrConflict)
	case t.Memory != 0 && (t.Memory < g.MemoryMin || t.Memory > g.Memory):
		return fmt.Errorf("target of VM %s: %d bytes, not from %d to %d: %w", vm.Name, t.Memory, g.MemoryMin, g.Memory, ErrConflict)
	}
	old := vm
	vm.Target = t.Memory
	if vm.Target == g.Memory {
		vm.Target = 0
	}
	// For these reasons a lower target is refused, never a higher one: memory that was taken from a VM may be given back.
	if why := rightsizes(&vc, set, basis); why != "" && vm.Due(g) < old.Due(g) {
		return fmt.Errorf("target of VM %s: %s: %w", vm.Name, why, ErrConflict)
	}
	vm.ChargedMemory = max(vm.ChargedMemory, vm.Due(g))
	if vm == old {
		return nil
	}
	vm.ModifyIndex = w.index
	w.put(tVMs, &vm)
	return nil
}

func (b *Rightsize) valid() error {
	for _, n := range b.Needs {
		if err := check("need", n.Group, "virtual cluster", n.VC, "group", n.Group); err != nil {
			return err
		}
		if !(n.CPU >= 0) || math.IsInf(n.CPU, 0) {
			return fmt.Errorf("need of virtual cluster %q, group %q: %v cores: %w", n.VC, n.Group, n.CPU, ErrInvalid)
		}
	}
	for _, t := range b.Targets {
		if err := check("target", t.VM, "VM", t.VM); err != nil {
			return err
		}
		if !isMemory(t.Memory) {
			return fmt.Errorf("target of VM %q: %d bytes: %w", t.VM, t.Memory, ErrInvalid)
		}
	}
	return nil
}

func (x RightsizingSettings) valid() error {
	switch {
	case x.Mode != "" && x.Mode != RightsizingOff && x.Mode != RightsizingShadow && x.Mode != RightsizingOn:
		return fmt.Errorf("settings: rightsizing: mode %q: %w", x.Mode, ErrInvalid)
	case x.Needs != "" && x.Needs != NeedsDeclared && x.Needs != NeedsEstimated:
		return fmt.Errorf("settings: rightsizing: needs %q: %w", x.Needs, ErrInvalid)
	case x.Aggressiveness != "" && !knownAggressiveness(x.Aggressiveness):
		return fmt.Errorf("settings: rightsizing: aggressiveness %q: %w", x.Aggressiveness, ErrInvalid)
	}
	for _, stage := range x.DisabledStages {
		if !slices.Contains(Stages[:], stage) {
			return fmt.Errorf("settings: rightsizing: stage %q is none of %s: %w", stage, strings.Join(Stages[:], ", "), ErrInvalid)
		}
	}
	return nil
}

func knownAggressiveness(text string) bool {
	return text == Conservative || text == Balanced || text == Aggressive
}
