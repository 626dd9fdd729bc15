package loop

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"evenkeel/allocator"
	"evenkeel/cluster/state"
	"evenkeel/migration"
)

// Simulation says how a cluster is to differ from the present one.
type Simulation struct {
	Add    []SimulatedHost
	Remove []string // names of hosts
	Needs  []SimulatedNeed
	Budget int64 // most bytes that may be moved; -1: no bound
}

// SimulatedHost is a host, or several equal ones, that a simulation adds.
type SimulatedHost struct {
	CPU    float64 // cores that may be used
	Memory int64   // bytes that may be used
	Count  int
}

// SimulatedNeed is another CPU need of each VM of a group.
type SimulatedNeed struct {
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

// simulateEffort bounds the search for hosts of VMs: see migration.Problem.
const simulateEffort = 50_000_000

// Simulate returns the state that a changed cluster would have: VMs that run are moved for the highest minimum yield within the
// bytes, and VMs of removed hosts go to others. VCs that wait are then admitted as far as they fit.
func Simulate(s *state.Snapshot, env Env, see FleetObservation, w Simulation) (Outcome, error) {
	meta, _ := s.Meta()
	var running []string
	for _, p := range s.RunningMovePlans() {
		running = append(running, p.ID)
	}
	f := NewFleet(s, env, see, FleetOptions{Supersedes: running, CopyStorage: meta.Settings.Moves.CopyStorage, Steps: simulateEffort})
	var out Outcome
	gone, err := f.change(w, &out)
	if err != nil {
		return out, err
	}
	before, beforeMean := f.yieldsNow(s)
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
		f.queue(s, env, gone, plan, &out)
	}
	return out, nil
}

// yieldsNow returns the lowest and the mean yield of the VCs that run, as things are.
func (f *Fleet) yieldsNow(s *state.Snapshot) (lowest, mean float64) {
	lowest, n := 1.0, 0
	seen := map[string]bool{}
	for _, ref := range f.groups {
		if seen[ref.vc.ID] {
			continue
		}
		seen[ref.vc.ID] = true
		vc, _ := s.VC(ref.vc.ID)
		y := state.YieldOf(vc)
		lowest, mean, n = min(lowest, y), mean+y, n+1
	}
	if n == 0 {
		return 1, 1
	}
	return lowest, mean / float64(n)
}

