package state_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"evenkeel/cluster/state"
)

// movePlanOf makes a running plan of moves, each as VM, source, target.
func movePlanOf(s *state.Snapshot, id string, moves ...[3]string) state.MovePlan {
	p := state.MovePlan{ID: id, Kind: state.MovesRebalance, State: state.MovesRunning, Basis: s.Index(), Budget: 10 * gib}
	for _, m := range moves {
		vm, _ := s.VM(m[0])
		p.Steps = append(p.Steps, state.MoveStep{VM: m[0], VMName: vm.Name, VC: vm.VC, Group: vm.Group, From: m[1], To: m[2],
			Bytes: gib, Allotment: 2 * gib, Reason: "more room there", State: state.StepWaiting})
		p.Bytes += gib
	}
	return p
}

// put a plan again, with its steps changed by f.
func (c *cluster) put(t failer, id string, f func(p *state.MovePlan)) error {
	t.Helper()
	p, ok := c.Snapshot().MovePlan(id)
	if !ok {
		t.Fatalf("no move plan %s", id)
	}
	p.Steps = slices.Clone(p.Steps)
	f(&p)
	return c.apply(t, state.KindMovePlan, state.MovePlanPut{Plan: p, Version: p.ModifyIndex})
}

func prepare(steps ...int) func(p *state.MovePlan) {
	return func(p *state.MovePlan) {
		for _, i := range steps {
			p.Steps[i].State = state.StepPreparing
		}
	}
}

// withMoves adds to a log what there is about moves.
func withMoves(t *testing.T, k *cluster) {
	t.Helper()
	m, _ := k.Snapshot().Meta()
	s := m.Settings
	s.Moves = state.MoveSettings{Mode: state.MovesPropose, Period: 1, MinResidency: 2, CoolDown: 3, StabilizationWindow: 4, MinGain: 0.2, IdleBelow: 0.3,
		MaxBytes: gib, PerHost: 1, Total: 2, Bandwidth: 1000, AutoConverge: true, PostCopy: true, CopyStorage: true, Deadline: 5, OnJoin: true}
	k.must(t, state.KindSettings, state.SettingsPut{Settings: s, Version: m.SettingsIndex})
	k.must(t, state.KindHostReport, hostReport("h7", 8, 16*gib))
	k.must(t, state.KindHostReport, hostReport("h8", 8, 16*gib))
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "mover", 1, gib, "h7", "h7"))
	for i := range 2 {
		k.must(t, state.KindVMReport, report("h7", fmt.Sprintf("vm-mover-%d", i), 1, state.Running))
	}
	p := movePlanOf(k.Snapshot(), "mp-1", [3]string{"vm-mover-0", "h7", "h8"}, [3]string{"vm-mover-1", "h7", "h8"})
	p.State, p.By, p.Text, p.Seconds, p.MinYieldBefore, p.MinYieldAfter, p.AverageYieldBefore, p.AverageYieldAfter = state.MovesProposed, "ann", "try", 9, 0.5, 0.75, 0.6, 0.8
	p.UpperBound, p.Effort, p.Reason = 0.9, 1000, "2 moves bring 0.5 to 0.75"
	p.Steps[1].After, p.Steps[1].Staging, p.Steps[1].CopyStorage, p.Steps[1].Begins, p.Steps[1].Seconds = []int{0}, true, true, 4, 5
	k.must(t, state.KindMovePlan, state.MovePlanPut{Plan: p, Operation: &state.Operation{ID: "op-mp", Kind: "rebalance", Name: "mp-1", MovePlan: "mp-1"},
		Remembered: &state.Remembered{Key: "moves", Fingerprint: "f", Operation: "op-mp"}})
	if err := k.put(t, "mp-1", func(p *state.MovePlan) { p.State = state.MovesRunning; prepare(0)(p) }); err != nil {
		t.Fatal(err)
	}
	open := state.Move{VM: "vm-mover-0", Generation: 1, To: "h8", Open: true, Text: "more room there", ID: "mg-1", Plan: "mp-1", Bytes: gib, MaxBytes: 2 * gib,
		Options: state.MoveOptions{Bandwidth: 7, AutoConverge: true, PostCopy: true, CopyStorage: true, Deadline: 60_000}}
	k.must(t, state.KindMove, open)
	vm, _ := k.Snapshot().VM("vm-mover-0")
	k.must(t, state.KindMove, state.Move{VM: vm.ID, Generation: 1, To: "h8", Arrived: true, Move: k.migration(vm.ID).Open, Bytes: gib / 2, DowntimeMs: 12})
	k.must(t, state.KindMigrationReport, state.MigrationReport{ID: "mg-1", Bytes: gib, DowntimeMs: 12})
	open.VM, open.ID, open.Step = "vm-mover-1", "mg-2", 1
	k.must(t, state.KindMove, open)
	k.must(t, state.KindMigrationAbort, state.MigrationAbort{ID: "mg-2", Reason: "ann: wait"})
	vm, _ = k.Snapshot().VM("vm-mover-1")
	k.must(t, state.KindMove, state.Move{VM: vm.ID, Generation: 1, To: "h8", Move: k.migration(vm.ID).Open, Bytes: gib / 4, Text: "given up"})
	drain := state.HostDrain{Host: "h7", Drain: state.Drain{State: state.DrainRunning, Since: start, Deadline: start.Add(time.Hour), MaxBytes: 5 * gib, OnBlocked: "stop",
		By: "ann", Reason: "fan", Text: "1 VM left", Plan: "mp-2", Moved: 3},
		Operation: &state.Operation{ID: "op-drain", Kind: "drain", Name: "h7", Host: "h7"}}
	out := movePlanOf(k.Snapshot(), "mp-2", [3]string{"vm-mover-1", "h7", "h8"})
	out.Kind, out.Host = state.MovesDrain, "h7"
	drain.MovePlan = &state.MovePlanPut{Plan: out, Supersedes: []string{"mp-1"}}
	k.must(t, state.KindDrain, drain)
	h, _ := k.Snapshot().Host("h7")
	k.must(t, state.KindDrain, state.HostDrain{Host: "h7", Version: h.Drain.Index})
	room := movePlanOf(k.Snapshot(), "mp-3")
	room.Kind, room.VC, room.State = state.MovesRoom, "vc-waits", state.MovesDone
	k.must(t, state.KindMovePlan, state.MovePlanPut{Plan: room})
}

