package signoff

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"evenkeel/cluster/scheduler/reservation"
	"evenkeel/forecast/periodic"
)

const (
	gib  = 1 << 30
	day  = 24 * time.Hour
	week = 7 * day
)

// Host is what a host has for VMs of the cluster.
type Host struct {
	Name        string
	CPU, Memory float64 // cores, bytes
}

// Resident is a group of VMs that run all the time, outside of the agenda.
type Resident struct {
	Name        string
	Count       int
	CPU, Memory float64 // cores and bytes that each keeps
}

// Options of Play.
type Options struct {
	Zone      *time.Location           // on whose clock daily and weekly jobs go
	Miss      float64                  // chance that a run needs more than is reserved, of each resource
	MinYield  float64                  // least CPU over need that a run may have; it then takes longer
	Deadlines map[string]time.Duration // by name of the job, after the begin of its period; they win over what is declared or found
	Step      float64                  // seconds, of the agenda; 0: the longest of the runs
}

// Validate reports what cannot be played.
func (o *Options) Validate() error {
	switch {
	case o.Zone == nil:
		return errors.New("no time zone")
	case !(o.Miss > 0 && o.Miss < 1):
		return fmt.Errorf("chance to miss %v: it must be between 0 and 1", o.Miss)
	case !(o.MinYield > 0 && o.MinYield <= 1):
		return fmt.Errorf("minimum yield %v: it must be above 0 and at most 1", o.MinYield)
	case math.Mod(o.Step, 1) != 0 || math.Mod(day.Seconds(), max(1, o.Step)) != 0:
		return fmt.Errorf("a step of %v s does not divide a day", o.Step)
	}
	return nil
}

// Report is what would have been.
type Report struct {
	Step        float64 `json:"step"`        // seconds, of the agenda
	AgendaSteps int     `json:"agendaSteps"` // a day, or a week where a job is weekly
	PeakShare   float64 `json:"peakShare"`   // most that is reserved in a step, of the resource of which more is
	Hosts       int     `json:"hosts"`       // that there are
	// HostsDeclared and HostsReserved are the least on which all jobs with a slot, and the VMs that run all the time, have room: with what is declared from the
	// begin of each run on, and in an agenda. 0: far more than there are.
	HostsDeclared int   `json:"hostsDeclared"`
	HostsReserved int   `json:"hostsReserved"`
	Jobs          []Job `json:"jobs"`
}

// Job is one job. Runs that were learned from are in no figure; Before is as it was, After in the slots; what has no slot stays as it was.
//
// Many fields: it is one line of a report.
type Job struct {
	Owner            string        `json:"owner,omitempty"`
	Name             string        `json:"name"`
	Kind             string        `json:"kind,omitempty"`
	Recurrence       string        `json:"recurrence"`
	Period           float64       `json:"period"`             // seconds
	Deadline         float64       `json:"deadline,omitempty"` // seconds after the begin of its period
	Source           string        `json:"source,omitempty"`   // of the deadline: operator, declared, data, follower
	Miss             float64       `json:"miss,omitempty"`     // chance that is promised
	Learned          int           `json:"learned"`            // runs
	Played           int           `json:"played"`
	Unavoidable      int           `json:"unavoidable"` // of them, runs that begin too late or take too long whatever they get
	MissedBefore     int           `json:"missedBefore"`
	MissedAfter      int           `json:"missedAfter"`
	Short            int           `json:"short"` // of MissedAfter: more memory was needed than there was
	Used             CoresAndBytes `json:"used"`
	Before           CoresAndBytes `json:"reservedBefore"`
	After            CoresAndBytes `json:"reservedAfter"` // grants included
	GrantedCoreHours float64       `json:"grantedCoreHours"`
	GrantedGiBHours  float64       `json:"grantedGiBHours"`
	Slot             *Slot         `json:"slot,omitempty"`
	Refusal          *Refusal      `json:"refusal,omitempty"`
}

// CoresAndBytes are amounts over time, of the runs that are played.
type CoresAndBytes struct {
	CoreHours float64 `json:"coreHours"`
	GiBHours  float64 `json:"gibHours"`
}

// Slot is what a job has.
type Slot struct {
	Start float64   `json:"start"` // seconds after the begin of its period
	End   float64   `json:"end"`
	Cores []float64 `json:"cores"`  // by step
	Bytes []float64 `json:"memory"` // by step
	VMs   int       `json:"vms"`
	Hosts []string  `json:"hosts"` // of each VM: the witness
	Yield float64   `json:"yield"`
}

// Refusal is why a job has no slot.
type Refusal struct {
	Reason  string   `json:"reason"`
	At      *float64 `json:"at,omitempty"` // seconds since the agenda's begin at which it binds
	Changes []string `json:"changes"`      // each of which alone was tried and fits
}

