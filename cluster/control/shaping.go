package control

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"evenkeel/cluster/loop"
	"evenkeel/cluster/state"
)

// urgentLooks at needs there may be between two others, where somebody is short of something.
const urgentLooks = 6

// keptHours of what shaping did, or would have done.
const keptHours = 7 * 24

// ShapingHour is what shaping did in an hour, or in the shadow would have done. VM-minutes count each VM for each minute.
type ShapingHour struct {
	From    time.Time
	Mode    state.ShapingMode
	Minutes float64         // that were looked at
	Average state.Resources // reclaimed, of what was declared
	VMs     float64         // VM-minutes
	// VM-minutes in which a VM used more than it would have been given, or, where that was in force, was held back by it or
	// short of memory; and the worst of them.
	ShortCPU, ShortMemory float64
	WorstCPU              float64 // cores
	WorstMemory           int64   // bytes
	WorstVM               string
	Preempted             int
}

// ShapingStatus is how shaping stands.
type ShapingStatus struct {
	Settings  state.ShapingSettings // with defaults
	Looked    time.Time             // zero: not yet, since this server began to lead
	Reclaimed state.Resources       // by the last look: in force, or in the shadow what would be
	VMs       []loop.Shaped
	Hours     []ShapingHour // oldest first; since this server began to lead
	Waiting   []string      // VMs that were preempted and wait for room, by name
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
	hours     []ShapingHour
	total     ShapingFigures
	doubts    doubts
}

func (x *shapes) begin(now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.estimates, x.since, x.begun, x.looked, x.last, x.hours, x.total = map[string]forecastOf{}, now, true, time.Time{}, loop.Shaping{}, nil, ShapingFigures{}
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
	c.shapes.note(in.Now, c.o.Period, out, gone)
	return err
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

// note what a look found.
func (x *shapes) note(now time.Time, period time.Duration, out loop.Shaping, gone int) {
	x.mu.Lock()
	defer x.mu.Unlock()
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
	from := now.Truncate(time.Hour)
	if n := len(x.hours); n == 0 || !x.hours[n-1].From.Equal(from) || x.hours[n-1].Mode != out.Mode {
		x.hours = append(x.hours, ShapingHour{From: from, Mode: out.Mode})
		if len(x.hours) > keptHours {
			x.hours = append(x.hours[:0], x.hours[len(x.hours)-keptHours:]...)
		}
	}
	h := &x.hours[len(x.hours)-1]
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
