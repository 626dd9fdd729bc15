package agenda

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"evenkeel/allocator"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/scheduler/reservation"
	"evenkeel/cluster/state"
	"evenkeel/forecast/periodic"
	"evenkeel/migration"
)

// Plan returns what is to change in the agenda now: occurrences of the next day that are not in it yet, with hosts where there is room;
// those that lost their hosts, with others; those whose time is over. All others keep their slots and hosts. unavailable are the hosts
// for which nothing may be decided.
func Plan(s *state.Snapshot, now time.Time, unavailable map[string]string) (state.AgendaPut, error) {
	x := planner{s: s, now: now, unavailable: unavailable, out: state.AgendaPut{Basis: s.Index()}, jobs: map[string]state.PeriodicJob{}}
	wanted, err := x.wanted()
	x.endPast()
	wanted = slices.DeleteFunc(wanted, func(o state.Occurrence) bool { _, is := s.Occurrence(o.ID); return is })
	if len(wanted) == 0 && !slices.ContainsFunc(s.Agenda(), func(o state.Occurrence) bool { return o.State != state.RunningNow }) {
		return x.out, err
	}
	if e := x.build(); e != nil {
		return x.out, e
	}
	x.keep()
	for _, o := range inTurn(wanted) {
		if len(x.out.Occurrences) < maxPut {
			x.place(o)
		}
	}
	return x.out, err
}

// inTurn returns the new occurrences that one evaluation places: maxPlaced of those that need hosts, shared evenly among jobs, by
// start; and all that are left out.
func inTurn(wanted []state.Occurrence) []state.Occurrence {
	var need, out []state.Occurrence
	nth, turn := map[string]int{}, map[string]int{} // of a job so far; of an occurrence among those of its job
	for _, o := range wanted {
		if o.State == state.LeftOut {
			out = append(out, o)
			continue
		}
		need, turn[o.ID] = append(need, o), nth[o.Job]
		nth[o.Job]++
	}
	slices.SortStableFunc(need, func(a, b state.Occurrence) int { return cmp.Compare(turn[a.ID], turn[b.ID]) })
	need = need[:min(maxPlaced, len(need))]
	slices.SortStableFunc(need, byStart)
	return append(need, out...)
}

func byStart(a, b state.Occurrence) int {
	return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.ID, b.ID))
}

type planner struct {
	s           *state.Snapshot
	now         time.Time
	unavailable map[string]string
	out         state.AgendaPut
	jobs        map[string]state.PeriodicJob // signed off
	// credible: if a VC has not started, or has run longer than planned, for more than overdue, its end is not known. Without credible
	// its end always lies ahead.
	credible bool

	agenda *reservation.Agenda
	step   time.Duration // of the agenda
	origin time.Time     // of its first step
	steps  int           // up to the last in which slots begin; the last one stands for all later time
	hosts  map[string]int
	names  []string
	over   []int64 // [host]: memory that a VM costs beyond its own
}

// wanted are the occurrences of all jobs that were signed off, but for tenants that are suspended, whose slots begin within the horizon. err is of jobs whose recurrence
// cannot be read; the others are there.
func (x *planner) wanted() (out []state.Occurrence, err error) {
	for _, job := range x.s.PeriodicJobs() {
		if job.SignOff.State != state.SignedOff {
			continue
		}
		x.jobs[job.Name] = job
		if x.suspended(job.Name) {
			continue
		}
		all, e := Occurrences(&job, x.now, x.now.Add(horizon))
		if e != nil {
			err = errors.Join(err, fmt.Errorf("job %s: %w", job.Name, e))
			continue
		}
		out = append(out, apart(all[:min(len(all), maxOfJob)], x.s.Occurrences(job.Name))...)
	}
	slices.SortStableFunc(out, byStart)
	return out, err
}

// suspended says whether nothing of a job's tenant may start.
func (x *planner) suspended(job string) bool {
	tenant, _ := state.SplitName(job)
	t, ok := x.s.Tenant(tenant)
	return !ok || t.Suspended
}

// apart leaves out occurrences that overlap another slot of the job: that of the one before, or one in the agenda. So no more is ever
// reserved for a job than its contract says. all is in order of time.
func apart(all, there []state.Occurrence) (out []state.Occurrence) {
	there = slices.DeleteFunc(there, func(o state.Occurrence) bool { return o.State.Over() })
	var end time.Time
	for _, o := range all {
		known := slices.ContainsFunc(there, func(p state.Occurrence) bool { return p.ID == o.ID })
		if o.State != state.LeftOut && !known {
			if o.Start.Before(end) || slices.ContainsFunc(there, func(p state.Occurrence) bool { return p.Start.Before(o.End) && o.Start.Before(p.End) }) {
				continue
			}
			end = o.End
		}
		out = append(out, o)
	}
	return out
}

