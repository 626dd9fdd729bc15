package ui

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"evenkeel/api/v1"
)

// jobPath is the page of a periodic job.
func jobPath(tenant, name string) string { return "/ui/periodic/" + escapedName(tenant, name) }

// slotOf is an occurrence of a job.
type slotOf struct {
	v1.Occurrence
	Tenant, Job string
}

// day of a calendar, in its time zone.
type day struct {
	Date  string // such as 2026-12-24
	Name  string // such as Thu 24 Dec
	Slots []slotOf
}

// Skipped says whether the owner left the day out: none of its occurrences has a run.
func (d day) Skipped() bool {
	return len(d.Slots) > 0 && !slices.ContainsFunc(d.Slots, func(s slotOf) bool { return s.State != "skipped" })
}

// Open says whether an occurrence of the day is yet to come, so that the day can be left out.
func (d day) Open() bool {
	return slices.ContainsFunc(d.Slots, func(s slotOf) bool {
		return s.State == "confirmed" || s.State == "degraded" || s.State == "re-confirmed"
	})
}

// calendarOf occurrences: by the day of their period on the clock of a zone, the days in order.
func calendarOf(slots []slotOf, zone *time.Location) (out []day) {
	slots = slices.Clone(slots)
	slices.SortStableFunc(slots, func(a, b slotOf) int { return cmp.Or(a.Period.Compare(b.Period), a.Start.Compare(b.Start)) })
	for _, s := range slots {
		at := s.Period.In(zone)
		date := at.Format(time.DateOnly)
		if len(out) == 0 || out[len(out)-1].Date != date {
			out = append(out, day{Date: date, Name: at.Format("Mon 2 Jan")})
		}
		last := &out[len(out)-1]
		last.Slots = append(last.Slots, s)
	}
	return out
}

type periodicData struct {
	rows[v1.PeriodicJob]
	Calendar []day // of all jobs that the search finds
	Left     int   // occurrences that the calendar has no place for
}

func periodicJobs(v *visit) error {
	all, err := v.api.PeriodicJobs(v.r.Context(), v.everyTenant()...)
	if err != nil {
		return err
	}
	d := periodicData{rows: rowsOf(v, all, func(j v1.PeriodicJob) string { return fullName(j.Tenant, j.Name) + " " + j.State })}
	var slots []slotOf
	for _, job := range all {
		for _, o := range job.Occurrences {
			slots = append(slots, slotOf{o, job.Tenant, job.Name})
		}
	}
	slices.SortStableFunc(slots, func(a, b slotOf) int { return a.Period.Compare(b.Period) })
	shown := min(len(slots), window)
	d.Calendar, d.Left = calendarOf(slots[:shown], time.UTC), len(slots)-shown
	v.Title, v.Live, v.Data = "Periodic work", true, d
	return v.show("periodic")
}

type jobData struct {
	Job      v1.PeriodicJob
	Full     string
	Zone     string // on whose clock the page shows times
	Calendar []day
	Dry      *v1.PeriodicJob // what a decision would make of it
	Command  string          // that decides the same
	Asked    url.Values      // the form that asked for Dry, or was refused
	zone     *time.Location
}

// readJob reads what the page of a job shows: on the clock that the address or the form names, else on that of the contract.
func readJob(v *visit) (jobData, error) {
	name, of := named(v)
	wanted := cmp.Or(strings.TrimSpace(v.r.URL.Query().Get("zone")), strings.TrimSpace(v.r.PostForm.Get("zone")))
	if _, err := zoneOf(wanted); err != nil && v.r.Method == http.MethodPost {
		wanted = "" // the form's answer says what is wrong with it
	}
	job, err := v.api.PeriodicJob(v.r.Context(), name, wanted, of...)
	if err != nil {
		return jobData{}, err
	}
	d := jobData{Job: job, Full: fullName(job.Tenant, job.Name), Zone: wanted}
	if d.Zone == "" && job.Contract != nil {
		d.Zone = job.Contract.Zone
	}
	d.Zone = cmp.Or(d.Zone, "UTC")
	if d.zone, err = zoneOf(d.Zone); err != nil {
		d.Zone, d.zone = "UTC", time.UTC
	}
	d.Calendar = d.calendar(job)
	v.Title, v.Live = d.Full, true
	return d, nil
}

func zoneOf(name string) (*time.Location, error) {
	zone, err := time.LoadLocation(name)
	if err == nil && zone == time.Local {
		return nil, errors.New("the server's own zone is not a zone of the IANA database")
	}
	return zone, err
}

func (d jobData) calendar(job v1.PeriodicJob) []day {
	slots := make([]slotOf, len(job.Occurrences))
	for i, o := range job.Occurrences {
		slots[i] = slotOf{o, job.Tenant, job.Name}
	}
	return calendarOf(slots, d.zone)
}

