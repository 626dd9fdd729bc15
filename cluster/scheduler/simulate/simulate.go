package simulate

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"evenkeel/allocator"
	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
	"evenkeel/migration"
)

// Request says how a cluster is to differ from the present one.
type Request struct {
	Add    []Host
	Remove []string // names of hosts
	Needs  []Need
	Budget int64 // most bytes that may be moved; -1: no bound
}

// Host is a host, or several equal ones, that a simulation adds.
type Host struct {
	CPU    float64 // cores that may be used
	Memory int64   // bytes that may be used
	Count  int
}

// Need is another CPU need of each VM of a group.
type Need struct {
	VC, Group string // Group may be "" where the VC has one only
	CPU       float64
}

// Unplaced is a VM that would have no host.
type Unplaced struct{ VM, VC, Why string }

// Outcome is the result of a simulation.
type Outcome struct {
	Plan     state.MovePlan // the moves that would lead there, with the yields before and after
	Refused  []string       // VCs that would not be admitted, or not get what they were promised, each with why
	Unplaced []Unplaced
}

// ErrWhat says that a simulation names an object that does not exist, or asks for what can never be.
var ErrWhat = errors.New("no such simulation")

// Run returns the state that a changed cluster would have: VMs that run are moved for the highest minimum yield within the
// bytes, and VMs of removed hosts go to others. VCs that wait are then admitted as far as they fit.
func Run(s *state.Snapshot, env placement.Env, see moves.Observation, w Request) (Outcome, error) {
	meta, _ := s.Meta()
	var running []string
	for _, p := range s.RunningMovePlans() {
		running = append(running, p.ID)
	}
	f := &fleet{moves.NewFleet(s, env, see, moves.Options{Supersedes: running, CopyStorage: meta.Settings.Moves.CopyStorage, Steps: effort}), s}
	var out Outcome
	gone, err := f.change(w, &out)
	if err != nil {
		return out, err
	}
	before, beforeMean := f.yieldsNow()
	plan, blockers, err := f.best(gone, w.Budget)
	if err != nil {
		return out, err
	}
	kind := state.MovesRebalance
	if len(gone) > 0 {
		kind = state.MovesDrain
	}
	out.Plan = f.MovePlan(plan, kind, w.Budget)
	out.Plan.State, out.Plan.MinYieldBefore, out.Plan.AverageYieldBefore = state.MovesProposed, before, beforeMean
	for _, b := range f.Blockers(blockers) {
		out.Unplaced = append(out.Unplaced, Unplaced{VM: b.VM, VC: b.VC, Why: b.Why})
	}
	if plan.Feasible {
		f.promises(plan, &out)
		f.queue(env, gone, plan, &out)
	}
	return out, nil
}

// fleet is the fleet of a cluster that is to differ from the present one.
type fleet struct {
	*moves.Fleet
	s *state.Snapshot
}

// yieldsNow returns the lowest and the mean yield of the VCs that run, as things are.
func (f *fleet) yieldsNow() (lowest, mean float64) {
	lowest, n := 1.0, 0
	seen := map[string]bool{}
	for i := range f.Groups {
		id := f.VC(i).ID
		if seen[id] {
			continue
		}
		seen[id] = true
		vc, _ := f.s.VC(id)
		y := state.YieldOf(vc, f.s.VMsOf(id))
		lowest, mean, n = min(lowest, y), mean+y, n+1
	}
	if n == 0 {
		return 1, 1
	}
	return lowest, mean / float64(n)
}

// change changes the fleet, and returns which hosts are removed.
func (f *fleet) change(w Request, out *Outcome) (gone []int, err error) {
	for i, h := range w.Add {
		if !(h.CPU > 0) || math.IsInf(h.CPU, 0) || h.Memory <= 0 || h.Count < 1 {
			return nil, fmt.Errorf("%w: host %d to be added: %v cores, %d bytes, %d of them", ErrWhat, i, h.CPU, h.Memory, h.Count)
		}
		for n := range h.Count {
			name := fmt.Sprintf("new-%d-%d", i+1, n+1)
			if !f.AddHost(name, state.Resources{CPU: h.CPU, Memory: h.Memory}) {
				return nil, fmt.Errorf("%w: host %s is there already", ErrWhat, name)
			}
		}
	}
	for _, name := range w.Remove {
		at := f.Host(name)
		if at < 0 {
			return nil, fmt.Errorf("%w: host %s to be taken away: %w", ErrWhat, name, state.ErrNotFound)
		}
		if !slices.Contains(gone, at) {
			gone = append(gone, at)
		}
	}
	for _, need := range w.Needs {
		if err := f.need(need, out); err != nil {
			return nil, err
		}
	}
	return gone, nil
}

