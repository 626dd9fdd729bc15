package simulated

import (
	"fmt"

	"evenkeel/hypervisor"
)

// Call names a method of hypervisor.Host.
type Call string

// The calls that a fault can strike.
const (
	AnyCall        Call = ""
	CallCapacity   Call = "capacity"
	CallList       Call = "list"
	CallDefine     Call = "define"
	CallStart      Call = "start"
	CallStop       Call = "stop"
	CallDestroy    Call = "destroy"
	CallUndefine   Call = "undefine"
	CallSetCPU     Call = "set CPU of"
	CallSetBalloon Call = "set balloon of"
	CallStats      Call = "stats"
	CallPressure   Call = "pressure"
	CallEvents     Call = "events"
	CallConsole    Call = "console of"
	CallMigrate    Call = "migrate"
	CallResume     Call = "resume"
	CallReset      Call = "reset"
	CallAbort      Call = "abort the migration of"
	CallArrival    Call = "arrival of"
	CallPartner    Call = "partner"
	CallCheckPeer  Call = "check the way to"
)

// Fault strikes one call, or some in a row, on one host.
type Fault struct {
	Call  Call  // which kind; AnyCall for all
	Nth   int   // the first call that it strikes, counted from its injection; 0 or 1 = the next
	Times int   // how many calls in a row; 0 = 1, negative = all from then on
	Err   error // what the call fails with; nil = hypervisor.ErrUnavailable
	After bool  // the call takes effect before it fails, as when the answer is lost
	Hang  bool  // the call does not answer until its context or time-out ends
	Stuck bool  // with Hang: it goes on after that, see hypervisor.Hanging, until ClearFaults, Disconnect or PowerOff
}

// fault is a Fault that waits for its calls.
type fault struct {
	Fault
	skip int // calls to let pass
	left int // calls to strike; negative: no end
}

// strike finds the fault that the call meets, if any, and counts the call
// against all that wait for one of its kind.
func (m *machine) strike(call Call) *Fault {
	m.mu.Lock()
	defer m.mu.Unlock()
	var struck *Fault
	kept := m.faults[:0]
	for _, f := range m.faults {
		if f.Call == AnyCall || f.Call == call {
			switch {
			case f.skip > 0:
				f.skip--
			case struck == nil:
				struck = &f.Fault
				if f.left > 0 {
					f.left--
				}
			}
		}
		if f.left != 0 {
			kept = append(kept, f)
		}
	}
	clear(m.faults[len(kept):])
	m.faults = kept
	return struck
}

// machine finds a host by name, for methods that inject faults.
func (w *World) machine(host string) (*machine, error) {
	if m := w.byName[host]; m != nil {
		return m, nil
	}
	return nil, fmt.Errorf("simulated host %s: there is none", host)
}

// on runs f on a host, locked and advanced to now, whether or not its hypervisor is reachable.
func (w *World) on(host string, f func(m *machine) error) error {
	m, err := w.machine(host)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return fmt.Errorf("simulated host %s: world is closed", host)
	}
	m.advance(w.now())
	if err := f(m); err != nil {
		return fmt.Errorf("simulated host %s: %w", host, err)
	}
	return nil
}

// Inject lets a fault wait for its calls on a host.
func (w *World) Inject(host string, f Fault) error {
	return w.on(host, func(m *machine) error {
		if f.Err == nil {
			f.Err = fmt.Errorf("injected fault: %w", hypervisor.ErrUnavailable)
		}
		left := f.Times
		if left == 0 {
			left = 1
		}
		m.faults = append(m.faults, &fault{Fault: f, skip: max(f.Nth-1, 0), left: left})
		return nil
	})
}

// ClearFaults removes the faults that still wait on a host, and ends the calls that hang.
func (w *World) ClearFaults(host string) error {
	return w.on(host, func(m *machine) error {
		m.faults, m.hung = nil, nil
		return nil
	})
}

// NoRoute keeps a host from sending VMs to another, or to all ("") others, until it is called with the zero value.
func (w *World) NoRoute(from, to string, why hypervisor.Obstacle) error {
	return w.on(from, func(m *machine) error {
		if m.noRoute == nil {
			m.noRoute = map[string]hypervisor.Obstacle{}
		}
		m.noRoute[to] = why
		return nil
	})
}

// routeTo another host: what is in the way. The machine is locked.
func (m *machine) routeTo(to string) hypervisor.Obstacle {
	if all := m.noRoute[""]; all.Why != "" {
		return all
	}
	return m.noRoute[to]
}

// PowerOff takes a host's power away: its VMs are gone without an event,
// its disks stay.
func (w *World) PowerOff(host string) error {
	return w.on(host, func(m *machine) error {
		if m.off {
			return nil
		}
		if !m.down() {
			m.publish(hypervisor.Event{Kind: hypervisor.Disconnected, Reason: "host is off"})
		}
		m.hung = nil
		return m.commit(&record{Op: opOff})
	})
}

// PowerOn boots the host: nothing runs on it.
func (w *World) PowerOn(host string) error {
	return w.on(host, func(m *machine) error {
		if !m.off {
			return nil
		}
		if err := m.commit(&record{Op: opOn}); err != nil {
			return err
		}
		if !m.down() {
			m.publish(hypervisor.Event{Kind: hypervisor.Resync, Reason: "host was switched on"})
		}
		return nil
	})
}

