package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// untouched fails the test if the VMs of the VC do not run in the processes they had.
func (s *site) untouched(t *testing.T, vc string, before map[string]int) {
	t.Helper()
	now := s.watch.Processes()
	var of []v1.VM
	// A leader that has just been elected says "unknown" until the hosts have reported to it.
	eventually(t, time.Minute, "the VMs of "+vc+" are said to run as before", func(ctx context.Context) error {
		vms, err := ask(ctx, s.hosts, func(ctx context.Context, c *client.Client) ([]v1.VM, error) { return c.VMs(ctx, vc, "") })
		if err != nil {
			return err
		}
		for _, vm := range vms {
			if vm.Generation != 1 || vm.State != "running" {
				return errors.New(describe([]v1.VM{vm}))
			}
		}
		of = vms
		return nil
	})
	n := 0
	for _, vm := range of {
		if pid, ran := before[vm.Domain]; ran {
			n++
			if now[vm.Domain] != pid {
				t.Errorf("%s was process %d, is %d", vm.Name, pid, now[vm.Domain])
			}
		}
	}
	if n == 0 {
		t.Errorf("no VM of %s ran before: %v", vc, before)
	}
}

// The leader's process stands still for a minute and goes on while others renew their leases with its successor.
func leaderPaused(t *testing.T, s *site, tab *table) {
	old := s.leader(t)
	// None of the restartable VMs on its own host: its watchdog would turn it off, which is another test.
	steady := filled(2)
	steady.Groups[0].Affinity.Avoid = []string{"host:" + old.Name}
	s.create(t, steady, nil)
	s.create(t, spec("own", 1, "keep", old), old)
	before := s.watch.Processes()
	l := startLoad(t, s, 5)
	l.awaitAcks(t, 30*time.Second, 20)
	at := time.Now()
	if err := old.Vcd().Pause(); err != nil {
		t.Fatal(err)
	}
	l.awaitAcks(t, 30*time.Second, 20)
	gap := l.gap(at)
	next := s.leader(t)
	if next == old {
		t.Fatalf("%s leads while it stands still", old.Name)
	}
	for until := at.Add(time.Minute); time.Now().Before(until); {
		s.untouched(t, "steady", before)
		time.Sleep(5 * time.Second) // sleep: it is to stand still for a minute
	}
	acked := l.acked()
	if err := old.Vcd().Resume(); err != nil {
		t.Fatal(err)
	}
	woken := time.Now()
	// From now on it answers as the new leader does, or that it does not know.
	asked, answered := 0, 0
	for time.Since(woken) < 5*time.Second {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		st, err := old.API.Status(ctx)
		cancel()
		asked++
		if err == nil {
			answered++
			if st.Leader == old.Name {
				t.Errorf("%s says that it leads, %.2f s after it was woken", old.Name, time.Since(woken).Seconds())
			}
		}
		time.Sleep(10 * time.Millisecond) // sleep: as often as that
	}
	l.awaitAcks(t, 30*time.Second, 20)
	l.end(t)
	eventually(t, time.Minute, "the cluster is healthy", s.healthy)
	l.check(t, s.hosts)
	s.untouched(t, "steady", before)
	s.untouched(t, "own", before)
	tab.add("leader paused for a minute (SIGSTOP), woken under renewals", "longest gap of writes %.2f s; %d writes acknowledged meanwhile, 0 lost; %d of %d reads through it answered, none as leader; no VM touched",
		gap.Seconds(), acked, answered, asked)
}

