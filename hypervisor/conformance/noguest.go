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
	h := s.Host

	t.Run("Capacity", func(t *testing.T) {
		c, err := h.Capacity(t.Context())
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
		again, err := h.Capacity(t.Context())
		if err != nil || again != c {
			t.Errorf("Capacity changed from %+v to %+v (error %v)", c, again, err)
		}
	})

	t.Run("DefineRunsNothing", func(t *testing.T) {
		spec := s.Spec("ek-conf-defined-0")
		take(t, h, spec, s.Wait)
		for range 2 {
			if err := h.Define(t.Context(), spec); err != nil {
				t.Fatalf("Define: %v", err)
			}
			if vm, ok := find(t, h, spec.VM); ok {
				t.Fatalf("Define made a VM that runs: %+v", vm)
			}
		}
		for range 2 {
			if err := h.Undefine(t.Context(), spec); err != nil {
				t.Fatalf("Undefine: %v", err)
			}
		}
	})

	t.Run("UndefineOfUnknown", func(t *testing.T) {
		if err := h.Undefine(t.Context(), s.Spec("ek-conf-undefined-0")); err != nil {
			t.Errorf("Undefine of what was never defined: %v", err)
		}
	})

	t.Run("UnknownVM", func(t *testing.T) {
		ctx, spec := t.Context(), s.Spec("ek-conf-unknown-0")
		is(t, "SetCPU of an unknown VM", h.SetCPU(ctx, spec.VM, hypervisor.CPU{Cap: 0.5, Weight: 0.5}), hypervisor.ErrNotFound)
		is(t, "SetBalloon of an unknown VM", h.SetBalloon(ctx, spec.VM, spec.Memory), hypervisor.ErrNotFound)
		is(t, "Stop of an unknown VM", h.Stop(ctx, spec.VM), hypervisor.ErrNotFound)
		is(t, "Resume of an unknown VM", h.Resume(ctx, spec.VM), hypervisor.ErrNotFound)
		console, err := h.Console(ctx, spec.VM)
		is(t, "Console of an unknown VM", err, hypervisor.ErrNotFound)
		if console != nil {
			t.Error("Console of an unknown VM gives a console with its error")
		}
		_, err = h.Migrate(ctx, spec.VM, hypervisor.Migration{To: "nowhere"})
		is(t, "Migrate of an unknown VM", err, hypervisor.ErrNotFound)
		if _, found, err := h.Abort(ctx, spec.VM); err != nil || found {
			t.Errorf("Abort for an unknown VM: %v, %v", found, err)
		}
		if err := h.Destroy(ctx, spec.VM); err != nil {
			t.Errorf("Destroy of a VM that is not there: %v", err)
		}
	})

	t.Run("EmptyID", func(t *testing.T) {
		// A VM that is not ours has no id: the empty one must never reach it.
		ctx := t.Context()
		is(t, `SetCPU of ""`, h.SetCPU(ctx, "", hypervisor.CPU{Cap: 1, Weight: 1}), hypervisor.ErrNotFound)
		is(t, `SetBalloon of ""`, h.SetBalloon(ctx, "", 1<<30), hypervisor.ErrNotFound)
		is(t, `Stop of ""`, h.Stop(ctx, ""), hypervisor.ErrNotFound)
		is(t, `Resume of ""`, h.Resume(ctx, ""), hypervisor.ErrNotFound)
	})

	t.Run("BadSpec", func(t *testing.T) {
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
			take(t, h, spec, s.Wait)
			id := spec.VM
			spoil(&spec)
			err := h.Define(t.Context(), spec)
			if err == nil {
				err = h.Start(t.Context(), spec)
			}
			if err == nil {
				t.Errorf("%s: Define and Start took it", name)
				if err := h.Destroy(t.Context(), spec.VM); err != nil {
					t.Errorf("%s: Destroy: %v", name, err)
				}
			} else if vm, ok := find(t, h, id); ok {
				t.Errorf("%s: refused (%v), but there is %+v", name, err, vm)
			}
		}
	})

	t.Run("CancelledContext", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		spec := s.Spec("ek-conf-cancelled-0")
		take(t, h, spec, s.Wait)
		calls := map[string]func() error{
			"Capacity":   func() error { _, err := h.Capacity(ctx); return err },
			"List":       func() error { _, err := h.List(ctx); return err },
			"Define":     func() error { return h.Define(ctx, spec) },
			"Start":      func() error { return h.Start(ctx, spec) },
			"Stop":       func() error { return h.Stop(ctx, spec.VM) },
			"Destroy":    func() error { return h.Destroy(ctx, spec.VM) },
			"Undefine":   func() error { return h.Undefine(ctx, spec) },
			"SetCPU":     func() error { return h.SetCPU(ctx, spec.VM, hypervisor.CPU{Cap: 1, Weight: 1}) },
			"SetBalloon": func() error { return h.SetBalloon(ctx, spec.VM, spec.Memory) },
			"Stats":      func() error { _, err := h.Stats(ctx); return err },
			"Events":     func() error { _, err := h.Events(ctx); return err },
			"Console":    func() error { _, err := h.Console(ctx, spec.VM); return err },
			"Resume":     func() error { return h.Resume(ctx, spec.VM) },
			"Abort":      func() error { _, _, err := h.Abort(ctx, spec.VM); return err },
			"Arrival":    func() error { _, err := h.Arrival(ctx, spec.VM); return err },
			"Partner":    func() error { _, err := h.Partner(ctx); return err },
			"CheckPeer":  func() error { _, err := h.CheckPeer(ctx, "x"); return err },
			"Migrate":    func() error { _, err := h.Migrate(ctx, spec.VM, hypervisor.Migration{To: "x"}); return err },
		}
		for name, call := range calls {
			if err := call(); err == nil {
				t.Errorf("%s with a cancelled context is no error", name)
			}
		}
		if vm, ok := find(t, h, spec.VM); ok {
			t.Errorf("Start with a cancelled context started %+v", vm)
		}
	})

	t.Run("EventsEndWithContext", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := watch(t, ctx, h)
		cancel()
		bound := time.NewTimer(s.Wait)
		defer bound.Stop()
		select {
		case <-w.done:
		case <-bound.C:
			t.Errorf("the channel of events is open %v after its context ended", s.Wait)
		}
	})

	t.Run("Closed", func(t *testing.T) {
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
		if _, err := h.List(t.Context()); err != nil {
			t.Errorf("closing one connection broke another: %v", err)
		}
	})
}
