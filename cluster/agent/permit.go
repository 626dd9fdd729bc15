package agent

import (
	"context"
	"fmt"
	"slices"

	"evenkeel/hypervisor"
)

// permit asks the leader. An answer that took too long, or is older than what the agent received before, is an error.
func (r *runner) permit(ctx context.Context, q PermitRequest) (Permit, error) {
	ctx, cancel := context.WithTimeout(ctx, permitWithin)
	defer cancel()
	asked := r.Clock()
	p, err := r.Leader.Permit(ctx, q)
	if took := r.Clock() - asked; err == nil && took > permitWithin {
		err = fmt.Errorf("the answer came after %s", took)
	}
	if err == nil {
		err = r.lease.advance(p.Epoch, p.Index)
	}
	return p, err
}

// mayHandOver asks the leader, right before the hand-over, whether a VM may be handed over. The permit is in the log. A report
// that rests on an older permit and arrives later, above all that the VM stayed, is void.
func (r *runner) mayHandOver(ctx context.Context, op Migrate) (bool, error) {
	h := Handover{VM: op.Spec.VM, Generation: op.Spec.Generation, Move: op.Move.Open}
	p, err := r.permit(ctx, PermitRequest{Host: r.Host, Moves: []Handover{h}})
	if err != nil {
		return false, fmt.Errorf("permit to hand over VM %s: %w", op.Spec.Label(), err)
	}
	if !slices.Contains(p.Moves, h) {
		r.log.Info("a hand-over was not permitted", "vm", op.Spec.Label(), "why", p.Refused)
		r.moves[h.VM] = never(h.VM, h.Move, 0, "not permitted: "+p.Refused)
		r.wake()
		return false, nil
	}
	return true, nil
}

// permitted asks the leader, right before the VMs are started, which of them may be. It returns those, and how many of them the
// caller must report to the lease manager once they are started or are not.
func (r *runner) permitted(ctx context.Context, specs []hypervisor.Spec) ([]hypervisor.Spec, int, error) {
	leased := 0
	q := PermitRequest{Host: r.Host}
	for _, s := range specs {
		q.Starts = append(q.Starts, Instance{VM: s.VM, Name: s.Name, Generation: s.Generation})
		if s.Leased {
			leased++
		}
	}
	if leased > 0 {
		if err := r.lease.starts(ctx, leased); err != nil {
			return nil, leased, fmt.Errorf("start VMs: %w", err)
		}
	}
	p, err := r.permit(ctx, q)
	if err != nil {
		return nil, leased, fmt.Errorf("permit to start VMs: %w", err)
	}
	granted := map[Instance]bool{}
	for _, i := range p.Granted {
		granted[Instance{VM: i.VM, Generation: i.Generation}] = true
	}
	valid := r.lease.leased()
	var out []hypervisor.Spec
	for _, s := range specs {
		if granted[Instance{VM: s.VM, Generation: s.Generation}] && (valid || !s.Leased) {
			out = append(out, s)
		}
	}
	if len(out) < len(specs) {
		r.log.Info("not all starts were permitted", "permitted", len(out), "asked", len(specs), "why", p.Refused)
	}
	return out, leased, nil
}
