package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"evenkeel/replay"
	"evenkeel/workload"
)

func runCommand() *cli.Command {
	d := workload.PaceDefault
	return &cli.Command{
		Name:      "run",
		Usage:     "play a workload on simulated hosts under several policies, side by side",
		UsageText: "vcsim run --policy NAME... [--hosts 10] [--days 10] [--seed 1] [-o table|json|csv|series|apps]",
		Description: `A workload is drawn, and played under each policy: when what arrives can start, what it gets, what it is short of, who has to go. Decisions
are those of the production allocator and forecasts; hosts and use are simulated. Equal flags give equal results to the last byte.

  vcsim run --policy reservation,optimistic,pessimistic
  vcsim run --policy reservation,pessimistic:last:0.05:3,evenkeel --hosts 4 --days 3
  vcsim run --policy reservation --hosts 250 --days 85 -o json > baseline.json

The workload is that of Pace et al. 2018 (batch applications, rigid and elastic), with as many applications per host and day as theirs; --load is what is
asked for over what there is. With --keep DIR each run that ends is written down there, and not run again: what was broken off goes on.

How to read the table (-o json has more, -o series hour by hour, -o apps each application):
  TURNAROUND   from arrival to end. WAIT: to the first start. STRETCH: turnaround over the time it would have taken at full speed, median.
  SLACK        allocated and not used, of what was asked for. Lower is better, down to where something fails.
  FAILED       applications that lost their work because memory ran out, at least once; HURT: or a part of it. REQUEUED: because the policy took it all back.
  QOS          share of component-minutes that got the CPU they wanted, or their request.
  YIELD        least of all applications, and mean: CPU they got over CPU they would have used.
  THRASH       work that was thrown away, of all that was done.
` + "\n" + policyHelp,
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "policy", Aliases: []string{"p"}, Usage: "`NAMES`, with commas between", Value: cli.NewStringSlice("reservation", "optimistic", "pessimistic")},
			&cli.IntFlag{Name: "hosts", Usage: "`N` hosts of 32 cores and 128 GB", Value: 10},
			&cli.Float64Flag{Name: "days", Usage: "in which all arrive, `D`", Value: 10},
			&cli.IntFlag{Name: "apps", Usage: "`N` applications (0: as many per host and day as the paper)"},
			&cli.Float64Flag{Name: "load", Usage: "`X` times as much is asked for as there is", Value: d.Load},
			&cli.Uint64Flag{Name: "seed", Usage: "`S` of the workload", Value: 1},
			&cli.DurationFlag{Name: "tick", Usage: "measure and shape every `TIME`", Value: time.Minute},
			&cli.StringFlag{Name: "keep", Usage: "keep each run's result in `DIR`, and take it from there"},
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`table|json|csv|series|apps`", Value: "table"},
		},
		Action: func(c *cli.Context) error {
			o, err := runOptionsOf(c)
			if err != nil {
				return cli.Exit(err.Error(), 2)
			}
			ctx, stop := signal.NotifyContext(c.Context, os.Interrupt, syscall.SIGTERM)
			defer stop()
			results, err := o.run(ctx, c.App.ErrWriter)
			if err != nil {
				return err
			}
			return writeRuns(c.App.Writer, c.String("output"), results)
		},
	}
}

// runOptions is what a run is of.
type runOptions struct {
	pace     workload.Pace
	policies []string
	seed     uint64
	tick     float64
	keep     string
}

func runOptionsOf(c *cli.Context) (runOptions, error) {
	o := runOptions{pace: paceOf(c.Int("hosts"), c.Int("apps"), c.Float64("days"), c.Float64("load")), policies: c.StringSlice("policy"),
		seed: c.Uint64("seed"), tick: c.Duration("tick").Seconds(), keep: c.String("keep")}
	switch {
	case c.Args().Present():
		return o, fmt.Errorf("%q: which flag is it for?", c.Args().First())
	case o.pace.Hosts < 1 || o.pace.Hosts > 1e5 || c.Int("apps") < 0 || o.pace.Apps < 1 || !(o.pace.Days > 0) || !(o.pace.Load > 0) || o.tick < 1:
		return o, errors.New("hosts must be 1 to 100,000; days, load and tick (1 s at least) above 0")
	case !slices.Contains([]string{"table", "json", "csv", "series", "apps"}, c.String("output")):
		return o, fmt.Errorf("-o %s: must be table, json, csv, series or apps", c.String("output"))
	}
	for _, p := range o.policies {
		if _, err := policyNamed(p); err != nil {
			return o, err
		}
	}
	return o, nil
}

