package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/single"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
)

func clusterCommand() *cli.Command {
	return &cli.Command{
		Name:  "cluster",
		Usage: "admit many virtual clusters on simulated hosts and measure how long each takes",
		Description: `The cluster is whole but for its hosts: Raft with a log on disk, the leader's service, an agent per host. Virtual
clusters of random size are asked for one after the other until so many VMs were asked for; then all are waited
for, the server is stopped and started again on its log, and what it holds is compared.

With --servers 3 each server is a process of its own, the agents of all hosts run here, and all that is between
them is real: TLS on loopback, certificates by join tokens, streams, reports, leases, the REST API. Printed are CPU and
memory of each server while nothing is asked for, how long requests take at a given rate, and how soon servers that were
ended are in step again. All processes share this machine, so that much else on it shows in the figures.`,
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "hosts", Usage: "`N` hosts of 32 cores and 128 GiB", Value: 12},
			&cli.IntFlag{Name: "vms", Usage: "ask for `N` VMs in all", Value: 1000},
			&cli.IntFlag{Name: "largest", Usage: "virtual clusters of 1 to `N` VMs", Value: 64},
			&cli.Uint64Flag{Name: "seed", Usage: "`S` of the random sizes and needs", Value: 1},
			&cli.IntFlag{Name: "servers", Usage: "1: all in this process. `N` of 3 and more: as many processes, the hosts here, requests over the REST API", Value: 1},
			&cli.DurationFlag{Name: "steady", Usage: "several servers: measure for `TIME` while nothing is asked for", Value: time.Minute},
			&cli.Float64Flag{Name: "rate", Usage: "several servers: ask for `N` virtual clusters a second", Value: 200},
			&cli.DurationFlag{Name: "during", Usage: "several servers: for `TIME`", Value: 40 * time.Second},
			&cli.DurationFlag{Name: "life", Usage: "several servers: and delete each after `TIME`; 0: all of them afterwards, so that admissions are measured alone"},
			&cli.DurationFlag{Name: "after", Usage: "several servers: measure memory once more `TIME` after all of these were deleted; 0: not"},
			&cli.IntFlag{Name: "small", Usage: "several servers: of 1 to `N` VMs each", Value: 2},
			&cli.Float64Flag{Name: "cpu", Usage: "several servers: mean need of a VM, `CORES`", Value: 0.7},
			&cli.IntFlag{Name: "clients", Usage: "several servers: `N` connections of clients", Value: 64},
			&cli.DurationFlag{Name: "sample-every", Usage: "several servers: agents sample every `TIME`", Value: 10 * time.Second},
			&cli.IntFlag{Name: "hosts-nice", Usage: "several servers: hosts, which have CPUs of their own elsewhere, run at a lower priority than servers and clients, by `N` of 19, under load (root only)"},
			&cli.StringFlag{Name: "profile", Usage: "several servers: write profiles of the servers and the hosts to `DIR`"},
			&cli.IntFlag{Name: "tenants", Usage: "several servers: the VMs that run throughout belong to `N` tenants; 0: to the tenant default"},
			&cli.BoolFlag{Name: "serve", Usage: "measure nothing: print where the API and the dashboard answer, and with which token, as JSON once all VMs run, and keep the cluster until SIGINT; also with one server"},
			&cli.StringFlag{Name: "dir", Usage: "several servers: keep their files in `DIR`"},
			&cli.BoolFlag{Name: "json", Usage: "several servers: print the figures as JSON"},
		},
		Action: func(c *cli.Context) error {
			if c.Int("servers") > 1 || c.Bool("serve") {
				return many(c)
			}
			if c.Int("hosts") < 1 || c.Int("vms") < 1 || c.Int("largest") < 1 || c.Args().Present() {
				return cli.Exit("hosts, vms and largest must be at least 1, and there are no arguments", 2)
			}
			return measure(c.Context, c.App.Writer, c.Int("hosts"), c.Int("vms"), c.Int("largest"), c.Uint64("seed"))
		},
	}
}

