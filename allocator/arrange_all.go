package allocator

// enumeration tries every placement of the movers, as far as its work reaches.
type enumeration struct {
	x      *arrangement
	order  []int32
	weight []float64 // as of worth
	best   worth
	at     []int32 // of the best
	work   int     // VMs that may still be put
	used   float64 // weight of the hosts in use so far
}

// enumerated is the work of one enumeration, some milliseconds: a VM put is 1, a placement compared some more.
const enumerated = 60_000

// With more movers, or more hosts, no enumeration ends.
const (
	maxEnumerated = 12
	maxOpened     = 16
)

// all finds the best placement of few movers, from the one that they have on. weight is nil for Spread.
func (x *arrangement) all(weight []float64) {
	if len(x.movers) < 2 || len(x.movers) > maxEnumerated || len(x.targets) > maxOpened {
		return
	}
	vms := make([]int32, len(x.movers))
	for v := range vms {
		vms[v] = int32(v)
	}
	e := &enumeration{x: x, order: x.largestFirst(vms), weight: weight, best: x.worth(weight), at: x.hosts(), work: enumerated}
	for v := range vms {
		x.take(int32(v))
	}
	e.used = x.worth(weight).used
	e.place(0)
	for v := range vms {
		if x.movers[v].host >= 0 {
			x.take(int32(v))
		}
	}
	x.restore(e.at)
}

// place puts the movers from the k-th on.
func (e *enumeration) place(k int) {
	x := e.x
	if k == len(e.order) {
		e.work -= (len(x.on) + len(e.best.yields)) / 2
		if len(e.best.yields) > 0 {
			e.work -= len(x.p.Groups) / 8
		}
		if w := x.worth(e.weight); w.better(&e.best) {
			e.best, e.at = w, x.hosts()
		}
		return
	}
	v := e.order[k]
	g := x.movers[v].group
	from, bare := 0, -1
	if k > 0 && x.route == nil && x.movers[e.order[k-1]].group == g {
		from = int(x.movers[e.order[k-1]].host) // VMs of a group are alike: in the order of hosts
	}
	for j := from; j < len(x.on); j++ {
		if e.work <= 0 {
			return
		}
		if x.closed[j] || !x.takes(int32(j), int(g), -1) || !x.welcome(v, j) {
			continue
		}
		empty := x.empty(j)
		if empty && x.alone() {
			h := &x.p.Hosts[j]
			if bare >= 0 && h.CPU == x.p.Hosts[bare].CPU && h.Memory == x.p.Hosts[bare].Memory && from <= bare {
				continue // as the empty host before
			}
			bare = j
		}
		e.work--
		x.put(v, int32(j))
		if empty && e.weight != nil {
			e.used += e.weight[j]
		}
		if e.hopes(int32(j)) {
			e.place(k + 1)
		}
		if empty && e.weight != nil {
			e.used -= e.weight[j]
		}
		x.take(v)
	}
}

// hopes says whether what was put so far, lastly on host j, can lead to a better placement.
func (e *enumeration) hopes(j int32) bool {
	if e.weight != nil {
		return e.used <= e.best.used+sameHeadroom
	}
	return len(e.best.headrooms) == 0 || e.x.headroom(j, 0, 0) >= e.best.headrooms[0]-sameHeadroom
}
