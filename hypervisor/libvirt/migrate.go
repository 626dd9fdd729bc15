package libvirt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"libvirt.org/go/libvirt"

	"evenkeel/hypervisor"
)

// pollInterval is how often a migration's figures are asked for. What it may send beyond MaxBytes
// is bounded by this times its bandwidth, which is taken off beforehand.
const pollInterval = 50 * time.Millisecond

// Migrate moves the VM while it runs: the two libvirt daemons talk to each
// other (peer to peer), and hand it over. If ctx ends or MaxBytes would be
// passed the move is aborted and the VM runs on here.
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
	result := make(chan error, 1)
	go func() {
		_, err := onVM(context.WithoutCancel(ctx), h, 1<<62, id, func(_ *libvirt.Connect, dom *libvirt.Domain, _ mark) (struct{}, error) {
			p := &libvirt.DomainMigrateParameters{}
			if m.Bandwidth > 0 {
				p.BandwidthSet, p.Bandwidth = true, uint64(max(m.Bandwidth>>20, 1)) // MiB/s
			}
			return struct{}{}, dom.MigrateToURI3(m.To, p, libvirt.MIGRATE_LIVE|libvirt.MIGRATE_PEER2PEER|libvirt.MIGRATE_ABORT_ON_ERROR)
		})
		result <- err
	}()
	var moved hypervisor.Moved
	var why error // of our own abort
	end := ctx.Done()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case err := <-result:
			select {
			case moved = <-final:
			default:
			}
			if err == nil {
				if len(final) == 0 && moved.Remaining != 0 {
					moved.Remaining = 0
				}
				return moved, nil
			}
			return moved, errors.Join(why, err)
		case <-end:
			why, end = ctx.Err(), nil
			h.abort(id)
		case <-ticker.C:
			now, ok := h.progress(id)
			if !ok {
				continue
			}
			moved = now
			if m.Progress != nil {
				m.Progress(now)
			}
			if why == nil && m.MaxBytes > 0 && now.Bytes+int64(float64(m.Bandwidth)*pollInterval.Seconds()) >= m.MaxBytes {
				why = fmt.Errorf("%d bytes sent, %d allowed", now.Bytes, m.MaxBytes)
				h.abort(id)
			}
		}
	}
}

func (h *Host) abort(id string) {
	_, err := onVM(context.Background(), h, h.opts.CallTimeout, id, func(_ *libvirt.Connect, dom *libvirt.Domain, _ mark) (struct{}, error) {
		return struct{}{}, dom.AbortJob()
	})
	if err != nil {
		h.log.Warn("abort migration", "vm", id, "error", err)
	}
}

func (h *Host) progress(id string) (hypervisor.Moved, bool) {
	m, err := onVM(context.Background(), h, h.opts.CallTimeout, id, func(_ *libvirt.Connect, dom *libvirt.Domain, _ mark) (hypervisor.Moved, error) {
		info, err := dom.GetJobStats(0)
		if err != nil {
			return hypervisor.Moved{}, err
		}
		if info.Type == libvirt.DOMAIN_JOB_NONE {
			return hypervisor.Moved{}, errors.New("no job yet")
		}
		return movedOf(info), nil
	})
	return m, err == nil
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