// need changes the need of each VM of a group.
func (f *fleet) need(need Need, out *Outcome) error {
	vc, ok := f.s.VCNamed(need.VC)
	if !ok {
		return fmt.Errorf("%w: virtual cluster %s: %w", ErrWhat, need.VC, state.ErrNotFound)
	}
	group := need.Group
	if group == "" && len(vc.Groups) == 1 {
		group = vc.Groups[0].Name
	}
	if !slices.ContainsFunc(vc.Groups, func(g state.Group) bool { return g.Name == group }) {
		return fmt.Errorf("%w: virtual cluster %s has %d groups, and none is named %q: %w", ErrWhat, need.VC, len(vc.Groups), group, state.ErrNotFound)
	}
	if !(need.CPU > 0) || math.IsInf(need.CPU, 0) {
		return fmt.Errorf("%w: %s/%s: %v cores", ErrWhat, need.VC, group, need.CPU)
	}
	for i := range f.Groups {
		g := f.Group(i)
		if f.VC(i).ID != vc.ID || g.Name != group {
			continue
		}
		cpu := need.CPU
		if highest := float64(g.VCPUs); highest > 0 && cpu > highest {
			cpu = highest
			out.Refused = append(out.Refused, fmt.Sprintf("%s/%s: its VMs have %d vCPUs and cannot use %.2f cores", need.VC, group, g.VCPUs, need.CPU))
		}
		f.SetNeed(i, cpu)
	}
	return nil
}

// best returns the plan of moves for the highest minimum yield within a budget once some hosts are gone, and the VMs that
// cannot leave them.
func (f *fleet) best(gone []int, budget int64) (migration.Plan, []migration.Blocker, error) {
	if len(gone) > 0 {
		d, err := migration.Drain(f.Problem, migration.DrainRequest{Hosts: gone, Budget: moves.Budget(budget), Partial: true, OptionalBytes: math.Inf(1)})
		if err != nil {
			return migration.Plan{}, nil, fmt.Errorf("try: %w", err)
		}
		return d.Plan, d.Blockers, nil
	}
	for again := false; ; again = true {
		p := f.Problem
		p.Budget = moves.Budget(budget)
		pl, err := migration.New(p)
		if err != nil {
			return migration.Plan{}, nil, fmt.Errorf("try: %w", err)
		}
		if plan := pl.Plan(p.Budget); plan.Feasible || again {
			return plan, nil, nil
		}
		for i := range f.Groups { // what cannot be kept is reported: see promises
			f.Groups[i].MinYield = 0
		}
	}
}

// promises adds the virtual clusters that would get less than the minimum yield that they accept.
func (f *fleet) promises(plan migration.Plan, out *Outcome) {
	yields := map[string]float64{}
	floor := map[string]float64{}
	for i := range f.Groups {
		vc, y := f.VC(i), 1.0
		if f.Groups[i].CPU > 0 {
			y = min(1, plan.CPU[i]/f.Groups[i].CPU)
		}
		if old, ok := yields[vc.Name]; !ok || y < old {
			yields[vc.Name] = y
		}
		floor[vc.Name] = vc.MinYield
	}
	for _, name := range slices.Sorted(maps.Keys(yields)) {
		if y := yields[name]; y < floor[name]*(1-1e-6) {
			out.Refused = append(out.Refused, fmt.Sprintf("%s: its yield would be %.3f, and the least it accepts is %.3f", name, y, floor[name]))
		}
	}
}

// queue says which VCs that wait would still not be admitted beside what runs in the end.
func (f *fleet) queue(env placement.Env, gone []int, plan migration.Plan, out *Outcome) {
	queue := admission.Queue(f.s)
	if len(queue) == 0 {
		return
	}
	p := allocator.Problem{}
	reserves := allocator.NewReserves[float64](len(f.Hosts), f.LargestOnly)
	for i := range f.Groups {
		for _, j := range plan.Hosts[i] {
			if j >= 0 {
				reserves[j].Add(f.Groups[i].Reclaimable)
			}
		}
	}
	for j := range f.Hosts {
		h := &f.Hosts[j]
		p.Hosts = append(p.Hosts, allocator.Host{Name: h.Name, CPU: h.CPU, Memory: h.Memory - h.Reserve - reserves[j].Bytes(), Cordoned: h.Cordoned || slices.Contains(gone, j)})
	}
	for i := range f.Groups {
		g := &f.Groups[i]
		p.Groups = append(p.Groups, allocator.Group{Cluster: g.Cluster, Name: g.Name, Count: g.Count, CPU: g.CPU, Memory: g.Memory, MinYield: min(f.VC(i).MinYield, plan.CPU[i]/max(g.CPU, 1e-9)),
			Hosts: plan.Hosts[i]})
	}
	var requests []allocator.Request
	var names []string
	for i, r := range placement.Requests(f.s, queue, env) {
		if r.Bound {
			continue // its disks lie on hosts: they decide, not room
		}
		if f.Rules == nil {
			r.Rules = nil
		}
		requests, names = append(requests, r.Request), append(names, queue[i].Name)
	}
	for i, a := range allocator.AdmitQueue(p, f.Rules, requests, false).Answers {
		if !a.Admitted {
			out.Refused = append(out.Refused, fmt.Sprintf("%s: waits, and would still not be admitted: %s", names[i], a.Summary))
		}
	}
}
