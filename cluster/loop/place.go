package loop

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"evenkeel/allocator"
	"evenkeel/cluster/capacity"
	"evenkeel/cluster/state"
)

// Env is what a decision may use besides the snapshot.
type Env struct {
	Now   time.Time
	NewID func() string // a new, never used id at each call
	// Unavailable are hosts that take no new VM now, and why: "does not answer since 12:01".
	Unavailable map[string]string
	// Lists are the hosts whose hypervisor lists a VM of that id, running or not: it can start on none of them. nil: none does.
	Lists func(vm string) []string
	// Awaited are hosts that have yet to report to this leader, and are waited for: no plan is judged by what the others could take.
	Awaited []string
	// Margin by which estimated needs of VMs that run count more where new ones are placed.
	Margin Margin
	// Availability of hosts on what they have available, by name.
	Availability map[string]HostAvailability
	// Pools that hosts have.
	Pools Pools
	// Period is the time between evaluations of needs, by default a minute: reports of hosts count only for a few periods.
	Period time.Duration
	// Advise says what moves would make room for a VC that does not fit; "" = none are known to. nil: no advice is given.
	Advise func(s *state.Snapshot, vc state.VC) string
}

// Answer is the answer to a request: a plan to propose, or a refusal with its reasons.
type Answer struct {
	Plan     *state.Plan // nil if refused
	Decision state.Decision
	// Queued: the plan only records the VC, it does not fit now.
	Queued bool
}

// Create answers a request for a new VC. vc is complete (ids and defaults filled in) except for its allocations.
func Create(s *state.Snapshot, vc state.VC, env Env) Answer {
	vc.Goal = state.GoalRun
	return place(s, vc, 0, "create", env)
}

// Start answers a request to run a VC that is stopped or has VMs that failed.
func Start(s *state.Snapshot, vc state.VC, env Env) Answer {
	vc.Goal = state.GoalRun
	return place(s, vc, vc.ModifyIndex, "start", env)
}

// Scale answers a request to run a VC with other groups than it has now. The
// VC keeps its name and group names; counts and needs may differ.
func Scale(s *state.Snapshot, vc state.VC, env Env) Answer {
	if vc.Goal != state.GoalRun {
		return Answer{Plan: &state.Plan{Basis: s.Index(), Verb: "scaled", VC: &vc, VCVersion: vc.ModifyIndex,
			VMs: surplus(s, vc), Text: "size and needs changed; they hold from its next start"}}
	}
	return place(s, vc, vc.ModifyIndex, "scale", env)
}

// Consider returns what admission would decide on a VC now, without a plan.
func Consider(s *state.Snapshot, vc state.VC, env Env) state.Decision {
	p, wanted := problemWith(s, vc, env)
	return decision(p, p.admitNew(wanted), s.Index(), env)
}

// problemWith is the problem of everything that runs, of vc in its new form, and of the lost VMs that are to start beside it.
func problemWith(s *state.Snapshot, vc state.VC, env Env, beside ...lostVC) (*problem, []state.VM) {
	skip := []string{vc.ID}
	for _, b := range beside {
		skip = append(skip, b.vc.ID)
	}
	p := newProblem(s, skip...)
	p.shut(env.Unavailable)
	wanted := wantedVMs(s, vc, env)
	vc = unknown(vc, wanted)
	byGroup := map[string][]state.VM{}
	for _, vm := range wanted {
		byGroup[vm.Group] = append(byGroup[vm.Group], vm)
	}
	for _, g := range vc.Groups {
		if vms := byGroup[g.Name]; len(vms) > 0 {
			p.add(vc, g, vms, vc.MinYield, true)
			p.Groups[len(p.Groups)-1].Requested = true // needs that grow in place are checked too
		}
	}
	// VMs that this change removes keep their memory and cap until they are gone.
	for _, vm := range surplus(s, vc) {
		for _, name := range []string{vm.Host, vm.MovingTo} {
			if at, ok := p.index[name]; ok && vm.ConsumesResources() {
				p.take(at, vm, state.Group{})
			}
		}
	}
	for _, b := range beside {
		p.addLost(s, unknown(b.vc, b.vms), b.vms)
	}
	p.heed(s, env.Pools)
	p.finish()
	p.applyMargin(s, vc.ID, env, &vc)
	return p, wanted
}

