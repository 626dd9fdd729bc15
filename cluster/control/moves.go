package control

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/scheduler/rebalance"
	"evenkeel/cluster/state"
)

// moving is what the leader remembers of moves besides the state.
type moving struct {
	on atomic.Bool // some plan is carried out

	// Of the loop's goroutine alone.
	refused          map[string]refusal   // openings that were refused on apply, by plan and step
	unavailableSince map[string]time.Time // hosts that are out
	seen             rebalance.Trigger
	evaluatedAt      time.Time         // whether moves would help
	wake             time.Time         // when the loop is to look again though nothing changes; zero: never
	weighed          map[string]uint64 // plans that were found to help still, and the last change of needs at that time
	tried            map[string]uint64 // VCs that room was looked for, and the placement index at that time
}

type refusal struct {
	times int
	why   string
}

// retryMoves is how often the loop evaluates running plans though nothing changes: deadlines may pass.
const retryMoves = time.Second

func newMoving() moving {
	return moving{refused: map[string]refusal{}, unavailableSince: map[string]time.Time{}, tried: map[string]uint64{}, weighed: map[string]uint64{}}
}

// due says when the loop must look again though nothing changed.
func (m *moving) due(now time.Time) <-chan time.Time {
	at := m.wake
	if m.on.Load() {
		if soon := now.Add(retryMoves); at.IsZero() || at.After(soon) {
			at = soon
		}
	}
	if at.IsZero() {
		return nil
	}
	if !at.After(now) {
		m.wake = time.Time{} // once: that evaluation says when to look next
	}
	return time.After(max(at.Sub(now), debounce))
}

// moveOf returns the move of a VM as the agent of one of its hosts is to carry it out.
func moveOf(s *state.Snapshot, meta state.Meta, g *state.Group, vm *state.VM, host string) *agent.Move {
	m, _ := s.MigrationOf(vm.ID)
	to, _ := s.Host(vm.MovingTo)
	o := m.Options
	out := &agent.Move{Open: m.Open, To: vm.MovingTo, URI: to.MigrateURI, Incoming: vm.Host != host, SourceLost: m.SourceLost > 0,
		Wait: !m.Ready, Permit: m.Permit, Paused: m.Paused, Left: m.Left > 0, MaxBytes: max(0, m.MaxBytes), Bandwidth: o.Bandwidth, Deadline: o.Deadline.Duration(),
		AutoConverge: o.AutoConverge, PostCopy: o.PostCopy, CopyStorage: o.CopyStorage, Abort: m.Abort}
	for _, pool := range meta.Settings.SharedPools {
		out.SharedDisk = out.SharedDisk || pool == g.Disk.Pool
	}
	return out
}

// sentBytes returns the bytes of a move whose end a status reports: never less than was reported before.
func sentBytes(s *state.Snapshot, st agent.Status) int64 {
	m, _ := s.MigrationOpened(st.VM, st.Move)
	return max(st.Bytes, m.BytesMoved)
}

// recordSent proposes what migrations sent, by their source's last report. It may come after the VM arrived.
func (c *Control) recordSent(ctx context.Context, s *state.Snapshot, r agent.Report) error {
	for _, st := range r.Statuses {
		if st.Phase != agent.PhaseLeft || st.Move == 0 {
			continue
		}
		m, ok := s.MigrationOpened(st.VM, st.Move)
		if !ok || m.From != r.Host || m.Reported && st.Bytes <= m.BytesMoved && st.Downtime.Milliseconds() <= m.DowntimeMs {
			continue
		}
		body := state.MigrationReport{ID: m.ID, Bytes: st.Bytes, DowntimeMs: st.Downtime.Milliseconds()}
		if err := c.propose(ctx, state.KindMigrationReport, body); err != nil && !errors.Is(err, state.ErrNotFound) {
			return err
		}
	}
	return nil
}

// carryOn takes the next steps of running move plans, and of moves that are to end.
func (t *term) carryOn(ctx context.Context, s *state.Snapshot, env placement.Env) (bool, error) {
	m := &t.moves
	for host := range m.unavailableSince {
		if env.Unavailable[host] == "" {
			delete(m.unavailableSince, host)
		}
	}
	for host := range env.Unavailable {
		if _, known := m.unavailableSince[host]; !known {
			m.unavailableSince[host] = env.Now
		}
	}
	m.on.Store(len(s.RunningMovePlans()) > 0)
	if !m.on.Load() {
		clear(m.refused)
		clear(m.weighed)
	} else if acted, err := t.weigh(ctx, s, env); acted || err != nil {
		return acted, err
	}
	key := func(plan string, step int) string { return fmt.Sprintf("%s/%d", plan, step) }
	live := func(host string) HostLive {
		out, _ := t.reports.of(host)
		return out
	}
	actions := moves.Next(s, moves.Execution{Env: env, Routes: t.reports.routes(),
		SyncedUpTo:     func(host string) uint64 { return live(host).Shrunk },
		Synced:         func(host string) uint64 { return live(host).Synced },
		UnavailableFor: func(host string) time.Duration { return env.Now.Sub(m.unavailableSince[host]) },
		Refused:        func(plan string, step int) (int, string) { r := m.refused[key(plan, step)]; return r.times, r.why },
	})
	acted := false
	for _, action := range actions {
		t.c.log.Info("moves", "act", action.String())
		var err error
		switch {
		case action.Put != nil:
			old, _ := s.MovePlan(action.Put.Plan.ID)
			err = t.propose(ctx, state.KindMovePlan, action.Put.Shorter(old))
		case action.Abort != nil:
			err = t.propose(ctx, state.KindMigrationAbort, action.Abort)
		case action.Replan != nil:
			err = t.replan(ctx, s, env, action.Replan)
		case action.Open != nil:
			err = t.propose(ctx, state.KindMove, action.Open)
			if k := key(action.Open.Plan, action.Open.Step); errors.Is(err, state.ErrConflict) {
				m.refused[k] = refusal{m.refused[k].times + 1, err.Error()}
			}
		}
		switch {
		case err == nil:
			acted = true
		case !errors.Is(err, state.ErrConflict): // else the state moved on, and that wakes us
			return acted, err
		}
	}
	return acted, nil
}