// Fits says why the times of a contract cannot be kept to: its rule has none in the year from now on, or its slots would overlap. It looks
// at the first few hundred.
func Fits(c *state.SignOff, now time.Time) error {
	job := state.PeriodicJob{SignOff: *c}
	all, err := firstFew(now, func(to time.Time) ([]state.Occurrence, error) { return Occurrences(&job, now, to) })
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("its rule has no time in the next year: choose another rule or start")
	}
	for i := 1; i < min(len(all), maxFits); i++ {
		before, next := all[i-1], all[i]
		switch gap := next.Start.Sub(before.Start); {
		case gap < 2*stepOf(c):
			return fmt.Errorf("its rule comes %s after %s again, and must not within %s: choose a rule that comes less often", gap, before.Period.Format(time.RFC3339), 2*stepOf(c))
		case next.Start.Before(before.End):
			return fmt.Errorf("its rule comes %s after %s again, before a run that arrives up to %s late and takes up to %s has ended: choose a rule that comes less often, or a shorter length",
				gap, before.Period.Format(time.RFC3339), time.Duration(c.Lateness)*time.Second, c.Length())
		}
	}
	return nil
}

// recurrenceOf reads when a contract's runs come again, and the zone on whose clock they do.
func recurrenceOf(text string) (periodic.Recurrence, *time.Location, error) {
	r, err := periodic.ParseRecurrence(text)
	if err != nil {
		return r, nil, err
	}
	zone, err := time.LoadLocation(r.Zone)
	return r, zone, err
}

// Occurrences are those of a job whose slots begin from a time on and before another one, as they are before they have hosts.
func Occurrences(job *state.PeriodicJob, from, to time.Time) (out []state.Occurrence, err error) {
	c := &job.SignOff
	r, zone, err := recurrenceOf(c.Recurrence)
	if err != nil {
		return nil, err
	}
	arrival, late := time.Duration(c.Arrival)*time.Second, time.Duration(c.Lateness)*time.Second
	times, err := r.Between(from.Add(-arrival), to.Add(-arrival), zone)
	if err != nil {
		return nil, err
	}
	for _, at := range times {
		o := state.Occurrence{ID: state.OccurrenceID(job.Name, at), Job: job.Name, Period: at.UTC(), Start: at.Add(arrival).UTC(), Due: at.Add(time.Duration(c.Due) * time.Second).UTC()}
		o.End = o.Start.Add(late + c.Length())
		if slices.Contains(c.Skips, at.In(zone).Format(time.DateOnly)) {
			o.State, o.Text = state.LeftOut, "its owner left it out"
		}
		out = append(out, o)
	}
	return out, nil
}

// endPast ends occurrences whose run did not arrive in time, and running ones that no run carries out. It drops those of suspended
// tenants. It changes as many as one command takes.
func (x *planner) endPast() {
	for _, o := range x.s.Agenda() {
		if len(x.out.Occurrences)+len(x.out.Drop) >= maxPut {
			return
		}
		if o.State == state.RunningNow {
			if run, open := x.s.OpenRun(o.VC); !open || run.Occurrence != o.ID {
				o.State, o.Text = state.Missed, "its virtual cluster has no run of it"
				x.out.Occurrences = append(x.out.Occurrences, o)
			}
			continue
		}
		if x.suspended(o.Job) {
			x.out.Drop = append(x.out.Drop, o.ID)
			continue
		}
		job, ok := x.jobs[o.Job]
		if !ok {
			continue
		}
		latest := o.End.Add(-job.SignOff.Length())
		if x.now.After(latest) {
			o.State, o.Text = state.Missed, "no run arrived by "+latest.UTC().Format(time.RFC3339)
			x.out.Occurrences = append(x.out.Occurrences, o)
		}
	}
}

// build makes the agenda of what runs now.
func (x *planner) build() error {
	return x.buildOf(x.running)
}

// buildEmpty makes an agenda of the hosts without anything that runs there.
func (x *planner) buildEmpty() error {
	return x.buildOf(func() ([]migration.Group, []*reservation.Accepted) { return nil, nil })
}

