package rightsizing

import (
	"time"

	"evenkeel/cluster/agent"
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

// Observe takes in what a host forecasts, and has needs evaluated soon where a VM is short of memory or CPU.
func (r *Runner) Observe(s *state.Snapshot, report agent.Report, now time.Time) {
	r.mu.Lock()
	there := hostNow(report)
	for _, e := range report.Estimates {
		if vm, ok := s.VM(e.VM); ok && vm.Host == report.Host && vm.Generation == e.Generation {
			r.forecasts[e.VM] = forecastOf{e, now.Add(-max(0, there.Sub(e.Until)))}
		}
	}
	r.mu.Unlock()
	if needsEvaluation(s, report) {
		r.soon()
	}
}

// needsEvaluation says whether a host reports a VM that is short of memory or CPU now.
func needsEvaluation(s *state.Snapshot, report agent.Report) bool {
	meta, _ := s.Meta()
	on := meta.Settings.Rightsizing.WithDefaults().Mode == state.RightsizingOn // else no VM's need is estimated: with many VMs at their caps asking for each takes time
	for _, m := range report.Samples {
		if m.Guest != nil && m.Guest.Pressure != "" || on && m.Cap > 0 && m.Used >= atCap*m.Cap && estimated(s, m.VM) {
			return true
		}
	}
	return false
}

// estimated says whether a VM's estimated need is less than was declared.
func estimated(s *state.Snapshot, id string) bool {
	vm, _ := s.VM(id)
	vc, _ := s.VC(vm.VC)
	g, _ := vc.GroupOf(vm)
	return g.Estimated > 0
}

// observations returns what the leader knows besides the state, and forgets what it knew of VMs that are gone.
func (r *Runner) observations(s *state.Snapshot) Observations {
	in := Observations{Now: r.o.Now().UTC(), Since: r.since, VMs: map[string]VMObservation{}, Unavailable: r.o.Unavailable(s)}
	measured := r.o.Measured(s)
	r.mu.Lock()
	defer r.mu.Unlock()
	known := map[string]forecastOf{}
	s.EachVM(func(vm *state.VM) bool {
		see, sampled := measured[vm.ID]
		e, forecast := r.forecasts[vm.ID]
		if forecast = forecast && e.Generation == vm.Generation; forecast {
			known[vm.ID] = e
			see.Generation, see.Until, see.CPU, see.Memory = e.Generation, e.until, Ahead(e.CPU), Ahead(e.Memory)
		}
		if forecast || sampled {
			in.VMs[vm.ID] = see
		}
		return true
	})
	r.forecasts = known
	return in
}
