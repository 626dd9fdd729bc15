package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"evenkeel/hypervisor"
)

// A migration that breaks at its end may leave a paused domain. The source keeps one if its hypervisor died in the last phase; the
// target, if the source lost the connection and resumed the VM. Such a domain takes memory and bars the VM from the host. With
// post-copy both domains may run. The domain that is the VM is resumed (see Resume). Any other is destroyed once the leader answers,
// from the log, that the VM runs elsewhere, has ended, or is to start again.

// Clear destroys what a migration left behind, if the leader permits it.
type Clear struct {
	VM, Name   string
	Generation uint64
	Paused     bool // it runs nothing
}

func (o Clear) String() string {
	return fmt.Sprintf("destroy %s generation %d, which a migration left behind", o.Name, o.Generation)
}

// clear destroys what migrations left behind, once it has been there for long enough to count as left behind.
func (d *decider) clear(vms []VM) {
	leaves, goesOn := map[string]bool{}, map[string]bool{}
	for _, vm := range vms {
		id := vm.Spec.Identity.VM
		leaves[id] = vm.Move != nil && !vm.Move.Incoming
		goesOn[id] = leaves[id] && vm.Move.Paused || vm.stays() && ours(vm, d.there[id], true)
	}
	var ids []string
	for id := range d.there {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		now, shortest := d.there[id], leftoverFor
		if leaves[id] {
			shortest = strandedFor
		}
		if age, is := d.past.Leftover[id]; is && age >= shortest && !goesOn[id] {
			d.add(Clear{id, now.Name, now.Generation, now.Leftover || d.past.Standing[id]})
		}
	}
}

// stays says whether, in the desired state, the VM runs here, and no move of it is open.
func (vm VM) stays() bool { return vm.Move == nil && !vm.MayStart && !vm.EndKnown }

// leftovers notes since when VMs count as left over: paused by a migration that goes on no more, outdated (see there), or running and
// not in the leader's desired state for this host.
func (r *runner) leftovers(there []hypervisor.VM, at time.Time) {
	before, unknown := r.leftover, r.unmanaged(there)
	r.leftover = map[Instance]time.Time{}
	for _, vm := range there {
		i := instanceOf(vm)
		if vm.Foreign || !vm.Leftover && !unknown[vm.Identity.VM] && !r.outdated(i) {
			continue
		}
		since, known := before[i]
		if !known {
			since = at
			r.log.Warn("a VM is here that the leader has elsewhere, or a migration left behind", "vm", vm.Name, "generation", vm.Generation, "state", vm.State)
		}
		r.leftover[i] = since
	}
	maps.DeleteFunc(r.refused, func(i Instance, _ time.Time) bool { _, is := r.leftover[i]; return !is })
}

// mayClear returns the VMs to destroy if the leader permits it, and for how long they have been left over.
func (r *runner) mayClear(at time.Time) map[string]time.Duration {
	out := map[string]time.Duration{}
	for i, since := range r.leftover {
		if !at.Before(r.refused[i]) {
			out[i.VM] = at.Sub(since)
		}
	}
	return out
}

// clearAway destroys what a migration left behind. It asks the leader right before: the leader answers from the log as it is
// then.
func (r *runner) clearAway(ctx context.Context, op Clear) (bool, error) {
	i := Instance{VM: op.VM, Generation: op.Generation, Leftover: op.Paused}
	p, err := r.permit(ctx, PermitRequest{Host: r.Host, Leftovers: []Instance{i}})
	if err != nil {
		return false, fmt.Errorf("permit to %s: %w", op, err)
	}
	if !slices.Contains(p.Leftovers, i) {
		r.log.Info("not permitted: "+op.String(), "why", p.Refused)
		r.refused[Instance{VM: op.VM, Generation: op.Generation}] = time.Now().Add(askAgain)
		return false, nil
	}
	r.log.Warn(op.String())
	if err := r.Hypervisor.Destroy(ctx, op.VM); err != nil {
		return false, fmt.Errorf("%s: %w", op, err)
	}
	return true, nil
}

// isLeftover says whether a VM has been left over for long enough to be reported.
func (r *runner) isLeftover(vm hypervisor.VM) bool {
	since, is := r.leftover[instanceOf(vm)]
	return is && (vm.Leftover || r.isStanding(vm)) && time.Since(since) >= leftoverFor
}
