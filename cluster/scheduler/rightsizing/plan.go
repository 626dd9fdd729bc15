package rightsizing

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	solver "evenkeel/allocator/rightsizing"
	"evenkeel/cluster/state"
	"evenkeel/forecast"
)

// BufferFor returns how much memory VMs are given beyond their forecast for estimates of that aggressiveness. Balanced has the best
// value of Pace (sec. IV-C).
func BufferFor(aggressiveness string) forecast.Buffer {
	b := forecast.DefaultBuffer
	switch aggressiveness {
	case state.Conservative:
		b.K1, b.K2 = 0.2, 4
	case state.Aggressive:
		b.K1, b.K2 = 0.05, 1.64
	}
	return b
}

// keptOnce says whether deviations of memory and the reserve of a host are kept once, the greater of both: solver.Once. Only conservative keeps both.
func keptOnce(aggressiveness string) bool { return aggressiveness != state.Conservative }

// CPUBufferFor returns the same for CPU. What one VM uses beyond its forecast others of its host leave, and a host gives its surplus to those that use
// more: a deviation of every VM would add up what cancels. Only conservative keeps it.
func CPUBufferFor(aggressiveness string) forecast.Buffer {
	b := BufferFor(aggressiveness)
	if aggressiveness != state.Conservative {
		b.K2 = 0
	}
	return b
}

// Ahead is what a host forecasts of a resource: means and standard deviations of the next steps.
type Ahead struct {
	Mean, Deviation []float64
	Trusted         bool
	Reason          string // why not
	Measured        bool   // for so long that its use counts where the forecast is not trusted
}

// known says whether anything but what was declared is known of what the VM will use.
func (a Ahead) known() bool { return a.Trusted || a.Measured }

// need is the need of a VM that declared that much: by its forecast, or where that is not trusted by what it uses.
func (a Ahead) need(b forecast.Buffer, declared, used float64) float64 {
	if !a.Trusted {
		return b.Need(declared, []forecast.Prediction{{Mean: used}})
	}
	ahead := make([]forecast.Prediction, min(len(a.Mean), len(a.Deviation)))
	for i := range ahead {
		ahead[i] = forecast.Prediction{Mean: a.Mean[i], Variance: a.Deviation[i] * a.Deviation[i]}
	}
	return b.Need(declared, ahead)
}

// VMObservation is what a host last reported of one VM, by its estimate and by its sample. Times are by the leader's clock.
type VMObservation struct {
	Generation uint64 // that the estimate is of; 0: there was none in this term
	Until      time.Time
	CPU        Ahead // cores
	Memory     Ahead // bytes

	At         time.Time // the sample came in; zero: there is none
	Cap, Used  float64   // cores
	MemoryUsed int64     // bytes
	Balloon    int64
	Reports    bool   // the guest reports what memory it uses
	Follows    bool   // its balloon follows its targets
	Pressure   string // why it is short of memory now; "" = it is not
}

// Observations is what the leader knows besides the snapshot.
type Observations struct {
	Now         time.Time
	Since       time.Time                // the term began: before that estimates went to another
	VMs         map[string]VMObservation // by id
	Unavailable map[string]string
}

// withoutForecasts is what is known if no forecast is trusted.
func (o Observations) withoutForecasts() Observations {
	vms := make(map[string]VMObservation, len(o.VMs))
	for id, see := range o.VMs {
		see.CPU, see.Memory = Ahead{Reason: noForecasts}, Ahead{Reason: noForecasts}
		vms[id] = see
	}
	o.VMs = vms
	return o
}

const noForecasts = "forecasts are switched off (rightsizing.disabledStages)"

// Recommendation is the recommendation for one VM.
type Recommendation struct {
	VM, Name, VC, Group, Host string // VM by id, VC by name
	Generation                uint64
	CPU                       float64 // declared, cores
	Need                      float64 // of each VM of its group, cores
	Memory                    int64   // declared
	Target                    int64   // that it has, or in shadow mode would have
	Next                      int64   // that it is given now
	Text                      string
	Excluded                  string // why its memory is left alone; "" = it is not
	ByUse                     string // why its use counts for its memory, and no forecast; "" = one does
	Grown, UnderPressure      bool
	// Short: it uses more than it would have been given, cores and bytes; 0 = not.
	ShortCPU    float64
	ShortMemory int64
}

// Preemption is a VM, or a whole VC, that is evicted to make room in memory for others.
type Preemption struct {
	VC     string // id
	VM     string // id; "": all of the VC
	Host   string
	Reason string
}

// Result is the result of an evaluation.
type Result struct {
	Mode    state.RightsizingMode
	Command state.Rightsize  // in shadow mode empty
	Preempt []Preemption     // where no move helps: see Evictions
	Short   []Shortage       // the hosts of Preempt, each once
	VMs     []Recommendation // whose needs are estimated, in shadow mode all; in order of VCs and names
	// Reclaimed of what was declared, or in shadow mode what would be: cores and bytes.
	Reclaimed state.Resources
}

