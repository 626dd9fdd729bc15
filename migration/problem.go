package migration

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"evenkeel/allocator"
)

// Host is what the VMs of one machine may use.
type Host struct {
	Name     string
	CPU      float64 // cores
	Memory   float64 // bytes
	Reserve  float64 // bytes of Memory that stay free whatever runs there
	Cordoned bool    // keeps the VMs it has, takes no other, for a while neither
	// Unavailable is why a host that is Cordoned here takes no VM though no operator cordoned it, as "is lost"; "" = one did.
	Unavailable string

	// Link is the network that moves from and to the host go over, by any name;
	// hosts of equal Link share Limits.PerLink. "": one of its own.
	Link string
}

// Group is a set of equal VMs of one virtual cluster.
type Group struct {
	Cluster     string // groups of equal Cluster are one virtual cluster; "" makes the group one by itself
	Name        string
	Count       int
	CPU         float64 // need of one VM, cores
	Memory      float64 // of one VM, with its overhead, bytes; on both hosts while it moves
	Reclaimable float64 // most memory that one VM may take back by itself, bytes; hosts keep some free for it: allocator.Reserve
	MinYield    float64 // least yield that the virtual cluster accepts, in [0, 1]

	// Hosts has one entry per VM: an index into Problem.Hosts, or -1 for a VM
	// that has none yet. nil: none has.
	Hosts []int

	// Bytes is what moving each VM is predicted to cost: memory, pages that are
	// sent again, disk. nil: Memory.
	Bytes []float64

	// Pinned names by index the VMs that cannot be moved.
	Pinned []int

	// Names of the VMs, for what is said of them. nil: see VMName.
	Names []string
}

// Limits bound what goes on at once. 0 or less: no bound.
type Limits struct {
	PerHost   int     // moves that begin or end on a host
	PerLink   int     // moves that begin or end on a link
	Total     int     // moves in all
	Bandwidth float64 // bytes per second of each move; 0: unknown, and moves take no time
}

// Problem is what is to be planned. No call changes it or keeps its slices
// beyond the Planner made of it.
type Problem struct {
	Hosts  []Host
	Groups []Group
	Rules  *allocator.Rules // nil: none
	Limits Limits

	// LargestOnly: of what VMs may take back hosts keep the largest amount of one VM free, and not a quarter of all (allocator.Reserve).
	LargestOnly bool

	// Policy says where VMs go that move anyway, of all places that cost as many bytes and no yield.
	Policy allocator.Policy

	// NoRoute says why no VM can be sent directly from one host to another, by index; "" = one can. nil: every host reaches every other.
	NoRoute func(from, to int) string

	// Caps is the CPU that each VM of a group has now, cores. nil: what
	// allocator.Allocate gives to the VMs where they are.
	Caps []float64

	// Budget is how many bytes Plan will be asked for, where that is known: New then also looks for placements that
	// use it up. 0: it is not known.
	Budget float64

	// Steps bounds the work of New, deterministically; one is about 10 ns on a
	// machine of 2020. 0: DefaultSteps. The order of the search does not depend on
	// Steps: more steps never give a worse plan, and the first few give some plan.
	// New finishes what it has begun, so that it may do some more. The searches of orders of a Drain may do five times as much.
	Steps int64

	// Stop is asked now and then whether New is to end, with what it has found; nil:
	// never. Plans are then as repeatable as Stop is.
	Stop func() bool
}

// DefaultSteps is the most work that New does if the problem states no limit. Few problems take it all.
const DefaultSteps = 200_000_000

// Validate reports the first thing wrong with a problem, naming the host or group.
func (p *Problem) Validate() error {
	for j := range p.Hosts {
		h := &p.Hosts[j]
		if h.CPU <= 0 || h.Memory <= 0 {
			return fmt.Errorf("host %s: CPU %v and memory %v must be above 0", h.Name, h.CPU, h.Memory)
		}
		if !amount(h.Reserve) {
			return fmt.Errorf("host %s: reserve %v is no amount", h.Name, h.Reserve)
		}
	}
	for g := range p.Groups {
		q := &p.Groups[g]
		if !amount(q.Reclaimable) {
			return fmt.Errorf("group %s: growth %v is no amount", q.title(), q.Reclaimable)
		}
		if q.Bytes != nil && len(q.Bytes) != q.Count {
			return fmt.Errorf("group %s: the cost of %d moves is given for %d VMs", q.title(), len(q.Bytes), q.Count)
		}
		for vm, b := range q.Bytes {
			if !amount(b) {
				return fmt.Errorf("group %s: VM %d: %v bytes to move is no amount", q.title(), vm, b)
			}
		}
		for _, vm := range q.Pinned {
			if vm < 0 || vm >= q.Count {
				return fmt.Errorf("group %s: VM %d of %d is held", q.title(), vm, q.Count)
			}
		}
	}
	if p.Caps != nil && len(p.Caps) != len(p.Groups) {
		return fmt.Errorf("caps are given for %d groups of %d", len(p.Caps), len(p.Groups))
	}
	if slices.ContainsFunc(p.Caps, func(c float64) bool { return !amount(c) }) {
		return errors.New("a cap is no amount")
	}
	if p.Budget < 0 || math.IsNaN(p.Budget) {
		return fmt.Errorf("budget %v is no amount", p.Budget)
	}
	if !amount(p.Limits.Bandwidth) {
		return fmt.Errorf("bandwidth %v is no amount", p.Limits.Bandwidth)
	}
	q := p.allocation()
	if err := q.Validate(); err != nil {
		return err
	}
	return p.Rules.Validate(q)
}

