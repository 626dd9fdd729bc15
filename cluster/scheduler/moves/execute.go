package moves

import (
	"fmt"
	"slices"
	"time"

	"evenkeel/cluster/capacity"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
)

// Action is one action of a move plan. Exactly one field is set.
type Action struct {
	Put    *state.MovePlanPut
	Open   *state.Move
	Abort  *state.MigrationAbort
	Replan *Replan
}

// String implements fmt.Stringer.
func (a Action) String() string {
	switch {
	case a.Put != nil:
		return fmt.Sprintf("record move plan %s: %s", a.Put.Plan.ID, a.Put.Plan.State)
	case a.Open != nil:
		return fmt.Sprintf("move VM %s to host %s", a.Open.VM, a.Open.To)
	case a.Abort != nil:
		return fmt.Sprintf("abort migration %s: %s", a.Abort.ID, a.Abort.Reason)
	case a.Replan != nil:
		return fmt.Sprintf("plan again %s: %s", a.Replan.Plan.ID, a.Replan.Why)
	}
	return "nothing"
}

// Replan asks for a new plan of what is left of a plan: see Replanned.
type Replan struct {
	Plan state.MovePlan
	Why  string
	// Pinned are VMs that are not to be moved by it any more.
	Pinned map[string]string
}

// Execution is what the execution of plans may use besides the snapshot.
type Execution struct {
	placement.Env
	// Routes are what keeps hosts from sending VMs.
	Routes Routes
	// SyncedUpTo returns the log index up to which a host has put in force all that takes something from a VM. A VM that does
	// not have its additional share yet delays no move.
	SyncedUpTo func(host string) uint64
	// Synced returns the log index up to which a host has put all of its desired state in force.
	Synced func(host string) uint64
	// UnavailableFor is how long a host is among those that are out.
	UnavailableFor func(host string) time.Duration
	// Refused counts how often the opening of a step was refused on apply, by plan and step, and the last reason.
	Refused func(plan string, step int) (times int, why string)
}

// Next returns the actions to take now for the running move plans. It is empty while there is nothing but to wait: for a move
// to end, for a host to put shares in force.
//
// A step goes from waiting to preparing once the moves before it have ended well, a lane is free on both hosts, and the target
// has the memory. From then on the VM is charged to both hosts, so that shares shrink where they must. Once they have shrunk on
// both hosts the move is opened. No move of a plan begins after one of it has failed: those under way end, and what is left is
// planned again, as soon as no host's first report is awaited.
func Next(s *state.Snapshot, in Execution) []Action {
	if m, ok := s.Meta(); !ok || m.RecoveryFreeze.On() {
		return nil
	}
	x := newExecutor(s, in)
	actions := x.aborts()
	for _, p := range s.RunningMovePlans() {
		actions = append(actions, x.plan(p)...)
	}
	return actions
}

// executor is one evaluation of all plans.
type executor struct {
	s     *state.Snapshot
	in    Execution
	set   state.MoveSettings
	hosts int

	busy     map[string]int // moves that a host takes part in, those that prepare included
	total    int
	expected map[string][]state.VM // by target: VMs whose steps prepare
}

func newExecutor(s *state.Snapshot, in Execution) *executor {
	m, _ := s.Meta()
	x := &executor{s: s, in: in, set: m.Settings.Moves.WithDefaults(), busy: map[string]int{}, expected: map[string][]state.VM{}}
	s.EachHost(func(*state.Host) bool { x.hosts++; return true })
	s.EachVMMoving(func(vm *state.VM) bool {
		x.busy[vm.Host]++
		x.busy[vm.MovingTo]++
		x.total++
		return true
	})
	for _, p := range s.RunningMovePlans() {
		for i := range p.Steps {
			if step := &p.Steps[i]; step.State == state.StepPreparing {
				x.prepares(step)
			}
		}
	}
	return x
}

func (x *executor) prepares(step *state.MoveStep) {
	x.busy[step.From]++
	x.busy[step.To]++
	x.total++
	if vm, ok := x.s.VM(step.VM); ok && vm.MovingTo == "" && vm.Host != step.To {
		x.expected[step.To] = append(x.expected[step.To], vm)
	}
}

