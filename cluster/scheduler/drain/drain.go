package drain

import (
	"fmt"
	"slices"
	"time"

	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
	"evenkeel/migration"
)

// What is done with VMs that cannot leave a host with a drain, or have not left it by the deadline.
const (
	OnBlockedStop     = "stop"     // the drain is not begun, or ends
	OnBlockedSkip     = "skip"     // they stay, all others leave
	OnBlockedShutdown = "shutdown" // all others leave, and then they are shut down
)

// Options are the bounds of a plan that drains a host.
type Options struct {
	Budget int64 // most bytes; -1: no bound
	// OptionalBytes is the most bytes of moves that need not be, made only if the minimum yield rises by MinGain, as a part of
	// it. 0: there are none.
	OptionalBytes int64
	MinGain       float64
	Deadline      time.Duration
	// Supersedes are the plans that this one replaces, as given to the fleet: see moves.Options.
	Supersedes []string
}

// Answer says how a host is drained.
type Answer struct {
	Plan     state.MovePlan // the moves of all that can leave
	Blockers []moves.Blocker
	// Waits are VMs that come, start, or are another plan's, by name: to be looked at again once that has ended.
	Waits []string
	// Late is how many moves are predicted to end after the deadline.
	Late int
}

// Plan plans the drain of a host: all VMs that can leave it do.
func Plan(f *moves.Fleet, host string, o Options) (Answer, error) {
	at := f.Host(host)
	if at < 0 {
		return Answer{}, fmt.Errorf("drain: host %s: %w", host, state.ErrNotFound)
	}
	p := migration.DrainRequest{Hosts: []int{at}, Budget: moves.Budget(o.Budget), Partial: true, OptionalBytes: float64(o.OptionalBytes), MinGain: o.MinGain, Deadline: o.Deadline.Seconds()}
	d, err := migration.Drain(f.Problem, p)
	if err != nil {
		return Answer{}, fmt.Errorf("drain host %s: %w", host, err)
	}
	out := Answer{Plan: f.MovePlan(d.Plan, state.MovesDrain, o.Budget), Late: len(d.Late)}
	out.Plan.Host = host
	others := f.Pending(o.Supersedes)
	lasting := slices.DeleteFunc(slices.Clone(d.Blockers), func(b migration.Blocker) bool {
		vm := f.VM(b.Group, b.VM)
		_, expected := others[vm.ID]
		passes := expected || vm.MovingTo != "" || vm.Phase != state.Running
		if passes {
			out.Waits = append(out.Waits, vm.Name)
		}
		return passes
	})
	out.Blockers = f.Blockers(lasting)
	return out, nil
}

// HostInventory is what is known of a host with a drain, besides the state.
type HostInventory struct {
	// Listed: its hypervisor listed what it runs once all that is wanted of the host was in force.
	Listed bool
	// Running are names of the VMs that it listed, and Unknown those of them that the state does not know.
	Running, Unmanaged []string
	// Unavailable is why nothing can be decided for the host, and for how long; "" = it can.
	Unavailable    string
	UnavailableFor time.Duration
}

// Step is the next step of a drain. The zero value: wait until something changes.
type Step struct {
	Put  *state.HostDrain
	Stop *state.Plan // shuts VMs down
	// Blockers that were found; nil if nothing was planned.
	Blockers []moves.Blocker
}

