package leader

import (
	"context"
	"fmt"
	"math"
	"slices"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
)

// Create creates a VC. spec has its name, options and groups; MinYield below 0 and empty fields mean the cluster's defaults.
func (c *Service) Create(ctx context.Context, spec state.VC, call Call) (Result, error) {
	return c.change(ctx, "create", spec.Name, spec, call, func(s *state.Snapshot, global bool) (admission.Answer, bool, error) {
		return c.create(ctx, "create", spec, call, s, global)
	})
}

// create decides on a new VC for a request of that verb.
func (c *Service) create(ctx context.Context, verb string, spec state.VC, call Call, s *state.Snapshot, global bool) (a admission.Answer, scoped bool, err error) {
	if call.IfMatch != 0 {
		return a, true, fmt.Errorf("%s virtual cluster %s: a new one has no version %d: %w", verb, spec.Name, call.IfMatch, ErrPrecondition)
	}
	meta, _ := s.Meta()
	vc, err := complete(s, meta.Settings, spec)
	if err != nil {
		return a, true, err
	}
	if old, taken := s.VCNamed(vc.Name); taken {
		what := "name: a virtual cluster " + vc.Name + " exists already; choose another name, delete it first, or change it with vcctl vc apply"
		if old.Goal == state.GoalDelete {
			what = "name: virtual cluster " + vc.Name + " is still being deleted; try again when it is gone"
		}
		return a, true, &Exists{Field: "name", Text: what}
	}
	if err := vmNamesFree(s, vc); err != nil {
		return a, true, err
	}
	t := c.current.Load()
	vc.ID = c.ids.next()
	if err := s.CheckGrowth("create", &vc); err != nil {
		return a, true, err
	}
	defer func() {
		recordVersion(ctx, s, &a, state.VersionPut{Verb: verb, Applied: true, Spec: state.SpecOf(spec)})
	}()
	shut := func(host string) bool {
		return c.inflight.busy(host) || t.failover.WhyUnavailable(s, host) != ""
	}
	env := placement.Env{Now: c.o.Now().UTC(), NewID: c.ids.next, Lists: listerOf(t.reports.each), Pools: t.reports.pools()}
	if a, ok := c.capacity.TryFastPath(s, vc, t.withMargin(s, env), shut); ok || !global {
		return a, ok, nil
	}
	return admission.Create(s, vc, t.ask()), false, nil
}

// Exists says that a name is taken. It is a conflict.
type Exists struct{ Field, Text string }

// Error implements error.
func (e *Exists) Error() string { return e.Text }

// Is makes it an ErrConflict.
func (e *Exists) Is(target error) bool { return target == ErrConflict }

// vmNamesFree refuses VCs whose VMs would have the names of others: "a-b" with group "c" and "a" with group "b-c" would.
func vmNamesFree(s *state.Snapshot, vc state.VC) error {
	for i, g := range vc.Groups {
		if g.Count == 0 {
			continue
		}
		other, taken := sameNames(s, vc, g)
		name := fmt.Sprintf("%s-%s-0", vc.Name, g.Name)
		for task := 0; task < g.Count && !taken; task++ {
			name = fmt.Sprintf("%s-%s-%d", vc.Name, g.Name, task)
			vm, is := s.VMNamed(name)
			if taken = is && vm.VC != vc.ID; taken {
				other, _ = s.VC(vm.VC)
			}
		}
		if taken {
			field := fmt.Sprintf("groups[%d].name", i)
			return &Exists{Field: field, Text: fmt.Sprintf("%s: its VM %s would have the name of a VM of virtual cluster %s; choose another name", field, name, other.Name)}
		}
	}
	return nil
}

// sameNames returns another VC with a group whose VMs have, or would have, the names of those of a group of vc. One that is queued has
// no VM yet.
func sameNames(s *state.Snapshot, vc state.VC, g state.Group) (state.VC, bool) {
	full := vc.Name + "-" + g.Name
	for at := range full {
		if full[at] != '-' || at == len(vc.Name) {
			continue
		}
		other, ok := s.VCNamed(full[:at])
		if ok && slices.ContainsFunc(other.Groups, func(o state.Group) bool { return o.Name == full[at+1:] && o.Count > 0 }) {
			return other, true
		}
	}
	return state.VC{}, false
}

