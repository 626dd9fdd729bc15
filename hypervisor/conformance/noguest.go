package conformance

import (
	"context"
	"math"
	"testing"
	"time"

	"evenkeel/hypervisor"
)

// noGuest is everything that can be asked of a host without booting a guest.
func noGuest(t *testing.T, s Setup) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s Setup)
	}{
		{"Capacity", capacity},
		{"DefineRunsNothing", defineRunsNothing},
		{"UndefineOfUnknown", undefineOfUnknown},
		{"UnknownVM", unknownVM},
		{"EmptyID", emptyID},
		{"BadSpec", badSpec},
		{"CancelledContext", cancelledContext},
		{"EventsEndWithContext", eventsEndWithContext},
		{"Closed", closed},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, s) })
	}
}

func capacity(t *testing.T, s Setup) {
	c, err := s.Host.Capacity(t.Context())
	if err != nil {
		t.Fatalf("Capacity: %v", err)
	}
	if c.Name == "" || c.Software == "" {
		t.Errorf("a capacity names the machine and its software: %+v", c)
	}
	if !(c.CPU > 0) || math.IsInf(c.CPU, 0) || c.Memory <= 0 {
		t.Errorf("a capacity has CPU and memory: %+v", c)
	}
	if c.Cgroup < 0 || c.Cgroup > 2 {
		t.Errorf("cgroup version is 0, 1 or 2: %+v", c)
	}
	again, err := s.Host.Capacity(t.Context())
	if err != nil || again != c {
		t.Errorf("Capacity changed from %+v to %+v (error %v)", c, again, err)
	}
}

func defineRunsNothing(t *testing.T, s Setup) {
	spec := s.Spec("ek-conf-defined-0")
	take(t, s.Host, spec, s.Wait)
	for range 2 {
		if err := s.Host.Define(t.Context(), spec); err != nil {
			t.Fatalf("Define: %v", err)
		}
		if vm, ok := find(t, s.Host, spec.VM); ok {
			t.Fatalf("Define made a VM that runs: %+v", vm)
		}
	}
	for range 2 {
		if err := s.Host.Undefine(t.Context(), spec); err != nil {
			t.Fatalf("Undefine: %v", err)
		}
	}
}

func undefineOfUnknown(t *testing.T, s Setup) {
	if err := s.Host.Undefine(t.Context(), s.Spec("ek-conf-undefined-0")); err != nil {
		t.Errorf("Undefine of what was never defined: %v", err)
	}
}

func unknownVM(t *testing.T, s Setup) {
	ctx, spec := t.Context(), s.Spec("ek-conf-unknown-0")
	is(t, "SetCPU of an unknown VM", s.Host.SetCPU(ctx, spec.VM, hypervisor.CPU{Cap: 0.5, Weight: 0.5}), hypervisor.ErrNotFound)
	is(t, "SetBalloon of an unknown VM", s.Host.SetBalloon(ctx, spec.VM, spec.Memory), hypervisor.ErrNotFound)
	is(t, "Stop of an unknown VM", s.Host.Stop(ctx, spec.VM), hypervisor.ErrNotFound)
	is(t, "Resume of an unknown VM", s.Host.Resume(ctx, spec.VM), hypervisor.ErrNotFound)
	console, err := s.Host.Console(ctx, spec.VM)
	is(t, "Console of an unknown VM", err, hypervisor.ErrNotFound)
	if console != nil {
		t.Error("Console of an unknown VM gives a console with its error")
	}
	_, err = s.Host.Migrate(ctx, spec.VM, hypervisor.Migration{To: "nowhere"})
	is(t, "Migrate of an unknown VM", err, hypervisor.ErrNotFound)
	if _, found, err := s.Host.Abort(ctx, spec.VM); err != nil || found {
		t.Errorf("Abort for an unknown VM: %v, %v", found, err)
	}
	if err := s.Host.Destroy(ctx, spec.VM); err != nil {
		t.Errorf("Destroy of a VM that is not there: %v", err)
	}
}

func emptyID(t *testing.T, s Setup) {
	// A VM that is not ours has no id: the empty one must never reach it.
	ctx := t.Context()
	is(t, `SetCPU of ""`, s.Host.SetCPU(ctx, "", hypervisor.CPU{Cap: 1, Weight: 1}), hypervisor.ErrNotFound)
	is(t, `SetBalloon of ""`, s.Host.SetBalloon(ctx, "", 1<<30), hypervisor.ErrNotFound)
	is(t, `Stop of ""`, s.Host.Stop(ctx, ""), hypervisor.ErrNotFound)
	is(t, `Resume of ""`, s.Host.Resume(ctx, ""), hypervisor.ErrNotFound)
}

