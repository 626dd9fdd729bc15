package allocator

import (
	"cmp"
	"slices"
)

// From manyVMs on, the search for a placement begins with the excess that suffices
// for one VM and one host in every samplePart: a third fewer VMs are placed then,
// those of the sample included. Of fewer VMs a sample says too little.
const (
	manyVMs    = 50_000
	samplePart = 16
	// ofSample is the excess that suffices for all over the one for the sample, whose
	// last hosts are a greater part of its hosts: 0.9 to 1 with 100,000 VMs.
	ofSample = 0.93
	// greatestExpected: where a sample needs more, memory is short, and samples differ.
	greatestExpected = 0.25
)

// expected is the excess that is likely to suffice. 0: a sample says nothing, or
// does not pay.
func (k *packer) expected(o MCBOptions) float64 {
	if k.all < manyVMs || !k.lists.byGreater() {
		return 0 // other orders of the lists would be sorted once more for it
	}
	p := k.sample(samplePart)
	o.work = nil // k is at work
	loads, ok := mcb(&p, o)
	if !ok {
		return 0
	}
	yield := maxMin(&p, loads, make([]float64, len(p.Groups)))
	if yield <= 0 {
		return 0
	}
	excess := ofSample * (Bound(p)/yield - 1)
	if excess < firstExcess || excess > greatestExpected {
		return 0
	}
	return excess
}

// sample is every nth VM in the order of CPU needs, and every nth host in the
// order of CPU. The hosts' memory is scaled to be as short as that of all, hosts
// that are cordoned included.
func (k *packer) sample(n int) (p Problem) {
	if !k.sorted {
		k.sortItems()
	}
	p.Groups, p.Hosts = make([]Group, 0, len(k.byCPU)/n+1), make([]Host, 0, len(k.p.Hosts)/n+1)
	var needed, all float64
	at := n / 2
	for i := range k.byCPU {
		e := &k.byCPU[i]
		from := at / n
		at += int(e.count)
		all += float64(e.count) * e.need.memory
		if count := at/n - from; count > 0 {
			needed += float64(count) * e.need.memory
			p.Groups = append(p.Groups, Group{Count: count, CPU: e.need.cpu, Memory: e.need.memory})
		}
	}
	hosts := slices.Clone(k.p.Hosts)
	slices.SortFunc(hosts, func(a, b Host) int { return cmp.Or(cmp.Compare(a.CPU, b.CPU), cmp.Compare(a.Memory, b.Memory)) })
	var taken, there float64
	for j := range hosts {
		there += hosts[j].Memory
		if j%n == n/2 {
			taken += hosts[j].Memory
			p.Hosts = append(p.Hosts, hosts[j])
		}
	}
	if all > 0 && taken > 0 {
		scale := needed / all * there / taken
		for j := range p.Hosts {
			p.Hosts[j].Memory *= scale
		}
	}
	return p
}
