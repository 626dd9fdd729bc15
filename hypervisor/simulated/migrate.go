package simulated

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"evenkeel/hypervisor"
)

// move is one migration under way.
type move struct {
	from   *conn
	to     *machine
	v      *vm             // on the source
	spec   hypervisor.Spec // its spec when the move began; nothing can change it meanwhile
	copied *vm             // on the target, incoming

	// Bytes, and bytes per second.
	memory float64 // of the guest, and of its disk if that is copied
	left   float64 // to send before the guest could be handed over
	sent   float64
	dirty  float64
	speed  float64

	cancel   context.CancelCauseFunc
	balloon  int64
	paused   bool          // the guest is not to go on at the target by itself
	handed   bool          // the guest is at the target
	switched bool          // before all of it was there
	downtime time.Duration // it stood still so long
}

// How QEMU behaves: with auto-converge a guest that cannot be sent as fast as it writes is slowed
// down by a fifth, then by another tenth after each further pass over its memory.
const (
	firstThrottle = 0.2
	moreThrottle  = 0.1
	maxThrottle   = 0.99
)

// Migrate moves a running VM to another host of the same world; To is its name. Memory is sent while the guest
// runs, and what the guest dirties meanwhile is sent again. When the rest can go within Timing.Downtime, the
// guest is handed over. Where a guest dirties its memory faster than it can be sent, MaxBytes or ctx ends the
// attempt, unless the guest is slowed down (AutoConverge), or handed over before all is sent (PostCopy). In this
// simulation the rest then always arrives.
func (c *conn) Migrate(ctx context.Context, id string, how hypervisor.Migration) (hypervisor.Moved, error) {
	mv := &move{from: c, to: c.m.w.byName[how.To]}
	began := false
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := c.do(ctx, CallMigrate, id, 0, func(now int64) error {
		if err := mv.begin(now, id, how); err != nil {
			return err
		}
		mv.v.move, mv.cancel = mv, cancel
		began = true
		return nil
	})
	if !began {
		return hypervisor.Moved{}, err
	}
	if err == nil {
		if err = mv.run(ctx, how); err != nil {
			switch {
			case mv.handed: // err says what became of the VM
			case errors.Is(context.Cause(ctx), errAborted):
				err = errAborted
			case c.lost():
				err = fmt.Errorf("%w: %w", hypervisor.ErrEndUnknown, err)
			}
			err = fmt.Errorf("simulated host %s: migrate %s to %s: %w", c.m.name, id, how.To, err)
		}
	}
	moved := mv.moved()
	done := moved
	done.Downtime = mv.downtime
	done.Bytes += done.Remaining
	done.Remaining, done.Rate = 0, 0
	if mv.handed {
		mv.arrived(done)
	}
	if err != nil {
		mv.giveUp()
		return moved, err
	}
	return done, nil
}

// arrived leaves the figures at the target, where the VM is or was.
func (mv *move) arrived(done hypervisor.Moved) {
	mv.to.mu.Lock()
	defer mv.to.mu.Unlock()
	if v := mv.to.byID[mv.spec.VM]; v != nil && !v.incoming {
		v.arrival = hypervisor.Moved{Bytes: done.Bytes, Downtime: done.Downtime}
	}
}

// errAborted: a caller aborted the migration.
var errAborted = errors.New("it was aborted, VM runs on here")

// Abort ends a migration of the VM from here.
func (c *conn) Abort(ctx context.Context, id string) (hypervisor.Moved, bool, error) {
	var mv *move
	var ended <-chan struct{}
	err := c.do(ctx, CallAbort, id, 0, func(int64) error {
		if v := c.m.ours(id); v != nil && v.moving != nil {
			mv, ended = v.move, v.moving
			mv.cancel(errAborted)
		}
		return nil
	})
	if err != nil || ended == nil {
		return hypervisor.Moved{}, false, err
	}
	if err := c.wait(ctx, never, ended); err != nil {
		return hypervisor.Moved{}, true, err
	}
	return mv.moved(), true, nil // nothing changes it any more
}

// Arrival is what the migration took that brought the VM. It is known once the source has ended the migration; a World that is
// restored does not have it.
func (c *conn) Arrival(ctx context.Context, id string) (moved hypervisor.Moved, err error) {
	err = c.do(ctx, CallArrival, id, 0, func(int64) error {
		v := c.m.ours(id)
		if v == nil {
			return hypervisor.ErrNotFound
		}
		if moved = v.arrival; !v.paused {
			v.arrival = hypervisor.Moved{}
		}
		return nil
	})
	return moved, err
}

