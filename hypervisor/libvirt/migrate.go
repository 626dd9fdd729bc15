package libvirt

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"libvirt.org/go/libvirt"

	"evenkeel/hypervisor"
)

// Migrate moves the VM while it runs: the two libvirt daemons talk to each
// other (peer to peer), and hand it over; over TLS if the target's address says so,
// and then QEMU encrypts what it sends, too. If ctx ends or MaxBytes could be
// passed before an abort takes effect, the move is aborted and the VM runs on here.
// A move with MaxBytes is given no higher bandwidth than one that the budget can be kept with.
//
// A move goes on in the daemons if this process dies: see Abort.
func (h *Host) Migrate(ctx context.Context, id string, m hypervisor.Migration) (hypervisor.Moved, error) {
	moved, err := h.migrate(ctx, id, m)
	if err != nil {
		return moved, fmt.Errorf("migrate VM %s to %s: %w", id, m.To, err)
	}
	return moved, nil
}

func (h *Host) migrate(ctx context.Context, id string, m hypervisor.Migration) (hypervisor.Moved, error) {
	if m.To == "" || m.Bandwidth < 0 || m.MaxBytes < 0 {
		return hypervisor.Moved{}, fmt.Errorf("to %q, %d bytes/s, at most %d bytes: %w", m.To, m.Bandwidth, m.MaxBytes, hypervisor.ErrInvalid)
	}
	if m.Paused && postCopy(m) {
		return hypervisor.Moved{}, fmt.Errorf("its guest is to arrive paused, and to run on before all of it is there: %w", hypervisor.ErrInvalid)
	}
	if m.CopyStorage && m.Spec.VM != id {
		return hypervisor.Moved{}, fmt.Errorf("its disk is to go along, and the definition is of VM %q: %w", m.Spec.VM, hypervisor.ErrInvalid)
	}
	if m.CopyStorage && m.Spec.Disk.Present() && m.MaxBytes > 0 && m.MaxBytes <= diskBurst {
		return hypervisor.Moved{}, fmt.Errorf("its disk is to go along, and %d bytes may be sent before it could be stopped; %d are allowed: %w",
			diskBurst, m.MaxBytes, hypervisor.ErrInvalid)
	}
	flags, err := migrationFlags(m)
	if err != nil {
		return hypervisor.Moved{}, err
	}
	if err := ctx.Err(); err != nil {
		return hypervisor.Moved{}, err
	}
	uuid := uuidOf(id)
	final := make(chan hypervisor.Moved, 1)
	h.mu.Lock()
	if _, busy := h.moves[uuid]; busy {
		h.mu.Unlock()
		return hypervisor.Moved{}, errors.New("it is on its way already")
	}
	h.moves[uuid] = final
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		delete(h.moves, uuid)
		h.mu.Unlock()
	}()
	var disk *copied
	if m.CopyStorage && needsPool(m.Spec) {
		if disk, err = h.prepareCopy(ctx, m); err != nil {
			return hypervisor.Moved{}, err
		}
	}
	t := &transfer{h: h, id: id, m: m, final: final}
	moved, err := t.run(ctx, flags)
	if disk != nil {
		if cleared := disk.removeStale(h, m.Spec, err == nil); cleared != nil {
			h.log.Warn("a copy of a VM's disk is left", "vm", id, "moved", err == nil, "error", cleared)
		}
	}
	return moved, err
}

// migrationFlags are what libvirt is to do, in its words.
func migrationFlags(m hypervisor.Migration) (libvirt.DomainMigrateFlags, error) {
	to, err := url.Parse(m.To)
	if err != nil {
		return 0, fmt.Errorf("address %q: %w: %w", m.To, err, hypervisor.ErrInvalid)
	}
	flags := libvirt.MIGRATE_LIVE | libvirt.MIGRATE_PEER2PEER | libvirt.MIGRATE_ABORT_ON_ERROR
	if _, transport, _ := strings.Cut(to.Scheme, "+"); transport == "tls" {
		flags |= libvirt.MIGRATE_TLS
	}
	if m.AutoConverge {
		flags |= libvirt.MIGRATE_AUTO_CONVERGE
	}
	if m.CopyStorage && m.Spec.Disk.Present() {
		// What the base image holds is there already: only what the VM itself wrote is sent.
		flags |= libvirt.MIGRATE_NON_SHARED_INC
	}
	if postCopy(m) {
		flags |= libvirt.MIGRATE_POSTCOPY
	}
	if m.Paused {
		flags |= libvirt.MIGRATE_PAUSED
	}
	// libvirt takes a disk outside of the network file systems that it knows for one that the target has not.
	if m.SharedDisk {
		flags |= libvirt.MIGRATE_UNSAFE
	}
	return flags, nil
}

