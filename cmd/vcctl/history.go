package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

func (t *tool) historyCommand() *cli.Command {
	return &cli.Command{
		Name: "history", Usage: "write what is declared and what VMs used to a file, to be played under other settings", ArgsUsage: "FILE", Action: t.action(clusterHistory),
		Description: "The file holds hosts, virtual clusters that are admitted, and what their VMs used, step by step. Nothing is changed.\n" +
			"`vcsim whatif FILE` plays it: with needs estimated, with fewer hosts, with more virtual clusters.\n\n" +
			"Example: vcctl cluster history --resolution 1m last-hours.json",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "resolution", Value: "5m", Usage: "steps of `1m` (kept for 6 h), 5m (2 days) or 1h (30 days)"},
			&cli.DurationFlag{Name: "since", Usage: "only what is not older than `TIME` (default: all that is kept)"},
		},
	}
}

// historyAtOnce questions are asked at once.
const historyAtOnce = 8

func clusterHistory(c *call) error {
	res, known := resolutions[c.String("resolution")]
	if !known || c.String("resolution") == "raw" {
		return usage("--resolution %s: must be 1m, 5m or 1h", c.String("resolution"))
	}
	step, since := res.step, res.kept
	if c.IsSet("since") {
		since = c.Duration("since")
	}
	if since < step || since > res.kept {
		return usage("--since %s: must be from %s to %s with a resolution of %s", since, step, res.kept, c.String("resolution"))
	}
	h := v1.ClusterHistory{Version: 1, StepSeconds: int(step / time.Second), Steps: int(since / step), From: time.Now().Add(-since).Truncate(step).UTC()}
	missing, err := c.t.gather(c.ctx, c.api, &h, c.String("resolution"))
	if err != nil {
		return err
	}
	if err := newFile(c.name, "write the history", func(f *os.File) error { return json.NewEncoder(f).Encode(h) }); err != nil {
		return err
	}
	vms := 0
	for _, vc := range h.VirtualClusters {
		for _, g := range vc.Groups {
			vms += len(g.VMs)
		}
	}
	return c.t.write(fmt.Sprintf("Written to %s: %d hosts, %d virtual clusters, %d VMs, %d steps of %s from %s on; nothing was measured in %.0f%% of them.\n",
		c.name, len(h.Hosts), len(h.VirtualClusters), vms, h.Steps, c.String("resolution"), stamp(h.From), 100*missing))
}

// gather fills in what the cluster reports. missing is the share of steps and VMs for which nothing was measured.
func (t *tool) gather(ctx context.Context, api *client.Client, h *v1.ClusterHistory, resolution string) (missing float64, err error) {
	hosts, err := api.Hosts(ctx)
	if err != nil {
		return 0, doing(err, "listing hosts")
	}
	for _, x := range hosts {
		h.Hosts = append(h.Hosts, v1.HistoryHost{Name: x.Name, CPU: max(0, x.Allowance.CPU-x.Foreign.CPU), Memory: max(0, float64(x.Allowance.Memory-x.Foreign.Memory))})
	}
	vcs, err := ofTenant(client.AllTenants, func(of client.Option) ([]v1.VirtualCluster, error) { return api.VirtualClusters(ctx, of) })
	if err != nil {
		return 0, doing(err, "listing virtual clusters")
	}
	vms, err := ofTenant(client.AllTenants, func(of client.Option) ([]v1.VM, error) { return api.VMs(ctx, "", "", of) })
	if err != nil {
		return 0, doing(err, "listing VMs")
	}
	type group struct{ vc, name string }
	of := map[group][]v1.HistoryVM{}
	for _, vm := range vms {
		key := group{fullName(vm.Tenant, vm.VirtualCluster), vm.Group}
		of[key] = append(of[key], v1.HistoryVM{Name: fullName(vm.Tenant, vm.Name), CPU: make([]*float64, h.Steps), Memory: make([]*float64, h.Steps)})
	}
	var all []*v1.HistoryVM
	for _, vc := range vcs {
		out := v1.HistoryVirtualCluster{Name: fullName(vc.Tenant, vc.Name), Priority: vc.Priority, CreatedAt: vc.CreatedAt}
		for _, g := range vc.Groups {
			of := of[group{out.Name, g.Name}]
			if len(of) == 0 {
				continue
			}
			out.Groups = append(out.Groups, v1.HistoryGroup{Name: g.Name, Elastic: g.Role == "elastic", CPU: g.CPU, Memory: float64(g.Memory), MemoryMin: float64(g.MemoryMin), VMs: of})
			for i := range of {
				all = append(all, &of[i])
			}
		}
		if len(out.Groups) > 0 {
			h.VirtualClusters = append(h.VirtualClusters, out)
		}
	}
	return t.gatherUse(ctx, api, h, all, resolution)
}

func (t *tool) gatherUse(ctx context.Context, api *client.Client, h *v1.ClusterHistory, all []*v1.HistoryVM, resolution string) (missing float64, err error) {
	var measured, done atomic.Int64
	asking, ctx := errgroup.WithContext(ctx)
	asking.SetLimit(historyAtOnce)
	for _, vm := range all {
		asking.Go(func() error {
			n, err := useOf(ctx, api, h, vm, resolution, h.From.Format(time.RFC3339))
			if err != nil {
				return doing(err, "getting what VM %s used", vm.Name)
			}
			measured.Add(int64(n))
			if n := done.Add(1); isTerminal(t.err) && n%20 == 0 {
				t.say("\r%d of %d VMs ", n, len(all))
			}
			return nil
		})
	}
	err = asking.Wait()
	if isTerminal(t.err) && len(all) >= 20 {
		t.say("\r\033[K")
	}
	return 1 - float64(measured.Load())/float64(max(1, 2*h.Steps*len(all))), err
}

// useOf fills in what a VM used, and counts the values. A VM of which nothing is kept has none.
func useOf(ctx context.Context, api *client.Client, h *v1.ClusterHistory, vm *v1.HistoryVM, resolution, since string) (n int, err error) {
	tenant, name, err := splitName(vm.Name)
	if err != nil {
		return 0, err
	}
	for resource, to := range map[string][]*float64{v1.ResourceCPU: vm.CPU, v1.ResourceMemory: vm.Memory} {
		s, err := api.Samples(ctx, name, resource, resolution, since, client.OfTenant(tenant))
		if client.IsProblem(err, v1.ProblemNotFound) {
			continue
		}
		if err != nil {
			return 0, err
		}
		throttled, samples := 0.0, 0.0
		for _, x := range s.Items {
			at := int(x.At.Sub(h.From) / (time.Duration(h.StepSeconds) * time.Second))
			if x.At.Before(h.From) || at >= h.Steps {
				continue
			}
			mean := x.Mean
			to[at] = &mean
			n++
			if x.Censored != nil {
				throttled += *x.Censored * float64(x.Samples)
				samples += float64(x.Samples)
			}
		}
		if samples > 0 {
			vm.Throttled = min(1, throttled/samples)
		}
	}
	return n, nil
}
