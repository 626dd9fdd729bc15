package allocator

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Host is what the VMs of one machine may use.
type Host struct {
	Name     string
	CPU      float64 // cores
	Memory   float64 // bytes
	Cordoned bool    // keeps the VMs it has, takes no new one
	// Unavailable: the host is Cordoned, and the caller cannot uncordon it: no advice says to.
	Unavailable bool
	// EmptyCPU and EmptyMemory are what the host has once all VMs are gone, also those outside of the problem; less than CPU and
	// Memory does not count.
	EmptyCPU, EmptyMemory float64
}

// withoutVMs are the hosts as they are once no VM is left.
func withoutVMs(hosts []Host) []Host {
	out := slices.Clone(hosts)
	for j := range out {
		h := &out[j]
		h.CPU, h.Memory = max(h.CPU, h.EmptyCPU), max(h.Memory, h.EmptyMemory)
	}
	return out
}

// Group is a set of equal VMs of one virtual cluster.
type Group struct {
	Cluster string // groups of equal Cluster are one virtual cluster; "" makes the group one by itself
	Name    string
	Count   int
	CPU     float64 // need of one VM, cores (alpha)
	Memory  float64 // need of one VM, bytes (m)

	// MinYield is the least yield that the virtual cluster accepts, in [0, 1].
	// Where its groups differ, the greatest counts for all of them.
	MinYield float64

	// RequiredYield is what the group must have whatever MinYield is: advice of Admit
	// on MinYield goes no lower.
	RequiredYield float64

	// Overhead is the part of Memory that is not the VM's own, and MinMemory how
	// little of its own it can have: advice of Admit on memory is about what is its own.
	Overhead, MinMemory float64

	// Hosts has one entry per VM: an index into Problem.Hosts, or -1 for a VM
	// that is to be placed. nil: all are to be placed.
	Hosts []int

	// Requested says that this group is part of what is asked of Admit now,
	// also where all its VMs have hosts already (a need that grows in place).
	// Groups with VMs to be placed are requested anyway.
	Requested bool
}

// Problem is the input of every algorithm of this package. No call changes it
// or keeps its slices.
type Problem struct {
	Hosts  []Host
	Groups []Group

	// Policy of Best, Exact and AdmitUnder. It moves only VMs that have no host, or that move anyway, and lowers no minimum
	// yield.
	Policy Policy
}

// Solution is a placement of all VMs with the CPU that each gets.
type Solution struct {
	Hosts [][]int   // [group][vm]: index into Problem.Hosts
	CPU   []float64 // [group]: cores given to each VM of the group

	MinYield     float64 // least yield of all virtual clusters; 1 if there is none
	AverageYield float64 // mean of the virtual clusters' yields; 1 if there is none
	UpperBound   float64 // no placement of the same VMs has a greater MinYield

	// Shortfall lists the virtual clusters that get less than their MinYield,
	// in the order of Problem.Groups.
	Shortfall []Shortfall
}

// Shortfall is a virtual cluster that gets less than it accepts.
type Shortfall struct {
	Cluster string // or the group's name, for a group that is a cluster by itself
	Wanted  float64
	Got     float64
}

// Amounts of CPU and memory outside of this range (zero aside) are refused, so
// that no sum, product or quotient of them overflows or loses all its digits.
const (
	MinNumber      = 1e-100
	GreatestNumber = 1e100
)

// roundingSlack is for rounding. A sum of memory may exceed a capacity by this share of it, so that
// ten times 0.1 fits into 1; whole numbers of bytes up to 10 TB stay exact. CPU
// is packed with the same slack and cut back to the capacity at the end.
const roundingSlack = 1e-13

// yieldSlack is the difference under which a yield counts as reaching a floor.
const yieldSlack = 1e-9

// MaxVMs is how many VMs a problem may have: an answer has a host for each.
const MaxVMs = 10_000_000

// Validate reports the first thing wrong with a problem, naming the host or group.
func (p Problem) Validate() error {
	if len(p.Hosts) == 0 {
		return errors.New("a problem needs at least one host")
	}
	for j := range p.Hosts {
		h := &p.Hosts[j]
		if err := checkNumber(h.CPU); err != nil {
			return fmt.Errorf("host %s: CPU %w", hostName(p.Hosts, j), err)
		}
		if err := checkNumber(h.Memory); err != nil {
			return fmt.Errorf("host %s: memory %w", hostName(p.Hosts, j), err)
		}
	}
	vms := 0
	for g := range p.Groups {
		if err := p.Groups[g].validate(len(p.Hosts)); err != nil {
			return fmt.Errorf("group %s: %w", groupName(p.Groups, g), err)
		}
		if vms += p.Groups[g].Count; vms > MaxVMs {
			return fmt.Errorf("group %s: with it there are more than %d VMs", groupName(p.Groups, g), MaxVMs)
		}
	}
	return nil
}

