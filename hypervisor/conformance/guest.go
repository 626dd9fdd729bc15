package conformance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"evenkeel/hypervisor"
)

// tested is the one guest that most tests share, and what they know of it.
type tested struct {
	Setup
	spec   hypervisor.Spec
	events *events
}

// oneGuest takes one busy guest through its life: started, changed, watched,
// pulled out, started again with a higher generation, asked to stop.
func oneGuest(t *testing.T, s Setup) {
	spec := s.Busy(s.Spec("ek-conf-one-0"), 1)
	spec.CPU = hypervisor.CPU{Cap: 0.8 * s.Cores, Weight: 0.8 * s.Cores}
	spec.Generation = 7
	low := s.BalloonLow
	if low == 0 {
		low = spec.Memory / 4 * 3
	}
	spec.Balloon = low
	g := &tested{Setup: s, spec: spec, events: watch(t, t.Context(), s.Host)}

	// Everything after this needs the guest: no subtest, so that a failure ends the group.
	mark := g.events.mark()
	s.boot(t, spec)
	vm := must(t, s.Host, spec.VM)
	if !near(vm.CPU.Cap, spec.CPU.Cap) || !near(vm.CPU.Weight, spec.CPU.Weight) {
		t.Errorf("right after Start: CPU is %+v, want %+v", vm.CPU, spec.CPU)
	}
	if vm.Balloon > spec.Memory || vm.Memory != spec.Memory {
		t.Errorf("right after Start: balloon %d and memory %d of %d", vm.Balloon, vm.Memory, spec.Memory)
	}
	if e := g.events.await(t, s.Wait, mark, hypervisor.Started, spec.VM); e.Name != spec.Name || e.Reason == "" || e.At.IsZero() {
		t.Errorf("event of the start lacks name, reason or time: %+v", e)
	}

	t.Run("Identity", g.identity)
	t.Run("StartTwice", g.startTwice)
	t.Run("SameName", g.sameName)
	t.Run("UndefineWhileRunning", g.undefineWhileRunning)
	t.Run("BalloonAtStart", func(t *testing.T) { g.balloonReaches(t, low) })
	t.Run("Balloon", g.balloon)
	t.Run("CPU", g.cpu)
	t.Run("Throttled", g.throttled)
	t.Run("BadSettings", g.badSettings)
	t.Run("Stats", g.stats)
	t.Run("Foreign", g.foreign)
	t.Run("Close", g.close)
	t.Run("DaemonRestart", g.daemonRestart)
	t.Run("Reset", g.reset)
	t.Run("Destroy", g.destroy)
	t.Run("StartAgain", g.startAgain) // idle from here on
	t.Run("Console", g.console)
	t.Run("Stop", g.stop)
	t.Run("Killed", g.killed)
}

// reset: the guest boots again as the same instance; one of another generation is not touched.
func (g *tested) reset(t *testing.T) {
	before := must(t, g.Host, g.spec.VM)
	if err := g.Host.Reset(t.Context(), g.spec.VM, g.spec.Generation+1); !errors.Is(err, hypervisor.ErrNotFound) {
		t.Errorf("Reset of a generation that does not run: %v", err)
	}
	if err := g.Host.Reset(t.Context(), "ek-conf-unheard-of", 1); !errors.Is(err, hypervisor.ErrNotFound) {
		t.Errorf("Reset of an unknown VM: %v", err)
	}
	if err := g.Host.Reset(t.Context(), g.spec.VM, g.spec.Generation); err != nil {
		t.Fatalf("Reset: %v", err)
	}
	if now := must(t, g.Host, g.spec.VM); now.Identity != before.Identity || now.State != hypervisor.Running || !near(now.CPU.Cap, before.CPU.Cap) {
		t.Errorf("after Reset: %+v, before: %+v", now, before)
	}
}

func (g *tested) identity(t *testing.T) {
	vm := must(t, g.Host, g.spec.VM)
	if vm.Identity != g.spec.Identity {
		t.Errorf("identity read back is %+v, want %+v", vm.Identity, g.spec.Identity)
	}
	if vm.Foreign || vm.Leased != g.spec.Leased || vm.Name != g.spec.Name || vm.VCPUs != g.spec.VCPUs || vm.State != hypervisor.Running {
		t.Errorf("List shows %+v of %+v", vm, g.spec)
	}
}

