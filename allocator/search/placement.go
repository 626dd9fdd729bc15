package search

import "slices"

// placement is where VMs are, kept by host.
type placement struct {
	m    *Model
	host []int32
	on   [][]int32
	load []int64
	used []int64 // memory
	cost int64

	// tree[1] is the host with the greatest level: each inner node is the winner
	// of its two children, the leaves are the hosts. dirty hosts changed since.
	tree  []int32
	dirty []int32
}

func newPlacement(m *Model) *placement {
	p := &placement{
		m: m, host: make([]int32, len(m.Weight)), on: make([][]int32, len(m.CPU)),
		load: make([]int64, len(m.CPU)), used: make([]int64, len(m.CPU)),
	}
	for i := range p.host {
		p.host[i] = -1
	}
	return p
}

func placementOf(m *Model, host []int32) *placement {
	p := newPlacement(m)
	n := make([]int, len(m.CPU))
	for _, j := range host {
		n[j]++
	}
	room := make([]int32, len(host))
	for j, k := range n {
		p.on[j], room = room[:0:k], room[k:]
	}
	for vm, j := range host {
		p.put(int32(vm), j)
	}
	return p
}

func (p *placement) put(vm, j int32) {
	p.host[vm] = j
	p.on[j] = append(p.on[j], vm)
	p.load[j] += p.m.Weight[vm]
	p.used[j] += p.m.Size[vm]
	p.cost += p.m.cost(vm, j)
	p.touch(j)
}

func (p *placement) take(vm int32) {
	j := p.host[vm]
	at := slices.Index(p.on[j], vm)
	last := len(p.on[j]) - 1
	p.on[j][at] = p.on[j][last]
	p.on[j] = p.on[j][:last]
	p.load[j] -= p.m.Weight[vm]
	p.used[j] -= p.m.Size[vm]
	p.cost -= p.m.cost(vm, j)
	p.host[vm] = -1
	p.touch(j)
}

func (p *placement) touch(j int32) {
	if n := len(p.dirty); p.tree != nil && (n < 1 || p.dirty[n-1] != j) && (n < 2 || p.dirty[n-2] != j) {
		p.dirty = append(p.dirty, j)
	}
}

func (p *placement) move(vm, j int32) {
	if p.host[vm] != j {
		p.take(vm)
		p.put(vm, j)
	}
}

// top is the host with the greatest level, and the level.
func (p *placement) top() (int32, float64) {
	h := len(p.load)
	if p.tree == nil {
		p.tree = make([]int32, 2*h)
		for j := range h {
			p.tree[h+j] = int32(j)
		}
		for k := h - 1; k > 0; k-- {
			p.tree[k] = p.higher(p.tree[2*k], p.tree[2*k+1])
		}
	}
	for _, j := range p.dirty {
		for k := (h + int(j)) / 2; k > 0; k /= 2 {
			p.tree[k] = p.higher(p.tree[2*k], p.tree[2*k+1])
		}
	}
	p.dirty = p.dirty[:0]
	j := p.tree[min(1, 2*h-1)]
	return j, level(p.load[j], p.m.CPU[j])
}

func (p *placement) higher(a, b int32) int32 {
	if level(p.load[b], p.m.CPU[b]) > level(p.load[a], p.m.CPU[a]) {
		return b
	}
	return a
}

// clashes says whether vm may not be on host j beside what is there.
func (p *placement) clashes(vm, j int32) bool {
	if !p.m.allowed(vm, j) {
		return true
	}
	if r := p.m.Rules; r != nil && r.Apart != nil && r.Apart[r.Class[vm]] != nil {
		for _, o := range p.on[j] {
			if o != vm && p.m.apart(vm, o) {
				return true
			}
		}
	}
	return false
}
