package reprovision

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/scheduler/reservation"
	"evenkeel/cluster/state"
)

// Sample is what a host last measured of a VM.
type Sample struct {
	At        time.Time
	Cap, Used float64 // cores
}

// Observations is what the leader knows besides the snapshot.
type Observations struct {
	Now     time.Time
	Period  time.Duration
	Samples map[string]Sample       // by id of the VM
	Extras  map[string]state.Extras // of runs by id, newer than in the snapshot
}

// Row is what is found about a run.
type Row struct {
	Run     *state.Run
	Verdict Verdict
	Unknown bool         // hosts have yet to measure its VMs: it keeps what it has
	Grant   *state.Grant // that it has from now on; nil: none
	Extras  state.Extras

	progress Progress
	due      time.Time
	hosts    map[string]part // by name
	borrowed float64         // cores
}

// part is what a run has on a host.
type part struct {
	share     float64 // of what its VMs declared
	floor     float64 // cores at its minYield
	allocated float64 // cores
}

// Result is the result of an evaluation.
type Result struct {
	Rows     []Row // of runs that go on, earliest deadline first
	Granted  float64
	Borrowed float64 // cores of reservations that others have now
	Changed  []state.RunGrant
}

// Evaluate decides what runs of jobs that were signed off are sure of from now on.
func Evaluate(s *state.Snapshot, in Observations) Result {
	meta, _ := s.Meta()
	share := meta.Settings.Periodic.Reprovision
	x := evaluation{s: s, in: in}
	x.observe()
	if share > 0 {
		x.free = placement.FreeOfMinYields(s)
		for host, r := range placement.Reserved(s, in.Now, in.Now.Add(ahead*in.Period), "") {
			x.free[host] -= r.CPU
			x.planned += r.CPU
		}
		x.promise()
		x.grant(share)
	}
	x.borrow()
	out := Result{Rows: x.rows, Borrowed: x.borrowed}
	for i := range x.rows {
		r := &x.rows[i]
		if r.Grant != nil {
			out.Granted += r.Grant.Extra
		}
		if !sameGrant(r.Run.Grant, r.Grant, minChange*r.progress.Declared) && len(out.Changed) < maxPut {
			out.Changed = append(out.Changed, state.RunGrant{Run: r.Run.ID, Grant: r.Grant, Extras: r.Extras, Text: r.text()})
		}
	}
	return out
}

type evaluation struct {
	s        *state.Snapshot
	in       Observations
	rows     []Row
	free     map[string]float64 // cores of a host that are promised to nothing
	planned  float64            // cores that slots have which begin soon
	borrowed float64
}

// observe lists the runs that go on, with their progress.
func (x *evaluation) observe() {
	jobs := map[string]state.PeriodicJob{}
	x.s.EachRun(func(run *state.Run) bool {
		if !run.Ended.IsZero() || run.Started.IsZero() {
			return true
		}
		o, _ := x.s.Occurrence(run.Occurrence)
		job, known := jobs[o.Job]
		if !known {
			job, _ = x.s.PeriodicJob(o.Job)
			jobs[o.Job] = job
		}
		if o.State == state.RunningNow && o.VC == run.VC && job.SignOff.State == state.SignedOff {
			x.row(run, &o, &job.SignOff)
		} else if run.Grant != nil { // its contract has ended
			x.rows = append(x.rows, Row{Run: run, Extras: extrasOf(run, x.in.Extras), progress: Progress{Contract: &state.SignOff{Step: 1}}})
		}
		return true
	})
	slices.SortFunc(x.rows, func(a, b Row) int { return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.Run.ID, b.Run.ID)) })
}

func (x *evaluation) row(run *state.Run, o *state.Occurrence, c *state.SignOff) {
	r := Row{Run: run, due: o.Due, hosts: map[string]part{}, progress: Progress{Contract: c, Since: x.in.Now.Sub(run.Started), Left: o.Due.Sub(x.in.Now)}}
	vc, _ := x.s.VC(run.VC)
	p := &r.progress
	for _, g := range run.Groups {
		p.Declared += float64(g.Count) * g.CPU
	}
	p.Sure = min(1, vc.MinYield) * p.Declared
	for _, vm := range x.s.VMsOf(vc.ID) {
		g, ok := vc.GroupOf(vm)
		if !ok || !vm.ConsumesResources() {
			continue
		}
		on := r.hosts[vm.Host]
		on.share, on.floor, on.allocated = on.share+g.CPU/max(p.Declared, 1e-9), on.floor+min(1, vc.MinYield)*g.Need(), on.allocated+g.Allocation
		r.hosts[vm.Host] = on
		m, measured := x.in.Samples[vm.ID]
		if !measured || x.in.Now.Sub(m.At) > maxAge {
			r.Unknown = true
			continue
		}
		p.Used += max(0, m.Used)
		if m.Cap > 0 && m.Used >= throttledAt*m.Cap {
			p.Pending += max(0, g.CPU-m.Used)
		}
	}
	r.Unknown = r.Unknown || len(r.hosts) == 0
	r.Extras = extrasOf(run, x.in.Extras)
	x.account(&r)
	p.Done = r.Extras.Done
	r.Verdict = p.Judge(x.in.Period)
	x.rows = append(x.rows, r)
}

