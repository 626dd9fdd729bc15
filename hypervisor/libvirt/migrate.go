package libvirt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"libvirt.org/go/libvirt"

	"evenkeel/hypervisor"
)

// pollInterval is how often a migration's figures are asked for at most. QEMU
// may take a second to answer, and to abort, while its VM is throttled: budget
// allows for that.
const pollInterval = 50 * time.Millisecond

// budget bounds what a migration may have sent by the time an abort would take
// effect: by its bandwidth and the time since the last figures, and by what there
// was left to send.
type budget struct {
	limit   int64   // bytes; 0 = none
	rate    float64 // bytes per second, which QEMU keeps to
	last    hypervisor.Moved
	dirty   float64 // bytes per second that the guest writes anew, as QEMU last counted them
	known   bool    // last holds figures of a migration under way
	at      time.Time
	slowest time.Duration // that figures took to come
}

// figures takes what QEMU said in an answer asked for at one time and received at another.
func (b *budget) figures(p progress, asked, received time.Time) {
	if took := received.Sub(asked); took > b.slowest {
		b.slowest = took
	}
	b.last, b.dirty, b.at = p.moved, p.dirty, asked
	b.known = b.known || p.moved.Bytes > 0
}

// bound is the most that may have been sent when an abort asked for now takes effect.
func (b *budget) bound(now time.Time) int64 {
	lag := (now.Sub(b.at) + pollInterval + 2*b.slowest).Seconds()
	more := b.rate * lag
	if b.known {
		more = min(more, float64(b.last.Remaining)+b.dirty*lag)
	}
	return b.last.Bytes + int64(more)
}

func (b *budget) exceeded(now time.Time) bool { return b.limit > 0 && b.bound(now) > b.limit }

// Migrate moves the VM while it runs: the two libvirt daemons talk to each
// other (peer to peer), and hand it over. If ctx ends or MaxBytes could be
// passed before an abort takes effect, the move is aborted and the VM runs on here.
// A move with MaxBytes and no Bandwidth is given one that the budget can be kept with.
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
	// The move itself is one call that ends with it, however long it takes: only the end of the
	// connection bounds it.
	bandwidth := m.Bandwidth >> 20 // libvirt counts in MiB/s
	switch {
	case m.Bandwidth > 0:
		bandwidth = max(bandwidth, 1)
	case m.MaxBytes > 0:
		// Without a bandwidth a whole VM is sent between two looks at it: no budget
		// would hold. This one is spent in four seconds at the least.
		bandwidth = max(m.MaxBytes>>22, 1)
	}
	result := make(chan error, 1)
	go func() {
		_, err := onVM(context.WithoutCancel(ctx), h, 1<<62, id, func(_ *libvirt.Connect, dom *libvirt.Domain, _ mark) (struct{}, error) {
			p := &libvirt.DomainMigrateParameters{}
			if bandwidth > 0 {
				p.BandwidthSet, p.Bandwidth = true, uint64(bandwidth)
			}
			return struct{}{}, dom.MigrateToURI3(m.To, p, libvirt.MIGRATE_LIVE|libvirt.MIGRATE_PEER2PEER|libvirt.MIGRATE_ABORT_ON_ERROR)
		})
		result <- err
	}()
	type answer struct {
		progress
		ok              bool
		asked, received time.Time
	}
	answers := make(chan answer, 1)
	ask := func() {
		asked := time.Now()
		p, ok := h.progress(id)
		answers <- answer{p, ok, asked, time.Now()}
	}
	bill := &budget{limit: m.MaxBytes, rate: float64(bandwidth << 20), at: time.Now()}
	asking := false
	var why error // of our own abort
	end := ctx.Done()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case err := <-result:
			moved := bill.last
			select {
			case moved = <-final:
			default:
			}
			if err != nil {
				return moved, errors.Join(why, err)
			}
			moved.Remaining = 0
			return moved, nil
		case <-end:
			why, end = ctx.Err(), nil
			go h.abort(id)
		case a := <-answers:
			asking = false
			if a.ok {
				bill.figures(a.progress, a.asked, a.received)
				if m.Progress != nil {
					m.Progress(a.moved)
				}
			}
		case <-ticker.C:
			if !asking {
				asking = true
				go ask()
			}
		}
		if now := time.Now(); why == nil && bill.exceeded(now) {
			why = fmt.Errorf("%d bytes sent, %d more could follow, %d allowed", bill.last.Bytes, bill.bound(now)-bill.last.Bytes, m.MaxBytes)
			go h.abort(id)
		}
	}
}

func (h *Host) abort(id string) {
	_, err := onVM(context.Background(), h, h.slow(), id, func(_ *libvirt.Connect, dom *libvirt.Domain, _ mark) (struct{}, error) {
		return struct{}{}, dom.AbortJob()
	})
	if err != nil {
		h.log.Warn("abort migration", "vm", id, "error", err)
	}
}

// progress is how far a migration got.
type progress struct {
	moved hypervisor.Moved
	dirty float64 // bytes per second
}

func (h *Host) progress(id string) (progress, bool) {
	p, err := onVM(context.Background(), h, h.slow(), id, func(_ *libvirt.Connect, dom *libvirt.Domain, _ mark) (progress, error) {
		info, err := dom.GetJobStats(0)
		if err != nil {
			return progress{}, err
		}
		if info.Type == libvirt.DOMAIN_JOB_NONE {
			return progress{}, errors.New("no job yet")
		}
		return progress{movedOf(info), float64(info.MemDirtyRate) * float64(info.MemPageSize)}, nil
	})
	return p, err == nil
}

func movedOf(info *libvirt.DomainJobInfo) hypervisor.Moved {
	return hypervisor.Moved{
		Bytes:     int64(info.DataProcessed),
		Remaining: int64(info.DataRemaining),
		Downtime:  time.Duration(info.Downtime) * time.Millisecond,
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
