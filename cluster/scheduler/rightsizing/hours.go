package rightsizing

import (
	"slices"
	"time"

	"evenkeel/cluster/state"
)

// Status is what the last evaluation found.
type Status struct {
	EvaluatedAt time.Time       // zero: not yet, since this server began to lead
	Reclaimed   state.Resources // in force, or in shadow mode what would be
	VMs         []Recommendation
	Hours       []state.RightsizingHour // oldest first; by this leader, and what earlier leaders reported
}

// Stats are counted since the server began to lead.
type Stats struct {
	Mode                         state.RightsizingMode
	Reclaimed                    state.Resources
	VMs, UnderPressure, Excluded int
	Preempted                    int
	ShortCPU, ShortMemory        float64 // VM-minutes
}

// hours are what rightsizing did hour by hour.
type hours struct {
	list  []state.RightsizingHour // oldest first; those that differ from the log, or are not in it, have no id
	epoch uint64                  // of the state that they were read from
	saved time.Time               // when they were last written to the log
}

func newHours(s *state.Snapshot, now time.Time) hours {
	meta, _ := s.Meta()
	return hours{s.RightsizingHours(), meta.Epoch, now}
}

// unsaved returns the hours that differ from those in the log; none if the log was written less than every ago.
func (h *hours) unsaved(now time.Time, every time.Duration) []state.RightsizingHour {
	if d := now.Sub(h.saved); d >= 0 && d < every { // below 0 where the clock was set back
		return nil
	}
	return slices.DeleteFunc(slices.Clone(h.list), func(h state.RightsizingHour) bool { return h.ID != "" })
}

// reported: all hours are in the log.
func (h *hours) reported(now time.Time) {
	for i := range h.list {
		h.list[i].ID = "reported"
	}
	h.saved = now
}

// hour returns the hour of what rightsizing does now, in that mode.
func (h *hours) hour(now time.Time, mode state.RightsizingMode) *state.RightsizingHour {
	from := now.Truncate(time.Hour)
	same := func(h state.RightsizingHour) bool { return h.Mode == mode && h.From.Equal(from) }
	if !slices.ContainsFunc(h.list, same) {
		h.list = append(h.list, state.RightsizingHour{From: from, Mode: mode})
		slices.SortStableFunc(h.list, func(a, b state.RightsizingHour) int { return a.From.Compare(b.From) }) // another leader's clock may be ahead
		h.list = slices.Delete(h.list, 0, max(0, len(h.list)-state.RightsizingHours))
	}
	if i := slices.IndexFunc(h.list, same); i >= 0 {
		return &h.list[i]
	}
	return &state.RightsizingHour{} // older than all that are kept
}

// note adds the result of an evaluation to the hour and to the counts.
func (r *Runner) note(now time.Time, s *state.Snapshot, out Result, preempted int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if meta, _ := s.Meta(); meta.Epoch != r.hours.epoch { // a restored state has hours of its own
		r.hours.epoch, r.hours.list = meta.Epoch, s.RightsizingHours()
	}
	over := 0.0
	if !r.evaluatedAt.IsZero() {
		over = min(now.Sub(r.evaluatedAt).Minutes(), 2)
	}
	r.evaluatedAt, r.last = now, out
	r.total.count(&out, over, preempted)
	if out.Mode != state.RightsizingOff {
		add(r.hours.hour(now, out.Mode), &out, over, preempted)
	}
}

// count adds an evaluation that came so many minutes after the one before.
func (t *Stats) count(out *Result, over float64, preempted int) {
	t.Mode, t.Reclaimed, t.VMs, t.UnderPressure, t.Excluded = out.Mode, out.Reclaimed, len(out.VMs), 0, 0
	t.Preempted += preempted
	for i := range out.VMs {
		v := &out.VMs[i]
		if v.UnderPressure {
			t.UnderPressure++
		}
		if v.Excluded != "" {
			t.Excluded++
		}
		if out.Mode == state.RightsizingOff {
			continue
		}
		if v.ShortCPU > 0 {
			t.ShortCPU += over
		}
		if v.UnderMemoryPressure(out.Mode) {
			t.ShortMemory += over
		}
	}
}

// add an evaluation to an hour.
func add(h *state.RightsizingHour, out *Result, over float64, preempted int) {
	h.ID = ""
	h.Preempted += preempted
	h.VMs += over * float64(len(out.VMs))
	if all := h.Minutes + over; all > 0 {
		h.Average.CPU += (out.Reclaimed.CPU - h.Average.CPU) * over / all
		h.Average.Memory += int64(float64(out.Reclaimed.Memory-h.Average.Memory) * over / all)
		h.Minutes = all
	}
	for i := range out.VMs {
		v := &out.VMs[i]
		if v.ShortCPU > 0 {
			h.ShortCPU += over
		}
		if v.UnderMemoryPressure(out.Mode) {
			h.ShortMemory += over
		}
		if v.ShortMemory > h.WorstMemory || v.ShortMemory == h.WorstMemory && v.ShortCPU > h.WorstCPU {
			h.WorstVM = v.Name
		}
		h.WorstCPU, h.WorstMemory = max(h.WorstCPU, v.ShortCPU), max(h.WorstMemory, v.ShortMemory)
	}
}

// UnderMemoryPressure says whether the VM is given less than it uses, or in shadow mode would be.
func (v *Recommendation) UnderMemoryPressure(mode state.RightsizingMode) bool {
	return v.ShortMemory > 0 || mode == state.RightsizingOn && v.UnderPressure
}

// Status returns what the last evaluation found.
func (r *Runner) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Status{EvaluatedAt: r.evaluatedAt, Reclaimed: r.last.Reclaimed, VMs: slices.Clone(r.last.VMs), Hours: slices.Clone(r.hours.list)}
}

// Stats returns the counts.
func (r *Runner) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total
}

// Recommendations returns what the last evaluation found for VMs, by id.
func (r *Runner) Recommendations() map[string]Recommendation {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string]Recommendation, len(r.last.VMs))
	for _, v := range r.last.VMs {
		out[v.VM] = v
	}
	return out
}
