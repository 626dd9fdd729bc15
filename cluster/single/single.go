// Package single runs a whole cluster of one server in this process: the log on
// disk, the leader's service and its loop, an agent for each host.
//
// It is what vcd dev, vcsim and the tests of what stands above a cluster start. It
// wires together and decides nothing; it opens no hypervisor and serves no API.
package single

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/node"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
)

// Options are the options of a cluster.
type Options struct {
	Dir string // holds the log in raft/
	ID  string // of the server, for ever
	// Open the hosts, by name. It is called once the log is open, which makes
	// sure that no other process works on the same directory.
	Open     func(ctx context.Context) (map[string]hypervisor.Host, error)
	Settings state.Settings // for a cluster that is made again
	// Inspect looks at an image's file before it enters the catalogue; nil takes it as it is.
	Inspect func(state.Image) (state.Image, error)
	// Agent holds what all agents have in common: allowance, overhead, pace. Its Clock is the leader's, too.
	Agent  agent.Options
	Logger *slog.Logger
	// Step of forecasts, and of the looks at what VMs need; 0 = a minute.
	Step time.Duration
	// Used, SnapshotEvery, Trailing and Fault are those of node.Options.
	Used                    bool
	SnapshotEvery, Trailing uint64
	Fault                   func(write string) error
}

// Cluster is a running cluster.
type Cluster struct {
	*leader.Service
	State *state.Store

	failed chan error
	close  func() error
}

// Start starts a cluster on the content of its directory. It returns once the server leads.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	ctx, cancel := context.WithCancel(ctx)
	c := &Cluster{State: state.New()}
	n, err := node.Open(node.Options{Dir: filepath.Join(o.Dir, "raft"), ID: o.ID, State: c.State, Log: o.Logger,
		Used: o.Used, SnapshotEvery: o.SnapshotEvery, Trailing: o.Trailing, Fault: o.Fault})
	if err != nil {
		cancel()
		return nil, err
	}
	var wg sync.WaitGroup
	c.close = sync.OnceValue(func() error {
		cancel()
		wg.Wait()
		return n.Close()
	})
	if err := c.start(ctx, o, n, &wg); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, o Options, n *node.Node, wg *sync.WaitGroup) error {
	hosts, err := o.Open(ctx)
	if err != nil {
		return err
	}
	if err := n.Lead(ctx); err != nil {
		return err
	}
	recorders := map[string]*agent.Recorder{}
	for name := range hosts {
		recorders[name] = agent.OpenRecorder(agent.RecorderOptions{Dir: filepath.Join(o.Dir, "agents", name+".histories"), Log: o.Logger.With("host", name), Step: o.Step,
			Fetch: func(ctx context.Context, vm string) ([]byte, error) { return c.HistoryFor(ctx, name, vm) }})
	}
	inspect := o.Inspect
	if inspect == nil {
		inspect = func(img state.Image) (state.Image, error) { return img, nil }
	}
	c.Service = leader.New(leader.Options{State: c.State, Log: n, Settings: o.Settings, Hosts: slices.Sorted(maps.Keys(hosts)),
		Inspect: inspect, Logger: o.Logger, Period: o.Step, Clock: o.Agent.Clock,
		Console: func(ctx context.Context, host, vm string) (io.ReadWriteCloser, error) {
			h, ok := hosts[host]
			if !ok {
				return nil, fmt.Errorf("host %s: %w", host, leader.ErrNotFound)
			}
			return h.Console(ctx, vm)
		},
		History: func(_ context.Context, host, vm string) ([]byte, error) {
			r, ok := recorders[host]
			if !ok {
				return nil, fmt.Errorf("host %s: %w", host, hypervisor.ErrNotFound)
			}
			return r.History(vm)
		},
		Forecast: func(_ context.Context, host, vm, resource string, steps int) (agent.VMForecast, error) {
			r, ok := recorders[host]
			if !ok {
				return agent.VMForecast{}, fmt.Errorf("host %s: %w", host, hypervisor.ErrNotFound)
			}
			return r.Forecast(vm, resource, steps)
		}})
	if err := c.StartTerm(ctx, n.Term(), ""); err != nil {
		return err
	}
	c.failed = make(chan error, len(hosts))
	wg.Go(func() { c.Run(ctx) })
	wg.Go(func() { c.Guard(ctx) })
	for name, h := range hosts {
		a := o.Agent
		a.Host, a.Hypervisor, a.Leader, a.Log = name, h, c.Service, o.Logger
		a.MigrateURI = name // several hosts in one process are simulated ones, which know each other by name
		a.Recorder, a.Step = recorders[name], o.Step
		a.Peers = c.Service.Peers
		a.State = agent.StateFile(filepath.Join(o.Dir, "agents", name+".json"))
		wg.Go(func() {
			if err := agent.Run(ctx, a); err != nil {
				c.failed <- err
			}
		})
	}
	return nil
}

// Failed returns a channel of the error of an agent that could not go on.
func (c *Cluster) Failed() <-chan error { return c.failed }

// AwaitReady returns once every host has reported, or with the reason why that will not be.
func (c *Cluster) AwaitReady(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for c.Ready() != nil {
		select {
		case err := <-c.failed:
			return err
		case <-ctx.Done():
			return fmt.Errorf("not ready yet (%w): %w", c.Ready(), ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

// Close stops the agents and the server. VMs run on; hosts stay open.
func (c *Cluster) Close() error { return c.close() }