// aborts gives up the moves of VMs that are not to run any more.
func (x *executor) aborts() (actions []Action) {
	x.s.EachVMMoving(func(vm *state.VM) bool {
		if vm.Goal == state.GoalRun {
			return true
		}
		if m, ok := x.s.MigrationOf(vm.ID); ok && m.Abort == "" {
			actions = append(actions, Action{Abort: &state.MigrationAbort{ID: m.ID, Reason: fmt.Sprintf("VM %s is to %s", vm.Name, vm.Goal)}})
		}
		return true
	})
	return actions
}

// plan returns the actions of one plan.
func (x *executor) plan(p state.MovePlan) []Action {
	r := &planRun{executor: x, p: p, steps: slices.Clone(p.Steps)}
	r.dropUseless()
	r.count()
	var actions []Action
	if r.failed <= 0 {
		actions = r.begin()
		r.count()
	}
	if r.changed && r.failed > 0 { // nothing begins any more
		actions = nil
	}
	return r.conclude(actions)
}

// planRun is one evaluation of one plan.
type planRun struct {
	*executor
	p       state.MovePlan
	steps   []state.MoveStep // as they are from now on
	changed bool             // some step, or the plan's state

	failed     int    // steps since the plan was planned again last
	last       string // that failed, a text
	flying     int    // steps that move
	unfinished int    // steps that have not ended
}

func (r *planRun) mark(i int, to state.StepState, text string) {
	r.steps[i].State, r.steps[i].Text, r.changed = to, text, true
}

// count counts the steps by what became of them.
func (r *planRun) count() {
	r.failed, r.flying, r.unfinished = -r.p.Failures, 0, 0
	for i := range r.steps {
		switch step := &r.steps[i]; step.State {
		case state.StepFailed:
			r.failed++
			r.last = fmt.Sprintf("VM %s did not get from host %s to host %s: %s", step.VMName, step.From, step.To, step.Text)
		case state.StepMoving:
			r.flying++
			r.unfinished++
		case state.StepWaiting, state.StepPreparing:
			r.unfinished++
		}
	}
}

// dropUseless skips the steps that have become pointless, and ends those that can never be made.
func (r *planRun) dropUseless() {
	wanted := r.p.Kind != state.MovesRoom || r.waits(r.p.VC) || r.wantsRoom(r.p.Occurrence)
	for i := range r.steps {
		if r.steps[i].State != state.StepWaiting && r.steps[i].State != state.StepPreparing {
			continue
		}
		if !wanted {
			r.mark(i, state.StepSkipped, "no VM waits for the room any more")
			continue
		}
		switch verdict, text := r.sense(r.p.ID, r.steps, i); verdict {
		case skip:
			r.mark(i, state.StepSkipped, text)
		case fail:
			r.mark(i, state.StepFailed, text)
		}
	}
}

// begin lets the steps prepare whose turn it is, and opens the moves for which both hosts are ready.
func (r *planRun) begin() (actions []Action) {
	for i := range r.steps {
		step := &r.steps[i]
		switch {
		case step.State == state.StepWaiting && r.mayPrepare(r.steps, i):
			switch fits, why := r.hasRoom(step, r.flying > 0); {
			case why != "":
				r.mark(i, state.StepFailed, why)
			case fits:
				r.mark(i, state.StepPreparing, "")
				r.prepares(step)
			}
		case step.State == state.StepPreparing:
			if move, why := r.open(r.p, i); why != "" {
				r.mark(i, state.StepFailed, why)
			} else if move != nil {
				actions = append(actions, Action{Open: move})
			}
		}
	}
	return actions
}

// conclude returns what is to be recorded of the plan, if it changed or has ended, else the actions.
func (r *planRun) conclude(actions []Action) []Action {
	next := r.p
	next.Steps = r.steps
	stands := r.failed > 0 && r.flying == 0 // a move failed, and none is under way
	switch {
	case stands && len(r.in.Awaited) > 0: // where else its VMs could go is not known yet
	case stands && r.p.Tries < maxReplans:
		return []Action{{Replan: &Replan{Plan: next, Why: r.last, Pinned: FailedVMs(r.s, next)}}}
	case stands:
		next.State, next.Reason = state.MovesFailed, fmt.Sprintf("planned again %d times; the last: %s", r.p.Tries, r.last)
		next.Steps, r.changed = state.Skipped(r.steps, "the plan failed"), true
	case r.unfinished == 0 && !r.awaitsReports(r.p):
		next.State, r.changed = state.MovesDone, true
	}
	if r.changed {
		return []Action{{Put: &state.MovePlanPut{Plan: next, Version: r.p.ModifyIndex}}} // the next evaluation opens what may be opened
	}
	return actions
}

