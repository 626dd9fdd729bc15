package control

import (
	"maps"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/loop"
	"evenkeel/cluster/state"
	"evenkeel/forecast"
)

// boldnesses of estimates, in order.
var boldnesses = [...]string{state.Conservative, state.Balanced, state.Aggressive}

// PenaltyStatus is the factor by which estimated needs of one boldness count where new VMs are placed.
type PenaltyStatus struct {
	Aggressiveness string
	Factor         float64
	forecast.PenaltySettings
}

// HostWord is what a host itself holds to be available for new VMs.
type HostWord struct {
	loop.Word
	Ignored string // why it counts for nothing; "" = it counts where needs are estimated
}

// AdmissionStatus is by what new VMs are placed.
type AdmissionStatus struct {
	InForce   bool // needs are estimated, and that is in force; else it is only shown
	Penalties []PenaltyStatus
	// Quality is the share of looks at VMs, in the last whole period, at which a VM had what it could use; in the shadow that would have. Below
	// 0: not known yet.
	Quality float64
	Target  float64 // that it is to be above
	Hosts   []HostRoom
}

// HostRoom is what a host has for new VMs, and what it says of that itself.
type HostRoom struct {
	loop.NewRoom
	Word loop.Word // zero: it told of none
}

// doubts are what estimates are not taken at their word by. The leader keeps them; a new one begins anew. All of it is guarded by shapes.mu.
type doubts struct {
	words     map[string]loop.Word
	mode      state.ShapingMode // in which the penalties were begun
	penalties [len(boldnesses)]forecast.Penalty
	quality   float64 // of the last whole period; below 0: not known
	good, all float64 // looks at VMs in this period
	until     time.Time
}

func (d *doubts) begin() {
	*d = doubts{words: map[string]loop.Word{}, quality: -1}
}

// in begins the penalties anew where the mode is another: what the shadow found of what would have been is no credit for what is.
func (d *doubts) in(mode state.ShapingMode) {
	if d.mode == mode {
		return
	}
	d.mode, d.quality, d.good, d.all, d.until = mode, -1, 0, 0, time.Time{}
	for i, word := range boldnesses {
		d.penalties[i], _ = forecast.NewPenalty(loop.PenaltyFor(word)) // of settings that a test checks
	}
}

// heard a host's word.
func (d *doubts) heard(host string, a *agent.Available, now time.Time) {
	if a == nil || d.words == nil {
		return
	}
	d.words[host] = loop.Word{At: now, Available: state.Resources(a.Available), Used: state.Resources(a.Used), VMs: a.VMs}
}

// observe what a look found, and once a period what that makes of the penalties.
func (d *doubts) observe(out *loop.Shaping, now time.Time, period time.Duration) {
	d.in(out.Mode)
	if out.Mode == state.ShapingOff {
		return
	}
	for i := range out.VMs {
		v := &out.VMs[i]
		d.all++
		if v.ShortCPU <= 0 && !shortOfMemory(v, out.Mode) {
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
	for i := range d.penalties {
		d.penalties[i].Observe(d.quality)
	}
}

// shortOfMemory: it is given less than it uses, or in the shadow would be.
func shortOfMemory(v *loop.Shaped, mode state.ShapingMode) bool {
	return v.ShortMemory > 0 || mode == state.ShapingOn && v.Pressed
}

// penalty as it is now.
func (d *doubts) penalty() loop.Penalty {
	p := loop.Penalty{Quality: d.quality}
	for i, into := range []*float64{&p.Conservative, &p.Balanced, &p.Aggressive} {
		*into = d.penalties[i].Value()
	}
	return p
}

// doubt fills in what new VMs are placed by where needs are estimated. A server that does not lead knows nothing of it.
func (c *Control) doubt(s *state.Snapshot, env loop.Env) loop.Env {
	env.Period = c.o.Period
	meta, _ := s.Meta()
	if meta.Settings.Shaping.WithDefaults().Mode != state.ShapingOn || !c.o.Log.Leads() {
		return env
	}
	x := &c.shapes
	x.mu.Lock()
	defer x.mu.Unlock()
	x.doubts.in(state.ShapingOn) // it may have been switched on since the last look
	env.Penalty, env.Words = x.doubts.penalty(), maps.Clone(x.doubts.words)
	return env
}

// words that hosts told.
func (x *shapes) words() map[string]loop.Word {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.doubts.words)
}

// admission as it stands.
func (c *Control) admission(s *state.Snapshot) AdmissionStatus {
	meta, _ := s.Meta()
	mode := meta.Settings.Shaping.WithDefaults().Mode
	env := loop.Env{Now: c.o.Now().UTC(), Out: c.out(s), Period: c.o.Period}
	out := AdmissionStatus{InForce: mode == state.ShapingOn, Target: forecast.QualityPenalty.Target, Quality: -1}
	x := &c.shapes
	x.mu.Lock()
	env.Words = maps.Clone(x.doubts.words)
	if mode != state.ShapingOff {
		x.doubts.in(mode)
		env.Penalty, out.Quality = x.doubts.penalty(), x.doubts.quality
		for _, word := range boldnesses {
			out.Penalties = append(out.Penalties, PenaltyStatus{Aggressiveness: word, Factor: env.Penalty.Of(word), PenaltySettings: loop.PenaltyFor(word)})
		}
	}
	x.mu.Unlock()
	for _, room := range loop.NewRooms(s, env) {
		out.Hosts = append(out.Hosts, HostRoom{NewRoom: room, Word: env.Words[room.Host]})
	}
	return out
}