// weigh evaluates running re-balances again where needs have changed since: one whose remaining moves do not help any more is
// planned again.
func (t *term) weigh(ctx context.Context, s *state.Snapshot, env placement.Env) (bool, error) {
	needs := moves.Needs(s)
	meta, _ := s.Meta()
	for _, p := range s.RunningMovePlans() {
		begin := func(st state.MoveStep) bool { return st.State == state.StepWaiting || st.State == state.StepPreparing }
		if p.Kind != state.MovesRebalance || len(env.Awaited) > 0 || needs <= max(p.Basis, t.moves.weighed[p.ID]) || meta.RecoveryFreeze.On() || !slices.ContainsFunc(p.Steps, begin) {
			continue
		}
		f := moves.NewFleet(s, env, t.reports.fleet(s), moves.Options{Supersedes: []string{p.ID}, CopyStorage: meta.Settings.Moves.CopyStorage})
		without, with, err := f.Outcome(p)
		if err != nil {
			return false, err
		}
		if t.moves.weighed[p.ID] = needs; with > without*(1+1e-6) {
			continue
		}
		why := fmt.Sprintf("needs have changed: the moves to come would bring the minimum yield from %.4f to %.4f", without, with)
		err = t.replan(ctx, s, env, &moves.Replan{Plan: p, Why: why})
		if errors.Is(err, state.ErrConflict) {
			delete(t.moves.weighed, p.ID)
			return false, nil
		}
		return err == nil, err
	}
	return false, nil
}

// replan plans again what is left of a plan some moves of which did not happen. Where nothing helps any more the plan has
// failed. While hosts are silent that could take VMs, it ends as stopped instead.
func (t *term) replan(ctx context.Context, s *state.Snapshot, env placement.Env, a *moves.Replan) error {
	meta, _ := s.Meta()
	set := meta.Settings.Moves.WithDefaults()
	o := moves.Options{Supersedes: []string{a.Plan.ID}, Pinned: a.Pinned, CopyStorage: set.CopyStorage}
	left := moves.Left(s, a.Plan)
	var instead state.MovePlan
	var err error
	switch a.Plan.Kind {
	case state.MovesRebalance:
		instead, err = rebalance.Plan(moves.NewFleet(s, env, t.reports.fleet(s), o), left, set.MinGain, false)
	case state.MovesRoom:
		if vc, ok := s.VC(a.Plan.VC); ok && vc.Goal == state.GoalRun && !vc.Admitted {
			instead, _, err = rebalance.PlanRoom(moves.NewFleet(s, env, t.reports.fleet(s), o, vc), left)
		} else {
			instead.Reason = "no VM waits for the room any more"
		}
	default:
		instead.Reason = "the caller that asked for it has to continue it"
	}
	if err != nil {
		instead.Reason = err.Error()
	}
	silent := t.failover.Unreported(s)
	if len(silent) > 0 && len(instead.Steps) == 0 && a.Plan.Kind != state.MovesDrain {
		instead.Reason += "; not counted: " + someNames(silent) + ", not heard of since this server leads"
	}
	next := moves.Replanned(a.Plan, instead, a.Why)
	failed := next.Failures > a.Plan.Failures
	if !failed {
		next.Tries = a.Plan.Tries // nothing went wrong
	}
	switch {
	case len(instead.Steps) > 0:
	case failed && (len(silent) == 0 || a.Plan.Kind == state.MovesDrain): // a drain goes on with another plan
		next.State = state.MovesFailed
	default:
		next.State = state.MovesStopped
	}
	return t.propose(ctx, state.KindMovePlan, state.MovePlanPut{Plan: next, Version: a.Plan.ModifyIndex})
}

// ask is the environment of a request: the answer to a VC that does not fit says which moves would make room for it.
func (t *term) ask() placement.Env {
	env := t.env()
	env.Advise = func(s *state.Snapshot, vc state.VC) string {
		meta, _ := s.Meta()
		set := meta.Settings.Moves.WithDefaults()
		vms := 0
		s.EachVM(func(*state.VM) bool { vms++; return true })
		if vms == 0 || vms > maxAdvised {
			return ""
		}
		f := moves.NewFleet(s, env, t.reports.fleet(s), moves.Options{CopyStorage: set.CopyStorage}, vc)
		plan, takes, err := rebalance.PlanRoom(f, -1)
		if err != nil || math.IsInf(takes, 1) || len(plan.Steps) == 0 {
			return ""
		}
		names := make([]string, 0, len(plan.Steps))
		for _, step := range plan.Steps {
			names = append(names, step.VMName+" to "+step.To)
		}
		if len(names) > 3 {
			names = append(names[:3], fmt.Sprintf("and %d more", len(plan.Steps)-3))
		}
		text := fmt.Sprintf("would fit after moving %s: %s", gibText(plan.Bytes), strings.Join(names, ", "))
		switch budget := set.Budget(); {
		case set.Mode != state.MovesAuto:
			text += "; moves are not made by themselves (see moves.mode of the cluster's settings)"
		case plan.Bytes > budget:
			text += fmt.Sprintf("; at most %s are moved at a time (see moves.maxBytes of the cluster's settings)", gibText(budget))
		}
		return text
	}
	return env
}

func gibText(bytes int64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30)) }
