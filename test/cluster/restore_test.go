package cluster

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// restoredBeforeMoves restores a snapshot that is older than three migrations: the VMs go on where they are by now, in the
// same processes, and can be moved again.
func restoredBeforeMoves(t *testing.T, s *site, tab *table) {
	h := s.hosts[0]
	s.create(t, loaded("moved", 3, h), h)
	leads := s.leader(t)
	file := "/etc/evenkeel/older.snap"
	_ = os.Remove(leads.Config() + "/older.snap")
	t.Log(leads.vcctl(t, "", "cluster", "snapshot", "save", file))

	drain := func(h *host, key string) time.Time {
		at := time.Now()
		must(t, s, func(ctx context.Context, c *client.Client) (v1.DrainResult, error) {
			return c.Drain(ctx, h.Name, v1.DrainRequest{}, client.IdempotencyKey(fmt.Sprint(key, at.UnixNano())))
		})
		if d := s.drained(t, h, 4*time.Minute); d.State != "drained" {
			t.Fatalf("the drain of %s ended as %s: %s", h.Name, d.State, d.Text)
		}
		return at
	}
	began := drain(h, "before")
	if n := len(s.migrations(t, began.Add(-time.Second))); n != 3 {
		t.Fatalf("%d migrations since the snapshot", n)
	}
	before := s.watch.Now()
	if len(before) != 3 {
		t.Fatalf("run before the restore: %v", before)
	}

	t.Log(leads.vcctl(t, "", "cluster", "snapshot", "restore", "--yes", file))
	at := time.Now()
	eventually(t, time.Minute, "the cluster is healthy", s.healthy)
	frozen := time.Since(at)
	eventually(t, time.Minute, "the VMs are known where they run", func(ctx context.Context) error {
		vms, err := ask(ctx, s.hosts, func(ctx context.Context, c *client.Client) ([]v1.VM, error) { return c.VMs(ctx, "moved", "") })
		if err != nil {
			return err
		}
		for _, vm := range vms {
			for _, i := range before {
				if i.Domain == vm.Domain && (i.Host != vm.Host || vm.State != "running") {
					return fmt.Errorf("%s runs on %s: %s", i.Domain, i.Host, describe(vms))
				}
			}
		}
		return nil
	})
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); {
		if now := s.watch.Now(); fmt.Sprint(now) != fmt.Sprint(before) {
			t.Fatalf("ran before the restore: %v; run now: %v", before, now)
		}
		time.Sleep(200 * time.Millisecond) // sleep: what must not happen has no event
	}
	s.undrained(t)
	to := before[0].Host
	for _, other := range s.hosts {
		if other.Name == to {
			drain(other, "after")
		}
	}
	s.running(t, 30*time.Second, "moved", 3)
	tab.add("a snapshot older than three migrations is restored", "held until all hosts had reported, %.1f s; none of 3 processes touched; all known where they run, and moved again", frozen.Seconds())
}