// The test checks three things: whether the VM is charged twice while a step prepares, what is reported to which host when a
// move ends, and the sums at an end.
func TestMovePlan(t *testing.T) {
	k := small(t, 2)
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "a", 1, gib, "h1", "h1"))
	for i := range 2 {
		k.must(t, state.KindVMReport, report("h1", fmt.Sprintf("vm-a-%d", i), 1, state.Running))
	}
	p := movePlanOf(k.Snapshot(), "mp-1", [3]string{"vm-a-0", "h1", "h2"}, [3]string{"vm-a-1", "h1", "h2"})
	k.must(t, state.KindMovePlan, state.MovePlanPut{Plan: p})
	if err := k.apply(t, state.KindMovePlan, state.MovePlanPut{Plan: p}); !errors.Is(err, state.ErrConflict) {
		t.Errorf("a plan recorded twice: %v", err)
	}
	if err := k.put(t, "mp-1", prepare(0)); err != nil {
		t.Fatal(err)
	}
	if h, _ := k.Snapshot().Host("h2"); h.Version != k.Snapshot().Index() {
		t.Error("what is planned on an older snapshot does not see that a VM is expected")
	}
	if to := k.Snapshot().Preparing(); len(to) != 1 || to["vm-a-0"] != "h2" {
		t.Errorf("expected: %v", to)
	}
	open := state.Move{VM: "vm-a-0", Generation: 1, To: "h2", Open: true, ID: "mg-1", Plan: "mp-1", Bytes: gib, MaxBytes: 2 * gib}
	k.must(t, state.KindMove, open)
	opened := k.Snapshot().Index()
	if err := k.apply(t, state.KindMove, open); !errors.Is(err, state.ErrConflict) {
		t.Errorf("a step begun twice: %v", err)
	}
	if m, ok := k.Snapshot().MigrationOf("vm-a-0"); !ok || m.ID != "mg-1" || m.Open != opened || m.From != "h1" || m.To != "h2" {
		t.Errorf("migration: %+v", m)
	}
	if p, _ := k.Snapshot().MovePlan("mp-1"); p.Steps[0].State != state.StepMoving || p.Steps[0].Migration != "mg-1" || p.Steps[0].Since != opened {
		t.Errorf("step: %+v", p.Steps[0])
	}
	k.must(t, state.KindMove, state.Move{VM: "vm-a-0", Generation: 1, To: "h2", Arrived: true, Move: opened, Bytes: 100})
	for range 2 { // the source's last word comes late, and twice
		k.must(t, state.KindMigrationReport, state.MigrationReport{ID: "mg-1", Bytes: 700, DowntimeMs: 5})
	}
	s := k.Snapshot()
	if p, _ := s.MovePlan("mp-1"); p.Steps[0].State != state.StepDone || p.BytesMoved != 700 {
		t.Errorf("plan: %+v", p)
	}
	if m, _ := s.Migration("mg-1"); m.State != state.MigrationDone || m.BytesMoved != 700 || m.DowntimeMs != 5 || m.EndedAt.IsZero() {
		t.Errorf("migration: %+v", m)
	}
	if got := s.ProgressOf(state.Operation{MovePlan: "mp-1"}, nil); got.State != state.OpPending || got.Done != 1 || got.Total != 2 {
		t.Errorf("progress: %+v", got)
	}

	open.VM, open.ID, open.Step = "vm-a-1", "mg-2", 1
	k.must(t, state.KindMove, open)
	k.must(t, state.KindMigrationAbort, state.MigrationAbort{ID: "mg-2", Reason: "ann"})
	vm, _ := k.Snapshot().VM("vm-a-1")
	k.must(t, state.KindMove, state.Move{VM: "vm-a-1", Generation: 1, To: "h2", Move: k.migration(vm.ID).Open, Bytes: 50, Text: "given up"})
	s = k.Snapshot()
	if m, _ := s.Migration("mg-2"); m.State != state.MigrationAborted || m.Error != "given up" {
		t.Errorf("migration: %+v", m)
	}
	if p, _ := s.MovePlan("mp-1"); p.Steps[1].State != state.StepFailed || p.BytesMoved != 750 {
		t.Errorf("plan: %+v", p)
	}
	if err := k.put(t, "mp-1", func(p *state.MovePlan) { p.State = state.MovesFailed; p.Reason = "no way" }); err != nil {
		t.Fatal(err)
	}
	if err := k.put(t, "mp-1", func(p *state.MovePlan) { p.State = state.MovesRunning }); !errors.Is(err, state.ErrConflict) {
		t.Errorf("a plan that ended goes on: %v", err)
	}
	if p, _ := k.Snapshot().MovePlan("mp-1"); p.EndedAt.IsZero() || len(k.Snapshot().RunningMovePlans()) != 0 {
		t.Errorf("plan: %+v", p)
	}
}

