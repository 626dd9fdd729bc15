package state

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// periodicSince is the version of the format that brought runs, periodic jobs and the agenda.
const periodicSince = 2

// Limits of what is kept of periodic work. A skyline takes at most 10 KB: see MaxRunSteps.
const (
	MaxRuns       = 60       // that are kept of a job
	MaxJobs       = 1000     // of all tenants; the tenant with the most loses one first
	maxUsageBytes = 32 << 20 // of all skylines together
	// MaxRunSteps is how many steps the skyline of a run may have. A longer run has longer steps.
	MaxRunSteps    = 480
	maxAhead       = 600 // occurrences in one command
	keepPast       = 60  // occurrences of a job that are over
	maxJobVMs      = 4096
	maxJobSeconds  = 32 * 24 * 3600
	maxSkips       = 366
	maxRecurrence  = 500 // bytes
	maxAgendaText  = 500 // bytes
	maxRunGroups   = 64
	maxJobNameSize = 200 // bytes
)

// Periodic is what a VC file says about periodic work.
type Periodic struct {
	Name     string `json:"name"`               // of the job, within its tenant
	Deadline int64  `json:"deadline,omitempty"` // of its runs, seconds after the start of the period; 0: not declared
}

// RunGroup is a group of VMs of a run.
type RunGroup struct {
	Name   string  `json:"name"`
	Count  int     `json:"count"`
	CPU    float64 `json:"cpu"`              // need of one VM, cores
	Memory int64   `json:"memory"`           // of one VM, bytes
	Spread bool    `json:"spread,omitempty"` // no two of its VMs on one host
}

// RunUsage is the skyline of a run: what its VMs used together, in steps from its start on.
type RunUsage struct {
	Step   int64   `json:"step"`   // seconds
	VMs    []int   `json:"vms"`    // that ran
	Cores  []int64 `json:"cores"`  // thousandths of a core
	Memory []int64 `json:"memory"` // MiB
	// Throttled are the steps in which a cap held a VM back: it needed at least what it used.
	Throttled []int `json:"throttled,omitempty"`
	// Unknown are the steps that were not observed. They have what the step before them has.
	Unknown []int `json:"unknown,omitempty"`
}

// bytes is about what a skyline takes in a saved state.
func (u *RunUsage) bytes() int {
	if u == nil {
		return 0
	}
	return 100 + 14*len(u.Cores) + 4*(len(u.Throttled)+len(u.Unknown))
}

// Run is one run of a VC: from the request to run it until it is stopped or deleted, or all its core VMs have ended.
//
// Many fields: it is one row of the replicated state.
type Run struct {
	ID        string     `json:"id"` // of the VC, and the log index at which it was submitted
	VC        string     `json:"vc"`
	Name      string     `json:"name"` // full name of the VC
	Job       string     `json:"job"`  // full name of the job
	Declared  bool       `json:"declared,omitempty"`
	Kind      string     `json:"kind,omitempty"` // images of its groups
	Submitted time.Time  `json:"submitted"`
	Started   time.Time  `json:"started,omitzero"` // when its first VM ran
	Ended     time.Time  `json:"ended,omitzero"`
	Outcome   RunOutcome `json:"outcome,omitempty"`
	Deadline  int64      `json:"deadline,omitempty"` // declared, seconds after the start of the period
	Groups    []RunGroup `json:"groups"`
	MinYield  float64    `json:"minYield,omitempty"`  // of the VC
	Preempted int        `json:"preempted,omitempty"` // how often it went back to the queue
	// Occurrence is the id of the occurrence that this run carries out; "": none.
	Occurrence string    `json:"occurrence,omitempty"`
	Usage      *RunUsage `json:"usage,omitempty"`
	Grant      *Grant    `json:"grant,omitempty"` // nil: it is granted nothing
	Extras     *Extras   `json:"extras,omitempty"`
}

// RunOutcome is how a run ended.
type RunOutcome string

// Outcomes of runs.
const (
	RunStopped RunOutcome = "stopped" // by a request
	RunDeleted RunOutcome = "deleted" // by a request
	RunEnded   RunOutcome = "ended"   // all core VMs ended by themselves
	RunLost    RunOutcome = "lost"    // all core VMs ended, and at least one was lost with its host
)

