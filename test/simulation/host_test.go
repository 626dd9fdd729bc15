package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/lease"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
)

// host is a machine that runs VMs, and an agent.
type host struct {
	s        *sim
	name     string
	rate     float64       // of its clock, against simulated time
	watchdog time.Duration // its time-out; 0 = there is none
	device   string        // its fence device: "" = none, works, fails, slow

	mu      sync.Mutex
	on      bool
	stay    bool // off until an operator turns it on, whatever the watchdog does
	boots   int
	disk    agent.PersistentState // outlives the process
	proc    *process              // nil: the agent does not run
	link    *link                 // its last one
	dog     *dog
	faults  []*waiting
	lease   lease.Holder // as servers really granted it, by the host's own clock
	armed   bool         // and its watchdog counts
	uneasy  time.Time    // when something last kept the agent from acting
	leaseOf string       // boot
	granted agent.Grant  // the newest answer to a renewal of that boot
	claims  bool         // that it enforces its lease, in its last renewal
	heard   time.Time    // when a leader last answered a report; one is made every few seconds
}

// process is one agent.
type process struct {
	h      *host
	ctx    context.Context
	cancel context.CancelFunc
	boot   string
	ended  chan struct{}
	still  atomic.Bool // it stands still
}

func (h *host) clock() lease.Instant {
	return time.Duration(float64(time.Since(h.s.began)) * h.rate)
}

// disturbed: the agent may not have been able to act just now.
func (h *host) disturbed() {
	h.mu.Lock()
	h.uneasy = time.Now()
	h.mu.Unlock()
}

// startAgent, if the machine is on and none runs.
func (h *host) startAgent() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.on || h.proc != nil {
		return
	}
	ctx, cancel := context.WithCancel(h.s.ctx)
	p := &process{h: h, ctx: ctx, cancel: cancel, boot: fmt.Sprintf("%s-boot%d", h.name, h.boots), ended: make(chan struct{})}
	h.proc = p
	h.uneasy = time.Now()
	h.s.net.freeze(h.name, false)
	link := newLink(h, p)
	h.link = link
	var leader agent.Leader = watched{link, p}
	if b := h.s.o.broken.agent; b != nil {
		leader = b(h, leader)
	}
	o := agent.Options{Host: h.name, Hypervisor: struckHost{h.s.world.Host(h.name), p}, Leader: leader, Log: h.s.log,
		Allowance: allowance, Overhead: func(hypervisor.Capacity) int64 { return overhead },
		StopGrace: 6 * time.Second, SampleEvery: 5 * time.Second, ListEvery: 10 * time.Second,
		State: p, Boot: p.boot, MigrateURI: h.name, Clock: h.clock}
	if h.watchdog > 0 {
		o.Watchdog = petted{p}
	}
	h.s.group.Go(func() {
		defer close(p.ended)
		var group sync.WaitGroup
		group.Go(func() { link.run(ctx) })
		for ctx.Err() == nil { // as its unit does
			if err := agent.Run(ctx, o); err != nil && ctx.Err() == nil {
				h.s.note("%s: agent: %v", h.name, err)
			}
			_ = wait(ctx, time.Second)
		}
		group.Wait()
	})
}

// killAgent ends the process at once: nothing it does has an effect any more.
func (h *host) killAgent() {
	h.mu.Lock()
	p := h.proc
	h.proc, h.uneasy = nil, time.Now()
	h.mu.Unlock()
	if p == nil {
		return
	}
	p.cancel()
	h.s.net.freeze(h.name, false)
	<-p.ended
}

// powerOff takes the power away; stay: until it is turned on.
func (h *host) powerOff(stay bool) {
	h.mu.Lock()
	h.stay = h.stay || stay
	was := h.on
	h.on = false
	p := h.proc
	h.dog.stop()
	h.lease, h.armed = lease.Holder{}, false
	h.mu.Unlock()
	if p != nil {
		p.cancel()
	}
	if was {
		if err := h.s.world.PowerOff(h.name); err != nil {
			h.s.violate("power off: %v", err)
		}
	}
	h.killAgent()
}