// A move that ends with its host ends its migration and its step.
func TestMoveEndsWithItsHost(t *testing.T) {
	k := small(t, 2)
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "a", 1, gib, "h1"))
	k.must(t, state.KindVMReport, report("h1", "vm-a-0", 1, state.Running))
	k.must(t, state.KindMovePlan, state.MovePlanPut{Plan: movePlanOf(k.Snapshot(), "mp-1", [3]string{"vm-a-0", "h1", "h2"})})
	k.must(t, state.KindMove, state.Move{VM: "vm-a-0", Generation: 1, To: "h2", Open: true, ID: "mg-1", Plan: "mp-1"})
	for _, h := range []string{"h1", "h2"} {
		k.must(t, state.KindHostLost, state.HostLost{Host: h, Proof: state.ProofOperator, Text: "burnt", Basis: k.Snapshot().Index()})
	}
	if vm, _ := k.Snapshot().VM("vm-a-0"); vm.Phase != state.Lost || k.migration("vm-a-0").Open != 0 {
		t.Errorf("VM: %+v", vm)
	}
	if m, _ := k.Snapshot().Migration("mg-1"); m.State != state.MigrationFailed {
		t.Errorf("migration: %+v", m)
	}
	if p, _ := k.Snapshot().MovePlan("mp-1"); p.Steps[0].State != state.StepFailed {
		t.Errorf("step: %+v", p.Steps[0])
	}
}