func badSpec(t *testing.T, s Setup) {
	bad := map[string]func(*hypervisor.Spec){
		"no id":             func(x *hypervisor.Spec) { x.VM = "" },
		"no name":           func(x *hypervisor.Spec) { x.Name = "" },
		"no vCPU":           func(x *hypervisor.Spec) { x.VCPUs = 0 },
		"no memory":         func(x *hypervisor.Spec) { x.Memory, x.Balloon = 0, 0 },
		"balloon too large": func(x *hypervisor.Spec) { x.Balloon = x.Memory + 1<<20 },
		"negative balloon":  func(x *hypervisor.Spec) { x.Balloon = -1 },
		"negative cap":      func(x *hypervisor.Spec) { x.CPU.Cap = -0.5 },
		"cap not a number":  func(x *hypervisor.Spec) { x.CPU.Cap = math.NaN() },
		"infinite weight":   func(x *hypervisor.Spec) { x.CPU.Weight = math.Inf(1) },
	}
	for name, spoil := range bad {
		spec := s.Spec("ek-conf-bad-0")
		take(t, s.Host, spec, s.Wait)
		id := spec.VM
		spoil(&spec)
		err := s.Host.Define(t.Context(), spec)
		if err == nil {
			err = s.Host.Start(t.Context(), spec)
		}
		if err == nil {
			t.Errorf("%s: Define and Start took it", name)
			if err := s.Host.Destroy(t.Context(), spec.VM); err != nil {
				t.Errorf("%s: Destroy: %v", name, err)
			}
		} else if vm, ok := find(t, s.Host, id); ok {
			t.Errorf("%s: refused (%v), but there is %+v", name, err, vm)
		}
	}
}

func cancelledContext(t *testing.T, s Setup) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	spec := s.Spec("ek-conf-cancelled-0")
	take(t, s.Host, spec, s.Wait)
	calls := map[string]func() error{
		"Capacity":   func() error { _, err := s.Host.Capacity(ctx); return err },
		"List":       func() error { _, err := s.Host.List(ctx); return err },
		"Define":     func() error { return s.Host.Define(ctx, spec) },
		"Start":      func() error { return s.Host.Start(ctx, spec) },
		"Stop":       func() error { return s.Host.Stop(ctx, spec.VM) },
		"Destroy":    func() error { return s.Host.Destroy(ctx, spec.VM) },
		"Undefine":   func() error { return s.Host.Undefine(ctx, spec) },
		"SetCPU":     func() error { return s.Host.SetCPU(ctx, spec.VM, hypervisor.CPU{Cap: 1, Weight: 1}) },
		"SetBalloon": func() error { return s.Host.SetBalloon(ctx, spec.VM, spec.Memory) },
		"Stats":      func() error { _, err := s.Host.Stats(ctx); return err },
		"Events":     func() error { _, err := s.Host.Events(ctx); return err },
		"Console":    func() error { _, err := s.Host.Console(ctx, spec.VM); return err },
		"Resume":     func() error { return s.Host.Resume(ctx, spec.VM) },
		"Abort":      func() error { _, _, err := s.Host.Abort(ctx, spec.VM); return err },
		"Arrival":    func() error { _, err := s.Host.Arrival(ctx, spec.VM); return err },
		"Partner":    func() error { _, err := s.Host.Partner(ctx); return err },
		"CheckPeer":  func() error { _, err := s.Host.CheckPeer(ctx, "x"); return err },
		"Migrate":    func() error { _, err := s.Host.Migrate(ctx, spec.VM, hypervisor.Migration{To: "x"}); return err },
	}
	for name, call := range calls {
		if err := call(); err == nil {
			t.Errorf("%s with a cancelled context is no error", name)
		}
	}
	if vm, ok := find(t, s.Host, spec.VM); ok {
		t.Errorf("Start with a cancelled context started %+v", vm)
	}
}

func eventsEndWithContext(t *testing.T, s Setup) {
	ctx, cancel := context.WithCancel(t.Context())
	w := watch(t, ctx, s.Host)
	cancel()
	bound := time.NewTimer(s.Wait)
	defer bound.Stop()
	select {
	case <-w.done:
	case <-bound.C:
		t.Errorf("the channel of events is open %v after its context ended", s.Wait)
	}
}

func closed(t *testing.T, s Setup) {
	if s.Reconnect == nil {
		lacking(t, "Reconnect")
	}
	other := s.Reconnect(t)
	for range 2 {
		if err := other.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
	_, err := other.List(t.Context())
	is(t, "List after Close", err, hypervisor.ErrUnavailable)
	if _, err := s.Host.List(t.Context()); err != nil {
		t.Errorf("closing one connection broke another: %v", err)
	}
}
