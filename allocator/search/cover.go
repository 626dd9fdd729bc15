package search

// cover improves p by partitions into patterns, of ever greater loads from the bound on, until p
// has the least possible load, a level of at most lowest, or one within the gap of the bound. It
// reports whether p got there. It gives up where patterns are too many, or the work is used up.
func (f *finder) cover(q *partition, p *placement, lowest, gap float64, r *Result) bool {
	m := f.m
	cpu := m.CPU[0]
	top := func() int64 {
		j, _ := p.top()
		return p.load[j]
	}
	// Loads of low and less are refuted, high is reached, enough is good enough.
	low, high := under(cpu, r.Lower, false), top()
	floor, enough := 0.0, int64(0)
	raise := func(lower float64) {
		r.Lower = max(r.Lower, lower)
		floor = max(lowest, r.Lower/(1-gap))
		enough = under(cpu, floor, true)
	}
	raise(0)
	// The patterns become more as the load rises above the average, and with
	// them the work: small steps first.
	average := (q.cat.weight + int64(q.cat.hosts) - 1) / int64(q.cat.hosts)
	low = max(low, average-1)
	stride := max(1, (average>>14)+1)
	turn := int64(len(m.Weight)) * 4000
	direct := false
	for high > enough && low < high-1 && !f.done() {
		load := min(low+stride, high-1)
		if load < enough {
			load = min(enough, high-1)
		}
		found, final := false, false
		f.spend(turn, func() { found, final = q.ask(load, &f.steps, f.stop) })
		switch {
		case found:
			q.moveTo(p)
			high = top()
			// Between half way and all the way: what is found tends to be near to
			// what was asked for.
			stride = (high - low) / 2
			if direct {
				stride = high - low
			}
			direct = !direct
		case final:
			low = load
			raise(level(low+1, cpu))
			stride += stride/6 + 1
		case q.cat.crowded:
			return false
		case stride > (high-low)/4+1:
			stride = stride/2 + 1
		default:
			turn *= 4
			f.spend(turn/8, func() { f.improve(p, floor) })
			high = min(high, top())
			stride = (high - low) / 2
		}
	}
	r.Optimal = low >= high-1
	return r.Optimal || high <= enough
}

// moveTo moves the VMs to where the partition put them.
func (q *partition) moveTo(p *placement) {
	for j, k := range q.chosen {
		for i, vm := range q.cat.vms {
			if q.cat.list[k].set>>uint(i)&1 == 0 {
				continue
			}
			if p.host[vm] >= 0 {
				p.move(vm, int32(j))
			} else {
				p.put(vm, int32(j))
			}
		}
	}
}