// PeriodicJob is a job: all runs under its name are runs of it.
type PeriodicJob struct {
	Name     string    `json:"name"` // full name: declared, or the template of the names of its VCs
	Declared bool      `json:"declared,omitempty"`
	Runs     int       `json:"runs"`  // that are kept
	Bytes    int       `json:"bytes"` // of their skylines
	LastRun  time.Time `json:"lastRun,omitzero"`
	SignOff  SignOff   `json:"signOff,omitzero"`

	ModifyIndex uint64 `json:"modifyIndex"` // last decision of an owner
}

// SignOffState is what an owner decided about a job.
type SignOffState string

// Decisions of owners.
const (
	SignedOff SignOffState = "accepted"
	Rejected  SignOffState = "rejected"
)

// SignOff is the decision of an owner about a job, with all that it reserves. The zero value is none.
//
// Many fields: it is a contract, whole.
type SignOff struct {
	State SignOffState `json:"state,omitempty"`
	By    string       `json:"by,omitempty"`
	At    time.Time    `json:"at,omitzero"`
	// Recurrence is when its periods start: DTSTART and RRULE (RFC 5545), with a time zone.
	Recurrence string `json:"recurrence,omitempty"`
	// Arrival, Lateness and Due are in seconds. A run may arrive from Arrival after the start of its period, and up to Lateness after
	// that. It must have ended by Due after the start of the period.
	Arrival  int64 `json:"arrival,omitempty"`
	Lateness int64 `json:"lateness,omitempty"`
	Due      int64 `json:"due,omitempty"`
	// Declared: the owner gave Due; else it is the end of the slot.
	Declared bool       `json:"declared,omitempty"`
	Miss     float64    `json:"miss,omitempty"`     // chance that a run needs more than is reserved; 0: it is not learned
	Runs     int        `json:"runs,omitempty"`     // that it was learned from
	Groups   []RunGroup `json:"groups,omitempty"`   // of a run
	MinYield float64    `json:"minYield,omitempty"` // below which a run is not admitted
	Step     int64      `json:"step,omitempty"`     // seconds
	Cores    []float64  `json:"cores,omitempty"`    // of all VMs together, by step from the start of a run
	Skips    []string   `json:"skips,omitempty"`    // dates in the time zone of the recurrence that have no run: 2026-12-24
}

// Length of a run's skyline.
func (s *SignOff) Length() time.Duration {
	return time.Duration(s.Step) * time.Second * time.Duration(len(s.Cores))
}

// VMs of a run.
func (s *SignOff) VMs() (n int) {
	for _, g := range s.Groups {
		n += g.Count
	}
	return n
}

// OccurrenceState is how far an occurrence of a job has come.
type OccurrenceState string

// The states of an occurrence. Those behind running are ends.
const (
	Confirmed   OccurrenceState = "confirmed"    // it has a witness
	Degraded    OccurrenceState = "degraded"     // hosts have no room for it: Text says why. With a witness: moves make its room
	Reconfirmed OccurrenceState = "re-confirmed" // it has a witness again
	RunningNow  OccurrenceState = "running"
	Met         OccurrenceState = "met"
	Missed      OccurrenceState = "missed"
	LeftOut     OccurrenceState = "skipped"
)

// Over says whether an occurrence has ended.
func (s OccurrenceState) Over() bool { return s == Met || s == Missed || s == LeftOut }

// Occurrence is one time at which a job is to run, with its slot and its witness.
type Occurrence struct {
	ID     string          `json:"id"` // of the job, and the start of its period
	Job    string          `json:"job"`
	Period time.Time       `json:"period"` // its start
	Start  time.Time       `json:"start"`  // of its slot
	End    time.Time       `json:"end"`    // of its slot
	Due    time.Time       `json:"due"`
	State  OccurrenceState `json:"state"`
	Hosts  []string        `json:"hosts,omitempty"` // the witness: of each VM, group by group
	Text   string          `json:"text,omitempty"`
	VC     string          `json:"vc,omitempty"` // that runs it, by its id
}

// OccurrenceID is the id of the occurrence of a job whose period starts at a time.
func OccurrenceID(job string, period time.Time) string {
	return job + "@" + period.UTC().Format(time.RFC3339)
}

// Reserves says whether hosts keep room for the occurrence: it has a witness, and its run has not begun. A degraded occurrence has a
// witness only while moves make its room.
func (o *Occurrence) Reserves() bool {
	return (o.State == Confirmed || o.State == Reconfirmed || o.State == Degraded) && len(o.Hosts) > 0
}

func (b *AgendaPut) since() int {
	for i := range b.Occurrences {
		if o := &b.Occurrences[i]; o.State == Degraded && len(o.Hosts) > 0 {
			return slotMovesSince
		}
	}
	return 0
}

