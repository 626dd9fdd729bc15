package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
	"evenkeel/test/quota"
)

// checkAgenda plays what the servers wrote again. It sums up by itself what is reserved, and looks at each entry:
//
//   - what a user asked for takes no room that a slot has;
//   - an occurrence that has hosts keeps them, unless one of them is in trouble, or lacks room that something else may take: a VM that
//     restarts, moves, or runs longer than it was to; and then an event says so;
//   - nothing else takes decisions of owners, occurrences, and grants of runs that go on, and a restore brings back those that were saved.
func (s *sim) checkAgenda() {
	if s.o.periodic == nil {
		return
	}
	saved := s.savedStates()
	for i, log := range s.logs {
		committed := ^uint64(0)
		if i == len(s.logs)-1 {
			committed = 0
			for _, name := range s.names {
				if p := s.servers[name].alive(); p != nil {
					committed = max(committed, p.store.Snapshot().Index())
				}
			}
		}
		j := agendaJudge{s: s, saved: saved}
		log.Play(committed, j.entry)
	}
}

// savedStates are the states that were to be restored.
func (s *sim) savedStates() (out []*state.Snapshot) {
	s.runs.mu.Lock()
	defer s.runs.mu.Unlock()
	for _, saved := range s.runs.saved {
		_, body, _ := bytes.Cut(saved, []byte("\n")) // behind the header
		store := state.New()
		if err := store.Restore(bytes.NewReader(body)); err == nil {
			out = append(out, store.Snapshot())
		}
	}
	return out
}

type agendaJudge struct {
	s      *sim
	saved  []*state.Snapshot
	recent []*state.Snapshot // before each of the last entries
}

// recentEntries is for how many entries the agenda that a leader decided may be on its way into the log.
const recentEntries = 256

// at is the state on which something was decided.
func (j *agendaJudge) at(basis uint64) *state.Snapshot {
	for _, s := range slices.Backward(j.recent) {
		if s.Index() <= basis {
			return s
		}
	}
	return j.recent[0]
}

func (j *agendaJudge) violate(x quota.Applied, format string, args ...any) {
	j.s.violate("agenda: index %d, %s, %s after the beginning: %s", x.Index, x.Command.Kind, x.Command.At.Sub(j.s.began), fmt.Sprintf(format, args...))
}

func (j *agendaJudge) entry(x quota.Applied) {
	j.recent = append(j.recent[max(0, len(j.recent)+1-recentEntries):], x.Before)
	if x.Outcome != nil {
		return
	}
	meta, _ := x.Before.Meta()
	now, _ := x.After.Meta()
	if x.Command.Kind == state.KindRestore {
		if meta.Epoch != now.Epoch {
			j.restored(x)
		}
		return
	}
	j.kept(x)
	switch body := x.Body.(type) {
	case *state.Plan:
		j.plan(x, body)
	case *state.AgendaPut:
		j.agenda(x, j.at(body.Basis))
	}
}

// kept: decisions of owners, occurrences and grants stay.
func (j *agendaJudge) kept(x quota.Applied) {
	if x.Command.Kind != state.KindPeriodic {
		for _, job := range x.Before.PeriodicJobs() {
			if after, _ := x.After.PeriodicJob(job.Name); job.SignOff.State == state.SignedOff && after.SignOff.State != state.SignedOff {
				j.violate(x, "job %s was signed off, and is %q", job.Name, after.SignOff.State)
			}
		}
		for _, o := range x.Before.Agenda() {
			after, there := x.After.Occurrence(o.ID)
			switch {
			case !there:
				j.violate(x, "occurrence %s was %s, and is gone", o.ID, o.State)
			case o.Reserves() && !after.Reserves() && after.State != state.RunningNow && x.Command.Kind != state.KindAgenda:
				j.violate(x, "occurrence %s was %s, and is %s", o.ID, o.State, after.State)
			}
		}
	}
	x.Before.EachRun(func(r *state.Run) bool {
		if r.Grant == nil || x.Command.Kind == state.KindReprovision {
			return true
		}
		if after, open := x.After.OpenRun(r.VC); open && after.ID == r.ID && after.Grant == nil {
			j.violate(x, "run %s was granted %.2f cores, and is not any more", r.Name, r.Grant.Cores)
		}
		return true
	})
	x.After.EachRun(func(r *state.Run) bool {
		old, _ := x.Before.OpenRun(r.VC)
		if r.Grant != nil && r.Grant.Extra > 0 && (old.Grant == nil || old.Grant.Extra == 0) {
			j.s.count("periodic: grants beyond reservations")
		}
		if !r.Started.IsZero() && old.ID == r.ID && old.Started.IsZero() && r.Occurrence != "" {
			j.s.count("periodic: runs that started in their slots")
		}
		return true
	})
}