// place asks admission for vc and turns the answer into a plan.
func place(s *state.Snapshot, vc state.VC, version uint64, verb string, env Env) Answer {
	p, wanted := problemWith(s, vc, env)
	adm := p.admitNew(wanted)
	if adm.Admitted {
		if first := lostBefore(s, vc, env); first != "" {
			adm = allocator.Admission{Asked: adm.Asked, Summary: "virtual cluster " + first + " lost VMs with their host, which start first and would not fit beside it"}
		}
	}
	d := decision(p, adm, s.Index(), env)
	if !adm.Admitted && !adm.NeverFits && env.Advise != nil {
		if text := env.Advise(s, vc); text != "" {
			d.Advice = append(d.Advice, text)
		}
	}
	vc.Decision = d
	if !adm.Admitted {
		wait := vc.OnFull == state.Queue && !adm.NeverFits && (verb != "scale" || !vc.Admitted) && !anyRunning(s, vc)
		if !wait {
			return Answer{Decision: d}
		}
		vc.Admitted = false
		if vc.QueuedAt.IsZero() {
			vc.QueuedAt = env.Now // one that waits already keeps its turn
		}
		return Answer{Decision: d, Queued: true, Plan: &state.Plan{Basis: s.Index(), Verb: "queued", VC: &vc, VCVersion: version,
			Text: "queued: " + d.Summary}}
	}
	vc = unknown(vc, wanted)
	vc.Admitted, vc.QueuedAt = true, time.Time{}

	allocs, affected := p.allocations(adm.Solution.CPU, adm.Solution.Hosts, vc.ID)
	vms := surplus(s, vc)
	for i, ref := range p.groups {
		if ref.vc.ID != vc.ID {
			continue
		}
		for k, vm := range ref.vms[:ref.real] {
			vm.Host = p.Hosts[adm.Solution.Hosts[i][k]].Name
			vms = append(vms, vm.Start(ref.group))
			affected[vm.Host] = true
		}
	}
	for _, vm := range vms {
		affected[vm.Host] = true
	}
	return Answer{Decision: d, Plan: &state.Plan{Basis: s.Index(), Verb: pastTense[verb], VC: &vc, VCVersion: version, VMs: changed(s, vms),
		Allocations: allocs, AffectedHosts: sorted(affected), Text: d.Summary}}
}

// anyRunning says whether some VM of vc runs: then it is not one that waits to run.
func anyRunning(s *state.Snapshot, vc state.VC) bool {
	for _, vm := range s.VMsOf(vc.ID) {
		if vm.ConsumesResources() && vm.Goal == state.GoalRun {
			return true
		}
	}
	return false
}

// unknown returns the VC without the estimates of groups some VMs of which are to start: the need of a new VM is not known.
func unknown(vc state.VC, vms []state.VM) state.VC {
	groups := slices.Clone(vc.Groups)
	for _, vm := range vms {
		for i := range groups {
			if groups[i].Name == vm.Group && !vm.ConsumesResources() {
				groups[i].Estimated = 0
			}
		}
	}
	vc.Groups = groups
	return vc
}

var pastTense = map[string]string{"create": "created", "start": "started", "scale": "scaled", "admit": "admitted"}

// wantedVMs returns the VMs that vc is to have: of its present ones those with the lowest numbers, and new ones under the
// lowest numbers that are free. A number is free once the VM that had it is gone from its host. A VM that is to be placed has
// Host "".
func wantedVMs(s *state.Snapshot, vc state.VC, env Env) []state.VM {
	var out []state.VM
	for _, g := range vc.Groups {
		kept, used := kept(s, vc, g)
		for _, vm := range kept {
			if !vm.ConsumesResources() && !keepsPlace(s, g) {
				vm.Host = "" // nothing binds it to the host it was on
			}
			out = append(out, vm)
		}
		task := 0
		for range g.Count - len(kept) {
			for used[task] {
				task++
			}
			out = append(out, state.VM{ID: env.NewID(), VC: vc.ID, Group: g.Name, Task: task,
				Name: fmt.Sprintf("%s-%s-%d", vc.Name, g.Name, task), Goal: state.GoalRun})
			task++
		}
	}
	return out
}

