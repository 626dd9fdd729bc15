package control

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"evenkeel/cluster/loop"
	"evenkeel/cluster/state"
)

// wakesPerPeriod is how many evaluations of needs there may be between two regular ones, where a VM is short of memory or CPU.
const wakesPerPeriod = 6

// reportEvery is after how many periods the leader records what rightsizing did, so that the next leader goes on from there.
const reportEvery = 10

// RightsizingStatus is the present status of rightsizing.
type RightsizingStatus struct {
	Settings    state.RightsizingSettings // with defaults
	EvaluatedAt time.Time                 // zero: not yet, since this server began to lead
	Reclaimed   state.Resources           // by the last look: in force, or in shadow mode what would be
	VMs         []loop.Recommendation
	Hours       []state.RightsizingHour // oldest first; by this leader, and what earlier leaders reported
	Waiting     []string                // VMs that were preempted and wait for room, by name
	Admission   AdmissionStatus
}

// RightsizingStats are counted since the server began to lead.
type RightsizingStats struct {
	Mode                         state.RightsizingMode
	Reclaimed                    state.Resources
	VMs, UnderPressure, Excluded int
	Preempted                    int
	ShortCPU, ShortMemory        float64 // VM-minutes
	Margins                      [len(boldnesses)]MarginStatus
	Quality                      float64 // below 0: not known
}

// rightsizing is what the leader remembers of needs besides the state.
type rightsizing struct {
	wake  chan struct{} // a VM is short of memory or CPU
	again atomic.Uint64 // counts the looks that found VMs to be started again

	mu          sync.Mutex
	estimates   map[string]forecastOf // by VM id
	since       time.Time             // the term began
	begun       bool                  // a term began: the goroutine that looks forgets
	evaluatedAt time.Time
	last        loop.Rightsizing
	hours       []state.RightsizingHour // oldest first; those that differ from the log, or are not in it, have no id
	epoch       uint64                  // of the state that they were read from
	saved       time.Time               // when they were last written to the log
	total       RightsizingStats
	margin      admissionMargin
}

// startTerm begins a term with the hours that are in the log.
func (x *rightsizing) startTerm(now time.Time, s *state.Snapshot) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.estimates, x.since, x.begun, x.evaluatedAt, x.last, x.total = map[string]forecastOf{}, now, true, time.Time{}, loop.Rightsizing{}, RightsizingStats{}
	x.hours, x.saved = s.RightsizingHours(), now
	meta, _ := s.Meta()
	x.epoch = meta.Epoch
	x.margin.startTerm()
}

// estimated says whether a VM's estimated need is less than was declared.
func estimated(s *state.Snapshot, id string) bool {
	vm, _ := s.VM(id)
	vc, _ := s.VC(vm.VC)
	g, _ := vc.GroupOf(vm)
	return g.Estimated > 0
}

// rightsizeOn evaluates the needs of VMs until ctx ends.
func (c *Control) rightsizeOn(ctx context.Context) {
	x := loop.Rightsizer{Period: c.o.Period}
	sooner := c.o.Period / wakesPerPeriod
	wake := c.rightsizing.wake
	for timer := time.NewTimer(c.o.Period); ; {
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-wake:
			timer.Stop()
		}
		if err := c.rightsize(ctx, &x); err != nil && ctx.Err() == nil && !errors.Is(err, ErrNoLeader) && !errors.Is(err, state.ErrConflict) {
			c.log.Warn("rightsizing", "error", err)
		}
		timer.Reset(sooner) // VMs that are short now are evaluated again no sooner
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
			timer.Reset(c.o.Period - sooner)
		}
	}
}

// rightsize evaluates needs once, and proposes the changes.
func (c *Control) rightsize(ctx context.Context, x *loop.Rightsizer) error {
	if !c.o.Log.Leads() {
		return ErrNoLeader
	}
	s := c.o.State.Snapshot()
	meta, ok := s.Meta()
	if !ok || meta.RecoveryFreeze.On() {
		return nil
	}
	set := meta.Settings.Rightsizing.WithDefaults()
	in := c.observations(s, x)
	out := x.Evaluate(s, in)
	if c.waitsAgain(s, in.Now) || set.Mode == state.RightsizingOn && s.AnyQueued() { // room follows what is seen, besides the state
		c.rightsizing.again.Add(1)
		defer c.wakeLoop()
	}
	var err error
	if !out.Command.Empty() {
		c.log.Debug("rightsize", "needs", len(out.Command.Needs), "targets", len(out.Command.Targets), "text", out.Command.Text)
		err = c.propose(ctx, state.KindRightsize, out.Command)
	}
	gone := 0
	for _, p := range out.Preempt {
		plan := loop.Preempt(c.o.State.Snapshot(), p, c.env())
		if plan == nil || err != nil {
			continue
		}
		c.log.Info("preempt", "text", plan.Text)
		if err = c.propose(ctx, state.KindPlan, plan); err == nil {
			gone += len(plan.VMs)
		}
	}
	c.rightsizing.note(in.Now, c.o.Period, s, out, gone)
	return errors.Join(err, c.reportHours(ctx, s, in.Now))
}

// waitsAgain says whether a VM that was preempted may start again.
func (c *Control) waitsAgain(s *state.Snapshot, now time.Time) bool {
	found := false
	s.EachVM(func(vm *state.VM) bool {
		found = loop.ComesBack(vm, now)
		return !found
	})
	return found
}