// Next returns the next step of a host's drain: plan the moves of VMs that can leave, or report that the host is empty, or
// what keeps it from being so. fleet returns the cluster for planning: the plans that supersedes names are given up for the new
// one, the VMs that keep names stay where they are. The answer also changes with time.
func Next(s *state.Snapshot, h state.Host, inventory HostInventory, env placement.Env, fleet func(supersedes []string, keep map[string]string) *moves.Fleet) (Step, error) {
	x := drainer{s: s, h: h, d: h.Drain, inventory: inventory, env: env}
	if x.d.State == "" || x.d.State == state.DrainDone {
		return Step{}, nil
	}
	x.plan, x.has = s.MovePlan(x.d.Plan)
	x.left = left(s, h.Name)
	if len(x.left) == 0 {
		return x.isEmpty(), nil
	}
	running := x.has && !x.plan.State.Ended()
	late := !x.d.Deadline.IsZero() && !env.Now.Before(x.d.Deadline)
	switch {
	case x.d.State != state.DrainRunning:
		return Step{}, nil
	case late:
		return x.late(running), nil
	case h.Lost.Proof != "":
		return x.end(state.DrainStopped, "the host is lost: "+h.Lost.Text), nil
	case inventory.Unavailable != "" && inventory.UnavailableFor >= maxUnavailable:
		return x.end(state.DrainBlocked, fmt.Sprintf("host %s %s: its VMs cannot leave; %s", h.Name, inventory.Unavailable, x.remaining())), nil
	case inventory.Unavailable != "":
		return x.report(fmt.Sprintf("host %s %s: no VM can leave it until it answers again", h.Name, inventory.Unavailable)), nil
	case running:
		return x.report(x.stuck()), nil
	case x.has && x.plan.State == state.MovesStopped:
		return x.end(state.DrainStopped, "its plan was stopped: "+x.plan.Reason), nil
	}
	return x.again(fleet)
}

// left returns the VMs that the host runs, by the state, or that are on their way to it.
func left(s *state.Snapshot, host string) []state.VM {
	var out []state.VM
	s.EachVMOn(host, func(vm *state.VM) bool {
		if vm.ConsumesResources() {
			out = append(out, *vm)
		}
		return true
	})
	return out
}

type drainer struct {
	s         *state.Snapshot
	h         state.Host
	d         state.Drain
	plan      state.MovePlan
	has       bool
	inventory HostInventory
	env       placement.Env
	left      []state.VM
}

func (x *drainer) put(d state.Drain, plan *state.MovePlanPut) Step {
	return Step{Put: &state.HostDrain{Host: x.h.Name, Drain: d, Version: x.d.Index, MovePlan: plan}}
}

// report reports the drain's progress, if that is news.
func (x *drainer) report(text string) Step {
	if x.d.Text == text {
		return Step{}
	}
	d := x.d
	d.Text = text
	return x.put(d, nil)
}

// end ends the drain; no move of its plan begins any more.
func (x *drainer) end(as state.DrainState, text string) Step {
	return x.put(x.d.End(as, text), x.stopped(text))
}

// stopped returns the plan with no move left to begin, nil if the plan has ended.
func (x *drainer) stopped(why string) *state.MovePlanPut {
	if !x.has || x.plan.State.Ended() {
		return nil
	}
	return moves.Stop(x.plan, why)
}

// isEmpty takes the step of a drain when the state has no VM left on the host. Only the hypervisor's list proves that the host
// is empty.
func (x *drainer) isEmpty() Step {
	if x.inventory.Listed && len(x.inventory.Running) == 0 && x.inventory.Unavailable == "" {
		return x.put(x.d.End(state.DrainDone, "its hypervisor runs none of the cluster's VMs"), nil)
	}
	if x.d.State != state.DrainRunning {
		return Step{}
	}
	switch {
	case x.h.Lost.Proof != "":
		return x.end(state.DrainStopped, "the host is lost: "+x.h.Lost.Text)
	case x.inventory.Unavailable != "" && x.inventory.UnavailableFor >= maxUnavailable:
		return x.end(state.DrainBlocked, fmt.Sprintf("nothing is left on it as far as is known, but host %s %s, and only its hypervisor can say so", x.h.Name, x.inventory.Unavailable))
	case x.inventory.Unavailable != "":
		return x.report(fmt.Sprintf("nothing is left on it as far as is known; host %s %s", x.h.Name, x.inventory.Unavailable))
	case x.inventory.Listed && len(x.inventory.Unmanaged) > 0:
		return x.end(state.DrainBlocked, "its hypervisor runs VMs with this cluster's mark that the cluster does not know: "+moves.Names(x.inventory.Unmanaged))
	case len(x.inventory.Running) > 0:
		return x.report("its hypervisor still lists " + moves.Names(x.inventory.Running))
	}
	return x.report("its hypervisor has yet to say that nothing is left")
}