func (g *tested) startTwice(t *testing.T) {
	is(t, "Start of a running VM", g.Host.Start(t.Context(), g.spec), hypervisor.ErrExists)
	newer := g.spec
	newer.Generation++
	is(t, "Start of a running VM with a newer generation", g.Host.Start(t.Context(), newer), hypervisor.ErrExists)
	if vm := must(t, g.Host, g.spec.VM); vm.Generation != g.spec.Generation {
		t.Errorf("a refused Start changed the generation to %d", vm.Generation)
	}
}

func (g *tested) sameName(t *testing.T) {
	twin := g.Spec(g.spec.Name)
	if twin.VM == g.spec.VM {
		t.Fatalf("Setup.Spec gave the id %s twice", twin.VM)
	}
	// Whether Define or Start refuses is left open; a twin must not run.
	err := g.Host.Define(t.Context(), twin)
	if err == nil {
		err = g.Host.Start(t.Context(), twin)
	}
	is(t, "a second VM of one name", err, hypervisor.ErrExists)
	if vm, ok := find(t, g.Host, twin.VM); ok {
		t.Errorf("the second VM of the name runs: %+v", vm)
		if err := g.Host.Destroy(t.Context(), twin.VM); err != nil {
			t.Errorf("Destroy: %v", err)
		}
	}
	if err := g.Host.Undefine(t.Context(), twin); err != nil {
		t.Errorf("Undefine of the refused twin: %v", err)
	}
	must(t, g.Host, g.spec.VM)
}

func (g *tested) undefineWhileRunning(t *testing.T) {
	if err := g.Host.Undefine(t.Context(), g.spec); err == nil {
		t.Error("Undefine of a running VM is no error")
	}
	must(t, g.Host, g.spec.VM)
}

// balloonReaches waits until the guest has that much memory, within 4 MiB.
func (g *tested) balloonReaches(t *testing.T, want int64) {
	t.Helper()
	g.eventually(t, fmt.Sprintf("the balloon of %s is %d", g.spec.VM, want), func() (bool, string) {
		vm := must(t, g.Host, g.spec.VM)
		return math.Abs(float64(vm.Balloon-want)) <= 4<<20, fmt.Sprint(vm.Balloon)
	})
}

func (g *tested) balloon(t *testing.T) {
	for _, want := range []int64{g.spec.Memory, g.spec.Balloon, g.spec.Memory} {
		mark := g.events.mark()
		if err := g.Host.SetBalloon(t.Context(), g.spec.VM, want); err != nil {
			t.Fatalf("SetBalloon %d: %v", want, err)
		}
		g.balloonReaches(t, want)
		g.events.await(t, g.Wait, mark, hypervisor.BalloonMoved, g.spec.VM)
		g.eventually(t, "Stats shows the balloon", func() (bool, string) {
			x, _ := stat(t, g.Host, g.spec.VM)
			return math.Abs(float64(x.Balloon-want)) <= 4<<20, fmt.Sprint(x.Balloon)
		})
	}
}

func (g *tested) cpu(t *testing.T) {
	g.busy(t, g.spec.VM, g.spec.CPU.Cap)
	g.uses(t, g.spec.VM, g.spec.CPU.Cap)
	for _, share := range []float64{0.25, 0.5} {
		cpu := hypervisor.CPU{Cap: share * g.Cores, Weight: share * g.Cores}
		if err := g.Host.SetCPU(t.Context(), g.spec.VM, cpu); err != nil {
			t.Fatalf("SetCPU %+v: %v", cpu, err)
		}
		if vm := must(t, g.Host, g.spec.VM); !near(vm.CPU.Cap, cpu.Cap) || !near(vm.CPU.Weight, cpu.Weight) {
			t.Errorf("CPU read back after SetCPU is %+v, want %+v", vm.CPU, cpu)
		}
		g.uses(t, g.spec.VM, cpu.Cap)
	}
	none := hypervisor.CPU{Weight: g.Cores}
	if err := g.Host.SetCPU(t.Context(), g.spec.VM, none); err != nil {
		t.Fatalf("SetCPU with no cap: %v", err)
	}
	if vm := must(t, g.Host, g.spec.VM); vm.CPU.Cap != 0 || !near(vm.CPU.Weight, none.Weight) {
		t.Errorf("CPU read back with no cap is %+v, want %+v", vm.CPU, none)
	}
	g.uses(t, g.spec.VM, min(1, g.Cores))
}

