package agent

import (
	"fmt"

	"evenkeel/hypervisor"
)

// keepMinBalloon raises balloon targets so that no guest is shrunk below its MinBalloon, whatever the leader's target is.
func (d *decider) keepMinBalloon(vms []VM) {
	for i := range vms {
		if now, in := d.eased(vms[i]); in {
			d.due[now.Identity.VM] = vms[i].Spec.Balloon
			keep := min(d.past.Guests[now.Identity.VM].MinBalloon, now.Balloon)
			vms[i].Spec.Balloon = max(vms[i].Spec.Balloon, keep)
		}
	}
}

// eased says whether the host may change the memory of a VM by itself: not while the VM moves or is to end.
func (d *decider) eased(vm VM) (hypervisor.VM, bool) {
	now, runs := d.there[vm.Spec.Identity.VM]
	return now, vm.Move == nil && vm.Want == WantRun && ours(vm, now, runs) && now.State != hypervisor.Incoming
}

// deficit returns the memory that a guest short of memory is to have, and how much of it is neither in its balloon nor on its way
// there. Both are 0 if hosts are to make no emergency grants.
func (d *decider) deficit(vm VM) (now hypervisor.VM, goal, more int64) {
	now, in := d.eased(vm)
	raise := d.past.Guests[now.Identity.VM].Raise
	if !in || raise <= now.Balloon || d.want.NoEmergencyGrants {
		return now, 0, 0
	}
	goal = min(now.Memory, max(raise, vm.Spec.Balloon))
	return now, goal, max(0, goal-max(now.Balloon, d.past.Balloon[now.Identity.VM]))
}

// emergencyGrant gives more memory to guests that are short of it, before any other VM grows: all that they are to have, or, if
// there is less, a part in proportion to their deficits.
func (d *decider) emergencyGrant(vms []VM) {
	all := int64(0)
	for _, vm := range vms {
		_, _, more := d.deficit(vm)
		all += more
	}
	room := max(0, d.want.Memory-d.memory)
	for i := range vms {
		now, goal, more := d.deficit(vms[i])
		if goal == 0 {
			continue
		}
		if all > room {
			given := int64(float64(room)*float64(more)/float64(all)) / balloonSlack * balloonSlack
			if more-given > balloonSlack {
				d.add(Blocked{now.Identity.VM, now.Name, fmt.Sprintf("it is short of memory, and %d bytes more do not fit", more-given), true})
			}
			goal, more = goal-more+given, given
		}
		if more > balloonSlack {
			d.add(SetBalloon{now.Identity.VM, now.Name, now.Balloon, goal, ""})
			d.memory += more
		}
		vms[i].Spec.Balloon = max(vms[i].Spec.Balloon, goal)
		d.given[now.Identity.VM] = goal
	}
}