// Play finds the jobs among the runs, reserves for them, and plays the runs that were not learned from.
func Play(runs []periodic.Recorded, hosts []Host, residents []Resident, o Options) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	runs, err := o.aligned(runs)
	if err != nil {
		return nil, err
	}
	jobs := periodic.Jobs(plain(runs), o.Zone)
	for name := range o.Deadlines {
		if !slices.ContainsFunc(jobs, func(j periodic.Job) bool { return j.Name == name }) {
			return nil, fmt.Errorf("deadline of %s: there is no such job among the runs", name)
		}
	}
	r := &Report{Step: o.Step, AgendaSteps: stepsFor(jobs, o.Step), Hosts: len(hosts)}
	contracts := make([]contract, len(jobs))
	for i := range jobs {
		contracts[i] = contract{job: jobs[i], period: int(jobs[i].Period.Seconds() / o.Step), peers: peersOf(jobs, i, runs)}
		r.Jobs = append(r.Jobs, contracts[i].sign(runs, jobs, r.AgendaSteps, &o))
	}
	b, err := newBoard(hosts, residents, r.AgendaSteps)
	if err != nil {
		return nil, err
	}
	order := b.order(contracts, r.Jobs)
	for _, i := range order {
		c := &contracts[i]
		accepted, refusal, err := b.agenda.Accept(c.request)
		switch {
		case err != nil:
			r.Jobs[i].Refusal = &Refusal{Reason: strings.ReplaceAll(err.Error(), c.request.Name, c.job.Name), Changes: []string{}}
		case refusal != nil:
			r.Jobs[i].refuse(c, refusal, &o)
		default:
			b.place(c, accepted, &r.Jobs[i], &o)
		}
	}
	b.play(&o)
	for i := range contracts {
		contracts[i].before(&r.Jobs[i], &o)
	}
	var declared, reserved []reservation.Request
	for i := range b.placed {
		declared, reserved = append(declared, b.placed[i].asDeclared()), append(reserved, b.placed[i].request)
	}
	r.PeakShare = b.agenda.Load().Peak()
	r.HostsDeclared, r.HostsReserved = needed(hosts, residents, b.steps, declared), needed(hosts, residents, b.steps, reserved)
	return r, nil
}

func plain(runs []periodic.Recorded) (out []periodic.Run) {
	for i := range runs {
		out = append(out, runs[i].Run)
	}
	return out
}

