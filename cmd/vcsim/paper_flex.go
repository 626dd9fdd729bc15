package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/urfave/cli/v2"

	"evenkeel/forecast"
	"evenkeel/sim/flex"
	"evenkeel/sim/replay"
	"evenkeel/sim/workload"
)

func flexCommand() *cli.Command {
	return &cli.Command{
		Name:  "flex",
		Usage: "Flex: Closing the Gaps between Usage and Allocation (2020), figures 6 to 11",
		Description: `Draws a day of tasks like the paper's, replays it under LeastFit, OverSub(2), FlexF, FlexL and Evenkeel, and writes DIR/flex.md
and DIR/flex/*.svg. Equal seeds give equal figures, processor times apart. 4,000 nodes take some minutes of one core for all six policies; the
sensitivity to cluster size and demand, and what the kernel would end, are replayed on a tenth of the nodes.`,
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "nodes", Usage: "`N` nodes of 64 cores and 128 GB; tasks go with them: 714,030 on 4,000", Value: 4000},
			&cli.StringFlag{Name: "out", Usage: "`DIR` for the report", Value: filepath.Join("docs", "reproduction")},
			&cli.Uint64Flag{Name: "seed", Usage: "`S` of all that is drawn", Value: 1},
			tablesFlag("the day"),
		},
		Action: func(c *cli.Context) error {
			if c.Int("nodes") < 10 || c.Int("nodes") > 100000 || c.Args().Present() {
				return cli.Exit("there are 10 to 100000 nodes, and no arguments", 2)
			}
			ctx, stop := signal.NotifyContext(c.Context, os.Interrupt, syscall.SIGTERM)
			defer stop()
			r := flexReport{nodes: c.Int("nodes"), seed: c.Uint64("seed"), log: c.App.Writer}
			if c.Bool("tables") {
				if _, err := r.playDay(ctx); err != nil {
					return err
				}
				return writeTables(c.App.Writer, c.String("out"), "flex", r.seed, r.tables())
			}
			if err := r.run(ctx); err != nil {
				return err
			}
			return r.write(c.String("out"))
		},
	}
}

const (
	flexUntil  = 86400.0
	flexWarmUp = 7200.0 // the cluster is empty at first: means are taken from here on
	flexGoal   = 0.99   // rho
)

// flexPolicies are those of the paper, Flex with a minimum penalty that it can rise from, and Evenkeel.
func flexPolicies() ([]*replay.Placer, error) {
	over, err := replay.OverSub(2)
	if err != nil {
		return nil, err
	}
	all := []*replay.Placer{replay.LeastFit(), over}
	for _, f := range []struct {
		label   string
		order   flex.Order
		penalty forecast.MarginSettings
	}{
		{"FlexF", flex.FirstCome, forecast.FlexPenalty},
		{"FlexL", flex.LargestMemory, forecast.FlexPenalty},
		{"FlexF, 1.01", flex.FirstCome, forecast.QualityPenalty},
	} {
		p, err := replay.FlexPolicy(f.order, f.penalty, 1)
		if err != nil {
			return nil, err
		}
		all = append(all, p.Named(f.label))
	}
	return append(all, replay.EvenkeelPlacer()), nil
}

// flexRun is one replay, in the figures of the paper.
type flexRun struct {
	policy      string
	ticks       []replay.PlacerTick
	asked, used flex.Vector // means of shares of the cluster, from flexWarmUp on
	uneven      flex.Vector
	quality     float64 // share of task-minutes in which a task got what it is owed
	below       int     // minutes with a quality below rho
	started     int
	killed      float64 // share of tasks that the kernel ended at least once
	moves       int64
	bytes       float64
	user        float64 // seconds
	minPenalty  float64
	maxPenalty  float64
}

func (r *flexRun) violations() float64 { return 1 - r.quality }

