package moves_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/scheduler/rebalance"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// mover carries plans out as the leader does, on hosts that carry out their orders some time later.
type mover struct {
	*scheduling.Cluster
	caps        map[string]map[string]float64 // by host and VM: in force
	synced      map[string]uint64
	refused     map[string]int
	unavailable map[string]string
	late        time.Duration
}

func newMover(c *scheduling.Cluster) *mover {
	m := &mover{Cluster: c, caps: map[string]map[string]float64{}, synced: map[string]uint64{}, refused: map[string]int{}, unavailable: map[string]string{}}
	for _, h := range c.Snapshot().Hosts() {
		m.sync(h.Name)
	}
	return m
}

// sync puts in force on a host what it is to do. The caps of VMs that move stay.
func (m *mover) sync(host string) {
	s := m.Snapshot()
	now := map[string]float64{}
	for _, vm := range append(s.VMsOn(host), s.VMsMovingTo(host)...) {
		if !vm.ConsumesResources() {
			continue
		}
		vc, _ := s.VC(vm.VC)
		g, _ := vc.GroupOf(vm)
		now[vm.ID] = g.Allocation
		if vm.MovingTo != "" || vm.Phase == state.Stopping {
			now[vm.ID] = vm.Frozen
		}
	}
	m.caps[host], m.synced[host] = now, s.Index()
}

func (m *mover) check(what string) {
	m.T.Helper()
	s := m.Snapshot()
	for _, h := range s.Hosts() {
		sum := 0.0
		for _, c := range m.caps[h.Name] {
			sum += c
		}
		for _, vm := range s.VMsMovingTo(h.Name) { // it may come at any moment, with the cap that it has
			if _, known := m.caps[h.Name][vm.ID]; !known {
				sum += m.caps[vm.Host][vm.ID]
			}
		}
		if l := s.LoadOf(h.Name); sum > h.Usable().CPU*(1+1e-9) || l.CPU > h.Usable().CPU*(1+1e-9) || l.Taken() > h.Usable().Memory {
			m.T.Fatalf("%s: host %s: caps of %v cores, load %+v, of %+v: %v", what, h.Name, sum, l, h.Usable(), m.caps[h.Name])
		}
	}
	for _, p := range s.MovePlans() {
		sent := int64(0)
		for _, mg := range s.MigrationsOf(p.ID) {
			sent += mg.BytesMoved
		}
		if p.Budget >= 0 && sent > p.Budget {
			m.T.Fatalf("%s: plan %s sent %d bytes of %d", what, p.ID, sent, p.Budget)
		}
	}
}

func (m *mover) execute() moves.Execution {
	env := m.Env()
	env.Now, env.Unavailable = env.Now.Add(m.late), m.unavailable
	return moves.Execution{Env: env, SyncedUpTo: func(h string) uint64 { return m.synced[h] }, Synced: func(h string) uint64 { return m.synced[h] },
		UnavailableFor: func(string) time.Duration { return time.Hour },
		Refused:        func(plan string, step int) (int, string) { return m.refused[fmt.Sprint(plan, step)], "refused" }}
}

// step takes the actions that are due, and returns whether there were any.
func (m *mover) step() bool {
	m.T.Helper()
	did := false
	for _, action := range moves.Next(m.Snapshot(), m.execute()) {
		if action.String() == "nothing" {
			m.T.Fatalf("an act that is none")
		}
		did = true
		var err error
		switch {
		case action.Put != nil:
			err = m.Put(state.KindMovePlan, *action.Put)
		case action.Abort != nil:
			err = m.Put(state.KindMigrationAbort, *action.Abort)
		case action.Open != nil:
			if err = m.Put(state.KindMove, *action.Open); err != nil {
				m.refused[fmt.Sprint(action.Open.Plan, action.Open.Step)]++
			}
		case action.Replan != nil:
			s := m.Snapshot()
			f := moves.NewFleet(s, m.execute().Env, moves.Observation{}, moves.Options{Supersedes: []string{action.Replan.Plan.ID}, Pinned: action.Replan.Pinned})
			instead, planErr := rebalance.Plan(f, moves.Left(s, action.Replan.Plan), 0.01, false)
			if planErr != nil {
				m.T.Fatalf("plan again: %v", planErr)
			}
			next := moves.Replanned(action.Replan.Plan, instead, action.Replan.Why)
			if len(instead.Steps) == 0 {
				next.State = state.MovesFailed
			}
			err = m.Put(state.KindMovePlan, state.MovePlanPut{Plan: next, Version: action.Replan.Plan.ModifyIndex})
		}
		if err != nil && !errors.Is(err, state.ErrConflict) {
			m.T.Fatalf("%s: %v", action, err)
		}
		m.check(action.String())
	}
	if m.Reallocate() {
		did = true
	}
	return did
}

