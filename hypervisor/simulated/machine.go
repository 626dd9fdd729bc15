package simulated

import (
	"math"
	"sync"
	"time"

	"evenkeel/hypervisor"
)

// never is a time that does not come.
const never = math.MaxInt64

// machine is one host. Everything below mu is guarded by it. Times are world
// time in ns. Many fields: all of it stands under one lock and one clock.
type machine struct {
	w      *World
	index  int // in World.machines; locks of several machines are taken in this order
	name   string
	cpu    float64
	memory int64
	absent bool // not in the world at all

	mu           sync.Mutex
	ended        bool // the world was closed
	off          bool
	disconnected bool
	vms          []*vm // in order of arrival
	byID         map[string]*vm
	byName       map[string]*vm
	defined      map[string]bool
	peak         Peak

	// CPU shares are valid from at until next. dirty: something changed at the instant at, and the
	// shares must be worked out again before time goes on.
	at    int64
	dirty bool
	next  int64
	work  []contender // reused by recompute

	subscribers map[*subscriber]struct{}
	loseEvents  int
	keepSources int // so many hand-overs from here are to leave their source behind
	loseAnswers int // so many hand-overs from here are to lose the target's answer
	faults      []*fault
	noRoute     map[string]hypervisor.Obstacle // to other hosts, by name; "": to all
	hung        []hypervisor.Hung
}

func newMachine(w *World, index int, x Machine) *machine {
	return &machine{
		w: w, index: index, name: x.Name, cpu: x.CPU, memory: x.Memory,
		byID: make(map[string]*vm), byName: make(map[string]*vm), defined: make(map[string]bool),
		at: w.base, next: never, subscribers: make(map[*subscriber]struct{}),
	}
}

// vm is one VM on a machine, ours or foreign, guarded by the machine's mu.
// Many fields: all of it stands under the lock and the clock of one machine.
type vm struct {
	spec     hypervisor.Spec // CPU and Balloon as they are now to be; a foreign VM has no Identity
	foreign  bool
	incoming bool // the target side of a migration, or leftover: takes memory, runs nothing
	leftover bool // the source of a migration that has ended, paused
	paused   bool // the guest stands still, and its own time with it
	pausedAt int64
	load     Workload
	guest    Guest
	memory   guestMemory
	bootAt   int64 // guest computes and has its balloon driver
	goneAt   int64 // guest is off; never until it was asked to

	used, throttledFor float64 // ns of vCPU time, and ns that threads were held back by the cap, up to since
	since              int64
	rate, throttling   float64 // cores used, and held back, from since on

	balloon     int64 // bytes at balloonAt
	balloonAt   int64
	balloonSeq  int // counts changes, so that the timer of an old one finds itself stale
	stuck       bool
	ignoresStop bool

	console *console
	moving  chan struct{} // closed at the end of the migration that is under way
	move    *move         // the migration itself
	arrival hypervisor.Moved
}

// idle: it takes memory and runs nothing.
func (v *vm) idle() bool { return v.incoming || v.paused }

// guestTime is now, or when a paused guest was paused: by it a guest boots, wants memory, follows its balloon and
// powers off.
func (v *vm) guestTime(now int64) int64 {
	if v.paused {
		return v.pausedAt
	}
	return now
}

// pause has the guest stand still from now on. It is on no machine yet.
func (v *vm) pause(now int64) { v.paused, v.pausedAt = true, now }

// resume has a paused guest go on at m.at as if no time had passed.
func (m *machine) resume(v *vm) {
	if !v.paused {
		return
	}
	stood := m.at - v.pausedAt
	v.bootAt, v.balloonAt, v.memory.Since = v.bootAt+stood, v.balloonAt+stood, v.memory.Since+stood
	if v.goneAt != never {
		v.goneAt += stood
	}
	v.paused, v.incoming, v.leftover, v.arrival = false, false, false, hypervisor.Moved{}
	m.w.ran(v.spec.Identity, m.name)
	m.changed()
	m.armStop(v)
	m.armBalloon(v)
	m.armMemory(v)
	m.speak(v)
	m.notify(hypervisor.Resumed, v, "unpaused")
}

// goOn has a guest resume or boot again, as the record says.
func (m *machine) goOn(v *vm, r *record) {
	if r.Op == opResume {
		m.resume(v)
		return
	}
	m.reset(v, r.BootAt)
}

