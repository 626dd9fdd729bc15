package state

import (
	"fmt"
	"slices"

	"evenkeel/cluster/capacity"
)

// plan applies a Plan whole, or leaves the transaction to be aborted.
func (w *writer) plan(p *Plan) error {
	if p.Basis >= w.index {
		return fmt.Errorf("planned on index %d, which is not before %d: %w", p.Basis, w.index, ErrConflict)
	}
	meta, _ := w.read().Meta()
	if meta.RecoveryFreeze.On() && len(p.VMs) > 0 {
		return fmt.Errorf("held after a %s, until these hosts are heard of: %v: %w", meta.RecoveryFreeze.Reason, meta.RecoveryFreeze.Pending, ErrConflict)
	}
	for _, name := range p.AffectedHosts {
		h, ok := w.read().Host(name)
		if !ok {
			return fmt.Errorf("host %s is gone: %w", name, ErrConflict)
		}
		if h.Version > p.Basis {
			return fmt.Errorf("host %s changed at index %d, planned on %d: %w", name, h.Version, p.Basis, ErrConflict)
		}
	}
	hosts := w.affected(p)
	before := make([]capacity.Load, len(hosts))
	for i, name := range hosts {
		before[i] = w.ledgerOf(name).Load
	}
	if p.VC != nil {
		if err := w.putVC(p); err != nil {
			return err
		}
	}
	if err := w.putVMs(p); err != nil {
		return err
	}
	for _, a := range p.Allocations {
		if p.VC != nil && a.VC == p.VC.ID {
			continue // putVC did
		}
		if err := w.allocate(a); err != nil {
			return err
		}
	}
	for i, name := range hosts {
		if err := w.checkLimits(name, before[i]); err != nil {
			return err
		}
		w.touch(name)
	}
	if p.VC != nil {
		w.sweep(p.VC.ID)
	}
	return w.remember(p.Operation, p.Remembered)
}

