package rightsizing

import (
	"math"
	"slices"
	"time"

	solver "evenkeel/allocator/rightsizing"
	"evenkeel/cluster/capacity"
	"evenkeel/cluster/state"
)

// fill fills the problem with every VM that takes memory, VC by VC in the order of the scheduler. VMs for which nothing can be
// decided now are fixed, and so are those of VCs whose needs are declared.
func (x *Rightsizer) fill(s *state.Snapshot, set state.RightsizingSettings, in Observations, out *Result) {
	p := &x.p
	p.Hosts, p.Apps, p.Components, x.refs, x.claimed = p.Hosts[:0], p.Apps[:0], p.Components[:0], x.refs[:0], x.claimed[:0]
	stopping := map[string]time.Time{}
	index, overhead := map[string]int{}, []float64{}
	for _, h := range s.Hosts() {
		index[h.Name] = len(p.Hosts)
		free, kept := h.Usable(), s.KeptMemory(h.Name)
		p.Hosts = append(p.Hosts, solver.Host{Name: h.Name, CPU: free.CPU, Memory: float64(free.Memory - kept)})
		x.claimed = append(x.claimed, float64(kept))
		overhead = append(overhead, float64(h.VMOverhead))
	}
	vcs := s.VCs()
	slices.SortStableFunc(vcs, func(a, b state.VC) int {
		return solver.Before(a.Priority, b.Priority, int64(a.CreateIndex), int64(b.CreateIndex))
	})
	coming := s.Preparing()
	var open, fixed app
	for _, vc := range vcs {
		open, fixed = app{open.components[:0], open.refs[:0]}, app{fixed.components[:0], fixed.refs[:0]}
		estimated := set.Mode == state.RightsizingShadow || set.Mode == state.RightsizingOn && set.Estimates(&vc)
		for _, vm := range s.VMsOf(vc.ID) {
			g, known := vc.GroupOf(vm)
			if !vm.ConsumesResources() || !known {
				continue
			}
			m := member{&vc, g, vm, set.AggressivenessOf(&vc), estimated, s.GrantedCores(vc.ID, &g)}
			still := vm.Phase != state.Running || vm.Goal != state.GoalRun || vm.MovingTo != "" || coming[vm.ID] != ""
			for i, name := range []string{vm.Host, vm.MovingTo, coming[vm.ID]} {
				at, there := index[name]
				if !there || i == 2 && (name == vm.Host || name == vm.MovingTo) {
					continue
				}
				p.Hosts[at].Memory -= overhead[at]
				c := solver.Component{Host: at, Elastic: g.Role == "elastic", Since: int64(vm.CreateIndex),
					Request: solver.Amount{CPU: g.CPU, Memory: float64(max(vm.BootMemory, vm.CountedMemory(g)))},
					Present: solver.Amount{CPU: g.Allocation, Memory: float64(vm.Due(g))}, Charged: float64(vm.ChargedMemory)}
				c.Need = c.Present
				r := ref{vc: vc.ID, vm: vm.ID, rightsized: -1}
				if still {
					if r.stops = x.stay(&vm, i, &c, in.Now, stopping); r.stops || c.Coming {
						x.claimed[at] += overhead[at]
					}
				} else if estimated || vm.Target > 0 {
					r.rightsized = len(out.VMs)
					if out.VMs = append(out.VMs, x.consider(m, in, &c)); !estimated {
						c.InUse = 0 // what it has is its own
					}
				}
				if estimated && !still {
					open.add(c, r)
				} else {
					fixed.add(c, r)
				}
			}
			x.want(m, in, still)
		}
		x.app(fixed, true)
		x.app(open, false)
	}
	x.stopping = stopping
}

// stay keeps the charge of a VM for which nothing can be decided now: where it runs (place 0), moves to (1), or is about to move to
// (2). stops: the VM has been stopping for less than stopsWithin. stay notes in stopping since when.
func (x *Rightsizer) stay(vm *state.VM, place int, c *solver.Component, now time.Time, stopping map[string]time.Time) (stops bool) {
	c.Present.Memory = c.Charged
	c.Need = c.Present
	c.Coming = place == 2 // its move can wait
	if place == 0 && vm.Phase == state.Stopping {
		since, known := x.stopping[vm.ID]
		if !known {
			since = now
		}
		stopping[vm.ID] = since
		stops = now.Sub(since) < stopsWithin
	}
	if v := x.vms[vm.ID]; v != nil && v.generation == vm.Generation {
		v.seen = true
	}
	return stops
}