// RunUsagePut records the skylines of runs.
type RunUsagePut struct {
	Runs []RunUsageOf `json:"runs"`
}

// RunUsageOf is the skyline of a run.
type RunUsageOf struct {
	Run   string   `json:"run"` // id
	Usage RunUsage `json:"usage"`
}

// PeriodicPut is the decision of an owner about a job. Version is the ModifyIndex that the job must have.
type PeriodicPut struct {
	Job        string      `json:"job"`
	Version    uint64      `json:"version,omitempty"`
	SignOff    SignOff     `json:"signOff"`
	Verb       string      `json:"verb"` // accept, override, reject
	Text       string      `json:"text,omitempty"`
	Remembered *Remembered `json:"remembered,omitempty"`
}

// AgendaPut is what the leader changes in the agenda, on a snapshot of that index.
type AgendaPut struct {
	Basis       uint64       `json:"basis"`
	Occurrences []Occurrence `json:"occurrences,omitempty"` // rows to insert or replace, whole
	Drop        []string     `json:"drop,omitempty"`        // ids
}

// Changed says whether a host has changed since the agenda was decided: one in the witness of a new occurrence, or of the occurrence
// that it replaces.
func (b *AgendaPut) Changed(s *Snapshot) bool {
	changed := func(o *Occurrence) bool {
		return o.Reserves() && slices.ContainsFunc(o.Hosts, func(name string) bool {
			h, ok := peek[Host](s, tHosts, "id", name)
			return !ok || h.Version > b.Basis
		})
	}
	return slices.ContainsFunc(b.Occurrences, func(o Occurrence) bool {
		old, _ := s.Occurrence(o.ID)
		return changed(&o) || changed(&old)
	})
}

// EachAhead calls f with the occurrences that are not over, which it must not change, until it returns false.
func (s *Snapshot) EachAhead(f func(*Occurrence) bool) { each(s, f, tOccurrences, "ahead", "ahead") }

// KeepsRuns says whether all servers know periodic work.
func (s *Snapshot) KeepsRuns() bool { return s.Format() >= periodicSince }

// Runs returns the runs of a job that have ended, in the order of their submission.
func (s *Snapshot) Runs(job string) []Run {
	runs := slices.DeleteFunc(all[Run](s, tRuns, "job", job), func(r Run) bool { return r.Ended.IsZero() })
	slices.SortStableFunc(runs, func(a, b Run) int { return a.Submitted.Compare(b.Submitted) })
	return runs
}

// RunsOfOtherJobs returns the runs that have ended of each other job of a job's tenant, job by job. Of other tenants a job must learn nothing.
func (s *Snapshot) RunsOfOtherJobs(name string) iter.Seq[[]Run] {
	tenant, _ := SplitName(name)
	return func(yield func([]Run) bool) {
		for _, j := range s.PeriodicJobs() {
			if of, _ := SplitName(j.Name); of == tenant && j.Name != name && !yield(s.Runs(j.Name)) {
				return
			}
		}
	}
}

// OpenRun returns the run of a VC that has not ended.
func (s *Snapshot) OpenRun(vc string) (Run, bool) { return first[Run](s, tRuns, "open", vc) }

// EachRun calls f with all runs, which it must not change, until it returns false.
func (s *Snapshot) EachRun(f func(*Run) bool) { each(s, f, tRuns, "id") }

// PeriodicJobs returns the jobs in order of their names.
func (s *Snapshot) PeriodicJobs() []PeriodicJob { return all[PeriodicJob](s, tJobs, "id") }

// PeriodicJob returns the job of that full name.
func (s *Snapshot) PeriodicJob(name string) (PeriodicJob, bool) {
	return first[PeriodicJob](s, tJobs, "id", name)
}

// BegunJobs returns the jobs that virtual clusters declare and of which nothing is kept, in order of their names: their first run has not
// ended.
func (s *Snapshot) BegunJobs() []PeriodicJob {
	names := map[string]bool{}
	each(s, func(r *Run) bool {
		if r.Declared && !names[r.Job] {
			_, kept := s.PeriodicJob(r.Job)
			names[r.Job] = !kept
		}
		return true
	}, tRuns, "open")
	var out []PeriodicJob
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if names[name] {
			out = append(out, PeriodicJob{Name: name, Declared: true})
		}
	}
	return out
}

// Occurrences returns those of a job, in the order of their periods.
func (s *Snapshot) Occurrences(job string) []Occurrence {
	return sortedByPeriod(all[Occurrence](s, tOccurrences, "job", job))
}

