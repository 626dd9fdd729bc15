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

// urgentLooks at needs there may be between two others, where somebody is short of something.
const urgentLooks = 6

// tellEvery so many periods the leader tells what shaping did, so that the next leader goes on from there.
const tellEvery = 10

// ShapingStatus is how shaping stands.
type ShapingStatus struct {
	Settings  state.ShapingSettings // with defaults
	Looked    time.Time             // zero: not yet, since this server began to lead
	Reclaimed state.Resources       // by the last look: in force, or in the shadow what would be
	VMs       []loop.Shaped
	Hours     []state.ShapingHour // oldest first; by this leader, and what others told before
	Waiting   []string            // VMs that were preempted and wait for room, by name
	Admission AdmissionStatus
}

// ShapingFigures are counted since the server began to lead.
type ShapingFigures struct {
	Mode                  state.ShapingMode
	Reclaimed             state.Resources
	VMs, Pressed, Alone   int
	Preempted             int
	ShortCPU, ShortMemory float64 // VM-minutes
	Penalties             [len(boldnesses)]PenaltyStatus
	Quality               float64 // below 0: not known
}

// shapes is what the leader remembers of needs besides the state.
type shapes struct {
	urge  chan struct{} // somebody is short of something
	again atomic.Uint64 // counts the looks that found VMs to be started again

	mu        sync.Mutex
	estimates map[string]forecastOf // by VM id
	since     time.Time             // the term began
	begun     bool                  // a term began: the goroutine that looks forgets
	looked    time.Time
	last      loop.Shaping
	hours     []state.ShapingHour // oldest first; those that the log was not told as they are have no id
	epoch     uint64              // of the state that they were read from
	saved     time.Time           // when they were last told to the log
	total     ShapingFigures
	doubts    doubts
}

// begin a term, with the hours that were told before.
func (x *shapes) begin(now time.Time, s *state.Snapshot) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.estimates, x.since, x.begun, x.looked, x.last, x.total = map[string]forecastOf{}, now, true, time.Time{}, loop.Shaping{}, ShapingFigures{}
	x.hours, x.saved = s.ShapingHours(), now
	meta, _ := s.Meta()
	x.epoch = meta.Epoch
	x.doubts.begin()
}

// estimated: less than was declared is thought to be what a VM needs.
func estimated(s *state.Snapshot, id string) bool {
	vm, _ := s.VM(id)
	vc, _ := s.VC(vm.VC)
	g, _ := vc.GroupOf(vm)
	return g.Estimated > 0
}

// shapeOn looks at what VMs need until ctx ends.
func (c *Control) shapeOn(ctx context.Context) {
	x := loop.Shaper{Period: c.o.Period}
	urgent := c.o.Period / urgentLooks
	urge := c.shapes.urge
	for timer := time.NewTimer(c.o.Period); ; {
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-urge:
			timer.Stop()
		}
		if err := c.shape(ctx, &x); err != nil && ctx.Err() == nil && !errors.Is(err, ErrNoLeader) && !errors.Is(err, state.ErrConflict) {
			c.log.Warn("shaping", "error", err)
		}
		timer.Reset(urgent) // who is short now is looked at again no sooner
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
			timer.Reset(c.o.Period - urgent)
		}
	}
}

