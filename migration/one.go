package migration

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// AnyHost, as the target of MoveOne, lets it choose.
const AnyHost = -1

// OneMove is the move of one VM.
type OneMove struct {
	// Plan has that move alone. It is not Feasible, and has no steps, where the VM cannot move, as Reason says.
	Plan
	To     int      // the target; AnyHost: none was found
	Advice []Advice // not Feasible: changes that would help, the smallest first

	// Before and After are the least yields of the VMs of each host, by index; 1 where there are none.
	Before, After []float64
}

// consideredTargets is how many hosts are examined whole for one VM: those that can give their VMs most with it.
const consideredTargets = 8

// MoveOne plans the move of one VM, by group and number, to a host. Rules and floors hold; no other VM moves. With AnyHost it
// takes the host with which the minimum yield is greatest; of equal ones that of Problem.Policy, or else that with the greatest average
// yield, then that with the least of its CPU needed. Every VM must have a host.
func MoveOne(p Problem, group, vm, to int) (OneMove, error) {
	if group < 0 || group >= len(p.Groups) || vm < 0 || vm >= p.Groups[group].Count || to < AnyHost || to >= len(p.Hosts) {
		return OneMove{}, fmt.Errorf("move VM %d of group %d to host %d: there is no such VM or host", vm, group, to)
	}
	e, err := newEmptying(p, DrainRequest{Budget: math.Inf(1)})
	if err != nil {
		return OneMove{}, fmt.Errorf("move one VM: %w", err)
	}
	at := e.f.first[group] + vm
	out := OneMove{To: AnyHost, Before: e.hostYields(e.f.home, e.caps),
		Plan: Plan{MinYieldBefore: e.minYield, AverageYieldBefore: e.mean, MinYieldAfter: e.minYield, AverageYieldAfter: e.mean, UpperBound: 1, Takes: math.Inf(1)}}
	out.After = out.Before
	if e.f.pinned[at] {
		out.Reason = "it cannot be moved while it runs"
		return out, nil
	}
	c, why := e.bestTarget(at, to)
	if c == nil {
		out.Reason, out.Advice = e.whyNone(at, to, why)
		return out, nil
	}
	if to == AnyHost {
		c = e.arranged(c)
	}
	out.Plan, out.To = e.plan(c), c.at[at]
	out.After = e.hostYields(c.at, out.CPU)
	out.Reason = fmt.Sprintf("%s of %s%s", Counted(out.Moves, "move"), size(out.Bytes), yieldChange(out.MinYieldBefore, out.MinYieldAfter))
	return out, nil
}

// bestTarget returns the placement with one VM on another host; nil: there is none, and why.
func (e *emptying) bestTarget(vm, to int) (best *candidate, why string) {
	mean, load := 0.0, 0.0
	for _, j := range e.targetsOf(vm, to) {
		c := candidate{at: slices.Clone(e.f.home), direct: e.f.bytes[vm]}
		c.at[vm] = j
		if !e.reach(&c) {
			why = c.why
			continue
		}
		sol, err := e.divide(c.at)
		if err != nil {
			continue
		}
		l := (e.f.need[j] + e.f.of(vm).CPU) / e.p.Hosts[j].CPU
		if best == nil || cmp.Or(byYield(c.yield, best.yield), byYield(sol.AverageYield, mean), cmp.Compare(load, l)) > 0 {
			best, mean, load = &c, sol.AverageYield, l
		}
	}
	return best, why
}

// byYield compares yields; those that differ by less than sameYield are equal.
func byYield(a, b float64) int {
	if math.Abs(a-b) <= sameYield {
		return 0
	}
	return cmp.Compare(a, b)
}

// targetsOf returns the hosts that may take a VM, the most promising first, and at most consideredTargets.
func (e *emptying) targetsOf(vm, to int) (hosts []int) {
	s := newPlacementTable(e.f)
	yield, load := make([]float64, len(s.open)), make([]float64, len(s.open))
	for j := range s.open {
		if j == e.f.home[vm] || to != AnyHost && j != to || s.judge(vm, j).cause != "" {
			continue
		}
		yield[j] = s.yieldWith(j, []int{vm})
		load[j] = (e.f.need[j] + e.f.of(vm).CPU) / e.p.Hosts[j].CPU
		hosts = append(hosts, j)
	}
	slices.SortStableFunc(hosts, func(a, b int) int { return cmp.Or(cmp.Compare(yield[b], yield[a]), cmp.Compare(load[a], load[b])) })
	return hosts[:min(len(hosts), consideredTargets)]
}

// whyNone says why a VM cannot move to a host, or to any.
func (e *emptying) whyNone(vm, to int, order string) (string, []Advice) {
	leaves := make([]bool, len(e.p.Hosts))
	for j := range leaves {
		leaves[j] = to != AnyHost && j != to
	}
	_, why, advice := newPlacementTable(e.f).refusal(vm, leaves)
	switch {
	case to != AnyHost && to == e.f.home[vm]:
		return "it runs there already", nil
	case why != "":
		if to != AnyHost {
			why = strings.TrimPrefix(why, noHost)
		}
		return why, slices.DeleteFunc(advice, func(a Advice) bool { return a == StopIt || to != AnyHost && a == addHost })
	case order == "":
		order = "some virtual cluster would get less than its minimum yield"
	}
	return order, slices.DeleteFunc(e.f.lastly(vm), func(a Advice) bool { return a == StopIt })
}

// hostYields returns the least yield of the VMs on each host, VMs being on the hosts at and groups having these caps.
func (e *emptying) hostYields(at []int, caps []float64) []float64 {
	out := make([]float64, len(e.p.Hosts))
	for j := range out {
		out[j] = 1
	}
	for vm, j := range at {
		if need := e.f.of(vm).CPU; need > 0 {
			out[j] = min(out[j], caps[e.f.group[vm]]/need)
		}
	}
	return out
}

// yieldChange says how the minimum yield changes.
func yieldChange(before, after float64) string {
	if math.Abs(after-before) < sameYield {
		return fmt.Sprintf("; the minimum yield stays %.4f", after)
	}
	return fmt.Sprintf("; the minimum yield goes from %.4f to %.4f", before, after)
}
