package state

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// runFollows begins, changes or ends the run of a VC after a plan has written its row. old is the row before; nil: it is new.
func (w *writer) runFollows(p *Plan, vc, old *VC) {
	open, there := w.read().OpenRun(vc.ID)
	switch {
	case there && vc.Goal != GoalRun:
		outcome := RunStopped
		if vc.Goal == GoalDelete {
			outcome = RunDeleted
		}
		w.endRun(open, outcome)
		return
	case there:
		next := open
		if old != nil && old.Admitted && !vc.Admitted {
			next.Preempted++
		}
		if groups := runGroups(vc); !slices.Equal(groups, next.Groups) {
			next.Groups = groups
		}
		if p.Occurrence != "" {
			next.Occurrence = p.Occurrence
		}
		if next.Preempted != open.Preempted || next.Occurrence != open.Occurrence || !slices.Equal(next.Groups, open.Groups) {
			w.put(tRuns, &next)
		}
	case p.Job != "" && vc.Goal == GoalRun:
		w.beginRun(p.Job, p.Occurrence, vc)
	}
}

func (w *writer) beginRun(job, occurrence string, vc *VC) {
	r := &Run{ID: fmt.Sprintf("%s/%016x", vc.ID, w.index), VC: vc.ID, Name: vc.Name, Job: job, Submitted: w.at, Groups: runGroups(vc), MinYield: vc.MinYield, Occurrence: occurrence,
		Declared: vc.Periodic.Name != "", Deadline: vc.Periodic.Deadline, Kind: kindOf(vc)}
	w.put(tRuns, r)
}

func runGroups(vc *VC) (out []RunGroup) {
	for _, g := range vc.Groups {
		if g.Count > 0 {
			out = append(out, RunGroup{g.Name, g.Count, g.CPU, g.Memory, g.Affinity.Spread != ""})
		}
	}
	return out
}

// kindOf are the images of a VC's groups: runs of other images say nothing about each other.
func kindOf(vc *VC) string {
	var out []string
	for _, g := range vc.Groups {
		if g.Count > 0 {
			out = append(out, cmp.Or(g.Image, g.Boot.Kernel))
		}
	}
	return strings.Join(out, ",")
}

// claim gives an occurrence to the VC that a plan starts, if the VC has a run or begins one: only the end of a run ends an occurrence.
func (w *writer) claim(p *Plan, vc *VC) error {
	id := p.Occurrence
	if _, open := w.read().OpenRun(vc.ID); id == "" || vc.Goal != GoalRun || !open && p.Job == "" {
		return nil
	}
	o, ok := w.read().Occurrence(id)
	if !ok || o.State.Over() || o.VC != "" && o.VC != vc.ID {
		return fmt.Errorf("occurrence %s is not free any more: %w", id, ErrConflict)
	}
	if o.State == RunningNow {
		return nil
	}
	o.State, o.VC, o.Text = RunningNow, vc.ID, ""
	w.put(tOccurrences, &o)
	w.event("occurrence-running", "job", o.Job, "the run of %s is virtual cluster %s", timeText(o.Period), vc.Name)
	return nil
}

