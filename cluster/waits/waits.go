// Package waits knows the states of the cluster that are not final: why each of them lasts, for how long it may before it is a
// condition that an operator sees, and what ends it. Its rules cover every value of the state's enumerations, which a test
// compares with the source of package state.
package waits

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"evenkeel/cluster/state"
)

// Rule is the rule of one state that waits.
type Rule struct {
	Object string // what is in that state: vm, vc, run, plan, host
	Enum   string // the enumeration of package state, and the value of it
	Value  string
	Limit  time.Duration // after which it is a condition
	Ends   string        // what ends it by itself
	Out    string        // what an operator does about it; %s is the name of the object
}

// The rules. A VM that moves is one whose migration runs; one that was handed over is gone from its source.
var (
	Starting  = Rule{"vm", "Phase", string(state.Starting), 2 * time.Minute, "its host starts it, or gives it back after a minute if it was never tried and may run elsewhere", "vcctl vm get %s; vcctl vc stop, then start, its virtual cluster"}
	Stopping  = Rule{"vm", "Phase", string(state.Stopping), 2 * time.Minute, "the guest powers off, or its host pulls the plug after the grace period", "vcctl vm get %s; look at its host"}
	Lost      = Rule{"vm", "Phase", string(state.Lost), 5 * time.Minute, "there is room for it, or its own host is back", "vcctl vc explain its virtual cluster; make room, or bring its host back"}
	Moving    = Rule{"vm", "MigrationState", string(state.MigrationRunning), 35 * time.Minute, "the target says that it runs there, the source that it stayed, or both hosts that it is gone; the source gives up after the deadline of moves", "vcctl migration list; vcctl migration abort"}
	Handed    = Rule{"vm", "MigrationState", string(state.MigrationRunning), 2 * time.Minute, "the target has it go on and says so, or is proved lost", "vcctl vm get %s; look at the host that it moves to; vcctl host confirm-dead declares dead one that is off"}
	Resetting = Rule{"vm", "ResetState", string(state.ResetAsked), 2 * time.Minute, "its host resets it, or says that it did not", "vcctl vm get %s; look at its host; vcctl vm restart"}
	Queued    = Rule{"vc", "VCState", string(state.VCQueued), 10 * time.Minute, "there is room for it", "vcctl vc explain %s; make room, ask for less, or vcctl vc delete %s"}
	Degraded  = Rule{"vc", "VCState", string(state.VCDegraded), 10 * time.Minute, "its VMs run again, with their minimum yield", "vcctl vc explain %s; vcctl vc start %s"}
	Unplaced  = Rule{"run", "OccurrenceState", string(state.Degraded), 10 * time.Minute, "hosts have room for it, or its slot is over", "vcctl periodic get its job; make room, or vcctl periodic override"}
	Proposed  = Rule{"plan", "MovePlanState", string(state.MovesProposed), 24 * time.Hour, "another plan takes its place", "vcctl plan apply %s, or vcctl plan stop %s"}
	Carried   = Rule{"plan", "MovePlanState", string(state.MovesRunning), 2 * time.Hour, "its moves end, one after the other", "vcctl plan get %s; vcctl plan stop %s"}
	Draining  = Rule{"host", "DrainState", string(state.DrainRunning), 2 * time.Hour, "no VM is left there, or none of those left can leave", "vcctl host get %s; vcctl host undrain %s"}
	Blocked   = Rule{"host", "DrainState", string(state.DrainBlocked), 0, "room comes up for what is left there", "vcctl host get %s; vcctl host undrain %s"}
	Cancelled = Rule{"host", "DrainState", string(state.DrainStopped), 0, "", "vcctl host undrain %s, or vcctl host drain %s"}
)

// Rules are all rules.
var Rules = []Rule{Starting, Stopping, Lost, Moving, Handed, Resetting, Queued, Degraded, Unplaced, Proposed, Carried, Draining, Blocked, Cancelled}

// Wait is one object in a state that waits.
type Wait struct {
	Rule   Rule
	ID     string // of the object, and of the attempt if there are several
	Name   string
	Host   string // where it waits, if at one
	Reason string // "" = none is known
	ToRun  string // id of a VM that starts or is lost, whichever its generation and host
}