// end the move of a VM.
func (m *mover) end(vm state.VM, arrived bool, bytes int64) {
	m.T.Helper()
	from, to := vm.Host, vm.MovingTo
	mg, _ := m.Snapshot().MigrationOf(vm.ID)
	m.Must(state.KindMove, state.Move{VM: vm.ID, Generation: vm.Generation, To: to, Move: mg.Open, Arrived: arrived, Bytes: bytes, DowntimeMs: 5, Text: "so it was"})
	m.Must(state.KindMigrationReport, state.MigrationReport{ID: mg.ID, Bytes: bytes, DowntimeMs: 5})
	if arrived {
		m.caps[to][vm.ID] = m.caps[from][vm.ID]
		delete(m.caps[from], vm.ID)
	} else {
		delete(m.caps[to], vm.ID)
	}
}

func (m *mover) moving() (out []state.VM) {
	for _, vm := range m.Snapshot().VMs() {
		if vm.MovingTo != "" {
			out = append(out, vm)
		}
	}
	return out
}

// plan a re-balance and record it.
func (m *mover) plan(budget int64) (state.MovePlan, bool) {
	p, err := rebalance.Plan(moves.NewFleet(m.Snapshot(), m.Env(), moves.Observation{}, moves.Options{}), budget, 0.1, false)
	if err != nil {
		m.T.Fatalf("%v", err)
	}
	if len(p.Steps) == 0 {
		return p, false
	}
	sum := int64(0)
	for _, s := range p.Steps {
		sum += s.Allotment
	}
	if budget >= 0 && sum > budget {
		m.T.Fatalf("allotments sum to %d of %d", sum, budget)
	}
	p.ID = m.ID()
	m.Must(state.KindMovePlan, state.MovePlanPut{Plan: p})
	return p, true
}

func (m *mover) planNow(id string) state.MovePlan { p, _ := m.Snapshot().MovePlan(id); return p }

// toEnd carries a plan out, every move arriving.
func (m *mover) toEnd(id string) state.MovePlan {
	m.T.Helper()
	for range 100 {
		for m.step() {
			for _, h := range m.Snapshot().Hosts() {
				m.sync(h.Name)
			}
		}
		if p := m.planNow(id); p.State.Ended() {
			return p
		}
		for _, vm := range m.moving() {
			m.end(vm, true, 1)
		}
		for _, h := range m.Snapshot().Hosts() {
			m.sync(h.Name)
		}
	}
	m.T.Fatalf("the plan does not end: %+v", m.planNow(id))
	return state.MovePlan{}
}

