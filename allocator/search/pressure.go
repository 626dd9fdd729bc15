package search

import "math"

// pressure looks for a placement below a level by steps through placements that exceed limits: of CPU at that
// level, of memory, or of both. What a host exceeds counts by a weight of its own for each of the two. Where no
// step lowers the sum, the weights of what is exceeded rise (breakout: Morris 1993), so that the search leaves
// what the best steps alone cannot leave. It goes on with any host that exceeds a limit, not with the highest.
type pressure struct {
	f      *finder
	p      *placement
	limit  []int64   // [host]: weight
	perW   float64   // 1 / mean weight
	perS   float64   // 1 / mean size
	w, s   []float64 // [host]: what exceeding CPU, and memory, counts
	bad    []int32   // hosts that exceed a limit
	at     []int32   // [host]: index in bad, -1: not there
	sample []int32
}

func newPressure(f *finder, p *placement) *pressure {
	h := len(f.m.CPU)
	x := &pressure{
		f: f, p: placementOf(f.m, p.host), limit: make([]int64, h),
		w: make([]float64, h), s: make([]float64, h), at: make([]int32, h), sample: all(h),
	}
	mean := func(of []int64) float64 {
		total := 0.0
		for _, v := range of {
			total += float64(v)
		}
		return float64(len(of)) / max(1, total)
	}
	x.perW, x.perS = mean(f.m.Weight), mean(f.m.Size)
	return x
}

// aim makes t the level that must not be exceeded.
func (x *pressure) aim(t float64) {
	x.bad = x.bad[:0]
	for j := range x.limit {
		x.limit[j] = under(x.f.m.CPU[j], t, true)
		x.w[j], x.s[j] = 1, 1
		x.at[j] = -1
	}
	for j := range x.limit {
		x.judge(int32(j))
	}
}

// judge notes whether host j exceeds a limit.
func (x *pressure) judge(j int32) {
	over := x.p.load[j] > x.limit[j] || x.p.used[j] > x.f.m.Memory[j]
	switch i := x.at[j]; {
	case over && i < 0:
		x.at[j] = int32(len(x.bad))
		x.bad = append(x.bad, j)
	case !over && i >= 0:
		last := len(x.bad) - 1
		x.bad[i] = x.bad[last]
		x.at[x.bad[i]] = i
		x.bad = x.bad[:last]
		x.at[j] = -1
	}
}

// cost is what host j counts with so much more weight and size.
func (x *pressure) cost(j int32, w, s int64) float64 {
	c := 0.0
	if o := x.p.load[j] + w - x.limit[j]; o > 0 {
		c = float64(o) * x.perW * x.w[j]
	}
	if o := x.p.used[j] + s - x.f.m.Memory[j]; o > 0 {
		c += float64(o) * x.perS * x.s[j]
	}
	return c
}

// partnerHosts is with how many hosts one that exceeds a limit is tried at most in a step.
const partnerHosts = 64

// step makes the best of the moves and swaps of VMs of host a, or raises its weights if none is an improvement.
func (x *pressure) step(a int32) {
	m, p, f := x.f.m, x.p, x.f
	before := x.cost(a, 0, 0)
	best := -1e-9 * before
	var give, take, to int32 = -1, -1, -1
	n := min(len(x.sample), partnerHosts)
	work := 0
	for i := range n {
		if n < len(x.sample) {
			k := i + f.rng.IntN(len(x.sample)-i)
			x.sample[i], x.sample[k] = x.sample[k], x.sample[i]
		}
		b := x.sample[i]
		if b == a {
			continue
		}
		beforeB := x.cost(b, 0, 0)
		work += len(p.on[a]) * (1 + len(p.on[b]))
		for _, v := range p.on[a] {
			w, s := m.Weight[v], m.Size[v]
			left := x.cost(a, -w, -s) - before
			if left >= best {
				continue // b can only add to it, or be helped by a swap that helps a less
			}
			if d := left + x.cost(b, w, s) - beforeB; d < best {
				best, give, take, to = d, v, -1, b
			}
			for _, u := range p.on[b] {
				wu, su := m.Weight[u], m.Size[u]
				if d := x.cost(a, wu-w, su-s) - before + x.cost(b, w-wu, s-su) - beforeB; d < best {
					best, give, take, to = d, v, u, b
				}
			}
		}
	}
	f.steps -= int64(work/2 + n)
	if give < 0 {
		if p.load[a] > x.limit[a] {
			x.w[a]++
		}
		if p.used[a] > m.Memory[a] {
			x.s[a]++
		}
		return
	}
	p.move(give, to)
	if take >= 0 {
		p.move(take, a)
	}
	x.judge(a)
	x.judge(to)
}

// reach looks for a placement at or below level t, with so much work at most. It goes on from where it was.
func (x *pressure) reach(t float64, steps int64) bool {
	x.aim(t)
	found := false
	x.f.spend(steps, func() {
		for len(x.bad) > 0 && !x.f.done() {
			x.step(x.bad[x.f.rng.IntN(len(x.bad))])
		}
		found = len(x.bad) == 0
	})
	return found
}

// press lowers the greatest level by pressure until it is at most floor or the work is used up.
func (f *finder) press(p *placement, floor float64) {
	if f.part == 0 {
		f.part, f.patience = 0.5, int64(len(f.m.Weight))*200
	}
	for x := newPressure(f, p); !f.done(); {
		_, t := p.top()
		if t <= floor {
			return
		}
		goal := max(floor, math.Nextafter(t, 0)-(t-floor)*f.part)
		from, to := p, x.p
		if x.reach(goal, f.patience) {
			from, to = x.p, p
		} else if f.part /= 2; f.part < 1e-4 {
			f.part, f.patience = 0.5, f.patience*4
		}
		for vm, j := range from.host {
			to.move(int32(vm), j)
		}
	}
}
