package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// pause is how long an agent hangs: EVENKEEL_PAUSE, 5 minutes in the long run, otherwise no longer than necessary.
func pause(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("EVENKEEL_PAUSE")
	switch {
	case text != "":
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		return d
	case long():
		return 5 * time.Minute
	}
	return time.Minute
}

// An agent hangs, and a watchdog is armed: it turns the host off, and the VMs run elsewhere.
func agentHangs(t *testing.T, s *site, tab *table) {
	lost := s.others(s.leader(t))[0]
	s.create(t, spec("move", 2, "restart", lost), lost)
	at := time.Now()
	if err := lost.Vcd().Pause(); err != nil {
		t.Fatal(err)
	}
	gone, began, run := s.moved(t, "move", lost, 2, 90*time.Second, at)
	if lost.Up() {
		t.Errorf("%s has power", lost.Name)
	}
	lost.boot(t)
	eventually(t, time.Minute, "the cluster is healthy", s.healthy)
	s.running(t, 10*time.Second, "move", 2)
	tab.add("an agent hangs (SIGSTOP), watchdog armed", "turned off after %.1f s, first elsewhere after %.1f s, all run after %.1f s", gone.Seconds(), began.Seconds(), run.Seconds())
}

// An agent hangs, and there is no watchdog: nothing proves that its VMs are gone, and they are not started elsewhere.
// When it goes on it stops them first; then they run again.
func agentHangsUnguarded(t *testing.T, s *site, tab *table) {
	hung := s.others(s.leader(t))[0]
	hung.set(t, settings{noWatchdog: true})
	t.Cleanup(func() {
		_ = hung.Vcd().Resume()
		hung.set(t, settings{})
	})
	eventually(t, time.Minute, "the cluster is healthy", s.healthy)
	s.create(t, spec("move", 2, "restart", hung), hung)
	before := s.watch.Processes()
	after := s.lastEvent(t)
	at := time.Now()
	if err := hung.Vcd().Pause(); err != nil {
		t.Fatal(err)
	}
	said := s.event(t, 90*time.Second, after, "host-unproved", hung.Name, "")
	t.Logf("after %.1f s: %s", time.Since(at).Seconds(), said.Text)
	saidAfter := time.Since(at)
	st := must(t, s, func(ctx context.Context, c *client.Client) (v1.ClusterStatus, error) { return c.Status(ctx) })
	warned := false
	for _, c := range st.Conditions {
		if c.Object == "host" && c.Name == hung.Name {
			t.Logf("condition of %s: %s: %s", c.Name, c.Severity, c.Text)
			warned = true
		}
	}
	if !warned {
		t.Errorf("no condition of host %s in the cluster's status: %+v", hung.Name, st.Conditions)
	}
	// No VM may start or stop for as long as it hangs.
	for until := at.Add(pause(t)); time.Now().Before(until); {
		now := s.watch.Processes()
		if fmt.Sprint(now) != fmt.Sprint(before) {
			t.Fatalf("VMs ran as %v, now as %v", before, now)
		}
		time.Sleep(time.Second) // sleep: what must not happen has no event
	}
	hungFor := time.Since(at)
	woken := time.Now()
	if err := hung.Vcd().Resume(); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "its VMs are started again", func(ctx context.Context) error {
		vms, err := s.vms(ctx, "move")
		if err != nil {
			return err
		}
		for _, vm := range vms {
			if vm.Generation < 2 {
				return fmt.Errorf("%s", describe(vms))
			}
		}
		return s.run(ctx, "move", 2)
	})
	run := time.Since(woken)
	var stopped time.Duration
	for task := range 2 {
		h := s.watch.History(s.domain(fmt.Sprintf("move-g-%d", task)), at)
		if len(h) != 2 || !h[0].Seen.Before(h[1].Started) {
			t.Errorf("VM %d had the processes %v", task, h)
			continue
		}
		stopped = max(stopped, h[0].Gone.Sub(woken))
	}
	tab.add("an agent hangs, no watchdog", "the leader refuses after %.1f s (host-unproved); hung for %.0f s; woken: VMs stopped after %.2f s, run again after %.1f s",
		saidAfter.Seconds(), hungFor.Seconds(), stopped.Seconds(), run.Seconds())
}