// affected returns the hosts whose load a plan can change, by name: those that it lists as affected, and those that it changes
// without listing them.
func (w *writer) affected(p *Plan) []string {
	s := w.read()
	set := map[string]bool{}
	for _, name := range p.AffectedHosts {
		set[name] = true
	}
	for _, vm := range p.VMs {
		set[vm.Host] = true
	}
	ofVC := func(id string) {
		for _, vm := range s.VMsOf(id) {
			set[vm.Host] = set[vm.Host] || vm.ConsumesResources()
			set[vm.MovingTo] = set[vm.MovingTo] || vm.ConsumesResources()
		}
	}
	if p.VC != nil {
		ofVC(p.VC.ID)
	}
	for _, a := range p.Allocations {
		ofVC(a.VC)
	}
	var out []string
	for name, on := range set {
		if on && name != "" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func (w *writer) putVC(p *Plan) error {
	vc := *p.VC
	old, exists := w.read().VC(vc.ID)
	switch named, taken := w.read().VCNamed(vc.Name); {
	case p.VCVersion == 0 && (taken || exists):
		return fmt.Errorf("virtual cluster %s exists already: %w", vc.Name, ErrConflict)
	case p.VCVersion != 0 && !exists:
		return fmt.Errorf("virtual cluster %s: %w", vc.Name, ErrNotFound)
	case p.VCVersion != 0 && old.ModifyIndex != p.VCVersion:
		return fmt.Errorf("virtual cluster %s changed at index %d: %w", vc.Name, old.ModifyIndex, ErrConflict)
	case taken && named.ID != vc.ID:
		return fmt.Errorf("virtual cluster %s: the name belongs to another: %w", vc.Name, ErrConflict)
	}
	if err := w.imagesThere(vc); err != nil {
		return err
	}
	if p.Operation != nil && w.version >= tenantsSince {
		if err := w.read().CheckGrowth(p.Operation.Kind, &vc); err != nil {
			return fmt.Errorf("virtual cluster %s: %w", vc.Name, err)
		}
	}
	if exists {
		vc.CreateIndex, vc.CreatedAt = old.CreateIndex, old.CreatedAt
	} else {
		vc.CreateIndex, vc.CreatedAt = w.index, w.at
	}
	vc.ModifyIndex = w.index
	vc.Groups = slices.Clone(vc.Groups)
	for _, a := range p.Allocations {
		if a.VC == vc.ID {
			if err := vc.allocate(a); err != nil {
				return err
			}
		}
	}
	if err := w.claim(p, &vc); err != nil {
		return err
	}
	w.put(tVCs, &vc)
	if exists {
		w.runFollows(p, &vc, &old)
	} else {
		w.runFollows(p, &vc, nil)
	}
	if p.Version != nil {
		w.addVersion(&vc, *p.Version)
	}
	if op := p.Operation; op != nil && op.VM != "" {
		w.event("vm-"+op.Kind+"-requested", "vm", op.VMName, "%s", p.Text)
		return nil
	}
	w.event("vc-"+p.Verb, "vc", vc.Name, "%s", p.Text)
	return nil
}

// imagesThere checks the VC's images again: one may have left the catalogue since the plan was made.
func (w *writer) imagesThere(vc VC) error {
	if vc.Goal != GoalRun {
		return nil
	}
	for _, g := range vc.Groups {
		for _, name := range []string{g.Image, g.Boot.Kernel, g.Boot.Initrd} {
			if _, ok := w.read().Image(name); name != "" && !ok {
				return fmt.Errorf("virtual cluster %s, group %s: image %s is gone: %w", vc.Name, g.Name, name, ErrConflict)
			}
		}
	}
	return nil
}

func (w *writer) putVMs(p *Plan) error {
	for _, vm := range p.VMs {
		if err := w.putVM(vm, p.Basis); err != nil {
			return fmt.Errorf("VM %s: %w", vm.Name, err)
		}
	}
	return nil
}

// putVM puts a row that was planned on the state of that index.
func (w *writer) putVM(vm VM, basis uint64) error {
	if named, taken := w.read().VMNamed(vm.Name); taken && named.ID != vm.ID {
		return fmt.Errorf("the name belongs to another VM: %w", ErrConflict)
	}
	if _, ok := w.read().VC(vm.VC); !ok {
		return fmt.Errorf("its virtual cluster is gone: %w", ErrConflict)
	}
	old, exists := w.read().VM(vm.ID)
	vm.CreateIndex = w.index
	if exists {
		if err := old.mayBecome(vm, basis); err != nil {
			return err
		}
		vm.CreateIndex = old.CreateIndex
	}
	if vm.Phase == Starting && (!exists || vm.Generation > old.Generation) {
		if err := w.mayStartOn(vm.Host); err != nil {
			return err
		}
	}
	vm.ModifyIndex = w.index
	w.put(tVMs, &vm)
	return nil
}

// mayStartOn says why no VM may start on a host; nil if VMs may.
func (w *writer) mayStartOn(host string) error {
	h, ok := w.read().Host(host)
	switch {
	case !ok:
		return fmt.Errorf("host %q is gone: %w", host, ErrConflict)
	case h.Cordoned:
		return fmt.Errorf("host %s is cordoned: %w", h.Name, ErrConflict)
	case h.Lost.Proof != "":
		return fmt.Errorf("host %s is lost: %w", h.Name, ErrConflict)
	}
	return nil
}

func (w *writer) allocate(a Allocation) error {
	vc, ok := w.read().VC(a.VC)
	if !ok {
		return fmt.Errorf("allocation to virtual cluster %s: gone: %w", a.VC, ErrConflict)
	}
	vc.Groups = slices.Clone(vc.Groups)
	if err := vc.allocate(a); err != nil {
		return err
	}
	w.put(tVCs, &vc)
	return nil
}

// allocate sets the allocation of a group in a row that is not in the state yet.
func (v *VC) allocate(a Allocation) error {
	g := v.SharedGroup(a.Group)
	if g == nil {
		return fmt.Errorf("allocation to virtual cluster %s: no group %s: %w", v.Name, a.Group, ErrConflict)
	}
	g.Allocation = a.CPU
	return nil
}

// checkLimits refuses a plan that leaves a host beyond its limits, unless the
// host was beyond them before and the plan does not make it worse.
func (w *writer) checkLimits(host string, before capacity.Load) error {
	now := w.ledgerOf(host)
	switch cpu, memory := now.Exceeded(before); {
	case cpu:
		return fmt.Errorf("host %s: %.6f cores allocated of %.6f: %w", host, now.CPU, now.Usable.CPU, ErrConflict)
	case memory:
		return fmt.Errorf("host %s: %d bytes of memory held of %d: %w", host, now.Taken(), now.Usable.Memory, ErrConflict)
	}
	return nil
}

// sweep removes a VC that is to be deleted and has no VM left.
func (w *writer) sweep(id string) {
	vc, ok := w.read().VC(id)
	if !ok || vc.Goal != GoalDelete || len(w.read().VMsOf(id)) > 0 {
		w.sweepGroups(id)
		return
	}
	w.drop(tVCs, &vc)
	w.dropVersions(id)
	w.event("vc-deleted", "vc", vc.Name, "nothing of it is left")
}
