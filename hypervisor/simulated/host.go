package simulated

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"evenkeel/hypervisor"
)

// conn is one connection to a machine: what World.Host gives.
type conn struct {
	m      *machine
	closed chan struct{}
	once   sync.Once
}

var (
	_ hypervisor.Host       = (*conn)(nil)
	_ hypervisor.Addressing = (*conn)(nil)
)

// busyError says that a VM is being migrated: the call waits for the end of the migration, and then
// fails, as with the real hypervisor.
type busyError struct{ until <-chan struct{} }

func (busyError) Error() string { return "VM was being migrated" }

// do runs one call: it takes its time, meets the faults that wait for it, and
// runs f on the machine, locked and brought to now.
func (c *conn) do(ctx context.Context, call Call, subject string, takes time.Duration, f func(now int64) error) error {
	err := c.try(ctx, call, subject, takes, f)
	var busy busyError
	if errors.As(err, &busy) {
		if werr := c.wait(ctx, never, busy.until); werr != nil {
			err = werr
		} else {
			err = c.locked(func(int64) error {
				if c.m.ours(subject) == nil {
					return hypervisor.ErrNotFound
				}
				return err
			})
		}
	}
	if err != nil {
		if subject != "" {
			subject = " " + subject
		}
		return fmt.Errorf("simulated host %s: %s%s: %w", c.m.name, call, subject, err)
	}
	if c.m.w.journal != nil {
		c.m.w.compactIfDue()
	}
	return nil
}

func (c *conn) try(ctx context.Context, call Call, subject string, takes time.Duration, f func(now int64) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	fault := c.m.strike(call)
	if err := c.wait(ctx, c.m.w.timing.Call+takes, nil); err != nil {
		return err
	}
	if fault == nil {
		return c.locked(f)
	}
	if fault.After {
		if err := c.locked(f); err != nil {
			return err
		}
	}
	if !fault.Hang {
		return fault.Err
	}
	begun := time.Now()
	err := c.wait(ctx, never, nil)
	if fault.Stuck && ctx.Err() == nil {
		c.m.mu.Lock()
		defer c.m.mu.Unlock()
		h := hypervisor.Hung{Call: strings.TrimSpace(string(call) + " " + subject), VM: subject, Since: begun}
		c.m.hung = append(c.m.hung, h)
		return fmt.Errorf("the hypervisor does not answer: %s has been waiting for %s: %w", h.Call, time.Since(begun), hypervisor.ErrUnavailable)
	}
	return err
}

// Hanging implements hypervisor.Hanging.
func (c *conn) Hanging() []hypervisor.Hung {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	return slices.Clone(c.m.hung)
}

// locked runs f on the machine, with its lock held, if the hypervisor is reachable.
func (c *conn) locked(f func(now int64) error) error {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if err := c.reachable(); err != nil {
		return err
	}
	return f(c.m.advance(c.m.w.now()))
}

// reachable returns the reason why the hypervisor is not reachable, or nil. The machine is locked.
func (c *conn) reachable() error {
	select {
	case <-c.closed:
		return fmt.Errorf("connection is closed: %w", hypervisor.ErrUnavailable)
	default:
	}
	switch {
	case c.m.absent:
		return fmt.Errorf("no host of that name: %w", hypervisor.ErrUnavailable)
	case c.m.ended:
		return fmt.Errorf("world is closed: %w", hypervisor.ErrUnavailable)
	case c.m.off:
		return fmt.Errorf("host is off: %w", hypervisor.ErrUnavailable)
	case c.m.disconnected:
		return fmt.Errorf("daemon is stopped: %w", hypervisor.ErrUnavailable)
	}
	return nil
}

// lost says whether the hypervisor is not reachable by this connection any more.
func (c *conn) lost() bool {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	return c.reachable() != nil
}