// Where there is no watchdog, a fence device proves that the host is off; without a device, an operator does.
func fenced(t *testing.T, s *site, tab *table) {
	leads := s.leader(t)
	lost, dead := s.others(leads)[0], s.others(leads)[1]
	for _, h := range []*host{lost, dead, leads} {
		h.set(t, settings{noWatchdog: h != leads, fences: []*host{lost}})
		eventually(t, time.Minute, "the cluster is healthy", s.healthy)
	}
	t.Cleanup(func() {
		for _, h := range s.hosts {
			h.boot(t)
			h.set(t, settings{})
		}
	})
	after := s.lastEvent(t)
	said := leads.vcctl(t, "", "host", "fence", lost.Name, "--test")
	if !strings.Contains(said, "on") {
		t.Errorf("fence --test of a host that has power: %q", said)
	}
	t.Logf("fence --test: %s", strings.TrimSpace(said))
	s.event(t, 10*time.Second, after, "fence-tested", lost.Name, "fence_lab")
	if _, err := leads.Vcctl(t.Context(), "", "host", "confirm-dead", "--yes", "-m", "a test", lost.Name); err == nil || !strings.Contains(err.Error(), "heard of") {
		t.Errorf("confirm-dead of a host that is heard of: %v", err)
	}

	// Its network is cut: only the device can turn it off.
	s.create(t, spec("move", 2, "restart", lost), lost)
	at := time.Now()
	if err := lost.CutCable(true); err != nil {
		t.Fatal(err)
	}
	_, began, run := s.moved(t, "move", lost, 2, 90*time.Second, at)
	if lost.Up() {
		t.Errorf("%s was fenced and has power", lost.Name)
	}
	e := s.event(t, 10*time.Second, after, "host-lost", lost.Name, "fence_lab")
	t.Logf("event: %s", e.Text)
	if err := lost.CutCable(false); err != nil {
		t.Fatal(err)
	}
	lost.boot(t)
	eventually(t, time.Minute, "the cluster is healthy", s.healthy)
	tab.add("a host's network pulled, fence device, no watchdog", "first elsewhere after %.1f s, all run after %.1f s", began.Seconds(), run.Seconds())

	s.create(t, spec("word", 1, "restart", dead), dead)
	after = s.lastEvent(t)
	at = time.Now()
	if err := dead.PowerOff(); err != nil {
		t.Fatal(err)
	}
	s.event(t, 90*time.Second, after, "host-unproved", dead.Name, "")
	if vms := must(t, s, func(ctx context.Context, c *client.Client) ([]v1.VM, error) { return c.VMs(ctx, "word", "") }); vms[0].Generation != 1 {
		t.Errorf("started without proof: %s", describe(vms))
	}
	leader := s.leader(t)
	said = leader.vcctl(t, "", "host", "confirm-dead", "--yes", "-m", "a test", dead.Name)
	t.Logf("confirm-dead: %s", strings.TrimSpace(said))
	confirmed := time.Since(at)
	_, _, run = s.moved(t, "word", dead, 1, time.Minute, at)
	tab.add("a host loses its power, nothing proves it", "refused until confirm-dead after %.1f s; all run after %.1f s", confirmed.Seconds(), run.Seconds())
	dead.boot(t)
	eventually(t, time.Minute, "the cluster is healthy", s.healthy)
}

