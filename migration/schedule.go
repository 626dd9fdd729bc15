package migration

import (
	"fmt"
	"math"
	"slices"

	"evenkeel/allocator"
)

// schedule makes steps of ops. It cuts the ops into stages, in order. Caps change only between
// stages, and fit while every VM that moves in the stage counts on both hosts. Within a stage moves
// go on side by side. A move waits for the departures without which its host would lack memory even
// if everything before it in the list were there already, for VMs that it must be apart from, and
// for its lanes.
//
// That is enough however long moves take: of the VMs on their way to a host at any instant take the
// last in the list. It has counted all the others as there, and only those as gone that it has
// waited for.
type schedule struct {
	f     *fleet
	caps  []float64 // [group]: at the end
	want  []float64 // [group]: more is of no use on the way
	now   []float64 // [group]
	runs  []int     // [group]: VMs that have been started
	steps []Step
	slack float64 // yield under which a stage should not go

	at       []int
	on       [][]int                      // [host]: VMs before the stage
	reserves []allocator.Reserve[float64] // [host]: for all that are there before or afterwards, or have waited there
	filled   []float64                    // [host]: memory of all that was or comes there, none having left
	left     [][]departs                  // [host]
	lastOf   []int                        // [vm]: its latest step, -1
	total    *lanes
	perHost  []*lanes
	perLink  map[string]*lanes
}

type departs struct {
	vm, step int
	end      float64
}

func newSchedule(f *fleet, before, after []float64, target []int, slack float64) *schedule {
	p := f.p
	s := &schedule{f: f, caps: after, want: make([]float64, len(after)), now: slices.Clone(before), runs: make([]int, len(after)), slack: slack,
		at: slices.Clone(f.home), on: make([][]int, len(p.Hosts)), reserves: reserves(f, target), filled: slices.Clone(f.used), left: make([][]departs, len(p.Hosts)),
		lastOf: make([]int, len(f.home)), total: newLanes(p.Limits.Total), perHost: make([]*lanes, len(p.Hosts)), perLink: map[string]*lanes{}}
	for g := range s.want {
		s.want[g] = max(before[g], after[g])
	}
	for vm, j := range f.home {
		s.lastOf[vm] = -1
		if j >= 0 {
			s.on[j] = append(s.on[j], vm)
			s.runs[f.group[vm]]++
		}
	}
	for j := range s.perHost {
		s.perHost[j] = newLanes(p.Limits.PerHost)
		if name := p.Hosts[j].Link; name != "" && s.perLink[name] == nil {
			s.perLink[name] = newLanes(p.Limits.PerLink)
		}
	}
	return s
}

// run makes the steps.
func (s *schedule) run(ops []op) []Step {
	for len(ops) > 0 {
		n, union := s.stage(ops)
		barrier := s.adjust(s.fitting(union), false)
		for _, o := range ops[:n] {
			s.step(o, barrier)
		}
		ops = ops[n:]
		for j := range union {
			if len(union[j]) != len(s.on[j]) || slices.ContainsFunc(union[j], func(vm int) bool { return s.at[vm] != j }) {
				union[j] = slices.DeleteFunc(union[j], func(vm int) bool { return s.at[vm] != j })
			}
		}
		s.on = union
	}
	s.adjust(s.caps, true)
	return s.steps
}

// stage is how many of the ops are done next, and what then is on every host.
func (s *schedule) stage(ops []op) (n int, union [][]int) {
	union = slices.Clone(s.on)
	need := make([]float64, len(union)) // at the yield of the stage, of hosts that get a VM
	moving := map[int]bool{}
	for _, o := range ops {
		if moving[o.vm] {
			break // it comes and goes: not in one stage
		}
		if need[o.to] == 0 {
			for _, vm := range s.on[o.to] {
				need[o.to] += s.minCPU(vm)
			}
		}
		need[o.to] += s.minCPU(o.vm)
		if n > 0 && need[o.to] > s.f.p.Hosts[o.to].CPU*(1+1e-9) {
			break
		}
		union[o.to] = append(slices.Clip(union[o.to]), o.vm)
		moving[o.vm] = true
		n++
	}
	return n, union
}

// minCPU is the CPU that a VM should have in every stage.
func (s *schedule) minCPU(vm int) float64 { return min(s.slack*s.f.of(vm).CPU, s.want[s.f.group[vm]]) }

// fitting is the greatest caps up to what is wanted under which every host can
// have the VMs given, yields on each host being as equal as that allows.
func (s *schedule) fitting(on [][]int) []float64 {
	caps := slices.Clone(s.want)
	groups := s.f.p.Groups
	for j, vms := range on {
		sum := 0.0
		for _, vm := range vms {
			sum += s.want[s.f.group[vm]]
		}
		cpu := s.f.p.Hosts[j].CPU
		if sum <= cpu {
			continue
		}
		// Groups in the order of the yield at which they have what they want.
		sorted := slices.Clone(vms)
		full := func(vm int) float64 {
			g := s.f.group[vm]
			if groups[g].CPU == 0 {
				return 0
			}
			return s.want[g] / groups[g].CPU
		}
		slices.SortStableFunc(sorted, func(a, b int) int {
			switch x, y := full(a), full(b); {
			case x < y:
				return -1
			case x > y:
				return 1
			}
			return 0
		})
		need, rest, level := 0.0, cpu*(1-1e-12), 0.0
		for _, vm := range sorted {
			need += s.f.of(vm).CPU
		}
		for _, vm := range sorted {
			if need <= 0 {
				break
			}
			if level = rest / need; level <= full(vm) {
				break
			}
			rest -= s.want[s.f.group[vm]]
			need -= s.f.of(vm).CPU
		}
		for _, vm := range vms {
			g := s.f.group[vm]
			caps[g] = min(caps[g], max(0, level)*groups[g].CPU)
		}
	}
	return s.unrounded(caps, on)
}