// wait lets d pass, or until is closed, but no longer than the call's time-out.
func (c *conn) wait(ctx context.Context, d time.Duration, until <-chan struct{}) error {
	if d <= 0 {
		return ctx.Err()
	}
	timeout := c.m.w.timing.Timeout
	passed := make(chan struct{})
	stop := c.m.w.clock.AfterFunc(min(d, timeout), func() { close(passed) })
	defer stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.closed:
		return fmt.Errorf("connection is closed: %w", hypervisor.ErrUnavailable)
	case <-until:
		return nil
	case <-passed:
		if d > timeout {
			return fmt.Errorf("no answer within %v: %w", timeout, hypervisor.ErrUnavailable)
		}
		return nil
	}
}

// ours finds a VM of ours. The machine is locked.
func (m *machine) ours(id string) *vm {
	if id == "" {
		return nil
	}
	return m.byID[id]
}

// Capacity is the machine's.
func (c *conn) Capacity(ctx context.Context) (hypervisor.Capacity, error) {
	var r hypervisor.Capacity
	err := c.do(ctx, CallCapacity, "", 0, func(int64) error {
		r = hypervisor.Capacity{Name: c.m.name, CPU: c.m.cpu, Memory: c.m.memory, Software: "simulated"}
		return nil
	})
	return r, err
}

// List is every VM on the machine, in order of arrival.
func (c *conn) List(ctx context.Context) ([]hypervisor.VM, error) {
	var r []hypervisor.VM
	err := c.do(ctx, CallList, "", 0, func(now int64) error {
		r = make([]hypervisor.VM, len(c.m.vms))
		for i, v := range c.m.vms {
			r[i] = hypervisor.VM{
				Identity: v.spec.Identity, Foreign: v.foreign, Leased: v.spec.Leased, Name: v.spec.Name, State: v.state(), Leftover: v.leftover, Standing: v.paused && !v.leftover, Started: time.Unix(0, v.bootAt).UTC(),
				VCPUs: v.spec.VCPUs, Memory: v.spec.Memory, Balloon: v.balloonNow(now, c.m.w.timing.Balloon), CPU: v.spec.CPU,
			}
		}
		return nil
	})
	return r, err
}

// checkCPU says what is wrong with an allocation.
func checkCPU(cpu hypervisor.CPU) error {
	for _, x := range []float64{cpu.Cap, cpu.Weight} {
		if math.IsNaN(x) || math.IsInf(x, 0) || x < 0 {
			return fmt.Errorf("CPU %+v: %w", cpu, hypervisor.ErrInvalid)
		}
	}
	return nil
}

// checkSpec says what is wrong with a spec.
func checkSpec(s hypervisor.Spec) error {
	switch {
	case s.VM == "":
		return fmt.Errorf("no id: %w", hypervisor.ErrInvalid)
	case s.Name == "":
		return fmt.Errorf("no name: %w", hypervisor.ErrInvalid)
	case s.VCPUs < 1:
		return fmt.Errorf("%d vCPUs: %w", s.VCPUs, hypervisor.ErrInvalid)
	case s.Memory < 1 || s.Balloon < 1 || s.Balloon > s.Memory:
		return fmt.Errorf("balloon of %d in a memory of %d bytes: %w", s.Balloon, s.Memory, hypervisor.ErrInvalid)
	}
	return checkCPU(s.CPU)
}

// Define notes that a VM may be started here.
func (c *conn) Define(ctx context.Context, spec hypervisor.Spec) error {
	return c.do(ctx, CallDefine, spec.VM, c.m.w.timing.Define, func(int64) error {
		if err := checkSpec(spec); err != nil {
			return err
		}
		if c.m.defined[spec.VM] {
			return nil
		}
		return c.m.commit(&record{Op: opDefine, VM: spec.VM})
	})
}

