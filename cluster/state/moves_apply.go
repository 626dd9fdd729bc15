package state

import (
	"fmt"
	"reflect"
	"slices"
)

// Limits of the past of moves that is kept.
const (
	keepMovePlans  = 200
	keepMigrations = 1000
)

// Move opens or closes the intent to move a VM by live migration. While it is open the VM is charged to both hosts.
type Move struct {
	VM         string `json:"vm"` // id
	Generation uint64 `json:"generation"`
	To         string `json:"to"`
	Open       bool   `json:"open"`
	Arrived    bool   `json:"arrived,omitempty"` // closing: it runs on the target
	Text       string `json:"text,omitempty"`
	// Move, closing: Migration.Open of the move that is over. Permit, closing a move whose VM stayed: the Migration.Permit that the
	// source knew when it found that it does not hand the VM over.
	Move   uint64 `json:"move,omitempty"`
	Permit uint64 `json:"permit,omitempty"`

	// ID is the id of the migration that is opened, Plan its move plan and Step its step in that plan. An opening Move has an ID.
	ID   string `json:"id,omitempty"`
	Plan string `json:"plan,omitempty"`
	Step int    `json:"step,omitempty"`
	// Bytes, opening: the bytes that the move is predicted to send; closing: those that it sent.
	Bytes      int64       `json:"bytes,omitempty"`
	MaxBytes   int64       `json:"maxBytes,omitempty"` // opening: its allotment; -1 = no bound
	DowntimeMs int64       `json:"downtimeMs,omitempty"`
	Options    MoveOptions `json:"options,omitzero"`
}

// MovePlanPut records a move plan, or its outcome.
type MovePlanPut struct {
	Plan    MovePlan `json:"plan"`
	Version uint64   `json:"version"` // ModifyIndex it must still have; 0: it is new
	// Changes are all that is to change about the steps that the plan has; Plan.Steps is empty then. A plan of hundreds of
	// steps changes that often.
	Changes []StepChange `json:"changes,omitempty"`
	// Supersedes are plans that end with this one, by id.
	Supersedes []string    `json:"supersedes,omitempty"`
	Operation  *Operation  `json:"operation,omitempty"`
	Remembered *Remembered `json:"remembered,omitempty"`
}

// StepChange is the change of one step.
type StepChange struct {
	Step  int       `json:"step"` // its place in the plan
	State StepState `json:"state"`
	Text  string    `json:"text,omitempty"`
}

// Shorter returns b for a log that has the plan old: with changes in place of the steps, if those say it all.
func (b MovePlanPut) Shorter(old MovePlan) MovePlanPut {
	if b.Version == 0 || b.Version != old.ModifyIndex || b.Plan.ID != old.ID || len(b.Plan.Steps) != len(old.Steps) {
		return b
	}
	changes := []StepChange{}
	for i, s := range b.Plan.Steps {
		was := old.Steps[i]
		if s.State != was.State || s.Text != was.Text {
			changes = append(changes, StepChange{i, s.State, s.Text})
		}
		if was.State, was.Text = s.State, s.Text; !reflect.DeepEqual(was, s) {
			return b
		}
	}
	if len(changes) == 0 {
		return b
	}
	b.Plan.Steps, b.Changes = nil, changes
	return b
}

// HostDrain begins, changes or (with the zero Drain) ends the drain of a host.
type HostDrain struct {
	Host    string `json:"host"`
	Drain   Drain  `json:"drain,omitzero"`
	Version uint64 `json:"version"` // Drain.Index that the host must still have
	// MovePlan is recorded with it.
	MovePlan   *MovePlanPut `json:"movePlan,omitempty"`
	Operation  *Operation   `json:"operation,omitempty"`
	Remembered *Remembered  `json:"remembered,omitempty"`
}

// MigrationReport is the source's report of what a migration sent. It may come after the target's report that the VM arrived.
type MigrationReport struct {
	ID         string `json:"id"`
	Bytes      int64  `json:"bytes"`
	DowntimeMs int64  `json:"downtimeMs"`
}

