package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"evenkeel/cluster/fence"
)

// devices are the fence devices of vcd.yaml as the leader's service uses them.
type devices struct {
	runner *fence.Runner
	of     map[string][]fence.Level
}

func newDevices(c map[string]fenceConfig, log *slog.Logger) *devices {
	d := &devices{runner: fence.New(fence.Options{Log: log}), of: map[string][]fence.Level{}}
	for host, f := range c {
		d.of[host] = []fence.Level{{f.device()}}
	}
	return d
}

// Has implements control.Fence.
func (d *devices) Has(host string) bool { return len(d.of[host]) > 0 }

// Test implements control.Fence.
func (d *devices) Test(ctx context.Context, host string) (string, error) {
	all, err := d.runner.Test(ctx, host, d.of[host])
	if err != nil {
		return "", err
	}
	var said []string
	for _, s := range all {
		if s.Err != nil {
			return "", fmt.Errorf("%s: %w", s.Agent, s.Err)
		}
		said = append(said, fmt.Sprintf("%s says that the power is %s (%s)", s.Agent, s.Power, s.Took.Round(time.Millisecond)))
	}
	return strings.Join(said, "; "), nil
}

// Off implements control.Fence.
func (d *devices) Off(ctx context.Context, host string) (string, error) {
	p, err := d.runner.Fence(ctx, host, d.of[host])
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s turned it off and confirmed that it is off at %s", strings.Join(p.Agents, " and "), p.At.UTC().Format(time.RFC3339)), nil
}