// Agenda returns all occurrences that are not over, in the order of their periods.
func (s *Snapshot) Agenda() []Occurrence {
	return sortedByPeriod(all[Occurrence](s, tOccurrences, "ahead", "ahead"))
}

// HasAgenda says whether an occurrence is not over.
func (s *Snapshot) HasAgenda() bool {
	_, has := peek[Occurrence](s, tOccurrences, "ahead", "ahead")
	return has
}

// AnySignedOff says whether an owner has signed a job off.
func (s *Snapshot) AnySignedOff() (found bool) {
	each(s, func(j *PeriodicJob) bool { found = j.SignOff.State == SignedOff; return !found }, tJobs, "id")
	return found
}

// eachSignedOff calls f with the jobs of a tenant that are signed off.
func (s *Snapshot) eachSignedOff(tenant string, f func(*PeriodicJob)) {
	some := func(j *PeriodicJob) bool {
		if of, _ := SplitName(j.Name); of == tenant && j.SignOff.State == SignedOff {
			f(j)
		}
		return true
	}
	if tenant == DefaultTenant {
		each(s, some, tJobs, "id")
		return
	}
	each(s, some, tJobs, "id_prefix", tenant+tenantSeparator)
}

// CheckSignOff says which quota of its tenant the signed-off jobs would exceed if all of them ran at once, this job under the given
// contract; nil if none. A suspended tenant signs off nothing.
func (s *Snapshot) CheckSignOff(job string, contract *SignOff) error {
	tenant, _ := SplitName(job)
	if t, ok := s.Tenant(tenant); !ok || t.Suspended {
		return fmt.Errorf("tenant %s is %w", tenant, ErrSuspended)
	}
	used, more := Use{}, Use{}
	add := func(use Use, c *SignOff, times float64) {
		use[QuotaPeriodic] += times
		for _, g := range c.Groups {
			n := times * float64(g.Count)
			use[QuotaVMs] += n
			use[QuotaCPU] += n * g.CPU
			use[QuotaMemory] += n * float64(g.Memory)
		}
	}
	s.eachSignedOff(tenant, func(j *PeriodicJob) {
		add(used, &j.SignOff, 1)
		if j.Name == job {
			add(more, &j.SignOff, -1)
		}
	})
	add(more, contract, 1)
	return s.checkUse(tenant, used, more)
}

// Occurrence returns the occurrence of that id.
func (s *Snapshot) Occurrence(id string) (Occurrence, bool) {
	return first[Occurrence](s, tOccurrences, "id", id)
}

func sortedByPeriod(all []Occurrence) []Occurrence {
	slices.SortStableFunc(all, func(a, b Occurrence) int { return a.Period.Compare(b.Period) })
	return all
}

// valid says what no skyline can have.
func (u *RunUsage) valid() error {
	if n := len(u.Cores); u.Step < 1 || u.Step > maxJobSeconds || n > MaxRunSteps || len(u.VMs) != n || len(u.Memory) != n || len(u.Throttled) > n || len(u.Unknown) > n {
		return fmt.Errorf("a skyline of %d steps of %d s: %w", n, u.Step, ErrInvalid)
	}
	for k := range u.Cores {
		if u.VMs[k] < 0 || u.Cores[k] < 0 || u.Memory[k] < 0 || u.Cores[k] > maxVMMemory || u.Memory[k] > maxVMMemory {
			return fmt.Errorf("a skyline with %d VMs, %d, %d in a step: %w", u.VMs[k], u.Cores[k], u.Memory[k], ErrInvalid)
		}
	}
	return nil
}

func (b *RunUsagePut) valid() error {
	for i := range b.Runs {
		if err := check("run", b.Runs[i].Run, "id", b.Runs[i].Run); err != nil {
			return err
		}
		if err := b.Runs[i].Usage.valid(); err != nil {
			return fmt.Errorf("run %q: %w", b.Runs[i].Run, err)
		}
	}
	return nil
}

func (b *PeriodicPut) valid() error {
	if err := check("job", b.Job, "name", b.Job, "verb", b.Verb); err != nil {
		return err
	}
	if err := validRemembered(nil, b.Remembered); err != nil {
		return err
	}
	if len(b.SignOff.By) > maxMadeBy || len(b.Text) > maxAgendaText || len(b.Job) > maxJobNameSize {
		return fmt.Errorf("job %q: a text is too long: %w", b.Job, ErrInvalid)
	}
	if err := b.SignOff.Valid(); err != nil {
		return fmt.Errorf("job %q: %w", b.Job, err)
	}
	return nil
}