// MigrationAbort orders the source's agent to give the move up.
type MigrationAbort struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
}

// movePlanPut records a plan, and touches the hosts to which its steps are charged otherwise than before.
func (w *writer) movePlanPut(b *MovePlanPut) error {
	p := b.Plan
	old, exists := w.read().MovePlan(p.ID)
	switch {
	case exists && b.Version != old.ModifyIndex:
		return fmt.Errorf("move plan %s changed at index %d: %w", p.ID, old.ModifyIndex, ErrConflict)
	case !exists && b.Version != 0:
		return fmt.Errorf("move plan %s: %w", p.ID, ErrNotFound)
	case old.State.Ended() && !p.State.Ended():
		return fmt.Errorf("move plan %s is %s already: %w", p.ID, old.State, ErrConflict)
	}
	if len(b.Changes) > 0 {
		p.Steps = slices.Clone(old.Steps)
		for _, c := range b.Changes {
			if c.Step >= len(p.Steps) {
				return fmt.Errorf("move plan %s, step %d of %d: %w", p.ID, c.Step, len(p.Steps), ErrInvalid)
			}
			p.Steps[c.Step].State, p.Steps[c.Step].Text = c.State, c.Text
		}
	}
	if m, _ := w.read().Meta(); m.RecoveryFreeze.On() && p.State == MovesRunning && old.State != MovesRunning {
		return fmt.Errorf("move plan %s: held after a %s, until these hosts are heard of: %v: %w", p.ID, m.RecoveryFreeze.Reason, m.RecoveryFreeze.Pending, ErrConflict)
	}
	for _, id := range b.Supersedes {
		if o, ok := w.read().MovePlan(id); ok && !o.State.Ended() {
			o.State, o.Reason = MovesSuperseded, "move plan "+p.ID+" took its place"
			o.Steps = Skipped(o.Steps, o.Reason)
			w.putMovePlan(o)
		}
	}
	if err := w.remember(b.Operation, b.Remembered); err != nil {
		return err
	}
	if len(b.Changes) == 0 {
		p.Steps = slices.Clone(p.Steps)
	}
	p.CreateIndex, p.CreatedAt = w.index, w.at
	if exists {
		p.CreateIndex, p.CreatedAt = old.CreateIndex, old.CreatedAt
	}
	w.putMovePlan(p)
	return nil
}

// Skipped returns the steps with those that have not begun ended as skipped.
func Skipped(steps []MoveStep, why string) []MoveStep {
	steps = slices.Clone(steps)
	for i := range steps {
		if s := &steps[i]; s.State == StepWaiting || s.State == StepPreparing {
			s.State, s.Text = StepSkipped, why
		}
	}
	return steps
}

// putMovePlan writes the row, whose steps are the writer's own.
func (w *writer) putMovePlan(p MovePlan) {
	old, exists := w.read().MovePlan(p.ID)
	p.ModifyIndex = w.index
	if p.State.Ended() && p.EndedAt.IsZero() {
		p.EndedAt = w.at
	}
	was := map[string]bool{} // moves that prepare, as VM and target
	count := func(p MovePlan, f func(s *MoveStep)) {
		for i := range p.Steps {
			if s := &p.Steps[i]; p.State == MovesRunning && s.State == StepPreparing {
				f(s)
			}
		}
	}
	count(old, func(s *MoveStep) { was[s.VM+"\x00"+s.To] = true })
	for i := range p.Steps {
		if s := &p.Steps[i]; i >= len(old.Steps) || old.Steps[i].State != s.State {
			s.Since, s.At = w.index, w.at
		}
	}
	w.put(tMovePlans, &p)
	count(p, func(s *MoveStep) {
		if key := s.VM + "\x00" + s.To; !was[key] {
			w.touch(s.To)
		} else {
			delete(was, key)
		}
	})
	count(old, func(s *MoveStep) {
		if was[s.VM+"\x00"+s.To] {
			w.touch(s.To)
		}
	})
	if !exists || old.State != p.State {
		text := p.Reason
		if text == "" {
			text = fmt.Sprintf("%d moves", len(p.Steps))
		}
		w.event("plan-"+string(p.State), "plan", p.ID, "%s: %s", p.Kind, text)
	}
	if !exists {
		w.forgetMovePlans()
	}
}