func extrasOf(run *state.Run, newer map[string]state.Extras) state.Extras {
	if e, ok := newer[run.ID]; ok {
		return e
	}
	if run.Extras != nil {
		return *run.Extras
	}
	return state.Extras{}
}

// account adds the work that the run did since the last evaluation. For a time that no leader observed it assumes what the run was
// granted, or else what its skyline says.
func (x *evaluation) account(r *Row) {
	e, p := &r.Extras, &r.progress
	last := e.At
	if last.IsZero() {
		last = r.Run.Started
	}
	gap := x.in.Now.Sub(last)
	switch {
	case gap < -maxAge: // the clock was ahead, and is not any more
		e.At = x.in.Now
		return
	case gap <= 0:
		return
	case gap <= maxAge && !r.Unknown:
		e.Done += p.Used * gap.Seconds()
		if g := r.Run.Grant; g != nil {
			e.Extra += min(g.Extra, max(0, p.Used-p.reservedAt(p.Since))) * gap.Seconds()
		}
	case r.Run.Grant != nil:
		e.Done += r.Run.Grant.Cores * gap.Seconds()
		e.Extra += r.Run.Grant.Extra * gap.Seconds()
	default:
		e.Done += p.skyline(last.Sub(r.Run.Started), p.Since, 0)
	}
	e.At = x.in.Now
}

// promise gives each run its reservation as far as the run uses it. A run with VMs at their caps gets as much of it as it demands.
func (x *evaluation) promise() {
	for i := range x.rows {
		r := &x.rows[i]
		p, v := &r.progress, &r.Verdict
		if len(r.hosts) == 0 {
			continue
		}
		if r.Unknown {
			if r.Grant = r.Run.Grant; r.Grant != nil {
				x.take(r, r.Grant.Cores)
			}
			continue
		}
		x.planned += v.Reserved
		wants, old := 0.0, r.Run.Grant
		switch {
		case p.Pending > 0:
			wants = min(v.Reserved, v.Demand)
		case old != nil && p.Used >= borrowedBelow*old.Cores: // it uses half or more; else others have it until a cap limits the run again
			wants = min(v.Reserved, max(old.Cores, headroom*p.Used))
		}
		if cores := min(wants, x.bound(r)); cores > 0 {
			x.take(r, cores)
			r.Grant = &state.Grant{Since: x.in.Now, Cores: cores}
		}
	}
}

// bound is the most that the hosts of a run leave it, cores of all its VMs. A run's VMs share a grant as they declared CPU.
func (x *evaluation) bound(r *Row) float64 {
	limit := r.progress.Declared
	for host, on := range r.hosts {
		if on.share > 0 {
			limit = min(limit, (max(0, x.free[host])+on.floor)/on.share)
		}
	}
	return limit
}

// take has the hosts of a run keep so many cores for it, and counts them in floor.
func (x *evaluation) take(r *Row, cores float64) {
	for host, on := range r.hosts {
		now := max(on.floor, cores*on.share)
		x.free[host] -= now - on.floor
		on.floor = now
		r.hosts[host] = on
	}
}

// grant gives late runs what sec. 7 gives them: min(demand, rho max(recent)) as far as there is room, bounded by a share of the cluster.
func (x *evaluation) grant(share float64) {
	rules := reservation.DefaultReprovisioning()
	rules.MaxShare = share
	room := reservation.Room{Planned: x.planned}
	for _, h := range x.s.Hosts() {
		if placement.ClosedFor(h, nil) == "" {
			room.Capacity += h.Usable().CPU
		}
	}
	for i := range x.rows {
		r := &x.rows[i]
		if r.Unknown && r.Grant != nil {
			room.Granted += r.Grant.Extra
		}
		if r.Unknown || !r.Verdict.Late || r.Grant == nil {
			continue
		}
		p := &r.progress
		demand := r.Verdict.Demand
		if p.Pending == 0 { // a cap at what it uses would limit it again
			demand = min(p.Declared, headroom*p.Used)
		}
		g := rules.Decide(reservation.Instance{Demand: demand, Reserved: r.Verdict.Reserved, Recent: recentOf(r, x.in.Period, rules.Recent)}, room)
		// If the host cannot give all of the reservation, what it gives is no grant.
		cores := min(r.Verdict.Reserved+g.Extra, x.bound(r))
		extra := max(0, cores-r.Verdict.Reserved)
		if g.Extra <= minChange*p.Declared || extra <= minChange*p.Declared {
			continue
		}
		if extra < g.Extra*(1-1e-9) {
			g.Bound = "host"
		}
		x.take(r, cores)
		room.Granted += extra
		*r.Grant = state.Grant{Since: r.Grant.Since, Cores: cores, Extra: extra, Bound: string(g.Bound), From: x.below(r)}
	}
}