// The restored snapshot is older than VCs that were created, stopped and deleted since. The cluster
// starts and stops nothing because of it, and reports VMs that it does not know and leaves them
// alone.
func snapshotRestored(t *testing.T, s *site, tab *table) {
	for _, name := range []string{"runs", "deleted", "stopped"} {
		s.create(t, spec(name, 1, "keep", nil), nil)
	}
	leads := s.leader(t)
	file := "/etc/evenkeel/saved.snap"
	_ = os.Remove(leads.Config() + "/saved.snap")
	t.Log(leads.vcctl(t, "", "cluster", "snapshot", "save", file))
	s.create(t, spec("unknown", 2, "keep", nil), nil)
	for name, verb := range map[string]func(*client.Client, context.Context) (v1.Result, error){
		"deleted": func(c *client.Client, ctx context.Context) (v1.Result, error) { return c.Delete(ctx, "deleted") },
		"stopped": func(c *client.Client, ctx context.Context) (v1.Result, error) { return c.Stop(ctx, "stopped") },
	} {
		must(t, s, func(ctx context.Context, c *client.Client) (v1.Result, error) { return verb(c, ctx) })
		eventually(t, time.Minute, name+" runs no more", func(context.Context) error {
			if i, ok := s.watch.Of(s.domain(name + "-g-0")); ok {
				return errors.New(i.String())
			}
			return nil
		})
	}
	before := s.watch.Processes()
	if len(before) != 3 {
		t.Fatalf("run before the restore: %v", before)
	}

	// One host does not report: until it does, the leader decides nothing.
	silent := s.others(leads)[0]
	if err := silent.CutCable(true); err != nil {
		t.Fatal(err)
	}
	t.Log(leads.vcctl(t, "", "cluster", "snapshot", "inspect", file))
	t.Log(leads.vcctl(t, "", "cluster", "snapshot", "restore", "--yes", file))
	at := time.Now()
	eventually(t, 30*time.Second, "only "+silent.Name+" is waited for", func(ctx context.Context) error {
		st, err := ask(ctx, s.others(silent), func(ctx context.Context, c *client.Client) (v1.ClusterStatus, error) { return c.Status(ctx) })
		if err != nil {
			return err
		}
		if st.RecoveryFreeze != "restore" || fmt.Sprint(st.RecoveryFreezeHosts) != fmt.Sprint([]string{silent.Name}) {
			return fmt.Errorf("hold %q for %v", st.RecoveryFreeze, st.RecoveryFreezeHosts)
		}
		return nil
	})
	_, err := ask(t.Context(), s.others(silent), func(ctx context.Context, c *client.Client) (v1.Result, error) {
		return c.Create(ctx, spec("early", 1, "keep", nil))
	})
	if err == nil || !strings.Contains(err.Error(), silent.Name) {
		t.Errorf("a change while %s is waited for: %v", silent.Name, err)
	}
	if now := s.watch.Processes(); fmt.Sprint(now) != fmt.Sprint(before) {
		t.Errorf("VMs ran as %v, while a host is waited for as %v", before, now)
	}
	if err := silent.CutCable(false); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "the cluster is healthy", s.healthy)
	frozen := time.Since(at)
	var unknown []string
	eventually(t, 30*time.Second, "the VMs that the snapshot does not know are reported", func(ctx context.Context) error {
		hosts, err := ask(ctx, s.hosts, func(ctx context.Context, c *client.Client) ([]v1.Host, error) { return c.Hosts(ctx) })
		if err != nil {
			return err
		}
		unknown = nil
		for _, h := range hosts {
			unknown = append(unknown, h.Unmanaged...)
		}
		if len(unknown) != 2 {
			return fmt.Errorf("%q", unknown)
		}
		return nil
	})
	// A VM that the snapshot wants to run, and that no host runs, is started once. All else is as it was.
	eventually(t, time.Minute, "what the snapshot holds runs", func(ctx context.Context) error {
		return errors.Join(s.run(ctx, "runs", 1), s.run(ctx, "deleted", 1), s.run(ctx, "stopped", 1))
	})
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); {
		now := s.watch.Processes()
		for name, pid := range before {
			if now[name] != pid {
				t.Fatalf("%s was process %d before the restore, is %d", name, pid, now[name])
			}
		}
		time.Sleep(200 * time.Millisecond) // sleep: what must not happen has no event
	}
	vms := must(t, s, func(ctx context.Context, c *client.Client) ([]v1.VM, error) { return c.VMs(ctx, "", "") })
	t.Logf("after the restore: %s; unknown: %q", describe(vms), unknown)
	for _, vm := range vms {
		want, since := uint64(1), at
		if vm.VirtualCluster != "runs" {
			want = 2
		}
		if vm.Generation != want || len(s.watch.History(vm.Domain, since)) != 1 {
			t.Errorf("%s; processes %v", describe([]v1.VM{vm}), s.watch.History(vm.Domain, since))
		}
	}
	tab.add("an old snapshot is restored", "held until all hosts had reported, %.1f s; %d unknown VMs reported; none of %d processes touched, %d VMs that ran nowhere started once", frozen.Seconds(), len(unknown), len(before), len(vms)-1)
}
