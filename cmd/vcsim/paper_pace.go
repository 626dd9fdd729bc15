package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"evenkeel/cmd/vcsim/pace"
	"evenkeel/sim/replay"
	"evenkeel/sim/workload"
)

func paceCommand() *cli.Command {
	return &cli.Command{
		Name:  "pace",
		Usage: "Dynamic Resource Shaping for Compute Clusters (2018), figures 2 and 3",
		Description: `Plays synthetic workloads like the paper's under reservation and under its optimistic and pessimistic policies, with an oracle, with ARIMA and Gaussian processes
for K1 x K2, and with Evenkeel's own settings, and writes DIR/pace.md and DIR/pace/*.svg. Equal flags give equal figures.
With --keep what was broken off goes on where it was. --small takes seconds, the whole some minutes of a processor.`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "small", Usage: "few hosts and applications, for a look"},
			&cli.StringFlag{Name: "keep", Usage: "keep each run's result in `DIR`, and take it from there"},
			&cli.StringFlag{Name: "out", Usage: "`DIR` for the report", Value: filepath.Join("docs", "reproduction")},
			&cli.Uint64Flag{Name: "seed", Usage: "`S` of the workloads", Value: 1},
			&cli.IntFlag{Name: "hosts", Usage: "`N` hosts for what is played with forecasts", Value: 4},
			&cli.IntFlag{Name: "apps", Usage: "`N` applications on them", Value: 600},
			&cli.Float64Flag{Name: "days", Usage: "in which they arrive, `D`", Value: 1},
			&cli.StringSliceFlag{Name: "long", Usage: "play these `POLICIES` of vcsim run on 10 hosts, too, with as many applications a day as the paper"},
			&cli.Float64Flag{Name: "long-days", Usage: "in `D` days: in the paper's 85 each takes a quarter of an hour of a processor or more, with forecasts", Value: workload.PaceDefault.Days},
		},
		Action: func(c *cli.Context) error {
			if c.Args().Present() || c.Int("hosts") < 1 || c.Int("apps") < 1 || !(c.Float64("days") > 0) {
				return cli.Exit("there are no arguments; hosts, applications and days are above 0", 2)
			}
			ctx, stop := signal.NotifyContext(c.Context, os.Interrupt, syscall.SIGTERM)
			defer stop()
			return repeatPace(ctx, c)
		},
	}
}

func repeatPace(ctx context.Context, c *cli.Context) error {
	size, command := pace.DefaultSize(), "vcsim paper pace"
	if c.Bool("small") {
		size = pace.SmallSize()
		command += " --small"
	}
	size.Seed = c.Uint64("seed")
	command += fmt.Sprintf(" --seed %d", size.Seed)
	if c.IsSet("hosts") || c.IsSet("apps") || c.IsSet("days") {
		size.Forecasting(c.Int("hosts"), c.Int("apps"), c.Float64("days"))
		command += fmt.Sprintf(" --hosts %d --apps %d --days %v", c.Int("hosts"), c.Int("apps"), c.Float64("days"))
	}
	for _, name := range c.StringSlice("long") {
		if _, err := policyNamed(name); err != nil {
			return cli.Exit(err.Error(), 2)
		}
	}
	if size.AtLength = c.StringSlice("long"); len(size.AtLength) > 0 {
		command += " --long " + strings.Join(size.AtLength, ",")
	}
	if days := c.Float64("long-days"); c.IsSet("long-days") {
		if len(size.AtLength) == 0 || !(days >= 0.1 && days <= 1000) {
			return cli.Exit("--long-days goes with --long, and is 0.1 to 1000", 2)
		}
		size.Lengthen(days)
		command += fmt.Sprintf(" --long-days %v", days)
	}
	r, err := pace.Run(size, pacePlayer(ctx, c.App.ErrWriter, c.String("keep")))
	if err != nil {
		return err
	}
	if err := r.Write(c.String("out"), command); err != nil {
		return err
	}
	fmt.Fprintf(c.App.Writer, "written: %s\n", filepath.Join(c.String("out"), "pace.md"))
	return nil
}

// pacePlayer plays the experiments, and keeps what came of them in a directory, if one is named.
func pacePlayer(ctx context.Context, say io.Writer, keep string) pace.Player {
	// The workload that was drawn last: those of one experiment follow each other.
	var drawn *workload.Workload
	var of runOptions
	return func(p workload.Pace, seed uint64, policy string) (*replay.Result, error) {
		o := runOptions{pace: p, seed: seed, tick: 60, keep: keep}
		if r, err := o.kept(policy); r != nil || err != nil {
			return r, err
		}
		if drawn == nil || of.pace != p || of.seed != seed {
			w, err := p.Draw(rand.New(rand.NewPCG(seed, 0)))
			if err != nil {
				return nil, err
			}
			drawn, of = w, o
		}
		if name, how, found := strings.Cut(policy, "@"); found {
			return o.varied(ctx, drawn, policy, name, how)
		}
		return o.one(ctx, say, drawn, policy)
	}
}

// varied plays a policy of vcsim run with something different: see pace.Player.
func (o runOptions) varied(ctx context.Context, w *workload.Workload, policy, name, how string) (*replay.Result, error) {
	made, err := policyNamed(name)
	if err != nil {
		return nil, err
	}
	p, ok := made.(*replay.Rightsizing)
	if !ok {
		return nil, fmt.Errorf("%s: nothing of %s can be varied", policy, name)
	}
	p.Label = policy
	tick := o.tick
	for _, part := range strings.Split(how, ",") {
		key, text, _ := strings.Cut(part, "=")
		v, err := strconv.ParseFloat(text, 64)
		switch {
		case err != nil || !(v >= 0 && v <= 86400):
			return nil, fmt.Errorf("%s: %q is no number from 0 on", policy, part)
		case key == "grace":
			p.Options.MinAge = int64(v)
		case key == "trust":
			p.Trust = int32(v)
		case key == "tick":
			tick = v
		default:
			return nil, fmt.Errorf("%s: there is no %q", policy, key)
		}
	}
	hosts := slices.Repeat([]replay.Host{{CPU: o.pace.CPU, Memory: o.pace.Memory}}, o.pace.Hosts)
	r, err := replay.Run(w, hosts, p, replay.Options{Tick: tick, Stop: func() bool { return ctx.Err() != nil }})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", policy, err)
	}
	return r, o.write(policy, r)
}
