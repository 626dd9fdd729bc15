package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/api/v1"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/scheduler/agenda"
	"evenkeel/cluster/scheduler/reprovision"
	"evenkeel/cluster/state"
)

const tagPeriodic = "Periodic work"

// Periodic is what the API asks about periodic work. *leader.Service is one.
type Periodic interface {
	ReprovisionStats() reprovision.Stats
	DecidePeriodic(ctx context.Context, name string, ask leader.PeriodicAsk, call leader.Call) (leader.Periodic, error)
}

// PeriodicParams say on which clock jobs are found.
type PeriodicParams struct {
	Zone string `query:"zone" maxLength:"64" doc:"Time zone on whose clock daily and weekly jobs go; left out: UTC."`
}

func (s *Server) registerPeriodic(api huma.API) {
	const base = "/v1/periodic"
	get(api, route{"listPeriodic", base, tagPeriodic, "List jobs", "Jobs of which runs are kept, by name: what the names of their virtual clusters have in common, or what their files declare; and declared ones whose first run has not ended. Proposals, runs and occurrences are left out."},
		func(ctx context.Context, in *struct {
			TenantParams
			ReadParams
		}) (*answerOf[v1.List[v1.PeriodicJob]], error) {
			x, err := s.scoped(ctx, in.TenantParams, in.ReadParams)
			if err != nil {
				return nil, err
			}
			out := &answerOf[v1.List[v1.PeriodicJob]]{}
			out.Body.Items = []v1.PeriodicJob{}
			jobs := append(x.v.PeriodicJobs(), x.v.BegunJobs()...)
			slices.SortFunc(jobs, func(a, b state.PeriodicJob) int { return strings.Compare(a.Name, b.Name) })
			for _, job := range jobs {
				if x.owns(job.Name) {
					row := x.periodicRow(job)
					row.Occurrences = each(slices.DeleteFunc(x.v.Occurrences(job.Name), func(o state.Occurrence) bool { return o.State.Over() }), x.occurrence)
					out.Body.Items = append(out.Body.Items, row)
				}
			}
			return out, nil
		})
	get(api, route{"getPeriodic", base + "/{name}", tagPeriodic, "Get a job", "One job with its runs, occurrences, and a proposal that follows from its runs now."},
		func(ctx context.Context, in *struct {
			NameParam
			TenantParams
			ReadParams
			PeriodicParams
		}) (*answerOf[v1.PeriodicJob], error) {
			x, err := s.one(ctx, in.TenantParams, in.ReadParams)
			if err != nil {
				return nil, err
			}
			ask, err := askOf(v1.PeriodicRequest{Zone: in.Zone})
			if err != nil {
				return nil, err
			}
			p, err := leader.PeriodicOf(x.v.Snapshot, x.full(in.Name), ask.Ask)
			if err != nil {
				return nil, notFound("there is no job %q", in.Name)
			}
			return &answerOf[v1.PeriodicJob]{Body: x.periodic(p)}, nil
		})
	for _, verb := range []struct{ name, id, title, text string }{
		{"accept", "acceptPeriodic", "Sign a job off", "Reserves what its runs suggest, with what the body says otherwise. Nothing is in force before."},
		{"override", "overridePeriodic", "Change a contract", "What the body does not name stays as it is."},
		{"reject", "rejectPeriodic", "Reject a job", "Nothing is reserved for it any more; its runs are admitted as all others are."},
	} {
		change(api, http.MethodPost, route{verb.id, base + "/{name}/" + verb.name, tagPeriodic, verb.title, verb.text}, http.StatusOK, v1.PeriodicRequest{},
			func(ctx context.Context, in *struct {
				NameParam
				TenantParams
				CallParams
				JSONBody
			}) (*answerOf[v1.PeriodicJob], error) {
				q, err := body[v1.PeriodicRequest](in.JSONBody)
				if err != nil {
					return nil, err
				}
				return s.decidePeriodic(ctx, verb.name, in.Name, in.TenantParams, in.CallParams, q)
			})
	}
}

func (s *Server) decidePeriodic(ctx context.Context, verb, name string, t TenantParams, p CallParams, q v1.PeriodicRequest) (*answerOf[v1.PeriodicJob], error) {
	if err := p.unversioned(); err != nil {
		return nil, err
	}
	x, err := s.one(ctx, t, ReadParams{Consistency: "stale"}) // for names and rights
	if err != nil {
		return nil, err
	}
	named(ctx, name)
	ask, err := askOf(q)
	if err != nil {
		return nil, err
	}
	ask.Verb = verb
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	job, err := s.cluster.DecidePeriodic(bounded, x.full(name), ask, leader.Call{IdempotencyKey: x.key(p.IdempotencyKey), DryRun: p.DryRun})
	if err != nil {
		return nil, s.fail(ctx, x.conflicts(err))
	}
	if x.v, err = s.cluster.View(bounded, true); err != nil { // what was just done is known here
		return nil, s.fail(ctx, err)
	}
	out := x.periodic(job)
	if verb == "accept" && out.Contract != nil && out.Contract.Miss > 0 && job.Proposal.Support != "" {
		out.Contract.Support = job.Proposal.Support // what was asked is known here only
	}
	return &answerOf[v1.PeriodicJob]{Body: out}, nil
}

