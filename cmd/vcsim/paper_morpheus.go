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
re-provisioning; 12 delayed queries on 275 nodes beside ad-hoc work. "missed" is the mean over jobs of the share of their runs that were late,
"of all runs" counts each run once, "unavoidable" are runs that are late even with all they ask for.`,
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "figure", Usage: "only these `FIGURES`, with commas between: " + strings.Join(morpheus.FigureNames, ", ")},
			&cli.Uint64Flag{Name: "seed", Usage: "`S` of the first month", Value: 1},
			&cli.IntFlag{Name: "seeds", Usage: "`N` months are drawn, with seeds from S on", Value: 10},
			&cli.IntFlag{Name: "jobs", Usage: "`N` periodic jobs of each month", Value: 100},
			&cli.IntFlag{Name: "days", Usage: "`N` days of each month, of which 70% are learned from", Value: 30},
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FORMAT`: text, or json, in which shares are not percent and what there is no value of is null", Value: "text"},
		},
		Action: func(c *cli.Context) error {
			names := c.StringSlice("figure")
			for _, f := range names {
				if !slices.Contains(morpheus.FigureNames, f) {
					return cli.Exit(fmt.Sprintf("there is no figure %q: %s", f, strings.Join(morpheus.FigureNames, ", ")), 2)
				}
			}
			if len(names) == 0 {
				names = morpheus.FigureNames
			}
			if n := c.Int("seeds"); c.Args().Present() || n < 1 || n > 1000 {
				return cli.Exit("there are 1 to 1000 seeds, and no arguments", 2)
			}
			format := c.String("output")
			if format != "text" && format != "json" {
				return cli.Exit(fmt.Sprintf("-o is text or json, not %q", format), 2)
			}
			o := morpheus.Options{Seed: c.Uint64("seed"), Jobs: c.Int("jobs"), Days: c.Int("days")}
			if err := o.Validate(); err != nil {
				return cli.Exit(err.Error(), 2)
			}
			ctx, stop := signal.NotifyContext(c.Context, os.Interrupt, syscall.SIGTERM)
			defer stop()
			all, err := repeatMorpheus(ctx, o, c.Int("seeds"), names, progress(c.App.ErrWriter, "morpheus"))
			if err != nil {
				return err
			}
			if format == "json" {
				return morpheusJSON(c.App.Writer, o, c.Int("seeds"), all)
			}
			return morpheusText(c.App.Writer, o, c.Int("seeds"), all)
		},
	}
}

// repeatMorpheus makes the figures of all seeds, as many seeds at once as there are processors.
func repeatMorpheus(ctx context.Context, o morpheus.Options, seeds int, names []string, report func(done, all int)) ([]*morpheus.Summary, error) {
	tables := make([][]*morpheus.Table, len(names))
	for i := range tables {
		tables[i] = make([]*morpheus.Table, seeds)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	var mutex sync.Mutex
	made := 0
	for k := range seeds {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			one := o
			one.Seed += uint64(k)
			study, err := morpheus.NewStudy(one)
			if err != nil {
				return fmt.Errorf("seed %d: %w", one.Seed, err)
			}
			for i, f := range names {
				if err := ctx.Err(); err != nil {
					return err
				}
				if tables[i][k], err = study.Figure(f); err != nil {
					return err
				}
				mutex.Lock()
				made++
				report(made, seeds*len(names))
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

func morpheusText(w io.Writer, o morpheus.Options, seeds int, all []*morpheus.Summary) error {
	fmt.Fprintf(w, "%d jobs of %d days, %d seeds from %d on", o.Jobs, o.Days, seeds, o.Seed)
	if seeds > 1 {
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

func morpheusJSON(w io.Writer, o morpheus.Options, seeds int, all []*morpheus.Summary) error {
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
	}{Seed: o.Seed, Seeds: seeds, Jobs: o.Jobs, Days: o.Days}
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