// Disconnect stops a host's hypervisor daemon. VMs run on; consoles end.
func (w *World) Disconnect(host string) error {
	return w.on(host, func(m *machine) error {
		if m.disconnected {
			return nil
		}
		if !m.down() {
			m.publish(hypervisor.Event{Kind: hypervisor.Disconnected, Reason: "daemon was stopped"})
		}
		m.disconnected, m.hung = true, nil
		m.hangUp()
		return nil
	})
}

// Reconnect starts the daemon again.
func (w *World) Reconnect(host string) error {
	return w.on(host, func(m *machine) error {
		if !m.disconnected {
			return nil
		}
		m.disconnected = false
		if !m.down() {
			m.publish(hypervisor.Event{Kind: hypervisor.Resync, Reason: "daemon was started"})
		}
		return nil
	})
}

// Crash ends a VM of ours as the death of its process would.
func (w *World) Crash(host, id string) error {
	return w.on(host, func(m *machine) error {
		if v := m.ours(id); v == nil || v.incoming {
			return fmt.Errorf("crash %s: %w", id, hypervisor.ErrNotFound)
		}
		return m.commit(&record{Op: opEnd, VM: id, Reason: "crashed"})
	})
}

// StickBalloon keeps a guest from following its balloon, or lets it again.
// Calls that set the balloon succeed all the same.
func (w *World) StickBalloon(host, id string, stuck bool) error {
	return w.on(host, func(m *machine) error {
		v := m.ours(id)
		if v == nil {
			return fmt.Errorf("stick balloon of %s: %w", id, hypervisor.ErrNotFound)
		}
		if v.stuck != stuck {
			v.retarget(m.at, m.w.timing.Balloon, v.spec.Balloon)
			v.stuck = stuck
			m.armBalloon(v)
		}
		return nil
	})
}

// IgnoreStop lets a guest take no notice when it is asked to power off.
func (w *World) IgnoreStop(host, id string, ignore bool) error {
	return w.on(host, func(m *machine) error {
		v := m.ours(id)
		if v == nil {
			return fmt.Errorf("let %s ignore its stop: %w", id, hypervisor.ErrNotFound)
		}
		v.ignoresStop = ignore
		return nil
	})
}

// KeepSources has the next n hand-overs from a host leave their paused source there, as when libvirt ends in the last phase
// of a migration. A hand-over of a guest that arrives paused then ends with hypervisor.ErrEndUnknown.
func (w *World) KeepSources(host string, n int) error {
	return w.on(host, func(m *machine) error {
		m.keepSources = max(n, 0)
		return nil
	})
}

// LoseAnswer has the next n hand-overs from a host lose the target's answer, as when the network between the two fails at that
// instant: the guest goes on here, and the target has it, too. A hand-over by post-copy loses none, because its source cannot go
// on.
func (w *World) LoseAnswer(host string, n int) error {
	return w.on(host, func(m *machine) error {
		m.loseAnswers = max(n, 0)
		return nil
	})
}

// LeaveBehind puts a leftover of a VM on a host, the paused source of a migration that has ended,
// wherever the VM runs.
func (w *World) LeaveBehind(host string, spec hypervisor.Spec) error {
	return w.on(host, func(m *machine) error {
		if m.byID[spec.VM] != nil || m.byName[spec.Name] != nil {
			return fmt.Errorf("leave %s behind: %w", spec.Name, hypervisor.ErrExists)
		}
		return m.commit(&record{Op: opVM, State: &saved{
			Spec: spec, Leftover: true, Paused: true, PausedAt: m.at, BootAt: m.at, GoneAt: never, Balloon: spec.Balloon, BalloonAt: m.at,
		}})
	})
}

// LoseEvents loses the next n events of a host's VMs.
func (w *World) LoseEvents(host string, n int) error {
	return w.on(host, func(m *machine) error {
		m.loseEvents = max(n, 0)
		return nil
	})
}

// AddForeign runs a VM that is not ours: spec without an identity. It is booted
// at once.
func (w *World) AddForeign(host string, spec hypervisor.Spec) error {
	return w.on(host, func(m *machine) error {
		named := spec
		named.Identity = hypervisor.Identity{VM: "foreign"}
		if err := checkSpec(named); err != nil {
			return fmt.Errorf("foreign VM %s: %w", spec.Name, err)
		}
		if m.off {
			return fmt.Errorf("foreign VM %s: host is off: %w", spec.Name, hypervisor.ErrUnavailable)
		}
		if m.byName[spec.Name] != nil {
			return fmt.Errorf("foreign VM %s: %w", spec.Name, hypervisor.ErrExists)
		}
		spec.Identity = hypervisor.Identity{}
		return m.commit(&record{Op: opStart, State: &saved{
			Spec: spec, Foreign: true, BootAt: m.at, GoneAt: never, Balloon: spec.Balloon, BalloonAt: m.at,
		}})
	})
}

// RemoveForeign ends a VM that is not ours, by its name.
func (w *World) RemoveForeign(host, name string) error {
	return w.on(host, func(m *machine) error {
		if v := m.byName[name]; v == nil || !v.foreign {
			return fmt.Errorf("foreign VM %s: %w", name, hypervisor.ErrNotFound)
		}
		return m.commit(&record{Op: opEnd, Name: name, Reason: "destroyed"})
	})
}