// hostOf is the host in libvirt's address of a target, as it stands in a URI; "" if there is none.
func hostOf(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.Hostname() == "" {
		return ""
	}
	if name := u.Hostname(); strings.Contains(name, ":") {
		return "[" + name + "]"
	}
	return u.Hostname()
}

// postCopy says whether the guest may run on at the target before all is there: not while its disk is copied, too.
func postCopy(m hypervisor.Migration) bool {
	return m.PostCopy && (!m.CopyStorage || !m.Spec.Disk.Present())
}

// transfer is one migration under way.
type transfer struct {
	h     *Host
	id    string
	m     hypervisor.Migration
	final chan hypervisor.Moved // libvirt's last word, if it ends well
}

// answer to a question for figures.
type answer struct {
	progress
	ok              bool
	asked, received time.Time
}

// bandwidth in MiB per second, as libvirt counts it; 0 = no limit.
func (t *transfer) bandwidth() int64 {
	switch {
	case t.m.MaxBytes > 0:
		// At a higher bandwidth much of a VM is sent between two polls: no budget would be kept, or each move would be
		// aborted before the first figures came. At this one a budget of 4 MiB or more lasts four seconds at least, or two
		// if a disk is sent, too.
		highest := max(t.m.MaxBytes>>2, 1<<20)
		if t.m.Bandwidth > 0 {
			highest = min(highest, t.m.Bandwidth)
		}
		return max(highest>>20, 1)
	case t.m.Bandwidth > 0:
		return max(t.m.Bandwidth>>20, 1)
	}
	return 0
}

// call has libvirt move the VM. It is one call that ends with the move, however long it takes: only the end of the connection
// bounds it.
func (t *transfer) call(ctx context.Context, flags libvirt.DomainMigrateFlags, bandwidth int64) error {
	var asked, answered atomic.Bool // onVM may return before the function ends
	_, err := onVM(context.WithoutCancel(ctx), t.h, unlimited, t.id, func(c *libvirt.Connect, dom *libvirt.Domain, _ mark) (struct{}, error) {
		p := &libvirt.DomainMigrateParameters{}
		if bandwidth > 0 {
			p.BandwidthSet, p.Bandwidth = true, uint64(bandwidth)
		}
		if host := hostOf(t.m.To); host != "" {
			// The memory goes to the same address. By itself libvirt asks the target for its host name, which
			// may be of another network, or of none.
			p.URISet, p.URI = true, "tcp://"+host
		}
		asked.Store(true)
		err := dom.MigrateToURI3(t.m.To, p, flags)
		alive, broken := c.IsAlive()
		answered.Store(err == nil || alive && broken == nil)
		return struct{}{}, err
	})
	if err != nil && asked.Load() && !answered.Load() {
		err = fmt.Errorf("%w: %w", hypervisor.ErrEndUnknown, err)
	}
	return err
}

// bill is the account of what the transfer may send; bandwidth is in MiB per second.
func (t *transfer) bill(bandwidth int64, begun time.Time) *budget {
	b := &budget{limit: t.m.MaxBytes, rate: float64(bandwidth << 20), at: begun}
	if t.m.CopyStorage && t.m.Spec.Disk.Present() {
		b.rate, b.burst = 2*b.rate, diskBurst // memory and disk each have it
	}
	return b
}

func (t *transfer) run(ctx context.Context, flags libvirt.DomainMigrateFlags) (hypervisor.Moved, error) {
	bandwidth := t.bandwidth()
	result := make(chan error, 1)
	go func() { result <- t.call(ctx, flags, bandwidth) }()
	answers := make(chan answer, 1)
	ask := func(known bool) {
		asked := time.Now()
		p, ok := t.h.progress(t.id, known)
		answers <- answer{p, ok, asked, time.Now()}
	}
	begun := time.Now()
	deadline, _ := ctx.Deadline()
	bill := t.bill(bandwidth, begun)
	asking, switched := false, false
	switching := make(chan error, 1)
	mayPostCopy := postCopy(t.m)
	var why error // of our own abort
	aborts, aborting := make(chan error, 1), false
	abort := func(because error) {
		why, aborting = because, true
		go func() { aborts <- t.h.abort(t.id) }()
	}
	end := ctx.Done()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case err := <-result:
			return t.ended(bill, switched, errors.Join(why, err), err)
		case <-end:
			end = nil
			if why == nil && !switched {
				abort(ctx.Err())
			}
		case err := <-aborts:
			// The abort failed where there was no job yet, or no answer: it is tried again until it succeeds or the move
			// ends.
			aborting = err == nil
		case err := <-switching:
			if err != nil { // the move goes on without post-copy
				t.h.log.Warn("switch to post-copy", "vm", t.id, "error", err)
				switched = false
			}
		case a := <-answers:
			asking = false
			if a.ok {
				bill.stats(a.progress, a.asked, a.received)
				bill.last.PostCopy = switched
				if t.m.Progress != nil {
					t.m.Progress(bill.last)
				}
			}
		case <-ticker.C:
			if !asking {
				asking = true
				go ask(bill.known)
			}
			if why != nil && !aborting && !switched {
				abort(why)
			}
		}
		now := time.Now()
		switch {
		case why != nil || switched:
		case mayPostCopy && bill.switchOver(now, begun, deadline):
			mayPostCopy, switched = false, true
			bill.last.PostCopy = true
			if t.m.Progress != nil { // the rest may be gone before the next look
				t.m.Progress(bill.last)
			}
			go func() { switching <- t.h.startPostCopy(t.id) }()
		case bill.exceeded(now):
			abort(fmt.Errorf("%d bytes sent, %d more could follow, %d allowed", bill.last.Bytes, bill.bound(now)-bill.last.Bytes, t.m.MaxBytes))
		}
	}
}