// aligned gives all runs the step of the agenda, and those without an end the end of their use.
func (o *Options) aligned(runs []periodic.Recorded) ([]periodic.Recorded, error) {
	if o.Step == 0 {
		for i := range runs {
			o.Step = max(o.Step, runs[i].Step)
		}
	}
	if o.Step == 0 {
		return nil, errors.New("of no run it is known what it used")
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	out := slices.Clone(runs)
	for i := range out {
		r := &out[i]
		if len(r.Usage) == 0 {
			continue
		}
		if r.End.IsZero() {
			r.End = r.From().Add(time.Duration(float64(len(r.Usage)) * r.Step * float64(time.Second)))
		}
		n := int(o.Step / r.Step)
		if float64(n)*r.Step != o.Step {
			return nil, fmt.Errorf("run %s: its step of %v s does not divide the agenda's of %v s", r.Name, r.Step, o.Step)
		}
		r.Usage, r.MemoryUsage, r.Throttled = coarser(r.Usage, n, false), coarser(r.MemoryUsage, n, true), throttledIn(r.Throttled, n)
		r.Step = o.Step
	}
	return out, nil
}

// coarser makes one step of n: of CPU the mean, of memory the most.
func coarser(v []float64, n int, highest bool) (out []float64) {
	for from := 0; from < len(v); from += n {
		x := 0.0
		for _, u := range v[from:min(len(v), from+n)] {
			if highest {
				x = max(x, u)
			} else {
				x += u / float64(n)
			}
		}
		out = append(out, x)
	}
	return out
}

func throttledIn(v []bool, n int) (out []bool) {
	for from := 0; from < len(v); from += n {
		out = append(out, slices.Contains(v[from:min(len(v), from+n)], true))
	}
	return out
}

// stepsFor is the steps of an agenda for the jobs: a day, or a week where that is a period.
func stepsFor(jobs []periodic.Job, step float64) int {
	if slices.ContainsFunc(jobs, func(j periodic.Job) bool { return j.Period == week }) {
		return int(week.Seconds() / step)
	}
	return int(day.Seconds() / step)
}

// sign makes the contract of a job, or says why there is none.
func (c *contract) sign(runs []periodic.Recorded, jobs []periodic.Job, steps int, o *Options) Job {
	out := Job{Owner: c.job.Owner, Name: c.job.Name, Kind: c.job.Kind, Recurrence: c.job.Recurrence.String(), Period: c.job.Period.Seconds()}
	refuse := func(reason string, changes ...string) Job {
		out.Refusal = &Refusal{Reason: reason, Changes: append([]string{}, changes...)}
		out.Deadline, out.Source, out.Learned = c.deadline.Seconds(), c.source, c.learned
		return out
	}
	if c.period == 0 || float64(c.period)*o.Step != out.Period || steps%c.period != 0 {
		return refuse(fmt.Sprintf("its period of %v does not divide a day, or is no multiple of the step of %v s", c.job.Period, o.Step))
	}
	if err := c.occurrences(runs, o); err != nil {
		return refuse(err.Error())
	}
	c.phase %= steps
	if reason := c.findDeadline(runs, jobs, o); reason != "" {
		return refuse(reason, fmt.Sprintf("a deadline (--deadline %s=DURATION)", c.job.Name))
	}
	if reason, changes := c.learn(o); reason != "" {
		return refuse(reason, changes...)
	}
	out.Deadline, out.Source, out.Miss, out.Learned = c.deadline.Seconds(), c.source, c.miss, c.learned
	return out
}

// order is that of the contracts in which slots are asked for.
func (b *board) order(contracts []contract, jobs []Job) (order []int) {
	for i := range contracts {
		if jobs[i].Refusal == nil {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(x, y int) int {
		return cmp.Compare(b.demandOf(&contracts[y].request), b.demandOf(&contracts[x].request))
	})
	return order
}

func (b *board) place(c *contract, a *reservation.Accepted, out *Job, o *Options) {
	p := placed{contract: *c, accepted: a, out: out}
	s := &Slot{Start: float64(a.Slot.Start) * o.Step, End: float64(a.Slot.End()) * o.Step, VMs: c.count, Yield: a.Slot.Yield}
	for _, x := range a.Slot.Amounts {
		s.Cores, s.Bytes = append(s.Cores, x[reservation.Cores]), append(s.Bytes, x[reservation.Memory])
	}
	for _, h := range a.Witness.Hosts {
		s.Hosts = append(s.Hosts, b.hosts[h].Name)
	}
	p.cores, out.Slot = s.Cores, s
	b.placed = append(b.placed, p)
}

// refuse says why the agenda has no slot for a job, and what would fit, in the operator's units.
func (j *Job) refuse(c *contract, r *reservation.Refusal, o *Options) {
	at := float64(r.Step) * o.Step
	j.Refusal = &Refusal{At: &at, Changes: []string{}}
	short := fmt.Sprintf("%.2f cores", r.Missing)
	if r.Resource == reservation.Memory {
		short = fmt.Sprintf("%.2f GiB of memory", r.Missing/gib)
	}
	switch {
	case r.Host == "" && r.Missing > 0:
		j.Refusal.Reason = short + " are missing on all hosts together"
	case r.Missing > 0:
		j.Refusal.Reason = fmt.Sprintf("no placement on the hosts was found; %s lacks least: %s", r.Host, short)
	default:
		j.Refusal.Reason = "no placement on the hosts was found"
	}
	for _, x := range r.Changes {
		text := x.Text
		switch x.Kind {
		case reservation.LaterDue:
			text = c.later(int(x.Value), o)
		case reservation.LowerMinYield:
			text = fmt.Sprintf("a minimum yield of %.2f (--min-yield)", math.Floor(100*x.Value)/100)
		}
		j.Refusal.Changes = append(j.Refusal.Changes, text)
	}
}

func seconds(s float64) time.Duration { return time.Duration(s) * time.Second }

// later is a deadline so many steps after the begin of a period.
func (c *contract) later(due int, o *Options) string {
	return fmt.Sprintf("a deadline of %v, %v later", seconds(float64(due)*o.Step), seconds(float64(due-c.due)*o.Step))
}

// before enters what the runs that are played had and used; a job without a slot keeps it.
func (c *contract) before(j *Job, o *Options) {
	if c.learned == 0 {
		return
	}
	hour := o.Step / 3600
	for _, r := range c.runs[c.learned:] {
		j.Played++
		missed := r.End.Sub(r.period) > c.deadline
		if missed {
			j.MissedBefore++
		}
		if begin := r.Begin.Sub(r.period).Seconds() / o.Step; math.Ceil(begin-1e-9)+float64(len(r.Usage)) > float64(c.due) {
			j.Unavoidable++
		}
		for _, u := range r.Usage {
			j.Used.CoreHours += u * hour
		}
		for _, u := range r.MemoryUsage {
			j.Used.GiBHours += u / gib * hour
		}
		lasted := float64(len(r.Usage)) * hour
		j.Before.CoreHours += max(float64(r.Count)*r.CPU, 0) * lasted
		j.Before.GiBHours += float64(r.Count) * r.Memory / gib * lasted
	}
	if j.Slot == nil {
		j.MissedAfter, j.After = j.MissedBefore, j.Before
		return
	}
	for k := range j.Slot.Cores {
		j.After.CoreHours += j.Slot.Cores[k] * hour * float64(j.Played)
		j.After.GiBHours += j.Slot.Bytes[k] / gib * hour * float64(j.Played)
	}
	j.After.CoreHours += j.GrantedCoreHours
	j.After.GiBHours += j.GrantedGiBHours
}