// Rightsizer keeps, from evaluation to evaluation, what grew, and in shadow mode what would be in force. The zero value knows
// nothing. A new leader begins with it, and takes nothing from a VM before it has observed it itself. One goroutine at a time
// uses it.
type Rightsizer struct {
	// Period is the step of forecasts; 0 = a minute. What grew rests for ten of them.
	Period time.Duration

	last   time.Time
	vms    map[string]*rightsizedVM
	groups map[groupKey]*rightsizedGroup
	lost   map[string]time.Time // since when VMs and VCs, by id, are found to have no room
	// stopping: since when VMs, by id, are seen to stop. claimed, by host: bytes that are kept for VMs that do not run, and QEMU's own of those that stop.
	stopping map[string]time.Time
	claimed  []float64
	shadow   bool

	search solver.Rightsizer
	p      solver.Problem
	refs   []ref // by component
}

// ref says to which VM a component belongs.
type ref struct {
	vc         string // id
	vm         string // id
	rightsized int    // position in Result.VMs; -1: none
	stops      bool   // it has stopped within a minute
}

type rightsizedVM struct {
	grew      time.Time // its memory did, or it was short of it
	hurt      time.Time // it was last short of memory; zero: not for long
	peakUse   int64     // that it was seen to use since, bytes
	peakAt    time.Time
	optional  optional // in this evaluation
	deviation float64  // bytes of its need beyond the mean of its forecast, which are kept once together with its host's reserve
	lowest    float64  // bytes that are left to it where its host is short; 0: what it has is not known to be idle
	idleTaken bool     // in this evaluation: it is left its lowest
	target    int64    // shadow
	seen      bool

	generation uint64 // that all of this is of
}

// optional is what a VM is given where there is room, beyond its expected need.
type optional struct {
	memory float64 // bytes; 0: none
	text   string
}

// pressureMemory is the memory that a VM is given because it was short of memory in the last day. No forecast predicted that use, and
// the VM may use as much again.
func (v *rightsizedVM) pressureMemory(in Observations, period time.Duration, short bool, see VMObservation) optional {
	day := pressurePeriods * period
	switch {
	case short:
		v.hurt = in.Now
	case in.Now.Sub(v.hurt) >= day:
		v.hurt, v.peakUse = time.Time{}, 0
	}
	if v.hurt.IsZero() {
		return optional{}
	}
	if see.Reports && (see.MemoryUsed >= v.peakUse || in.Now.Sub(v.peakAt) >= day) {
		v.peakUse, v.peakAt = see.MemoryUsed, in.Now
	}
	return optional{(1 + rightsizeSlack) * float64(v.peakUse), fmt.Sprintf("it was short of memory at %s, and used %d MiB since: it is given that until %s",
		v.hurt.UTC().Format(time.DateTime), v.peakUse>>20, v.hurt.Add(day).UTC().Format(time.DateTime))}
}

type rightsizedGroup struct {
	rose     time.Time
	need     float64 // shadow
	want     float64 // the greatest of its VMs, in this look
	declared bool    // its needs are, and no estimate holds any more
	seen     bool
}

type groupKey struct{ vc, group string }

// Evaluate evaluates the needs of VMs at a snapshot.
func (x *Rightsizer) Evaluate(s *state.Snapshot, in Observations) Result {
	meta, _ := s.Meta()
	set := meta.Settings.Rightsizing.WithDefaults()
	out := Result{Mode: set.Mode}
	if x.vms == nil || x.shadow != (set.Mode == state.RightsizingShadow) {
		*x = Rightsizer{Period: cmp.Or(x.Period, time.Minute), vms: map[string]*rightsizedVM{}, groups: map[groupKey]*rightsizedGroup{}, lost: map[string]time.Time{}, shadow: set.Mode == state.RightsizingShadow}
	}
	for _, v := range x.vms {
		v.seen = false
	}
	for _, g := range x.groups {
		g.seen, g.want, g.declared = false, 0, false
	}
	step := 0.0
	if !x.last.IsZero() {
		step = rightsizeStep * min(1, float64(in.Now.Sub(x.last))/float64(x.Period))
	}
	x.last = in.Now
	out.Command.Basis = s.Index()
	if !set.Runs(state.StageForecast) {
		in = in.withoutForecasts()
	}
	x.fill(s, set, in, &out)
	o := solver.Options{Now: in.Now.Unix(), Rest: int64(rightsizeRest * x.Period / time.Second), Step: max(step, 1e-9), Reserve: true, CoreFirst: true, LargestOnly: !set.Runs(state.StageReserve), Late: true}
	x.keepOnce(o)
	r := x.search.Rightsize(&x.p, o)
	if x.dropOptional(r, &out) {
		r = x.search.Rightsize(&x.p, o)
	}
	if x.takeIdle(r, &out) {
		r = x.search.Rightsize(&x.p, o)
	}
	x.targets(in, r, &out)
	x.needs(s, in, &out, step > 0)
	if set.Mode == state.RightsizingOn {
		x.preempt(in, x.withoutClaims(o, r), &out)
	}
	for id, v := range x.vms {
		if !v.seen {
			delete(x.vms, id)
		}
	}
	for key, g := range x.groups {
		if !g.seen {
			delete(x.groups, key)
		}
	}
	out.Command.Text = rightsizeText(&out)
	return out
}

