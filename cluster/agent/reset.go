package agent

import (
	"context"
	"fmt"
	"slices"
)

// reset asks the leader for the permit to reset a VM, which is given once. With the permit it resets the VM. It returns whether it did.
func (r *runner) reset(ctx context.Context, op Reset) (bool, error) {
	ask := ResetAsk{VM: op.VM, Generation: op.Generation, ID: op.ID}
	r.resets[op.ID] = ResetTry{} // before: if the answer is lost, the permit may have been given
	p, err := r.permit(ctx, PermitRequest{Host: r.Host, Resets: []ResetAsk{ask}})
	if err != nil {
		return false, fmt.Errorf("permit to reset VM %s: %w", op.Name, err)
	}
	if !slices.Contains(p.Resets, ask) {
		r.log.Info("a reset was not permitted", "vm", op.Name, "why", p.Refused)
		return false, nil
	}
	r.log.Info(op.String())
	try := ResetTry{Called: true}
	if err := r.Hypervisor.Reset(ctx, op.VM, op.Generation); err != nil {
		try.Failed = "the hypervisor did not confirm it: " + err.Error()
	}
	r.resets[op.ID] = try
	return true, nil
}

// forgetResets forgets the resets that the leader does not want any more.
func (r *runner) forgetResets(want Desired) {
	wanted := map[string]bool{}
	for _, vm := range want.VMs {
		wanted[vm.Reset] = true
	}
	for id := range r.resets {
		if !wanted[id] {
			delete(r.resets, id)
		}
	}
}