// asks says whether a user's request placed the VMs of a plan.
func asks(verb string) bool {
	return slices.Contains([]string{"created", "started", "admitted", "scaled", "changed", "edited"}, verb)
}

// plan: no VM comes to a host whose room is reserved for a time at which it may run still.
func (j *agendaJudge) plan(x quota.Applied, p *state.Plan) {
	if p.VC == nil || !asks(p.Verb) {
		return
	}
	vc, ok := x.After.VC(p.VC.ID)
	if !ok {
		return
	}
	if p.Occurrence != "" {
		j.s.count("periodic: runs admitted to their slots")
	}
	came := map[string]bool{}
	for _, vm := range x.After.VMsOf(vc.ID) {
		if old, _ := x.Before.VM(vm.ID); vm.ConsumesResources() && (!old.ConsumesResources() || old.Host != vm.Host) {
			came[vm.Host] = true
		}
	}
	for _, o := range x.After.Agenda() {
		if !o.Reserves() {
			continue
		}
		for host := range came {
			if !slices.Contains(o.Hosts, host) {
				continue
			}
			at := later(o.Start, x.Command.At)
			before, after := deficitOf(x.Before, host, at, x.Command.At, false), deficitOf(x.After, host, at, x.Command.At, false)
			if after.Memory > max(0, before.Memory) || after.CPU > max(0, before.CPU)+1e-6 {
				j.violate(x, "%s %s: host %s lacks %+v for occurrence %s (before it: %+v)", p.Verb, vc.Name, host, after, o.ID, before)
			}
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// deficitOf is what a host lacks for what is reserved there at a time, by what is known now; below 0: it has so much left. grows: VMs that rightsizing
// shrank count with all that they may take back, and VMs that are about to move where they go to as well.
func deficitOf(snap *state.Snapshot, host string, at, now time.Time, grows bool) state.Resources {
	h, _ := snap.Host(host)
	usable := h.Usable()
	out := state.Resources{CPU: -usable.CPU, Memory: -usable.Memory}
	coming := map[string]string{} // VMs whose move is being prepared, and where to
	if grows {
		coming = snap.Preparing()
	}
	for _, vm := range snap.VMs() {
		if vm.Host != host && vm.MovingTo != host && coming[vm.ID] != host || !vm.ConsumesResources() && !vm.KeepsMemory() {
			continue
		}
		vc, ok := snap.VC(vm.VC)
		g, has := vc.GroupOf(vm)
		if end := endOf(snap, &vc, now); !ok || !has || !end.IsZero() && !end.After(at) {
			continue
		}
		out.CPU += min(1, vc.MinYield) * g.Need()
		charge := vm.ChargeOn(h, g)
		out.Memory += charge.Memory
		if grows {
			out.Memory += charge.Deficit
		}
	}
	for _, o := range snap.Agenda() {
		if !o.Reserves() || o.Start.After(at) || !at.Before(o.End) {
			continue
		}
		job, _ := snap.PeriodicJob(o.Job)
		vm := 0
		for _, g := range job.SignOff.Groups {
			need := slices.Max(placement.SlotNeed(&job.SignOff, g))
			for range g.Count {
				if vm < len(o.Hosts) && o.Hosts[vm] == host {
					out.CPU, out.Memory = out.CPU+need, out.Memory+g.Memory+h.VMOverhead
				}
				vm++
			}
		}
	}
	return out
}

// endOf is the end of the agenda's step in which a VC is to end, as its owner or its contract says; zero: that is not known.
func endOf(snap *state.Snapshot, vc *state.VC, now time.Time) time.Time {
	run, ok := snap.OpenRun(vc.ID)
	length := time.Duration(vc.Duration) * time.Second
	if o, is := snap.Occurrence(run.Occurrence); ok && is {
		job, _ := snap.PeriodicJob(o.Job)
		length = job.SignOff.Length()
	}
	if length == 0 || vc.Goal != state.GoalRun {
		return time.Time{}
	}
	end := now.Add(length)
	if ok && !run.Started.IsZero() {
		end = run.Started.Add(length)
	}
	if end.Before(now) {
		return time.Time{}
	}
	return end.Add(placement.Step - 1).Truncate(placement.Step)
}

// agenda: an occurrence loses hosts for a cause alone, which was there when that was decided or when the entry was made; and an event says so.
func (j *agendaJudge) agenda(x quota.Applied, basis *state.Snapshot) {
	for _, o := range x.Before.Agenda() {
		after, _ := x.After.Occurrence(o.ID)
		if o.State == state.Degraded && after.State == state.Reconfirmed && slices.Equal(after.Hosts, o.Hosts) {
			j.s.count("periodic: slots that moves made room for")
		}
		if !o.Reserves() || after.Reserves() && slices.Equal(after.Hosts, o.Hosts) || after.State == state.Missed || o.State == state.Degraded { // moves did not make its room
			continue
		}
		j.s.count("periodic: occurrences whose hosts were lost: " + string(after.State))
		// Where needs are estimated memory comes back to VMs between a plan and its entry: that is a cause which the log does not show.
		if !j.s.o.rightsized && !slices.ContainsFunc(o.Hosts, func(h string) bool { return j.cause(x, x.Before, h, &o) || j.cause(x, basis, h, &o) }) {
			j.violate(x, "occurrence %s on %s is %s on %s without a cause: %s; %s", o.ID, o.Hosts, after.State, after.Hosts, after.Text, j.s.troubledBefore(o.Hosts))
		}
		if !slices.ContainsFunc(x.After.EventsAfter(x.Before.LastEvent(), 0), func(e state.Event) bool { return e.Name == o.Job && e.Object == "job" }) && after.State != o.State {
			j.violate(x, "no event says that occurrence %s was %s, and is %s", o.ID, o.State, after.State)
		}
	}
}

// cause says whether a host of a witness is in trouble, was shortly before an entry, or has not the room in a state.
func (j *agendaJudge) cause(x quota.Applied, in *state.Snapshot, host string, o *state.Occurrence) bool {
	h, ok := in.Host(host)
	if !ok || h.Lost.Proof != "" || h.Cordoned || h.Drain.State != "" {
		return true
	}
	j.s.runs.mu.Lock()
	defer j.s.runs.mu.Unlock()
	if slices.ContainsFunc(j.s.runs.troubled[host], func(t time.Time) bool { return x.Command.At.Sub(t).Abs() < 15*time.Second }) {
		return true
	}
	for _, at := range []time.Time{x.Command.At, later(o.Start, x.Command.At), o.End.Add(-time.Second)} {
		if r := deficitOf(in, host, at, x.Command.At, true); r.CPU > 1e-9 || r.Memory > 0 {
			return true
		}
	}
	return false
}

// restored: what was saved of periodic work is there again.
func (j *agendaJudge) restored(x quota.Applied) {
	text := func(s *state.Snapshot) string {
		var runs []*state.Run
		s.EachRun(func(r *state.Run) bool { runs = append(runs, r); return true })
		out, err := json.Marshal([]any{s.PeriodicJobs(), s.Agenda(), runs})
		if err != nil {
			return err.Error()
		}
		return string(out)
	}
	is := text(x.After)
	if !slices.ContainsFunc(j.saved, func(s *state.Snapshot) bool { return text(s) == is }) {
		j.violate(x, "a restore brought back other periodic work than was saved (%d states): %s", len(j.saved), is)
	}
	j.s.count("periodic: restores compared")
}

// Variants that are broken on purpose, by wrappers: the checks of periodic work must find each of them.
func TestBrokenAgenda(t *testing.T) {
	for _, c := range []struct {
		variant broken
		found   string // a part of what must be found
	}{
		{withoutAgenda, "lacks"},
		{forgetsAgenda, "is gone"},
		{keepsRunsWaiting, "waits in its slot"},
	} {
		t.Run(c.variant.name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= 10; seed++ {
				o := defaults(seed)
				somePeriodicWork(&o)
				o.broken, o.verbose, o.unhealed = c.variant, *verbose, true
				for at := 30 * time.Second; at < long; at += time.Minute {
					o.script = append(o.script, step{at, "transfer", nil})
				}
				o.script = append([]step{{0, "random", nil}}, o.script...)
				r := play(t, o)
				for _, v := range r.violations {
					if strings.Contains(v, c.found) {
						t.Logf("found with seed %d: %.300s", seed, v)
						return
					}
				}
				t.Logf("seed %d: %d other violations %.600s", seed, len(r.violations), strings.Join(r.violations, "\n"))
			}
			t.Error("10 seeds did not find it")
		})
	}
}

// 1. The leader admits what waits as if nothing were reserved.
var withoutAgenda = broken{name: "admission without the agenda", leading: func(ctx context.Context, p *serving) {
	for wait(ctx, time.Second) == nil {
		snap := p.store.Snapshot()
		var saved bytes.Buffer
		blind := state.New()
		if snap.Save(&saved) != nil || blind.Restore(&saved) != nil {
			continue
		}
		var drop state.AgendaPut
		for _, o := range blind.Snapshot().Agenda() {
			drop.Drop = append(drop.Drop, o.ID)
		}
		if len(drop.Drop) == 0 {
			continue
		}
		drop.Basis = snap.Index()
		entry, err := state.Encode(state.KindAgenda, time.Now(), drop)
		if err != nil || blind.Apply(snap.Index()+1, entry) != nil {
			continue
		}
		for n, vc := range admission.Queue(blind.Snapshot()) {
			ids := 0
			env := placement.Env{Now: time.Now(), NewID: func() string { ids++; return fmt.Sprintf("blind-%d-%d-%d", snap.Index(), n, ids) }}
			if plan := admission.Admit(blind.Snapshot(), vc.ID, env); plan != nil {
				plan.Basis = snap.Index()
				propose(ctx, p.node.Apply, state.KindPlan, plan)
				break
			}
		}
	}
}}

// 2. A new leader begins with an empty agenda.
var forgetsAgenda = broken{name: "a leader forgets the agenda", leading: func(ctx context.Context, p *serving) {
	snap := p.store.Snapshot()
	drop := state.AgendaPut{Basis: snap.Index()}
	for _, o := range snap.Agenda() {
		drop.Drop = append(drop.Drop, o.ID)
	}
	if len(drop.Drop) > 0 {
		propose(ctx, p.node.Apply, state.KindAgenda, drop)
	}
}}

// 3. Runs wait in the queue though their slots are open.
var keepsRunsWaiting = broken{name: "runs are kept waiting", log: func(_ *sim, l leader.Log) leader.Log { return reluctant{l} }}

type reluctant struct{ leader.Log }

func (l reluctant) Apply(ctx context.Context, entry []byte) (uint64, error, error) { //nolint:staticcheck // leader.Log says so
	cmd, body, err := state.Decode(entry)
	plan, is := body.(*state.Plan)
	switch {
	case err != nil || !is || plan.Occurrence == "":
	case plan.Verb == "admitted":
		_ = wait(ctx, 3*time.Second)
		return 0, state.ErrConflict, nil
	default:
		vc := *plan.VC
		vc.Admitted, vc.QueuedAt = false, cmd.At
		plan.VC, plan.VMs, plan.Allocations, plan.AffectedHosts, plan.Occurrence, plan.Verb = &vc, nil, nil, nil, "", "queued"
		if entry, err = state.Encode(cmd.Kind, cmd.At, plan); err != nil {
			return 0, nil, err
		}
	}
	return l.Log.Apply(ctx, entry)
}