// late takes the step of a drain whose deadline passed with VMs left.
func (x *drainer) late(running bool) Step {
	why := "the deadline of the drain passed"
	text := why + "; " + x.remaining()
	switch x.d.OnBlocked {
	case OnBlockedSkip:
		return x.end(state.DrainBlocked, text)
	case OnBlockedShutdown:
		if running {
			d := x.d
			d.Text = text + ": they are shut down"
			return x.put(d, x.stopped(why))
		}
		whys := map[string]string{}
		for _, vm := range x.left {
			whys[vm.ID] = why
		}
		return x.shutDown(whys)
	}
	return x.end(state.DrainStopped, text)
}

func (x *drainer) remaining() string {
	var out []string
	for _, vm := range x.left {
		out = append(out, vm.Name)
	}
	if len(out) == 1 {
		return "1 VM is left: " + out[0]
	}
	return fmt.Sprintf("%d VMs are left: %s", len(out), moves.Names(out))
}

// shutDown asks the guests of VMs that run on the host, by id, to power off. A user who starts their VC starts them again,
// elsewhere if their disks allow it.
func (x *drainer) shutDown(whys map[string]string) Step {
	p := state.Plan{Basis: x.s.Index(), Verb: "shut-down", AffectedHosts: []string{x.h.Name}}
	for _, vm := range x.left {
		why, is := whys[vm.ID]
		if !is || vm.Host != x.h.Name || vm.MovingTo != "" || vm.Goal != state.GoalRun || vm.Phase != state.Running && vm.Phase != state.Starting {
			continue
		}
		vc, _ := x.s.VC(vm.VC)
		g, _ := vc.GroupOf(vm)
		vm = vm.Leaving(g, state.GoalStop)
		vm.Reason = fmt.Sprintf("shut down to empty host %s: %s", x.h.Name, why)
		p.VMs = append(p.VMs, vm)
	}
	if len(p.VMs) == 0 {
		return Step{}
	}
	p.Text = fmt.Sprintf("%d VMs are shut down to empty host %s", len(p.VMs), x.h.Name)
	return Step{Stop: &p}
}

// plans returns the plans of this drain, the present one included.
func (x *drainer) plans() []state.MovePlan {
	return slices.DeleteFunc(x.s.MovePlans(), func(p state.MovePlan) bool {
		return p.Kind != state.MovesDrain || p.Host != x.h.Name || p.CreateIndex < x.d.Begun
	})
}

// spent returns what the plans of this drain sent (moved), and that with what moves may have sent, or may yet send, whose sources have
// not reported (sent). soon: such a report may come any moment.
func (x *drainer) spent(plans []state.MovePlan) (moved, sent int64, soon bool) {
	for _, p := range plans {
		moved += p.BytesMoved
		for _, m := range x.s.MigrationsOf(p.ID) {
			sent += moves.Unreported(m)
			soon = soon || m.State != state.MigrationRunning && !m.Reported && x.env.Now.Sub(m.EndedAt) < moves.ReportWait
		}
	}
	return moved, moved + sent, soon
}

// silent names another host that does not report now, and might take VMs once it does. While there is one, no drain is given up and no
// VM is shut down, until maxUnavailable after the drain began or its last plan ended, whichever is later. A drain waits as long for the
// host that is drained.
func (x *drainer) silent() string {
	if !x.env.Now.Before(x.d.Since.Add(maxUnavailable)) && !x.env.Now.Before(x.plan.EndedAt.Add(maxUnavailable)) {
		return ""
	}
	for _, h := range x.s.Hosts() {
		if why := x.env.Unavailable[h.Name]; why != "" && h.Name != x.h.Name && !h.Cordoned && h.Lost.Proof == "" {
			return fmt.Sprintf("waits for host %s, which may take VMs: it %s", h.Name, why)
		}
	}
	return ""
}

// stuck names a VM that is on its way to a silent host: its move ends once that host answers, or is proved lost.
func (x *drainer) stuck() string {
	for _, vm := range x.left {
		if why := x.env.Unavailable[vm.MovingTo]; vm.MovingTo != "" && why != "" {
			return fmt.Sprintf("waits for the move of VM %s to host %s, which %s: it ends once the host answers, is fenced, or is confirmed dead", vm.Name, vm.MovingTo, why)
		}
	}
	return ""
}