// finalWithin is how long libvirt's last word on a migration may come after its end.
const finalWithin = time.Second

// ended puts the last figures together.
func (t *transfer) ended(bill *budget, switched bool, err, failed error) (hypervisor.Moved, error) {
	moved := bill.last
	moved.PostCopy = switched
	if failed != nil {
		moved.Bytes, moved.Downtime = bill.charged(time.Now()), 0
		if errors.Is(failed, hypervisor.ErrUnavailable) && t.h.connected() {
			var missing []string
			if bill.last.Bytes == 0 { // once something was sent, no key was missing
				missing = t.h.missingKeys(t.m.To)
			}
			err = explainPeer(t.m.To, missing, err)
		}
		if switched {
			err = fmt.Errorf("after the guest was handed over: %w", err)
		}
		return moved, err
	}
	select {
	case last := <-t.final:
		moved.Bytes, moved.Downtime = max(last.Bytes, moved.Bytes), last.Downtime
	case <-time.After(finalWithin): // the event was lost with a connection: all that remained was sent
		moved.Bytes += moved.Remaining
	}
	moved.Remaining = 0
	return moved, nil
}

// Resume has the guest of a paused VM go on. What a migration is about to bring or to take away is paused, too, and libvirt's to
// resume: Resume refuses all that stateOf does not call Paused, or left over.
func (h *Host) Resume(ctx context.Context, id string) error {
	_, err := onVM(calling(ctx, "virDomainResume", id, ""), h, h.opts.CallTimeout, id, func(_ *libvirt.Connect, dom *libvirt.Domain, _ mark) (struct{}, error) {
		state, reason, err := dom.GetState()
		if err != nil || state == libvirt.DOMAIN_RUNNING {
			return struct{}{}, err
		}
		if is, leftover := stateOf(dom, state, reason, false); is != hypervisor.Paused && !leftover {
			return struct{}{}, fmt.Errorf("it is %s, and not just paused: %w", is, hypervisor.ErrInvalid)
		}
		if err := dom.Resume(); err != nil {
			return struct{}{}, err
		}
		// A VM is Standing while libvirt has the figures of its migration (cameIn). Reading drops them.
		if _, err := dom.GetJobStats(libvirt.DOMAIN_JOB_STATS_COMPLETED); err != nil {
			h.log.Warn("figures of a migration are not dropped", "vm", id, "error", err)
		}
		return struct{}{}, nil
	})
	if err != nil {
		return fmt.Errorf("resume VM %s: %w", id, err)
	}
	return nil
}

// Abort ends a migration of the VM from here that goes on in the daemons, whichever process began it, and returns when it has ended,
// done or aborted. A process that dies leaves its migrations behind, and then no process enforces their budget.
func (h *Host) Abort(ctx context.Context, id string) (last hypervisor.Moved, found bool, err error) {
	type look struct {
		moved hypervisor.Moved
		out   bool
	}
	for {
		l, err := onVM(calling(ctx, "virDomainAbortJob", id, ""), h, h.slow(), id, func(_ *libvirt.Connect, dom *libvirt.Domain, _ mark) (look, error) {
			info, err := dom.GetJobStats(0)
			if err != nil || info.Type == libvirt.DOMAIN_JOB_NONE || !info.OperationSet || info.Operation != libvirt.DOMAIN_JOB_OPERATION_MIGRATION_OUT {
				return look{}, err
			}
			l := look{movedOf(info), true}
			if err := dom.AbortJob(); err != nil && !isCode(err, libvirt.ERR_OPERATION_INVALID) { // it may be over by now, or past the point of no return
				return l, err
			}
			return l, nil
		})
		if l.moved.Bytes > last.Bytes {
			last = l.moved
		}
		switch {
		case errors.Is(err, hypervisor.ErrNotFound): // it has left, or ended
			return last, found, nil
		case err != nil:
			return last, found, fmt.Errorf("abort the migration of VM %s: %w", id, err)
		case !l.out:
			return last, found, nil
		}
		found = true
		select {
		case <-ctx.Done():
			return last, true, fmt.Errorf("abort the migration of VM %s: %w", id, ctx.Err())
		case <-time.After(pollInterval):
		}
	}
}