// Partner is the same for all hosts of a world, which have one network and one pool of every name.
func (c *conn) Partner(ctx context.Context) (p hypervisor.Partner, err error) {
	err = c.do(ctx, CallPartner, "", 0, func(int64) error {
		p = hypervisor.Partner{CPUModel: "simulated", Machines: []string{"simulated"}, QEMU: "simulated"}
		return nil
	})
	return p, err
}

// CheckPeer finds the obstacle that NoRoute has set between the hosts, and whether the other side answers.
func (c *conn) CheckPeer(ctx context.Context, to string) (found hypervisor.Obstacle, err error) {
	peer := c.m.w.byName[to]
	err = c.do(ctx, CallCheckPeer, "", 0, func(int64) error {
		if found = c.m.routeTo(to); found.Why == "" && peer == nil {
			found.Why = fmt.Sprintf("there is no host at %q", to)
		}
		return nil
	})
	if err != nil || found.Why != "" || peer == c.m {
		return found, err
	}
	peer.mu.Lock()
	defer peer.mu.Unlock()
	if peer.down() {
		found.Why = fmt.Sprintf("the hypervisor at %s does not answer", to)
	}
	return found, nil
}

// begin checks what was asked and marks the VM as moving. The source is locked.
func (mv *move) begin(now int64, id string, how hypervisor.Migration) error {
	m := mv.from.m
	v := m.ours(id)
	switch {
	case v == nil || v.incoming:
		return hypervisor.ErrNotFound
	case v.moving != nil:
		return fmt.Errorf("VM is on the move already")
	case mv.to == nil || mv.to == m:
		return fmt.Errorf("host %q is no other host: %w", how.To, hypervisor.ErrInvalid)
	case how.Bandwidth < 0 || how.MaxBytes < 0:
		return fmt.Errorf("bandwidth of %d and at most %d bytes: %w", how.Bandwidth, how.MaxBytes, hypervisor.ErrInvalid)
	case v.paused:
		return fmt.Errorf("VM is paused: %w", hypervisor.ErrInvalid)
	case how.Paused && how.PostCopy && !how.CopyStorage:
		return fmt.Errorf("its guest is to arrive paused, and to run on before all of it is there: %w", hypervisor.ErrInvalid)
	}
	if v.spec.Disk.Present() && !how.SharedDisk && !how.CopyStorage {
		return fmt.Errorf("its disk is here alone: %w", hypervisor.ErrInvalid)
	}
	if o := m.routeTo(mv.to.name); o.Why != "" {
		return fmt.Errorf("%s: %w", o.Why, hypervisor.ErrUnavailable)
	}
	v.moving = make(chan struct{})
	mv.v, mv.spec, mv.paused = v, v.spec, how.Paused
	mv.balloon = v.balloonNow(now, m.w.timing.Balloon)
	mv.memory = float64(mv.balloon)
	if how.CopyStorage {
		mv.memory += float64(max(m.w.written(v.spec), 0))
	}
	mv.left = mv.memory
	mv.dirty = max(float64(m.w.dirty(v.spec)), 0)
	mv.speed = float64(m.w.timing.Link)
	if how.Bandwidth > 0 {
		mv.speed = min(mv.speed, float64(how.Bandwidth))
	}
	return nil
}

// run carries the move through.
func (mv *move) run(ctx context.Context, how hypervisor.Migration) error {
	if err := mv.receive(); err != nil {
		return err
	}
	if err := mv.send(ctx, how); err != nil {
		return err
	}
	if mv.handed {
		return nil
	}
	if err := mv.from.wait(ctx, mv.takes(mv.left), nil); err != nil {
		return err
	}
	mv.downtime = mv.takes(mv.left)
	return mv.handOver(false)
}

// receive makes room on the target.
func (mv *move) receive() error {
	to := mv.to
	to.mu.Lock()
	defer to.mu.Unlock()
	if to.down() {
		return fmt.Errorf("target is out of reach: %w", hypervisor.ErrUnavailable)
	}
	now := to.advance(to.w.now())
	if to.byID[mv.spec.VM] != nil || to.byName[mv.spec.Name] != nil {
		return fmt.Errorf("target: %w", hypervisor.ErrExists)
	}
	mv.copied = &vm{
		spec: mv.spec, incoming: true, goneAt: never,
		since: now, balloon: int64(mv.balloon), balloonAt: now,
	}
	to.add(mv.copied)
	return nil
}

