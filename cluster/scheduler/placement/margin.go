package placement

import (
	"cmp"
	"time"

	"evenkeel/cluster/state"
)

// Margin is the factor by which the estimated need of running VMs is raised where new ones are to be placed (Flex, eq. 13), by
// the aggressiveness of their estimates. With the zero value they count as estimated.
type Margin struct {
	Conservative, Balanced, Aggressive float64
	// Quality is what the factor follows: the share of evaluations of VMs, in the period before, at which a VM had what it
	// could use (eq. 14). Below 0: not known. It is only for texts.
	Quality float64
}

// Of returns the factor for estimates of that aggressiveness, at least 1.
func (p Margin) Of(aggressiveness string) float64 {
	f := p.Balanced
	switch aggressiveness {
	case state.Conservative:
		f = p.Conservative
	case state.Aggressive:
		f = p.Aggressive
	}
	return max(1, f)
}

// HostAvailability is what a host reports to be available for new VMs (Ha, eq. 5 and 6), and from what it computed that.
type HostAvailability struct {
	At        time.Time       // when it was received
	Available state.Resources // may be below 0
	Used      state.Resources // by its VMs, in its last step
	VMs       map[string]uint64
}

// Under is the margin that counts by the settings: with its stage off estimates count as they are.
func (p Margin) Under(set state.RightsizingSettings) Margin {
	if set.Runs(state.StageMargin) {
		return p
	}
	return Margin{Quality: p.Quality}
}

// Ignored says why a host's reported availability does not count; "" = it counts where needs are estimated.
func (e Env) Ignored(s *state.Snapshot, host string) string {
	meta, _ := s.Meta()
	w, reported := e.Availability[host]
	switch {
	case !meta.Settings.Rightsizing.Runs(state.StageAvailability):
		return "host availability is switched off (rightsizing.disabledStages)"
	case !reported:
		return "the host reported none"
	case e.Now.Sub(w.At) >= availabilityStale*e.period():
		return "it is of " + w.At.UTC().Format("15:04:05")
	}
	return ""
}

// HasAvailable says whether a host reports that much to be available beside all that was placed there since that report. It
// is true also where the report does not count.
func (e Env) HasAvailable(s *state.Snapshot, host string, more state.Resources) bool {
	if len(e.Availability) == 0 || e.Ignored(s, host) != "" {
		return true
	}
	w := e.Availability[host]
	h, _ := s.Host(host)
	came := func(vm *state.VM) bool {
		if vm.ConsumesResources() && w.VMs[vm.ID] != vm.Generation {
			vc, _ := s.VC(vm.VC)
			g, _ := vc.GroupOf(*vm)
			more.CPU, more.Memory = more.CPU+g.Need(), more.Memory+vm.ChargeOn(h, g).Memory
		}
		return true
	}
	s.EachVMOn(host, came)
	for _, vm := range s.VMsMovingTo(host) {
		came(&vm)
	}
	return more.CPU <= w.Available.CPU && more.Memory <= w.Available.Memory
}

func (e Env) period() time.Duration { return cmp.Or(e.Period, time.Minute) }

// MarginRules is how estimates count where new VMs are to be placed. nil: as they are.
type MarginRules struct {
	Settings state.RightsizingSettings
	Margin   Margin // as it counts by the settings
}

// RulesFor returns how estimates count beside that VC; nil if no needs are estimated in this cluster, or that is not in force,
// for any VC that runs or waits, or for this one.
func (p Margin) RulesFor(s *state.Snapshot, vc *state.VC) *MarginRules {
	meta, _ := s.Meta()
	set := meta.Settings.Rightsizing.WithDefaults()
	if set.Mode != state.RightsizingOn {
		return nil
	}
	is := vc != nil && set.Estimates(vc)
	s.EachVC(func(x *state.VC) bool {
		is = is || set.Estimates(x)
		return !is
	})
	if !is {
		return nil
	}
	return &MarginRules{set, p.Under(set)}
}

// CPU is the CPU as which each VM of a group counts, cores. nil: its estimated need.
func (d *MarginRules) CPU(vc *state.VC, g state.Group) float64 {
	if d == nil || g.Estimated <= 0 || !d.Settings.Estimates(vc) {
		return g.Need()
	}
	return max(g.Need(), min(d.Margin.Of(d.Settings.AggressivenessOf(vc))*g.Need(), g.CPU))
}

// Memory is the memory as which a VM counts at least, bytes. nil: its balloon target.
func (d *MarginRules) Memory(vc *state.VC, g state.Group, vm state.VM) int64 {
	if d == nil || vm.Target <= 0 || !d.Settings.Estimates(vc) {
		return vm.Due(g)
	}
	return int64(min(d.Margin.Of(d.Settings.AggressivenessOf(vc))*float64(vm.Due(g)), float64(g.Memory)))
}