// awaitsReports says whether reports are missing of moves that have just ended: a source has not reported what it sent, or a host has
// not put in force what followed from the move. With those reports a caller that waits for the plan sees all bytes and the new shares.
func (x *executor) awaitsReports(p state.MovePlan) bool {
	for _, m := range x.s.MigrationsOf(p.ID) {
		if m.State == state.MigrationRunning || x.in.Now.Sub(m.EndedAt) >= ReportWait {
			continue
		}
		from, _ := x.s.Host(m.From)
		to, _ := x.s.Host(m.To)
		if !m.Reported || x.in.Synced(m.From) < from.Version || x.in.Synced(m.To) < to.Version {
			return true
		}
	}
	return false
}

// wantsRoom says whether an occurrence has no room yet, and no run.
func (x *executor) wantsRoom(id string) bool {
	o, ok := x.s.Occurrence(id)
	return ok && o.State == state.Degraded && o.VC == ""
}

// waits says whether a VC waits for room.
func (x *executor) waits(id string) bool {
	vc, ok := x.s.VC(id)
	return ok && vc.Goal == state.GoalRun && !vc.Admitted
}

// FailedVMs returns the VMs that plans are not to move again, and why: a user had their moves aborted, or two failed.
func FailedVMs(s *state.Snapshot, plans ...state.MovePlan) map[string]string {
	out, failed := map[string]string{}, map[string]int{}
	for _, p := range plans {
		for _, step := range p.Steps {
			if step.State != state.StepFailed {
				continue
			}
			failed[step.VM]++
			if m, ok := s.Migration(step.Migration); ok && step.Migration != "" && m.State == state.MigrationAborted {
				out[step.VM] = "its move was aborted: " + m.Abort
			} else if failed[step.VM] > 1 {
				out[step.VM] = "two of its moves failed, the last: " + step.Text
			}
		}
	}
	return out
}

type verdict int

const (
	goOn verdict = iota
	skip
	fail
)

// sense says whether a step that has not begun is still useful.
func (x *executor) sense(plan string, steps []state.MoveStep, i int) (verdict, string) {
	step := &steps[i]
	vm, ok := x.s.VM(step.VM)
	switch {
	case !ok:
		return skip, "the VM is gone"
	case vm.Goal != state.GoalRun:
		return skip, "the VM is to " + string(vm.Goal)
	case !vm.ConsumesResources():
		return skip, "the VM is " + string(vm.Phase)
	}
	if !x.turn(steps, i) || vm.MovingTo != "" {
		return goOn, ""
	}
	switch {
	case vm.Host == step.To:
		return skip, "the VM is there already"
	case vm.Host != step.From:
		return skip, "the VM runs on host " + vm.Host + " by now"
	}
	for _, host := range []string{step.From, step.To} {
		if why := x.in.Unavailable[host]; why != "" && x.in.UnavailableFor(host) > prepareFor {
			return fail, "host " + host + " " + why
		}
	}
	if why := x.in.Routes.Why(step.From, step.To); why != "" {
		return fail, fmt.Sprintf("host %s cannot send VMs to %s: %s", step.From, step.To, why)
	}
	switch to, ok := x.s.Host(step.To); {
	case !ok:
		return fail, "host " + step.To + " is gone"
	case to.Lost.Proof != "":
		return fail, "host " + step.To + " is lost: " + to.Lost.Text
	case to.Cordoned:
		return fail, "host " + step.To + " takes no VMs now"
	}
	if step.State == state.StepPreparing {
		if times, why := x.in.Refused(plan, i); times >= maxRefusals {
			return fail, why
		}
	}
	return goOn, ""
}

// turn says whether the moves for which a step waits have ended well, or are not made any more.
func (x *executor) turn(steps []state.MoveStep, i int) bool {
	for _, j := range steps[i].After {
		if st := steps[j].State; st != state.StepDone && st != state.StepSkipped {
			return false
		}
	}
	return true
}

