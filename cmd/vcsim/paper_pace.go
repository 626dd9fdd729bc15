package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/urfave/cli/v2"

	"evenkeel/cmd/vcsim/pace"
	"evenkeel/replay"
	"evenkeel/workload"
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
		},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return cli.Exit("there are no arguments", 2)
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
	// The workload that was drawn last: those of one experiment follow each other.
	var drawn *workload.Workload
	var of runOptions
	r, err := pace.Run(size, func(p workload.Pace, seed uint64, policy string) (*replay.Result, error) {
		o := runOptions{pace: p, seed: seed, tick: 60, keep: c.String("keep")}
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
		return o.one(ctx, c.App.ErrWriter, drawn, policy)
	})
	if err != nil {
		return err
	}
	if err := r.Write(c.String("out"), command); err != nil {
		return err
	}
	fmt.Fprintf(c.App.Writer, "written: %s\n", filepath.Join(c.String("out"), "pace.md"))
	return nil
}
