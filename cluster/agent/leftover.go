package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"evenkeel/hypervisor"
)

// A source of a migration whose hypervisor died in the last phase stays behind paused. It runs nothing, takes its memory, and
// bars the VM from this host: it is destroyed once the leader says, by the log, that it can never be resumed rightly.

const (
	// leftoverFor so long a VM is seen to be left over before that is believed.
	leftoverFor = 5 * time.Second
	// strandedFor so long the target of an open move may take to say that the VM runs there. What is destroyed after that is the guest's
	// memory, and it is of use only if the target has it not.
	strandedFor = time.Minute
)

// Clear destroys what a migration left behind, if the leader permits it.
type Clear struct {
	VM, Name   string
	Generation uint64
}

func (o Clear) String() string {
	return fmt.Sprintf("destroy %s generation %d, which a migration left behind", o.Name, o.Generation)
}

// clear what migrations left behind, for as long as is needed to believe it.
func (d *decider) clear(vms []VM) {
	leaves := map[string]bool{}
	for _, vm := range vms {
		leaves[vm.Spec.Identity.VM] = vm.Move != nil && !vm.Move.Incoming
	}
	var ids []string
	for id := range d.there {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		now, least := d.there[id], leftoverFor
		if leaves[id] {
			least = strandedFor
		}
		if age, is := d.past.Leftover[id]; is && now.Leftover && age >= least {
			d.add(Clear{id, now.Name, now.Generation})
		}
	}
}

// leftovers notes since when VMs are seen to be left over.
func (r *runner) leftovers(there []hypervisor.VM, at time.Time) {
	before := r.leftover
	r.leftover = map[Instance]time.Time{}
	for _, vm := range there {
		if !vm.Leftover || vm.Foreign {
			continue
		}
		i := Instance{VM: vm.Identity.VM, Generation: vm.Generation}
		since, known := before[i]
		if !known {
			since = at
			r.log.Warn("a migration left a VM behind, paused", "vm", vm.Name, "generation", vm.Generation)
		}
		r.leftover[i] = since
	}
}

// clearAway destroys what a migration left behind. The leader is asked right before: its answer is of the log as it is then.
func (r *runner) clearAway(ctx context.Context, op Clear) (bool, error) {
	i := Instance{VM: op.VM, Generation: op.Generation}
	ask, cancel := context.WithTimeout(ctx, permitWithin)
	defer cancel()
	asked := r.Clock()
	p, err := r.Leader.Permit(ask, PermitRequest{Host: r.Host, Leftovers: []Instance{i}})
	if took := r.Clock() - asked; err == nil && took > permitWithin {
		err = fmt.Errorf("the answer came after %s", took)
	}
	if err == nil {
		err = r.keeper.saw(p.Epoch, p.Index)
	}
	if err != nil {
		return false, fmt.Errorf("permit to %s: %w", op, err)
	}
	if !slices.Contains(p.Leftovers, i) {
		r.log.Info("not permitted: "+op.String(), "why", p.Refused)
		return false, nil
	}
	r.log.Warn(op.String())
	if err := r.Hypervisor.Destroy(ctx, op.VM); err != nil {
		return false, fmt.Errorf("%s: %w", op, err)
	}
	return true, nil
}

// isLeftover: a VM was seen to be left over for long enough to say so.
func (r *runner) isLeftover(vm hypervisor.VM) bool {
	since, is := r.leftover[Instance{VM: vm.Identity.VM, Generation: vm.Generation}]
	return is && vm.Leftover && time.Since(since) >= leftoverFor
}