// send sends memory until what is left can go while the guest stands still.
func (mv *move) send(ctx context.Context, how hypervisor.Migration) error {
	timing := mv.from.m.w.timing
	within := mv.speed * timing.Downtime.Seconds()
	budget := math.Inf(1)
	if how.MaxBytes > 0 {
		budget = float64(how.MaxBytes)
	}
	pass, throttle := mv.left, 0.0 // bytes of this pass over the memory that are yet to be sent
	for passes := 1; mv.left > within; {
		if mv.sent >= budget {
			break
		}
		if how.PostCopy && !how.CopyStorage && passes > 1 && mv.sent+mv.left <= budget {
			return mv.postCopy(how)
		}
		dirty := mv.dirty * (1 - throttle)
		d := min(timing.Progress, mv.takes(budget-mv.sent))
		if mv.speed > dirty {
			s := (mv.left - within) / (mv.speed - dirty)
			d = min(d, time.Duration(math.Ceil(s*float64(time.Second))))
		}
		d = max(d, time.Microsecond)
		if err := mv.from.wait(ctx, d, nil); err != nil {
			return err
		}
		if err := mv.alive(); err != nil {
			return err
		}
		s := d.Seconds()
		mv.sent = min(mv.sent+mv.speed*s, budget)
		mv.left = min(max(mv.left-mv.speed*s, 0)+dirty*s, mv.memory)
		if pass -= mv.speed * s; pass <= 0 {
			passes, pass = passes+1, mv.left
			if how.AutoConverge && 2*dirty > mv.speed {
				throttle = min(max(firstThrottle, throttle+moreThrottle), maxThrottle)
			}
		}
		if how.Progress != nil {
			m := mv.moved()
			m.Dirty = dirty
			how.Progress(m)
		}
	}
	if mv.sent+mv.left > budget {
		return fmt.Errorf("would send more than %d bytes: %d sent, %d left; VM runs on here", how.MaxBytes, int64(mv.sent), int64(mv.left))
	}
	return nil
}

// postCopy hands the guest over and has what is left follow it. Nothing can go wrong with that here.
func (mv *move) postCopy(how hypervisor.Migration) error {
	if err := mv.handOver(true); err != nil {
		return err
	}
	mv.downtime, mv.switched = time.Millisecond, true
	for mv.left > 0 {
		d := max(min(mv.from.m.w.timing.Progress, mv.takes(mv.left)), time.Microsecond)
		if err := mv.from.wait(context.Background(), d, nil); err != nil {
			return nil // a daemon that is gone: the guest is at the target
		}
		n := min(mv.left, mv.speed*d.Seconds())
		if mv.sent, mv.left = mv.sent+n, mv.left-n; mv.left < 1 {
			mv.left = 0
		}
		if how.Progress != nil {
			how.Progress(mv.moved())
		}
	}
	return nil
}

// alive returns why the move cannot go on, nil if it can: the source's daemon, the VM or the target
// is gone. It locks the machines one by one. handOver finds a change right after.
func (mv *move) alive() error {
	m := mv.from.m
	m.mu.Lock()
	err := mv.from.reachable()
	here := m.byID[mv.spec.VM] == mv.v
	m.mu.Unlock()
	if err != nil {
		return err
	}
	if !here {
		return fmt.Errorf("VM ended on the way: %w", hypervisor.ErrNotFound)
	}
	mv.to.mu.Lock()
	defer mv.to.mu.Unlock()
	return mv.waiting()
}

// waiting says whether the target still waits for the VM. It is locked.
func (mv *move) waiting() error {
	if mv.to.down() || mv.to.byID[mv.spec.VM] != mv.copied {
		return fmt.Errorf("target was lost, VM runs on here: %w", hypervisor.ErrUnavailable)
	}
	return nil
}