// shape looks once, and proposes what was found.
func (c *Control) shape(ctx context.Context, x *loop.Shaper) error {
	if !c.o.Log.Leads() {
		return ErrNoLeader
	}
	s := c.o.State.Snapshot()
	meta, ok := s.Meta()
	if !ok || meta.Hold.On() {
		return nil
	}
	set := meta.Settings.Shaping.WithDefaults()
	in := c.sighting(s, x)
	out := x.Look(s, in)
	if c.waitsAgain(s, in.Now) || set.Mode == state.ShapingOn && s.SomebodyWaits() { // room follows what is seen, besides the state
		c.shapes.again.Add(1)
		defer c.rouse()
	}
	var err error
	if !out.Command.Empty() {
		c.log.Debug("shape", "needs", len(out.Command.Needs), "targets", len(out.Command.Targets), "text", out.Command.Text)
		err = c.propose(ctx, state.KindShape, out.Command)
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
	c.shapes.note(in.Now, c.o.Period, s, out, gone)
	return errors.Join(err, c.tellHours(ctx, s, in.Now))
}

// waitsAgain: a VM that was preempted may start again.
func (c *Control) waitsAgain(s *state.Snapshot, now time.Time) bool {
	found := false
	s.EachVM(func(vm *state.VM) bool {
		found = loop.ComesBack(vm, now)
		return !found
	})
	return found
}

// tellHours of what shaping did, now and then.
func (c *Control) tellHours(ctx context.Context, s *state.Snapshot, now time.Time) error {
	x := &c.shapes
	hours := x.unsaved(now, tellEvery*c.o.Period)
	if len(hours) == 0 {
		return nil
	}
	if err := c.propose(ctx, state.KindShapingTold, state.ShapingTold{Hours: hours}); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range x.hours { // nothing was noted meanwhile: who notes is who tells
		x.hours[i].ID = "told"
	}
	x.saved = now
	return nil
}

// unsaved are the hours that the log was not told as they are, if it is so long ago that it was told any.
func (x *shapes) unsaved(now time.Time, every time.Duration) []state.ShapingHour {
	x.mu.Lock()
	defer x.mu.Unlock()
	if d := now.Sub(x.saved); d >= 0 && d < every { // below 0 where the clock was set back
		return nil
	}
	return slices.DeleteFunc(slices.Clone(x.hours), func(h state.ShapingHour) bool { return h.ID != "" })
}

// hour of what shaping did, in that mode.
func (x *shapes) hour(now time.Time, mode state.ShapingMode) *state.ShapingHour {
	from := now.Truncate(time.Hour)
	same := func(h state.ShapingHour) bool { return h.Mode == mode && h.From.Equal(from) }
	if !slices.ContainsFunc(x.hours, same) {
		x.hours = append(x.hours, state.ShapingHour{From: from, Mode: mode})
		slices.SortStableFunc(x.hours, func(a, b state.ShapingHour) int { return a.From.Compare(b.From) }) // another leader's clock may be ahead
		x.hours = slices.Delete(x.hours, 0, max(0, len(x.hours)-state.ShapingHours))
	}
	if i := slices.IndexFunc(x.hours, same); i >= 0 {
		return &x.hours[i]
	}
	return &state.ShapingHour{} // older than all that are kept
}

// note what a look found.
func (x *shapes) note(now time.Time, period time.Duration, s *state.Snapshot, out loop.Shaping, gone int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if meta, _ := s.Meta(); meta.Epoch != x.epoch { // a restored state has hours of its own
		x.epoch, x.hours = meta.Epoch, s.ShapingHours()
	}
	over := 0.0
	if !x.looked.IsZero() {
		over = min(now.Sub(x.looked).Minutes(), 2)
	}
	x.looked, x.last = now, out
	x.doubts.observe(&out, now, period)
	t := &x.total
	t.Mode, t.Reclaimed, t.VMs, t.Pressed, t.Alone = out.Mode, out.Reclaimed, len(out.VMs), 0, 0
	t.Preempted += gone
	for _, v := range out.VMs {
		if v.Pressed {
			t.Pressed++
		}
		if v.Alone != "" {
			t.Alone++
		}
	}
	if out.Mode == state.ShapingOff {
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
		if shortOfMemory(&v, out.Mode) {
			h.ShortMemory += over
			t.ShortMemory += over
		}
		if v.ShortMemory > h.WorstMemory || v.ShortMemory == h.WorstMemory && v.ShortCPU > h.WorstCPU {
			h.WorstVM = v.Name
		}
		h.WorstCPU, h.WorstMemory = max(h.WorstCPU, v.ShortCPU), max(h.WorstMemory, v.ShortMemory)
	}
}

// Shaping is how it stands. Of the leader only.
func (c *Control) Shaping(ctx context.Context) (ShapingStatus, error) {
	s, err := c.before(ctx, "shaping")
	if err != nil {
		return ShapingStatus{}, err
	}
	meta, _ := s.Meta()
	out := ShapingStatus{Settings: meta.Settings.Shaping.WithDefaults()}
	s.EachVM(func(vm *state.VM) bool {
		if vm.PreemptedAt > 0 && vm.Goal == state.GoalStop {
			out.Waiting = append(out.Waiting, vm.Name)
		}
		return true
	})
	out.Admission = c.admission(s)
	x := &c.shapes
	x.mu.Lock()
	defer x.mu.Unlock()
	out.Looked, out.Reclaimed, out.VMs = x.looked, x.last.Reclaimed, append(out.VMs, x.last.VMs...)
	out.Hours = append(out.Hours, x.hours...)
	return out, nil
}

// ShapingFigures of a server that leads.
func (c *Control) ShapingFigures() ShapingFigures {
	c.shapes.mu.Lock()
	defer c.shapes.mu.Unlock()
	out, p := c.shapes.total, c.shapes.doubts.penalty()
	out.Quality = p.Quality
	for i, word := range boldnesses {
		out.Penalties[i] = PenaltyStatus{Aggressiveness: word, Factor: p.Of(word), PenaltySettings: loop.PenaltyFor(word)}
	}
	return out
}

// shaped is what the last look found of VMs, by id.
func (x *shapes) shaped() map[string]loop.Shaped {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make(map[string]loop.Shaped, len(x.last.VMs))
	for _, v := range x.last.VMs {
		out[v.VM] = v
	}
	return out
}