func (x *planner) buildOf(running func() ([]migration.Group, []*reservation.Accepted)) error {
	x.setStep()
	x.origin = x.now.Truncate(x.step)
	x.steps = int(horizon/x.step) + 2
	c := reservation.Cluster{Steps: x.steps}
	x.hosts = map[string]int{}
	for i, h := range x.openHosts() {
		x.hosts[h.Name], x.names, x.over = i, append(x.names, h.Name), append(x.over, h.VMOverhead)
		usable, why := h.Usable(), placement.ClosedFor(h, x.unavailable)
		c.Hosts = append(c.Hosts, migration.Host{Name: h.Name, CPU: max(1e-6, usable.CPU), Memory: max(1, float64(usable.Memory)), Cordoned: h.Cordoned || why != "", Unavailable: why})
	}
	residents, passing := running()
	c.Residents = residents
	var err error
	if x.agenda, err = reservation.New(c, options()); err != nil {
		return err
	}
	for _, p := range passing {
		if err := x.agenda.Occupy(p); err != nil {
			return err
		}
	}
	return nil
}

// endOf is when a VC that runs is to have ended; zero: beyond the horizon, or not known.
func (x *planner) endOf(vc *state.VC) time.Time {
	run, ok := x.s.OpenRun(vc.ID)
	length, over := time.Duration(vc.Duration)*time.Second, overdue
	if o, is := x.s.Occurrence(run.Occurrence); ok && is {
		if job, signed := x.jobs[o.Job]; signed {
			length, over = job.SignOff.Length(), min(overdue, overdueSteps*stepOf(&job.SignOff))
		}
	}
	if !ok || length == 0 || vc.Goal != state.GoalRun {
		return time.Time{}
	}
	begin := run.Started
	if begin.IsZero() {
		if x.credible && x.now.After(vc.Decision.At.Add(over)) { // of its admission
			return time.Time{}
		}
		begin = x.now
	}
	until := begin.Add(length)
	if until.Before(x.now) {
		late := x.now
		if x.credible {
			late = until
		}
		if until = late.Add(over); until.Before(x.now) {
			return time.Time{}
		}
	}
	if until.After(x.now.Add(horizon)) {
		return time.Time{}
	}
	return until
}

// slot is one of n steps from a step of the agenda on, with count equal VMs that need so many cores and bytes in each.
func slot(name string, from, n, count int, need func(k int) (cores, memory float64)) reservation.Slot {
	s := reservation.Slot{Request: reservation.Request{Name: name, Phase: from, Due: n}, Yield: 1}
	for k := range n {
		cores, memory := need(k)
		cores, memory = float64(count)*cores, float64(count)*memory
		s.Amounts = append(s.Amounts, reservation.Amount{cores, memory, float64(count)})
		s.Request.Stages = append(s.Request.Stages, reservation.Stage{VMs: count, Cores: cores, Memory: memory})
	}
	return s
}

// slots are those of an occurrence, one for each group. Needs beyond the agenda count in its last step, where all slots that reach so
// far overlap. ok is false if the occurrence begins after the agenda, or is over.
func (x *planner) slots(o *state.Occurrence) (out []reservation.Slot, ok bool) {
	job := x.jobs[o.Job]
	c := &job.SignOff
	from := max(0, int(o.Start.Sub(x.origin)/x.step))
	n := min(x.steps, int((o.End.Sub(x.origin)+x.step-1)/x.step)) - from
	if n < 1 {
		return nil, false
	}
	overhead := slices.Max(x.over)
	for _, g := range c.Groups {
		need := placement.SlotNeed(c, g)
		at := func(k int) (cores, memory float64) { // k is a step of the agenda; it may begin within a step of the slot
			begin := x.origin.Add(time.Duration(from+k) * x.step)
			first := int(begin.Sub(o.Start) / (time.Duration(c.Step) * time.Second))
			last := int((begin.Add(x.step).Sub(o.Start) - 1) / (time.Duration(c.Step) * time.Second))
			if from+k == x.steps-1 {
				last = len(need) - 1
			}
			for i := max(0, first); i <= min(last, len(need)-1); i++ {
				cores = max(cores, need[i])
			}
			return cores, float64(g.Memory + overhead)
		}
		s := slot(o.ID+"/"+g.Name, from, n, g.Count, at)
		s.Request.Apart = x.apart(c, o.Job, g.Name)
		if g.Spread {
			s.Request.Affinity = &allocator.Affinity{Spread: "host"}
		}
		out = append(out, s)
	}
	return out, true
}

