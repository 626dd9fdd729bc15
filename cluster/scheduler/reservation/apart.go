package reservation

import "slices"

// share is a step, on one host or over all hosts, for the slots with one text of Request.Apart.
type share struct {
	apart      string
	host, step int // host allHosts: the sum
}

const allHosts = -1

// byHost is what a slot takes of each host in each step.
func (a *Agenda) byHost(s *Accepted) map[share]Amount {
	out := map[share]Amount{}
	s.eachVM(a.cluster.Steps, func(vm, step int, need Amount) {
		at := share{s.Slot.Request.Apart, s.Witness.Hosts[vm], step}
		out[at] = out[at].plus(need, 1)
	})
	return out
}

// reserveApart adds a slot to the sums. Of slots that are apart from each other only the highest amount counts, so it adds what this
// slot raises that by.
func (a *Agenda) reserveApart(s *Accepted) {
	grow := func(at share, need Amount, sum *Amount) {
		old := a.apart[at]
		a.apart[at] = old.highest(need)
		*sum = sum.plus(a.apart[at].plus(old, -1), 1)
	}
	for at, need := range a.byHost(s) {
		grow(at, need, &a.reserved[at.host][at.step])
	}
	s.Slot.each(a.cluster.Steps, func(step, at int) {
		grow(share{s.Slot.Request.Apart, allHosts, step}, s.Slot.Amounts[at], &a.load.used[step])
	})
}

// taken is what is reserved of a host in a step for others than a request: without the slots that are apart from it.
func (a *Agenda) taken(r *Request, host, step int) Amount {
	u := a.reserved[host][step]
	if r.Apart == "" {
		return u
	}
	return u.plus(a.apart[share{r.Apart, host, step}], -1)
}

// loadFor is the load of others than a request. It may be less than what the hosts have reserved: the highest sum over the hosts may be
// less than the sum of the highest amounts of each. The hosts of the witness decide.
func (a *Agenda) loadFor(r *Request) *Load {
	if r.Apart == "" {
		return a.load
	}
	out := &Load{a.load.capacity, slices.Clone(a.load.used)}
	for step := range out.used {
		out.used[step] = out.used[step].plus(a.apart[share{r.Apart, allHosts, step}], -1)
	}
	return out
}