// Start runs a defined VM. Its guest boots with all its memory and gives back
// what is above the balloon when it has booted.
func (c *conn) Start(ctx context.Context, spec hypervisor.Spec) error {
	return c.do(ctx, CallStart, spec.VM, c.m.w.timing.Start, func(now int64) error {
		if err := checkSpec(spec); err != nil {
			return err
		}
		if c.m.byID[spec.VM] != nil {
			return hypervisor.ErrExists
		}
		if v := c.m.byName[spec.Name]; v != nil {
			return fmt.Errorf("name %s is that of VM %q: %w", spec.Name, v.spec.VM, hypervisor.ErrExists)
		}
		if !c.m.defined[spec.VM] {
			return fmt.Errorf("VM is not defined")
		}
		boot := now + int64(c.m.w.jitter(c.m.w.timing.Boot, spec.Identity, "boot"))
		return c.m.commit(&record{Op: opStart, VM: spec.VM, State: &saved{
			Spec: spec, BootAt: boot, GoneAt: never, Balloon: spec.Memory, BalloonAt: now,
		}})
	})
}

// Stop asks the guest to power off, which it does once it has booted.
func (c *conn) Stop(ctx context.Context, id string) error {
	return c.do(ctx, CallStop, id, 0, func(now int64) error {
		v := c.m.ours(id)
		if v == nil || v.incoming {
			return hypervisor.ErrNotFound
		}
		if v.ignoresStop || v.goneAt != never {
			return nil
		}
		gone := max(now, v.bootAt) + int64(c.m.w.jitter(c.m.w.timing.Shutdown, v.spec.Identity, "shutdown"))
		return c.m.commit(&record{Op: opStop, VM: id, GoneAt: gone})
	})
}

// Destroy ends a VM at once.
func (c *conn) Destroy(ctx context.Context, id string) error {
	return c.do(ctx, CallDestroy, id, c.m.w.timing.Destroy, func(int64) error {
		v := c.m.ours(id)
		if v == nil {
			return nil
		}
		if v.incoming && !v.leftover {
			return fmt.Errorf("VM is coming in by migration")
		}
		return c.m.commit(&record{Op: opEnd, VM: id, Reason: "destroyed"})
	})
}

// Reset has a guest boot again. One that was asked to power off still does, once it has booted.
func (c *conn) Reset(ctx context.Context, id string, generation uint64) error {
	return c.do(ctx, CallReset, id, 0, func(now int64) error {
		v := c.m.ours(id)
		switch {
		case v == nil || v.incoming || v.spec.Generation != generation:
			return hypervisor.ErrNotFound
		case v.moving != nil:
			return busyError{v.moving}
		}
		boot := now + int64(c.m.w.jitter(c.m.w.timing.Boot, v.spec.Identity, "boot"))
		return c.m.commit(&record{Op: opReset, VM: id, BootAt: boot})
	})
}

// Resume has a paused guest go on: one that arrived so, or the source of a migration that has ended.
func (c *conn) Resume(ctx context.Context, id string) error {
	return c.do(ctx, CallResume, id, 0, func(int64) error {
		v := c.m.ours(id)
		switch {
		case v == nil:
			return hypervisor.ErrNotFound
		case v.incoming && !v.leftover:
			return fmt.Errorf("VM is coming in by migration: %w", hypervisor.ErrInvalid)
		case !v.paused:
			return nil
		}
		return c.m.commit(&record{Op: opResume, VM: id})
	})
}

// Undefine forgets a VM that does not run.
func (c *conn) Undefine(ctx context.Context, spec hypervisor.Spec) error {
	return c.do(ctx, CallUndefine, spec.VM, 0, func(int64) error {
		if c.m.ours(spec.VM) != nil {
			return fmt.Errorf("VM runs: %w", hypervisor.ErrExists)
		}
		if !c.m.defined[spec.VM] {
			return nil
		}
		return c.m.commit(&record{Op: opUndefine, VM: spec.VM})
	})
}

// SetCPU changes a VM's share from now on.
func (c *conn) SetCPU(ctx context.Context, id string, cpu hypervisor.CPU) error {
	return c.do(ctx, CallSetCPU, id, c.m.w.timing.SetCPU, func(int64) error {
		v := c.m.ours(id)
		if v == nil || v.incoming {
			return hypervisor.ErrNotFound
		}
		if err := checkCPU(cpu); err != nil {
			return err
		}
		if v.moving != nil {
			return busyError{v.moving}
		}
		if v.spec.CPU == cpu {
			return nil
		}
		return c.m.commit(&record{Op: opCPU, VM: id, CPU: &cpu})
	})
}