// askOf a request; its check has refused what cannot be read, but for a zone in a query.
func askOf(q v1.PeriodicRequest) (ask leader.PeriodicAsk, err error) {
	if q.Zone != "" {
		zone, err := time.LoadLocation(q.Zone)
		if err != nil || zone == time.Local {
			return ask, invalidParameter("query", "zone", q.Zone, "must be a time zone of the IANA database, such as Europe/Berlin")
		}
		ask.Zone = zone
	}
	duration := func(text string) time.Duration {
		d, _ := v1.ParseDuration(text)
		return d
	}
	if q.Start != "" {
		ask.Start, _ = time.Parse(v1.ClockForm, q.Start)
	}
	ask.Deadline, ask.Length = duration(q.Deadline), duration(q.Length)
	ask.Rule, ask.Miss, ask.Cores, ask.Skip, ask.Keep = q.Rule, q.Miss, q.Cores, q.Skip, q.Keep
	return ask, nil
}

// periodicRow is a job without its runs and occurrences.
func (x scopedView) periodicRow(job state.PeriodicJob) v1.PeriodicJob {
	out := v1.PeriodicJob{State: "found", Declared: job.Declared, Runs: job.Runs, LastRun: job.LastRun, Occurrences: []v1.Occurrence{}, History: []v1.PeriodicRun{}}
	out.Tenant, out.Name = x.names(job.Name)
	if c := job.SignOff; c.State != "" {
		out.State, out.At, out.By = string(c.State), c.At, c.By
		if x.restricted && c.By != "" {
			out.By = x.askers([]string{c.By})[0]
		}
		if c.State == state.SignedOff {
			out.Contract = contractOf(c)
		}
	}
	return out
}

func contractOf(c state.SignOff) *v1.PeriodicContract {
	seconds := func(n int64) string { return v1.FormatDuration(time.Duration(n) * time.Second) }
	out := &v1.PeriodicContract{Arrival: seconds(c.Arrival), Lateness: seconds(c.Lateness), Length: v1.FormatDuration(c.Length()), Deadline: seconds(c.Due), Declared: c.Declared,
		Miss: c.Miss, Runs: c.Runs, VMs: c.VMs(), Step: seconds(c.Step), Cores: c.Cores, Skips: c.Skips}
	for _, g := range c.Groups {
		out.Memory += v1.Size(int64(g.Count) * g.Memory)
	}
	out.Support = agenda.Supported(c)
	head, rule, _ := strings.Cut(c.Recurrence, "\n")
	out.Rule = strings.TrimPrefix(rule, "RRULE:")
	out.Zone, out.Start, _ = strings.Cut(strings.TrimPrefix(head, "DTSTART;TZID="), ":")
	return out
}

// occurrence as the scope shows it.
func (x scopedView) occurrence(o state.Occurrence) v1.Occurrence {
	out := v1.Occurrence{Period: o.Period, Start: o.Start, End: o.End, Due: o.Due, State: string(o.State), Hosts: o.Hosts, Text: x.text(o.Text)}
	if vc, ok := x.v.VC(o.VC); ok {
		_, out.VirtualCluster = x.names(vc.Name)
	}
	if run, ok := x.v.OpenRun(o.VC); ok && o.State == state.RunningNow && run.Grant != nil {
		out.GrantedCores, out.ExtraCores = run.Grant.Cores, run.Grant.Extra
	}
	if x.restricted {
		out.Hosts = nil
		if o.State == state.Degraded {
			out.Text = "there is no room for all of its VMs in its slot"
		}
	}
	return out
}