// Of returns all that waits in the cluster, and why. unavailable says why nothing may be decided for a host now; "": it may.
func Of(s *state.Snapshot, unavailable func(host string) string) []Wait {
	var all []Wait
	blocked := freeze(s)
	s.EachVM(func(vm *state.VM) bool {
		if w, waits := OfVM(s, vm, unavailable); waits {
			all = append(all, w)
		}
		return true
	})
	s.EachVC(func(vc *state.VC) bool {
		w := Wait{ID: vc.ID, Name: vc.Name}
		switch state.StateOf(*vc, s.VMsOf(vc.ID)) {
		case state.VCQueued:
			w.Rule, w.Reason = Queued, vc.Decision.Summary
		case state.VCDegraded:
			if w.Rule, w.Reason = Degraded, degraded(s, vc); w.Reason == "" { // as users want it
				return true
			}
		default:
			return true
		}
		all = append(all, w)
		return true
	})
	for _, o := range s.Agenda() {
		if o.State == state.Degraded {
			all = append(all, Wait{Rule: Unplaced, ID: o.ID, Name: o.ID, Reason: o.Text})
		}
	}
	for _, p := range s.MovePlans() {
		switch p.State {
		case state.MovesProposed:
			all = append(all, Wait{Rule: Proposed, ID: p.ID, Name: p.ID, Reason: "it waits to be applied"})
		case state.MovesRunning:
			all = append(all, Wait{Rule: Carried, ID: p.ID, Name: p.ID, Reason: cmp.Or(blocked, steps(p))})
		}
	}
	s.EachHost(func(h *state.Host) bool {
		w := Wait{ID: h.Name, Name: h.Name, Host: h.Name, Reason: cmp.Or(blocked, unavailable(h.Name), h.Drain.Text)}
		switch h.Drain.State {
		case state.DrainRunning:
			w.Rule = Draining
		case state.DrainBlocked:
			w.Rule = Blocked
		case state.DrainStopped:
			w.Rule = Cancelled
		default:
			return true
		}
		all = append(all, w)
		return true
	})
	return all
}

// freeze says why nothing is started or stopped anywhere; "" = there is no recovery freeze.
func freeze(s *state.Snapshot) string {
	meta, _ := s.Meta()
	if !meta.RecoveryFreeze.On() {
		return ""
	}
	return fmt.Sprintf("nothing is started or stopped after the %s until these hosts have said what they run: %s", meta.RecoveryFreeze.Reason, strings.Join(meta.RecoveryFreeze.Pending, ", "))
}

// OfVM says whether a VM waits, and why.
func OfVM(s *state.Snapshot, vm *state.VM, unavailable func(host string) string) (Wait, bool) {
	if vm.MovingTo == "" && (vm.Phase == state.Running && !vm.Order.Reset.Pending() || vm.Phase == state.Stopped || vm.Phase == state.Failed) {
		return Wait{}, false
	}
	blocked := freeze(s)
	w := Wait{ID: fmt.Sprintf("%s/%d", vm.ID, vm.Generation), Name: vm.Name, Host: vm.Host}
	silent := func(host string) string {
		if why := unavailable(host); why != "" {
			return "host " + host + " " + why
		}
		return ""
	}
	switch {
	case vm.MovingTo != "":
		m, _ := s.MigrationOf(vm.ID)
		w.Rule, w.ID = Moving, fmt.Sprintf("%s/%d", vm.ID, m.Open)
		w.Reason = cmp.Or(blocked, silent(vm.Host), silent(vm.MovingTo))
		if m.SourceLost > 0 {
			w.Rule, w.ID = Handed, w.ID+"/gone"
			w.Reason = cmp.Or(blocked, silent(vm.MovingTo), "host "+vm.MovingTo+" has not said yet that it runs there")
			if m.Paused && m.Left == 0 {
				w.Reason = cmp.Or(blocked, silent(vm.MovingTo), "it is lost at host "+vm.Host+", and host "+vm.MovingTo+" has not said yet that nothing of it is there")
			}
			if m.Left > 0 {
				w.Reason = cmp.Or(blocked, silent(vm.MovingTo), "host "+vm.MovingTo+" has not had it go on yet")
			}
		}
		room := ""
		if !m.Ready {
			room = "host " + vm.MovingTo + " has no room for it yet"
		}
		w.Reason = cmp.Or(w.Reason, abort(m), room, m.Reason, "it is on its way to host "+vm.MovingTo)
	case vm.Phase == state.Running:
		w.Rule, w.ID, w.Reason = Resetting, vm.ID+"/"+vm.Order.Reset.ID, cmp.Or(blocked, silent(vm.Host), "its host has not reset it yet")
	case vm.Phase == state.Starting:
		w.Rule, w.ToRun, w.Reason = Starting, vm.ID, cmp.Or(blocked, silent(vm.Host), vm.Reason)
	case vm.Phase == state.Stopping:
		w.Rule, w.Reason = Stopping, cmp.Or(blocked, silent(vm.Host), vm.Reason)
	case vm.Phase == state.Lost && vm.Goal == state.GoalRun:
		w.Rule, w.ToRun, w.Reason = Lost, vm.ID, cmp.Or(blocked, lost(s, vm, unavailable))
	default:
		return Wait{}, false
	}
	return w, true
}