// throttled: a busy guest is held back by a small cap, and not at all without one.
func (g *tested) throttled(t *testing.T) {
	if !g.Throttles {
		lacking(t, "Throttles")
	}
	// share is how much of a window one thread is held back.
	share := func() (throttled float64) {
		t.Helper()
		first, _ := stat(t, g.Host, g.spec.VM)
		g.eventually(t, "a window of samples", func() (bool, string) {
			now, ok := stat(t, g.Host, g.spec.VM)
			switch {
			case !ok || now.Throttled < 0:
				t.Fatalf("the host reports no throttled time of %s: %+v", g.spec.VM, now)
			case now.Throttled < first.Throttled:
				t.Fatalf("throttled time went backwards: %v, then %v", first.Throttled, now.Throttled)
			}
			throttled = float64(now.Throttled-first.Throttled) / float64(now.At.Sub(first.At))
			return now.At.Sub(first.At) >= g.Window, ""
		})
		return throttled
	}
	set := func(cpu hypervisor.CPU) {
		t.Helper()
		if err := g.Host.SetCPU(t.Context(), g.spec.VM, cpu); err != nil {
			t.Fatal(err)
		}
	}
	set(hypervisor.CPU{Cap: 0.25 * g.Cores, Weight: g.Cores})
	g.busy(t, g.spec.VM, 0.25*g.Cores)
	if throttled := share(); throttled < 0.4 || throttled > 1 {
		t.Errorf("a busy guest of one thread with a cap of %.2f cores is held back %.3f of the time", 0.25*g.Cores, throttled)
	}
	set(hypervisor.CPU{Weight: g.Cores})
	if throttled := share(); throttled > 0.1 {
		t.Errorf("a guest without a cap is held back %.3f of the time", throttled)
	}
}

func (g *tested) badSettings(t *testing.T) {
	before := must(t, g.Host, g.spec.VM)
	for _, cpu := range []hypervisor.CPU{{Cap: -1}, {Cap: math.NaN()}, {Cap: math.Inf(1)}, {Weight: -1}, {Weight: math.NaN()}} {
		if err := g.Host.SetCPU(t.Context(), g.spec.VM, cpu); err == nil {
			t.Errorf("SetCPU took %+v", cpu)
		}
	}
	for _, bytes := range []int64{-1, 0, g.spec.Memory + 1<<20} {
		if err := g.Host.SetBalloon(t.Context(), g.spec.VM, bytes); err == nil {
			t.Errorf("SetBalloon took %d of %d", bytes, g.spec.Memory)
		}
	}
	if after := must(t, g.Host, g.spec.VM); after.CPU != before.CPU {
		t.Errorf("refused settings changed %+v to %+v", before.CPU, after.CPU)
	}
}

func (g *tested) stats(t *testing.T) {
	all, err := g.Host.Stats(t.Context())
	if err != nil {
		t.Fatalf("Stats: %v", err)
	}
	covered := false
	for _, x := range all {
		if x.VM != g.spec.VM {
			continue
		}
		covered = true
		if x.Identity != g.spec.Identity || x.Name != g.spec.Name || x.At.IsZero() {
			t.Errorf("sample %+v does not say whose it is and when", x)
		}
		if x.VCPUTime <= 0 || x.Balloon <= 0 || x.Resident <= 0 {
			t.Errorf("sample %+v of a busy VM lacks figures", x)
		}
		for _, v := range []int64{x.Unused, x.Available, x.SwapIn, x.SwapOut, x.MajorFaults, int64(x.Throttled)} {
			if v < hypervisor.Unknown {
				t.Errorf("sample %+v has a figure that is neither known nor unknown", x)
			}
		}
		if x.Available > x.Balloon || x.Unused > x.Balloon {
			t.Errorf("sample %+v: a guest has more to give than it has", x)
		}
	}
	if !covered {
		t.Errorf("Stats leaves out %s: %+v", g.spec.VM, all)
	}
	p, err := g.Host.Pressure(t.Context())
	if err != nil {
		t.Fatalf("Pressure: %v", err)
	}
	for _, v := range []float64{p.CPU, p.Memory, p.IO} {
		if v != hypervisor.Unknown && !(v >= 0 && v <= 1) {
			t.Errorf("pressure %+v is no share", p)
		}
	}
	if p.Available < 0 && p.Available != hypervisor.Unknown {
		t.Errorf("%d bytes of memory are available", p.Available)
	}
}

