package control

import (
	"maps"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/loop"
	"evenkeel/cluster/state"
)

// The age of what a host reports is counted from when the report came in, by the leader's clock: the time of a host's clock
// proves nothing. Within one report its times may be compared, as they are by one clock.

// forecastOf is the forecast of a VM, as it came in.
type forecastOf struct {
	agent.Estimate
	until time.Time // Until, by the leader's clock
}

// hostNow returns the time by the host's clock when it reported: VMs are measured right before that. Without a sample that time
// is not known, and what is reported counts as new. The host itself watches how old forecasts get (agent.Ahead.Trusted).
func hostNow(r agent.Report) (now time.Time) {
	for _, m := range r.Samples {
		if m.At.After(now) {
			now = m.At
		}
	}
	return now
}

// observe takes in what a host forecasts, and wakes the rightsizing goroutine where a VM is short of memory or CPU.
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
	on := meta.Settings.Rightsizing.WithDefaults().Mode == state.RightsizingOn // else no VM's need is estimated: with many VMs at their caps asking for each takes time
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

// observations returns what the leader knows besides the state, and forgets what it knew of VMs that are gone.
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
