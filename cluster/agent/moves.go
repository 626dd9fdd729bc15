package agent

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"sync"
	"time"

	"evenkeel/hypervisor"
)

// MoveEnd is how a migration ended, at its source.
type MoveEnd struct {
	Error    string // why it failed; "" = the VM was handed over
	Unknown  bool   // with Error: the VM may have been handed over all the same
	Bytes    int64
	Downtime time.Duration
}

// handedOverAndHere is the error of a migration that libvirt reported as done, though the VM did not leave.
const handedOverAndHere = "libvirt reported success, but the VM still runs on this host"

// stays notes that the VM is here, whatever the outcome of its migration.
func (e *MoveEnd) stays() {
	if e.Unknown = false; e.Error == "" {
		e.Error = handedOverAndHere
	}
}

// errOrphan: a migration that was begun by an agent that has ended since. No agent counted its bytes.
var errOrphan = errors.New("the agent was restarted while it went on, and gave it up: its bytes were not counted")

// errUncounted: a migration that an agent before this one began, and that ended with it.
var errUncounted = errors.New("the agent was restarted and it had come to an end: its bytes were not counted, and all that it was allowed count as sent")

// moving is a migration that was begun, or that is being given up. The runner's goroutine alone reads end, once done
// is closed.
type moving struct {
	id    string
	gen   uint64
	open  uint64
	done  chan struct{}
	end   MoveEnd
	over  bool // it was done before the host's VMs were last listed
	begun time.Time
	abort context.CancelCauseFunc

	mu   sync.Mutex
	last hypervisor.Moved
}

// stays makes sure that a VM which the agent is about to report as staying does not leave: it ends every migration of it. One
// may go on that an agent before this one began, or whose end was not reported.
func (r *runner) stays(ctx context.Context, st Status) (Status, error) {
	ctx, cancel := context.WithTimeout(ctx, decidedFor) // a migration that cannot be aborted any more ends in its own time
	defer cancel()
	moved, found, err := r.Hypervisor.Abort(ctx, st.VM)
	if err == nil {
		err = r.runsOn(ctx, st)
	}
	if err == nil {
		// libvirt sets no cap of a VM that is migrating: SetCPU waits for the end, and fails if the VM has left. Success proves that it
		// stays. The call sets the share that is in force. If that cannot be read nothing is set: a share of 0 would remove the cap.
		share := r.caps[st.VM].CPU
		if kept, set := r.shares[st.VM]; set {
			share = hypervisor.CPU{Cap: kept, Weight: kept}
		}
		if share.Cap <= 0 {
			return st, fmt.Errorf("VM %s: whether it stays here: the share it has cannot be read", st.VM)
		}
		err = r.Hypervisor.SetCPU(ctx, st.VM, share)
	}
	if err != nil {
		return st, fmt.Errorf("VM %s: whether it stays here: %w", st.VM, err)
	}
	if found {
		st.Bytes, st.Reason = max(st.Bytes, moved.Bytes), st.Reason+"; "+errOrphan.Error()
	}
	if m := r.moves[st.VM]; m == nil || m.open != st.Move {
		// The leader may receive the report late. So from now on this agent must not hand the VM over by this move.
		r.moves[st.VM] = never(st.VM, st.Move, st.Bytes, st.Reason)
	}
	r.moves[st.VM].end.stays()
	r.lease.stayed(st.VM, st.Move)
	return st, nil
}

// runsOn returns an error if the VM does not run here: a VM that a migration left paused does not resume by itself.
func (r *runner) runsOn(ctx context.Context, st Status) error {
	vms, err := r.Hypervisor.List(ctx)
	if err != nil {
		return err
	}
	for _, vm := range vms {
		if !vm.Foreign && vm.Identity.VM == st.VM && vm.Generation == st.Generation && vm.State != hypervisor.Incoming {
			return nil
		}
	}
	return errors.New("its migration did not leave it running")
}