// member is a VM with its group and virtual cluster. estimated: its needs are estimated. granted is the CPU that the VM is sure of,
// cores, as one of a run of a periodic job: with it the run gets back what others had borrowed.
type member struct {
	vc             *state.VC
	g              state.Group
	vm             state.VM
	aggressiveness string
	estimated      bool
	granted        float64
}

// app is an application while it is put together.
type app struct {
	components []solver.Component
	refs       []ref
}

func (a *app) add(c solver.Component, r ref) {
	a.components, a.refs = append(a.components, c), append(a.refs, r)
}

// app adds an application to the problem.
func (x *Rightsizer) app(a app, fixed bool) {
	if len(a.components) == 0 {
		return
	}
	x.p.Apps = append(x.p.Apps, solver.App{First: len(x.p.Components), Count: len(a.components), Fixed: fixed})
	x.p.Components = append(x.p.Components, a.components...)
	x.refs = append(x.refs, a.refs...)
}

// consider decides on the memory of a VM that runs: what it needs, what it must have, and why it is left alone.
func (x *Rightsizer) consider(m member, in Observations, c *solver.Component) Recommendation {
	vc, g, vm, estimated := m.vc, m.g, m.vm, m.estimated
	v := x.tracked(vm)
	v.seen, v.optional, v.lowest, v.deviation, v.idleTaken = true, optional{}, 0, 0, false
	target := vm.Due(g)
	if x.shadow {
		if v.target > 0 {
			target = min(v.target, g.Memory)
		}
		c.Present.Memory, c.Charged = float64(target), float64(target)
	}
	see := in.VMs[vm.ID]
	out := Recommendation{VM: vm.ID, Name: vm.Name, VC: vc.Name, Group: g.Name, Host: vm.Host, CPU: g.CPU, Memory: g.Memory, Target: target,
		Generation: vm.Generation, UnderPressure: see.Pressure != ""}
	sampled := x.sampled(see, in)
	short := sampled && (out.UnderPressure || x.shadow && estimated && see.Reports && target < g.Memory && float64(see.MemoryUsed) > pressureThreshold*float64(target))
	underPressure := v.pressureMemory(in, x.Period, short, see)
	inUse := max(float64(g.MemoryMin), float64(see.MemoryUsed))
	if out.UnderPressure && sampled {
		v.grew = in.Now
		x.growUnderPressure(g, target, see, c)
		inUse = max(inUse, c.Need.Memory)
	}
	if !v.grew.IsZero() {
		c.Grew = v.grew.Unix()
	}
	verdict, why := x.exclusion(vm, see, in, estimated, sampled)
	switch verdict {
	case giveBack: // as far as there is room; no VM is evicted for it
		out.Excluded = why
		c.Need.Memory, c.Required = float64(g.Memory), float64(target)
		if sampled && see.Reports {
			v.lowest = lowestOf(g, see)
		} else {
			inUse = float64(target)
		}
	case keep:
		out.Excluded = why
		c.Need.Memory, c.Floor = float64(target), float64(target)
		inUse = max(inUse, float64(target))
	case grow:
		out.Text = see.Pressure
		if see.Generation != 0 && see.Memory.Trusted && in.Now.Sub(see.Until) < x.stale() {
			c.Need.Memory = max(c.Need.Memory, see.Memory.need(BufferFor(m.aggressiveness), float64(g.Memory), float64(see.MemoryUsed)))
		}
	case follow:
		x.follow(m, in, c, &out, underPressure)
	}
	c.InUse = min(inUse, float64(g.Memory))
	return out
}

// follow has the memory of a VM follow its forecast, or its use if the forecast is not trusted. underPressure is the optional memory
// that the VM gets because it was short of memory.
func (x *Rightsizer) follow(m member, in Observations, c *solver.Component, out *Recommendation, underPressure optional) {
	g, see, v := m.g, in.VMs[m.vm.ID], x.vms[m.vm.ID]
	need := see.Memory.need(BufferFor(m.aggressiveness), float64(g.Memory), float64(see.MemoryUsed))
	if !see.Memory.Trusted {
		out.ByUse = see.Memory.Reason
	}
	c.Need.Memory, c.Floor = need, lowestOf(g, see)
	v.lowest = c.Floor
	if see.Memory.Trusted && keptOnce(m.aggressiveness) {
		means := BufferFor(m.aggressiveness)
		means.K2 = 0
		v.deviation = max(0, need-max(c.Floor, see.Memory.need(means, float64(g.Memory), float64(see.MemoryUsed))))
	}
	underPressure.memory = min(underPressure.memory, float64(g.Memory))
	// Before that nothing falls, optional memory included.
	if underPressure.memory > max(need, c.Floor) && in.Now.Sub(v.grew) >= rightsizeRest*x.Period {
		c.Need.Memory, c.Required, v.optional = underPressure.memory, max(need, c.Floor), underPressure
	}
	if x.shadow && see.MemoryUsed > out.Target {
		out.ShortMemory = see.MemoryUsed - out.Target
		v.grew = in.Now // an emergency grant would have raised it
		c.Grew = v.grew.Unix()
	}
}