// forgetMovePlans drops, of the oldest plans beyond keepMovePlans, those that ended or were only proposed.
func (w *writer) forgetMovePlans() {
	rows := w.read().MovePlans()
	for i := 0; i < len(rows) && len(rows)-keepMovePlans > i; i++ {
		if rows[i].State.Ended() || rows[i].State == MovesProposed {
			w.drop(tMovePlans, &rows[i])
		}
	}
}

func (w *writer) remember(op *Operation, r *Remembered) error {
	if op != nil {
		row := *op
		row.Index = w.index
		w.putOperation(&row)
	}
	if r != nil {
		row := *r
		if _, taken := w.read().Remembered(row.Key); taken {
			return fmt.Errorf("idempotency key %q is taken: %w", row.Key, ErrConflict)
		}
		row.At, row.Index = w.at, w.index
		w.put(tIdem, &row)
	}
	return nil
}

func (w *writer) drain(b *HostDrain) error {
	h, ok := w.read().Host(b.Host)
	if !ok {
		return fmt.Errorf("host %s: %w", b.Host, ErrNotFound)
	}
	if h.Drain.Index != b.Version {
		return fmt.Errorf("host %s: its drain changed at index %d: %w", h.Name, h.Drain.Index, ErrConflict)
	}
	old := h.Drain
	h, err := h.withDrain(b.Drain, w.index)
	if err != nil {
		return err
	}
	w.put(tHosts, &h)
	if b.MovePlan != nil {
		if err := w.movePlanPut(b.MovePlan); err != nil {
			return err
		}
	}
	if err := w.remember(b.Operation, b.Remembered); err != nil {
		return err
	}
	switch {
	case b.Drain.State == "" && old.State != "":
		if h.Cordoned {
			w.event("host-undrained", "host", h.Name, "stays cordoned, as it was before the drain%s", because(h.CordonReason))
		} else {
			w.event("host-undrained", "host", h.Name, "takes new VMs again")
		}
	case b.Drain.State != old.State:
		w.event("host-"+string(b.Drain.State), "host", h.Name, "%s%s", b.Drain.State, because(b.Drain.Text))
	}
	return nil
}

func (w *writer) move(b *Move) error {
	vm, ok := w.read().VM(b.VM)
	if !ok || vm.Generation != b.Generation {
		return fmt.Errorf("move of VM %s generation %d: %w", b.VM, b.Generation, ErrConflict)
	}
	if b.Open {
		return w.openMove(vm, b)
	}
	if vm.MovingTo == "" || vm.MovingTo != b.To {
		return fmt.Errorf("VM %s is not on its way to %s: %w", vm.Name, b.To, ErrConflict)
	}
	m, _ := w.read().MigrationOf(vm.ID)
	if err := m.mayEnd(b); err != nil {
		return err
	}
	if vm.Phase != Running && vm.Phase != Stopping {
		return fmt.Errorf("VM %s is %s: %w", vm.Name, vm.Phase, ErrConflict)
	}
	from := vm.Host
	w.endMigration(vm, outcome{arrived: b.Arrived, reported: !b.Arrived, bytes: b.Bytes, downtimeMs: b.DowntimeMs, text: b.Text})
	vm = vm.withoutMove()
	vm.ModifyIndex = w.index
	kind, text := "vm-stayed", "did not move to "+b.To
	if b.Arrived {
		vm.Host, kind, text = b.To, "vm-moved", "moved from "+from+" to "+b.To
	}
	w.put(tVMs, &vm)
	w.touch(from)
	w.touch(b.To)
	w.event(kind, "vm", vm.Name, "%s%s", text, because(b.Text))
	return nil
}