// change changes the fleet, and returns which hosts are removed.
func (f *Fleet) change(w Simulation, out *Outcome) (gone []int, err error) {
	for i, h := range w.Add {
		if !(h.CPU > 0) || math.IsInf(h.CPU, 0) || h.Memory <= 0 || h.Count < 1 {
			return nil, fmt.Errorf("%w: host %d to be added: %v cores, %d bytes, %d of them", ErrWhat, i, h.CPU, h.Memory, h.Count)
		}
		for n := range h.Count {
			name := fmt.Sprintf("new-%d-%d", i+1, n+1)
			if _, taken := f.index[name]; taken {
				return nil, fmt.Errorf("%w: host %s is there already", ErrWhat, name)
			}
			f.index[name] = len(f.Hosts)
			f.Hosts = append(f.Hosts, migration.Host{Name: name, CPU: h.CPU, Memory: float64(h.Memory)})
			f.hosts = append(f.hosts, state.Host{Name: name, Allowance: state.Resources{CPU: h.CPU, Memory: h.Memory}})
		}
	}
	for _, name := range w.Remove {
		at, ok := f.index[name]
		if !ok || at >= len(f.hosts) {
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
func (f *Fleet) need(need SimulatedNeed, out *Outcome) error {
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
	for i := range f.groups {
		ref := &f.groups[i]
		if ref.vc.ID != vc.ID || ref.group.Name != group {
			continue
		}
		cpu := need.CPU
		if highest := float64(ref.group.VCPUs); highest > 0 && cpu > highest {
			cpu = highest
			out.Refused = append(out.Refused, fmt.Sprintf("%s/%s: its VMs have %d vCPUs and cannot use %.2f cores", need.VC, group, ref.group.VCPUs, need.CPU))
		}
		f.Groups[i].CPU, ref.group.CPU, ref.group.Estimated = cpu, cpu, 0
		f.Groups[i].MinYield = ref.vc.MinYield
	}
	return nil
}

// best returns the plan of moves for the highest minimum yield within a budget once some hosts are gone, and the VMs that
// cannot leave them.
func (f *Fleet) best(gone []int, budget int64) (migration.Plan, []migration.Blocker, error) {
	if len(gone) > 0 {
		d, err := migration.Drain(f.Problem, migration.DrainRequest{Hosts: gone, Budget: budgetOf(budget), Partial: true, OptionalBytes: math.Inf(1)})
		if err != nil {
			return migration.Plan{}, nil, fmt.Errorf("try: %w", err)
		}
		return d.Plan, d.Blockers, nil
	}
	for again := false; ; again = true {
		pl, err := migration.New(f.Problem)
		if err != nil {
			return migration.Plan{}, nil, fmt.Errorf("try: %w", err)
		}
		if plan := pl.Plan(budgetOf(budget)); plan.Feasible || again {
			return plan, nil, nil
		}
		for i := range f.Groups { // what cannot be kept is reported: see promises
			f.Groups[i].MinYield = 0
		}
	}
}

// promises adds the virtual clusters that would get less than the minimum yield that they accept.
func (f *Fleet) promises(plan migration.Plan, out *Outcome) {
	yields := map[string]float64{}
	floor := map[string]float64{}
	for i, ref := range f.groups {
		y := 1.0
		if f.Groups[i].CPU > 0 {
			y = min(1, plan.CPU[i]/f.Groups[i].CPU)
		}
		if old, ok := yields[ref.vc.Name]; !ok || y < old {
			yields[ref.vc.Name] = y
		}
		floor[ref.vc.Name] = ref.vc.MinYield
	}
	for _, name := range slices.Sorted(maps.Keys(yields)) {
		if y := yields[name]; y < floor[name]*(1-1e-6) {
			out.Refused = append(out.Refused, fmt.Sprintf("%s: its yield would be %.3f, and the least it accepts is %.3f", name, y, floor[name]))
		}
	}
}

// queue says which VCs that wait would still not be admitted beside what runs in the end.
func (f *Fleet) queue(s *state.Snapshot, env Env, gone []int, plan migration.Plan, out *Outcome) {
	queue := Queue(s)
	if len(queue) == 0 {
		return
	}
	p := allocator.Problem{}
	overhead, lowest := int64(0), int64(0)
	reserves := make([]allocator.Reserve[float64], len(f.Hosts))
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
		overhead = max(overhead, f.hosts[j].VMOverhead)
	}
	if m, ok := s.Meta(); ok {
		lowest = m.Settings.MinMemory
	}
	for i := range f.Groups {
		g := &f.Groups[i]
		p.Groups = append(p.Groups, allocator.Group{Cluster: g.Cluster, Name: g.Name, Count: g.Count, CPU: g.CPU, Memory: g.Memory, MinYield: min(f.groups[i].vc.MinYield, plan.CPU[i]/max(g.CPU, 1e-9)),
			Hosts: plan.Hosts[i]})
	}
	env.NewID = func() string { return "" }
	var requests []allocator.Request
	var names []string
	for _, vc := range queue {
		q := problem{index: map[string]int{}, hosts: f.hosts, overhead: overhead, minMemory: lowest}
		byGroup, bound := map[string][]state.VM{}, false
		for _, vm := range wantedVMs(s, vc, env) {
			byGroup[vm.Group] = append(byGroup[vm.Group], vm)
			bound = bound || vm.Host != ""
		}
		if bound {
			continue // its disks lie on hosts: they decide, not room
		}
		for _, g := range vc.Groups {
			if vms := byGroup[g.Name]; len(vms) > 0 {
				q.add(vc, g, vms, vc.MinYield, false)
			}
		}
		r := allocator.Request{Groups: q.Groups, Priority: vc.Priority}
		if f.Rules != nil {
			r.Rules = q.labels()
		}
		requests, names = append(requests, r), append(names, vc.Name)
	}
	for i, a := range allocator.AdmitQueue(p, f.Rules, requests, false).Answers {
		if !a.Admitted {
			out.Refused = append(out.Refused, fmt.Sprintf("%s: waits, and would still not be admitted: %s", names[i], a.Summary))
		}
	}
}

// FailoverRow says what happens in a cluster if one host fails.
type FailoverRow struct {
	Host     string
	Fits     bool // all its VMs find room on others
	MinYield float64
	Unplaced []string // names of VMs that would find none
	Text     string
}

// FailoverCapacity says for each host whether the others could run all its VMs if it failed (N+1), at which minimum yield, and
// which VMs would find no room and why. The text also says it for only those VMs that start again by themselves.
func FailoverCapacity(s *state.Snapshot, env Env) ([]FailoverRow, error) {
	f := NewFleet(s, env, FleetObservation{}, FleetOptions{Steps: simulateEffort})
	all, err := migration.FailoverCapacity(f.Problem, nil)
	if err != nil {
		return nil, fmt.Errorf("room for the VMs of a host that dies: %w", err)
	}
	restarts := func(g, _ int) bool { return f.groups[g].vc.Restartable() && !keepsPlace(s, f.groups[g].group) }
	some, err := migration.FailoverCapacity(f.Problem, restarts)
	if err != nil {
		return nil, fmt.Errorf("room for the VMs of a host that dies: %w", err)
	}
	out := make([]FailoverRow, len(all))
	for j, d := range all {
		row := FailoverRow{Host: f.Hosts[j].Name, Fits: len(d.Unplaced) == 0, MinYield: d.MinYield}
		for _, u := range d.Unplaced {
			row.Unplaced = append(row.Unplaced, f.VM(u.Group, u.VM).Name)
		}
		switch n := len(d.Unplaced); {
		case d.VMs == 0:
			row.Text = "it runs no VM"
		case n == 0:
			row.Text = fmt.Sprintf("its %d VMs fit on the others", d.VMs)
		default:
			row.Text = fmt.Sprintf("%d of its %d VMs find no room: %s: %s", n, d.VMs, row.Unplaced[0], d.Unplaced[0].Why)
			row.MinYield = 0
		}
		switch again := some[j]; {
		case again.VMs == 0 || again.VMs == d.VMs:
		case len(again.Unplaced) == 0:
			row.Text += fmt.Sprintf("; the %d that start again by themselves do, at a minimum yield of %.3f", again.VMs, again.MinYield)
		default:
			row.Text += fmt.Sprintf("; of the %d that start again by themselves %d find none", again.VMs, len(again.Unplaced))
		}
		out[j] = row
	}
	return out, nil
}