// start a cluster on dir and world; both may have been used before.
func start(ctx context.Context, dir string, world *simulated.World) (*single.Cluster, error) {
	set := state.DefaultSettings()
	set.OnFull = state.Reject
	c, err := single.Start(ctx, single.Options{Dir: dir, ID: "sim", Settings: set, Logger: slog.New(slog.DiscardHandler),
		Open: func(context.Context) (map[string]hypervisor.Host, error) { return world.All(), nil },
		Agent: agent.Options{
			Allowance: func(c hypervisor.Capacity) agent.Limits {
				return agent.Limits{CPU: 0.95 * c.CPU, Memory: c.Memory / 20 * 19}
			},
			Overhead: func(hypervisor.Capacity) int64 { return 32 << 20 }}})
	if err != nil {
		return nil, err
	}
	err = c.AwaitReady(ctx)
	if _, known := c.State.Snapshot().Image("tiny"); err == nil && !known {
		_, _, err = c.AddImage(ctx, state.Image{Name: "tiny", Kind: state.KernelImage, File: "/simulated/vmlinuz"}, leader.Call{})
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// awaitRunning waits until every VM that was admitted runs.
func awaitRunning(ctx context.Context, r *single.Cluster) (*leader.View, error) {
	for {
		v, err := r.View(ctx, false)
		if err != nil {
			return nil, err
		}
		c := state.CountPhases(v.VMs())
		if c.Starting+c.Stopping == 0 {
			return v, nil
		}
		select {
		case <-v.Watch():
		case <-ctx.Done():
			return nil, fmt.Errorf("%d VMs are still starting: %w", c.Starting, ctx.Err())
		}
	}
}

func measure(ctx context.Context, out io.Writer, hosts, vms, largest int, seed uint64) (err error) {
	dir, err := os.MkdirTemp("", "vcsim-")
	if err != nil {
		return fmt.Errorf("directory for the log: %w", err)
	}
	defer os.RemoveAll(dir)
	world, err := simulated.New(simulated.Options{Hosts: hosts, Seed: seed})
	if err != nil {
		return err
	}
	defer world.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	r, err := start(ctx, dir, world)
	if err != nil {
		return err
	}
	defer func() {
		if r != nil {
			err = errors.Join(err, r.Close())
		}
	}()

	rng := rand.New(rand.NewPCG(seed, 0))
	var took []time.Duration
	admitted, refused, unexplained, asked := 0, 0, 0, 0
	begin := time.Now()
	for i := 0; asked < vms; i++ {
		n := min(1+rng.IntN(largest), vms-asked)
		asked += n
		spec := state.VC{Name: fmt.Sprintf("vc%d", i), MinYield: -1, Groups: []state.Group{{Name: "g", Count: n,
			CPU: 0.1 * float64(1+rng.IntN(12)), Memory: int64(1+rng.IntN(4)) << 29}}}
		t := time.Now()
		_, err := r.Create(ctx, spec, leader.Call{})
		took = append(took, time.Since(t))
		var no *leader.Refused
		switch {
		case err == nil:
			admitted += n
		case errors.As(err, &no):
			refused += n
			if len(no.Decision.Hosts) == 0 || no.Decision.Summary == "" {
				unexplained++
			}
		default:
			return err
		}
	}
	asking := time.Since(begin)
	v, err := awaitRunning(ctx, r)
	if err != nil {
		return err
	}
	all := time.Since(begin)
	before := facts(v)
	if err := r.Close(); err != nil {
		return err
	}
	t := time.Now()
	if r, err = start(ctx, dir, world); err != nil {
		return err
	}
	back := time.Since(t)
	v, err = awaitRunning(ctx, r)
	if err != nil {
		return err
	}
	if after := facts(v); after != before {
		return fmt.Errorf("the state differs after a restart:\nbefore %s\nafter  %s", before, after)
	}
	audit := world.Audit()
	if len(audit.Doubled) > 0 {
		return fmt.Errorf("ran twice: %v", audit.Doubled)
	}
	slices.Sort(took)
	at := func(q float64) time.Duration { return took[min(len(took)-1, int(q*float64(len(took))))] }
	fmt.Fprintf(out, "%d hosts of 32 cores and 128 GiB, %d VMs asked for in %d virtual clusters of 1 to %d\n", hosts, asked, len(took), largest)
	fmt.Fprintf(out, "  admitted %d VMs, refused %d, refusals without reasons %d\n", admitted, refused, unexplained)
	fmt.Fprintf(out, "  admission: median %s, p99 %s, worst %s (request to durable answer); all asked in %s\n", round(at(0.5)), round(at(0.99)), round(at(1)), round(asking))
	fmt.Fprintf(out, "  all running after %s, minimum yield %.3f\n", round(all), v.MinYield())
	fmt.Fprintf(out, "  restart: ready after %s, state equal: %s\n", round(back), before)
	return nil
}

// facts of a state that a restart must keep.
func facts(v *leader.View) string {
	c := state.CountPhases(v.VMs())
	return fmt.Sprintf("%d virtual clusters, %d VMs, %d running, minimum yield %.9f", len(v.VCs()), len(v.VMs()), c.Running, v.MinYield())
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