// powerOn boots the machine; the agent comes up a little later.
func (h *host) powerOn() {
	h.mu.Lock()
	h.stay = false
	was := h.on
	h.mu.Unlock()
	if was {
		return
	}
	if wait(h.s.ctx, 8*time.Second) != nil {
		return
	}
	h.mu.Lock()
	if h.on || h.stay {
		h.mu.Unlock()
		return
	}
	h.on = true
	h.boots++
	h.mu.Unlock()
	if err := h.s.world.PowerOn(h.name); err != nil {
		h.s.violate("power on: %v", err)
	}
	h.startAgent()
}

// reset is what a watchdog does.
func (h *host) reset() {
	h.s.note("%s: watchdog resets the host", h.name)
	h.s.count("watchdog resets")
	h.powerOff(false)
	if wait(h.s.ctx, 15*time.Second) != nil {
		return
	}
	h.mu.Lock()
	stay := h.stay
	h.mu.Unlock()
	if !stay {
		h.powerOn()
	}
}

// stall stops all of the agent's threads for a while.
func (h *host) stall(d time.Duration) {
	h.mu.Lock()
	p := h.proc
	h.mu.Unlock()
	if p == nil {
		return
	}
	p.still.Store(true)
	h.s.net.freeze(h.name, true)
	_ = wait(p.ctx, d)
	p.still.Store(false)
	h.s.net.freeze(h.name, false)
	h.disturbed()
}

// gate lets a call of the agent through once it runs.
func (p *process) gate(ctx context.Context) error {
	for p.still.Load() {
		p.h.disturbed()
		if err := wait(p.ctx, 100*time.Millisecond); err != nil {
			return hypervisor.ErrUnavailable
		}
	}
	if p.ctx.Err() != nil {
		return hypervisor.ErrUnavailable
	}
	return ctx.Err()
}

// Load implements agent.StateStore.
func (p *process) Load() (agent.PersistentState, error) {
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	return p.h.disk, nil
}

// Save implements agent.StateStore.
func (p *process) Save(m agent.PersistentState) error {
	if err := p.gate(p.ctx); err != nil {
		return err
	}
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	if p.h.proc != p {
		return errors.New("this process is dead")
	}
	p.h.disk = m
	return nil
}

// dog is the watchdog device: it counts whatever happens to the agents that pet it.
type dog struct {
	h     *host
	timer *time.Timer
}

func (d *dog) stop() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

func (d *dog) pet() {
	d.stop()
	d.timer = time.AfterFunc(time.Duration(float64(d.h.watchdog)/d.h.rate), d.h.reset)
}

// petted is the device as a process sees it.
type petted struct{ p *process }

var errStill = errors.New("the process stands still")

func (w petted) with(f func(*dog)) error {
	w.p.h.mu.Lock()
	defer w.p.h.mu.Unlock()
	if w.p.h.proc != w.p || !w.p.h.on || w.p.still.Load() {
		return errStill
	}
	f(w.p.h.dog)
	return nil
}

// Arm implements agent.Watchdog.
func (w petted) Arm() (time.Duration, error) {
	return w.p.h.watchdog, w.with(func(d *dog) { d.pet(); d.h.armed = true })
}

// Pet implements agent.Watchdog.
func (w petted) Pet() error { return w.with((*dog).pet) }

// Stop implements agent.Watchdog.
func (w petted) Stop() error {
	return w.with(func(d *dog) { d.stop(); d.h.armed = false })
}

// waiting is a fault that waits for its calls.
type waiting struct {
	simulated.Fault
	left int
}

// inject a fault into the agent's way to the hypervisor.
func (h *host) inject(f simulated.Fault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, &waiting{f, max(1, f.Times)})
}

func (h *host) strike(c simulated.Call) *simulated.Fault {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, f := range h.faults {
		if f.Call != simulated.AnyCall && f.Call != c {
			continue
		}
		if f.left--; f.left == 0 {
			h.faults = append(h.faults[:i:i], h.faults[i+1:]...)
		}
		h.uneasy = time.Now()
		return &f.Fault
	}
	return nil
}