// Valid says what the log does not take of a contract.
func (x *SignOff) Valid() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf(format+": %w", append(args, ErrInvalid)...)
	}
	switch x.State {
	case Rejected:
		return nil
	case SignedOff:
	default:
		return bad("state %q is neither %s nor %s", x.State, SignedOff, Rejected)
	}
	if err := x.validTimes(); err != nil {
		return err
	}
	switch {
	case !(x.MinYield >= 0 && x.MinYield <= 1):
		return bad("its minimum yield is %v", x.MinYield)
	case !(x.Miss >= 0 && x.Miss < 1) || x.Runs < 0:
		return bad("its chance to miss is %v", x.Miss)
	case len(x.Groups) < 1 || len(x.Groups) > maxRunGroups || len(x.Skips) > maxSkips:
		return bad("it has %d groups, and leaves out %d dates", len(x.Groups), len(x.Skips))
	}
	if err := validGroups(x.Groups); err != nil {
		return err
	}
	if slices.ContainsFunc(x.Cores, func(c float64) bool { return !(c >= 0) || math.IsInf(c, 0) }) {
		return bad("its skyline has %v cores", x.Cores)
	}
	for _, day := range x.Skips {
		if _, err := time.Parse(time.DateOnly, day); err != nil {
			return bad("%q is no date", day)
		}
	}
	return nil
}

func (x *SignOff) validTimes() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf(format+": %w", append(args, ErrInvalid)...)
	}
	within := func(seconds int64) bool { return seconds >= 0 && seconds <= maxJobSeconds }
	switch {
	case x.Recurrence == "" || len(x.Recurrence) > maxRecurrence:
		return bad("its recurrence has %d bytes", len(x.Recurrence))
	case !within(x.Arrival) || !within(x.Lateness) || !within(x.Due):
		return bad("it arrives after %d s, up to %d s late, and is due after %d s", x.Arrival, x.Lateness, x.Due)
	case x.Step < 1 || x.Step > maxJobSeconds || len(x.Cores) < 1 || len(x.Cores) > MaxRunSteps || int64(len(x.Cores))*x.Step > maxJobSeconds:
		return bad("its skyline has %d steps of %d s", len(x.Cores), x.Step)
	case x.Arrival+int64(len(x.Cores))*x.Step > x.Due:
		return bad("a run of %d s that arrives after %d s does not end within %d s", int64(len(x.Cores))*x.Step, x.Arrival, x.Due)
	}
	return nil
}

func validGroups(groups []RunGroup) error {
	vms := 0
	for _, g := range groups {
		if g.Count < 1 || g.Count > maxJobVMs || !(g.CPU >= 0) || math.IsInf(g.CPU, 0) || !isMemory(g.Memory) || strings.ContainsRune(g.Name, 0) {
			return fmt.Errorf("group %q has %d VMs of %v cores and %d bytes: %w", g.Name, g.Count, g.CPU, g.Memory, ErrInvalid)
		}
		if vms += g.Count; vms > maxJobVMs {
			return fmt.Errorf("a run has more than %d VMs: %w", maxJobVMs, ErrInvalid)
		}
	}
	return nil
}

func (b *AgendaPut) valid() error {
	if len(b.Occurrences)+len(b.Drop) > 2*maxAhead {
		return fmt.Errorf("%d occurrences at once: %w", len(b.Occurrences)+len(b.Drop), ErrInvalid)
	}
	for i := range b.Occurrences {
		o := &b.Occurrences[i]
		if err := check("occurrence", o.ID, "id", o.ID, "job", o.Job); err != nil {
			return err
		}
		switch o.State {
		case Confirmed, Degraded, Reconfirmed, RunningNow, Met, Missed, LeftOut:
		default:
			return fmt.Errorf("occurrence %q: state %q: %w", o.ID, o.State, ErrInvalid)
		}
		if len(o.Hosts) > maxJobVMs || len(o.Text) > maxAgendaText || o.End.Before(o.Start) || slices.ContainsFunc(o.Hosts, func(h string) bool { return h == "" || strings.ContainsRune(h, 0) }) {
			return fmt.Errorf("occurrence %q: %d hosts, from %s to %s: %w", o.ID, len(o.Hosts), o.Start, o.End, ErrInvalid)
		}
	}
	for _, id := range b.Drop {
		if err := check("occurrence", id, "id", id); err != nil {
			return err
		}
	}
	return nil
}
