package allocator

import (
	"fmt"
	"math"
	"strings"
)

// Admission is the answer to a request.
type Admission struct {
	Admitted bool
	Solution Solution // if admitted: all VMs, those that were there included

	// If refused:
	Summary       string       // one sentence
	Reasons       []HostReason // one per host, in order
	Advice        []string     // changes to the request, each of which alone would make it fit now
	NeverFits     bool         // proved: it would not fit if all hosts were empty and uncordoned either
	Fits          int          // of the VMs that were to be placed, how many fit at once
	Asked         int          // VMs that were to be placed
	TriedMinYield float64      // yield that the request was tried at last: its MinYield
}

// HostReason is why a host does not take what was asked for: what it lacks to
// take one more VM of the first group that does not fit, after it has taken what
// does fit; or, if a need grew in place, what it lacks for the VMs it has.
type HostReason struct {
	Host          string
	Cordoned      bool
	CPUMissing    float64 // cores, at the least yields; 0: enough
	MemoryMissing float64 // bytes; 0: enough
	Rule          Refusal // the rule that keeps the VM from the host
	Text          string
}

// Admit places the VMs of p that have no host beside those that have one, all
// or none. Nothing that has a host moves.
//
// It searches for the greatest yield Y with which the new VMs can be placed by
// MCB8 over what is left (or, where that finds no placement, by a search of
// bounded work), if every virtual cluster gets at least max(Y, its
// MinYield). A virtual cluster that could not reach Y without the request
// either, because its hosts are overcommitted, counts with what it could
// reach: a full host does not lower the yield at which the new VMs are placed on
// others. The CPU is then divided as Allocate does.
//
// A request is refused if some MinYield cannot be kept. A virtual cluster that
// is below its MinYield already, on hosts that the request does not touch, is
// no reason to refuse; its hosts take no new VM. Groups marked Requested, all of
// whose VMs have hosts, are checked in place: needs that grew must fit where
// they are. If nothing is to be placed and nothing is marked, every group and
// every host is checked.
func Admit(p Problem) Admission { return AdmitUnder(p, nil) }

// AdmitUnder is Admit with rules, which hold for every VM that it places: the VM's own, and
// what VMs that have hosts avoid. VMs that have hosts stay there even where that breaks a
// rule (Rules.Broken lists such VMs). A host or virtual cluster that a term names and
// that does not exist has no VM: nothing to avoid, and nothing that could be required.
// Preferences are met as far as moves of single VMs can meet them without lowering the
// minimum yield.
func AdmitUnder(p Problem, r *Rules) Admission {
	a := admission{p: &p, rules: r}
	err := p.Validate()
	if err == nil {
		err = r.check(&p)
	}
	if err != nil {
		return Admission{Summary: fmt.Sprintf("not a valid request: %v", err), NeverFits: true}
	}
	a.prepare()
	if s, ok := a.place(); ok {
		return Admission{Admitted: true, Solution: s, Asked: a.asked, Fits: a.asked, TriedMinYield: a.minYield()}
	}
	return a.refuse()
}

// admission is the work on one request.
type admission struct {
	p        *Problem
	rules    *Rules
	ruled    *ruling // nil: no rule restricts what is to be placed
	t        tenancy
	fixed    [][]load // [group]: VMs that have a host
	unplaced []int    // [group]
	asked    int      // sum of unplaced
	standing bool     // there is no request yet: see AdmitQueue
	marked   bool     // some group is requested
	request  []bool   // [virtual cluster]: has requested groups
	strict   []bool   // [virtual cluster]: the request may not put it below its floor
	levels   []float64
	floor    []float64 // [group]: least yield to keep
	placedOn []bool    // [host]: the request has VMs there already
	pk       *packer
	need     []float64
}

func (a *admission) prepare() {
	a.fixed, a.unplaced = countLoads(a.p)
	a.derive()
}

// derive prepares all that follows from the problem, and from fixed and unplaced.
func (a *admission) derive() {
	p := a.p
	a.t = tenancyOf(p.Groups)
	a.marked = a.standing
	a.request = make([]bool, len(a.t.members))
	for g, n := range a.unplaced {
		a.asked += n
		if n > 0 || p.Groups[g].Requested {
			a.request[a.t.of[g]] = true
			a.marked = true
		}
	}
	a.placedOn = make([]bool, len(p.Hosts))
	for g := range a.fixed {
		for _, l := range a.fixed[g] {
			a.placedOn[l.host] = a.placedOn[l.host] || !a.marked || a.request[a.t.of[g]]
		}
	}
	a.strict = make([]bool, len(a.t.members))
	for g := range p.Groups {
		c := a.t.of[g]
		a.strict[c] = a.strict[c] || !a.marked || a.request[c]
		for _, l := range a.fixed[g] {
			a.strict[c] = a.strict[c] || a.placedOn[l.host]
		}
	}
	b := booksOf(p, a.fixed)
	keepable, short := b.keepable(p, a.t)
	a.levels = b.fairLevels(p, a.fixed, keepable)
	a.floor = keepable
	for g := range a.floor {
		if c := a.t.of[g]; a.strict[c] {
			a.floor[g] = a.t.floor[c]
		}
	}
	a.pk = newPacker(p, a.fixed, a.unplaced)
	for j := range p.Hosts {
		short := short[j] || a.pk.memory[j] < -roundingSlack*p.Hosts[j].Memory
		a.pk.exempt[j] = short && !a.placedOn[j]
		a.pk.closed[j] = a.pk.closed[j] || a.pk.exempt[j]
	}
	a.need = make([]float64, len(p.Groups))
	a.ruled = rulingOf(p, a.rules, a.fixed, a.unplaced)
}

// place returns the solution if the request can be admitted.
func (a *admission) place() (Solution, bool) {
	p := a.p
	for j := range p.Hosts {
		if a.placedOn[j] && a.pk.memory[j] < -roundingSlack*p.Hosts[j].Memory {
			return Solution{}, false
		}
	}
	loads := a.find()
	if loads == nil {
		return Solution{}, false
	}
	s := solutionOf(p, loads, spread(p, loads, false))
	if arranged, better, ok := a.arrange(loads, s); ok {
		loads, s = arranged, better
	}
	if better, ok := a.prefer(loads, s.MinYield); ok {
		s = solutionOf(p, better, spread(p, better, false))
	}
	for c, members := range a.t.members {
		if a.strict[c] && clusterYield(p.Groups, members, s.CPU) < a.t.floor[c]-yieldSlack {
			return Solution{}, false
		}
	}
	return s, true
}

// find returns where all VMs are once those of the request are placed, nil if it
// finds no place for them.
func (a *admission) find() (loads [][]load) {
	a.needAt(0)
	if !a.pk.begin(a.need) || hopeless(a.pk, a.wants(a.p.Groups, a.need)) != "" {
		return nil
	}
	if a.ruled != nil {
		return a.seek()
	}
	if !a.pk.pack(a.need) {
		if loads = a.seek(); loads != nil {
			return loads
		}
	}
	searchYield(1, func(y float64) float64 {
		a.needAt(y)
		if !a.pk.pack(a.need) {
			return -1
		}
		loads = a.pk.loads(a.fixed)
		return y
	})
	return loads
}

// want is a number of VMs that each need so much.
type want struct {
	group  *Group
	n      int
	demand demand
}

// wants lists what is to be placed, need[group] being the CPU of one VM.
func (a *admission) wants(groups []Group, need []float64) (w []want) {
	for g, n := range a.unplaced {
		if n > 0 {
			w = append(w, want{&groups[g], n, demand{need[g], groups[g].Memory}})
		}
	}
	return w
}

// hopeless says why what is free on the hosts is too little for what is wanted, whatever
// packs it: in sum, or for the VMs of one group alone; "" if that cannot be said. The
// packer must have begun with the needs of the VMs that stay.
func hopeless(k *packer, wants []want) string {
	var all, have, slack demand
	for j, closed := range k.closed {
		if !closed {
			have.cpu += max(0, k.freeCPU[j])
			have.memory += max(0, k.freeMemory[j])
			slack.cpu += hopelessSlack * k.p.Hosts[j].CPU
			slack.memory += hopelessSlack * k.p.Hosts[j].Memory
		}
	}
	for _, w := range wants {
		all.cpu += float64(w.n) * w.demand.cpu
		all.memory += float64(w.n) * w.demand.memory
		room := 0
		for j := range k.closed {
			if h := &k.p.Hosts[j]; !k.closed[j] && room < w.n {
				room += min(times(max(0, k.freeCPU[j])+hopelessSlack*h.CPU, w.demand.cpu), times(max(0, k.freeMemory[j])+hopelessSlack*h.Memory, w.demand.memory))
			}
		}
		if room < w.n {
			return fmt.Sprintf("at most %d of %s of %s fit: one needs %s of CPU at least and %s of memory", room, vmsText(w.n),
				groupName([]Group{*w.group}, 0), coresText(w.demand.cpu), sizeText(w.demand.memory))
		}
	}
	if all.cpu > have.cpu+slack.cpu || all.memory > have.memory+slack.memory {
		return fmt.Sprintf("its VMs need %s of CPU at least and %s of memory; %s and %s are free", coresText(all.cpu), sizeText(all.memory),
			coresText(have.cpu), sizeText(have.memory))
	}
	return ""
}

// needAt sets the CPU that one VM of each group must have when Y is y.
func (a *admission) needAt(y float64) {
	for g := range a.need {
		a.need[g] = max(a.floor[g], min(y, a.levels[g])) * a.p.Groups[g].CPU
	}
}

// minYield is the least MinYield of what is requested.
func (a *admission) minYield() float64 {
	y := math.Inf(1)
	for c, floor := range a.t.floor {
		if a.request[c] || !a.marked {
			y = min(y, floor)
		}
	}
	if math.IsInf(y, 1) {
		return 0
	}
	return y
}

// fitsAtFloor says whether the request as it stands in a.p, a.rules, a.floor and
// a.unplaced can be placed with every yield at its least.
func (a *admission) fitsAtFloor() bool {
	pk := newPacker(a.p, a.fixed, a.unplaced)
	copy(pk.exempt, a.pk.exempt)
	copy(pk.closed, a.pk.closed)
	for j := range a.placedOn {
		if a.placedOn[j] && pk.memory[j] < -roundingSlack*a.p.Hosts[j].Memory {
			return false
		}
	}
	a.needAt(0)
	u := rulingOf(a.p, a.rules, a.fixed, a.unplaced)
	if u == nil {
		return pk.pack(a.need)
	}
	if !pk.begin(a.need) {
		return false
	}
	if u.placeMaximal(pk, a.need, a.unplaced).total == 0 {
		return true
	}
	b := *a
	b.pk, b.ruled = pk, u
	b.asked = 0
	for _, n := range a.unplaced {
		b.asked += n
	}
	return b.asked <= maxTried && newQuest(&b).at(closerSteps) != nil
}

// hostNames lists the names of the hosts marked in on, at most five.
func hostNames(hosts []Host, on []bool) string {
	var names []string
	for j := range hosts {
		if on[j] {
			names = append(names, hostName(hosts, j))
		}
	}
	if len(names) > 5 {
		names = append(names[:5], fmt.Sprintf("%d more", len(names)-5))
	}
	return strings.Join(names, ", ")
}
