package loop

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"evenkeel/allocator/shape"
	"evenkeel/cluster/state"
	"evenkeel/forecast"
)

// How VMs are shaped.
const (
	shapeRest    = 10   // periods for which what grew, or was short, gives nothing back
	shapeStale   = 10   // periods after which what was measured says nothing
	shapePressed = 0.9  // of its target that a guest uses which says that it is short of memory, for the shadow
	shapeWary    = 1440 // periods, a day of minutes, for which what was short is given what it used then
	preemptAfter = 1    // period for which nobody found another way
	shapeStep    = 0.1  // of a VM's memory that its target falls at most in a period
	shapeSpare   = 0.2  // of what it uses now that it has beside that at least: more than its host insists on
	shapeRelief  = 0.1  // of its memory that a VM which is short of it gets at least, each look
	leastShift   = 0.02 // of the memory: a target falls by no less
	leastFall    = 0.05 // of the declared CPU: a need falls by no less
	atCap        = 0.95 // of a cap: use that is cut off by it
	beyondCap    = 1.5  // times the need that was cut off
	megabyte     = 1 << 20
)

// BufferFor says how much beside a forecast VMs are given whose estimates are to be that bold. Balanced is what Pace found best (sec. IV-C).
func BufferFor(boldness string) forecast.Buffer {
	b := forecast.DefaultBuffer
	switch boldness {
	case state.Conservative:
		b.K1, b.K2 = 0.2, 4
	case state.Aggressive:
		b.K1, b.K2 = 0.05, 1.64
	}
	return b
}

// Ahead is what a host forecasts of a resource: means and standard deviations of the next steps.
type Ahead struct {
	Mean, Deviation []float64
	Trusted         bool
	Reason          string // why not
}

// need of what was declared.
func (a Ahead) need(b forecast.Buffer, declared float64) float64 {
	ahead := make([]forecast.Prediction, min(len(a.Mean), len(a.Deviation)))
	for i := range ahead {
		ahead[i] = forecast.Prediction{Mean: a.Mean[i], Variance: a.Deviation[i] * a.Deviation[i]}
	}
	return b.Need(declared, ahead)
}

// Seen is what a host last told of one VM, by its estimate and by its sample. Times are by the leader's clock.
type Seen struct {
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
	Pressed    string // why it is short of memory now; "" = it is not
}

// Sighting is what the leader knows besides the snapshot.
type Sighting struct {
	Now   time.Time
	Since time.Time       // the term began: before that estimates went to another
	VMs   map[string]Seen // by id
	Out   map[string]string
}

// Shaped is what is found of one VM.
type Shaped struct {
	VM, Name, VC, Group, Host string // VM by id, VC by name
	Generation                uint64
	CPU                       float64 // declared, cores
	Need                      float64 // of each VM of its group, cores
	Memory                    int64   // declared
	Target                    int64   // that it has, or in the shadow would have
	Next                      int64   // that it is given now
	Text                      string
	Alone                     string // why its memory is left alone; "" = it is not
	Grown, Pressed            bool
	// Short: it uses more than it would have been given, cores and bytes; 0 = not.
	ShortCPU    float64
	ShortMemory int64
}

// Preemption is a VM, or a whole VC, that makes room in memory for others.
type Preemption struct {
	VC     string // id
	VM     string // id; "": all of the VC
	Host   string
	Reason string
}

// Shaping is what a look found.
type Shaping struct {
	Mode    state.ShapingMode
	Command state.Shape // in the shadow empty
	Preempt []Preemption
	VMs     []Shaped // whose needs are estimated, in the shadow all; in order of VCs and names
	// Reclaimed of what was declared, or in the shadow what would be: cores and bytes.
	Reclaimed state.Resources
}

// Shaper remembers from look to look what grew, and in the shadow what would be in force. The zero value knows nothing; a new leader
// begins with it, and takes nothing from anybody before it has seen for itself. It belongs to one goroutine at a time.
type Shaper struct {
	// Period is the step of forecasts; 0 = a minute. What grew rests for ten of them.
	Period time.Duration

	last   time.Time
	vms    map[string]*shapedVM
	groups map[groupKey]*shapedGroup
	lost   map[string]time.Time // since when VMs and VCs, by id, are found to have no room
	shadow bool

	solver shape.Shaper
	p      shape.Problem
	refs   []ref // by component
}

// ref of a component.
type ref struct {
	vc     string // id
	vm     string // id
	shaped int    // position in Shaping.VMs; -1: none
}

