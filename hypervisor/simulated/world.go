// Package simulated is a hypervisor.Host without a hypervisor: a World of many
// hosts whose VMs use CPU by workloads over time, are held to caps and fair
// shares, follow their balloons, boot, stop and migrate in their own time, and
// have the faults that a test injects.
//
// It serves three ends: `vcd dev` on a machine without libvirt (the package's
// VMs can outlive the process, see Options.StateFile), tests of everything
// above the hypervisor with faults injected, and simulations of large clusters
// under a clock that is stepped.
//
// A World keeps no goroutine per VM. A VM's figures are functions of time,
// computed when a caller reads them, exact across every change of cap, weight,
// workload and of the other VMs on its host. Reading changes nothing, so that results do not
// depend on how often a caller reads. Only events that are sent at their time (a guest that
// powered off, a balloon that arrived) need a timer.
//
// It never makes up what it has no model for: guests do no disk or network
// I/O, and those whose memory is not described (Options.Guest) report none.
package simulated

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"evenkeel/hypervisor"
)

// Options of a World. The zero value is 12 hosts of 32 cores and 128 GiB under the
// real clock.
type Options struct {
	// Hosts is how many equal hosts there are, named h1, h2, ...; 0 = 12.
	Hosts int
	// CPU of each in cores; 0 = 32. Memory of each in bytes; 0 = 128 GiB.
	CPU    float64
	Memory int64
	// Machines, if there are any, are the hosts instead, unequal ones.
	Machines []Machine

	// Seed sets what differs from VM to VM by chance (Timing.Jitter). Equal seeds and
	// calls at equal times give equal worlds.
	Seed uint64
	// Clock is where time comes from; nil = package time.
	Clock Clock
	// Timing is how long things take; nil = DefaultTiming().
	Timing *Timing
	// Workload gives a VM its workload at its start, and again at a restore: it must
	// depend on the spec alone. nil = FromCmdline.
	Workload func(hypervisor.Spec) Workload
	// Guest says how a VM's guest deals with memory, likewise. nil = GuestFromCmdline.
	Guest func(hypervisor.Spec) Guest
	// DirtyRate is how fast a guest dirties memory while it migrates, in
	// bytes per second; nil = 16 MiB/s for every guest.
	DirtyRate func(hypervisor.Spec) int64
	// Written is what a guest has written to its own disk, beyond the base image: what a move that copies
	// storage sends of it, in bytes. nil = 64 MiB, or Disk.Size if that is less.
	Written func(hypervisor.Spec) int64

	// StateFile, if set, keeps the world's VMs across processes: every change is
	// in the file before the call that made it returns, and New goes on from
	// there as if the VMs had run all the while. For this, time is the wall
	// clock's. The file survives a killed process, not a machine that lost
	// power, as is fitting for what it stands for. One World at a time can
	// have it.
	StateFile string
}

// Machine is one host of a World.
type Machine struct {
	Name   string
	CPU    float64 // cores
	Memory int64   // bytes
}

// Timing is how long things take. The zero value is a world in which all is
// instant.
type Timing struct {
	Call                           time.Duration // every call
	Define, Start, Destroy, SetCPU time.Duration // on top of Call
	Boot                           time.Duration // from Start until the guest computes and has a balloon driver
	Shutdown                       time.Duration // from Stop (or the end of boot, if later) until the guest is off
	Jitter                         float64       // Boot and Shutdown vary by this fraction to either side, 0 to 1
	Balloon                        int64         // bytes per second by which a guest follows its balloon; 0 = at once
	Timeout                        time.Duration // after which a call gives up by itself; 0 = 10 s
	Link                           int64         // bytes per second that a migration can send at most; 0 = 1 GiB/s
	Downtime                       time.Duration // what a migration may leave for the time the guest stands still; 0 = 300 ms
	Progress                       time.Duration // between two looks at a running migration; 0 = 100 ms
	Beat                           time.Duration // between two lines that a guest prints on its console; 0 = none
}

// DefaultTiming is that of a quick host: a thousand VMs asked for one after the other
// start in about twenty seconds, and on twelve hosts side by side in two.
func DefaultTiming() Timing {
	return Timing{
		Call: time.Millisecond, Define: 4 * time.Millisecond, Start: 15 * time.Millisecond,
		Destroy: 4 * time.Millisecond, SetCPU: time.Millisecond,
		Boot: 500 * time.Millisecond, Shutdown: 200 * time.Millisecond, Jitter: 0.2,
		Balloon: 2 << 30, Timeout: 10 * time.Second,
		Link: 1 << 30, Downtime: 300 * time.Millisecond, Progress: 100 * time.Millisecond,
		Beat: time.Second,
	}
}

