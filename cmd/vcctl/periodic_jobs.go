package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"evenkeel/api/v1"
	"evenkeel/forecast/periodic"
)

// periodicJobCommands ask a server about the jobs that it knows.
func (t *tool) periodicJobCommands() []*cli.Command {
	zone := &cli.StringFlag{Name: "zone", Usage: "time `ZONE` of the IANA database on whose clock the job goes; UTC if left out"}
	asks := []cli.Flag{
		zone,
		&cli.StringFlag{Name: "deadline", Usage: "a run must have ended `DURATION` after the start of its period"},
		&cli.StringFlag{Name: "rule", Usage: "recurrence `RRULE`, such as 'FREQ=DAILY;BYHOUR=2'"},
		&cli.StringFlag{Name: "start", Usage: "start of the rule on the zone's clock, such as `20260301T020000`"},
		&cli.StringFlag{Name: "length", Usage: "a run takes up to `DURATION`"},
		&cli.Float64Flag{Name: "cores", Usage: "reserve `CORES` for all VMs of a run together"},
		&cli.StringSliceFlag{Name: "skip", Usage: "leave out the run of `DATE`, such as 2026-12-24"},
		checkFlag,
	}
	return []*cli.Command{
		{
			Name: "list", Usage: "list jobs of which runs are kept", ArgsUsage: " ", Flags: []cli.Flag{watchFlag, sortFlag},
			Action:      t.ask("listing jobs", func(c *call) (any, view, error) { return periodicTable.answer(c.api.PeriodicJobs(c.ctx)) }),
			Description: "A job is what virtual clusters of one name are runs of: numbers and dates in names count as #, and periodic.name in the VC\nfile wins. NEXT is its next occurrence in the agenda.\n\nExample: vcctl periodic list",
		},
		{
			Name: "get", Usage: "show a job, its proposal, contract and occurrences", ArgsUsage: "JOB", Flags: []cli.Flag{zone}, Action: t.ask("getting job %s", periodicGet),
			Description: "Example: vcctl periodic get 'render-#' --zone Europe/Berlin",
		},
		{
			Name: "explain", Usage: "say what a job's runs suggest, what is reserved, and where", ArgsUsage: "JOB", Flags: []cli.Flag{zone}, Action: t.ask("explaining job %s", periodicExplain),
			Description: "Example: vcctl periodic explain nightly",
		},
		{
			Name: "accept", Usage: "sign a job off: reserve for its runs from now on", ArgsUsage: "JOB", Action: t.ask("accepting job %s", periodicDecide("accept")),
			Description: "Reserves what its runs suggest, with what the flags say otherwise. With --rule and --length it needs no proposal.\n\n" +
				"Example: vcctl periodic accept nightly --deadline 2h --miss 5%",
			Flags: append([]cli.Flag{&cli.StringFlag{Name: "miss", Usage: "`CHANCE` that a run needs more than is reserved, such as 1% or 0.01; 5% if left out"}}, asks...),
		},
		{
			Name: "override", Usage: "change what is reserved for a job", ArgsUsage: "JOB", Action: t.ask("changing job %s", periodicDecide("override")),
			Description: "What no flag names stays.\n\nExample: vcctl periodic override nightly --skip 2026-12-24",
			Flags:       append([]cli.Flag{&cli.StringSliceFlag{Name: "keep", Usage: "do not leave out the run of `DATE` any more"}}, asks...),
		},
		{
			Name: "reject", Usage: "reserve nothing for a job", ArgsUsage: "JOB", Action: t.ask("rejecting job %s", periodicDecide("reject")), Flags: []cli.Flag{checkFlag},
			Description: "Its runs are admitted as all others are.\n\nExample: vcctl periodic reject nightly",
		},
	}
}

var periodicTable = tableOf("NAME,STATE,RUNS,RULE,NEXT,SLOT", "LAST RUN,ZONE", func(j v1.PeriodicJob) []string {
	rule, zone, next, slot := "", "", "", ""
	if j.Contract != nil {
		rule, zone = j.Contract.Rule, j.Contract.Zone
	}
	if len(j.Occurrences) > 0 {
		next, slot = j.Occurrences[0].Start.UTC().Format(time.RFC3339), j.Occurrences[0].State
	}
	return []string{j.Name, j.State, strconv.Itoa(j.Runs), rule, next, slot, slotTime(j.LastRun), zone}
})

func slotTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func periodicGet(c *call) (any, view, error) {
	j, err := c.api.PeriodicJob(c.ctx, c.name, c.String("zone"))
	return j, func(bool) string { return periodicText(j) }, err
}

// periodicText shows a job.
func periodicText(j v1.PeriodicJob) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is %s; runs kept: %d\n", j.Name, j.State, j.Runs)
	writeContract(&b, "Contract", j.Contract)
	if j.State != "accepted" {
		writeContract(&b, "Proposal", j.Proposal)
	}
	if j.Reason != "" && j.Contract == nil {
		fmt.Fprintf(&b, "No proposal: %s\n", j.Reason)
	}
	if len(j.Occurrences) > 0 {
		t := newTable("SLOT", "UNTIL", "DUE", "STATE", "HOSTS", "TEXT")
		for _, o := range j.Occurrences {
			t.row(slotTime(o.Start), slotTime(o.End), slotTime(o.Due), o.State, strings.Join(o.Hosts, " "), cmp.Or(o.Text, o.VirtualCluster))
		}
		b.WriteString(t.String())
	}
	return b.String()
}

func writeContract(b *strings.Builder, what string, k *v1.PeriodicContract) {
	if k == nil {
		return
	}
	peak := 0.0
	for _, x := range k.Cores {
		peak = max(peak, x)
	}
	miss := ""
	if k.Miss > 0 {
		miss = fmt.Sprintf(", %s of runs may need more", periodic.Percent(k.Miss))
		if k.Support != "" {
			miss += " (" + k.Support + ")"
		}
	}
	skips := ""
	if n := len(k.Skips); n > 0 {
		const shown = 5
		skips = "; no run on " + strings.Join(k.Skips[:min(n, shown)], ", ")
		if n > shown {
			skips += fmt.Sprintf(" and %d more days", n-shown)
		}
	}
	fmt.Fprintf(b, "%s: %s from %s %s; up to %s late, %s long, due after %s; %d VMs, %s, up to %s cores%s%s\n", what, k.Rule, k.Start, k.Zone, k.Lateness, k.Length, k.Deadline,
		k.VMs, k.Memory.Short(), cores(peak), miss, skips)
}

func periodicExplain(c *call) (any, view, error) {
	j, err := c.api.PeriodicJob(c.ctx, c.name, c.String("zone"))
	return j, func(bool) string { return strings.Join(j.Lines, "\n") + "\n" }, err
}

// periodicDecide accepts, overrides or rejects.
func periodicDecide(verb string) func(c *call) (any, view, error) {
	return func(c *call) (any, view, error) {
		q := v1.PeriodicRequest{}
		if verb != "reject" {
			q = v1.PeriodicRequest{Zone: c.String("zone"), Deadline: c.String("deadline"), Rule: c.String("rule"), Start: c.String("start"), Length: c.String("length"), Cores: c.Float64("cores"), Skip: c.StringSlice("skip")}
		}
		if verb == "override" {
			q.Keep = c.StringSlice("keep")
		}
		if text := c.String("miss"); verb == "accept" && text != "" {
			number, percent := strings.CutSuffix(text, "%")
			miss, err := strconv.ParseFloat(number, 64)
			if percent {
				miss /= 100
			}
			if err != nil || !(miss > 0 && miss <= 0.5) {
				return nil, nil, usage("periodic accept: --miss %q is no chance: write it like 1%% or 0.01, at most 50%%", text)
			}
			q.Miss = miss
		}
		j, err := c.api.DecidePeriodic(c.ctx, verb, c.name, q, c.opts...)
		return j, func(bool) string {
			if c.dry() {
				return "Dry run: nothing was changed. It would be:\n" + periodicText(j)
			}
			return periodicText(j)
		}, err
	}
}
