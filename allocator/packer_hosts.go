package allocator

import (
	"cmp"
	"math"
	"slices"
)

// HostOrder is the order in which unequal hosts are filled, by what they have
// free, as a fraction of the greatest host's CPU and memory. It is the bin order
// of METAHVP (Stillwell, Vivien, Casanova, "Virtual Machine Resource Allocation
// for Service Hosting on Heterogeneous Distributed Platforms", IPDPS 2012).
type HostOrder struct {
	By         HostKey
	Descending bool
}

// HostKey is what a HostOrder compares. Hosts of equal key keep their order.
type HostKey int

// The keys.
const (
	AsGiven      HostKey = iota
	BySum                // CPU + memory
	ByGreatest           // max(CPU, memory)
	ByMin                // min(CPU, memory)
	ByDifference         // max(CPU, memory) - min(CPU, memory)
	ByRatio              // max(CPU, memory) / min(CPU, memory)
	ByCPU
	ByMemory
)

// HostOrders is all fifteen orders: as given, and each key both ways.
func HostOrders() []HostOrder {
	orders := []HostOrder{{By: AsGiven}}
	for by := BySum; by <= ByMemory; by++ {
		orders = append(orders, HostOrder{by, false}, HostOrder{by, true})
	}
	return orders
}

// defaultHostOrders are tried one after the other: smallest host first, then
// largest.
var defaultHostOrders = []HostOrder{{BySum, false}, {BySum, true}}

func (by HostKey) key(cpu, memory float64) float64 {
	highest, lowest := max(cpu, memory), min(cpu, memory)
	switch by {
	case BySum:
		return cpu + memory
	case ByGreatest:
		return highest
	case ByMin:
		return lowest
	case ByDifference:
		return highest - lowest
	case ByRatio:
		switch {
		case lowest > 0:
			return highest / lowest
		case highest > 0:
			return math.Inf(1)
		}
		return 1
	case ByCPU:
		return cpu
	case ByMemory:
		return memory
	}
	return 0
}

// arrange orders the hosts, and reports whether they differ at all in what
// they have free.
func (k *packer) arrange(o HostOrder) (differ bool) {
	var maxCPU, maxMemory float64
	for j := range k.p.Hosts {
		maxCPU = max(maxCPU, k.p.Hosts[j].CPU)
		maxMemory = max(maxMemory, k.p.Hosts[j].Memory)
	}
	cpuOf := func(j int) float64 {
		if k.scale > GreatestNumber {
			return k.p.Hosts[j].CPU // without limit on all: by what they have
		}
		return k.freeCPU[j] / k.scale
	}
	for j := range k.order {
		k.order[j] = j
		cpu := cpuOf(j)
		k.rank[j] = o.By.key(fraction(cpu, maxCPU), fraction(k.freeMemory[j], maxMemory))
		differ = differ || cpu != cpuOf(0) || k.freeMemory[j] != k.freeMemory[0]
	}
	if !differ {
		return false
	}
	slices.SortStableFunc(k.order, func(a, b int) int {
		if o.Descending {
			a, b = b, a
		}
		return cmp.Compare(k.rank[a], k.rank[b])
	})
	return true
}