// keep puts the occurrences that have hosts into the agenda, first of all others, and finds hosts for those that lost theirs.
func (x *planner) keep() {
	var again []state.Occurrence
	for _, o := range x.s.Agenda() {
		if _, signed := x.jobs[o.Job]; !signed || o.State == state.RunningNow || x.suspended(o.Job) || slices.ContainsFunc(x.out.Occurrences, func(p state.Occurrence) bool { return p.ID == o.ID }) {
			continue
		}
		switch {
		case !o.Reserves():
			again = append(again, o)
		case x.restore(&o):
			if o.State == state.Degraded { // moves have made its room
				o.State, o.Text = state.Reconfirmed, ""
				x.out.Occurrences = append(x.out.Occurrences, o)
			}
		case o.State == state.Degraded && x.roomComes(o.ID):
		default:
			again = append(again, o)
		}
	}
	retried := 0
	for _, o := range retryOrder(again, x.now) {
		if !o.Reserves() {
			if retried++; retried > maxRetries {
				continue
			}
		}
		if len(x.out.Occurrences) < maxPut {
			x.place(o)
		}
	}
}

// retryOrder is the order in which hosts are looked for again: first for occurrences that just lost theirs, then for those that have
// none. Of maxRetries of the latter, half begin soonest; the other half are taken in turn, minute by minute.
func retryOrder(again []state.Occurrence, now time.Time) []state.Occurrence {
	var lost, none []state.Occurrence
	for _, o := range again {
		if o.Reserves() {
			lost = append(lost, o)
		} else {
			none = append(none, o)
		}
	}
	slices.SortStableFunc(lost, byStart)
	slices.SortStableFunc(none, byStart)
	first := min(maxRetries/2, len(none))
	out, rest := append(lost, none[:first]...), none[first:]
	if len(rest) > 0 {
		at := int(now.Unix()/60*int64(maxRetries-first)) % len(rest)
		out = append(append(out, rest[at:]...), rest[:at]...)
	}
	return out
}

// options are those of the cluster's agenda.
func options() reservation.Options {
	o := reservation.DefaultOptions()
	o.NoChanges = true
	return o
}

// restore puts the hosts that an occurrence has into the agenda; false: one of them has not the room any more.
func (x *planner) restore(o *state.Occurrence) bool {
	slots, ok := x.slots(o)
	if !ok {
		return true // it reaches beyond the agenda: nothing is known against it
	}
	vm := 0
	var put []string
	undo := func() bool {
		for _, name := range put {
			x.agenda.Remove(name)
		}
		return false
	}
	for _, s := range slots {
		w := reservation.Witness{}
		for range s.Request.Stages[0].VMs {
			if vm >= len(o.Hosts) {
				return undo()
			}
			h, known := x.hosts[o.Hosts[vm]]
			if !known {
				return undo()
			}
			w.Hosts = append(w.Hosts, h)
			vm++
		}
		if x.agenda.Restore(&reservation.Accepted{Slot: s, Witness: w}) != nil {
			return undo()
		}
		put = append(put, s.Request.Name)
	}
	return true
}

// place finds hosts for an occurrence, and says what it is from now on if that differs from what it was.
func (x *planner) place(o state.Occurrence) {
	old := o
	if o.State == state.LeftOut {
		x.out.Occurrences = append(x.out.Occurrences, o)
		return
	}
	o.Hosts, o.Text = nil, ""
	slots, ok := x.slots(&o)
	var put []string
	if !ok {
		o.Text = "it reaches beyond the agenda"
	}
	for i := range slots {
		a, refusal, err := x.agenda.Accept(slots[i].Request)
		if a == nil {
			if o.Text = fmt.Sprint(err); refusal != nil {
				o.Text = x.refused(refusal)
			}
			break
		}
		put = append(put, a.Slot.Request.Name)
		for _, h := range a.Witness.Hosts {
			o.Hosts = append(o.Hosts, x.names[h])
		}
	}
	switch {
	case o.Text != "":
		for _, name := range put {
			x.agenda.Remove(name)
		}
		o.State, o.Hosts = state.Degraded, nil
		o.Text = o.Text[:min(len(o.Text), 400)]
	case old.State == "":
		o.State = state.Confirmed
	default:
		o.State = state.Reconfirmed
	}
	if o.State != old.State || o.State != state.Degraded || len(old.Hosts) > 0 {
		x.out.Occurrences = append(x.out.Occurrences, o)
	}
}

func (x *planner) refused(r *reservation.Refusal) string {
	at := x.origin.Add(time.Duration(r.Step) * x.step).UTC().Format(time.RFC3339)
	if r.Host != "" {
		return fmt.Sprintf("no hosts have room for all its VMs; most comes from host %s, which lacks %.4g %s around %s", r.Host, r.Missing, r.Resource, at)
	}
	return fmt.Sprintf("the hosts together lack %.4g %s around %s", r.Missing, r.Resource, at)
}
