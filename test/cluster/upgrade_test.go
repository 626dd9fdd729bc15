package cluster

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"evenkeel/api/v1"
	"evenkeel/test/labsite"
)

// TestUpgrade replaces the program of an earlier version by this one, member by member, under load. EVENKEEL_FROM names the earlier
// vcd. No VM is touched and no acknowledged write is lost; what only this version knows is refused until all members run it; and
// what there was belongs to the tenant default.
func TestUpgrade(t *testing.T) {
	from := os.Getenv("EVENKEEL_FROM")
	if from == "" {
		t.Skip("EVENKEEL_FROM names no vcd of an earlier version")
	}
	s := newSite(t)
	tab := &table{}
	later := t.TempDir()
	if err := os.Chmod(later, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := labsite.Build(t.Context(), later, "cmd/vcd"); err != nil {
		t.Fatal(err)
	}
	s.create(t, filled(len(s.hosts)), nil)
	before := s.watch.Processes()
	l := startLoad(t, s, 20)
	l.awaitAcks(t, 30*time.Second, 100)
	at := time.Now()
	for i, h := range s.hosts {
		h.terminate(t)
		if i == 0 {
			if err := os.Rename(filepath.Join(later, "vcd"), filepath.Join(s.bin, "vcd")); err != nil {
				t.Fatal(err)
			}
		}
		h.launch(t)
		eventually(t, time.Minute, "the cluster is healthy", s.healthy)
		l.awaitAcks(t, 30*time.Second, 10)
		if i < len(s.hosts)-1 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			out, err := s.hosts[0].Vcctl(ctx, "", "tenant", "create", "early")
			cancel()
			if err == nil {
				t.Fatalf("a tenant beside members that do not know tenants: %s", out)
			}
			t.Logf("a tenant after %d of %d members: %v", i+1, len(s.hosts), err)
		}
	}
	took := time.Since(at)
	l.end(t)
	gap := l.gap(at)
	l.check(t, s.hosts)
	s.untouched(t, "steady", before)
	eventually(t, time.Minute, "the leader knows that all members are upgraded", func(ctx context.Context) error {
		_, err := s.hosts[0].Vcctl(ctx, "", "tenant", "create", "film")
		return err
	})
	if vms := s.hosts[0].vcctl(t, "", "vm", "list", "-o", "json"); strings.Count(vms, `"steady-`) < len(s.hosts) {
		t.Errorf("the VMs of before are not the default tenant's: %s", vms)
	}
	// A guest of a tenant runs in a domain of its own, beside one of the same name.
	for _, tenant := range []string{"film", "default"} {
		text, err := json.Marshal(spec("shot", 1, "keep", nil))
		if err != nil {
			t.Fatal(err)
		}
		s.hosts[0].vcctl(t, string(text), "vc", "create", "--tenant", tenant, "-f", "-", "--wait", "--timeout", "90s")
	}
	var all v1.List[v1.VM]
	if err := json.Unmarshal([]byte(s.hosts[0].vcctl(t, "", "vm", "list", "--tenant", "*", "-o", "json")), &all); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, vm := range all.Items {
		want := "ek-" + vm.ID
		switch {
		case strings.HasPrefix(vm.Name, "steady-"): // it was not started again
			want = "ek-" + vm.Name
		case !strings.HasPrefix(vm.Name, "shot-"):
			continue
		}
		seen++
		if i, runs := s.watch.Of(want); vm.Domain != want || !runs || i.Host != vm.Host {
			t.Errorf("%s of %s has the domain %s, want %s; it runs: %v", vm.Name, vm.Tenant, vm.Domain, want, i)
		}
	}
	if seen != len(s.hosts)+2 {
		t.Errorf("%d VMs of steady and shot", seen)
	}
	tab.add("upgrade of all members under load of 20 clients", "%.0f s; %d writes acknowledged, %d refused for good; longest gap %.2f s; no VM touched",
		took.Seconds(), len(l.acks), len(l.faults), gap.Seconds())
	s.once(t)
	t.Logf("\n%s", tab)
}
