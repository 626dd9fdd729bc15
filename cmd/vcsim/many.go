package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"

	"evenkeel/cmd/vcsim/manyhosts"
)

// clusterServerCommand is what cluster --servers runs of itself, once per server.
func clusterServerCommand() *cli.Command {
	return &cli.Command{
		Name: "cluster-server", Hidden: true, Usage: "one server of cluster --servers",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "dir", Required: true}, &cli.StringFlag{Name: "listen", Required: true},
			&cli.StringFlag{Name: "gossip"}, &cli.StringFlag{Name: "token"},
		},
		Action: func(c *cli.Context) error {
			return manyhosts.Serve(c.Context, manyhosts.ServerOptions{Dir: c.String("dir"), Listen: c.String("listen"), Gossip: c.String("gossip"),
				Token: c.String("token"), Log: os.Stderr, Version: version}, os.Stdin, os.Stdout)
		},
	}
}

// clusterClientsCommand is what cluster --servers runs of itself to ask for virtual clusters.
func clusterClientsCommand() *cli.Command {
	return &cli.Command{
		Name: "cluster-clients", Hidden: true, Usage: "the clients of cluster --servers",
		Action: func(c *cli.Context) error { return manyhosts.Ask(c.Context, os.Stdin, os.Stdout) },
	}
}

// many measures several servers.
func many(c *cli.Context) (err error) {
	if c.Int("hosts") < 1 || c.Int("vms") < 1 || c.Int("largest") < 1 || c.Int("small") < 1 || c.Int("clients") < 1 || c.Int("hosts-nice") < 0 || c.Int("hosts-nice") > 19 || c.Int("tenants") < 0 || c.Args().Present() {
		return cli.Exit("hosts, vms, largest, small and clients must be at least 1, hosts-nice 0 to 19, and there are no arguments", 2)
	}
	dir := c.String("dir")
	if dir == "" {
		made, remove, err := manyhosts.Dir()
		if err != nil {
			return err
		}
		defer remove()
		dir = made
	}
	ctx, serve := c.Context, (func(context.Context, manyhosts.Cluster) error)(nil)
	if c.Bool("serve") {
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
		serve = func(ctx context.Context, at manyhosts.Cluster) error {
			err := json.NewEncoder(c.App.Writer).Encode(at)
			if err == nil {
				<-ctx.Done()
			}
			return err
		}
	}
	f, err := manyhosts.Run(ctx, manyhosts.Options{Serve: serve, Tenants: c.Int("tenants"), Dir: dir, Profile: c.String("profile"), Servers: c.Int("servers"), Hosts: c.Int("hosts"),
		VMs: c.Int("vms"), Largest: c.Int("largest"), CPU: c.Float64("cpu"), Seed: c.Uint64("seed"), Steady: c.Duration("steady"), Rate: c.Float64("rate"),
		During: c.Duration("during"), Life: c.Duration("life"), After: c.Duration("after"), Small: c.Int("small"), Clients: c.Int("clients"), SampleEvery: c.Duration("sample-every"), Nice: c.Int("hosts-nice"), Progress: os.Stderr})
	switch {
	case serve != nil:
	case c.Bool("json"):
		err = errors.Join(err, f.JSON(c.App.Writer))
	default:
		f.Write(c.App.Writer)
	}
	return err
}
