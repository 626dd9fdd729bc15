package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"evenkeel/forecast/periodic"
)

func (t *tool) periodicFindCommand() *cli.Command {
	return &cli.Command{
		Name: "find", Usage: "find jobs that come again among past runs, without a server", ArgsUsage: "[FILE|-]",
		Description: "Reads runs from FILE or, with - or no FILE, from standard input: one JSON object a line, in any order,\n" +
			"{\"name\": \"render-2026-11-22\", \"begin\": \"2026-11-22T02:00:10+01:00\"}, and where they are known owner, job (the name that\n" +
			"the owner gave all runs), kind (what distinguishes jobs of one name) and end. What 'vcsim whatif --sign-off' reads of a run,\n" +
			"such as its usage, is passed over. Prints the jobs with their period, when\n" +
			"they come again as a rule of RFC 5545, and when they come next after their last run. Runs of one owner, kind and name\n" +
			"count as one job's where only numbers and dates in the name differ. At least 8 runs make a job.\n" +
			"Exit status: 0 done, also if there is no job; 2 bad input.\n\n" +
			"Example: vcctl periodic find --zone Europe/Berlin runs.jsonl",
		Flags:  []cli.Flag{&cli.StringFlag{Name: "zone", Value: "UTC", Usage: "time `ZONE` whose clock daily and weekly jobs go by, of the IANA database"}},
		Action: t.periodicFind,
	}
}

// foundJob is a job that periodic find prints.
type foundJob struct {
	Owner      string    `json:"owner,omitempty"`
	Name       string    `json:"name"`
	Kind       string    `json:"kind,omitempty"`
	Declared   bool      `json:"declared,omitempty"`
	Period     float64   `json:"period"` // seconds
	Recurrence string    `json:"recurrence"`
	Runs       int       `json:"runs"`
	Periods    int       `json:"periods"`
	CV         float64   `json:"cv"`
	Last       time.Time `json:"last"`
	Next       time.Time `json:"next"`
}

func (t *tool) periodicFind(c *cli.Context) error {
	if c.NArg() > 1 {
		return usage("periodic find: one FILE at most, got %q", c.Args().Slice())
	}
	zone, err := time.LoadLocation(c.String("zone"))
	if err != nil || zone == time.Local {
		return usage("periodic find: --zone %q is not a time zone of the IANA database, such as Europe/Berlin", c.String("zone"))
	}
	in, closeInput, err := openInput(c)
	if err != nil {
		return usage("periodic find: %v", err)
	}
	defer closeInput()
	data, err := io.ReadAll(io.LimitReader(in, periodic.MaxFile+1))
	if err != nil {
		return usage("periodic find: reading: %v", err)
	}
	runs, err := periodic.ParseRuns(data)
	if err != nil {
		return usage("periodic find: %v", err)
	}
	jobs := []foundJob{}
	for _, j := range periodic.Jobs(runs, zone) {
		last := runs[j.Runs[len(j.Runs)-1]].Begin
		out := foundJob{Owner: j.Owner, Name: j.Name, Kind: j.Kind, Declared: j.Declared, Period: j.Period.Seconds(), Recurrence: j.Recurrence.String(),
			Runs: len(j.Runs), Periods: j.Periods, CV: j.CV, Last: last.UTC()}
		// A run may be early: what comes next is at least half a period later.
		next, err := j.Recurrence.Between(last.Add(j.Period/2), last.Add(8*j.Period), j.Clock(zone))
		if err != nil {
			return failed(statusFailed, "periodic find: job %s: %v", j.Name, err)
		}
		if len(next) > 0 {
			out.Next = next[0].UTC()
		}
		jobs = append(jobs, out)
	}
	return t.print(c, jobs, func(wide bool) string { return foundJobs(zone).text(jobs, wide) })
}

// foundJobs is a table of jobs; times are shown on the zone's clock.
func foundJobs(zone *time.Location) listView[foundJob] {
	return tableOf("NAME,PERIOD,RUNS,RULE,NEXT", "OWNER,KIND,CV,LAST", func(j foundJob) []string {
		_, rule, _ := strings.Cut(j.Recurrence, "RRULE:")
		next := ""
		if !j.Next.IsZero() {
			next = j.Next.In(zone).Format(time.RFC3339)
		}
		return []string{j.Name, time.Duration(j.Period * float64(time.Second)).String(), fmt.Sprintf("%d of %d", j.Runs, j.Periods), rule, next,
			j.Owner, j.Kind, fmt.Sprintf("%.3f", j.CV), j.Last.In(zone).Format(time.RFC3339)}
	})
}