func (w *writer) openMove(vm VM, b *Move) error {
	to, ok := w.read().Host(b.To)
	meta, _ := w.read().Meta()
	switch {
	case !ok:
		return fmt.Errorf("move of VM %s: host %s: %w", vm.Name, b.To, ErrNotFound)
	case vm.Phase != Running || vm.Goal != GoalRun || vm.MovingTo != "" || vm.Host == b.To:
		return fmt.Errorf("VM %s is %s on %s: it cannot move to %s: %w", vm.Name, vm.Phase, vm.Host, b.To, ErrConflict)
	case to.Cordoned || to.Lost.Proof != "" || meta.RecoveryFreeze.On():
		return fmt.Errorf("move of VM %s: host %s takes no VMs now: %w", vm.Name, b.To, ErrConflict)
	}
	before := w.read().LoadOf(b.To)
	g, _ := mustVC(w, vm).GroupOf(vm)
	vm.MovingTo, vm.Frozen, vm.ModifyIndex = b.To, g.Allocation, w.index
	w.put(tVMs, &vm)
	if err := w.openMigration(vm, b); err != nil {
		return fmt.Errorf("move of VM %s: %w", vm.Name, err)
	}
	if err := w.checkLimits(b.To, before); err != nil {
		return fmt.Errorf("move of VM %s: %w", vm.Name, err)
	}
	w.touch(vm.Host)
	w.touch(b.To)
	w.event("vm-moving", "vm", vm.Name, "on its way from %s to %s%s", vm.Host, b.To, because(b.Text))
	return nil
}

// openMigration records a move that was just opened.
func (w *writer) openMigration(vm VM, b *Move) error {
	if _, taken := w.read().Migration(b.ID); taken {
		return fmt.Errorf("migration %s exists already: %w", b.ID, ErrConflict)
	}
	if b.Plan != "" {
		p, ok := w.read().MovePlan(b.Plan)
		switch {
		case !ok:
			return fmt.Errorf("move plan %s: %w", b.Plan, ErrNotFound)
		case p.State != MovesRunning || b.Step < 0 || b.Step >= len(p.Steps) || p.Steps[b.Step].State.Ended() || p.Steps[b.Step].State == StepMoving || p.Steps[b.Step].VM != vm.ID:
			return fmt.Errorf("move plan %s, step %d: it is not to be begun: %w", b.Plan, b.Step, ErrConflict)
		}
		p.Steps = slices.Clone(p.Steps)
		p.Steps[b.Step].State, p.Steps[b.Step].Migration = StepMoving, b.ID
		w.putMovePlan(p)
	}
	m := openedMigration(vm, b, w.at, w.index)
	w.put(tMigrations, &m)
	w.forgetMigrations()
	return nil
}

func (w *writer) forgetMigrations() {
	n := 0
	each(w.read(), func(*Migration) bool { n++; return true }, tMigrations, "id")
	if n <= keepMigrations {
		return
	}
	for _, m := range w.read().Migrations() {
		if n <= keepMigrations {
			return
		}
		if m.State != MigrationRunning {
			w.drop(tMigrations, &m)
			n--
		}
	}
}

// endMigration ends the running migration of a VM, and the step of its plan.
func (w *writer) endMigration(vm VM, end outcome) {
	if vm.MovingTo == "" {
		return
	}
	m, ok := w.read().MigrationOf(vm.ID)
	if !ok {
		return
	}
	m = m.ended(end, w.at, w.index)
	step := StepFailed
	switch {
	case end.arrived:
		step = StepDone
	case vm.Goal != GoalRun:
		step = StepSkipped // the goal is not to run any more
	}
	w.put(tMigrations, &m)
	p, ok := w.read().MovePlan(m.Plan)
	if m.Plan == "" || !ok {
		return
	}
	p.Steps = slices.Clone(p.Steps)
	p.BytesMoved += m.BytesMoved
	if m.Step < len(p.Steps) && p.Steps[m.Step].Migration == m.ID {
		p.Steps[m.Step].State, p.Steps[m.Step].Text = step, end.text
	}
	w.putMovePlan(p)
}

