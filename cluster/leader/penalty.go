package leader

import (
	"maps"
	"sync"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/scheduler/rightsizing"
	"evenkeel/cluster/state"
	"evenkeel/forecast"
)

// boldnesses are the degrees of aggressiveness of estimates, in order.
var boldnesses = [...]string{state.Conservative, state.Balanced, state.Aggressive}

// MarginStatus is the factor by which estimated needs of one aggressiveness count where new VMs are placed.
type MarginStatus struct {
	Aggressiveness string
	Factor         float64
	forecast.MarginSettings
}

// HostAvailability is what a host reports to be available for new VMs.
type HostAvailability struct {
	placement.HostAvailability
	Ignored string // why it counts for nothing; "" = it counts where needs are estimated
}

// AdmissionStatus is the admission margin and the headroom by which new VMs are placed.
type AdmissionStatus struct {
	InForce bool // needs are estimated, and that is in force; else it is only shown
	Margins []MarginStatus
	// Quality is the share of the observations of VMs, in the last whole period, at which a VM had what it could use, or in shadow mode
	// would have had. Below 0: not known yet.
	Quality float64
	Target  float64 // that it is to be above
	Hosts   []HostHeadroom
}

// HostHeadroom is what a host has for new VMs, and what its agent reports of that.
type HostHeadroom struct {
	admission.Headroom
	Availability placement.HostAvailability // zero: it reported none
}

// admissionMargin is the margin between estimates and what new VMs may count on. The leader keeps it; a new leader begins
// again.
type admissionMargin struct {
	mu           sync.Mutex
	availability map[string]placement.HostAvailability
	mode         state.RightsizingMode // in which the penalties were begun
	margins      [len(boldnesses)]forecast.Penalty
	quality      float64 // of the last whole period; below 0: not known
	good, all    float64 // looks at VMs in this period
	until        time.Time
}

func newAdmissionMargin() *admissionMargin {
	return &admissionMargin{availability: map[string]placement.HostAvailability{}, quality: -1}
}

// in begins the penalties again if the mode has changed: what shadow mode would have done proves nothing of what is done.
func (d *admissionMargin) in(mode state.RightsizingMode) {
	if d.mode == mode {
		return
	}
	d.mode, d.quality, d.good, d.all, d.until = mode, -1, 0, 0, time.Time{}
	for i, text := range boldnesses {
		d.margins[i], _ = forecast.NewPenalty(admission.MarginFor(text)) // of settings that a test checks
	}
}

// heard takes in the availability that a host reported.
func (d *admissionMargin) heard(host string, a *agent.Available, now time.Time) {
	if a == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.availability[host] = placement.HostAvailability{At: now, Available: state.Resources(a.Available), Used: state.Resources(a.Used), VMs: a.VMs}
}

// observe takes in the result of an evaluation, and updates the penalties once a period.
func (d *admissionMargin) observe(out *rightsizing.Result, now time.Time, period time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.in(out.Mode)
	if out.Mode == state.RightsizingOff {
		return
	}
	for i := range out.VMs {
		v := &out.VMs[i]
		d.all++
		if v.ShortCPU <= 0 && !v.UnderMemoryPressure(out.Mode) {
			d.good++
		}
	}
	switch {
	case d.until.IsZero():
		d.until = now.Add(period)
	case now.Before(d.until):
		return
	}
	d.until = now.Add(period)
	if d.all == 0 {
		return
	}
	d.quality = d.good / d.all
	d.good, d.all = 0, 0
	for i := range d.margins {
		d.margins[i].Observe(d.quality)
	}
}

// margin returns the margin as it is now.
func (d *admissionMargin) margin() placement.Margin {
	p := placement.Margin{Quality: d.quality}
	for i, into := range []*float64{&p.Conservative, &p.Balanced, &p.Aggressive} {
		*into = d.margins[i].Value()
	}
	return p
}

// withMargin adds the margin by which new VMs are placed where needs are estimated. A server that does not lead has none.
func (t *term) withMargin(s *state.Snapshot, env placement.Env) placement.Env {
	env.Period, env.Head = t.c.o.Period, t.agenda.Head()
	meta, _ := s.Meta()
	if meta.Settings.Rightsizing.WithDefaults().Mode != state.RightsizingOn || !t.c.o.Log.Leads() {
		return env
	}
	env.Margin, env.Availability = t.admissionMargin.inForce(state.RightsizingOn)
	return env
}

// inForce returns the margin and the reported availability in that mode, which may have begun since the last evaluation.
func (d *admissionMargin) inForce(mode state.RightsizingMode) (placement.Margin, map[string]placement.HostAvailability) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.in(mode)
	return d.margin(), maps.Clone(d.availability)
}

// last returns the margin as the last evaluation left it.
func (d *admissionMargin) last() placement.Margin {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.margin()
}

// reported returns the availability that hosts reported.
func (d *admissionMargin) reported() map[string]placement.HostAvailability {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.availability)
}

// admission returns the present status of admission.
func (t *term) admission(s *state.Snapshot) AdmissionStatus {
	meta, _ := s.Meta()
	set := meta.Settings.Rightsizing.WithDefaults()
	mode := set.Mode
	env := placement.Env{Now: t.c.o.Now().UTC(), Unavailable: t.failover.Unavailable(s), Period: t.c.o.Period}
	out := AdmissionStatus{InForce: mode == state.RightsizingOn, Target: forecast.QualityPenalty.Target, Quality: -1}
	if mode == state.RightsizingOff {
		env.Availability = t.admissionMargin.reported()
	} else {
		env.Margin, env.Availability = t.admissionMargin.inForce(mode)
		out.Quality, out.Margins = env.Margin.Quality, marginsOf(env.Margin.Under(set))
	}
	for _, headroom := range admission.HeadroomForNew(s, env) {
		out.Hosts = append(out.Hosts, HostHeadroom{Headroom: headroom, Availability: env.Availability[headroom.Host]})
	}
	return out
}

func marginsOf(m placement.Margin) []MarginStatus {
	out := make([]MarginStatus, len(boldnesses))
	for i, text := range boldnesses {
		out[i] = MarginStatus{Aggressiveness: text, Factor: m.Of(text), MarginSettings: admission.MarginFor(text)}
	}
	return out
}