// lowestOf is the memory below which the balloon of a VM does not fall, bytes.
func lowestOf(g state.Group, see VMObservation) float64 {
	return min(float64(g.Memory), max(float64(g.MemoryMin), (1+rightsizeSlack)*float64(see.MemoryUsed)))
}

// tracked is what is kept of a VM between evaluations; nothing, if it was started again.
func (x *Rightsizer) tracked(vm state.VM) *rightsizedVM {
	v := x.vms[vm.ID]
	if v == nil || v.generation != vm.Generation {
		v = &rightsizedVM{generation: vm.Generation}
		x.vms[vm.ID] = v
	}
	return v
}

// growUnderPressure lets a VM grow that reports that it is short of memory. target is what it has, bytes.
func (x *Rightsizer) growUnderPressure(g state.Group, target int64, see VMObservation, c *solver.Component) {
	lowest := max(float64(target)+pressureGrowth*float64(g.Memory), min(c.Charged, float64(g.Memory)))
	if b := float64(see.Balloon); !x.shadow && b > lowest {
		lowest = b // the host gave it that already
	}
	c.Need.Memory, c.Floor = min(lowest, float64(g.Memory)), float64(target)
}

// memoryVerdict is what the memory of a VM follows.
type memoryVerdict int

const (
	follow   memoryVerdict = iota // the forecast of its use
	grow                          // its pressure
	keep                          // nothing: it keeps what it has
	giveBack                      // nothing: what was taken of it is given back
)

// exclusion says what the memory of a VM follows, and why, if it is not its use. sampled: its measurement counts.
func (x *Rightsizer) exclusion(vm state.VM, see VMObservation, in Observations, estimated, sampled bool) (verdict memoryVerdict, why string) {
	begins := in.Now.Sub(in.Since) < x.stale() // this leader
	switch {
	case !estimated:
		return giveBack, "its needs are declared"
	case in.Unavailable[vm.Host] != "":
		return keep, "its host " + in.Unavailable[vm.Host]
	case see.Pressure != "" && sampled:
		return grow, ""
	case begins && (!sampled || see.Generation == 0):
		return keep, notHeard
	case !sampled:
		return giveBack, "it was not measured for " + x.stale().String()
	case !see.Reports:
		return giveBack, "its guest does not report what memory it uses: it has no balloon driver, or the driver fell silent"
	case !see.Follows:
		return keep, "its balloon does not follow: the guest gave back less than it was asked for"
	case see.Generation == 0 || in.Now.Sub(see.Until) >= x.stale():
		return giveBack, "nothing new is forecast for it"
	case !see.Memory.known():
		return giveBack, "the forecast of its memory is not trusted: " + see.Memory.Reason
	}
	return follow, ""
}

const notHeard = "nothing was heard of it yet since this leader began"

// stale is the age from which a measurement does not count any more.
func (x *Rightsizer) stale() time.Duration { return rightsizeStale * x.Period }

// sampled says whether what was measured of a VM counts.
func (x *Rightsizer) sampled(see VMObservation, in Observations) bool {
	return !see.At.IsZero() && in.Now.Sub(see.At) < x.stale()
}

// want raises the CPU need of a VM's group to the need of that VM.
func (x *Rightsizer) want(m member, in Observations, still bool) {
	g, vm := m.g, m.vm
	key := groupKey{m.vc.ID, g.Name}
	q := x.groups[key]
	if q == nil {
		q = &rightsizedGroup{}
		x.groups[key] = q
	}
	q.seen = true
	present := q.present(g, x.shadow)
	see := in.VMs[vm.ID]
	need, unheard := g.CPU, in.Now.Sub(in.Since) < x.stale()
	switch sampled := x.sampled(see, in); {
	case !m.estimated:
		q.declared = true
	case vm.Phase == state.Starting:
	case still, in.Unavailable[vm.Host] != "", unheard && (see.Generation == 0 || !sampled):
		need = present
	case see.Generation == 0 || !sampled || in.Now.Sub(see.Until) >= x.stale() || !see.CPU.known():
	default:
		need = see.CPU.need(CPUBufferFor(m.aggressiveness), g.CPU, see.Used)
		need = max(need, see.Used)
		if see.cutOff(g) {
			need = max(need, beyondCap*present)
		}
	}
	q.want = max(q.want, min(max(need, m.granted), g.CPU))
}