func timeText(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// runOf updates the run of a VC after the phase of one of its VMs has changed. The run starts when its first VM runs, and ends when its
// last core VM has ended.
func (w *writer) runOf(vm VM) {
	open, ok := w.read().OpenRun(vm.VC)
	if !ok {
		return
	}
	if vm.Phase == Running && open.Started.IsZero() {
		open.Started = w.at
		w.put(tRuns, &open)
		return
	}
	vc := w.cachedVC(vm.VC)
	if vm.ConsumesResources() || vc == nil || open.Started.IsZero() {
		return
	}
	outcome := RunEnded
	for _, other := range w.read().VMsOf(vm.VC) {
		g := vc.SharedGroup(other.Group)
		if g == nil || g.Role == "elastic" {
			continue
		}
		switch {
		case other.ConsumesResources() || other.Goal != GoalRun && other.Order.StoppedBy != "":
			return // it runs, or was stopped alone and may start again
		case other.Phase == Lost && (vc.OnHostLoss == RestartOnLoss || other.Order.Elsewhere) || other.PreemptedAt != 0 || other.Order.Restart:
			return // it starts again
		case other.Phase == Lost:
			outcome = RunLost
		}
	}
	w.endRun(open, outcome)
}

// endRun closes a run. A run whose VMs never ran is dropped.
func (w *writer) endRun(r Run, outcome RunOutcome) {
	w.runEnds(r, outcome)
	if r.Started.IsZero() {
		w.drop(tRuns, &r)
		return
	}
	r.Ended, r.Outcome, r.Grant = w.at, outcome, nil
	w.put(tRuns, &r)
	job, _ := w.read().PeriodicJob(r.Job)
	job.Name, job.Declared = r.Job, job.Declared || r.Declared
	job.Runs++
	job.LastRun = r.Ended
	if job.Runs > MaxRuns {
		for _, old := range w.read().Runs(r.Job)[:job.Runs-MaxRuns] {
			w.drop(tRuns, &old)
			job.Runs, job.Bytes = job.Runs-1, job.Bytes-old.Usage.bytes()
		}
	}
	w.put(tJobs, &job)
	w.forgetJobs()
}

// runEnds records in the run's occurrence whether the run ended by its deadline: Met or Missed. A run that was lost, or whose VMs never
// ran, has missed it.
func (w *writer) runEnds(r Run, outcome RunOutcome) {
	o, ok := w.read().Occurrence(r.Occurrence)
	if r.Occurrence == "" || !ok || o.State.Over() {
		return
	}
	switch {
	case r.Started.IsZero():
		o.State, o.Text = Missed, "virtual cluster "+r.Name+" was "+string(outcome)+" before any of its VMs ran"
	case outcome == RunLost:
		o.State, o.Text = Missed, "VMs of virtual cluster "+r.Name+" went with their hosts"
	case w.at.After(o.Due):
		o.State, o.Text = Missed, fmt.Sprintf("it ended %s after it was due", w.at.Sub(o.Due).Round(time.Second))
	default:
		o.State, o.Text = Met, fmt.Sprintf("it ended %s before it was due", o.Due.Sub(w.at).Round(time.Second))
	}
	w.put(tOccurrences, &o)
	w.event("occurrence-"+string(o.State), "job", o.Job, "the run of %s: %s", timeText(o.Period), o.Text)
}

// forgetJobs drops jobs while there are more than MaxJobs, or their skylines take more than maxUsageBytes. Each time the tenant with
// the most loses a job that no owner signed off: a found one before a declared one, then the one whose last run is oldest. Signed-off
// jobs stay; if only those are left, they lose skylines.
func (w *writer) forgetJobs() {
	jobs := w.read().PeriodicJobs()
	bytes, byTenant, bytesOf := 0, map[string]int{}, map[string]int{}
	for _, j := range jobs {
		tenant, _ := SplitName(j.Name)
		bytes += j.Bytes
		byTenant[tenant]++
		bytesOf[tenant] += j.Bytes
	}
	for n := len(jobs); n > MaxJobs || bytes > maxUsageBytes; n-- {
		share := byTenant
		if n <= MaxJobs {
			share = bytesOf
		}
		at := -1
		for i, j := range jobs {
			if j.Name == "" || j.SignOff.State == SignedOff {
				continue
			}
			if at < 0 || goesBefore(j, jobs[at], share) {
				at = i
			}
		}
		if at < 0 {
			w.forgetUsage(bytes) // only those that owners signed off are left: their number is limited where they are accepted
			return
		}
		j := jobs[at]
		tenant, _ := SplitName(j.Name)
		byTenant[tenant]--
		bytesOf[tenant] -= j.Bytes
		bytes -= j.Bytes
		w.dropJob(j)
		jobs[at].Name = ""
	}
}

// forgetUsage drops skylines of runs while they take more than maxUsageBytes; bytes is what they take now. Each time the tenant with
// the most bytes loses the oldest skyline of its largest job.
func (w *writer) forgetUsage(bytes int) {
	bytesOf := map[string]int{}
	jobs := w.read().PeriodicJobs()
	for _, j := range jobs {
		tenant, _ := SplitName(j.Name)
		bytesOf[tenant] += j.Bytes
	}
	for bytes > maxUsageBytes {
		at := 0
		for i := range jobs {
			of, _ := SplitName(jobs[i].Name)
			other, _ := SplitName(jobs[at].Name)
			if n := cmp.Or(cmp.Compare(bytesOf[of], bytesOf[other]), cmp.Compare(jobs[i].Bytes, jobs[at].Bytes)); n > 0 {
				at = i
			}
		}
		j := &jobs[at]
		freed := 0
		for _, r := range w.read().Runs(j.Name) {
			if freed = r.Usage.bytes(); freed > 0 {
				r.Usage = nil
				w.put(tRuns, &r)
				break
			}
		}
		if freed == 0 {
			return
		}
		tenant, _ := SplitName(j.Name)
		bytes, j.Bytes, bytesOf[tenant] = bytes-freed, j.Bytes-freed, bytesOf[tenant]-freed
		row := *j
		w.put(tJobs, &row)
	}
}

func goesBefore(a, b PeriodicJob, share map[string]int) bool {
	ofA, _ := SplitName(a.Name)
	ofB, _ := SplitName(b.Name)
	if n := cmp.Compare(share[ofB], share[ofA]); n != 0 {
		return n < 0
	}
	if ofA != ofB {
		return ofA < ofB
	}
	if a.Declared != b.Declared {
		return b.Declared
	}
	return a.LastRun.Before(b.LastRun)
}

// dropJob drops a job with its runs that have ended and its occurrences.
func (w *writer) dropJob(j PeriodicJob) {
	for _, r := range w.read().Runs(j.Name) {
		w.drop(tRuns, &r)
	}
	for _, o := range w.read().Occurrences(j.Name) {
		w.drop(tOccurrences, &o)
	}
	w.drop(tJobs, &j)
}

func (w *writer) runUsage(b *RunUsagePut) error {
	for _, put := range b.Runs {
		r, ok := first[Run](w.read(), tRuns, "id", put.Run)
		job, known := w.read().PeriodicJob(r.Job)
		if !ok || !known || r.Ended.IsZero() {
			continue // it was dropped meanwhile
		}
		usage := put.Usage
		job.Bytes += usage.bytes() - r.Usage.bytes()
		r.Usage = &usage
		w.put(tRuns, &r)
		w.put(tJobs, &job)
	}
	w.forgetJobs()
	return nil
}

// maxSignedOff is how many jobs may be signed off.
const maxSignedOff = 900

func (w *writer) periodicPut(b *PeriodicPut) error {
	job, ok := w.read().PeriodicJob(b.Job)
	if !ok {
		return fmt.Errorf("job %s: %w", b.Job, ErrNotFound)
	}
	if b.Version != job.ModifyIndex {
		return fmt.Errorf("job %s changed at index %d: %w", b.Job, job.ModifyIndex, ErrConflict)
	}
	if b.SignOff.State == SignedOff && job.SignOff.State != SignedOff {
		n := 0
		each(w.read(), func(j *PeriodicJob) bool {
			if j.SignOff.State == SignedOff {
				n++
			}
			return true
		}, tJobs, "id")
		if n >= maxSignedOff {
			return fmt.Errorf("job %s: %d jobs are signed off already, which is the most that may be: reject one first: %w", b.Job, n, ErrConflict)
		}
	}
	if b.SignOff.State == SignedOff {
		if err := w.read().CheckSignOff(b.Job, &b.SignOff); err != nil {
			return fmt.Errorf("job %s: %w", b.Job, err)
		}
	}
	job.SignOff, job.ModifyIndex = b.SignOff, w.index
	job.SignOff.At = w.at
	w.put(tJobs, &job)
	verb := map[string]string{"accept": "accepted", "override": "changed", "reject": "rejected"}[b.Verb]
	w.event("job-"+cmp.Or(verb, "changed"), "job", job.Name, "%s%s", b.Text, askedBy(b.SignOff.By))
	for _, o := range w.read().Occurrences(job.Name) { // the leader makes those again that are still to come
		if !o.State.Over() && o.State != RunningNow || o.State == LeftOut && o.Start.After(w.at) {
			w.drop(tOccurrences, &o)
			w.touchAll(o.Hosts)
		}
	}
	return w.remember(nil, b.Remembered)
}

func (w *writer) touchAll(hosts []string) {
	for _, h := range slices.Compact(slices.Sorted(slices.Values(hosts))) {
		w.touch(h)
	}
}

// agenda records what the leader decided about occurrences. It leaves out an occurrence of which the job, the run or a host has changed
// since, and conflicts if none is left and none is to be dropped. It touches the hosts whose reservations change: older plans that use
// those hosts conflict.
func (w *writer) agenda(b *AgendaPut) error {
	if b.Basis >= w.index {
		return fmt.Errorf("decided on index %d, which is not before %d: %w", b.Basis, w.index, ErrConflict)
	}
	var may []Occurrence
	var conflict error
	for i := range b.Occurrences {
		if err := w.mayBe(&b.Occurrences[i], b.Basis); err != nil {
			conflict = cmp.Or(conflict, err)
			continue
		}
		may = append(may, b.Occurrences[i])
	}
	if len(may)+len(b.Drop) == 0 {
		return conflict
	}
	affected := map[string]bool{}
	for _, next := range may {
		old, had := w.read().Occurrence(next.ID)
		w.put(tOccurrences, &next)
		if !had || !slices.Equal(old.Hosts, next.Hosts) || old.Reserves() != next.Reserves() {
			for _, h := range slices.Concat(old.Hosts, next.Hosts) {
				affected[h] = true
			}
		}
		if next.State != old.State && (had || next.State != Confirmed) {
			w.event("occurrence-"+string(next.State), "job", next.Job, "the run of %s%s", timeText(next.Period), because(next.Text))
		}
	}
	for _, id := range b.Drop {
		if o, ok := w.read().Occurrence(id); ok && o.State != RunningNow { // its run began meanwhile
			w.drop(tOccurrences, &o)
			for _, h := range o.Hosts {
				affected[h] = true
			}
		}
	}
	for _, next := range may {
		w.forgetPast(next.Job)
	}
	var hosts []string
	for h := range affected {
		hosts = append(hosts, h)
	}
	w.touchAll(hosts)
	return nil
}

// OccurrenceMayBe says why an occurrence cannot replace the one that there is: its run began or ended meanwhile.
func (s *Snapshot) OccurrenceMayBe(next *Occurrence) error {
	if old, had := s.Occurrence(next.ID); had && (old.State.Over() || old.VC != next.VC) {
		return fmt.Errorf("occurrence %s is %s: %w", next.ID, old.State, ErrConflict)
	}
	return nil
}

// mayBe says why an occurrence that was decided on the state of the index basis may not be put; nil if it may.
func (w *writer) mayBe(next *Occurrence, basis uint64) error {
	job, ok := w.read().PeriodicJob(next.Job)
	if !ok || job.ModifyIndex > basis || job.SignOff.State != SignedOff && !next.State.Over() {
		return fmt.Errorf("occurrence %s: its job changed: %w", next.ID, ErrConflict)
	}
	if err := w.read().OccurrenceMayBe(next); err != nil {
		return err
	}
	for _, host := range next.Hosts {
		if h, ok := w.read().Host(host); next.Reserves() && (!ok || h.Version > basis) {
			return fmt.Errorf("occurrence %s: host %s changed: %w", next.ID, host, ErrConflict)
		}
	}
	return nil
}

// forgetPast drops the oldest occurrences of a job that are over, beyond keepPast. It leaves those whose slots have not ended: the
// leader would make them again.
func (w *writer) forgetPast(job string) {
	over := slices.DeleteFunc(w.read().Occurrences(job), func(o Occurrence) bool { return !o.State.Over() || !o.End.Before(w.at) })
	for _, o := range over[:max(0, len(over)-keepPast)] {
		w.drop(tOccurrences, &o)
	}
}

// hasPeriodic says whether the state has what a server that does not know periodic work must not miss: a decision of an owner, or a VC
// that says something about it.
func (s *Snapshot) hasPeriodic() (found bool) {
	each(s, func(j *PeriodicJob) bool { found = j.SignOff.State != ""; return !found }, tJobs, "id")
	s.EachVC(func(vc *VC) bool { found = found || vc.Periodic != Periodic{} || vc.Duration != 0; return !found })
	return found
}

// dropPeriodic drops what a server that does not know periodic work could not read.
func (w *writer) dropPeriodic() {
	forgetRows(w, tRuns, every[Run])
	forgetRows(w, tJobs, every[PeriodicJob])
	forgetRows(w, tOccurrences, every[Occurrence])
	if m, ok := w.read().Meta(); ok && m.Settings.Periodic != (PeriodicSettings{}) {
		m.Settings.Periodic = PeriodicSettings{}
		w.put(tMeta, &m)
	}
}

// dropPeriodicOf drops the runs, jobs and occurrences of a tenant.
func (w *writer) dropPeriodicOf(tenant string) {
	of := func(name string) bool { t, _ := SplitName(name); return t == tenant }
	forgetRows(w, tRuns, func(r *Run) bool { return of(r.Job) })
	forgetRows(w, tJobs, func(j *PeriodicJob) bool { return of(j.Name) })
	forgetRows(w, tOccurrences, func(o *Occurrence) bool { return of(o.Job) })
}