// reset has a guest boot again, until bootAt. Its balloon is let go.
func (m *machine) reset(v *vm, bootAt int64) {
	v.fold(m.at)
	v.bootAt, v.balloon, v.balloonAt = bootAt, v.spec.Memory, m.at
	if v.goneAt != never {
		v.goneAt = max(v.goneAt, bootAt)
	}
	m.changed()
	m.armStop(v)
	m.armBalloon(v)
	m.armMemory(v)
}

// endsAt is when the guest will be off, as things stand.
func (v *vm) endsAt() int64 {
	if v.paused {
		return never
	}
	return v.goneAt
}

// vcpuTime is the CPU time used at an instant for which shares are settled.
func (v *vm) vcpuTime(now int64) float64 { return v.used + v.rate*float64(now-v.since) }

// throttled is how long its threads were held back by its cap, ns, as vcpuTime.
func (v *vm) throttled(now int64) float64 { return v.throttledFor + v.throttling*float64(now-v.since) }

// fold makes now the instant that the VM's CPU time is counted from.
func (v *vm) fold(now int64) {
	v.used, v.throttledFor, v.since = v.vcpuTime(now), v.throttled(now), now
}

// balloonNow is how much memory the guest has.
func (v *vm) balloonNow(now int64, speed int64) int64 {
	from := max(v.balloonAt, v.bootAt)
	now = v.guestTime(now)
	if v.stuck || v.incoming && !v.leftover || v.memory.Deflated || now < from {
		return v.balloon
	}
	by := int64(math.MaxInt64)
	if speed > 0 {
		by = int64(min(float64(speed)*float64(now-from)/1e9, math.MaxInt64/2))
	}
	if to := max(v.spec.Balloon, min(v.balloon, v.minBalloon())); v.spec.Balloon < v.balloon {
		return v.balloon - min(by, v.balloon-to)
	}
	return v.balloon + min(by, v.spec.Balloon-v.balloon)
}

// balloonDone is when the balloon will be where it is to be.
func (v *vm) balloonDone(speed int64) int64 {
	from := max(v.balloonAt, v.bootAt)
	if speed <= 0 {
		return from
	}
	return from + int64(math.Ceil(math.Abs(float64(v.spec.Balloon-v.balloon))/float64(speed)*1e9))
}

// retarget gives the balloon a new target at now.
func (v *vm) retarget(now, speed, bytes int64) {
	v.foldMemory(now, speed)
	v.balloon = v.balloonNow(now, speed)
	v.balloonAt, v.memory.Deflated = v.guestTime(now), false
	v.spec.Balloon = bytes
	v.balloonSeq++
}

// limit is the most CPU that the VM can use now, until when that is so, and the cores that it would use beyond its cap.
func (v *vm) limit(now int64) (cores float64, until int64, throttling float64) {
	if v.idle() {
		return 0, never, 0
	}
	if now < v.bootAt {
		return 0, v.bootAt, 0
	}
	cores, end := wants(v.load, time.Duration(now-v.bootAt))
	until = never
	if int64(end) < never-v.bootAt {
		until = v.bootAt + int64(end)
	}
	cores = min(cores, float64(v.spec.VCPUs))
	if limit := v.spec.CPU.Cap; limit > 0 && cores > limit {
		cores, throttling = limit, cores-limit
	}
	return cores, until, throttling
}

// advance brings the machine to now: shares are worked out again at each change of a
// workload since, and VMs whose time has come are gone. It returns now, or the
// machine's own time if that is later.
func (m *machine) advance(now int64) int64 {
	now = max(now, m.at)
	for {
		if m.dirty && now > m.at {
			m.recompute()
		}
		if m.dirty || m.next > now {
			break
		}
		m.at, m.dirty = m.next, true
		for i := 0; i < len(m.vms); {
			if v := m.vms[i]; v.endsAt() <= m.at {
				m.remove(v, hypervisor.Stopped, "shutdown")
			} else {
				i++
			}
		}
	}
	m.at = now
	return now
}