// existing returns the VC that a request names.
func existing(s *state.Snapshot, name string, call Call) (state.VC, error) {
	vc, ok := s.VCNamed(name)
	if !ok {
		return vc, fmt.Errorf("virtual cluster %s: %w", name, ErrNotFound)
	}
	if call.IfMatch != 0 && call.IfMatch != vc.ModifyIndex {
		return vc, fmt.Errorf("virtual cluster %s is at version %d, not %d: %w", name, vc.ModifyIndex, call.IfMatch, ErrPrecondition)
	}
	return vc, nil
}

// busy refuses to start a VC that is still being stopped.
func busy(s *state.Snapshot, vc state.VC) error {
	if vc.Goal == state.GoalDelete {
		return &Busy{"virtual cluster " + vc.Name + " is being deleted"}
	}
	if n := state.CountPhases(s.VMsOf(vc.ID)).Stopping; n > 0 && vc.Goal == state.GoalStop {
		return &Busy{fmt.Sprintf("virtual cluster %s: %d of its VMs are still stopping; try again when they have", vc.Name, n)}
	}
	return nil
}

// Scale changes the size or the needs of a VC, all or nothing.
func (c *Service) Scale(ctx context.Context, name string, by Scale, call Call) (Result, error) {
	return c.change(ctx, "scale", name, by, call, func(s *state.Snapshot, global bool) (admission.Answer, bool, error) {
		vc, err := existing(s, name, call)
		if err != nil {
			return admission.Answer{}, true, err
		}
		if err := busy(s, vc); err != nil {
			return admission.Answer{}, true, err
		}
		meta, _ := s.Meta()
		scaled, bad := rescale(s, meta.Settings, vc, by)
		if bad != nil {
			return admission.Answer{}, true, bad
		}
		if err := vmNamesFree(s, scaled); err != nil {
			return admission.Answer{}, true, err
		}
		if err := s.CheckGrowth("scale", &scaled); err != nil {
			return admission.Answer{}, true, err
		}
		if !global {
			return admission.Answer{}, false, nil
		}
		a := admission.Scale(s, scaled, c.current.Load().ask())
		recordVersion(ctx, s, &a, state.VersionPut{Verb: "scale", Spec: by.onSpec(s, vc, scaled)})
		return a, false, nil
	})
}

// rescale returns vc with the change made, or the faults of the change. It does not find groups that were removed (count 0).
func rescale(s *state.Snapshot, set state.Settings, vc state.VC, by Scale) (state.VC, error) {
	at, groups := -1, 0
	for i, g := range vc.Groups {
		if g.Count == 0 {
			continue
		}
		if groups++; g.Name == by.Group || by.Group == "" {
			at = i
		}
	}
	if by.Group == "" && groups != 1 {
		at = -1
	}
	if at < 0 {
		text := "virtual cluster " + vc.Name + " has no such group"
		if by.Group == "" {
			text = fmt.Sprintf("virtual cluster %s has %d groups: name one", vc.Name, groups)
		}
		return vc, &Invalid{Fields: []FieldError{{Field: "group", Text: text, Value: by.Group}}}
	}
	if by.Count == nil && by.CPU == nil && by.Memory == nil {
		return vc, &Invalid{Fields: []FieldError{{Field: "count", Text: "nothing to change: give count, cpu or memory"}}}
	}
	old := vc.Groups[at]
	vc.Groups = slices.Clone(vc.Groups)
	g := &vc.Groups[at]
	*g = by.of(old)
	var f faults
	if running := running(s, vc, g.Name); len(running) > 0 {
		by.checkRunning(&f, running)
	} else if by.CPU != nil && finite(*by.CPU) {
		g.VCPUs = max(g.VCPUs, int(math.Ceil(min(*by.CPU, maxCPU))))
	}
	checkSize(&f, "", set, *g)
	if len(f) == 0 && total(vc) > set.MaxVMs {
		f.add("count", g.Count, "the virtual cluster would have %d VMs, more than the %d that one may have", total(vc), set.MaxVMs)
	}
	return vc, f.err()
}