// The disk of a server is full, then that of a second one, then there is room again.
func disksFull(t *testing.T, s *site, tab *table) {
	steady := filled(len(s.hosts))
	steady.OnHostLoss = "keep"
	s.create(t, steady, nil)
	before := s.watch.Processes()
	l := startLoad(t, s, 10)
	l.awaitAcks(t, 30*time.Second, 50)
	first := s.leader(t)
	at := time.Now()
	if err := first.FillDisk(); err != nil {
		t.Fatal(err)
	}
	var next *host
	eventually(t, time.Minute, "another server leads", func(ctx context.Context) error {
		st, err := ask(ctx, s.others(first), func(ctx context.Context, c *client.Client) (v1.ClusterStatus, error) { return c.Status(ctx) })
		if err == nil && st.Leader == first.Name {
			err = fmt.Errorf("%s leads", st.Leader)
		}
		next = s.host(st.Leader)
		return err
	})
	l.awaitAcks(t, 30*time.Second, 50)
	gap := l.gap(at)
	t.Logf("disk of %s full: longest gap of writes %.2f s, %s leads", first.Name, gap.Seconds(), next.Name)

	if err := next.FillDisk(); err != nil {
		t.Fatal(err)
	}
	at = time.Now()
	eventually(t, time.Minute, "no server takes a write", func(ctx context.Context) error {
		for _, h := range s.hosts {
			short, cancel := context.WithTimeout(ctx, 10*time.Second)
			_, err := h.API.Cordon(short, s.hosts[0].Name, "no server decides")
			cancel()
			if err == nil {
				return fmt.Errorf("%s took it", h.Name)
			}
			if !client.IsProblem(err, v1.ProblemNoLeader) {
				return fmt.Errorf("%s: %w", h.Name, err)
			}
		}
		return nil
	})
	// A file of a log that was longer has room on a full disk: writes that fit in there are on two disks, and may be acknowledged.
	eventually(t, time.Minute, "no write is acknowledged for 5 s", func(context.Context) error {
		stuck := time.Now()
		for time.Since(stuck) < 5*time.Second {
			time.Sleep(200 * time.Millisecond) // sleep: what must not happen has no event
			now := s.watch.Processes()
			for name, pid := range before {
				if now[name] != pid {
					t.Errorf("%s was process %d, is %d", name, pid, now[name])
				}
			}
		}
		if l.ackedSince(stuck) > 0 {
			return errors.New("writes are")
		}
		return nil
	})
	without := time.Since(at)
	freed := time.Now()
	for _, h := range []*host{next, first} {
		if err := h.FreeDisk(); err != nil {
			t.Fatal(err)
		}
	}
	l.awaitAcks(t, time.Minute, 1)
	again := time.Since(freed)
	must(t, s, func(ctx context.Context, c *client.Client) (v1.Host, error) { return c.Uncordon(ctx, s.hosts[0].Name) })
	eventually(t, time.Minute, "the cluster is healthy", s.healthy)
	l.awaitAcks(t, time.Minute, 20)
	l.end(t)
	l.check(t, s.hosts)
	s.untouched(t, "steady", before)
	tab.add("disk full on the leader, then on a second server", "gap %.2f s, another leads; then no writes for %.1f s, VMs run on; freed: writes after %.1f s; %d writes acknowledged, 0 lost",
		gap.Seconds(), without.Seconds(), again.Seconds(), len(l.acks))
}

// All members are restarted one by one, again and again, under load.
func rollingRestarts(t *testing.T, s *site, tab *table) {
	s.create(t, filled(len(s.hosts)), nil)
	before := s.watch.Processes()
	rounds := 2
	if long() {
		rounds = 20
	}
	l := startLoad(t, s, 20)
	l.awaitAcks(t, 30*time.Second, 100)
	at := time.Now()
	for range rounds {
		for _, h := range s.hosts {
			h.terminate(t)
			h.launch(t) // before anything else: the host's watchdog counts
			h.MendDaemon(t)
			eventually(t, time.Minute, "the cluster is healthy", s.healthy)
			l.awaitAcks(t, 30*time.Second, 10)
		}
	}
	took := time.Since(at)
	l.end(t)
	gap := l.gap(at)
	l.check(t, s.hosts)
	s.untouched(t, "steady", before)
	tab.add("rolling restarts under load of 20 clients", "%d of all members in %.0f s; %d writes acknowledged, %d refused for good; longest gap %.2f s; repeated: %s; no VM touched",
		rounds, took.Seconds(), len(l.acks), len(l.faults), gap.Seconds(), counts(l.again))
}