// handOver moves the VM from one machine to the other in one instant. An error may come after that (handed), and
// says what became of the VM.
func (mv *move) handOver(postCopy bool) error {
	m, to := mv.from.m, mv.to
	first, second := m, to
	if second.index < first.index {
		first, second = second, first
	}
	first.mu.Lock()
	defer first.mu.Unlock()
	second.mu.Lock()
	defer second.mu.Unlock()
	if err := mv.from.reachable(); err != nil {
		return err
	}
	if err := mv.waiting(); err != nil {
		return err
	}
	now := to.advance(m.advance(m.w.now()))
	m.advance(now)
	if m.byID[mv.spec.VM] != mv.v {
		return fmt.Errorf("VM ended on the way: %w", hypervisor.ErrNotFound)
	}
	r := &record{Op: opMove, VM: mv.spec.VM, To: to.name, Paused: mv.paused}
	var end error
	switch {
	case m.loseAnswers > 0 && !postCopy:
		r.Source = runsOn
		end = fmt.Errorf("the target's answer to the hand-over was lost, VM runs on here: %w", hypervisor.ErrUnavailable)
	case m.keepSources > 0:
		r.Source = stays
		if mv.paused {
			end = fmt.Errorf("%w: the daemon ended at the hand-over: %w", hypervisor.ErrEndUnknown, hypervisor.ErrUnavailable)
		}
	}
	if err := m.commit(r); err != nil {
		return err
	}
	switch r.Source {
	case runsOn:
		m.loseAnswers--
	case stays:
		m.keepSources--
	}
	mv.handed = true
	return end
}

// take takes a VM over from another machine at its instant m.at, as the record says; both are
// locked. The VM's CPU time and uptime go on.
func (m *machine) take(v *vm, from *machine, r *record) error {
	if in := m.byID[v.spec.VM]; in != nil && in.incoming {
		m.remove(in, "", "")
	}
	if m.byID[v.spec.VM] != nil || m.byName[v.spec.Name] != nil {
		return fmt.Errorf("move VM %s to host %s: %w", v.spec.VM, m.name, hypervisor.ErrExists)
	}
	s := v.saved(from.at)
	switch {
	case r.Source == runsOn:
		from.notify(hypervisor.Suspended, v, "migrated")
		from.notify(hypervisor.Resumed, v, "migrated")
	case r.Source == stays && r.Paused:
		from.remove(v, hypervisor.Suspended, "migrated")
	default:
		from.remove(v, hypervisor.MovedOut, "migrated")
	}
	if r.Source != runsOn {
		endMove(v)
	}
	if r.Source == stays {
		left := s.vm(m.w, from.at)
		left.ignoresStop, left.incoming, left.leftover = v.ignoresStop, true, true
		left.pause(from.at)
		from.add(left)
	}
	arrived := s.vm(m.w, m.at)
	arrived.ignoresStop = v.ignoresStop
	if r.Paused {
		arrived.pause(m.at)
	}
	m.defined[v.spec.VM] = true
	m.add(arrived)
	m.armStop(arrived)
	m.armBalloon(arrived)
	m.armMemory(arrived)
	if r.Paused { // libvirt sends no other event of it
		m.notify(hypervisor.Suspended, arrived, "paused")
	} else {
		m.notify(hypervisor.MovedIn, arrived, "migrated")
	}
	return nil
}

// giveUp ends a move that failed: it removes the VM's incoming side, if there still is one.
func (mv *move) giveUp() {
	mv.from.m.mu.Lock()
	endMove(mv.v)
	mv.from.m.mu.Unlock()
	if mv.copied == nil {
		return
	}
	mv.to.mu.Lock()
	defer mv.to.mu.Unlock()
	if mv.to.byID[mv.spec.VM] == mv.copied {
		mv.to.advance(mv.to.w.now())
		mv.to.remove(mv.copied, "", "")
	}
}

// endMove wakes the calls that wait for the end of a migration. The VM's machine is locked.
func endMove(v *vm) {
	if v.moving != nil {
		close(v.moving)
		v.moving = nil
	}
}

// takes is how long it takes to send so many bytes.
func (mv *move) takes(bytes float64) time.Duration {
	s := bytes / mv.speed
	if s > 1e9 {
		return never
	}
	return time.Duration(math.Round(s * float64(time.Second)))
}

func (mv *move) moved() hypervisor.Moved {
	return hypervisor.Moved{Bytes: int64(mv.sent), Remaining: int64(math.Ceil(mv.left)), Rate: mv.speed, Dirty: mv.dirty, PostCopy: mv.switched}
}