// of returns a group with the change made.
func (by Scale) of(g state.Group) state.Group {
	if by.Count != nil {
		g.Count = *by.Count
	}
	if by.CPU != nil {
		g.CPU = *by.CPU
	}
	if by.Memory != nil {
		if g.MemoryMin == g.Memory { // no minimum was set: all of the memory is. One that was set stays
			g.MemoryMin = *by.Memory
		}
		g.Memory = *by.Memory
	}
	return g
}

// running returns the VMs of a group that run and are to go on.
func running(s *state.Snapshot, vc state.VC, group string) []state.VM {
	return slices.DeleteFunc(s.VMsOf(vc.ID), func(vm state.VM) bool {
		return vm.Group != group || !vm.ConsumesResources() || vm.Goal != state.GoalRun
	})
}

// checkRunning refuses more than VMs that run can be given.
func (by Scale) checkRunning(f *faults, vms []state.VM) {
	for _, vm := range vms {
		if by.CPU != nil && *by.CPU > float64(vm.VCPUs) {
			f.add("cpu", *by.CPU, "VM %s runs with %d vCPUs and cannot use more; stop the virtual cluster, scale it and start it again", vm.Name, vm.VCPUs)
			return
		}
		if by.Memory != nil && *by.Memory > vm.BootMemory {
			f.add("memory", *by.Memory, "VM %s was started with %d MiB and cannot grow beyond; stop the virtual cluster, scale it and start it again", vm.Name, vm.BootMemory>>20)
			return
		}
	}
}

// Start starts a VC that is stopped, or the VMs of it that failed.
func (c *Service) Start(ctx context.Context, name string, call Call) (Result, error) {
	return c.change(ctx, "start", name, nil, call, func(s *state.Snapshot, global bool) (admission.Answer, bool, error) {
		vc, err := existing(s, name, call)
		if err != nil {
			return admission.Answer{}, true, err
		}
		if err := busy(s, vc); err != nil {
			return admission.Answer{}, true, err
		}
		for _, vm := range s.VMsOf(vc.ID) {
			if vm.Phase == state.Stopping && vm.Order.StoppedBy != "" {
				return admission.Answer{}, true, &Busy{"VM " + vm.Name + " is still stopping; try again when it has"}
			}
		}
		next := vc
		next.Goal, next.Admitted = state.GoalRun, true // else it waits, which is checked once that is planned
		if err := s.CheckGrowth("start", &next); err != nil {
			return admission.Answer{}, true, err
		}
		if !global {
			return admission.Answer{}, false, nil
		}
		return admission.Start(s, vc, c.current.Load().ask()), false, nil
	})
}

// Stop stops a VC: its agents ask the guests to power off; its disks are kept.
func (c *Service) Stop(ctx context.Context, name string, call Call) (Result, error) {
	return c.change(ctx, "stop", name, nil, call, func(s *state.Snapshot, global bool) (admission.Answer, bool, error) {
		vc, err := existing(s, name, call)
		if err != nil {
			return admission.Answer{}, true, err
		}
		if vc.Goal == state.GoalDelete {
			return admission.Answer{}, true, &Busy{"virtual cluster " + name + " is being deleted"}
		}
		return admission.Stop(s, vc, placement.Env{}), true, nil
	})
}

// Delete deletes a VC with all it has.
func (c *Service) Delete(ctx context.Context, name string, call Call) (Result, error) {
	return c.change(ctx, "delete", name, nil, call, func(s *state.Snapshot, global bool) (admission.Answer, bool, error) {
		vc, err := existing(s, name, call)
		if err != nil {
			return admission.Answer{}, true, err
		}
		return admission.Delete(s, vc, placement.Env{}), true, nil
	})
}