// Clock is a time on the page's clock.
func (d jobData) Clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.In(d.zone).Format("15:04:05")
}

// Moment is a time on the page's clock, with its date.
func (d jobData) Moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.In(d.zone).Format("2006-01-02 15:04:05 -07:00")
}

// Reserved is what the picture compares runs with: the contract, else the proposal; nil: there is neither.
func (d jobData) Reserved() *v1.PeriodicContract {
	return cmp.Or(d.Job.Contract, d.Job.Proposal)
}

func decidePeriodic(v *visit) error {
	name, of := named(v)
	do, dry, form := v.asked()
	if do != "accept" && do != "override" && do != "reject" {
		return unknownForm(do)
	}
	q, err := periodicRequestOf(do, form)
	var result v1.PeriodicJob
	if err == nil {
		result, err = v.api.DecidePeriodic(v.r.Context(), do, name, q, options(of, dry)...)
	}
	problem, err := refusal(err)
	if err != nil {
		return err
	}
	tenant, own, ok := strings.Cut(v.r.PathValue("name"), "/")
	if !ok {
		tenant, own = "", v.r.PathValue("name")
	}
	if problem == nil && !dry {
		return v.to(jobPath(tenant, own), nil)
	}
	return again(v, "periodicjob", problem, readJob, func(d *jobData) {
		if d.Asked = form; problem == nil {
			d.Dry, d.Command = &result, periodicCommandOf(do, d.Full, q)
		}
	})
}

// decisionForm is a form that decides on a job.
type decisionForm struct {
	Form string // its token against forged forms
	Do   string
	jobData
}

// Field as it was asked for by this form; another has its own.
func (f decisionForm) Field(name string) string {
	if f.Asked.Get("do") != f.Do {
		return ""
	}
	return f.Asked.Get(name)
}

// periodicRequestOf reads the fields of a form. What is left empty is as it was found.
func periodicRequestOf(do string, form url.Values) (q v1.PeriodicRequest, err error) {
	if do == "reject" {
		return q, nil
	}
	text := func(name string) string { return strings.TrimSpace(form.Get(name)) }
	var faults []v1.FieldError
	number := func(name, what string, to *float64, upTo float64) {
		written, percent := strings.CutSuffix(text(name), "%")
		if written == "" {
			return
		}
		n, err := strconv.ParseFloat(written, 64)
		if percent && name == "miss" {
			n /= 100
		} else if percent {
			n = -1
		}
		if err != nil || !(n > 0 && n <= upTo) {
			faults = append(faults, v1.FieldError{Field: name, Message: what, Value: text(name)})
			return
		}
		*to = n
	}
	days := func(name string) []string {
		return strings.FieldsFunc(form.Get(name), func(c rune) bool { return c == ',' || c <= ' ' })
	}
	q = v1.PeriodicRequest{Zone: text("zone"), Deadline: text("deadline"), Rule: text("rule"), Start: text("start"), Length: text("length"), Skip: days("skip")}
	number("cores", "must be a number of cores above 0, such as 2.5", &q.Cores, 1e6)
	if do == "accept" {
		number("miss", "must be a chance such as 1% or 0.01, at most 50%", &q.Miss, 0.5)
	} else {
		q.Keep = days("keep")
	}
	if faults != nil {
		return q, &v1.Invalid{Fields: faults}
	}
	return q, nil
}

// periodicCommandOf is the command of vcctl that decides the same.
func periodicCommandOf(do, full string, q v1.PeriodicRequest) string {
	parts := []string{"vcctl", "periodic", do, full}
	flag := func(name, value string) {
		if value != "" && value != "0" {
			parts = append(parts, "--"+name, value)
		}
	}
	flag("zone", q.Zone)
	flag("deadline", q.Deadline)
	flag("miss", strconv.FormatFloat(q.Miss, 'f', -1, 64))
	flag("rule", q.Rule)
	flag("start", q.Start)
	flag("length", q.Length)
	flag("cores", strconv.FormatFloat(q.Cores, 'f', -1, 64))
	for _, date := range q.Skip {
		flag("skip", date)
	}
	for _, date := range q.Keep {
		flag("keep", date)
	}
	return shellCommand(parts...)
}

// shellCommand is a command line for a shell: what a shell would read otherwise is quoted.
func shellCommand(parts ...string) string {
	quoted := make([]string, len(parts))
	for i, part := range parts {
		if part == "" || strings.ContainsFunc(part, func(c rune) bool {
			return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_./:=,@%+", c))
		}) {
			part = "'" + strings.ReplaceAll(part, "'", `'\''`) + "'"
		}
		quoted[i] = part
	}
	return strings.Join(quoted, " ")
}