const (
	defaultHosts   = 12
	defaultCPU     = 32
	defaultMemory  = 128 << 30
	defaultTimeout = 10 * time.Second
	defaultLink    = 1 << 30
	defaultDirty   = 16 << 20
	defaultWritten = 64 << 20

	// overhead is the host memory that a VM takes besides its guest's.
	overhead = 32 << 20
	// emulator is the share of its vCPUs' time that a VM's other threads use.
	emulator = 0.02
)

// World is a set of hosts under one clock.
type World struct {
	clock     Clock
	epoch     time.Time // the clock's time when the world was made
	base      int64     // the same as world time, ns
	seed      uint64
	timing    Timing
	workload  func(hypervisor.Spec) Workload
	guest     func(hypervisor.Spec) Guest
	dirty     func(hypervisor.Spec) int64
	written   func(hypervisor.Spec) int64
	machines  []*machine
	byName    map[string]*machine
	journal   *journal // nil: nothing is kept
	restoring bool
	compactMu sync.Mutex

	mu      sync.Mutex
	closed  bool
	running map[hypervisor.Identity][]string // cluster and id -> the hosts it runs on; more than one is a failure
	doubled []string
}

// New makes a world, or with a StateFile goes on with the one in it.
func New(o Options) (*World, error) {
	if o.Hosts < 0 || o.CPU < 0 || math.IsNaN(o.CPU) || math.IsInf(o.CPU, 0) || o.Memory < 0 {
		return nil, fmt.Errorf("simulated world: %d hosts of %v cores and %d bytes", o.Hosts, o.CPU, o.Memory)
	}
	if len(o.Machines) == 0 {
		o.Machines = equalMachines(o)
	}
	timing := DefaultTiming()
	if o.Timing != nil {
		timing = *o.Timing
	}
	w := &World{
		clock: o.Clock, seed: o.Seed, timing: timing.filled(), workload: o.Workload, guest: o.Guest, dirty: o.DirtyRate, written: o.Written,
		byName:  make(map[string]*machine, len(o.Machines)),
		running: make(map[hypervisor.Identity][]string),
	}
	if w.clock == nil {
		w.clock = realClock{}
	}
	if w.workload == nil {
		w.workload = FromCmdline
	}
	if w.guest == nil {
		w.guest = GuestFromCmdline
	}
	if w.dirty == nil {
		w.dirty = func(hypervisor.Spec) int64 { return defaultDirty }
	}
	if w.written == nil {
		w.written = written
	}
	w.epoch = w.clock.Now()
	w.base = w.epoch.UnixNano()
	for i, x := range o.Machines {
		if x.Name == "" || !(x.CPU > 0) || math.IsInf(x.CPU, 0) || x.Memory <= 0 {
			return nil, fmt.Errorf("simulated host %d: needs a name, CPU and memory, has %+v", i, x)
		}
		if w.byName[x.Name] != nil {
			return nil, fmt.Errorf("simulated host %s: there are two of that name", x.Name)
		}
		m := newMachine(w, i, x)
		w.machines = append(w.machines, m)
		w.byName[x.Name] = m
	}
	if o.StateFile != "" {
		if err := w.restore(o.StateFile); err != nil {
			return nil, fmt.Errorf("simulated world in %s: %w", o.StateFile, err)
		}
	}
	return w, nil
}

// written is the default of Options.Written.
func written(spec hypervisor.Spec) int64 {
	switch {
	case !spec.Disk.Present():
		return 0
	case spec.Disk.Size > 0:
		return min(spec.Disk.Size, defaultWritten)
	}
	return defaultWritten
}

func equalMachines(o Options) []Machine {
	n, cpu, memory := o.Hosts, o.CPU, o.Memory
	if n == 0 {
		n = defaultHosts
	}
	if cpu == 0 {
		cpu = defaultCPU
	}
	if memory == 0 {
		memory = defaultMemory
	}
	ms := make([]Machine, n)
	for i := range ms {
		ms[i] = Machine{Name: "h" + strconv.Itoa(i+1), CPU: cpu, Memory: memory}
	}
	return ms
}