func (g *tested) foreign(t *testing.T) {
	if g.Abilities.Foreign == nil {
		lacking(t, "Foreign")
	}
	const name = "ek-conf-foreign-0" // a name like ours makes it no more ours
	g.Abilities.Foreign(t, name)
	look := func() (hypervisor.VM, bool) {
		vms, err := g.Host.List(t.Context())
		if err != nil {
			t.Fatalf("List: %v", err)
		}
		for _, vm := range vms {
			if vm.Name == name {
				return vm, true
			}
		}
		return hypervisor.VM{}, false
	}
	g.eventually(t, "the foreign VM is listed", func() (bool, string) { _, ok := look(); return ok, "" })
	before, _ := look()
	if !before.Foreign || before.Identity != (hypervisor.Identity{}) || before.Memory <= 0 || before.VCPUs <= 0 {
		t.Errorf("a foreign VM is listed as %+v", before)
	}
	all, err := g.Host.Stats(t.Context())
	if err != nil {
		t.Fatalf("Stats: %v", err)
	}
	for _, x := range all {
		if x.Name == name {
			t.Errorf("Stats counts the foreign VM: %+v", x)
		}
	}

	ctx := t.Context()
	for _, id := range []string{name, ""} { // neither is the id of a VM of ours
		is(t, "SetCPU of a foreign VM", g.Host.SetCPU(ctx, id, hypervisor.CPU{Cap: 0.1, Weight: 0.1}), hypervisor.ErrNotFound)
		is(t, "SetBalloon of a foreign VM", g.Host.SetBalloon(ctx, id, before.Memory/2), hypervisor.ErrNotFound)
		is(t, "Stop of a foreign VM", g.Host.Stop(ctx, id), hypervisor.ErrNotFound)
		is(t, "Resume of a foreign VM", g.Host.Resume(ctx, id), hypervisor.ErrNotFound)
		if err := g.Host.Destroy(ctx, id); err != nil {
			t.Errorf("Destroy of %q, no VM of ours: %v", id, err)
		}
	}
	twin := g.Spec(name)
	take(t, g.Host, twin, g.Wait)
	err = g.Host.Define(ctx, twin)
	if err == nil {
		err = g.Host.Start(ctx, twin)
	}
	is(t, "Start of a VM that has a foreign one's name", err, hypervisor.ErrExists)
	if err := g.Host.Destroy(ctx, twin.VM); err != nil {
		t.Errorf("Destroy of the refused VM: %v", err)
	}
	if err := g.Host.Undefine(ctx, twin); err != nil {
		t.Errorf("Undefine of the refused VM: %v", err)
	}
	after, ok := look()
	if !ok || !after.Foreign || after.CPU != before.CPU || after.Memory != before.Memory {
		t.Errorf("the foreign VM was touched: %+v, now %+v", before, after)
	}
}

func (g *tested) close(t *testing.T) {
	if g.Reconnect == nil {
		lacking(t, "Reconnect")
	}
	other := g.Reconnect(t)
	w := watch(t, t.Context(), other)
	if vm := must(t, other, g.spec.VM); vm.Identity != g.spec.Identity {
		t.Errorf("another connection sees %+v, want %+v", vm.Identity, g.spec.Identity)
	}
	mark := g.events.mark()
	if err := other.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	bound := time.NewTimer(g.Wait)
	defer bound.Stop()
	select {
	case <-w.done:
	case <-bound.C:
		t.Errorf("the channel of events is open %v after Close", g.Wait)
	}
	must(t, g.Host, g.spec.VM)
	g.events.none(t, mark, hypervisor.Stopped, g.spec.VM)
}

func (g *tested) daemonRestart(t *testing.T) {
	if g.RestartDaemon == nil {
		lacking(t, "RestartDaemon")
	}
	before, ok := stat(t, g.Host, g.spec.VM)
	if !ok {
		t.Fatal("no sample before the restart")
	}
	cpu := must(t, g.Host, g.spec.VM).CPU
	mark := g.events.mark()
	g.RestartDaemon(t)
	g.events.await(t, g.Wait, mark, hypervisor.Disconnected, "")
	g.events.await(t, g.Wait, mark, hypervisor.Resync, "")
	vm := must(t, g.Host, g.spec.VM)
	if vm.Identity != g.spec.Identity || vm.State != hypervisor.Running || vm.CPU != cpu {
		t.Errorf("after the daemon's restart: %+v, want %+v with CPU %+v", vm, g.spec.Identity, cpu)
	}
	g.eventually(t, "the VM's CPU time goes on from where it was", func() (bool, string) {
		after, ok := stat(t, g.Host, g.spec.VM)
		if ok && after.VCPUTime < before.VCPUTime {
			t.Fatalf("CPU time fell from %v to %v: another instance", before.VCPUTime, after.VCPUTime)
		}
		return ok && after.VCPUTime > before.VCPUTime, fmt.Sprint(after.VCPUTime)
	})
	g.events.none(t, mark, hypervisor.Stopped, g.spec.VM)
}