// paceOf is Pace's workload on so many hosts, in so many days, with as many applications for both as theirs, if apps is 0.
func paceOf(hosts, apps int, days, load float64) workload.Pace {
	p := workload.PaceDefault
	if apps == 0 {
		apps = int(float64(p.Apps) * float64(hosts) / float64(p.Hosts) * days / p.Days)
	}
	p = p.Scaled(hosts, apps, days)
	p.Load = load
	return p
}

// run plays all policies, one after the other.
func (o runOptions) run(ctx context.Context, say io.Writer) ([]*replay.Result, error) {
	var w *workload.Workload
	var results []*replay.Result
	for _, name := range o.policies {
		r, err := o.kept(name)
		if err != nil {
			return nil, err
		}
		if r == nil {
			if w == nil {
				if w, err = o.pace.Draw(rand.New(rand.NewPCG(o.seed, 0))); err != nil {
					return nil, err
				}
			}
			if r, err = o.one(ctx, say, w, name); err != nil {
				return nil, err
			}
		}
		results = append(results, r)
	}
	return results, nil
}

func (o runOptions) one(ctx context.Context, say io.Writer, w *workload.Workload, name string) (*replay.Result, error) {
	p, err := policyNamed(name)
	if err != nil {
		return nil, err
	}
	hosts := make([]replay.Host, o.pace.Hosts)
	for i := range hosts {
		hosts[i] = replay.Host{CPU: o.pace.CPU, Memory: o.pace.Memory}
	}
	var done atomic.Int64
	stop := showProgress(say, &done, int64(len(w.Apps)), fmt.Sprintf("%d applications, %s", len(w.Apps), name))
	r, err := replay.Run(w, hosts, p, replay.Options{Tick: o.tick,
		Progress: func(n int) { done.Store(int64(n)) }, Stop: func() bool { return ctx.Err() != nil }})
	stop()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, o.write(name, r)
}

// place is the file that a run is kept in: its name says all that the result depends on.
func (o runOptions) place(policy string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "1 %+v %d %v %s", o.pace, o.seed, o.tick, policy))
	return filepath.Join(o.keep, fmt.Sprintf("run-%x.json", sum[:8]))
}

// kept is the result of a run that was kept; nil: there is none.
func (o runOptions) kept(policy string) (*replay.Result, error) {
	if o.keep == "" {
		return nil, nil
	}
	b, err := os.ReadFile(o.place(policy))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read a kept run: %w", err)
	}
	r := new(replay.Result)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s: %w; remove it to run it again", o.place(policy), err)
	}
	return r, nil
}

func (o runOptions) write(policy string, r *replay.Result) error {
	if o.keep == "" {
		return nil
	}
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("keep a run: %w", err)
	}
	if err := os.MkdirAll(o.keep, 0o755); err != nil {
		return fmt.Errorf("keep a run: %w", err)
	}
	file := o.place(policy)
	if err := os.WriteFile(file+".new", b, 0o644); err != nil { // whole or not at all
		return fmt.Errorf("keep a run: %w", err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return fmt.Errorf("keep a run: %w", err)
	}
	return nil
}

func writeRuns(w io.Writer, format string, results []*replay.Result) error {
	switch format {
	case "json":
		return replay.WriteJSON(w, results)
	case "csv":
		return replay.WriteCSV(w, results)
	case "series":
		return replay.WriteSeries(w, results)
	case "apps":
		return replay.WriteApps(w, results)
	}
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.AppendHeader(table.Row{"policy", "turnaround", "median", "p95", "wait", "stretch", "slack cpu", "memory", "failed", "hurt", "requeued", "qos", "used cpu", "memory", "yield", "mean", "thrash"})
	for _, r := range results {
		t.AppendRow(table.Row{r.Policy, span(r.Turnaround.Mean), span(r.Turnaround.Median), span(r.Turnaround.P95), span(r.Wait.Mean), fmt.Sprintf("%.2f", r.Stretch.Median),
			percent(r.SlackCPU), percent(r.SlackMemory), percent(r.Failed), percent(r.Hurt), percent(r.Requeued), fmt.Sprintf("%.3f%%", 100*r.QoS),
			percent(r.UsedCPU), percent(r.UsedMemory), fmt.Sprintf("%.3f", r.LeastYield), fmt.Sprintf("%.4f", r.MeanYield), percent(r.Thrash)})
	}
	_, err := fmt.Fprintln(w, t.Render())
	return err
}

func percent(x float64) string { return fmt.Sprintf("%.1f%%", 100*x) }

// span is a time in the unit that suits it.
func span(seconds float64) string {
	switch {
	case seconds >= 2*86400:
		return fmt.Sprintf("%.1f d", seconds/86400)
	case seconds >= 2*3600:
		return fmt.Sprintf("%.1f h", seconds/3600)
	case seconds >= 120:
		return fmt.Sprintf("%.1f min", seconds/60)
	}
	return fmt.Sprintf("%.0f s", seconds)
}