func (w *writer) migrationReport(b *MigrationReport) error {
	m, ok := w.read().Migration(b.ID)
	if !ok {
		return fmt.Errorf("migration %s: %w", b.ID, ErrNotFound)
	}
	next := m.sent(b.Bytes, b.DowntimeMs, w.index)
	if next == m {
		return nil
	}
	w.put(tMigrations, &next)
	if p, ok := w.read().MovePlan(m.Plan); ok && m.Plan != "" && m.State != MigrationRunning {
		p.BytesMoved += next.BytesMoved - m.BytesMoved
		p.Steps = slices.Clone(p.Steps)
		w.putMovePlan(p)
	}
	return nil
}

func (w *writer) migrationAbort(b *MigrationAbort) error {
	m, ok := w.read().Migration(b.ID)
	if !ok {
		return fmt.Errorf("migration %s: %w", b.ID, ErrNotFound)
	}
	next, err := m.aborting(b.Reason, w.index)
	if err != nil || next == m {
		return err
	}
	w.put(tMigrations, &next)
	w.event("migration-abort", "vm", m.VMName, "its move to %s is to be given up: %s", m.To, b.Reason)
	return nil
}

func (b *MovePlanPut) valid() error {
	p := &b.Plan
	if err := check("move plan", p.ID, "id", p.ID, "kind", string(p.Kind)); err != nil {
		return err
	}
	if p.State != MovesProposed && p.State != MovesRunning && !p.State.Ended() {
		return fmt.Errorf("move plan %q: state %q: %w", p.ID, p.State, ErrInvalid)
	}
	for i, s := range p.Steps {
		if err := check("move plan", p.ID, "VM", s.VM, "source", s.From, "target", s.To); err != nil {
			return err
		}
		if !s.State.known() {
			return fmt.Errorf("move plan %q, step %d: state %q: %w", p.ID, i, s.State, ErrInvalid)
		}
		if !isMemory(s.Bytes) || s.Allotment < -1 || s.Allotment > maxVMMemory {
			return fmt.Errorf("move plan %q, step %d: %d bytes, %d at most: %w", p.ID, i, s.Bytes, s.Allotment, ErrInvalid)
		}
		for _, j := range s.After {
			if j < 0 || j >= len(p.Steps) || j == i {
				return fmt.Errorf("move plan %q, step %d: after step %d: %w", p.ID, i, j, ErrInvalid)
			}
		}
	}
	if len(b.Changes) > 0 && (len(p.Steps) > 0 || b.Version == 0) {
		return fmt.Errorf("move plan %q: changes to steps, and %d steps at version %d: %w", p.ID, len(p.Steps), b.Version, ErrInvalid)
	}
	for _, c := range b.Changes {
		if c.Step < 0 || !c.State.known() {
			return fmt.Errorf("move plan %q, step %d: state %q: %w", p.ID, c.Step, c.State, ErrInvalid)
		}
	}
	return validRemembered(b.Operation, b.Remembered)
}

func validRemembered(op *Operation, r *Remembered) error {
	if op != nil {
		if err := check("operation", op.ID, "id", op.ID); err != nil {
			return err
		}
	}
	if r != nil {
		return check("idempotency key", r.Key, "key", r.Key)
	}
	return nil
}

func (b *HostDrain) valid() error {
	switch b.Drain.State {
	case "", DrainRunning, DrainDone, DrainBlocked, DrainStopped:
	default:
		return fmt.Errorf("host %q: drain %q: %w", b.Host, b.Drain.State, ErrInvalid)
	}
	if b.MovePlan != nil {
		if err := b.MovePlan.valid(); err != nil {
			return err
		}
	}
	return validRemembered(b.Operation, b.Remembered)
}

func (m Move) valid() error {
	if m.Open || m.ID != "" {
		if err := check("migration", m.ID, "id", m.ID); err != nil {
			return err
		}
	}
	if !isMemory(m.Bytes) || m.MaxBytes < -1 || m.MaxBytes > maxVMMemory || m.DowntimeMs < 0 || m.Step < 0 {
		return fmt.Errorf("move of VM %q: %d bytes, %d at most: %w", m.VM, m.Bytes, m.MaxBytes, ErrInvalid)
	}
	return nil
}
