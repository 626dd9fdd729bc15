package search

// maxFree is how many VMs of two hosts are divided again at once.
const maxFree = 18

// part is a set of VMs: its weight, size, what more it costs to have it on the
// first host than on the second, and which they are.
type part struct {
	w, s, c int64
	set     uint32
}

// splitter divides the VMs of two hosts again.
type splitter struct {
	free        []int32
	more        []int64 // [free]: as part.c
	left, right []part
	scratch     []part
}

// sums lists all subsets of vms by weight, least first. Bit shift+i of a set is vms[i].
func (x *splitter) sums(list []part, m *Model, vms []int32, more []int64, shift int) []part {
	list = append(list[:0], part{})
	for i, vm := range vms {
		w, s, c, bit := m.Weight[vm], m.Size[vm], more[i], uint32(1)<<(shift+i)
		old := append(x.scratch[:0], list...)
		x.scratch = old
		list = resize(list, 2*len(old))
		// Merge old with old + vm.
		a, b := 0, 0
		for k := range list {
			if a < len(old) && old[a].w <= old[b].w+w {
				list[k] = old[a]
				a++
			} else {
				list[k] = part{old[b].w + w, old[b].s + s, old[b].c + c, old[b].set | bit}
				b++
			}
		}
	}
	return list
}

// division is two hosts without those of their VMs that are divided again.
type division struct {
	a, b         int32
	baseA, baseB int64 // load of the VMs that stay
	sizeA, sizeB int64 // their memory
	total, size  int64 // load and memory of the VMs that are divided
	cost         int64 // of the placement if all of them are on b
}

// split divides the VMs of hosts a and b so that the greater level of the two
// is least, if that is below t; it reports whether it is. Horowitz and Sahni's
// two lists: all subsets of one half of the VMs against all of the other,
// passing only over pairs whose weight lies in the window that t leaves.
func (f *finder) split(p *placement, a, b int32, t float64) bool {
	m, x := p.m, &f.splitter
	d := f.release(p, a, b)
	free, more := x.free, x.more
	if len(free) < 2 {
		return false
	}
	alike := d.baseA == 0 && d.baseB == 0 && d.sizeA == 0 && d.sizeB == 0 && m.CPU[a] == m.CPU[b] && m.Memory[a] == m.Memory[b] && m.Rules == nil
	if alike {
		// The first VM stays.
		d.baseA, d.sizeA = m.Weight[free[0]], m.Size[free[0]]
		d.total, d.size = d.total-d.baseA, d.size-d.sizeA
		free, more = free[1:], more[1:]
	}
	n := len(free)
	x.left = x.sums(x.left, m, free[:n/2], more[:n/2], 0)
	x.right = x.sums(x.right, m, free[n/2:], more[n/2:], n/2)
	f.steps -= int64(len(x.left)+len(x.right)) / 4
	onA, found, scans := x.scan(m, &d, t)
	f.steps -= int64(scans) / 4
	if !found {
		return false
	}
	if alike {
		p.move(x.free[0], a)
	}
	for i, vm := range free {
		if onA>>i&1 != 0 {
			p.move(vm, a)
		} else {
			p.move(vm, b)
		}
	}
	return true
}

// release chooses the VMs that are divided, and takes them off their hosts.
func (f *finder) release(p *placement, a, b int32) division {
	m, x := p.m, &f.splitter
	x.free, x.more = x.free[:0], x.more[:0]
	budget := m.budgeted()
	d := division{a: a, b: b, baseA: p.load[a], baseB: p.load[b], sizeA: p.used[a], sizeB: p.used[b], cost: p.cost}
	room := len(p.on[a]) + len(p.on[b])
	for side, j := range [2]int32{a, b} {
		for _, vm := range p.on[j] {
			// Of too many a random choice is free.
			if room > maxFree && f.rng.IntN(room) >= maxFree || len(x.free) == maxFree {
				continue
			}
			if m.Rules != nil && (f.tied(vm) || !m.allowed(vm, a) || !m.allowed(vm, b) || f.barred(p, vm, a, b)) {
				continue
			}
			x.free = append(x.free, vm)
			x.more = append(x.more, 0)
			d.total += m.Weight[vm]
			d.size += m.Size[vm]
			if budget {
				// All are counted as on b.
				onB := m.cost(vm, b)
				x.more[len(x.more)-1] = m.cost(vm, a) - onB
				d.cost += onB - m.cost(vm, j)
			}
			if side == 0 {
				d.baseA -= m.Weight[vm]
				d.sizeA -= m.Size[vm]
			} else {
				d.baseB -= m.Weight[vm]
				d.sizeB -= m.Size[vm]
			}
		}
	}
	return d
}

// scan looks for the pair of a left and a right part on host a whose greater level is the least below t. It also returns the
// set of its VMs, and how many pairs it looked at.
func (x *splitter) scan(m *Model, d *division, t float64) (onA uint32, found bool, scans int) {
	cpuA, cpuB := m.CPU[d.a], m.CPU[d.b]
	budget := m.budgeted()
	hi, lo := under(cpuA, t, false)-d.baseA, d.baseB+d.total-under(cpuB, t, false)
	sizeHi, sizeLo := m.Memory[d.a]-d.sizeA, d.sizeB+d.size-m.Memory[d.b]
	top := len(x.right) - 1
	limit := 16 * (len(x.left) + len(x.right))
	for i := range x.left {
		l := &x.left[i]
		if l.w > hi {
			break
		}
		for top >= 0 && x.right[top].w > hi-l.w {
			top--
		}
		if top < 0 {
			break
		}
		for k := top; k >= 0 && l.w+x.right[k].w >= lo; k-- {
			if scans++; scans > limit {
				break
			}
			r := &x.right[k]
			if s := l.s + r.s; s > sizeHi || s < sizeLo {
				continue
			}
			if budget && d.cost+l.c+r.c > m.Rules.Budget {
				continue
			}
			w := l.w + r.w
			onA, found = l.set|r.set, true
			t = max(level(d.baseA+w, cpuA), level(d.baseB+d.total-w, cpuB))
			hi, lo = under(cpuA, t, false)-d.baseA, d.baseB+d.total-under(cpuB, t, false)
			if w > hi || hi < lo {
				break
			}
		}
		if hi < lo {
			break
		}
	}
	return onA, found, scans
}

// tied says whether moving vm alone may break a rule that some VM must be with others.
func (f *finder) tied(vm int32) bool {
	return f.company != nil && has(f.company, f.m.Rules.Class[vm])
}

// barred says whether vm may not be with some VM of the two hosts.
func (f *finder) barred(p *placement, vm, a, b int32) bool {
	return p.clashes(vm, a) || p.clashes(vm, b)
}

// setOf is a bit set of n bits with none set.
func setOf(n int) []uint64 { return make([]uint64, (n+63)/64) }