func (g *Group) validate(hosts int) error {
	if g.Count < 0 || g.Count > MaxVMs {
		return fmt.Errorf("count %d is not in 0..%d", g.Count, MaxVMs)
	}
	if err := checkNumber(g.CPU); err != nil {
		return fmt.Errorf("CPU %w", err)
	}
	if err := checkNumber(g.Memory); err != nil {
		return fmt.Errorf("memory %w", err)
	}
	if !(g.MinYield >= 0 && g.MinYield <= 1) {
		return fmt.Errorf("minimum yield %v is not in 0..1", g.MinYield)
	}
	if err := checkNumber(g.Overhead); err != nil {
		return fmt.Errorf("overhead %w", err)
	}
	if err := checkNumber(g.MinMemory); err != nil {
		return fmt.Errorf("least memory %w", err)
	}
	if !(g.RequiredYield >= 0 && g.RequiredYield <= 1) {
		return fmt.Errorf("least yield %v is not in 0..1", g.RequiredYield)
	}
	if g.Hosts == nil {
		return nil
	}
	if len(g.Hosts) != g.Count {
		return fmt.Errorf("%d hosts are given for %d VMs", len(g.Hosts), g.Count)
	}
	for vm, j := range g.Hosts {
		if j < -1 || j >= hosts {
			return fmt.Errorf("VM %d is on host %d of %d", vm, j, hosts)
		}
	}
	return nil
}

func checkNumber(x float64) error {
	switch {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return fmt.Errorf("%v is not a finite number", x)
	case x < 0:
		return fmt.Errorf("%v is negative", x)
	case x != 0 && (x < MinNumber || x > GreatestNumber):
		return fmt.Errorf("%v is out of range (0, or %g to %g)", x, MinNumber, GreatestNumber)
	}
	return nil
}

func hostName(hosts []Host, j int) string {
	if hosts[j].Name != "" {
		return hosts[j].Name
	}
	return fmt.Sprintf("#%d", j)
}

func groupName(groups []Group, g int) string {
	name := groups[g].Name
	if name == "" {
		name = fmt.Sprintf("#%d", g)
	}
	if c := groups[g].Cluster; c != "" && c != name {
		return c + "/" + name
	}
	return name
}

// load is how many VMs of a group are on a host.
type load struct{ host, n int }

// tenancy is which virtual cluster each group belongs to.
type tenancy struct {
	of      []int     // [group]: virtual cluster
	members [][]int   // [virtual cluster]: groups, ascending
	floor   []float64 // [virtual cluster]: greatest MinYield of its groups
}

// floors are those of the groups: each that of its virtual cluster.
func (t tenancy) floors() []float64 {
	floors := make([]float64, len(t.of))
	for g, c := range t.of {
		floors[g] = t.floor[c]
	}
	return floors
}

func tenancyOf(groups []Group) tenancy {
	t := tenancy{of: make([]int, len(groups)), members: make([][]int, 0, len(groups)), floor: make([]float64, 0, len(groups))}
	var byName map[string]int
	one := make([]int, len(groups)) // backs the member list of each single-group cluster
	for g := range groups {
		name := groups[g].Cluster
		if name != "" {
			if c, ok := byName[name]; ok {
				t.of[g] = c
				t.members[c] = append(t.members[c], g)
				t.floor[c] = max(t.floor[c], groups[g].MinYield)
				continue
			}
			if byName == nil {
				byName = make(map[string]int)
			}
			byName[name] = len(t.members)
		}
		one[g] = g
		t.of[g] = len(t.members)
		t.members = append(t.members, one[g:g+1:g+1])
		t.floor = append(t.floor, groups[g].MinYield)
	}
	return t
}

// countLoads gathers the placed VMs of each group by host, hosts ascending,
// and how many VMs have no host.
func countLoads(p *Problem) (loads [][]load, unplaced []int) {
	loads = make([][]load, len(p.Groups))
	unplaced = make([]int, len(p.Groups))
	n := make([]int, len(p.Hosts))
	for g := range p.Groups {
		if p.Groups[g].Hosts == nil {
			unplaced[g] = p.Groups[g].Count
			continue
		}
		lowest, highest := len(n), -1
		for _, j := range p.Groups[g].Hosts {
			if j < 0 {
				unplaced[g]++
				continue
			}
			n[j]++
			lowest, highest = min(lowest, j), max(highest, j)
		}
		for j := lowest; j <= highest; j++ {
			if n[j] > 0 {
				loads[g] = append(loads[g], load{j, n[j]})
				n[j] = 0
			}
		}
	}
	return loads, unplaced
}