// A host with a drain takes no VMs, and only the end of its drain opens it.
func TestDrain(t *testing.T) {
	k := small(t, 1)
	k.must(t, state.KindDrain, state.HostDrain{Host: "h1", Drain: state.Drain{State: state.DrainRunning, Reason: "fan"}})
	h, _ := k.Snapshot().Host("h1")
	if !h.Cordoned || h.CordonReason != "drain: fan" || h.Drain.Index == 0 {
		t.Errorf("host: %+v", h)
	}
	if err := k.apply(t, state.KindHostCordon, state.HostCordon{Host: "h1"}); !errors.Is(err, state.ErrConflict) {
		t.Errorf("uncordoned while it is emptied: %v", err)
	}
	if err := k.apply(t, state.KindDrain, state.HostDrain{Host: "h1", Version: h.Drain.Index - 1}); !errors.Is(err, state.ErrConflict) {
		t.Errorf("a drain that was changed meanwhile: %v", err)
	}
	op := state.Operation{Kind: "drain", Host: "h1"}
	if p := k.Snapshot().ProgressOf(op, nil); p.State != state.OpPending {
		t.Errorf("progress: %+v", p)
	}
	k.must(t, state.KindDrain, state.HostDrain{Host: "h1", Version: h.Drain.Index, Drain: state.Drain{State: state.DrainDone}})
	if p := k.Snapshot().ProgressOf(op, nil); p.State != state.OpDone {
		t.Errorf("progress: %+v", p)
	}
	h, _ = k.Snapshot().Host("h1")
	k.must(t, state.KindDrain, state.HostDrain{Host: "h1", Version: h.Drain.Index})
	if h, _ := k.Snapshot().Host("h1"); h.Cordoned || h.Drain != (state.Drain{}) {
		t.Errorf("host: %+v", h)
	}
}

// Settings are changed as a whole, on what they were.
func TestSettings(t *testing.T) {
	k := small(t, 1)
	m, _ := k.Snapshot().Meta()
	s := m.Settings
	s.Moves.Mode = state.MovesOff
	k.must(t, state.KindSettings, state.SettingsPut{Settings: s, Version: m.SettingsIndex})
	if m, _ := k.Snapshot().Meta(); m.Settings.Moves.Mode != state.MovesOff {
		t.Errorf("settings: %+v", m.Settings)
	}
	if err := k.apply(t, state.KindSettings, state.SettingsPut{Settings: s, Version: m.SettingsIndex}); !errors.Is(err, state.ErrConflict) {
		t.Errorf("made on older ones: %v", err)
	}
	s.Moves.Period = -1
	m, _ = k.Snapshot().Meta()
	if err := k.apply(t, state.KindSettings, state.SettingsPut{Settings: s, Version: m.SettingsIndex}); !errors.Is(err, state.ErrInvalid) {
		t.Errorf("a period of -1: %v", err)
	}
	d := state.MoveSettings{}.WithDefaults()
	if d.Mode != state.MovesAuto || d.Period.Duration() != 10*time.Minute || d.PerHost != 2 || d.Concurrent(3) != 8 || d.Concurrent(100) != 25 || d.Link() != 125e6 || d.Budget() != 75e9 {
		t.Errorf("defaults: %+v", d)
	}
}

// The past of moves is bounded.
func TestOldMovesAreForgotten(t *testing.T) {
	k := small(t, 2)
	for i := range 205 {
		p := state.MovePlan{ID: fmt.Sprintf("mp-%04d", i), Kind: state.MovesRebalance, State: state.MovesDone}
		if i == 0 {
			p.State = state.MovesRunning
		}
		k.must(t, state.KindMovePlan, state.MovePlanPut{Plan: p})
	}
	rows := k.Snapshot().MovePlans()
	if len(rows) > 201 || rows[0].ID != "mp-0000" || rows[1].ID == "mp-0001" {
		t.Errorf("%d plans, from %s and %s on", len(rows), rows[0].ID, rows[1].ID)
	}
}

// The source's last report is final, whether it comes before that of the target or after it, and whichever counted more.
func TestSourceReports(t *testing.T) {
	for _, early := range []bool{true, false} {
		k := small(t, 2)
		k.must(t, state.KindPlan, planOf(k.Snapshot(), "a", 1, gib, "h1"))
		k.must(t, state.KindVMReport, report("h1", "vm-a-0", 1, state.Running))
		k.must(t, state.KindMove, state.Move{VM: "vm-a-0", Generation: 1, To: "h2", Open: true, ID: "mg-1", MaxBytes: 2 * gib})
		open := k.Snapshot().Index()
		reported := state.MigrationReport{ID: "mg-1", Bytes: 90, DowntimeMs: 5}
		if early {
			k.must(t, state.KindMigrationReport, reported)
		}
		k.must(t, state.KindMove, state.Move{VM: "vm-a-0", Generation: 1, To: "h2", Arrived: true, Move: open, Bytes: 100, DowntimeMs: 5})
		if !early {
			k.must(t, state.KindMigrationReport, reported)
		}
		if m, _ := k.Snapshot().Migration("mg-1"); !m.Reported || m.State != state.MigrationDone || m.BytesMoved != 100 {
			t.Errorf("early %v: %+v", early, m)
		}
	}
}

