package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"evenkeel/hypervisor"
)

// A VM arrives paused by its move. The target resumes it once its source has said, in the log, that the VM left and did not run
// there since. A source that does not learn the outcome of the hand-over resumes its VM and reports that; it then never reports
// that the VM left. So only one host resumes the VM, whatever either host learned of the other.

// handedOver says whether the VM is not here any more because its open move took it away. It is false if the VM may have run here after
// its migration and ended: the target's copy is older than that.
func (d *decider) handedOver(vm VM) bool {
	return vm.Move.Paused && !vm.Move.Incoming && d.past.Handed[vm.Spec.Identity.VM] && !d.lost(vm) && !d.past.Fresh && !(d.past.Lapsed && vm.Spec.Leased)
}

// stands notes which VMs came by a migration and are paused, and since when.
func (r *runner) stands(there []hypervisor.VM, at time.Time) {
	before := r.standing
	r.standing = map[Instance]time.Time{}
	for _, vm := range there {
		if vm.Foreign || vm.State != hypervisor.Paused {
			continue
		}
		i := instanceOf(vm)
		since, was := before[i]
		in, coming := r.coming[i.VM]
		if !was && !vm.Standing && (!coming || !in.Move.Paused && !in.Move.Wait) {
			continue
		}
		if coming {
			if _, resumed := r.resumed[in.Move.Open]; resumed {
				continue // it was resumed and has been paused again
			}
		}
		if !was {
			since = at
		}
		r.standing[i] = since
	}
}

// isStanding says whether stands has noted the VM.
func (r *runner) isStanding(vm hypervisor.VM) bool {
	_, is := r.standing[instanceOf(vm)]
	return is
}

// outdated says whether the VM may have run elsewhere after it was paused here: its move is closed, its source is lost and has not
// reported that the VM left, or an earlier move left it. After a restore the state may be older than the paused VM: then all count as
// outdated.
func (r *runner) outdated(i Instance) bool {
	if _, stands := r.standing[i]; !stands || r.counts == nil {
		return false
	}
	in, coming := r.coming[i.VM]
	return r.frozen || !coming && r.counts[i.VM] != i.Generation || coming && (in.Move.Wait || in.Move.SourceLost && !in.Move.Left)
}

// recordStays notes which VMs run here after a migration whose end was not known: if they leave later, that migration did not
// take them. Migrations of an agent before this one have ended by then.
func (r *runner) recordStays() {
	for id, vm := range r.caps {
		if vm.State == hypervisor.Incoming {
			continue
		}
		switch m := r.moves[id]; {
		case m == nil && r.alone:
			r.lease.stayed(id, r.lease.sending()[id].Open)
		case m != nil && m.over && (m.end.Unknown || m.end.Error == ""):
			m.end.stays()
			r.lease.stayed(id, m.open)
		}
	}
}

// resume resumes a VM. It asks the leader right before: the leader answers from the log as it is then.
func (r *runner) resume(ctx context.Context, op Resume) (bool, error) {
	if op.Leased {
		defer r.lease.started(1)
		if err := r.lease.starts(ctx, 1); err != nil {
			return false, fmt.Errorf("%s: %w", op, err)
		}
	}
	h := Handover{VM: op.VM, Generation: op.Generation, Move: op.Move}
	p, err := r.permit(ctx, PermitRequest{Host: r.Host, Resumes: []Handover{h}})
	if err != nil {
		return false, fmt.Errorf("permit to %s: %w", op, err)
	}
	if !slices.Contains(p.Resumes, h) || op.Leased && !r.lease.leased() {
		r.log.Info("not permitted: "+op.String(), "why", p.Refused)
		return false, nil
	}
	i := Instance{VM: op.VM, Generation: op.Generation}
	since, came := r.standing[i]
	var moved hypervisor.Moved
	if came { // the figures go with that
		if moved, err = r.Hypervisor.Arrival(ctx, op.VM); err != nil {
			r.log.Debug("figures of a move", "error", err)
		}
	}
	if op.Here { // before it runs: should it go later, the move did not take it
		if m := r.moves[op.VM]; m != nil && m.over {
			m.end.stays()
		}
		if err := r.lease.recordStay(op.VM); err != nil {
			return false, fmt.Errorf("%s: %w", op, err)
		}
	}
	r.log.Info(op.String())
	if err := r.Hypervisor.Resume(ctx, op.VM); err != nil {
		if _, known := r.failing[op.Move]; !known && !op.Here && !errors.Is(err, hypervisor.ErrUnavailable) {
			r.failing[op.Move] = time.Now()
		}
		return false, fmt.Errorf("%s: %w", op, err)
	}
	if came {
		moved.Downtime += time.Since(since)
		r.resumed[op.Move] = moved
		delete(r.standing, i)
	}
	return true, nil
}