// giveUpOrphans ends, as an agent's first step, the migrations that the agent before it began. No agent counts their bytes, and after a
// restore a VM that this host reports must not leave. It returns the VMs that are on the host afterwards.
func (r *runner) giveUpOrphans(ctx context.Context, there listing) (listing, error) {
	var failed error
	begun := r.lease.sending()
	for _, vm := range there.vms {
		if vm.Foreign || vm.Cluster != r.cluster {
			continue
		}
		if s, is := begun[vm.Identity.VM]; is {
			r.begun[vm.Identity.VM] = s
		}
		if vm.State == hypervisor.Incoming {
			continue
		}
		moved, found, err := r.Hypervisor.Abort(ctx, vm.Identity.VM)
		if found {
			r.log.Warn("a migration that an agent before this one began is given up", "vm", vm.Name, "bytes", moved.Bytes, "error", err)
			r.orphans[vm.Identity.VM] = moved.Bytes
		}
		switch err = absentIsFine(err); {
		case errors.Is(err, hypervisor.ErrUnavailable) || ctx.Err() != nil:
			return listing{}, unreachableError{fmt.Errorf("VM %s: whether it is on its way: %w", vm.Name, err)}
		case err != nil: // it cannot be given up any more: again in the next round
			failed = errors.Join(failed, fmt.Errorf("VM %s: %w", vm.Name, err))
		}
	}
	if failed != nil {
		r.log.Warn("migrations of an agent before this one go on", "error", failed)
	}
	r.alone = failed == nil
	if len(r.orphans) == 0 && r.alone {
		return there, nil
	}
	return r.listVMs(ctx)
}

// arrives adds the bytes of the migration by this host's count: the source may be gone.
func (r *runner) arrives(ctx context.Context, st Status) Status {
	moved, known := r.resumed[st.Move]
	if !known {
		var err error
		if moved, err = r.Hypervisor.Arrival(ctx, st.VM); err != nil {
			r.log.Debug("figures of a move", "error", err)
		}
		r.resumed[st.Move] = moved
	}
	st.Bytes, st.Downtime = moved.Bytes, moved.Downtime
	return st
}

// never returns a migration that was not begun.
func never(id string, open uint64, bytes int64, why string) *moving {
	done := make(chan struct{})
	close(done)
	return &moving{id: id, open: open, done: done, over: true, end: MoveEnd{Error: why, Bytes: bytes}}
}

// migrate begins a hand-over. It goes on beside the rounds; its end wakes them.
func (r *runner) migrate(ctx context.Context, op Migrate) {
	r.carryOut(ctx, op.Spec.Identity, op.Move.Open, func(ctx context.Context, m *moving) (hypervisor.Moved, error) {
		if d := op.Move.Deadline; d > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, d, fmt.Errorf("it was not done within %s", d))
			defer cancel()
		}
		// One that goes on already was begun by an agent that was killed.
		if moved, found, err := r.Hypervisor.Abort(ctx, m.id); err != nil || found {
			return moved, errors.Join(orphaned(found), absentIsFine(err))
		}
		how := op.Move
		if err := r.lease.sends(m.id, Sending{Open: how.Open, MaxBytes: how.MaxBytes}); err != nil {
			return hypervisor.Moved{}, err
		}
		moved, err := r.Hypervisor.Migrate(ctx, m.id, hypervisor.Migration{To: how.URI, Bandwidth: how.Bandwidth, MaxBytes: how.MaxBytes,
			AutoConverge: how.AutoConverge, PostCopy: how.PostCopy && !how.Paused, Paused: how.Paused, CopyStorage: how.CopyStorage, SharedDisk: how.SharedDisk, Spec: op.Spec,
			Progress: func(p hypervisor.Moved) {
				m.mu.Lock()
				m.last = p
				m.mu.Unlock()
			}})
		if errors.Is(err, hypervisor.ErrEndUnknown) { // libvirt may go on with it, and no agent counts its bytes
			err = errors.Join(err, r.ends(ctx, m.id))
		}
		if err = because(ctx, err); err != nil {
			if why := r.reach.after(ctx, Peer{how.To, how.URI}); why != "" {
				err = errors.New(why)
			}
		}
		return moved, err
	})
}

// ends waits until no migration of a VM from here goes on.
func (r *runner) ends(ctx context.Context, id string) error {
	for {
		_, _, err := r.Hypervisor.Abort(ctx, id)
		if err = absentIsFine(err); err == nil || !errors.Is(err, hypervisor.ErrUnavailable) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(firstBackoff):
		}
	}
}

// withoutID returns a text about one VM without its id: the reader knows which VM it is, and equal causes of several VMs read
// alike.
func withoutID(text, id string) string {
	return regexp.MustCompile(`(\bVM )?\b`+regexp.QuoteMeta(id)+`\b`).ReplaceAllString(text, "it")
}

// because adds to an error the cause for which its context was ended.
func because(ctx context.Context, err error) error {
	if why := context.Cause(ctx); err != nil && why != nil && !errors.Is(err, why) {
		return fmt.Errorf("%w: %w", why, err)
	}
	return err
}