// The changes of steps are written without the steps, and give the same result.
func TestChangesOfStepsAreShort(t *testing.T) {
	const steps = 300
	whole, short := small(t, 2), small(t, 2)
	rows := make([][3]string, steps)
	for i := range rows {
		rows[i] = [3]string{fmt.Sprintf("vm-%d", i), "h1", "h2"}
	}
	for _, k := range []*cluster{whole, short} {
		k.must(t, state.KindMovePlan, state.MovePlanPut{Plan: movePlanOf(k.Snapshot(), "mp-1", rows...)})
	}
	old, _ := whole.Snapshot().MovePlan("mp-1")
	b := state.MovePlanPut{Plan: old, Version: old.ModifyIndex}
	b.Plan.Steps = slices.Clone(old.Steps)
	b.Plan.Steps[7].State, b.Plan.Steps[7].Text = state.StepSkipped, "the VM is gone"
	b.Plan.Steps[9].State = state.StepPreparing
	b.Plan.Reason = "so it is"
	s := b.Shorter(old)
	if data, err := json.Marshal(s); err != nil || len(data) > 2000 || len(s.Changes) != 2 {
		t.Errorf("%d bytes, %d changes, %v", len(data), len(s.Changes), err)
	}
	whole.must(t, state.KindMovePlan, b)
	short.must(t, state.KindMovePlan, s)
	a, _ := whole.Snapshot().MovePlan("mp-1")
	z, _ := short.Snapshot().MovePlan("mp-1")
	if d := cmp.Diff(a, z); d != "" || z.Steps[9].Since == 0 {
		t.Errorf("whole and by changes (-+):\n%s", d)
	}
	for what, f := range map[string]func(b *state.MovePlanPut){
		"another target": func(b *state.MovePlanPut) { b.Plan.Steps[3].To = "h9" },
		"a step more":    func(b *state.MovePlanPut) { b.Plan.Steps = append(b.Plan.Steps, b.Plan.Steps[0]) },
		"an older plan":  func(b *state.MovePlanPut) { b.Version-- },
		"no step":        func(b *state.MovePlanPut) { b.Plan.State = state.MovesStopped },
	} {
		b := state.MovePlanPut{Plan: z, Version: z.ModifyIndex}
		b.Plan.Steps = slices.Clone(z.Steps)
		if what != "no step" {
			b.Plan.Steps[1].State = state.StepFailed
		}
		f(&b)
		if s := b.Shorter(z); len(s.Changes) != 0 || len(s.Plan.Steps) != len(b.Plan.Steps) {
			t.Errorf("%s: said by changes", what)
		}
	}
	for what, b := range map[string]state.MovePlanPut{
		"no such step":    {Plan: state.MovePlan{ID: "mp-1", State: state.MovesRunning}, Version: z.ModifyIndex, Changes: []state.StepChange{{steps, state.StepDone, ""}}},
		"a step below 0":  {Plan: state.MovePlan{ID: "mp-1", State: state.MovesRunning}, Version: z.ModifyIndex, Changes: []state.StepChange{{-1, state.StepDone, ""}}},
		"no such state":   {Plan: state.MovePlan{ID: "mp-1", State: state.MovesRunning}, Version: z.ModifyIndex, Changes: []state.StepChange{{0, "gone", ""}}},
		"steps as well":   {Plan: z, Version: z.ModifyIndex, Changes: []state.StepChange{{0, state.StepDone, ""}}},
		"of a plan to be": {Plan: state.MovePlan{ID: "mp-2", State: state.MovesRunning}, Changes: []state.StepChange{{0, state.StepDone, ""}}},
	} {
		b.Plan.Kind = state.MovesRebalance
		if err := short.apply(t, state.KindMovePlan, b); !errors.Is(err, state.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