// mayPrepare says whether a step may prepare: its turn has come, its VM runs, and both hosts have a lane free.
func (x *executor) mayPrepare(steps []state.MoveStep, i int) bool {
	step := &steps[i]
	vm, _ := x.s.VM(step.VM)
	return x.turn(steps, i) && vm.Phase == state.Running && vm.MovingTo == "" && x.in.Unavailable[step.From] == "" && x.in.Unavailable[step.To] == "" &&
		x.total < x.set.Concurrent(x.hosts) && x.busy[step.From] < x.set.PerHost && x.busy[step.To] < x.set.PerHost
}

// memoryLeft is the memory that a host has left beside what is there and what is expected, if a VM comes. Below 0: the VM does
// not fit.
func (x *executor) memoryLeft(host string, vm state.VM) int64 {
	h, _ := x.s.Host(host)
	l := x.s.LedgerOf(host)
	for _, e := range append(slices.Clone(x.expected[host]), vm) {
		l.Add(x.charge(h, e))
	}
	return l.Free().Memory
}

// charge of a VM on a host.
func (x *executor) charge(h state.Host, vm state.VM) capacity.Charge {
	vc, _ := x.s.VC(vm.VC)
	g, _ := vc.GroupOf(vm)
	return vm.ChargeOn(h, g)
}

// hasRoom says whether the target has the memory for a VM that is about to move. why: it does not, and nothing under way will free it.
// more: other moves of the plan are under way.
func (x *executor) hasRoom(step *state.MoveStep, more bool) (fits bool, why string) {
	vm, _ := x.s.VM(step.VM)
	if x.memoryLeft(step.To, vm) >= 0 {
		return true, ""
	}
	if more || x.busy[step.To] > 0 || x.leaves(step.To) {
		return false, ""
	}
	return false, fmt.Sprintf("host %s has not the %d MiB of memory any more", step.To, vm.ChargedMemory>>20)
}

// leaves says whether some VM of the host is stopping.
func (x *executor) leaves(host string) bool {
	found := false
	x.s.EachVMOn(host, func(vm *state.VM) bool {
		found = vm.Phase == state.Stopping
		return !found
	})
	return found
}

// tooLong says whether a step has prepared for longer than prepareFor. Time counts only after the last move that it may have waited
// for: a share does not change while a VM of its group moves.
func (x *executor) tooLong(p state.MovePlan, i int) bool {
	step := &p.Steps[i]
	if x.in.Now.Sub(step.At) <= prepareFor || len(x.in.Awaited) > 0 { // what a host has put in force is in its report
		return false
	}
	for _, m := range x.s.Migrations() {
		if (m.VC == step.VC || m.To == step.To) && (m.State == state.MigrationRunning || x.in.Now.Sub(m.EndedAt) <= prepareFor) {
			return false
		}
	}
	return true
}

// open opens the move of a step that prepares, once both hosts are ready for it; nil: not yet. why: it never will.
func (x *executor) open(p state.MovePlan, i int) (move *state.Move, why string) {
	step := p.Steps[i]
	vm, _ := x.s.VM(step.VM)
	if vm.MovingTo != "" || vm.Phase != state.Running {
		return nil, ""
	}
	for _, name := range []string{step.From, step.To} {
		if h, _ := x.s.Host(name); x.in.SyncedUpTo(name) < h.Version || x.in.Unavailable[name] != "" {
			if x.tooLong(p, i) {
				return nil, fmt.Sprintf("host %s did not put the shares in force that make room for it, in %s", name, prepareFor)
			}
			return nil, ""
		}
	}
	h, _ := x.s.Host(step.To)
	if !x.s.LedgerOf(step.To).Fits(x.charge(h, vm)) {
		if x.tooLong(p, i) {
			return nil, fmt.Sprintf("host %s has no room for it", step.To)
		}
		return nil, ""
	}
	return &state.Move{VM: vm.ID, Generation: vm.Generation, To: step.To, Open: true, Text: step.Reason, ID: x.in.NewID(), Plan: p.ID, Step: i,
		Bytes: step.Bytes, MaxBytes: step.Allotment, Options: state.MoveOptions{Bandwidth: x.set.Bandwidth, AutoConverge: x.set.AutoConverge,
			PostCopy: x.set.PostCopy, CopyStorage: step.CopyStorage, Deadline: x.set.Deadline}}, ""
}