func orphaned(found bool) error {
	if found {
		return errOrphan
	}
	return nil
}

// carryOut runs a move's migration, or its end, beside the rounds.
func (r *runner) carryOut(ctx context.Context, of hypervisor.Identity, open uint64, f func(context.Context, *moving) (hypervisor.Moved, error)) {
	ctx, cancel := context.WithCancelCause(ctx)
	id := of.VM
	m := &moving{id: id, gen: of.Generation, open: open, done: make(chan struct{}), begun: time.Now(), abort: cancel}
	r.moves[id] = m
	r.ending.Add(1)
	go func() {
		defer r.ending.Done()
		moved, err := f(ctx, m)
		m.end = MoveEnd{Bytes: moved.Bytes, Downtime: moved.Downtime}
		if err = because(ctx, err); err != nil {
			m.end.Error = withoutID(err.Error(), id)
			m.end.Unknown = errors.Is(err, hypervisor.ErrEndUnknown) || errors.Is(err, errOrphan)
			if !m.end.Unknown {
				r.lease.stayed(id, open)
			}
			r.log.Info("a move ended", "vm", id, "bytes", moved.Bytes, "error", err)
		} else {
			r.log.Info("handed over", "vm", id, "bytes", moved.Bytes, "downtime", moved.Downtime)
		}
		cancel(nil)
		close(m.done)
		r.wake()
	}()
}

// wake wakes the loop: a migration or a start has ended, or a call of the hypervisor hangs.
func (r *runner) wake() {
	select {
	case r.moved <- struct{}{}:
	default:
	}
}

// awaitMoves waits, at the agent's end, until its moves were given up, but not for ever.
func (r *runner) awaitMoves() {
	done := make(chan struct{})
	go func() {
		r.ending.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(movesEnd):
		r.log.Warn("moves that were to be given up go on: the next agent gives them up")
	}
}

// over notes that a migration had ended before the host's VMs were listed. The agent reports what it sent even if the leader has closed
// the move by the target's report.
func (r *runner) over(m *moving) {
	if !m.over && m.end.Error == "" {
		r.Recorder.leaves(m.id)
		r.left = append(r.left, Status{VM: m.id, Generation: m.gen, Phase: PhaseLeft, Move: m.open, Bytes: m.end.Bytes, Downtime: m.end.Downtime})
	}
	m.over = true
}

// progress returns the progress of the moves that go on from here.
func (r *runner) progress() []MoveProgress {
	var out []MoveProgress
	for _, m := range r.moves {
		select {
		case <-m.done:
			continue
		default:
		}
		m.mu.Lock()
		p := m.last
		m.mu.Unlock()
		out = append(out, MoveProgress{Move: m.open, VM: m.id, Bytes: p.Bytes, Remaining: p.Remaining, Rate: p.Rate, Dirty: p.Dirty,
			Since: time.Since(m.begun), PostCopy: p.PostCopy})
	}
	slices.SortFunc(out, func(a, b MoveProgress) int { return int(int64(a.Move) - int64(b.Move)) })
	return out
}

// pace is how long it is until the host is measured again.
func (r *runner) pace() time.Duration {
	every := r.SampleEvery
	if len(r.progress()) > 0 || r.watched() {
		every = min(every, progressEvery)
	}
	if r.Recorder != nil { // one measurement, the history's, falls on the host's phase in each ten seconds of the clock
		every = min(every, tillSlot(time.Now().Add(-phase(r.Host))))
	}
	return every
}

// phase is when in each ten seconds a host is measured, so that not all hosts of a cluster report at once: in the first eight, to
// stay within the ten.
func phase(host string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(host)) // it never fails
	return time.Duration(h.Sum32()%8000) * time.Millisecond
}

// known identifies a move that a host knew of.
type known struct {
	vm         string
	open       uint64
	sourceLost bool // its source
}

// news says whether there are moves that this host did not know of when its VMs were listed: that list then proves nothing of
// which host runs them since.
func (r *runner) news(want Desired) bool {
	before := r.known
	r.known = map[known]bool{}
	isNew := false
	for _, vm := range want.VMs {
		if vm.Move != nil {
			k := known{vm.Spec.Identity.VM, vm.Move.Open, vm.Move.SourceLost}
			r.known[k] = true
			isNew = isNew || !before[k]
		}
	}
	return isNew
}
