package control

import (
	"maps"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/loop"
	"evenkeel/cluster/state"
)

// How old a thing is that a host told is counted from when it came in, by the leader's clock: what a host's clock shows says
// nothing. Within one report its times may be compared, as they are by one clock.

// forecastOf a VM, as it came in.
type forecastOf struct {
	agent.Estimate
	until time.Time // Until, by the leader's clock
}

// hostNow is what the host's clock showed when it reported: VMs are measured right before that. Without a sample nobody knows,
// and what is told counts as new: how old forecasts get the host watches itself (agent.Ahead.Trusted).
func hostNow(r agent.Report) (now time.Time) {
	for _, m := range r.Samples {
		if m.At.After(now) {
			now = m.At
		}
	}
	return now
}

// observe takes in what a host forecasts, and wakes who looks where somebody is short of something.
func (x *rightsizing) observe(s *state.Snapshot, r agent.Report, now time.Time) {
	x.mu.Lock()
	there := hostNow(r)
	for _, e := range r.Estimates {
		if vm, ok := s.VM(e.VM); ok && vm.Host == r.Host && vm.Generation == e.Generation && x.estimates != nil {
			x.estimates[e.VM] = forecastOf{e, now.Add(-max(0, there.Sub(e.Until)))}
		}
	}
	x.margin.heard(r.Host, r.Available, now)
	x.mu.Unlock()
	meta, _ := s.Meta()
	on := meta.Settings.Rightsizing.WithDefaults().Mode == state.RightsizingOn // else nobody's need is estimated: with many VMs at their caps asking for each takes time
	for _, m := range r.Samples {
		if m.Guest != nil && m.Guest.Pressure != "" || on && m.Cap > 0 && m.Used >= 0.95*m.Cap && estimated(s, m.VM) {
			select {
			case x.wake <- struct{}{}:
			default:
			}
			return
		}
	}
}

// observations is what the leader knows besides the state; what is known of VMs that are gone is forgotten.
func (c *Control) observations(s *state.Snapshot, x *loop.Rightsizer) loop.Observations {
	in := loop.Observations{Now: c.o.Now().UTC(), VMs: map[string]loop.VMObservation{}, Unavailable: c.unavailable(s)}
	m := &c.rightsizing
	m.mu.Lock()
	if in.Since = m.since; m.begun {
		*x, m.begun = loop.Rightsizer{Period: c.o.Period}, false
	}
	known := map[string]forecastOf{}
	s.EachVM(func(vm *state.VM) bool {
		if e, ok := m.estimates[vm.ID]; ok && e.Generation == vm.Generation {
			known[vm.ID] = e
		}
		return true
	})
	m.estimates = maps.Clone(known)
	m.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	s.EachVM(func(vm *state.VM) bool {
		live := c.live[vm.Host]
		sample, sampled := live.VMs[vm.ID]
		e, forecast := known[vm.ID]
		var see loop.VMObservation
		if forecast {
			see.Generation, see.Until, see.CPU, see.Memory = e.Generation, e.until, loop.Ahead(e.CPU), loop.Ahead(e.Memory)
		}
		if sampled && sample.Generation == vm.Generation {
			see.At, see.Cap, see.Used, see.MemoryUsed, see.Balloon = live.Sampled, sample.Cap, sample.Used, sample.Memory, sample.Balloon
			if g := sample.Guest; g != nil {
				see.Reports, see.Follows, see.Pressure = true, g.Follows, g.Pressure
			}
		}
		if forecast || sampled {
			in.VMs[vm.ID] = see
		}
		return true
	})
	return in
}