// keepOnce keeps deviations of VMs and the reserve of their host only once: of the deviations it leaves the part by which they exceed
// the reserve (solver.Once).
func (x *Rightsizer) keepOnce(o solver.Options) {
	kept := make([]solver.Once, len(x.p.Hosts))
	for j := range kept {
		kept[j].Reserve.LargestOnly = o.LargestOnly
	}
	for i := range x.refs {
		c, v := &x.p.Components[i], x.rightsizedAt(i)
		has, deviation := c.Need.Memory, 0.0
		if v != nil && v.deviation > 0 {
			if v.optional.memory > 0 {
				has = c.Required
			}
			without := has - v.deviation
			if has = without; c.Grew != 0 && o.Now-c.Grew < o.Rest { // nothing falls yet
				has = max(has, c.Present.Memory)
			}
			deviation = max(0, without+v.deviation-has)
		}
		kept[c.Host].Add(c.Request.Memory-has, deviation)
	}
	for i := range x.refs {
		c, v := &x.p.Components[i], x.rightsizedAt(i)
		if v == nil || v.deviation == 0 {
			continue
		}
		given := kept[c.Host].Share() * v.deviation
		if v.optional.memory > 0 {
			c.Required -= v.deviation - given
		} else {
			c.Need.Memory -= v.deviation - given
		}
		v.deviation = given
	}
}

// rightsizedAt is what is kept of the VM of a component; nil: nothing is.
func (x *Rightsizer) rightsizedAt(component int) *rightsizedVM {
	if ref := x.refs[component]; ref.rightsized >= 0 {
		return x.vms[ref.vm]
	}
	return nil
}

// dropOptional drops the optional memory on hosts where a VM is to be evicted, or has less than it needs: optional memory that
// was granted goes before any VM does.
func (x *Rightsizer) dropOptional(r *solver.Result, out *Result) bool {
	short, found := make([]bool, len(x.p.Hosts)), false
	for i := range x.refs {
		c, o := &x.p.Components[i], &r.Outcomes[i]
		needs := c.Need.Memory
		if c.Required > 0 {
			needs = c.Required
		}
		short[c.Host] = short[c.Host] || o.Action == solver.Preempt && o.Why != solver.WithCore || o.Why == solver.NoRoom && o.Memory < needs
	}
	for i, ref := range x.refs {
		c := &x.p.Components[i]
		if ref.rightsized < 0 || !short[c.Host] {
			continue
		}
		if v := x.vms[out.VMs[ref.rightsized].VM]; v.optional.memory > 0 {
			c.Need.Memory, c.Required, v.optional, found = c.Required, 0, optional{}, true
		}
	}
	return found
}

// takeIdle takes back the idle memory of VMs on hosts where a VM has less than it uses, or than it must grow to under memory pressure.
// The forecasts of the other VMs do not count then.
func (x *Rightsizer) takeIdle(r *solver.Result, out *Result) bool {
	short, found := make([]bool, len(x.p.Hosts)), false
	for j := range x.p.Hosts {
		short[j] = r.Hosts[j].Memory < 0
	}
	for i := range x.refs {
		c, o := &x.p.Components[i], &r.Outcomes[i]
		short[c.Host] = short[c.Host] || o.Action == solver.Preempt && o.Why == solver.NoMemory || o.Why == solver.NoRoom && o.Memory < c.InUse
	}
	for i, ref := range x.refs {
		c := &x.p.Components[i]
		if ref.rightsized < 0 || !short[c.Host] {
			continue
		}
		if v := x.vms[out.VMs[ref.rightsized].VM]; v.lowest > 0 && v.lowest < c.Need.Memory {
			c.Need.Memory, c.Required, c.Grew, v.deviation, v.idleTaken, found = v.lowest, 0, 0, 0, v.lowest < c.Present.Memory, true
		}
	}
	return found
}

// maxNamed is how many VMs one event names.
const maxNamed = 8

// rightsizeText is the text of the event: it names the VMs whose memory rises because they are short of it. Changes of every
// minute are no event.
func rightsizeText(out *Result) string {
	var names []string
	more := 0
	for _, v := range out.VMs {
		switch {
		case !v.UnderPressure || v.Next <= v.Target:
		case len(names) == maxNamed:
			more++
		default:
			names = append(names, fmt.Sprintf("%s to %d MiB (%s)", v.Name, v.Next>>20, v.Text))
		}
	}
	if len(names) == 0 || out.Command.Empty() {
		return ""
	}
	text := "memory rises of VMs that are short of it: " + strings.Join(names, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