// lost says why a VM that was lost with its host is not started.
func lost(s *state.Snapshot, vm *state.VM, unavailable func(host string) string) string {
	vc, _ := s.VC(vm.VC)
	h, known := s.Host(vm.Host)
	switch {
	case vc.Restartable():
		return cmp.Or(vc.Decision.Summary, vm.Reason)
	case !known:
		return "its host " + vm.Host + " was removed"
	case h.Lost.Proof != "":
		return "it is bound to host " + vm.Host + ", which is lost: " + h.Lost.Text
	case unavailable(vm.Host) != "":
		return "it is bound to host " + vm.Host + ", which " + unavailable(vm.Host)
	}
	return cmp.Or(vc.Decision.Summary, vm.Reason)
}

func abort(m state.Migration) string {
	if m.Abort == "" {
		return ""
	}
	return "it is to be aborted: " + m.Abort
}

// degraded says why a VC is degraded; "" = only VMs that users stopped do not run.
func degraded(s *state.Snapshot, vc *state.VC) string {
	alone, vms := false, s.VMsOf(vc.ID)
	for _, vm := range vms {
		if vm.Order.StoppedBy != "" {
			alone = true
		} else if vm.Phase != state.Running && vm.Phase != state.Stopping {
			return fmt.Sprintf("VM %s is %s: %s", vm.Name, vm.Phase, cmp.Or(vm.Reason, vc.Decision.Summary))
		}
	}
	yield := state.YieldOf(*vc, vms)
	if alone && yield >= vc.MinYield*(1-1e-6) {
		return ""
	}
	return fmt.Sprintf("its yield %.3f is below its minimum %.3f", yield, vc.MinYield)
}

// steps says how far a plan is.
func steps(p state.MovePlan) string {
	n := map[state.StepState]int{}
	for _, st := range p.Steps {
		n[st.State]++
	}
	return fmt.Sprintf("%d of %d moves have ended, %d are on their way, %d wait", n[state.StepDone]+n[state.StepFailed]+n[state.StepSkipped], len(p.Steps), n[state.StepMoving]+n[state.StepPreparing], n[state.StepWaiting])
}

// Late is a wait that goes on for longer than its limit.
type Late struct {
	Wait
	For   time.Duration // at least: since this server leads
	Again bool          // it was given back and started again meanwhile, and never ran
}

// Tracker notes since when things wait. Its zero value has noted nothing.
type Tracker struct {
	known map[string]waitTimes
	toRun map[string]starts // of VMs that have not run since the first of these, by id
	at    time.Time         // of the last look
}

// starts are those of a VM that does not come to run: since when, the wait for the first of them, and whether another followed.
type starts struct {
	since time.Time
	first string
	again bool
}