func amount(x float64) bool { return x >= 0 && x <= allocator.GreatestNumber }

func (g *Group) title() string {
	if g.Cluster != "" && g.Cluster != g.Name {
		return g.Cluster + "/" + g.Name
	}
	return g.Name
}

// host is where a VM is now, -1: nowhere.
func (g *Group) host(vm int) int {
	if g.Hosts == nil {
		return -1
	}
	return g.Hosts[vm]
}

func (g *Group) bytes(vm int) float64 {
	if g.Bytes == nil {
		return g.Memory
	}
	return g.Bytes[vm]
}

// VMName is how reasons name a VM of a group: its name, or the group and a number from 0 on.
func (g *Group) VMName(vm int) string {
	if vm < len(g.Names) {
		return g.Names[vm]
	}
	return fmt.Sprintf("%s-%d", g.title(), vm)
}

// allocation is the problem as the allocator knows it, hosts whole.
func (p *Problem) allocation() allocator.Problem {
	q := allocator.Problem{Hosts: make([]allocator.Host, len(p.Hosts)), Groups: make([]allocator.Group, len(p.Groups))}
	for j := range p.Hosts {
		h := &p.Hosts[j]
		q.Hosts[j] = allocator.Host{Name: h.Name, CPU: h.CPU, Memory: h.Memory, Cordoned: h.Cordoned}
	}
	for g := range p.Groups {
		x := &p.Groups[g]
		q.Groups[g] = allocator.Group{Cluster: x.Cluster, Name: x.Name, Count: x.Count, CPU: x.CPU, Memory: x.Memory, MinYield: x.MinYield, Hosts: x.Hosts}
	}
	return q
}

// fleet is the VMs of a problem one by one.
type fleet struct {
	p      *Problem
	rules  *allocator.Meaning
	first  []int // [group]: its first VM
	group  []int // [vm]
	home   []int // [vm]: host, -1: none
	bytes  []float64
	pinned []bool

	total float64   // bytes of all VMs that may move
	used  []float64 // [host]: memory of the VMs there now
	need  []float64 // [host]: CPU need of the VMs there now
}

func (p *Problem) fleet() (*fleet, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	m, err := p.Rules.Meaning(p.allocation())
	if err != nil {
		return nil, err
	}
	f := &fleet{p: p, rules: m, first: make([]int, len(p.Groups)), used: make([]float64, len(p.Hosts)), need: make([]float64, len(p.Hosts))}
	for g := range p.Groups {
		x := &p.Groups[g]
		f.first[g] = len(f.group)
		for vm := range x.Count {
			f.group = append(f.group, g)
			f.home = append(f.home, x.host(vm))
			f.bytes = append(f.bytes, x.bytes(vm))
			f.pinned = append(f.pinned, false)
			if j := x.host(vm); j >= 0 {
				f.used[j] += x.Memory
				f.need[j] += x.CPU
			}
		}
		for _, vm := range x.Pinned {
			f.pinned[f.first[g]+vm] = true
		}
	}
	for vm, b := range f.bytes {
		if f.home[vm] >= 0 && !f.pinned[vm] {
			f.total += b
		}
	}
	return f, nil
}

// noRoute says why a host cannot send VMs to another, "" = it can. A VM without a host needs no route.
func (f *fleet) noRoute(from, to int) string {
	if f.p.NoRoute == nil || from < 0 || from == to {
		return ""
	}
	return f.p.NoRoute(from, to)
}

// allowed says whether rules, and the way from where a VM is now, let it be on a host.
func (f *fleet) allowed(vm, to int) bool {
	return f.rules.Allowed(f.group[vm], to) && f.noRoute(f.home[vm], to) == ""
}

func (f *fleet) of(vm int) *Group { return &f.p.Groups[f.group[vm]] }

func (f *fleet) name(vm int) string { return f.of(vm).VMName(vm - f.first[f.group[vm]]) }

// cost is what a placement costs if every VM goes directly to its target.
func (f *fleet) cost(at []int) (bytes float64) {
	for vm, j := range at {
		if home := f.home[vm]; home >= 0 && home != j {
			bytes += f.bytes[vm]
		}
	}
	return bytes
}

// room is the memory that the VMs of a host may have, beside what it keeps for their growth.
func (h *Host) room(reserves allocator.Reserve[float64]) float64 {
	return h.Memory - h.Reserve - reserves.Bytes()
}

// fits compares sums of memory as the allocator does.
func fits(used, room float64) bool { return used <= room+math.Abs(room)*1e-13 }