// Arrival is what libvirt keeps of the migration that brought the VM, until it is restarted.
func (h *Host) Arrival(ctx context.Context, id string) (hypervisor.Moved, error) {
	moved, err := onVM(calling(ctx, "virDomainGetJobStats", id, ""), h, h.opts.CallTimeout, id, func(_ *libvirt.Connect, dom *libvirt.Domain, _ mark) (hypervisor.Moved, error) {
		flags := libvirt.DOMAIN_JOB_STATS_COMPLETED
		if state, _, err := dom.GetState(); err != nil || state != libvirt.DOMAIN_RUNNING {
			flags |= libvirt.DOMAIN_JOB_STATS_KEEP_COMPLETED // else to read the figures drops them
		}
		info, err := dom.GetJobStats(flags)
		if err != nil || !arrivalIn(info) {
			return hypervisor.Moved{}, err
		}
		return movedOf(info), nil
	})
	if err != nil {
		return hypervisor.Moved{}, fmt.Errorf("figures of the migration of VM %s: %w", id, err)
	}
	moved.Remaining, moved.Rate, moved.Dirty = 0, 0, 0
	return moved, nil
}

// arrivalIn reports whether these are the figures of a migration that brought the VM.
func arrivalIn(info *libvirt.DomainJobInfo) bool {
	return info.Type == libvirt.DOMAIN_JOB_COMPLETED && info.OperationSet && info.Operation == libvirt.DOMAIN_JOB_OPERATION_MIGRATION_IN
}

func (h *Host) abort(id string) error {
	_, err := onVM(calling(context.Background(), "virDomainAbortJob", id, ""), h, h.slow(), id, func(_ *libvirt.Connect, dom *libvirt.Domain, _ mark) (struct{}, error) {
		return struct{}{}, dom.AbortJob()
	})
	if err != nil {
		h.log.Debug("abort migration", "vm", id, "error", err)
	}
	return err
}

func (h *Host) startPostCopy(id string) error {
	_, err := onVM(calling(context.Background(), "virDomainMigrateStartPostCopy", id, ""), h, h.slow(), id, func(_ *libvirt.Connect, dom *libvirt.Domain, _ mark) (struct{}, error) {
		return struct{}{}, dom.MigrateStartPostCopy(0)
	})
	return err
}

func (h *Host) progress(id string, known bool) (progress, bool) {
	p, err := onVM(calling(context.Background(), "virDomainGetJobStats", id, ""), h, h.slow(), id, func(_ *libvirt.Connect, dom *libvirt.Domain, _ mark) (progress, error) {
		info, err := dom.GetJobStats(0)
		if err != nil {
			return progress{}, err
		}
		if info.Type == libvirt.DOMAIN_JOB_NONE {
			return progress{}, errNoJob
		}
		return progress{movedOf(info), int(info.MemIteration)}, nil
	})
	// No job before the first figures counts as figures of zero. No job after them means that the
	// migration is over.
	return p, err == nil || errors.Is(err, errNoJob) && !known
}

// errNoJob: nothing is on its way.
var errNoJob = errors.New("no job")

func movedOf(info *libvirt.DomainJobInfo) hypervisor.Moved {
	return hypervisor.Moved{
		Bytes:     int64(info.DataProcessed),
		Remaining: int64(info.DataRemaining),
		Downtime:  time.Duration(info.Downtime) * time.Millisecond,
		Rate:      float64(info.MemBps) + float64(info.DiskBps),
		Dirty:     float64(info.MemDirtyRate) * float64(info.MemPageSize),
	}
}

// jobCompleted runs in the event loop: libvirt's last word on a migration from here.
func (h *Host) jobCompleted(uuid string, info *libvirt.DomainJobInfo) {
	h.mu.Lock()
	final := h.moves[uuid]
	h.mu.Unlock()
	if final == nil {
		return
	}
	select {
	case final <- movedOf(info):
	default:
	}
}