// struckHost is the hypervisor as an agent's process meets it: with faults, and without any answer
// while the process stands still. (World.Inject would strike code that only observes, too.)
type struckHost struct {
	hypervisor.Host
	p *process
}

// hangs is how long a call takes that does not answer.
const hangs = 5 * time.Second

func (y struckHost) do(ctx context.Context, c simulated.Call, f func(context.Context) error) error {
	if err := y.p.gate(ctx); err != nil {
		return err
	}
	defer context.AfterFunc(y.p.ctx, func() {})()
	fault := y.p.h.strike(c)
	if fault != nil {
		y.p.h.s.count("hypervisor calls struck")
	}
	if fault == nil || fault.After {
		if err := f(ctx); err != nil {
			return err
		}
	}
	if fault != nil {
		if fault.Hang {
			_ = wait(ctx, hangs)
			y.p.h.disturbed()
		}
		cause := hypervisor.ErrUnavailable
		if c == simulated.CallMigrate && (fault.After || fault.Hang) {
			cause = fmt.Errorf("%w: %w", hypervisor.ErrEndUnknown, cause)
		}
		return fmt.Errorf("%s: injected fault: %w", c, cause)
	}
	return y.p.gate(ctx)
}

func (y struckHost) Capacity(ctx context.Context) (c hypervisor.Capacity, err error) {
	err = y.do(ctx, simulated.CallCapacity, func(ctx context.Context) (err error) { c, err = y.Host.Capacity(ctx); return })
	return
}

func (y struckHost) List(ctx context.Context) (v []hypervisor.VM, err error) {
	err = y.do(ctx, simulated.CallList, func(ctx context.Context) (err error) { v, err = y.Host.List(ctx); return })
	return
}

func (y struckHost) Define(ctx context.Context, spec hypervisor.Spec) error {
	return y.do(ctx, simulated.CallDefine, func(ctx context.Context) error { return y.Host.Define(ctx, spec) })
}

func (y struckHost) Start(ctx context.Context, spec hypervisor.Spec) error {
	return y.do(ctx, simulated.CallStart, func(ctx context.Context) error {
		y.p.h.s.checkFreeze("start of "+spec.Label(), y.p.h.name)
		y.p.h.s.titles.Store(spec.VM, spec.Title)
		err := y.Host.Start(ctx, spec)
		if err == nil {
			y.p.h.s.count("VMs started")
			y.p.h.s.note("%s: started %s generation %d", y.p.h.name, spec.Label(), spec.Generation)
			if spec.Generation > 1 {
				y.p.h.s.count("VMs started again")
			}
		}
		return err
	})
}

func (y struckHost) Stop(ctx context.Context, id string) error {
	return y.do(ctx, simulated.CallStop, func(ctx context.Context) error {
		y.p.h.s.checkFreeze("stop of "+id, y.p.h.name)
		return y.Host.Stop(ctx, id)
	})
}

func (y struckHost) Reset(ctx context.Context, id string, generation uint64) error {
	return y.do(ctx, simulated.CallReset, func(ctx context.Context) error {
		err := y.Host.Reset(ctx, id, generation)
		if err == nil {
			y.p.h.s.wasReset(id)
		}
		y.p.h.s.note("%s: reset %s generation %d: %v", y.p.h.name, id, generation, err)
		return err
	})
}

func (y struckHost) Destroy(ctx context.Context, id string) error {
	return y.do(ctx, simulated.CallDestroy, func(ctx context.Context) error {
		err := y.Host.Destroy(ctx, id)
		y.p.h.s.note("%s: destroyed %s: %v", y.p.h.name, id, err)
		return err
	})
}

func (y struckHost) Undefine(ctx context.Context, spec hypervisor.Spec) error {
	return y.do(ctx, simulated.CallUndefine, func(ctx context.Context) error { return y.Host.Undefine(ctx, spec) })
}