// waitTimes are the times of one wait: since when it lasts, and since when for no known reason; zero: there is one.
type waitTimes struct{ since, unexplained time.Time }

// blindFor is for how long without an evaluation nothing is known of reasons: there was no leader, or it stood still.
const blindFor = 30 * time.Second

// Evaluate takes in what waits now, and returns what has waited for too long, the longest first. A wait without a reason is
// late only once it had none for its limit: a wait for a leader goes on for a moment after there is one. A VM that hosts give back
// is late as one that is lost: each of its starts ends before the limit of starts.
func (t *Tracker) Evaluate(now time.Time, all []Wait) []Late {
	before, blind := t.known, now.Sub(t.at) > blindFor
	toRun := t.toRun
	if blind { // what started may have run meanwhile
		toRun = nil
	}
	t.known, t.toRun, t.at = make(map[string]waitTimes, len(all)), map[string]starts{}, now
	var late []Late
	for _, w := range all {
		key := w.Rule.Enum + "." + w.Rule.Value + "/" + w.ID
		is, known := before[key]
		if !known {
			is.since = now
		}
		switch {
		case w.Reason != "":
			is.unexplained = time.Time{}
		case is.unexplained.IsZero() || blind:
			is.unexplained = now
		}
		t.known[key] = is
		tries, tried := toRun[w.ToRun]
		if w.Rule == Starting && w.ToRun != "" && !tried {
			tries, tried = starts{since: now, first: w.ID}, true
		}
		if tried {
			tries.again = tries.again || w.Rule == Starting && w.ID != tries.first
			t.toRun[w.ToRun] = tries
		}
		long := now.Sub(is.since)
		if long > w.Rule.Limit && (w.Reason != "" || now.Sub(is.unexplained) > w.Rule.Limit) {
			late = append(late, Late{Wait: w, For: long})
			continue
		}
		if trying := now.Sub(tries.since); tries.again && trying > Lost.Limit {
			late = append(late, Late{Wait: w, For: trying, Again: true})
		}
	}
	slices.SortStableFunc(late, func(a, b Late) int { return cmp.Compare(b.For, a.For) })
	return late
}

// Condition is the condition that reports waits of one kind for one reason to an operator.
type Condition struct {
	Object, Name, Text string
}

// maxNamed is how many objects that wait for one reason a condition names.
const maxNamed = 5

// Conditions returns the conditions of waits that last too long, in the order of the first of each.
func Conditions(late []Late) []Condition {
	type group struct {
		value, host, reason string
		again               bool
	}
	var order []group
	of := map[group][]Late{}
	for _, l := range late {
		if l.Rule.Limit <= 0 { // distinguished
			continue
		}
		g := group{l.Rule.Enum + l.Rule.Value, l.Host, l.Reason, l.Again}
		if of[g] == nil {
			order = append(order, g)
		}
		of[g] = append(of[g], l)
	}
	var out []Condition
	for _, g := range order {
		all := of[g]
		first := all[0]
		var names []string
		for _, l := range all[:min(len(all), maxNamed)] {
			names = append(names, l.Name)
		}
		principal := strings.Join(names, ", ")
		if more := len(all) - len(names); more > 0 {
			principal += fmt.Sprintf(" and %d more", more)
		}
		is := stateText(first)
		reason := cmp.Or(first.Reason, "no reason is known: look at what vcd of that host logs")
		out = append(out, Condition{Object: first.Rule.Object, Name: first.Name,
			Text: fmt.Sprintf("%s for %s at least: %s: %s; what to do: %s", is, first.For.Round(time.Second), principal, reason, strings.ReplaceAll(first.Rule.Out, "%s", first.Name))})
	}
	return out
}

// stateText is the state of a wait, and where.
func stateText(l Late) string {
	switch {
	case l.Again:
		return "given back and started again, now " + l.Rule.Value + " on host " + l.Host + ", and not running"
	case l.Rule == Handed:
		return "handed over by host " + l.Host
	case l.Rule == Moving:
		return "moving from host " + l.Host
	case l.Rule.Object == "vm" && l.Host != "":
		return l.Rule.Value + " on host " + l.Host
	}
	return l.Rule.Value
}
