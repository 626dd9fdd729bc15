package v1

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// PeriodicSpec is what a VC file says about periodic work.
type PeriodicSpec struct {
	Name     string `json:"name" maxLength:"63" pattern:"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" patternDescription:"a DNS label: a to z, 0 to 9 and, inside, hyphens" doc:"Name of the job that the virtual cluster is a run of; a DNS label." example:"nightly"`
	Deadline string `json:"deadline,omitempty" text:"duration" doc:"When a run must have ended, after the start of its period, as a Go duration. Left out: not declared." example:"2h"`
}

// PeriodicJob is a job with its runs, what is proposed for it and what its owner decided.
type PeriodicJob struct {
	Name        string            `json:"name" doc:"Name of the job: declared, or what the names of its virtual clusters have in common, with # for numbers and dates."`
	Tenant      string            `json:"tenant,omitempty" doc:"Tenant that it belongs to. Left out where the request names it."`
	State       string            `json:"state" enum:"found,accepted,rejected" doc:"found: nothing is reserved, as its owner has not decided. accepted: its owner signed it off."`
	Declared    bool              `json:"declared" doc:"Its virtual clusters name it in their files."`
	Runs        int               `json:"runs" doc:"Runs that are kept of it, 60 at most."`
	LastRun     time.Time         `json:"lastRun,omitzero" doc:"When its last run ended."`
	Contract    *PeriodicContract `json:"contract,omitempty" doc:"What its owner signed off."`
	Proposal    *PeriodicContract `json:"proposal,omitempty" doc:"What its runs suggest."`
	Reason      string            `json:"reason,omitempty" doc:"Why there is no proposal."`
	By          string            `json:"by,omitempty" doc:"Who decided."`
	At          time.Time         `json:"at,omitzero" doc:"When that was."`
	Occurrences []Occurrence      `json:"occurrences" nullable:"false" doc:"Occurrences: those of the next day, and the last ones that are over."`
	History     []PeriodicRun     `json:"history" nullable:"false" doc:"Its runs, oldest first."`
	Lines       []string          `json:"lines,omitempty" doc:"The same in sentences."`
}

// PeriodicContract says when a job runs, and what is reserved for a run.
type PeriodicContract struct {
	Zone     string    `json:"zone" doc:"Time zone on whose clock it comes again."`
	Start    string    `json:"start" doc:"Start of its first period (DTSTART), on the clock of the zone." example:"20260301T020000"`
	Rule     string    `json:"rule" doc:"Recurrence rule of its periods (RRULE of RFC 5545)." example:"FREQ=DAILY"`
	Arrival  string    `json:"arrival" doc:"When its slot begins, after the start of the period, as a Go duration."`
	Lateness string    `json:"lateness" doc:"How much later a run may arrive."`
	Length   string    `json:"length" doc:"How long a run may take."`
	Deadline string    `json:"deadline" doc:"When a run must have ended, after the start of the period."`
	Declared bool      `json:"declared" doc:"Its owner gave the deadline; else it is the end of the slot."`
	Miss     float64   `json:"miss,omitempty" doc:"Chance that a run needs more CPU than is reserved; left out: it was not learned."`
	Runs     int       `json:"runs,omitempty" doc:"Runs that it was learned from."`
	Support  string    `json:"support,omitempty" doc:"What chance these runs support, where its owner asked for a smaller one than they do, or it is the smallest of so many runs."`
	VMs      int       `json:"vms" doc:"Of a run."`
	Memory   Size      `json:"memory" doc:"Of all VMs of a run, bytes."`
	Step     string    `json:"step" doc:"Length of a step of the skyline."`
	Cores    []float64 `json:"cores" nullable:"false" doc:"Skyline: cores of all VMs together in each step."`
	Skips    []string  `json:"skips,omitempty" doc:"Dates that have no run."`
}

// Occurrence is one time at which a job is to run.
type Occurrence struct {
	Period         time.Time `json:"period" doc:"Start of its period."`
	Start          time.Time `json:"start" doc:"Start of its slot."`
	End            time.Time `json:"end" doc:"End of its slot."`
	Due            time.Time `json:"due" doc:"When its run must have ended."`
	State          string    `json:"state" enum:"confirmed,degraded,re-confirmed,running,met,missed,skipped" doc:"confirmed: hosts keep room for its VMs. degraded: none do. re-confirmed: others do again."`
	Hosts          []string  `json:"hosts,omitempty" doc:"Witness: the host that keeps room for each VM. Not shown to tenants."`
	VirtualCluster string    `json:"virtualCluster,omitempty" doc:"That runs or ran it, while it is there."`
	GrantedCores   float64   `json:"grantedCores,omitempty" doc:"Cores that its run is sure of now."`
	ExtraCores     float64   `json:"extraCores,omitempty" doc:"Of these, what is beyond its reservation, as it would miss its deadline."`
	Text           string    `json:"text,omitempty" doc:"Why it is degraded or missed, or by how much it was in time."`
}