func (y struckHost) SetCPU(ctx context.Context, id string, cpu hypervisor.CPU) error {
	return y.do(ctx, simulated.CallSetCPU, func(ctx context.Context) error { return y.Host.SetCPU(ctx, id, cpu) })
}

func (y struckHost) SetBalloon(ctx context.Context, id string, bytes int64) error {
	return y.do(ctx, simulated.CallSetBalloon, func(ctx context.Context) error { return y.Host.SetBalloon(ctx, id, bytes) })
}

func (y struckHost) Stats(ctx context.Context) (v []hypervisor.Stats, err error) {
	err = y.do(ctx, simulated.CallStats, func(ctx context.Context) (err error) { v, err = y.Host.Stats(ctx); return })
	return
}

func (y struckHost) Migrate(ctx context.Context, id string, m hypervisor.Migration) (v hypervisor.Moved, err error) {
	err = y.do(ctx, simulated.CallMigrate, func(ctx context.Context) (err error) {
		life := y.p.ctx
		if y.p.h.s.net.chance(0.5) { // it goes on by itself if the agent dies
			ctx, life = context.WithoutCancel(ctx), y.p.h.s.ctx
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(life, cancel)()
		plan := y.p.h.s.planOf(id)
		y.p.h.s.note("%s: migrate %s to %s", y.p.h.name, id, m.To)
		v, err = y.Host.Migrate(ctx, id, m)
		y.p.h.s.note("%s: migrated %s to %s, %d of %d bytes: %v", y.p.h.name, id, m.To, v.Bytes, m.MaxBytes, err)
		y.p.h.s.moved(plan, v.Bytes, m.MaxBytes)
		if err == nil {
			y.p.h.s.count("migrations done")
		} else {
			y.p.h.s.count("migrations failed")
		}
		return
	})
	return
}

func (y struckHost) Resume(ctx context.Context, id string) error {
	return y.do(ctx, simulated.CallResume, func(ctx context.Context) error {
		err := y.Host.Resume(ctx, id)
		y.p.h.s.note("%s: resumed %s: %v", y.p.h.name, id, err)
		if err == nil {
			y.p.h.s.count("VMs resumed")
		}
		return err
	})
}

func (y struckHost) Abort(ctx context.Context, id string) (v hypervisor.Moved, was bool, err error) {
	err = y.do(ctx, simulated.CallAbort, func(ctx context.Context) (err error) { v, was, err = y.Host.Abort(ctx, id); return })
	return
}

func (y struckHost) Partner(ctx context.Context) (v hypervisor.Partner, err error) {
	err = y.do(ctx, simulated.CallPartner, func(ctx context.Context) (err error) { v, err = y.Host.Partner(ctx); return })
	return
}

// overhead of a VM on its host, bytes.
const overhead = 32 << 20

func allowance(c hypervisor.Capacity) agent.Limits {
	return agent.Limits{CPU: c.CPU - max(0.25, c.CPU/20), Memory: c.Memory - max(512<<20, c.Memory/20)}
}

// fences are the fence devices, as a server reaches them.
type fences struct {
	s    *sim
	from string
}

// Has implements leader.Fence.
func (f fences) Has(name string) bool { return f.s.hosts[name].device != "" }

// Test implements leader.Fence.
func (f fences) Test(context.Context, string) (string, error) { return "power is on or off", nil }

// Off implements leader.Fence: the device is on a network of its own.
func (f fences) Off(ctx context.Context, name string) (string, error) {
	h := f.s.hosts[name]
	f.s.count("fence devices set to work")
	d := 2 * time.Second
	if h.device == "slow" {
		d = 20 * time.Second
	}
	if err := wait(ctx, d); err != nil {
		return "", err
	}
	if h.device == "fails" || f.s.net.chance(0.2) {
		return "", fmt.Errorf("fence device of %s: no answer", name)
	}
	h.powerOff(true)
	f.s.note("%s: turned off by its fence device, for %s", name, f.from)
	return "the fence device of " + name + " says that it is off", nil
}

func seeded(seed uint64, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }
