package reservation

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"evenkeel/allocator"
	"evenkeel/migration"
)

// Cluster is what an agenda is kept for.
type Cluster struct {
	Steps int // of the agenda: one LCM of the periods, a day as a rule; or more, for single runs
	Hosts []migration.Host
	// Residents run outside of the agenda, all with hosts. They keep their memory, and of their CPU what MinYield asks for:
	// reserved runs come first. They may be moved before a slot, except Group.Pinned.
	Residents  []migration.Group
	Rules      *allocator.Rules // of Residents; nil: none
	MaxVMs     int              // that may be reserved at once; 0: no bound
	MoveBudget float64          // bytes that may be moved before one slot
	Effort     int64            // of one search for moves: migration.Problem.Steps; 0: DefaultEffort
}

// DefaultEffort is a tenth of a second or so.
const DefaultEffort = 10_000_000

// Accepted is a slot with its witness.
type Accepted struct {
	Slot    Slot
	Witness Witness
}

// Witness is a placement that shows that a slot can be carried out. VM i of the slot runs in those of its steps that have more
// than i VMs.
type Witness struct {
	Hosts []int            // [VM]: index into Cluster.Hosts
	Moves []migration.Step // of residents, before the slot, in an order that can be executed; of Kind Move and Adjust
	Bytes float64          // that the moves send, at most Cluster.MoveBudget
}

// Agenda is what is reserved. Make it with New. It is a value that its owner changes by Accept and Remove only.
type Agenda struct {
	cluster  Cluster
	load     *Load
	accepted []*Accepted
	names    map[string]bool // of accepted
	resident []Amount        // [host]: what residents have, and the reserve
	reserved [][]Amount      // [host][step]: what slots have, by their witnesses
	// By share: the highest amount of the slots with this Request.Apart, which is what reserved and load count for them.
	apart   map[share]Amount
	options Options
}

// New is an agenda without slots.
func New(c Cluster, o Options) (*Agenda, error) {
	if len(c.Hosts) == 0 {
		return nil, errors.New("make an agenda: it has no hosts")
	}
	if c.Effort == 0 {
		c.Effort = DefaultEffort
	}
	if !(c.MoveBudget >= 0) || c.MaxVMs < 0 {
		return nil, fmt.Errorf("make an agenda: a budget of %v bytes, at most %d VMs", c.MoveBudget, c.MaxVMs)
	}
	p := migration.Problem{Hosts: c.Hosts, Groups: c.Residents, Rules: c.Rules}
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("make an agenda: %w", err)
	}
	c.Residents = slices.Clone(c.Residents)
	for i := range c.Residents {
		g := &c.Residents[i]
		if slices.Contains(g.Hosts, -1) || len(g.Hosts) != g.Count {
			return nil, fmt.Errorf("make an agenda: not all VMs of %s have hosts", g.Name)
		}
		g.Hosts = slices.Clone(g.Hosts)
	}
	a := &Agenda{cluster: c, options: o, resident: residents(&c), reserved: make([][]Amount, len(c.Hosts)), names: map[string]bool{}, apart: map[share]Amount{}}
	if c.Steps < 1 || c.Steps > maxSteps {
		return nil, fmt.Errorf("make an agenda: %d steps, not 1 to %d", c.Steps, maxSteps)
	}
	for h := range a.reserved {
		a.reserved[h] = make([]Amount, c.Steps)
	}
	a.sumUp()
	return a, nil
}

// residents is what the residents have on each host, and the reserve for what they may take back.
func residents(c *Cluster) []Amount {
	out := make([]Amount, len(c.Hosts))
	reserves := make([]allocator.Reserve[float64], len(c.Hosts))
	for _, g := range c.Residents {
		for _, h := range g.Hosts {
			out[h] = out[h].plus(Amount{g.CPU * g.MinYield, g.Memory, 0}, 1)
			reserves[h].Add(g.Reclaimable)
		}
	}
	for h := range out {
		out[h][Memory] += c.Hosts[h].Reserve + reserves[h].Bytes()
	}
	return out
}

// sumUp makes the sums of what hosts have for slots.
func (a *Agenda) sumUp() {
	capacity := Amount{0, 0, math.Inf(1)}
	if a.cluster.MaxVMs > 0 {
		capacity[VMs] = float64(a.cluster.MaxVMs)
	}
	for h := range a.cluster.Hosts {
		if free := a.usable(h); !a.cluster.Hosts[h].Cordoned {
			capacity[Cores] += max(0, free[Cores])
			capacity[Memory] += max(0, free[Memory])
		}
	}
	capacity[Cores], capacity[Memory] = max(capacity[Cores], math.SmallestNonzeroFloat64), max(capacity[Memory], math.SmallestNonzeroFloat64)
	a.load = &Load{capacity, make([]Amount, a.cluster.Steps)}
	a.rebuild()
}

// usable is what a host has for slots.
func (a *Agenda) usable(h int) Amount {
	host := &a.cluster.Hosts[h]
	return Amount{host.CPU, host.Memory, math.Inf(1)}.plus(a.resident[h], -1)
}

