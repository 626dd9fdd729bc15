package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"evenkeel/cluster/lease"
	"evenkeel/hypervisor"
)

// Watchdog turns the host off unless the agent pets it. cluster/watchdog has the real one.
type Watchdog interface {
	// Arm makes it count, and returns the time-out that is in force. Arming twice is petting.
	Arm() (time.Duration, error)
	// Pet starts the time-out again. After an error it may be counting or not, until Arm or
	// Pet succeeds.
	Pet() error
	// Stop stops it. It is not called while restartable VMs may run.
	Stop() error
}

// PersistentState is what an agent must know again after a restart. It is kept on disk.
type PersistentState struct {
	Epoch uint64 // of the desired state; older ones are refused
	Index uint64
	// Boot is the run of the machine that the lease belongs to.
	Boot  string
	Lease lease.Holder
	Armed bool // the watchdog counts
	// ArmedAs is the configuration by which it was armed; "" from an agent that did not keep it.
	ArmedAs string `json:",omitempty"`
	// Fresh: the machine was started since the leader last took this host's report; VMs that
	// it believes to run here went with the run before.
	Fresh bool
	// Lapsed: restartable VMs were stopped for want of a lease since the leader last took a whole report.
	Lapsed bool
	// Sending are the moves whose VMs this host began to send and that are open still, by VM. The map is not changed.
	Sending map[string]Sending `json:",omitempty"`
	// GivenUp are the generations that this host was to start and reported that it will not, by VM. The map is not changed.
	GivenUp map[string]uint64 `json:",omitempty"`
}

// newer says whether desired state of that epoch and index is not older than the newest that the agent received.
func (m PersistentState) newer(epoch, index uint64) bool {
	return epoch > m.Epoch || epoch == m.Epoch && index >= m.Index
}

// StateStore stores a PersistentState.
type StateStore interface {
	Load() (PersistentState, error)
	Save(PersistentState) error
}

// leaseManager renews the host's lease, pets the watchdog, and stops restartable VMs when the lease runs out. It does not wait for the
// rounds of the runner: a hypervisor that hangs must not stop the petting, and must not prolong it either.
type leaseManager struct {
	o     Options
	log   *slog.Logger
	clock func() lease.Instant

	writing chan struct{} // holds one while a goroutine writes: one at a time, the latest last. A disk may hang: a lock would do, but not in simulated time

	mu         sync.Mutex
	memory     PersistentState
	persistent PersistentState      // as last saved: what the next agent finds
	running    int                  // restartable VMs that run here, as the hypervisor last listed
	known      bool                 // running is from a list that the hypervisor answered
	asOf       lease.Instant        // when that list was asked for
	starting   int                  // restartable VMs being started, listed yet or not
	expected   int                  // restartable VMs that open moves are to bring
	heard      bool                 // the leader has sent what is expected
	stopped    map[string]stoppedVM // for want of a lease, by id
	dog        Watchdog             // the one in use
	leaving    bool                 // dog is of an earlier configuration, and to be stopped
	wd         armedFor
	unsure     bool          // the watchdog could not be petted: it must not be reported as armed
	renewed    chan struct{} // closed and made again at each answered renewal

	dirty chan struct{} // holds one while there is something to save
}

// armedFor is the time-out of the armed watchdog, and the one that the last answered renewal reported; 0: none.
type armedFor struct{ timeout, reported time.Duration }