// A plan of one move: what has to be there before each step of it.
func TestExecute(t *testing.T) {
	m := newMover(scheduling.Overfull(t, "a", "b"))
	p, _ := m.plan(-1)
	step := func() state.MoveStep { return m.planNow(p.ID).Steps[0] }
	m.unavailable["b"] = "does not answer"
	execution := m.execute()
	execution.UnavailableFor = func(string) time.Duration { return 0 }
	if actions := moves.Next(m.Snapshot(), execution); len(actions) != 0 {
		t.Fatalf("its target does not answer for a moment: %v", actions)
	}
	delete(m.unavailable, "b")
	m.step()
	if step().State != state.StepPreparing {
		t.Fatalf("%+v", step())
	}
	if m.step() {
		t.Fatalf("b has not put in force what it is to do: %+v", step())
	}
	m.sync("b")
	m.step()
	if step().State == state.StepMoving { // the source has nothing new to put in force: it may be at its version already
		t.Log("the source needs no word")
	}
	m.sync("a")
	m.step()
	if step().State != state.StepMoving {
		t.Fatalf("%+v", step())
	}
	if m.step() {
		t.Fatal("there is nothing to do while it moves")
	}
	m.end(m.moving()[0], true, scheduling.GiB)
	m.step()
	if p := m.planNow(p.ID); p.State.Ended() {
		t.Fatalf("the new shares are not in force: %+v", p)
	}
	m.sync("a")
	m.sync("b")
	m.step()
	if p := m.planNow(p.ID); p.State != state.MovesDone || p.BytesMoved != scheduling.GiB || p.Steps[0].State != state.StepDone {
		t.Fatalf("%+v", p)
	}
}

// What keeps a step from being made, and what becomes of its plan.
func TestExecuteTrouble(t *testing.T) {
	begun := func(t *testing.T) (*mover, string) {
		m := newMover(scheduling.Overfull(t, "a", "b"))
		p, _ := m.plan(-1)
		for m.step() {
			m.sync("a")
			m.sync("b")
		}
		return m, p.ID
	}
	for name, c := range map[string]struct {
		do    func(m *mover, id string)
		state state.MovePlanState
		text  string // in the plan's reason, or its last step's
	}{
		"the VM is deleted": {func(m *mover, id string) {
			vm := m.moving()[0]
			vc, _ := m.Snapshot().VC(vm.VC)
			m.Must(state.KindPlan, admission.Delete(m.Snapshot(), vc, m.Env()).Plan)
			if !m.step() {
				m.T.Fatalf("its move is not aborted")
			}
			if mg, _ := m.Snapshot().MigrationOf(vm.ID); mg.Abort == "" {
				m.T.Fatalf("its move is not aborted: %+v", mg)
			}
			vm, _ = m.Snapshot().VM(vm.ID)
			m.end(vm, false, 7)
		}, state.MovesDone, "so it was"},
		"an operator aborts it": {func(m *mover, id string) {
			vm := m.moving()[0]
			mg, _ := m.Snapshot().MigrationOf(vm.ID)
			m.Must(state.KindMigrationAbort, state.MigrationAbort{ID: mg.ID, Reason: "ann"})
			m.end(vm, false, 7)
		}, state.MovesDone, ""}, // the other VM moves instead
		"it fails once":   {func(m *mover, id string) { m.end(m.moving()[0], false, 7) }, state.MovesDone, ""},
		"its target goes": {func(m *mover, id string) { m.unavailable["b"] = "does not answer"; m.end(m.moving()[0], false, 7) }, state.MovesFailed, "no beneficial move"},
		"it always fails": {func(m *mover, id string) {
			for range 20 {
				for _, vm := range m.moving() {
					m.end(vm, false, 7)
				}
				for m.step() {
					m.sync("a")
					m.sync("b")
				}
			}
		}, state.MovesFailed, "so it was"},
	} {
		t.Run(name, func(t *testing.T) {
			m, id := begun(t)
			if len(m.moving()) != 1 {
				t.Fatalf("%+v", m.planNow(id))
			}
			c.do(m, id)
			p := m.planNow(id)
			for range 20 {
				if p.State.Ended() {
					break
				}
				for m.step() {
					m.sync("a")
					m.sync("b")
				}
				for _, vm := range m.moving() {
					m.end(vm, true, 1)
				}
				m.sync("a")
				m.sync("b")
				p = m.planNow(id)
			}
			text := p.Reason + p.Steps[len(p.Steps)-1].Text
			if p.State != c.state || !strings.Contains(text, c.text) {
				t.Errorf("plan is %s: %s: %+v", p.State, p.Reason, p.Steps)
			}
			if p.Tries > 3 {
				t.Errorf("planned again %d times", p.Tries)
			}
		})
	}
}