// How many occurrences of a job texts have, and how many of these are over at the most: one that comes again every few minutes has 150 ahead.
const (
	shownOccurrences = 24
	shownOver        = 6
)

// Shown returns the occurrences that texts have, and says what they leave out; "": nothing.
func (j *PeriodicJob) Shown() (shown []Occurrence, rest string) {
	all := j.Occurrences
	ahead := slices.IndexFunc(all, func(o Occurrence) bool { return o.State != "met" && o.State != "missed" && o.State != "skipped" })
	if ahead < 0 {
		ahead = len(all)
	}
	from := max(0, min(ahead-shownOver, len(all)-shownOccurrences))
	to := min(len(all), from+shownOccurrences)
	if to-from < len(all) {
		rest = fmt.Sprintf("%d earlier and %d later occurrences are left out: -o json has all", from, len(all)-to)
	}
	return all[from:to], rest
}

// PeriodicRun is one run of a job.
type PeriodicRun struct {
	VirtualCluster    string    `json:"virtualCluster" doc:"Name of its virtual cluster."`
	Submitted         time.Time `json:"submitted" doc:"When it was asked for."`
	Started           time.Time `json:"started" doc:"When its first VM ran."`
	Ended             time.Time `json:"ended" doc:"When it ended."`
	Outcome           string    `json:"outcome" enum:"stopped,deleted,ended,lost" doc:"How it ended."`
	VMs               int       `json:"vms" doc:"Number of its VMs."`
	Preempted         int       `json:"preempted,omitempty" doc:"How often it went back to the queue."`
	PeakCores         float64   `json:"peakCores,omitempty" doc:"Most cores that its VMs used together in a minute; left out: not known."`
	CoreHours         float64   `json:"coreHours,omitempty" doc:"What they used in all; left out: not known."`
	ExtraCoreHours    float64   `json:"extraCoreHours,omitempty" doc:"What it was given beyond its reservation."`
	BorrowedCoreHours float64   `json:"borrowedCoreHours,omitempty" doc:"What others had of its reservation while it ran."`
	Throttled         int       `json:"throttled,omitempty" doc:"Steps in which a cap held a VM back."`
	Step              string    `json:"step,omitempty" doc:"Length of a step of its skyline, as a Go duration; left out: not known."`
	Cores             []float64 `json:"cores,omitempty" doc:"Its skyline: cores that its VMs used together in each step from its start on, 480 steps at most."`
}

// PeriodicRequest is what an owner wants otherwise than it was found.
type PeriodicRequest struct {
	Deadline string   `json:"deadline,omitempty" text:"duration" doc:"When a run must have ended, after the start of the period, as a Go duration." example:"2h"`
	Miss     float64  `json:"miss,omitempty" minimum:"0" maximum:"0.5" doc:"Chance that a run needs more than is reserved. Left out: 0.05."`
	Zone     string   `json:"zone,omitempty" maxLength:"64" doc:"Time zone of the IANA database. Left out: UTC." example:"Europe/Berlin"`
	Rule     string   `json:"rule,omitempty" maxLength:"300" doc:"Recurrence rule (RRULE of RFC 5545)." example:"FREQ=DAILY;BYHOUR=2"`
	Start    string   `json:"start,omitempty" maxLength:"15" doc:"Start of the rule's first period, on the clock of the zone. Left out: midnight before the first run." example:"20260301T020000"`
	Length   string   `json:"length,omitempty" text:"duration" doc:"How long a run may take. Left out: the longest of its runs."`
	Cores    float64  `json:"cores,omitempty" minimum:"0" maximum:"1000000" doc:"Cores of all VMs together, as long as a run takes. Left out: what was learned, or declared."`
	Skip     []string `json:"skip,omitempty" maxItems:"366" doc:"Dates in the zone that have no run." example:"[\"2026-12-24\"]"`
	Keep     []string `json:"keep,omitempty" maxItems:"366" doc:"Dates that have a run again."`
}

func (q *PeriodicRequest) check(fault func(field, format string, args ...any)) {
	if q.Zone != "" {
		if z, err := time.LoadLocation(q.Zone); err != nil || z == time.Local || strings.EqualFold(q.Zone, "local") {
			fault("zone", "%q is not a time zone of the IANA database, such as Europe/Berlin", clip(q.Zone, 60))
		}
	}
	if q.Start != "" {
		if _, err := time.Parse(ClockForm, q.Start); err != nil {
			fault("start", "must be a time of the wall clock such as 20260301T020000")
		}
	}
	for _, list := range []struct {
		field string
		days  []string
	}{{"skip", q.Skip}, {"keep", q.Keep}} {
		for _, day := range list.days {
			if _, err := time.Parse(time.DateOnly, day); err != nil {
				fault(list.field, "%q must be a date such as 2026-12-24", clip(day, 40))
			}
		}
	}
}

// ClockForm is how a time of a wall clock is written: as DTSTART in RFC 5545.
const ClockForm = "20060102T150405"