func newLeaseManager(o Options, log *slog.Logger) (*leaseManager, error) {
	k := &leaseManager{o: o, log: log, clock: o.Clock, dog: o.Watchdog, stopped: map[string]stoppedVM{}, renewed: make(chan struct{}), dirty: make(chan struct{}, 1), writing: make(chan struct{}, 1)}
	if o.State == nil {
		k.memory.Boot = o.Boot
		return k, nil
	}
	m, err := o.State.Load()
	if err != nil {
		return nil, fmt.Errorf("agent of host %s: what it knew: %w", o.Host, err)
	}
	if m.Boot != o.Boot { // another run of the machine: what ran is gone, and so is the right to it
		m = PersistentState{Epoch: m.Epoch, Index: m.Index, Boot: o.Boot, Fresh: m.Boot != "", GivenUp: m.GivenUp}
		if err := o.State.Save(m); err != nil {
			return nil, fmt.Errorf("agent of host %s: keep what it must know again: %w", o.Host, err)
		}
	}
	k.memory, k.persistent = m, m
	if m.Armed && m.ArmedAs != "" && m.ArmedAs != o.WatchdogAs {
		if k.dog, err = earlier(o, m.ArmedAs); err != nil {
			return nil, fmt.Errorf("agent of host %s: the watchdog that was armed by an earlier configuration (%s): %w", o.Host, m.ArmedAs, err)
		}
		k.leaving = true
		log.Warn("the watchdog was armed by an earlier configuration: it counts until the leader knows that it will not", "armed", m.ArmedAs, "configured", o.WatchdogAs)
	}
	// The agent before this one armed the watchdog: this agent goes on petting it. Without a lease the watchdog is not petted until the
	// restartable VMs are gone, however often the agent is started.
	if m.Armed && (k.dog == nil || m.Lease.MayPet(k.clock(), 0, false)) {
		if err := k.arm(); err != nil {
			return nil, fmt.Errorf("agent of host %s: take over its armed watchdog: %w", o.Host, err)
		}
	}
	return k, nil
}

func earlier(o Options, as string) (Watchdog, error) {
	if o.Earlier == nil {
		return nil, errors.New("it is not in the configuration any more")
	}
	return o.Earlier(as)
}

// run runs until ctx ends. It leaves an armed watchdog counting: the next agent takes it over, or it resets the host.
func (k *leaseManager) run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { k.renewing(ctx) })
	wg.Go(func() { k.petting(ctx) })
	wg.Go(func() { k.stopping(ctx) })
	wg.Go(func() { k.saving(ctx) })
	wg.Wait()
}

