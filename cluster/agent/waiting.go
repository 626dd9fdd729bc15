package agent

import (
	"fmt"
	"maps"
	"time"

	"evenkeel/hypervisor"
)

// Waits is for how long a VM that may start has not been here. Tried: an agent may have tried to start it.
type Waits struct {
	For   time.Duration
	Tried bool
}

// GiveUp gives up a start that does not come: from then on this host never starts that generation.
type GiveUp struct {
	VM, Name   string
	Generation uint64
	Why        string
}

func (o GiveUp) String() string {
	return fmt.Sprintf("give up the start of %s generation %d: %s", o.Name, o.Generation, o.Why)
}

// waits handles a VM that is to start here and does not yet. After waitsSilently the agent reports why. After startWithin it gives up
// the start of a restartable VM, if no agent may have tried it.
func (d *decider) waits(vm VM, why string) {
	id, name, gen := vm.Spec.Identity.VM, vm.Spec.Label(), vm.Spec.Generation
	d.add(Blocked{id, name, why, false})
	switch waits := d.past.Waits[id]; {
	case waits.For >= startWithin && !waits.Tried && vm.Spec.Leased:
		d.add(GiveUp{id, name, gen, fmt.Sprintf("it did not start within %s: %s", startWithin, why)})
	case waits.For >= waitsSilently && vm.Waits != why:
		d.add(ReportStatus{Status{VM: id, Generation: gen, Phase: PhaseStarting, Reason: why}})
	}
}

// starting notes since when VMs that may start are not here, and which of them this agent, or one before it, may have tried to
// start: a start whose end is not known may come at any time, and is not given up.
func (r *runner) starting(want Desired, there []hypervisor.VM, at time.Time) {
	here := map[string]bool{}
	for _, vm := range there {
		here[vm.Identity.VM] = vm.State != hypervisor.Incoming && !r.isStanding(vm)
	}
	first, before := r.toStart == nil, r.toStart
	r.toStart = map[string]toStart{}
	for _, vm := range want.VMs {
		id, gen := vm.Spec.Identity.VM, vm.Spec.Generation
		if !vm.MayStart || here[id] {
			continue
		}
		w, known := before[id]
		if !known || w.generation != gen {
			w = toStart{generation: gen, since: at, tried: first}
		}
		r.toStart[id] = w
	}
}

// toStart is a VM that may start and does not run.
type toStart struct {
	generation uint64
	since      time.Time
	tried      bool
}

// tries notes that the agent tries to start a VM from now on.
func (r *runner) tries(id string) {
	if w, is := r.toStart[id]; is {
		w.tried = true
		r.toStart[id] = w
	}
}

// startsDue returns the VMs that may start and are not here.
func (r *runner) startsDue(at time.Time) map[string]Waits {
	out := map[string]Waits{}
	for id, w := range r.toStart {
		out[id] = Waits{For: at.Sub(w.since), Tried: w.tried}
	}
	return out
}

// givesUp stores, before the agent reports it, that a generation is not started here: an agent after this one must not start it
// either.
func (k *leaseManager) givesUp(id string, generation uint64) error {
	k.mu.Lock()
	if k.memory.GivenUp[id] == generation {
		k.mu.Unlock()
		return nil
	}
	given := maps.Clone(k.memory.GivenUp)
	if given == nil {
		given = map[string]uint64{}
	}
	given[id] = generation
	k.memory.GivenUp = given
	k.mu.Unlock()
	if k.o.State == nil {
		return nil
	}
	if err := k.write(); err != nil {
		k.mu.Lock()
		given = maps.Clone(k.memory.GivenUp)
		delete(given, id) // it is tried again; that it is not started is as good as before
		k.memory.GivenUp = given
		k.mu.Unlock()
		return fmt.Errorf("keep that VM %s is not started: %w", id, err)
	}
	return nil
}

// givenUp returns the generations that this host does not start, by VM. It forgets those for which the leader asks no more.
func (k *leaseManager) givenUp(want Desired) map[string]uint64 {
	asked := make(map[string]uint64, len(want.VMs))
	for _, vm := range want.VMs {
		if vm.MayStart {
			asked[vm.Spec.Identity.VM] = vm.Spec.Generation
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	left := maps.Clone(k.memory.GivenUp)
	maps.DeleteFunc(left, func(id string, gen uint64) bool { return asked[id] != gen })
	if len(left) < len(k.memory.GivenUp) {
		k.memory.GivenUp = left
		k.save()
	}
	return left
}