func (t Timing) filled() Timing {
	if t.Timeout <= 0 {
		t.Timeout = defaultTimeout
	}
	if t.Link <= 0 {
		t.Link = defaultLink
	}
	if t.Downtime <= 0 {
		t.Downtime = 300 * time.Millisecond
	}
	if t.Progress <= 0 {
		t.Progress = 100 * time.Millisecond
	}
	t.Jitter = min(max(t.Jitter, 0), 1)
	return t
}

// Hosts are the names of the hosts, in the order they were given in.
func (w *World) Hosts() []string {
	names := make([]string, len(w.machines))
	for i, m := range w.machines {
		names[i] = m.name
	}
	return names
}

// Host is a new connection to a host. All calls of a connection to a host that is not in
// this world fail.
func (w *World) Host(name string) hypervisor.Host {
	m := w.byName[name]
	if m == nil {
		m = newMachine(w, -1, Machine{Name: name})
		m.absent = true
	}
	return &conn{m: m, closed: make(chan struct{})}
}

// All hosts by name.
func (w *World) All() map[string]hypervisor.Host {
	all := make(map[string]hypervisor.Host, len(w.machines))
	for _, name := range w.Hosts() {
		all[name] = w.Host(name)
	}
	return all
}

// Now is the world's time.
func (w *World) Now() time.Time { return time.Unix(0, w.now()).UTC() }

// now is the world's time in ns since 1970. It follows the clock's monotonic
// reading, so that a wall clock that is set has no effect within a process.
func (w *World) now() int64 { return w.base + int64(w.clock.Now().Sub(w.epoch)) }

// Close ends the world: its hosts are out of reach from then on, and its
// state file, if any, holds the VMs for the next one.
func (w *World) Close() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil
	}
	w.closed = true
	w.mu.Unlock()
	for _, m := range w.machines {
		m.mu.Lock()
		m.ended = true
		for s := range m.subscribers {
			s.end()
		}
		m.hangUp()
		m.mu.Unlock()
	}
	if w.journal != nil {
		return w.journal.close()
	}
	return nil
}

// Audit is what happened in a world that a cluster must not let happen.
type Audit struct {
	// Peaks are, per host, the most that was ever promised at one instant.
	Peaks map[string]Peak
	// Doubled names each VM of ours that came to run on a host, or went on there, while it ran on another:
	// "VM on first and second".
	Doubled []string
}

// Peak is a maximum over all instants since the world was made, this process
// or restored.
type Peak struct {
	CPU    float64 // cores; sum of caps (of vCPUs, if a VM has no cap)
	Memory int64   // bytes; sum over VMs of the larger of balloon target and actual balloon
}

// Audit says what was seen so far. Foreign VMs count in peaks.
func (w *World) Audit() Audit {
	a := Audit{Peaks: make(map[string]Peak, len(w.machines))}
	for _, m := range w.machines {
		m.mu.Lock()
		a.Peaks[m.name] = m.peak
		m.mu.Unlock()
	}
	w.mu.Lock()
	a.Doubled = append(a.Doubled, w.doubled...)
	w.mu.Unlock()
	return a
}

// ran notes that a VM of ours runs on a host from now on.
func (w *World) ran(id hypervisor.Identity, host string) {
	id.Generation = 0
	w.mu.Lock()
	defer w.mu.Unlock()
	if on := w.running[id]; len(on) > 0 {
		w.doubled = append(w.doubled, fmt.Sprintf("%s on %s and %s", id.VM, on[0], host))
	}
	w.running[id] = append(w.running[id], host)
}

// left notes that a VM of ours no longer runs on a host.
func (w *World) left(id hypervisor.Identity, host string) {
	id.Generation = 0
	w.mu.Lock()
	defer w.mu.Unlock()
	on := slices.DeleteFunc(w.running[id], func(h string) bool { return h == host })
	if w.running[id] = on; len(on) == 0 {
		delete(w.running, id)
	}
}

// jitter is d, made longer or shorter by chance: the same chance for the same
// seed, VM and purpose.
func (w *World) jitter(d time.Duration, id hypervisor.Identity, purpose string) time.Duration {
	if w.timing.Jitter == 0 || d == 0 {
		return d
	}
	h := uint64(14695981039346656037) ^ w.seed // FNV-1a
	mix := func(s string) {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
		h = (h ^ 0xff) * 1099511628211
	}
	mix(id.Cluster)
	mix(id.VM)
	mix(strconv.FormatUint(id.Generation, 10))
	mix(purpose)
	h ^= h >> 33 // FNV's high bits vary too little between similar ids
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	unit := float64(h>>11) / (1 << 53)
	return time.Duration(float64(d) * (1 + w.timing.Jitter*(2*unit-1)))
}