type shapedVM struct {
	grew   time.Time // its memory did, or it was short of it
	hurt   time.Time // it was last short of memory; zero: not for long
	most   int64     // that it was seen to use since, bytes
	mostAt time.Time
	wish   wish  // in this look
	target int64 // shadow
	seen   bool

	generation uint64 // that all of this is of
}

// wish is what a VM is given where there is room, beyond what it is expected to need.
type wish struct {
	memory float64 // bytes; 0: none
	text   string
}

// wary is what a VM is given that was short of memory: no forecast saw what it used, and it may do so again.
func (v *shapedVM) wary(in Sighting, period time.Duration, short bool, see Seen) wish {
	day := shapeWary * period
	switch {
	case short:
		v.hurt = in.Now
	case in.Now.Sub(v.hurt) >= day:
		v.hurt, v.most = time.Time{}, 0
	}
	if v.hurt.IsZero() {
		return wish{}
	}
	if see.Reports && (see.MemoryUsed >= v.most || in.Now.Sub(v.mostAt) >= day) {
		v.most, v.mostAt = see.MemoryUsed, in.Now
	}
	return wish{(1 + shapeSpare) * float64(v.most), fmt.Sprintf("it was short of memory at %s, and used %d MiB since: it is given that until %s",
		v.hurt.UTC().Format(time.DateTime), v.most>>20, v.hurt.Add(day).UTC().Format(time.DateTime))}
}

type shapedGroup struct {
	rose     time.Time
	need     float64 // shadow
	want     float64 // the greatest of its VMs, in this look
	declared bool    // its needs are, and no estimate holds any more
	seen     bool
}

type groupKey struct{ vc, group string }

// Look at a snapshot.
func (x *Shaper) Look(s *state.Snapshot, in Sighting) Shaping {
	meta, _ := s.Meta()
	set := meta.Settings.Shaping.WithDefaults()
	out := Shaping{Mode: set.Mode}
	if x.vms == nil || x.shadow != (set.Mode == state.ShapingShadow) {
		*x = Shaper{Period: cmp.Or(x.Period, time.Minute), vms: map[string]*shapedVM{}, groups: map[groupKey]*shapedGroup{}, lost: map[string]time.Time{}, shadow: set.Mode == state.ShapingShadow}
	}
	for _, v := range x.vms {
		v.seen = false
	}
	for _, g := range x.groups {
		g.seen, g.want, g.declared = false, 0, false
	}
	step := 0.0
	if !x.last.IsZero() {
		step = shapeStep * min(1, float64(in.Now.Sub(x.last))/float64(x.Period))
	}
	x.last = in.Now
	out.Command.Basis = s.Index()
	x.fill(s, set, in, &out)
	o := shape.Options{Now: in.Now.Unix(), Rest: int64(shapeRest * x.Period / time.Second), Step: max(step, 1e-9), Reserve: true, Late: true}
	r := x.solver.Shape(&x.p, o)
	if x.unwish(r, &out) {
		r = x.solver.Shape(&x.p, o)
	}
	x.targets(in, r, &out)
	x.needs(s, in, &out, step > 0)
	if set.Mode == state.ShapingOn {
		x.preempt(in, r, &out)
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
	out.Command.Text = shapeText(&out)
	return out
}

// unwish forgets the wishes on hosts where somebody goes, or has less than he needs: what was granted is to go before anybody does.
func (x *Shaper) unwish(r *shape.Result, out *Shaping) bool {
	short, found := make([]bool, len(x.p.Hosts)), false
	for i := range x.refs {
		c, o := &x.p.Components[i], &r.Outcomes[i]
		needs := c.Need.Memory
		if c.Must > 0 {
			needs = c.Must
		}
		short[c.Host] = short[c.Host] || o.Fate == shape.Preempt && o.Why != shape.WithCore || o.Why == shape.NoRoom && o.Memory < needs
	}
	for i, ref := range x.refs {
		c := &x.p.Components[i]
		if ref.shaped < 0 || !short[c.Host] {
			continue
		}
		if v := x.vms[out.VMs[ref.shaped].VM]; v.wish.memory > 0 {
			c.Need.Memory, c.Must, v.wish, found = c.Must, 0, wish{}, true
		}
	}
	return found
}

// mostTold VMs are named in one event.
const mostTold = 8

// shapeText is for the event: whose memory rises because it is short of it. What changes every minute is no event.
func shapeText(out *Shaping) string {
	var names []string
	more := 0
	for _, v := range out.VMs {
		switch {
		case !v.Pressed || v.Next <= v.Target:
		case len(names) == mostTold:
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