// reportHours proposes the hours of rightsizing now and then.
func (c *Control) reportHours(ctx context.Context, s *state.Snapshot, now time.Time) error {
	x := &c.rightsizing
	hours := x.unsaved(now, reportEvery*c.o.Period)
	if len(hours) == 0 {
		return nil
	}
	if err := c.propose(ctx, state.KindRightsizingReport, state.RightsizingReport{Hours: hours}); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range x.hours { // nothing was noted meanwhile: the goroutine that notes hours is the one that writes them
		x.hours[i].ID = "reported"
	}
	x.saved = now
	return nil
}

// unsaved returns the hours that differ from those in the log; none if the log was written less than every ago.
func (x *rightsizing) unsaved(now time.Time, every time.Duration) []state.RightsizingHour {
	x.mu.Lock()
	defer x.mu.Unlock()
	if d := now.Sub(x.saved); d >= 0 && d < every { // below 0 where the clock was set back
		return nil
	}
	return slices.DeleteFunc(slices.Clone(x.hours), func(h state.RightsizingHour) bool { return h.ID != "" })
}

// hour returns the hour of what rightsizing does now, in that mode.
func (x *rightsizing) hour(now time.Time, mode state.RightsizingMode) *state.RightsizingHour {
	from := now.Truncate(time.Hour)
	same := func(h state.RightsizingHour) bool { return h.Mode == mode && h.From.Equal(from) }
	if !slices.ContainsFunc(x.hours, same) {
		x.hours = append(x.hours, state.RightsizingHour{From: from, Mode: mode})
		slices.SortStableFunc(x.hours, func(a, b state.RightsizingHour) int { return a.From.Compare(b.From) }) // another leader's clock may be ahead
		x.hours = slices.Delete(x.hours, 0, max(0, len(x.hours)-state.RightsizingHours))
	}
	if i := slices.IndexFunc(x.hours, same); i >= 0 {
		return &x.hours[i]
	}
	return &state.RightsizingHour{} // older than all that are kept
}

// note adds the result of an evaluation to the hour.
func (x *rightsizing) note(now time.Time, period time.Duration, s *state.Snapshot, out loop.Rightsizing, gone int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if meta, _ := s.Meta(); meta.Epoch != x.epoch { // a restored state has hours of its own
		x.epoch, x.hours = meta.Epoch, s.RightsizingHours()
	}
	over := 0.0
	if !x.evaluatedAt.IsZero() {
		over = min(now.Sub(x.evaluatedAt).Minutes(), 2)
	}
	x.evaluatedAt, x.last = now, out
	x.margin.observe(&out, now, period)
	t := &x.total
	t.Mode, t.Reclaimed, t.VMs, t.UnderPressure, t.Excluded = out.Mode, out.Reclaimed, len(out.VMs), 0, 0
	t.Preempted += gone
	for _, v := range out.VMs {
		if v.UnderPressure {
			t.UnderPressure++
		}
		if v.Excluded != "" {
			t.Excluded++
		}
	}
	if out.Mode == state.RightsizingOff {
		return
	}
	h := x.hour(now, out.Mode)
	h.ID = ""
	h.Preempted += gone
	h.VMs += over * float64(len(out.VMs))
	if all := h.Minutes + over; all > 0 {
		h.Average.CPU += (out.Reclaimed.CPU - h.Average.CPU) * over / all
		h.Average.Memory += int64(float64(out.Reclaimed.Memory-h.Average.Memory) * over / all)
		h.Minutes = all
	}
	for _, v := range out.VMs {
		if v.ShortCPU > 0 {
			h.ShortCPU += over
			t.ShortCPU += over
		}
		if underMemoryPressure(&v, out.Mode) {
			h.ShortMemory += over
			t.ShortMemory += over
		}
		if v.ShortMemory > h.WorstMemory || v.ShortMemory == h.WorstMemory && v.ShortCPU > h.WorstCPU {
			h.WorstVM = v.Name
		}
		h.WorstCPU, h.WorstMemory = max(h.WorstCPU, v.ShortCPU), max(h.WorstMemory, v.ShortMemory)
	}
}

// Rightsizing returns the present status of rightsizing. Only the leader has it.
func (c *Control) Rightsizing(ctx context.Context) (RightsizingStatus, error) {
	s, err := c.before(ctx, "rightsizing")
	if err != nil {
		return RightsizingStatus{}, err
	}
	meta, _ := s.Meta()
	out := RightsizingStatus{Settings: meta.Settings.Rightsizing.WithDefaults()}
	s.EachVM(func(vm *state.VM) bool {
		if vm.PreemptedAt > 0 && vm.Goal == state.GoalStop {
			out.Waiting = append(out.Waiting, vm.Name)
		}
		return true
	})
	out.Admission = c.admission(s)
	x := &c.rightsizing
	x.mu.Lock()
	defer x.mu.Unlock()
	out.EvaluatedAt, out.Reclaimed, out.VMs = x.evaluatedAt, x.last.Reclaimed, append(out.VMs, x.last.VMs...)
	out.Hours = append(out.Hours, x.hours...)
	return out, nil
}

// RightsizingStats returns the counts of a server that leads.
func (c *Control) RightsizingStats() RightsizingStats {
	c.rightsizing.mu.Lock()
	defer c.rightsizing.mu.Unlock()
	out, p := c.rightsizing.total, c.rightsizing.margin.margin()
	out.Quality = p.Quality
	for i, text := range boldnesses {
		out.Margins[i] = MarginStatus{Aggressiveness: text, Factor: p.Of(text), MarginSettings: loop.MarginFor(text)}
	}
	return out
}

// recommendations returns what the last evaluation found for VMs, by id.
func (x *rightsizing) recommendations() map[string]loop.Recommendation {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make(map[string]loop.Recommendation, len(x.last.VMs))
	for _, v := range x.last.VMs {
		out[v.VM] = v
	}
	return out
}