// Spent is how many bytes the drain of a host may have sent, all its plans together.
func Spent(s *state.Snapshot, h state.Host) int64 {
	x := drainer{s: s, h: h, d: h.Drain}
	_, sent, _ := x.spent(x.plans())
	return sent
}

// Superseded returns the plans under way that a plan to drain the host replaces: all but drains of other hosts.
func Superseded(s *state.Snapshot, host string) []string {
	var out []string
	for _, p := range s.RunningMovePlans() {
		if p.Kind != state.MovesDrain || p.Host == host {
			out = append(out, p.ID)
		}
	}
	return out
}

// again plans the moves of the VMs that are left.
func (x *drainer) again(fleet func(supersedes []string, keep map[string]string) *moves.Fleet) (Step, error) {
	if x.has && x.plan.State == state.MovesFailed && x.env.Now.Before(x.plan.EndedAt.Add(retryDrain)) {
		return Step{}, nil
	}
	plans := x.plans()
	fruitless := 0
	for _, p := range plans {
		if !slices.ContainsFunc(p.Steps, func(s state.MoveStep) bool { return s.State == state.StepDone || s.State == state.StepFailed }) {
			fruitless++
		}
	}
	if fruitless >= maxFruitless {
		return x.end(state.DrainBlocked, fmt.Sprintf("its moves were planned %d times in vain; the last time: %s", fruitless, x.plan.Reason)), nil
	}
	moved, sent, soon := x.spent(plans)
	o := Options{Budget: -1}
	if x.d.MaxBytes >= 0 {
		if soon {
			return Step{}, nil
		}
		o.Budget = max(0, x.d.MaxBytes-sent)
	}
	if !x.d.Deadline.IsZero() {
		o.Deadline = x.d.Deadline.Sub(x.env.Now)
	}
	supersedes := Superseded(x.s, x.h.Name)
	o.Supersedes = supersedes
	a, err := Plan(fleet(supersedes, moves.FailedVMs(x.s, plans...)), x.h.Name, o)
	if err != nil {
		return Step{}, err
	}
	if len(a.Plan.Steps) > 0 {
		d := x.d
		a.Plan.ID, a.Plan.By, a.Plan.Text = x.env.NewID(), x.d.By, x.d.Reason
		d.Plan, d.Moved, d.Text = a.Plan.ID, moved, ""
		step := x.put(d, &state.MovePlanPut{Plan: a.Plan, Supersedes: supersedes})
		step.Blockers = a.Blockers
		return step, nil
	}
	stopping := x.ending()
	silent := x.silent()
	switch {
	case silent != "":
		step := x.report(silent)
		step.Blockers = a.Blockers
		return step, nil
	case len(a.Waits)+len(stopping) > 0:
		step := x.report("waits for " + moves.Names(append(a.Waits, stopping...)))
		step.Blockers = a.Blockers
		return step, nil
	case x.d.OnBlocked == OnBlockedShutdown:
		whys := map[string]string{}
		for _, b := range a.Blockers {
			whys[b.ID] = b.Why
		}
		step := x.shutDown(whys)
		step.Blockers = a.Blockers
		return step, nil
	}
	step := x.end(state.DrainBlocked, moves.BlockersText(a.Blockers))
	step.Blockers = a.Blockers
	return step, nil
}

// ending returns the VMs on the host that stop by themselves.
func (x *drainer) ending() (out []string) {
	for _, vm := range x.left {
		if vm.Phase == state.Stopping || vm.Goal != state.GoalRun {
			out = append(out, vm.Name)
		}
	}
	return out
}

// OptionalMoves says which optional moves a drain may begin with: as many bytes as a re-balance might move, for as much as it would
// have to gain; none where the settings allow only moves that were asked for.
func OptionalMoves(s *state.Snapshot) (bytes int64, minGain float64) {
	m, _ := s.Meta()
	if set := m.Settings.Moves.WithDefaults(); set.Mode == state.MovesAuto {
		return set.Budget(), set.MinGain
	}
	return 0, 0
}