func (k *leaseManager) renewing(ctx context.Context) {
	backoff := firstBackoff
	for ctx.Err() == nil {
		wait := backoff
		if every, err := k.renew(ctx); err == nil {
			wait, backoff = every, firstBackoff
		} else {
			k.log.Debug("lease not renewed", "error", err)
			backoff = min(2*backoff, lastRenewBackoff)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// renew asks once and returns when to ask again.
func (k *leaseManager) renew(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, renewWithin)
	defer cancel()
	k.mu.Lock()
	if now := k.clock(); k.memory.Lease.Had && k.memory.Lease.MustStop(now) && !k.stoppedSince(k.memory.Lease.Until) {
		k.mu.Unlock()
		return 0, errors.New("the lease is over: restartable VMs are stopped before there is another")
	}
	enforcing := k.enforces()
	q := Renewal{Host: k.o.Host, Enforcing: enforcing, Boot: k.o.Boot, Watched: k.o.Watchdog != nil}
	wanted := k.running+k.starting+k.expected > 0 || !k.known || !k.heard
	if enforcing && wanted && k.memory.Armed && !k.unsure && !k.leaving {
		q.Watchdog = k.wd.timeout
	}
	if !k.memory.Fresh {
		q.Machine = k.o.Machine
	}
	if k.memory.Lease.Had {
		q.Left = max(0, k.memory.Lease.Until-k.clock())
	}
	k.mu.Unlock()
	sent := k.clock()
	q.At = sent
	g, err := k.o.Leader.Renew(ctx, q)
	if err != nil {
		return 0, err
	}
	wait, err := k.granted(q, sent, g)
	if err != nil {
		return 0, err
	}
	k.save()
	return wait, nil
}

// stoppedSince says whether a list after that instant showed that no restartable VM runs. An agent that hung may find that its lease
// has ended meanwhile. It must stop restartable VMs before it renews: the leader may have proved the host lost. k is locked.
func (k *leaseManager) stoppedSince(end lease.Instant) bool {
	return k.known && k.running+k.starting == 0 && k.asOf >= end
}

// granted takes in the answer to a renewal and returns when to ask again.
func (k *leaseManager) granted(q Renewal, sent lease.Instant, g Grant) (time.Duration, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.memory.newer(g.Epoch, g.Index) {
		return 0, fmt.Errorf("the answer is older (epoch %d, index %d) than what was seen (%d, %d)", g.Epoch, g.Index, k.memory.Epoch, k.memory.Index)
	}
	k.memory.Lease = k.memory.Lease.Granted(sent, g.Lease, g.Enforce)
	k.memory.Epoch, k.memory.Index = g.Epoch, g.Index
	k.wd.reported = q.Watchdog
	close(k.renewed)
	k.renewed = make(chan struct{})
	none := k.known && k.heard && k.running+k.starting+k.expected == 0
	if k.memory.Armed && q.Watchdog == 0 && (none || !g.Enforce || k.leaving) {
		// The leader counts on the watchdog until it has taken a renewal that reports none armed. It has taken this one, so the agent
		// may stop the watchdog.
		left := k.leaving
		if err := k.stopLocked(); err != nil || !left {
			return lease.RenewEvery(g.Lease), nil
		}
	}
	switch {
	case k.dog != nil && !k.memory.Armed && g.Enforce && k.running+k.starting+k.expected > 0:
		if err := k.armLocked(); err != nil {
			k.log.Error("arm the watchdog", "error", err)
			break
		}
		return reportArmed, nil // and report it to the leader
	}
	return lease.RenewEvery(g.Lease), nil
}

// stopLocked stops the watchdog, and replaces one of an earlier configuration by the configured one.
func (k *leaseManager) stopLocked() error {
	if err := k.dog.Stop(); err != nil {
		k.log.Error("disarm the watchdog", "error", err)
		return err
	}
	k.memory.Armed, k.memory.ArmedAs = false, ""
	k.log.Info("watchdog disarmed")
	if k.leaving {
		k.dog, k.leaving, k.wd.timeout, k.unsure = k.o.Watchdog, false, 0, false
	}
	return nil
}

func (k *leaseManager) arm() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.armLocked()
}

func (k *leaseManager) armLocked() error {
	if k.dog == nil {
		k.memory.Armed = false
		return fmt.Errorf("it is not in the configuration any more")
	}
	wd, err := k.dog.Arm()
	if err != nil {
		return err
	}
	k.wd.timeout, k.memory.Armed, k.unsure = wd, true, false
	if !k.leaving {
		k.memory.ArmedAs = k.o.WatchdogAs
	}
	k.log.Info("watchdog armed", "timeout", wd)
	return nil
}

// save wakes the writing of the persistent state. It does not wait: a disk that is slow or hangs must not hold up a renewal,
// the end of VMs, or the watchdog.
func (k *leaseManager) save() {
	select {
	case k.dirty <- struct{}{}:
	default:
	}
}

// saving writes until ctx ends, and then once more.
func (k *leaseManager) saving(ctx context.Context) {
	if k.o.State == nil {
		return
	}
	for last := false; !last; {
		select {
		case <-k.dirty:
		case <-ctx.Done():
			last = true
		}
		if err := k.write(); err != nil {
			k.log.Error("keep what the agent must know again", "error", err)
		}
	}
}

// write writes the persistent state now.
func (k *leaseManager) write() error {
	k.writing <- struct{}{}
	defer func() { <-k.writing }()
	k.mu.Lock()
	m := k.memory
	k.mu.Unlock()
	if err := k.o.State.Save(m); err != nil {
		return err
	}
	k.mu.Lock()
	k.persistent = m
	k.mu.Unlock()
	return nil
}

// enforces says whether the end of the lease stops VMs here: by this agent's state, and by the saved one that the next agent finds.
func (k *leaseManager) enforces() bool {
	will := func(h lease.Holder) bool { return !h.Had || h.Enforce }
	return will(k.memory.Lease) && (k.o.State == nil || will(k.persistent.Lease))
}

// petting pets the watchdog as long as the host is well (lease.Holder.MayPet), and once more at the end: the next agent has the whole
// time-out to begin.
func (k *leaseManager) petting(ctx context.Context) {
	for last := false; !last; {
		last = ctx.Err() != nil
		k.mu.Lock()
		if k.dog == nil {
			k.mu.Unlock()
			return
		}
		wait := idleDog
		if k.memory.Armed {
			wait = max(minPet, k.wd.timeout/petEvery)
			now := k.clock()
			// Without a lease the watchdog is petted only while a recent list shows no restartable VM: one may have arrived by
			// migration.
			known := k.known && now-k.asOf <= knownFor
			if k.memory.Lease.MayPet(now, k.running+k.starting, known) {
				var err error
				if k.wd.timeout == 0 { // not taken over yet from the agent before this one
					err = k.armLocked()
				} else {
					err = k.dog.Pet()
				}
				if err != nil {
					k.log.Error("pet the watchdog", "error", err)
				}
				k.unsure = err != nil
			}
		}
		k.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// stopping ends the restartable VMs of a host that holds no lease.
func (k *leaseManager) stopping(ctx context.Context) {
	for ctx.Err() == nil {
		k.mu.Lock()
		now := k.clock()
		must, wait, renewed := k.memory.Lease.MustStop(now), stopEvery, k.renewed
		if !must {
			wait = max(minLeaseCheck, min(k.memory.Lease.Until-now, maxLeaseCheck))
		}
		k.mu.Unlock()
		if must { // also if nothing ran a moment ago: a VM may have come in by migration
			k.stopLeased(ctx)
		}
		select {
		case <-ctx.Done():
		case <-renewed:
		case <-time.After(wait):
		}
	}
}

// stoppedVM is the generation of a VM that was stopped. A list that was asked for at the instant at, or later, and still has the VM
// shows that it runs; at is MaxInt64 while the VM is being stopped.
type stoppedVM struct {
	generation uint64
	at         lease.Instant
}

// stopLeased destroys every restartable VM of the host. It knows them by the mark.
func (k *leaseManager) stopLeased(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	asOf := k.clock()
	vms, err := k.o.Hypervisor.List(ctx)
	if err != nil {
		k.log.Error("the lease is over, and the hypervisor does not say what runs", "error", err)
		k.mu.Lock()
		k.known = false
		k.mu.Unlock()
		return
	}
	left, lapsed := 0, false
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, vm := range vms {
		if vm.Foreign || !vm.Leased {
			continue
		}
		wg.Go(func() {
			k.log.Warn("the lease is over: restartable VM stopped", "vm", vm.Name, "generation", vm.Generation)
			k.mu.Lock() // before it goes: a goroutine that sees it gone must know why
			k.stopped[vm.Identity.VM] = stoppedVM{vm.Generation, math.MaxInt64}
			k.mu.Unlock()
			if err := k.o.Hypervisor.Destroy(ctx, vm.Identity.VM); err != nil {
				k.log.Error("stop a VM without lease", "vm", vm.Name, "error", err)
				k.mu.Lock()
				k.stopped[vm.Identity.VM] = stoppedVM{vm.Generation, k.clock()} // the call may still succeed; a list from now on shows
				k.mu.Unlock()
				mu.Lock()
				left++
				mu.Unlock()
				return
			}
			k.mu.Lock()
			k.stopped[vm.Identity.VM] = stoppedVM{vm.Generation, k.clock()}
			lapsed = lapsed || !k.memory.Lapsed
			k.memory.Lapsed = true
			k.mu.Unlock()
		})
	}
	wg.Wait()
	if lapsed {
		defer k.save() // after the VMs are gone: a disk that hangs must not hold that up
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if asOf >= k.asOf {
		k.running, k.known, k.asOf = left, true, asOf
	}
}

// observe takes in the hypervisor's list, asked for at that instant, and returns the generations of VMs that were stopped for
// want of a lease, by id.
func (k *leaseManager) observe(asOf lease.Instant, vms []hypervisor.VM) map[string]uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if asOf >= k.asOf { // else the list was overtaken by another
		k.running, k.known, k.asOf = 0, true, asOf
		for _, vm := range vms {
			if !vm.Foreign && vm.Leased {
				k.running++
			}
		}
	}
	absent := make(map[string]uint64, len(k.stopped))
	for id, vm := range k.stopped {
		absent[id] = vm.generation
	}
	for _, vm := range vms {
		if !vm.Foreign {
			if id := vm.Identity.VM; asOf >= k.stopped[id].at { // else it was listed while it was being stopped
				delete(k.stopped, id)
			}
			delete(absent, vm.Identity.VM)
		}
	}
	return absent
}

// starts says whether n restartable VMs may be started now: the host has a lease, and the watchdog, if there is one, is armed
// and known to the leader. The caller must call started once they are started, or are not.
func (k *leaseManager) starts(ctx context.Context, n int) error {
	k.mu.Lock()
	k.starting += n
	k.mu.Unlock()
	return k.guarded(ctx)
}

// expects notes how many restartable VMs are to come by moves. The watchdog is armed before they arrive: a host that loses its power
// right after a move can then be proved lost as any other.
func (k *leaseManager) expects(want Desired) {
	n := 0
	for _, vm := range want.VMs {
		if vm.Spec.Leased && vm.Move != nil && vm.Move.Incoming {
			n++
		}
	}
	k.mu.Lock()
	k.expected, k.heard = n, true
	k.mu.Unlock()
}

// guarded makes sure that the host has a lease, and that the leader knows of the armed watchdog, if there is one.
func (k *leaseManager) guarded(ctx context.Context) error {
	k.mu.Lock()
	leased, armed, enforce, guarded := k.memory.Lease.Leased(k.clock()), k.memory.Armed, k.memory.Lease.Enforce, k.dog != nil
	known := armed && k.wd.reported > 0
	k.mu.Unlock()
	switch {
	case !leased:
		return fmt.Errorf("the host holds no lease for restartable VMs")
	case !guarded || known || !enforce:
		return nil
	}
	if !armed {
		if err := k.arm(); err != nil {
			return fmt.Errorf("arm the watchdog: %w", err)
		}
	}
	if _, err := k.renew(ctx); err != nil {
		return fmt.Errorf("report the armed watchdog to the leader: %w", err)
	}
	return nil
}

func (k *leaseManager) started(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.starting -= n
	k.running, k.known, k.asOf = k.running+n, false, k.clock() // until the next list
}

// leased says whether the host has a lease now.
func (k *leaseManager) leased() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.memory.Lease.Leased(k.clock())
}

// went says whether VMs that the leader believes to run ended with an earlier run of the machine, or with a lease.
func (k *leaseManager) went() (fresh, lapsed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.memory.Fresh, k.memory.Lapsed
}

// reportAccepted notes that the leader took a whole report of this run of the machine.
func (k *leaseManager) reportAccepted() {
	k.mu.Lock()
	was := k.memory.Fresh || k.memory.Lapsed
	k.memory.Fresh, k.memory.Lapsed = false, false
	k.mu.Unlock()
	if was {
		k.save()
	}
}

// advance takes in the index of a desired state, or returns an error if it is too old. An index is on disk with the next renewal,
// an epoch as soon as the disk allows.
func (k *leaseManager) advance(epoch, index uint64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.memory.newer(epoch, index) {
		return fmt.Errorf("desired state of epoch %d, index %d is older than %d, %d, seen before", epoch, index, k.memory.Epoch, k.memory.Index)
	}
	if epoch > k.memory.Epoch { // the next agent refuses the servers of before the restore, too
		k.save()
	}
	k.memory.Epoch, k.memory.Index = epoch, index
	return nil
}