// cutOff says whether a cap below what was declared keeps a VM from using more.
func (v VMObservation) cutOff(g state.Group) bool {
	return v.Cap > 0 && v.Cap < g.CPU*(1-1e-6) && v.Used >= atCap*v.Cap
}

// present is the present need of a group, or in shadow mode the one that would be.
func (q *rightsizedGroup) present(g state.Group, shadow bool) float64 {
	switch {
	case !shadow:
		return g.Need()
	case q.need > 0:
		return min(q.need, g.CPU)
	}
	return g.CPU
}

// targets sets the targets of VMs from the result.
func (x *Rightsizer) targets(in Observations, r *solver.Result, out *Result) {
	for i, ref := range x.refs {
		if ref.rightsized < 0 {
			continue
		}
		o, v := r.Outcomes[i], &out.VMs[ref.rightsized]
		next := int64(o.Memory)
		switch {
		case next >= v.Memory:
			next = v.Memory
		case next > v.Target: // it grows as far as there is room
			next = max(v.Target, next/megabyte*megabyte)
		case next < v.Target:
			next = min(v.Target, int64(math.Ceil(o.Memory/megabyte))*megabyte)
		}
		switch {
		case o.Action == solver.Preempt:
			next = v.Target
		case next < v.Target && float64(v.Target-next) < minShift*float64(v.Memory):
			next = v.Target
		}
		v.Next = next
		if v.Text == "" {
			v.Text = r.Text(&x.p, i)
		}
		if v.ByUse != "" {
			v.Text += "; its use counts, as the forecast of its memory is not trusted: " + v.ByUse
		}
		if v.Excluded != "" {
			v.Text = v.Excluded
		}
		mine := x.vms[v.VM]
		if w := mine.optional; w.memory > 0 && float64(next) >= w.memory-megabyte {
			v.Text = w.text
		}
		if mine.idleTaken {
			v.Text = "host " + v.Host + " is short of memory: the VM is left what it uses and a fifth"
		}
		if next > v.Target {
			v.Grown = true
			// Optional memory may be taken back at once, and what is given of a deviation is no need of the VM's own. Neither makes the
			// VM rest.
			if mine.optional.memory == 0 && x.p.Components[i].Need.Memory-mine.deviation > float64(v.Target) {
				mine.grew = in.Now
			}
		}
		charged := next
		if x.shadow {
			mine.target = next
		} else {
			charged = max(next, int64(x.p.Components[i].Charged))
			if next != v.Target {
				t := state.VMTarget{VM: v.VM, Generation: v.Generation, Memory: next}
				if next == v.Memory {
					t.Memory = 0
				}
				out.Command.Targets = append(out.Command.Targets, t)
			}
		}
		out.Reclaimed.Memory += max(0, v.Memory-charged)
	}
}

// needs sets the needs of groups: they rise at once, and fall only some time after that.
func (x *Rightsizer) needs(s *state.Snapshot, in Observations, out *Result, may bool) {
	at := map[groupKey][]int{} // where VMs of a group stand
	for _, r := range x.refs {
		if r.rightsized >= 0 {
			key := groupKey{r.vc, out.VMs[r.rightsized].Group}
			at[key] = append(at[key], r.rightsized)
		}
	}
	s.EachVC(func(vc *state.VC) bool {
		for _, g := range vc.Groups {
			key := groupKey{vc.ID, g.Name}
			q := x.groups[key]
			if q == nil || !q.seen {
				continue
			}
			present := q.present(g, x.shadow)
			next := present
			switch {
			case q.declared:
				next = g.CPU
			case q.want > present+minFall/5*g.CPU || q.want == g.CPU:
				next = q.want
			case may && q.want < present-minFall*g.CPU && in.Now.Sub(q.rose) >= rightsizeRest*x.Period:
				next = max(q.want, capacity.MinCPU)
			}
			if next > present {
				q.rose = in.Now
			}
			if x.shadow {
				q.need = next
			} else if next != present {
				n := state.GroupNeed{VC: vc.ID, Group: g.Name, CPU: next}
				if next >= g.CPU {
					n.CPU = 0
				}
				out.Command.Needs = append(out.Command.Needs, n)
			}
			for _, i := range at[key] {
				v := &out.VMs[i]
				v.Need = next
				see := in.VMs[v.VM]
				if over := see.Used - present; x.shadow && over > minFall*g.CPU {
					v.ShortCPU = over
				} else if !x.shadow && see.cutOff(g) && !q.declared {
					v.ShortCPU = see.Used - atCap*see.Cap
				}
				out.Reclaimed.CPU += max(0, g.CPU-next)
			}
		}
		return true
	})
}