// SetBalloon gives the guest a target, which it follows from when it has booted.
func (c *conn) SetBalloon(ctx context.Context, id string, bytes int64) error {
	return c.do(ctx, CallSetBalloon, id, 0, func(int64) error {
		v := c.m.ours(id)
		if v == nil || v.incoming {
			return hypervisor.ErrNotFound
		}
		if bytes < 1 || bytes > v.spec.Memory {
			return fmt.Errorf("balloon of %d in a memory of %d bytes: %w", bytes, v.spec.Memory, hypervisor.ErrInvalid)
		}
		if v.moving != nil {
			return busyError{v.moving}
		}
		if v.spec.Balloon == bytes {
			return nil
		}
		return c.m.commit(&record{Op: opBalloon, VM: id, Bytes: bytes})
	})
}

// Stats samples all VMs of ours at one instant.
func (c *conn) Stats(ctx context.Context) ([]hypervisor.Stats, error) {
	var r []hypervisor.Stats
	err := c.do(ctx, CallStats, "", 0, func(now int64) error {
		r = make([]hypervisor.Stats, 0, len(c.m.vms))
		at := time.Unix(0, now).UTC()
		for _, v := range c.m.vms {
			if v.foreign || v.incoming {
				continue
			}
			used, balloon := v.vcpuTime(now), v.balloonNow(now, c.m.w.timing.Balloon)
			x := hypervisor.Stats{
				Identity: v.spec.Identity, Name: v.spec.Name, At: at,
				VCPUTime: time.Duration(used), TotalTime: time.Duration(used * (1 + emulator)),
				Throttled: time.Duration(v.throttled(now)), Balloon: balloon, Resident: balloon + overhead,
				Unused: hypervisor.Unknown, Available: hypervisor.Unknown,
				SwapIn: hypervisor.Unknown, SwapOut: hypervisor.Unknown, MajorFaults: hypervisor.Unknown,
			}
			v.report(&x, now, balloon)
			r = append(r, x)
		}
		return nil
	})
	return r, err
}

// Addresses implements hypervisor.Addressing: a VM on a network has one, the same on every host, from when its guest has booted.
func (c *conn) Addresses(context.Context) (map[string][]netip.Addr, error) {
	out := map[string][]netip.Addr{}
	err := c.locked(func(now int64) error {
		for _, v := range c.m.vms {
			if !v.foreign && !v.idle() && v.spec.Network != "" && now >= v.bootAt {
				sum := sha256.Sum256([]byte(v.spec.VM))
				out[v.spec.VM] = []netip.Addr{netip.AddrFrom4([4]byte{10, sum[0], sum[1], sum[2]})}
			}
		}
		return nil
	})
	return out, err
}

// Pressure is not simulated: it is not known.
func (c *conn) Pressure(ctx context.Context) (hypervisor.Pressure, error) {
	err := c.do(ctx, CallPressure, "", 0, func(int64) error { return nil })
	return hypervisor.Pressure{CPU: hypervisor.Unknown, Memory: hypervisor.Unknown, IO: hypervisor.Unknown, Available: hypervisor.Unknown}, err
}

// Events says what happens on the machine.
func (c *conn) Events(ctx context.Context) (<-chan hypervisor.Event, error) {
	var r <-chan hypervisor.Event
	err := c.do(ctx, CallEvents, "", 0, func(int64) error {
		r = c.m.subscribe(ctx, c.closed)
		return nil
	})
	return r, err
}

// Console is a VM's serial console. It outlives ctx.
func (c *conn) Console(ctx context.Context, id string) (io.ReadWriteCloser, error) {
	var r io.ReadWriteCloser
	err := c.do(ctx, CallConsole, id, 0, func(int64) error {
		v := c.m.ours(id)
		if v == nil || v.incoming {
			return hypervisor.ErrNotFound
		}
		r = c.m.attach(v)
		return nil
	})
	return r, err
}

// Close ends the connection, its calls and its channels of events. Consoles stay.
func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}