// recentOf is what a run had in the steps before: its reservation, and what it is granted now.
func recentOf(r *Row, period time.Duration, n int) (out []float64) {
	for back := n; back > 0; back-- {
		out = append(out, r.progress.reservedAt(r.progress.Since-time.Duration(back)*period))
	}
	if g := r.Run.Grant; g != nil && n > 0 {
		out[n-1] = max(out[n-1], g.Cores)
	}
	return out
}

// below are the VCs on the hosts of a run that have less than they need, by name.
func (x *evaluation) below(r *Row) (names []string) {
	for host := range r.hosts {
		for _, vm := range x.s.VMsOn(host) {
			vc, ok := x.s.VC(vm.VC)
			if g, known := vc.GroupOf(vm); ok && known && vc.ID != r.Run.VC && vm.ConsumesResources() && g.Yield() < 1-minChange {
				names = append(names, vc.Name)
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return names[:min(len(names), maxNamed)]
}

// borrow counts what others have of the reservations on each host: of open slots without a run yet, and of what runs were not
// allocated. It is at most what other VMs have beyond the CPU that the host has besides its reservations.
func (x *evaluation) borrow() {
	type host struct{ open, unallocated, reserved float64 }
	hosts := map[string]*host{}
	of := func(name string) *host {
		if hosts[name] == nil {
			hosts[name] = &host{}
		}
		return hosts[name]
	}
	for name, r := range placement.Reserved(x.s, x.in.Now, x.in.Now.Add(time.Second), "") {
		h := of(name)
		h.open, h.reserved = r.CPU, r.CPU
	}
	running := map[string]bool{}
	for i := range x.rows {
		r := &x.rows[i]
		running[r.Run.VC] = true
		for name, on := range r.hosts {
			reserved := r.progress.reservedAt(r.progress.Since) * on.share
			h := of(name)
			h.reserved += reserved
			h.unallocated += max(0, reserved-on.allocated)
		}
	}
	for _, row := range x.s.Hosts() {
		h := hosts[row.Name]
		if h == nil || h.open+h.unallocated <= 0 {
			continue
		}
		others := 0.0
		for _, vm := range x.s.VMsOn(row.Name) {
			if vc, _ := x.s.VC(vm.VC); vm.ConsumesResources() && !running[vc.ID] {
				g, _ := vc.GroupOf(vm)
				others += g.Allocation
			}
		}
		borrowed := min(h.open+h.unallocated, max(0, others-(row.Usable().CPU-h.reserved)))
		x.borrowed += borrowed
		for i := range x.rows {
			r := &x.rows[i]
			on := r.hosts[row.Name]
			r.borrowed += borrowed * max(0, r.progress.reservedAt(r.progress.Since)*on.share-on.allocated) / (h.open + h.unallocated)
		}
	}
	for i := range x.rows {
		r := &x.rows[i]
		if old := extrasOf(r.Run, x.in.Extras).At; !old.IsZero() {
			r.Extras.Borrowed += r.borrowed * min(maxAge, max(0, r.Extras.At.Sub(old))).Seconds()
		}
	}
}

// sameGrant says whether two grants differ by so little that the log does not need the second.
func sameGrant(a, b *state.Grant, little float64) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return math.Abs(a.Cores-b.Cores) <= little && math.Abs(a.Extra-b.Extra) <= little && (a.Extra > 0) == (b.Extra > 0)
}

// text says why a run is given more than its reservation.
func (r *Row) text() string {
	g, v := r.Grant, r.Verdict
	if g == nil || g.Extra == 0 {
		return ""
	}
	text := fmt.Sprintf("virtual cluster %s is given %.2f cores beyond the %.2f reserved: it is held back, %.2f core-hours behind its skyline, and due in %s",
		r.Run.Name, g.Extra, v.Reserved, v.Behind/3600, r.progress.Left.Round(time.Second))
	if g.Bound != string(reservation.ByDemand) {
		text += fmt.Sprintf("; it could use %.2f in all, bound by %s", v.Demand, g.Bound)
	}
	if len(g.From) > 0 {
		text += fmt.Sprintf("; on its hosts %d or more virtual clusters have less than they need, such as %s", len(g.From), g.From[0])
	}
	return text[:min(len(text), 480)]
}
