package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/test/patience"
)

// upgradeLoad has clients that create, scale and delete VCs of their own through all servers, as vcctl does: with a key for each
// request, and asking again while there is no leader. A client ends with its first request that fails.
type upgradeLoad struct {
	mu     sync.Mutex
	want   map[string]int // VMs of the VCs that are to be there
	acks   int
	faults []string
}

func (l *upgradeLoad) run(ctx context.Context, t *testing.T, c *client.Client, n int) {
	for k, failed := 0, false; ctx.Err() == nil && !failed; k++ {
		name := fmt.Sprintf("load%d-%d", n, k)
		do := func(verb string, vms int, f func(ctx context.Context, key client.Option) error) bool {
			err := f(t.Context(), client.IdempotencyKey(name+verb)) // not ctx: what was begun is finished
			l.mu.Lock()
			defer l.mu.Unlock()
			if err != nil {
				failed, l.faults = true, append(l.faults, fmt.Sprintf("%s %s: %v", verb, name, err))
				return false
			}
			l.acks++
			if verb != "get" {
				l.want[name] = vms
			}
			return true
		}
		spec := v1.VirtualClusterSpec{Name: name, OnFull: "queue", Groups: []v1.GroupSpec{{Name: "g", Count: 1, CPU: 0.1, Memory: 64 << 20, Boot: &v1.Boot{Kernel: "tiny"}}}}
		two := 2
		_ = do("create", 1, func(ctx context.Context, key client.Option) error { _, err := c.Create(ctx, spec, key); return err }) &&
			do("get", 0, func(ctx context.Context, _ client.Option) error { _, err := c.VirtualCluster(ctx, name); return err }) &&
			do("scale", 2, func(ctx context.Context, key client.Option) error {
				_, err := c.Scale(ctx, name, v1.ScaleRequest{Count: &two}, key)
				return err
			}) && k%4 > 0 &&
			do("delete", 0, func(ctx context.Context, key client.Option) error { _, err := c.Delete(ctx, name, key); return err })
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond): // the machine has other work
		}
	}
}

func (l *upgradeLoad) acked() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acks
}

// seen is how many requests were answered well, and what failed.
func (l *upgradeLoad) seen() any {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("%d answered, %d failed: %q", l.acks, len(l.faults), l.faults[:min(3, len(l.faults))])
}

// Three servers are upgraded one by one, the leader last, while clients write: each is stopped and another build of the program
// starts on its data directory. No request fails, and all that was acknowledged is there, on every server.
func TestUpgradeUnderLoad(t *testing.T) {
	build := func(version string) string { return buildVcd(t, "-ldflags", "-X main.version="+version) }
	before, after := build("before"), build("after")
	all := []*host{newHost(t, "h1"), newHost(t, "h2"), newHost(t, "h3")}
	var addresses []string
	for _, h := range all {
		h.program, h.gently = before, true
		h.start()
		addresses = append(addresses, h.advertise)
	}
	made, err := client.NewLocal(all[0].socket).Init(t.Context(), v1.SetupInit{})
	if err != nil {
		t.Fatal(err)
	}
	dial := func(addresses ...string) *client.Client {
		return admin(t, made, client.Config{Address: strings.Join(addresses, ","), Patience: patience.Within(30 * time.Second)})
	}
	for _, h := range all[1:] {
		k, err := dial(addresses[0]).MakeJoinToken(t.Context(), v1.JoinTokenRequest{Server: true, Agent: true})
		if err == nil {
			_, err = client.NewLocal(h.socket).Join(t.Context(), v1.SetupJoin{Token: k.Token, Addresses: addresses[:1]})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	api := dial(addresses...)
	var status v1.ClusterStatus
	awaitVersions := func(what string, versions map[string]string) {
		t.Helper()
		patience.Eventually(t, patience.Stall, what, func() any { return fmt.Sprintf("%+v, %s", status.Members, status.Advice) }, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), patience.Within(10*time.Second))
			defer cancel()
			now, err := api.Status(ctx)
			if err != nil {
				return false
			}
			status = now
			for _, m := range status.Members {
				if !m.Voter || !m.Healthy || m.Version != versions[m.Name] {
					return false
				}
			}
			return status.Ready && status.Tolerance == 1 && len(status.Members) == len(all) && status.Hosts["ready"] == len(all)
		})
	}
	versions := map[string]string{"h1": "before", "h2": "before", "h3": "before"}
	awaitVersions("three servers of one version", versions)
	if _, err := api.AddImage(t.Context(), v1.ImageSpec{Name: "tiny", Kind: "kernel", File: "/simulated/vmlinuz"}); err != nil {
		t.Fatal(err)
	}

	load := &upgradeLoad{want: map[string]int{}}
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	t.Cleanup(func() { stop(); clients.Wait() })
	for n := range 6 {
		c := dial(append(addresses[n%3:], addresses[:n%3]...)...)
		clients.Go(func() { load.run(ctx, t, c, n) })
	}
	progress := func(what string, more int) {
		t.Helper()
		from := load.acked()
		patience.Eventually(t, patience.Stall, what, load.seen, func() bool { return load.acked() >= from+more })
	}
	progress("requests are answered", 20)
	leader := status.Leader
	var order []*host
	for _, h := range all {
		if h.name != leader {
			order = append(order, h)
		}
	}
	for _, h := range all {
		if h.name == leader {
			order = append(order, h)
		}
	}
	for _, h := range order {
		if code := h.end(); code != 0 {
			t.Errorf("%s ended with %d: %s", h.name, code, h.errs)
		}
		progress("requests are answered while "+h.name+" is away", 5)
		h.program = after
		h.start()
		versions[h.name] = "after"
		awaitVersions(h.name+" is upgraded", versions)
		progress("requests are answered after that", 10)
	}
	stop()
	clients.Wait()

	if len(load.faults) > 0 {
		t.Errorf("%d requests failed, %d did not:\n%s", len(load.faults), load.acks, strings.Join(load.faults[:min(10, len(load.faults))], "\n"))
	}
	for _, h := range all {
		vcs, err := dial(h.advertise).VirtualClusters(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		there := map[string]int{}
		for _, vc := range vcs {
			if vc.State != "deleting" {
				there[vc.Name] = vc.Groups[0].Count
			}
		}
		for name, want := range load.want {
			if there[name] != want {
				t.Errorf("through %s: virtual cluster %s has %d VMs, want %d", h.name, name, there[name], want)
			}
			delete(there, name)
		}
		if len(there) > 0 {
			t.Errorf("through %s: there are %v, which no client asked for", h.name, there)
		}
	}
	t.Logf("%d requests, of which none failed; %s led", load.acks, leader)
}
