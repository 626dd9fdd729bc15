package main

import (
	"cmp"
	"fmt"
	"slices"
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
			Description: "Says too what each slot keeps from others, and shows the cores that are reserved beside those that past runs used, laid on top\n" +
				"of each other.\n\nExample: vcctl periodic explain nightly",
		},
		{
			Name: "accept", Usage: "sign a job off: reserve for its runs from now on", ArgsUsage: "JOB", Action: t.ask("accepting job %s", periodicDecide("accept")),
			Description: "Reserves what its runs suggest, with what the flags say otherwise. With --rule and --length it needs no proposal.\n\n" +
				"Example: vcctl periodic accept nightly --deadline 2h --miss 5%",
			Flags: append([]cli.Flag{&cli.StringFlag{Name: "miss", Usage: "`CHANCE` that a run needs more than is reserved, such as 1% or 0.01; 5% if left out"}}, asks...),
		},
		{
			Name: "override", Usage: "change what is reserved for a job", ArgsUsage: "JOB", Action: t.ask("changing job %s", periodicDecide("override")),
			Description: "What no flag names stays. A job that is not signed off is accepted as it is proposed, but for what the flags say.\n\n" +
				"Example: vcctl periodic override nightly --skip 2026-12-24",
			Flags: append([]cli.Flag{&cli.StringSliceFlag{Name: "keep", Usage: "do not leave out the run of `DATE` any more"}}, asks...),
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
	if shown, rest := j.Shown(); len(shown) > 0 {
		t := newTable("SLOT", "UNTIL", "DUE", "STATE", "HOSTS", "TEXT")
		for _, o := range shown {
			t.row(slotTime(o.Start), slotTime(o.End), slotTime(o.Due), o.State, strings.Join(o.Hosts, " "), cmp.Or(o.Text, o.VirtualCluster))
		}
		b.WriteString(t.String())
		if rest != "" {
			fmt.Fprintln(&b, rest)
		}
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
	return j, func(bool) string { return strings.Join(j.Lines, "\n") + "\n" + skylineText(j) }, err
}

// skylineRows is how many rows a skyline has at most.
const skylineRows = 24

// skylineText has the skyline of a job's contract, or else of its proposal, beside the cores that its runs used, laid on top of each other
// from their starts on; "" where neither is known. A row of several steps has their highest values. A run uses nothing after its end.
func skylineText(j v1.PeriodicJob) string {
	k := cmp.Or(j.Contract, j.Proposal, &v1.PeriodicContract{})
	lines := []stepped{{stepOf(k.Step), k.Cores}}
	for _, r := range j.History {
		if len(r.Cores) > 0 {
			lines = append(lines, stepped{stepOf(r.Step), r.Cores})
		}
	}
	var longest, step time.Duration
	for _, l := range lines {
		longest, step = max(longest, l.step*time.Duration(len(l.cores))), max(step, l.step)
	}
	if step == 0 {
		return ""
	}
	width := step * ((longest + step*skylineRows - 1) / (step * skylineRows))
	t := newTable("FROM", "RESERVED", "LOWEST", "MEDIAN", "HIGHEST", "ABOVE")
	for from := time.Duration(0); from < longest; from += width {
		reserved, above := lines[0].highest(from, from+width), 0
		var used []float64
		for _, l := range lines[1:] {
			used = append(used, l.highest(from, from+width))
			if used[len(used)-1] > reserved+0.0005 { // what runs used is kept in thousandths
				above++
			}
		}
		row := []string{v1.FormatDuration(from), cores(reserved), "", "", "", ""}
		if slices.Sort(used); len(used) > 0 {
			row = append(row[:2], cores(used[0]), cores(used[len(used)/2]), cores(used[len(used)-1]), strconv.Itoa(above))
		}
		if len(k.Cores) == 0 { // nothing is, or would be
			row[1], row[5] = "", ""
		}
		t.row(row...)
	}
	return fmt.Sprintf("Cores from the start of a run on, each row the highest of %s: reserved, what runs of known use took (%d), and how many took more than is reserved\n%s",
		v1.FormatDuration(width), len(lines)-1, t)
}

// stepped is the cores that a run has in each step from its start on.
type stepped struct {
	step  time.Duration
	cores []float64
}

// highest value from a time on and before another one.
func (l stepped) highest(from, to time.Duration) (out float64) {
	for i := range l.cores {
		if begin := time.Duration(i) * l.step; begin < to && begin+l.step > from {
			out = max(out, l.cores[i])
		}
	}
	return out
}

// stepOf reads a step; 0 where there is none.
func stepOf(text string) time.Duration {
	step, _ := v1.ParseDuration(text)
	return step
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
