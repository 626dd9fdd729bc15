package agent

import "evenkeel/hypervisor"

// unused is memory that a guest has and does not use.
type unused struct {
	vm          string // id
	from, bytes int64  // what its balloon is or is about to be, and how much less it could be
}

// cut shrinks balloons of which the guests do not use all, where guests took more memory than there is. The host does this at once,
// without the leader. It first takes what it gave guests beyond the leader's target, also for other guests that are short of memory. If
// that is not enough, it shrinks balloons below the leader's target, at most to MinMemory.
func (d *decider) cut(vms []VM) {
	coming, lacking := int64(0), int64(0) // bytes that are being given back, and that guests are short of
	var beyond, within []unused
	for _, vm := range vms {
		now, in := d.eased(vm)
		if !in {
			continue
		}
		id := now.Identity.VM
		_, _, more := d.deficit(vm)
		lacking += more
		next := min(now.Balloon, vm.Spec.Balloon)
		if set, is := d.past.Balloon[id]; is && set < next-balloonSlack { // it is on its way there, unless its guest needs more by now
			next = min(next, max(set, d.past.Guests[id].MinBalloon))
		}
		coming += now.Balloon - next
		bears, due := d.past.Guests[id].Enough, d.due[id]
		if bears == 0 || d.past.Guests[id].Raise > 0 || due >= now.Memory {
			continue
		}
		if bytes := next - max(bears, due); bytes >= minCut {
			beyond = append(beyond, unused{id, next, bytes})
			next -= bytes
		}
		if bytes := next - max(bears, vm.MinMemory); vm.MinMemory > 0 && bytes >= minCut {
			within = append(within, unused{id, next, bytes})
		}
	}
	over := d.memory - d.want.Memory
	taken := d.take(beyond, over+lacking-coming)
	d.take(within, over-coming-taken)
}

// take takes that many bytes, from each VM in proportion to its unused memory.
func (d *decider) take(from []unused, bytes int64) (taken int64) {
	all := int64(0)
	for _, s := range from {
		all += s.bytes
	}
	if bytes < minCut {
		return 0
	}
	share := min(1, float64(bytes)/float64(max(all, 1)))
	for _, s := range from {
		less := max(minCut, int64(share*float64(s.bytes)+balloonSlack-1)/balloonSlack*balloonSlack)
		less = min(less, s.bytes)
		d.cuts[s.vm] = s.from - less
		taken += less
	}
	return taken
}

// nearLimit says whether memory may have to be taken back from guests.
func (r *runner) nearLimit(want Desired, there []hypervisor.VM) bool {
	sum := int64(0)
	for _, vm := range there {
		if !vm.Foreign && vm.Cluster == want.Cluster {
			sum += vm.Balloon + want.Overhead
		}
	}
	return sum > want.Memory || len(raises(r.needs())) > 0
}