// periodic is a job as the scope shows it.
func (x scopedView) periodic(p leader.Periodic) v1.PeriodicJob {
	out := x.periodicRow(p.PeriodicJob)
	out.Reason = p.Refused
	if p.Refused == "" {
		out.Proposal = contractOf(p.Proposal.SignOff)
		if p.Proposal.Support != "" {
			out.Proposal.Support = p.Proposal.Support
		}
	}
	out.Occurrences = each(p.Occurrences, x.occurrence)
	out.History = each(p.Runs, x.periodicRun)
	say := func(format string, args ...any) { out.Lines = append(out.Lines, fmt.Sprintf(format, args...)) }
	say("%s: %s kept; %s", out.Name, runsText(out.Runs), map[string]string{"found": "its owner has not decided, and nothing is reserved", "accepted": "its owner signed it off", "rejected": "its owner rejected it, and nothing is reserved"}[out.State])
	describe := func(what string, c *v1.PeriodicContract, of *state.SignOff) {
		if c == nil {
			return
		}
		miss := "; the CPU is as declared or given"
		if c.Miss > 0 {
			miss = fmt.Sprintf("; learned from %d runs, a run needs more with a chance of %s", c.Runs, agenda.Percent(c.Miss))
			if c.Support != "" {
				miss += "; " + c.Support
			}
		}
		say("%s: %s from %s in %s; a run arrives %s to %s later, takes up to %s, and is due %s after the start of its period", what, c.Rule, c.Start, c.Zone, c.Arrival, addText(c.Arrival, c.Lateness), c.Length, c.Deadline)
		say("%s: %d VMs with %s, up to %.2f cores together%s", what, c.VMs, c.Memory.Short(), slices.Max(c.Cores), miss)
		say("%s: %s", what, x.keepsText(of))
	}
	describe("contract", out.Contract, &p.SignOff)
	describe("proposal", out.Proposal, &p.Proposal.SignOff)
	if out.Reason != "" {
		say("no proposal: %s", out.Reason)
	}
	if p.Refused == "" && p.Proposal.Text != "" {
		say("proposal: %s", p.Proposal.Text)
	}
	shown, rest := out.Shown()
	for _, o := range shown {
		line := fmt.Sprintf("%s: %s", o.Start.Format(time.RFC3339), o.State)
		if len(o.Hosts) > 0 {
			line += " on " + strings.Join(o.Hosts, ", ")
		}
		if o.Text != "" {
			line += ": " + o.Text
		}
		out.Lines = append(out.Lines, line)
		if vc, ok := x.v.VCNamed(x.full(o.VirtualCluster)); ok && o.State == string(state.RunningNow) {
			for _, more := range leader.GrantLines(x.v.Snapshot, vc.ID, !x.restricted) {
				say("%s: %s", o.VirtualCluster, more)
			}
		}
	}
	if rest != "" {
		out.Lines = append(out.Lines, rest)
	}
	return out
}

// keepsText says what the slots of a contract take from others; to operators, as a share of the cluster too.
func (x scopedView) keepsText(c *state.SignOff) string {
	highest, coreSeconds, slot := agenda.Keeps(c)
	share := ""
	if hosts := x.v.Hosts(); !x.restricted && len(hosts) > 0 {
		var all state.Resources
		for _, h := range hosts {
			usable := h.Usable()
			all.CPU, all.Memory = all.CPU+usable.CPU, all.Memory+usable.Memory
		}
		share = fmt.Sprintf(" (%.0f%% and %.0f%% of all hosts)", 100*highest.CPU/max(all.CPU, 1e-9), 100*float64(highest.Memory)/float64(max(all.Memory, 1)))
	}
	return fmt.Sprintf("each slot keeps up to %.2f cores and %s%s from others for %s, %.1f core-hours; they use the CPU that its run leaves",
		highest.CPU, v1.Size(highest.Memory).Short(), share, v1.FormatDuration(slot), coreSeconds/3600)
}

func addText(a, b string) string {
	x, _ := v1.ParseDuration(a)
	y, _ := v1.ParseDuration(b)
	return v1.FormatDuration(x + y)
}

func (x scopedView) periodicRun(r state.Run) v1.PeriodicRun {
	out := v1.PeriodicRun{Submitted: r.Submitted, Started: r.Started, Ended: r.Ended, Outcome: string(r.Outcome), Preempted: r.Preempted}
	_, out.VirtualCluster = x.names(r.Name)
	for _, g := range r.Groups {
		out.VMs += g.Count
	}
	if u := r.Usage; u != nil {
		out.Step = v1.FormatDuration(time.Duration(u.Step) * time.Second)
		for _, c := range u.Cores {
			cores := float64(c) / 1000
			out.Cores = append(out.Cores, cores)
			out.PeakCores = max(out.PeakCores, cores)
			out.CoreHours += cores * float64(u.Step) / 3600
		}
		out.Throttled = len(u.Throttled)
	}
	if e := r.Extras; e != nil {
		out.ExtraCoreHours, out.BorrowedCoreHours = e.Extra/3600, e.Borrowed/3600
	}
	return out
}

func runsText(n int) string {
	if n == 1 {
		return "1 run is"
	}
	return fmt.Sprintf("%d runs are", n)
}