// unrounded leaves caps as they are now that would change by no more than
// rounding, if every host can have that.
func (s *schedule) unrounded(caps []float64, on [][]int) []float64 {
	kept := slices.Clone(caps)
	for g, now := range s.now {
		if math.Abs(caps[g]-now) <= sameCap*now {
			kept[g] = now
		}
	}
	for j, vms := range on {
		sum := 0.0
		for _, vm := range vms {
			sum += kept[s.f.group[vm]]
		}
		if sum > s.f.p.Hosts[j].CPU {
			return caps
		}
	}
	return kept
}

// sameCap: caps that differ by at most this share of the present one differ by rounding.
const sameCap = 1e-9

// adjust adds a step that brings the caps to what is given, once all steps before it have ended. It
// returns the step that all later ones must wait for, -1: none. last: nothing follows.
func (s *schedule) adjust(caps []float64, last bool) int {
	step := Step{Kind: Adjust, Group: -1, VM: -1, From: -1, To: -1}
	for g, c := range caps {
		if s.runs[g] == 0 {
			s.now[g] = c
			continue
		}
		if c >= s.now[g] && c-s.now[g] <= sameCap*s.now[g] {
			continue // rounding
		}
		if c < s.now[g] {
			step.Shrink = append(step.Shrink, Cap{g, c})
		} else {
			step.Grow = append(step.Grow, Cap{g, c})
		}
		s.now[g] = c
	}
	begun := len(s.steps)
	if (begun == 0 || last) && len(step.Shrink)+len(step.Grow) == 0 {
		return -1
	}
	// The last Adjust began after all steps before it had ended: waiting for it is enough.
	for i := begun - 1; i >= 0; i-- {
		step.After = append(step.After, i)
		step.Begins = max(step.Begins, s.steps[i].Begins+s.steps[i].Seconds)
		if s.steps[i].Kind == Adjust {
			break
		}
	}
	slices.Reverse(step.After)
	if len(step.Shrink)+len(step.Grow) == 0 {
		step.Reason = "the moves before have to end first: both copies of a moving VM need CPU"
	} else {
		step.Reason = fmt.Sprintf("caps that shrink: %d; then those that grow: %d", len(step.Shrink), len(step.Grow))
	}
	s.steps = append(s.steps, step)
	return begun
}

func (s *schedule) step(o op, barrier int) {
	f, g := s.f, s.f.group[o.vm]
	x := &f.p.Groups[g]
	step := Step{Kind: Move, Group: g, VM: o.vm - f.first[g], From: o.from, To: o.to, Bytes: f.bytes[o.vm], CPU: s.now[g], Staging: o.staging}
	if o.from < 0 {
		step.Kind, step.Bytes = Start, 0
	} else if f.p.Limits.Bandwidth > 0 {
		step.Seconds = step.Bytes / f.p.Limits.Bandwidth
	}
	after := map[int]bool{}
	wait := func(i int) {
		if i < 0 || i < barrier {
			return // a step that waits for the barrier waits for the steps before it
		}
		after[i] = true
		step.Begins = max(step.Begins, s.steps[i].Begins+s.steps[i].Seconds)
	}
	wait(barrier)
	wait(s.lastOf[o.vm])
	// Memory: as few departures as will do, the earliest first.
	s.filled[o.to] += x.Memory
	if o.staging && s.f.home[o.vm] != o.to {
		s.reserves[o.to].Add(x.Reclaimable)
	}
	over := s.filled[o.to]
	evicted := s.left[o.to]
	for _, d := range evicted {
		needed := !fits(over, f.p.Hosts[o.to].room(s.reserves[o.to]))
		if needed || d.vm != o.vm && f.rules.Apart(g, f.group[d.vm]) || d.vm == o.vm {
			wait(d.step)
			over -= f.of(d.vm).Memory
		}
	}
	// Lanes: of the two hosts, their links, and of all.
	var taken []*lanes
	var lane []int
	if step.Kind == Move {
		all := []*lanes{s.total, s.perHost[o.from], s.perHost[o.to], s.perLink[f.p.Hosts[o.from].Link]}
		if f.p.Hosts[o.from].Link != f.p.Hosts[o.to].Link {
			all = append(all, s.perLink[f.p.Hosts[o.to].Link])
		}
		for _, l := range all {
			if l != nil {
				taken = append(taken, l)
				lane = append(lane, l.first())
				wait(l.last[l.first()])
			}
		}
	}
	for i := range after {
		step.After = append(step.After, i)
	}
	slices.Sort(step.After)
	n := len(s.steps)
	s.steps = append(s.steps, step)
	end := step.Begins + step.Seconds
	for i, l := range taken {
		l.last[lane[i]], l.end[lane[i]] = n, end
	}
	if o.from >= 0 {
		d := departs{o.vm, n, end}
		i, _ := slices.BinarySearchFunc(s.left[o.from], d, func(a, b departs) int {
			if a.end <= b.end {
				return -1
			}
			return 1
		})
		s.left[o.from] = slices.Insert(s.left[o.from], i, d)
	} else {
		s.runs[g]++
	}
	s.at[o.vm], s.lastOf[o.vm] = o.to, n
}