func (g *tested) destroy(t *testing.T) {
	mark := g.events.mark()
	if err := g.Host.Destroy(t.Context(), g.spec.VM); err != nil {
		t.Fatalf("Destroy: %v", err)
	}
	if vm, ok := find(t, g.Host, g.spec.VM); ok {
		t.Errorf("Destroy returned, and List has %+v", vm)
	}
	if e := g.events.await(t, g.Wait, mark, hypervisor.Stopped, g.spec.VM); e.Reason == "" || e.Name != g.spec.Name {
		t.Errorf("event of the end lacks reason or name: %+v", e)
	}
	if err := g.Host.Destroy(t.Context(), g.spec.VM); err != nil {
		t.Errorf("second Destroy: %v", err)
	}
	is(t, "SetCPU after Destroy", g.Host.SetCPU(t.Context(), g.spec.VM, g.spec.CPU), hypervisor.ErrNotFound)
}

func (g *tested) startAgain(t *testing.T) {
	id := g.spec.Identity
	g.spec = g.Spec(g.spec.Name)
	g.spec.Identity = id
	g.spec.Generation++
	mark := g.events.mark()
	for range 2 {
		if err := g.Host.Define(t.Context(), g.spec); err != nil {
			t.Fatalf("Define: %v", err)
		}
	}
	if err := g.Host.Start(t.Context(), g.spec); err != nil {
		t.Fatalf("Start: %v", err)
	}
	g.events.await(t, g.Wait, mark, hypervisor.Started, g.spec.VM)
	vm := must(t, g.Host, g.spec.VM)
	if vm.Identity != g.spec.Identity {
		t.Errorf("identity after the second start is %+v, want %+v", vm.Identity, g.spec.Identity)
	}
	if vm.CPU.Cap != 0 {
		t.Errorf("a VM started without a cap has %+v", vm.CPU)
	}
}

func (g *tested) stop(t *testing.T) {
	// A guest that still boots may miss the request: it is made again, as an
	// operator would, until the guest is gone.
	mark := g.events.mark()
	again := time.Time{}
	g.eventually(t, "the guest powers off", func() (bool, string) {
		vm, ok := find(t, g.Host, g.spec.VM)
		if !ok {
			return true, ""
		}
		if now := time.Now(); now.After(again) {
			again = now.Add(g.Wait / 10)
			ctx, cancel := context.WithTimeout(t.Context(), g.Wait)
			defer cancel()
			if err := g.Host.Stop(ctx, g.spec.VM); err != nil {
				if _, still := find(t, g.Host, g.spec.VM); still {
					t.Fatalf("Stop: %v", err)
				}
			}
		}
		return false, fmt.Sprintf("%+v", vm)
	})
	if e := g.events.await(t, g.Wait, mark, hypervisor.Stopped, g.spec.VM); e.Reason == "" {
		t.Errorf("event of the end lacks a reason: %+v", e)
	}
	for range 2 {
		if err := g.Host.Undefine(t.Context(), g.spec); err != nil {
			t.Errorf("Undefine of a stopped VM: %v", err)
		}
	}
}

func (g *tested) killed(t *testing.T) {
	if g.Kill == nil {
		lacking(t, "Kill")
	}
	spec := g.Spec("ek-conf-killed-0")
	mark := g.events.mark()
	g.boot(t, spec)
	g.events.await(t, g.Wait, mark, hypervisor.Started, spec.VM)
	g.Kill(t, spec.VM)
	if e := g.events.await(t, g.Wait, mark, hypervisor.Stopped, spec.VM); e.Reason == "" {
		t.Errorf("event of the crash lacks a reason: %+v", e)
	}
	g.gone(t, g.Host, spec.VM)
}
