package agent

import (
	"context"
	"fmt"
	"maps"
	"time"

	"evenkeel/hypervisor"
)

// listing is what the hypervisor listed, and what was known of it when it was asked.
type listing struct {
	vms     []hypervisor.VM
	leaving map[string]bool   // VMs whose migration from here went on, by id
	lost    map[string]uint64 // generations of VMs that were stopped for want of a lease and are not listed, by id
}

// listVMs asks the hypervisor what runs. Starts and migrations that had ended before it was asked are taken in first, so that the
// list shows what came of them. Its error is an unreachableError.
func (r *runner) listVMs(ctx context.Context) (listing, error) {
	if err := r.survey(ctx); err != nil {
		return listing{}, unreachableError{err}
	}
	asOf, leaving := r.Clock(), r.takeMoves()
	r.takeStarts(ctx)
	there, err := r.Hypervisor.List(ctx)
	if err != nil {
		return listing{}, unreachableError{fmt.Errorf("list VMs: %w", err)}
	}
	lost := r.lease.observe(asOf, there)
	r.remember(there, time.Now())
	return listing{there, leaving, lost}, nil
}

// survey reads what the machine is and has, where that is not known or was read long ago.
func (r *runner) survey(ctx context.Context) error {
	if r.capacity.CPU == 0 {
		c, err := r.Hypervisor.Capacity(ctx)
		if err != nil {
			return fmt.Errorf("read capacity: %w", err)
		}
		r.capacity = c
	}
	if r.surveyed.IsZero() || time.Since(r.surveyed) > surveyEvery {
		// Only plans depend on it: a move that the target cannot take fails, and its error says why.
		if p, err := r.Hypervisor.Partner(ctx); err == nil {
			r.partner, r.surveyed = p, time.Now()
		} else if ctx.Err() == nil {
			r.log.Warn("what the host has for moves is not known", "error", err)
		}
	}
	return nil
}

// takeMoves takes in the migrations that have ended, and returns the VMs of those that go on.
func (r *runner) takeMoves() map[string]bool {
	leaving := map[string]bool{}
	for id, m := range r.moves {
		select {
		case <-m.done:
			r.over(m)
		default:
			leaving[id] = true
		}
	}
	return leaving
}

// remember takes in what the hypervisor listed, and forgets what was noted of VMs that are gone.
func (r *runner) remember(there []hypervisor.VM, at time.Time) {
	r.stands(there, at)
	r.leftovers(there, at)
	clear(r.caps)
	for _, vm := range there {
		if !vm.Foreign {
			r.caps[vm.Identity.VM] = vm
			delete(r.ended, vm.Identity.VM)
		}
	}
	r.recordStays()
	maps.DeleteFunc(r.shares, func(id string, _ float64) bool { _, runs := r.caps[id]; return !runs })
	for id := range r.asked {
		if _, runs := r.caps[id]; !runs {
			delete(r.asked, id)
		}
	}
	for id, t := range r.balloons {
		vm, runs := r.caps[id]
		reached := runs && vm.Balloon >= t.target-balloonSlack && vm.Balloon <= t.target+balloonSlack
		if !runs || (!reached && at.Sub(t.at) > balloonPatient) {
			delete(r.balloons, id) // gone, or worth another try
		}
	}
}

// describe is the report on the machine itself.
func (r *runner) describe(there listing) Report {
	out := Report{Host: r.Host, Capacity: r.capacity, Allowance: r.Allowance(r.capacity), Overhead: r.Overhead(r.capacity), Reach: true,
		MigrateURI: r.MigrateURI, Booted: r.Booted, Resumes: true, Migrates: r.partner, Moves: r.progress(), MissingRoutes: r.reach.report(time.Now()), Running: []Instance{}, Epoch: r.epoch, Hangs: r.hangs()}
	for _, vm := range there.vms {
		if !vm.Foreign && vm.Cluster == r.cluster {
			out.Running = append(out.Running, Instance{VM: vm.Identity.VM, Name: vm.Name, Generation: vm.Generation, Incoming: r.isStanding(vm) || vm.State == hypervisor.Incoming, Leftover: r.isLeftover(vm), Leaving: there.leaving[vm.Identity.VM] || !r.alone})
		}
	}
	out.Foreign, out.ForeignVMs = others(r.cluster, out.Overhead, r.capacity.CPU, r.unmanaged(there.vms), there.vms)
	return out
}

// belong makes this agent's VMs those of the cluster of want, in its epoch: what is listed from now on is reported in that
// epoch. A restore may put the state of another cluster in force, whose VMs were no concern of this agent before.
func (r *runner) belong(want Desired) {
	if r.cluster != want.Cluster {
		r.alone = false
	}
	r.cluster, r.epoch = want.Cluster, want.Epoch
}

// learn notes which VMs the leader knows here.
func (r *runner) learn(want Desired) {
	r.counts = make(map[string]uint64, len(want.VMs))
	r.coming, r.frozen = map[string]VM{}, want.Freeze != ""
	for _, vm := range want.VMs {
		r.counts[vm.Spec.Identity.VM] = vm.Spec.Generation
		if vm.Move != nil && vm.Move.Incoming {
			r.coming[vm.Spec.Identity.VM] = vm
		}
	}
	open := map[uint64]bool{}
	for _, vm := range r.coming {
		open[vm.Move.Open] = true
	}
	maps.DeleteFunc(r.resumed, func(move uint64, _ hypervisor.Moved) bool { return !open[move] })
	maps.DeleteFunc(r.failing, func(move uint64, _ time.Time) bool { return !open[move] })
}

// unmanaged returns the VMs that have this cluster's mark, and that the leader's last desired state did not have here. The
// leader knows a VM that comes or goes by migration, or will in a moment: it records the intent before the move begins.
func (r *runner) unmanaged(there []hypervisor.VM) map[string]bool {
	out := map[string]bool{}
	for _, vm := range there {
		id := vm.Identity.VM
		if _, known := r.counts[id]; r.counts != nil && !vm.Foreign && vm.Cluster == r.cluster && !known && (vm.State != hypervisor.Incoming || vm.Leftover) && r.moves[id] == nil {
			out[id] = true
		}
	}
	return out
}
