package migration

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Batch is hosts that can be drained together, in a maintenance of many hosts.
type Batch struct {
	Hosts    []int
	Bytes    float64 // of the moves that drain them
	MinYield float64 // while they are empty
}

// Stuck is a host that cannot be drained at all, and why.
type Stuck struct {
	Host     int
	MinYield float64 // of the best plan that was found to drain it, if that is too little; else 0
	Blockers []Blocker
}

// How many hosts that fit into no batch are examined one by one; among many VMs that takes long.
const (
	maxAlone    = 32
	minExamined = 4
	maxExamined = 2000 // VMs
)

// Batches sorts hosts into batches that can be drained together: all VMs of a batch fit on hosts outside of it,
// rules hold, and no yield there falls below minYield. Batches are drained one after another: when a batch is done its
// hosts are empty and take VMs again, and the VMs that they had stay where they went. Fewer batches are better; of equal
// ones, hosts with less to move come first.
//
// Within a batch only VMs of its hosts move. A host whose drain needs moves of VMs on other hosts is a batch by itself.
func Batches(p Problem, hosts []int, minYield float64) ([]Batch, []Stuck, error) {
	e, err := newEmptying(p, DrainRequest{Budget: math.Inf(1)})
	if err != nil {
		return nil, nil, fmt.Errorf("rounds of hosts: %w", err)
	}
	var left []int
	for _, j := range hosts {
		if j < 0 || j >= len(p.Hosts) || slices.Contains(left, j) {
			return nil, nil, fmt.Errorf("rounds of hosts: host %d of %d, or named twice", j, len(p.Hosts))
		}
		left = append(left, j)
	}
	s := newPlacementTable(e.f)
	s.below = minYield
	examined := maxAlone
	if len(e.f.home) > maxExamined {
		examined = minExamined
	}
	var batches []Batch
	var stuck []Stuck
	for len(left) > 0 {
		r, rest := s.batch(left)
		if len(r.Hosts) == 0 {
			alone, none, after, err := e.alone(s, left, minYield, &examined)
			if err != nil {
				return nil, nil, err
			}
			stuck = none
			if alone == nil {
				return batches, stuck, nil
			}
			r, rest = *alone, slices.DeleteFunc(slices.Clone(left), func(j int) bool { return j == alone.Hosts[0] })
			s = after
			s.below = minYield
		}
		batches = append(batches, r)
		left = rest
	}
	return batches, nil, nil
}

// batch takes as many hosts as it finds for the next round, and moves their VMs.
func (s *placementTable) batch(hosts []int) (r Batch, rest []int) {
	before := slices.Clone(s.at)
	sorted := slices.Clone(hosts)
	bytes := func(j int) (b float64) {
		for _, vm := range s.on[j] {
			b += s.f.bytes[vm]
		}
		return b
	}
	cost := make(map[int]float64, len(hosts))
	for _, j := range hosts {
		cost[j] = bytes(j)
	}
	slices.SortStableFunc(sorted, func(a, b int) int { return cmp.Compare(cost[a], cost[b]) })
	was := slices.Clone(s.open)
	for _, j := range sorted {
		if !s.empty(j) {
			rest = append(rest, j)
			continue
		}
		r.Hosts = append(r.Hosts, j)
	}
	r.MinYield = 1
	for j := range s.open {
		r.MinYield = min(r.MinYield, s.yield(j))
	}
	for vm, j := range s.at {
		if before[vm] != j {
			r.Bytes += s.f.bytes[vm]
		}
	}
	copy(s.open, was)
	s.carried()
	slices.Sort(r.Hosts)
	slices.Sort(rest)
	return r, rest
}

// empty moves all VMs of a host to others, or none.
func (s *placementTable) empty(j int) bool {
	begin, was := len(s.done), s.open[j]
	vms := slices.Clone(s.on[j])
	slices.Sort(vms)
	s.open[j] = false
	for _, vm := range vms {
		if s.f.pinned[vm] {
			s.open[j] = was
			return false
		}
	}
	for _, vm := range vms {
		s.move(vm, -1)
	}
	if _, stuck := s.any(vms); stuck != nil {
		s.undo(begin)
		s.open[j] = was
		return false
	}
	return true
}

// alone looks for a host that can be drained if VMs on other hosts move too, from where the VMs are now. after is
// where they are then.
func (e *emptying) alone(s *placementTable, hosts []int, minYield float64, examined *int) (r *Batch, stuck []Stuck, after *placementTable, err error) {
	p := e.p
	p.Caps, p.Steps = nil, max(1, e.orderSteps/orderFactor/int64(maxAlone)) // of each host, so that all together take no longer than one drain
	p.Groups = slices.Clone(e.p.Groups)
	for g := range p.Groups {
		q := &p.Groups[g]
		q.Hosts = s.at[e.f.first[g] : e.f.first[g]+q.Count]
	}
	for _, j := range hosts {
		if *examined--; *examined < 0 {
			stuck = append(stuck, Stuck{Host: j})
			continue
		}
		d, err := Drain(p, DrainRequest{Hosts: []int{j}, Budget: math.Inf(1), Partial: false})
		if err != nil {
			return nil, nil, nil, err
		}
		if d.Empties() && d.MinYieldAfter >= min(minYield, d.MinYieldBefore)-sameYield {
			for g := range p.Groups {
				p.Groups[g].Hosts = d.Hosts[g]
			}
			f, err := p.fleet()
			if err != nil {
				return nil, nil, nil, fmt.Errorf("rounds of hosts: %w", err)
			}
			return &Batch{Hosts: []int{j}, Bytes: d.Bytes, MinYield: d.MinYieldAfter}, nil, newPlacementTable(f), nil
		}
		stuck = append(stuck, Stuck{Host: j, MinYield: d.MinYieldAfter, Blockers: d.Blockers})
	}
	return nil, stuck, nil, nil
}