// replayFlex plays a day under a policy.
func replayFlex(ctx context.Context, w *workload.Workload, nodes int, p *replay.Placer) (flexRun, error) {
	begin := userSeconds()
	hosts := slices.Repeat([]replay.Host{{CPU: workload.FlexNodeCPU, Memory: workload.FlexNodeMemory}}, nodes)
	result, err := replay.Run(w, hosts, p, replay.Options{Until: flexUntil, Stop: func() bool { return ctx.Err() != nil }})
	if err != nil {
		return flexRun{}, fmt.Errorf("%s on %d nodes: %w", p.Name(), nodes, err)
	}
	r := flexRun{policy: p.Name(), ticks: p.Ticks(), killed: result.Failed, moves: result.Moves, bytes: result.BytesMoved,
		user: userSeconds() - begin, minPenalty: math.Inf(1)}
	n, qualities := 0.0, 0.0
	for _, t := range r.ticks {
		r.started = t.Started
		if t.Time < flexWarmUp {
			continue
		}
		n++
		r.asked, r.used, r.uneven = r.asked.Plus(t.Asked), r.used.Plus(t.Used), r.uneven.Plus(t.Uneven)
		qualities += t.Quality
		if t.Quality < flexGoal {
			r.below++
		}
		r.minPenalty, r.maxPenalty = min(r.minPenalty, t.Penalty), max(r.maxPenalty, t.Penalty)
	}
	if n > 0 {
		r.asked, r.used, r.uneven, r.quality = r.asked.Times(1/n), r.used.Times(1/n), r.uneven.Times(1/n), qualities/n
	}
	return r, nil
}

// flexPoint is a value of what is varied, and the replays there, in the order of the policies.
type flexPoint struct {
	at   float64
	runs []flexRun
}

// flexReport is all that docs/reproduction/flex.md reports.
type flexReport struct {
	nodes  int
	seed   uint64
	log    io.Writer
	tasks  int
	draw   float64 // user seconds
	day    []flexRun
	sizes  []flexPoint // nodes, of what the workload was drawn for
	demand []flexPoint // factor on use
	kernel []flexRun   // with the kernel's rule
	small  int         // nodes of these
}

// playDay draws the day and replays it under all policies.
func (r *flexReport) playDay(ctx context.Context) (*workload.Workload, error) {
	begin := userSeconds()
	w, err := workload.Flex{Nodes: r.nodes}.Draw(r.seed)
	if err != nil {
		return nil, err
	}
	r.tasks, r.draw = len(w.Apps), userSeconds()-begin
	policies, err := flexPolicies()
	if err != nil {
		return nil, err
	}
	r.day, err = r.all(ctx, w, r.nodes, policies)
	return w, err
}

func (r *flexReport) run(ctx context.Context) error {
	if _, err := r.playDay(ctx); err != nil {
		return err
	}
	// A tenth from here on, and the policies of the paper's sensitivity analysis and Evenkeel.
	r.small = max(10, r.nodes/10)
	few := func() ([]*replay.Placer, error) {
		all, err := flexPolicies()
		if err != nil {
			return nil, err
		}
		return slices.DeleteFunc(all, func(p *replay.Placer) bool { return p.Name() == "FlexF, 1.01" }), nil
	}
	for _, demand := range []float64{0.5, 1, 1.5} {
		w, err := workload.Flex{Nodes: r.small, Demand: demand}.Draw(r.seed)
		if err != nil {
			return err
		}
		policies, err := few()
		if err != nil {
			return err
		}
		runs, err := r.all(ctx, w, r.small, policies)
		if err != nil {
			return err
		}
		r.demand = append(r.demand, flexPoint{demand, runs})
		if demand != 1 {
			continue
		}
		for _, share := range []float64{0.75, 0.875} {
			nodes := int(math.Round(share * float64(r.small)))
			if policies, err = few(); err != nil {
				return err
			}
			some, err := r.all(ctx, w, nodes, policies)
			if err != nil {
				return err
			}
			r.sizes = append(r.sizes, flexPoint{share, some})
		}
		r.sizes = append(r.sizes, flexPoint{1, runs})
		if policies, err = few(); err != nil {
			return err
		}
		for i := range policies {
			policies[i] = policies[i].Killing()
		}
		if r.kernel, err = r.all(ctx, w, r.small, policies); err != nil {
			return err
		}
	}
	return nil
}

// all replays a day under one policy after another.
func (r *flexReport) all(ctx context.Context, w *workload.Workload, nodes int, policies []*replay.Placer) ([]flexRun, error) {
	var runs []flexRun
	for _, p := range policies {
		one, err := replayFlex(ctx, w, nodes, p)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(r.log, "%-17s on %d nodes: asked %.3f of CPU, used %.3f, violations %.3f%%; %.0f s of user CPU\n", one.policy, nodes,
			one.asked[flex.CPU], one.used[flex.CPU], 100*one.violations(), one.user)
		runs = append(runs, one)
	}
	return runs, nil
}

// userSeconds is the CPU that this process has used.
func userSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Sec) + float64(u.Utime.Usec)/1e6
}
