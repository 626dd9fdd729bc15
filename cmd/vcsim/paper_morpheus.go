package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"evenkeel/sim/morpheus"
	"evenkeel/sim/trace"
	"evenkeel/sim/workload"
)

func morpheusCommand() *cli.Command {
	return &cli.Command{
		Name:  "morpheus",
		Usage: "Morpheus: Towards Automated SLOs for Enterprise Clusters (2016), figures 9, 10 and 12",
		Description: `Draws a month of periodic jobs with the marginals that the paper states, learns periods, deadlines and skylines from the first 70% of its days, reserves by
LowCost, and plays the rest. Users' provisioning, mean, maximum and 95th-percentile skylines, align-right placement, EASY and equal shares without an agenda are
played beside it. Figures are means over the seeds S, S+1, ... with 95% intervals; equal flags give equal figures. A seed with 100 jobs takes about half a
minute of one core.

  vcsim paper morpheus --seeds 1 --figure 9c          misses with nothing but what is reserved
  vcsim paper morpheus --figure 10a,10b -o json       the same as numbers, over ten seeds

Figures: 9a slack of jobs; 9b provisioned over used; 9c deadlines missed in the worst case; 9d size of the cluster; 10a what each part adds; 10b
re-provisioning; 12 delayed queries on 275 nodes beside ad-hoc work; causes: why deadlines are missed with nothing but what is reserved (not in the
paper). "missed" is the mean over jobs of the share of their runs that were late, "of all runs" counts each run once, "unavoidable" are runs that are
late even with all they ask for; "avoidable" are the others, again as a mean over jobs. "borrowed": what is reserved serves all runs of a job but the share
that its owner gives away; a job of few runs borrows one, as heavy as that share of the runs of jobs that are as steady. A clairvoyant misses what
cannot be avoided.`,
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "figure", Usage: "only these `FIGURES`, with commas between: " + strings.Join(morpheus.FigureNames, ", ")},
			&cli.Uint64Flag{Name: "seed", Usage: "`S` of the first month", Value: 1},
			&cli.IntFlag{Name: "seeds", Usage: "`N` months are drawn, with seeds from S on", Value: 10},
			&cli.IntFlag{Name: "jobs", Usage: "`N` periodic jobs of each month", Value: 100},
			&cli.IntFlag{Name: "days", Usage: "`N` days of each month, of which 70% are learned from", Value: 30},
			&cli.Float64Flag{Name: "correlation", Usage: "`R` of the size of drawn jobs and what their owners ask for over it; below 0 large jobs are under-provisioned more often"},
			&cli.StringSliceFlag{Name: "trace", Usage: "instead of drawn jobs: days of recorded VMs as runs of daily jobs, as of vcsim run --workload recurring, from these `FILES`"},
			&cli.StringFlag{Name: "runs", Usage: "instead of drawn jobs: hourly queries of the recorded runs of one, from a `FILE` of Hadoop's Resource Estimator (TPC-H Q12)"},
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FORMAT`: text, or json, in which shares are not percent and what there is no value of is null", Value: "text"},
		},
		Action: func(c *cli.Context) error {
			format := c.String("output")
			if format != "text" && format != "json" {
				return cli.Exit(fmt.Sprintf("-o is text or json, not %q", format), 2)
			}
			p, err := newMorpheusPlay(c)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(c.Context, os.Interrupt, syscall.SIGTERM)
			defer stop()
			all, err := p.run(ctx, progress(c.App.ErrWriter, "morpheus"))
			if err != nil {
				return err
			}
			if format == "json" {
				return p.json(c.App.Writer, all)
			}
			return p.text(c.App.Writer, all)
		},
	}
}

// morpheusPlay is what is made: tables of some names, over some seeds.
type morpheusPlay struct {
	morpheus.Options
	seeds int
	names []string
	of    string // what is played
	study func(morpheus.Options) (*morpheus.Study, error)
}

func newMorpheusPlay(c *cli.Context) (*morpheusPlay, error) {
	p := &morpheusPlay{Options: morpheus.Options{Seed: c.Uint64("seed"), Jobs: c.Int("jobs"), Days: c.Int("days"), Correlation: c.Float64("correlation")}, seeds: c.Int("seeds"), names: c.StringSlice("figure"),
		of: fmt.Sprintf("%d jobs of %d days, correlation %g", c.Int("jobs"), c.Int("days"), c.Float64("correlation")), study: morpheus.NewStudy}
	if err := p.Validate(); err != nil {
		return nil, cli.Exit(err.Error(), 2)
	}
	known, files, runs := morpheus.FigureNames, c.StringSlice("trace"), c.String("runs")
	switch {
	case len(files) > 0 && runs != "":
		return nil, cli.Exit("--trace or --runs, not both", 2)
	case len(files) > 0:
		known, p.of = morpheus.RecordedFigureNames, fmt.Sprintf("%d recorded jobs at most", c.Int("jobs"))
	case runs != "":
		known, p.of = morpheus.RecordedFigureNames, fmt.Sprintf("%d hourly queries of recorded runs", c.Int("jobs"))
	}
	for _, f := range p.names {
		if !slices.Contains(known, f) {
			return nil, cli.Exit(fmt.Sprintf("there is no figure %q: %s", f, strings.Join(known, ", ")), 2)
		}
	}
	if len(p.names) == 0 {
		p.names = known
	}
	switch {
	case c.Args().Present() || p.seeds < 1 || p.seeds > 1000:
		return nil, cli.Exit("there are 1 to 1000 seeds, and no arguments", 2)
	case len(files) == 0 && runs == "":
		return p, nil
	case c.IsSet("days") || c.IsSet("correlation"):
		return nil, cli.Exit("--days, --correlation: a record has its own", 2)
	case runs != "":
		return p, p.ofRuns(runs)
	}
	d, err := trace.Load(trace.Options{}, sources(files)...)
	if err != nil {
		return nil, fmt.Errorf("--trace: %w", err)
	}
	p.study = func(o morpheus.Options) (*morpheus.Study, error) {
		// Hosts bound the sizes that are drawn, and the load how many jobs there are at least: as in the plays of vcsim run.
		hosts := slices.Repeat([]workload.Room{{CPU: 32, Memory: 128 << 30}}, 4)
		w, _, _, err := workload.Recurrent(d.Series, workload.Recurring{Part: 0.5}, workload.Cut{Hosts: hosts, Load: 2, Seed: o.Seed})
		if err != nil {
			return nil, err
		}
		return morpheus.NewRecordedStudy(o, w)
	}
	return p, nil
}

// ofRuns plays queries of the runs in a file.
func (p *morpheusPlay) ofRuns(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("--runs: %w", err)
	}
	runs, err := morpheus.ParseRuns(text)
	if err != nil {
		return fmt.Errorf("--runs: %s: %w", file, err)
	}
	p.study = func(o morpheus.Options) (*morpheus.Study, error) { return morpheus.NewRunsStudy(o, runs) }
	return nil
}

// run makes the tables of all seeds, as many seeds at once as there are processors.
func (p *morpheusPlay) run(ctx context.Context, report func(done, all int)) ([]*morpheus.Summary, error) {
	tables := make([][]*morpheus.Table, len(p.names))
	for i := range tables {
		tables[i] = make([]*morpheus.Table, p.seeds)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	var mutex sync.Mutex
	made := 0
	for k := range p.seeds {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			o := p.Options
			o.Seed += uint64(k)
			study, err := p.study(o)
			if err != nil {
				return fmt.Errorf("seed %d: %w", o.Seed, err)
			}
			for i, f := range p.names {
				if err := ctx.Err(); err != nil {
					return err
				}
				if tables[i][k], err = study.Figure(f); err != nil {
					return err
				}
				mutex.Lock()
				made++
				report(made, p.seeds*len(p.names))
				mutex.Unlock()
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var out []*morpheus.Summary
	for _, t := range tables {
		s, err := morpheus.Summarize(t)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func (p *morpheusPlay) text(w io.Writer, all []*morpheus.Summary) error {
	fmt.Fprintf(w, "%s, %d seeds from %d on", p.of, p.seeds, p.Seed)
	if p.seeds > 1 {
		fmt.Fprint(w, "; in brackets the 95% interval of the mean")
	}
	for _, s := range all {
		fmt.Fprintf(w, "\n\nFigure %s. %s\n\n", s.Figure, s.Title)
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, c := range s.Columns {
			fmt.Fprintf(table, "\t%s", c.Name)
		}
		for _, r := range s.Rows {
			fmt.Fprintf(table, "\n%s", r.Name)
			for i, cell := range r.Cells {
				fmt.Fprintf(table, "\t%s", morpheusCell(s.Columns[i], cell))
			}
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w)
	return err
}

func morpheusCell(c morpheus.Column, v morpheus.Cell) string {
	if math.IsNaN(v.Mean) {
		return "-"
	}
	times, unit := 1.0, ""
	if c.Percent {
		times, unit = 100, "%"
	}
	text := fmt.Sprintf("%.*f%s", c.Digits, times*v.Mean, unit)
	if v.Seeds > 1 {
		text += fmt.Sprintf(" (%.*f to %.*f)", c.Digits, times*v.Low, c.Digits, times*v.High)
	}
	return text
}

// number is a value of JSON, which has none that is not finite.
func number(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

func (p *morpheusPlay) json(w io.Writer, all []*morpheus.Summary) error {
	type value struct {
		Column string   `json:"column"`
		Mean   *float64 `json:"mean"`
		Low    *float64 `json:"low"`
		High   *float64 `json:"high"`
		Seeds  int      `json:"seeds"`
	}
	type row struct {
		Name   string  `json:"name"`
		Values []value `json:"values"`
	}
	type figure struct {
		Figure string `json:"figure"`
		Title  string `json:"title"`
		Rows   []row  `json:"rows"`
	}
	out := struct {
		Seed   uint64   `json:"seed"`
		Seeds  int      `json:"seeds"`
		Jobs   int      `json:"jobs"`
		Days   int      `json:"days"`
		Tables []figure `json:"tables"`
	}{Seed: p.Seed, Seeds: p.seeds, Jobs: p.Jobs, Days: p.Days}
	for _, s := range all {
		f := figure{Figure: s.Figure, Title: s.Title}
		for _, r := range s.Rows {
			one := row{Name: r.Name}
			for i, c := range r.Cells {
				one.Values = append(one.Values, value{s.Columns[i].Name, number(c.Mean), number(c.Low), number(c.High), c.Seeds})
			}
			f.Rows = append(f.Rows, one)
		}
		out.Tables = append(out.Tables, f)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(out)
}