// rebuild sums the slots again, so that what rounding left behind does not stay.
func (a *Agenda) rebuild() {
	for h := range a.reserved {
		clear(a.reserved[h])
	}
	clear(a.load.used)
	clear(a.apart)
	for _, s := range a.accepted {
		a.reserve(s)
	}
}

// reserve adds a slot to the sums.
func (a *Agenda) reserve(s *Accepted) {
	if s.Slot.Request.Apart != "" {
		a.reserveApart(s)
		return
	}
	a.load.Add(&s.Slot)
	s.eachVM(a.cluster.Steps, func(vm, step int, need Amount) {
		u := &a.reserved[s.Witness.Hosts[vm]][step]
		*u = u.plus(need, 1)
	})
}

// eachVM calls f for every VM in every step of every run, with what it needs there.
func (s *Accepted) eachVM(steps int, f func(vm, step int, need Amount)) {
	s.Slot.each(steps, func(step, at int) {
		count, need := s.Slot.vm(at)
		for vm := range count {
			f(vm, step, need)
		}
	})
}

// vm is how many VMs the slot has in a step, and what each needs. VMs of a slot are equal.
func (s *Slot) vm(at int) (count int, need Amount) {
	a := s.Amounts[at]
	if count = int(math.Ceil(a[VMs] - 1e-9)); count == 0 {
		return 0, Amount{}
	}
	return count, Amount{a[Cores] / float64(count), a[Memory] / float64(count), 1}
}

// count is the most VMs that the slot has in one step, and need the most that one of them needs of each resource.
func (s *Slot) count() (count int, need Amount) {
	for at := range s.Amounts {
		n, a := s.vm(at)
		count, need = max(count, n), need.highest(a)
	}
	return count, need
}

// Accepted are the slots, in the order in which they were accepted. The caller changes nothing in them.
func (a *Agenda) Accepted() []*Accepted { return a.accepted }

// Load is what is reserved in sum, to be read.
func (a *Agenda) Load() *Load { return a.load }

// Residents are the VMs outside of the agenda with the hosts they have once all moves of the witnesses are done.
func (a *Agenda) Residents() []migration.Group { return a.cluster.Residents }

// Free is the room on one host that no slot, resident or reserve has in any of the steps from, ..., to-1. Admission may use it so
// long.
func (a *Agenda) Free(host, from, to int) Amount {
	peak := Amount{}
	for t := from; t < min(to, from+a.cluster.Steps); t++ {
		peak = peak.highest(a.reserved[host][t%a.cluster.Steps])
	}
	return a.usable(host).plus(peak, -1)
}

// Remove takes a slot out; false: there is none of that name. Moves that its witness made are not undone.
func (a *Agenda) Remove(name string) bool {
	i := slices.IndexFunc(a.accepted, func(s *Accepted) bool { return s.Slot.Request.Name == name })
	if i < 0 {
		return false
	}
	a.accepted = slices.Delete(a.accepted, i, i+1)
	delete(a.names, name)
	a.rebuild()
	return true
}

// maxWitnesses is for how many slots, cheapest first, a witness is looked for.
const maxWitnesses = 6

// Accept reserves the cheapest slot that has a witness. Slots that were accepted before keep their steps and hosts. If there is
// none the agenda is as it was, and Refusal says why; err is about a request that is malformed.
func (a *Agenda) Accept(r Request) (*Accepted, *Refusal, error) {
	if a.names[r.Name] {
		return nil, nil, fmt.Errorf("reserve for %s: it has a slot: remove that first", r.Name)
	}
	s, refusal, err := a.find(r)
	if err != nil || refusal != nil {
		if refusal != nil && !a.options.NoChanges {
			refusal.Changes = a.changes(r)
		}
		return nil, refusal, err
	}
	a.put(s)
	return s.accepted, nil, nil
}

// found is a slot that may be put into the agenda.
type found struct {
	accepted  *Accepted
	residents [][]int // hosts of the residents after the moves; nil: as they are
}

func (a *Agenda) put(f *found) {
	a.enter(f.accepted)
	if f.residents != nil {
		for g := range a.cluster.Residents {
			a.cluster.Residents[g].Hosts = f.residents[g]
		}
		a.resident = residents(&a.cluster)
		a.sumUp() // they change with the reserves that moved along
		return
	}
	a.reserve(f.accepted)
}

func (a *Agenda) enter(s *Accepted) {
	a.accepted = append(a.accepted, s)
	a.names[s.Slot.Request.Name] = true
}

// find changes nothing.
func (a *Agenda) find(r Request) (*found, *Refusal, error) {
	load := a.loadFor(&r)
	all, err := load.candidates(&r, a.options)
	if err != nil {
		return nil, nil, err
	}
	var first *Refusal
	for i := range min(len(all), maxWitnesses) {
		s := &all[i].slot
		if s.Cost > 1+1e-9 {
			if first == nil {
				first = load.tooMuch(s)
			}
			break
		}
		w, no := a.witness(s)
		if no == nil {
			return w, nil, nil
		}
		if first == nil {
			first = no
		}
	}
	return nil, first, nil
}