// recompute works out the CPU each VM gets from m.at on, and how long that holds.
func (m *machine) recompute() {
	if cap(m.work) < len(m.vms) {
		m.work = make([]contender, len(m.vms), 2*len(m.vms))
	}
	cs := m.work[:len(m.vms)]
	m.next = never
	for i, v := range m.vms {
		limit, until, throttling := v.limit(m.at)
		if v.throttling != throttling {
			v.fold(m.at)
			v.throttling = throttling
		}
		cs[i] = contender{limit: limit, weight: max(v.spec.CPU.Weight, minWeight)}
		wanted, grew := v.wantsMemory(m.at, m.w.timing.Balloon)
		if grew { // by itself
			m.promised()
			m.notify(hypervisor.BalloonMoved, v, "")
		}
		m.next = min(m.next, until, wanted, v.endsAt())
	}
	share(m.cpu, cs)
	for i, v := range m.vms {
		if v.rate != cs[i].gets {
			v.fold(m.at)
			v.rate = cs[i].gets
		}
	}
	m.dirty = false
}

// add puts a VM on the machine at m.at. Its figures must be folded to m.at.
func (m *machine) add(v *vm) {
	m.vms = append(m.vms, v)
	m.byName[v.spec.Name] = v
	if !v.foreign {
		m.byID[v.spec.VM] = v
		if !v.idle() {
			m.w.ran(v.spec.Identity, m.name)
		}
	}
	m.changed()
}

// remove takes a VM off the machine at m.at and reports it.
func (m *machine) remove(v *vm, kind hypervisor.EventKind, reason string) {
	for i, x := range m.vms {
		if x == v {
			m.vms = append(m.vms[:i], m.vms[i+1:]...)
			break
		}
	}
	delete(m.byName, v.spec.Name)
	if !v.foreign {
		delete(m.byID, v.spec.VM)
		if !v.idle() {
			m.w.left(v.spec.Identity, m.name)
		}
	}
	if v.console != nil {
		v.console.end()
	}
	m.dirty = true
	if kind != "" && !v.incoming {
		m.notify(kind, v, reason)
	}
}

// changed notes a change at m.at: shares are to be worked out again, and the
// peaks looked at. Between changes neither promise can grow: a balloon moves
// towards its target, and the larger of the two counts.
func (m *machine) changed() {
	m.dirty = true
	m.promised()
}

// promised looks at the peaks.
func (m *machine) promised() {
	var p Peak
	for _, v := range m.vms {
		p.Memory += max(v.spec.Balloon, v.balloonNow(m.at, m.w.timing.Balloon))
		switch {
		case v.idle():
		case v.spec.CPU.Cap > 0:
			p.CPU += v.spec.CPU.Cap
		default:
			p.CPU += float64(v.spec.VCPUs)
		}
	}
	m.peak.CPU = max(m.peak.CPU, p.CPU)
	m.peak.Memory = max(m.peak.Memory, p.Memory)
}

// armStop has the end of a guest that was asked to stop come in time.
func (m *machine) armStop(v *vm) {
	if !m.w.restoring && !v.idle() && v.goneAt != never {
		m.when(v.goneAt, func() {}) // advance ends it
	}
}

// armBalloon sets a timer that sends the event of a balloon's arrival when it is due.
func (m *machine) armBalloon(v *vm) {
	if m.w.restoring || v.idle() || v.stuck || v.balloon == v.spec.Balloon {
		return
	}
	done := v.balloonDone(m.w.timing.Balloon)
	if done < m.at {
		return // the event was sent already, by an earlier process or on another host
	}
	seq := v.balloonSeq
	m.when(done, func() {
		if m.byName[v.spec.Name] == v && v.balloonSeq == seq && !v.stuck {
			m.notify(hypervisor.BalloonMoved, v, "")
		}
	})
}

// when calls f once at an instant, with the machine locked and brought there.
func (m *machine) when(instant int64, f func()) {
	m.w.clock.AfterFunc(time.Duration(instant-m.w.now()), func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.ended {
			return
		}
		m.advance(m.w.now())
		f()
	})
}

// state is what List says of a VM.
func (v *vm) state() hypervisor.State {
	switch {
	case v.incoming:
		return hypervisor.Incoming
	case v.paused:
		return hypervisor.Paused
	case v.goneAt != never:
		return hypervisor.Stopping
	default:
		return hypervisor.Running
	}
}

// hangUp ends all consoles.
func (m *machine) hangUp() {
	for _, v := range m.vms {
		if v.console != nil {
			v.console.end()
		}
	}
}