// Steps that prepare and are never opened fail, with the reason.
func TestExecuteInVain(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(m *mover)
		text string
	}{
		"the host does not enforce": {func(m *mover) { m.late = time.Hour }, "did not put the shares in force"},
		"the opening is refused": {func(m *mover) {
			for _, h := range []string{"a", "b"} {
				m.sync(h)
			}
			p := m.Snapshot().RunningMovePlans()[0]
			m.refused[fmt.Sprint(p.ID, 0)] = 100
		}, "refused"},
		"the target is closed": {func(m *mover) { m.Must(state.KindHostCordon, state.HostCordon{Host: "b", Cordoned: true}) }, "takes no VMs now"},
		"the target is lost": {func(m *mover) {
			m.Must(state.KindHostLost, state.HostLost{Host: "b", Proof: state.ProofOperator, Text: "burnt"})
		}, "burnt"},
	} {
		m := newMover(scheduling.Overfull(t, "a", "b"))
		p, _ := m.plan(-1)
		m.step()
		if s := m.planNow(p.ID).Steps[0]; s.State != state.StepPreparing {
			t.Fatalf("%s: %+v", name, s)
		}
		c.do(m)
		actions := moves.Next(m.Snapshot(), m.execute())
		for _, a := range actions {
			if a.Replan == nil || !strings.Contains(a.Replan.Why, c.text) {
				t.Errorf("%s: %v: %+v", name, a, a.Replan)
			}
		}
		if len(actions) != 1 {
			t.Errorf("%s: %v", name, actions)
		}
	}
}

// Moves wait for lanes: no more run at once than the settings allow.
func TestExecuteLanes(t *testing.T) {
	c := scheduling.NewCluster(t, "a", "b", "c", "d")
	for _, h := range []string{"b", "c", "d"} {
		c.Must(state.KindHostCordon, state.HostCordon{Host: h, Cordoned: true})
	}
	for i := range 8 {
		c.Enact("create", admission.Create(c.Snapshot(), scheduling.VC(string(rune('p'+i)), 0, scheduling.Group(1, 2, scheduling.GiB/2)), c.Env()).Plan)
	}
	c.Run()
	for _, h := range []string{"b", "c", "d"} {
		c.Must(state.KindHostCordon, state.HostCordon{Host: h})
	}
	for _, limit := range []struct{ perHost, total, want int }{{1, 0, 1}, {2, 0, 2}, {8, 3, 3}, {8, 8, 6}} {
		m, _ := c.Snapshot().Meta()
		set := state.DefaultSettings()
		set.Moves.PerHost, set.Moves.Total = limit.perHost, limit.total
		c.Must(state.KindSettings, state.SettingsPut{Settings: set, Version: m.SettingsIndex})
		mv := newMover(c)
		p, ok := mv.plan(-1)
		if !ok {
			t.Fatalf("%+v: %s", limit, p.Reason)
		}
		for mv.step() {
			for _, h := range c.Snapshot().Hosts() {
				mv.sync(h.Name)
			}
		}
		if n := len(mv.moving()); n == 0 || n > limit.want {
			t.Errorf("%+v: %d at once", limit, n)
		}
		for _, vm := range mv.moving() {
			mv.end(vm, false, 0)
		}
		now := mv.planNow(p.ID)
		now.State = state.MovesStopped
		now.Steps = state.Skipped(now.Steps, "stopped")
		c.Must(state.KindMovePlan, state.MovePlanPut{Plan: now, Version: now.ModifyIndex})
		mv.step()
	}
}