// kept returns the VMs of a group that stay, by number, and the numbers that any VM of the group still has.
func kept(s *state.Snapshot, vc state.VC, g state.Group) (vms []state.VM, used map[int]bool) {
	used = map[int]bool{}
	for _, vm := range s.VMsOf(vc.ID) {
		if vm.Group != g.Name {
			continue
		}
		used[vm.Task] = true
		if vm.Goal != state.GoalDelete {
			vms = append(vms, vm)
		}
	}
	sort.Slice(vms, func(a, b int) bool { return vms[a].Task < vms[b].Task })
	return vms[:min(len(vms), g.Count)], used
}

// keepsPlace says whether the group's VMs must start where they ran: a disk that outlives the run lies on one host, unless its
// pool is shared.
func keepsPlace(s *state.Snapshot, g state.Group) bool {
	img, _ := s.Image(g.Image)
	if m, _ := s.Meta(); slices.Contains(m.Settings.SharedPools, g.Disk.Pool) {
		return false
	}
	return !g.Disk.Ephemeral && (g.Disk.Size > 0 || img.Kind == state.DiskImage)
}

// surplus returns the VMs of vc beyond its counts, on their way out.
func surplus(s *state.Snapshot, vc state.VC) []state.VM {
	stay := map[string]bool{}
	for _, g := range vc.Groups {
		vms, _ := kept(s, vc, g)
		for _, vm := range vms {
			stay[vm.ID] = true
		}
	}
	old, _ := s.VC(vc.ID)
	var out []state.VM
	for _, vm := range s.VMsOf(vc.ID) {
		if vm.Goal != state.GoalDelete && !stay[vm.ID] {
			g, _ := old.GroupOf(vm)
			out = append(out, vm.Leaving(g, state.GoalDelete))
		}
	}
	return out
}

// changed drops the rows that have not changed.
func changed(s *state.Snapshot, vms []state.VM) []state.VM {
	var out []state.VM
	for _, vm := range vms {
		if old, ok := s.VM(vm.ID); !ok || old != vm {
			out = append(out, vm)
		}
	}
	return out
}

// Stop answers a request to stop a VC: always yes.
func Stop(s *state.Snapshot, vc state.VC, _ Env) Answer {
	return leave(s, vc, state.GoalStop, "stopped", "stop requested")
}

// Delete answers a request to delete a VC: always yes.
func Delete(s *state.Snapshot, vc state.VC, _ Env) Answer {
	return leave(s, vc, state.GoalDelete, "deleting", "deletion requested")
}

func leave(s *state.Snapshot, vc state.VC, goal state.Goal, verb, text string) Answer {
	old := vc
	vc.Goal, vc.Admitted, vc.QueuedAt, vc.Groups = goal, false, time.Time{}, state.Declared(vc.Groups)
	affected := map[string]bool{}
	var vms []state.VM
	for _, vm := range s.VMsOf(vc.ID) {
		if vm.Goal == state.GoalDelete {
			continue
		}
		g, _ := old.GroupOf(vm)
		vms = append(vms, vm.Leaving(g, goal))
		affected[vm.Host] = true
	}
	return Answer{Plan: &state.Plan{Basis: s.Index(), Verb: verb, VC: &vc, VCVersion: old.ModifyIndex,
		VMs: changed(s, vms), AffectedHosts: sorted(affected), Text: text}}
}

// Reallocate divides the CPU of all hosts again among the VMs that run, where they are. It returns nil where the shares in
// force are right.
func Reallocate(s *state.Snapshot) *state.Plan {
	p := newProblem(s, "")
	p.clampToUsage()
	if len(p.Groups) == 0 {
		return nil
	}
	for i := range p.Groups {
		p.Groups[i].MinYield = max(p.groups[i].vc.MinYield, min(1, capacity.MinCPU/p.Groups[i].CPU))
	}
	sol, err := allocator.Allocate(p.Problem)
	if err != nil {
		return nil
	}
	allocs, affected := p.allocations(sol.CPU, p.places(), "")
	if len(allocs) == 0 {
		return nil
	}
	return &state.Plan{Basis: s.Index(), Verb: "reallocated", Allocations: allocs, AffectedHosts: sorted(affected), Text: "shares follow what runs"}
}