// Whatever the plan and whatever happens on the way: no host is ever beyond its memory or its CPU, by caps in force too, no plan
// sends more than its budget, and every plan ends.
func TestPlansEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts := []string{"a", "b", "c", "d"}[:rapid.IntRange(2, 4).Draw(t, "hosts")]
		c := scheduling.NewCluster(t, hosts...)
		for _, h := range hosts[1:] {
			c.Must(state.KindHostCordon, state.HostCordon{Host: h, Cordoned: rapid.Bool().Draw(t, "closed at first")})
		}
		for i := range rapid.IntRange(2, 8).Draw(t, "VCs") {
			g := scheduling.Group(rapid.IntRange(1, 3).Draw(t, "VMs"), float64(rapid.IntRange(1, 12).Draw(t, "need"))/4, int64(rapid.IntRange(1, 5).Draw(t, "memory"))*scheduling.GiB/2)
			if rapid.IntRange(1, 4).Draw(t, "rule") == 1 {
				g.Affinity.Spread = "host"
			}
			if a := admission.Create(c.Snapshot(), scheduling.VC(string(rune('p'+i)), 0, g), c.Env()); a.Plan != nil && !a.Queued {
				c.Enact("create", a.Plan)
			}
		}
		c.Run()
		for _, h := range hosts {
			c.Must(state.KindHostCordon, state.HostCordon{Host: h})
		}
		m := newMover(c)
		c.Reallocate()
		p, ok := m.plan(rapid.SampledFrom([]int64{-1, scheduling.GiB / 2, 2 * scheduling.GiB, 6 * scheduling.GiB, 20 * scheduling.GiB}).Draw(t, "budget"))
		if !ok {
			return
		}
		quiet := 0
		for range 150 {
			if m.planNow(p.ID).State.Ended() {
				break
			}
			did := m.step()
			switch event := rapid.IntRange(0, 12).Draw(t, "event"); {
			case event < 4:
				m.sync(rapid.SampledFrom(hosts).Draw(t, "syncs"))
			case event < 9 && len(m.moving()) > 0:
				vm := rapid.SampledFrom(m.moving()).Draw(t, "ends")
				mg, _ := m.Snapshot().MigrationOf(vm.ID)
				limit := mg.MaxBytes
				if limit < 0 {
					limit = scheduling.GiB
				}
				m.end(vm, rapid.IntRange(1, 4).Draw(t, "arrives") > 1, int64(rapid.Float64Range(0, 1).Draw(t, "bytes")*float64(limit)))
			case event == 9:
				m.Must(state.KindHostCordon, state.HostCordon{Host: rapid.SampledFrom(hosts).Draw(t, "host"), Cordoned: rapid.IntRange(1, 3).Draw(t, "closed") == 1})
			case event == 10 && quiet > 3:
				vcs := m.Snapshot().VCs()
				vc := rapid.SampledFrom(vcs).Draw(t, "VC")
				m.Must(state.KindPlan, admission.Stop(m.Snapshot(), vc, m.Env()).Plan)
				for _, vm := range m.Snapshot().VMsOf(vc.ID) {
					if vm.MovingTo != "" {
						m.end(vm, false, 0)
						vm, _ = m.Snapshot().VM(vm.ID)
					}
					m.Must(state.KindVMReport, state.VMReport{Host: vm.Host, VMs: []state.VMStatus{{VM: vm.ID, Generation: vm.Generation, Phase: state.Stopped}}})
				}
			case event == 11:
				m.late += time.Minute
			}
			if !did {
				quiet++
			}
			m.check("event")
		}
		if now := m.planNow(p.ID); !now.State.Ended() { // nothing goes wrong any more
			for _, h := range hosts {
				m.Must(state.KindHostCordon, state.HostCordon{Host: h})
			}
			m.toEnd(p.ID)
		}
		now := m.planNow(p.ID)
		for _, step := range now.Steps {
			if !step.State.Ended() && !slices.ContainsFunc(m.moving(), func(vm state.VM) bool { return vm.ID == step.VM }) {
				t.Fatalf("plan is %s, and a step has not ended: %+v", now.State, now)
			}
		}
	})
}
