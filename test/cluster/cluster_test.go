package cluster

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sort"
	"strings"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/test/patience"
)

// table of the figures of all scenarios.
type table struct{ rows [][2]string }

func (tab *table) add(what, format string, args ...any) {
	tab.rows = append(tab.rows, [2]string{what, fmt.Sprintf(format, args...)})
}

func (tab *table) String() string {
	var b strings.Builder
	for _, r := range tab.rows {
		fmt.Fprintf(&b, "%-58s %s\n", r[0], r[1])
	}
	return b.String()
}

// long says whether to run the tests that take long, too.
func long() bool { return os.Getenv("EVENKEEL_LONG") == "1" }

// within checks a time that we promise for a machine without other work. The long tests check exactly that time. The others run
// on any machine, beside other programs: they fail at twice the time or, where the machine is overloaded (four runnable tasks a
// core), at four times, and print when it took longer than is promised.
func within(t *testing.T, what string, took, promised time.Duration) {
	t.Helper()
	limit := promised
	if busy := runnable(t) / float64(runtime.NumCPU()); !long() {
		limit = 2 * promised
		if busy > 4 {
			limit = 4 * promised
		}
		if took > promised {
			t.Logf("LATE: %s for %.2f s, %v are promised; this machine has %.1f runnable tasks a core", what, took.Seconds(), promised, busy)
		}
	}
	if took > limit {
		t.Errorf("%s for %.2f s, %v are promised", what, took.Seconds(), promised)
	}
}

// runnable says the load of the machine over the last minute: tasks that run or wait for a CPU.
func runnable(t *testing.T) (tasks float64) {
	t.Helper()
	text, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		_, err = fmt.Sscan(string(text), &tasks)
	}
	if err != nil {
		t.Error(err)
	}
	return tasks
}

// TestCluster runs all scenarios on one cluster, each from a healthy one without VCs on.
func TestCluster(t *testing.T) {
	begun := time.Now()
	s := newSite(t)
	tab := &table{}
	tab.add("three hosts made a cluster", "%.1f s with building the programs", time.Since(begun).Seconds())
	for _, c := range []struct {
		name string
		long bool
		f    func(*testing.T, *site, *table)
	}{
		{"DisksFull", false, disksFull}, // first: a log that was long has room in its file after it was cut, and takes writes on a full disk
		{"LeaderKilled", false, leaderKilled},
		{"CablePulled", false, cablePulled},
		{"HostLosesPower", false, hostLosesPower},
		{"AllLosePower", false, allLosePower},
		{"RollingRestarts", false, rollingRestarts},
		{"StrangersRefused", false, strangersRefused},
		{"LogDamaged", false, logDamaged},
		{"KeysMissing", false, keysMissing},
		{"StrangersReported", false, strangersReported},
		{"SnapshotRestored", true, snapshotRestored},
		{"Fenced", true, fenced},
		{"AgentHangs", true, agentHangs},
		{"AgentHangsUnguarded", true, agentHangsUnguarded},
		{"LeaderPaused", true, leaderPaused},
	} {
		if c.long && !long() {
			continue
		}
		ok := t.Run(c.name, func(t *testing.T) {
			begun := time.Now()
			defer func() {
				if t.Failed() { // now: the scenarios to come add to the logs, or the time of all ends
					s.lab.ShowLogs(t)
				}
			}()
			s.calm(t)
			c.f(t, s, tab)
			s.once(t)
			t.Logf("took %.1f s", time.Since(begun).Seconds())
		})
		if !ok && t.Context().Err() != nil {
			break
		}
	}
	s.once(t)
	looks, gap := s.watch.Looks()
	t.Logf("processes were looked at %d times, at most %v apart; %d ran VMs\n%s", looks, gap, len(s.watch.History("", time.Time{})), tab)
}

// kill -9 of the leader while 20 clients write: nothing acknowledged is lost, and writes go on in time.
func leaderKilled(t *testing.T, s *site, tab *table) {
	s.create(t, filled(len(s.hosts)), nil)
	before := s.watch.Processes()
	l := startLoad(t, s, 20)
	l.awaitAcks(t, 30*time.Second, 100)
	var worst time.Duration
	const kills = 3
	for range kills {
		leads := s.leader(t)
		at, acked := time.Now(), l.acked()
		if err := leads.Vcd().Kill(); err != nil {
			t.Fatal(err)
		}
		// Without it for longer than is promised, but not until the host's watchdog turns it off: its init would start vcd again before.
		const without = 50 // writes
		_ = patience.Until(t.Context(), 5*time.Second, "writes go on", nil, func() bool { return l.acked() >= acked+without })
		leads.boot(t)
		l.awaitAcks(t, 30*time.Second, max(0, acked+without-l.acked()))
		gap := l.gap(at)
		worst = max(worst, gap)
		t.Logf("%s killed; the longest gap of writes was %.2f s, now %s leads", leads.Name, gap.Seconds(), s.leader(t).Name)
		eventually(t, 30*time.Second, "the cluster is healthy", s.healthy)
		l.awaitAcks(t, 30*time.Second, 20)
	}
	l.end(t)
	l.check(t, s.hosts)
	s.untouched(t, "steady", before)
	within(t, "no write was acknowledged", worst, 3*time.Second)
	tab.add("leader killed (kill -9), 20 clients write", "%d times; longest gap of writes %.2f s; %d writes acknowledged, 0 lost; repeated: %s", kills, worst.Seconds(), len(l.acks), counts(l.again))
}

func counts(of map[string]int) string {
	var out []string
	for k, n := range of {
		out = append(out, fmt.Sprintf("%s %d", k, n))
	}
	sort.Strings(out)
	return "[" + strings.Join(out, ", ") + "]"
}

// moved follows VMs of a host that was lost at that time, until they all run elsewhere. It returns when the
// last one had ended there, when the first began elsewhere, and when the last ran.
func (s *site) moved(t *testing.T, vc string, from *host, n int, within time.Duration, at time.Time) (gone, began, run time.Duration) {
	t.Helper()
	eventually(t, within, "all VMs run elsewhere", func(ctx context.Context) error {
		for task := range n {
			if i, runs := s.watch.Of(s.domain(fmt.Sprintf("%s-g-%d", vc, task))); runs && i.Host == from.Name {
				return fmt.Errorf("%s", i)
			}
		}
		vms, err := ask(ctx, s.others(from), func(ctx context.Context, c *client.Client) ([]v1.VM, error) { return c.VMs(ctx, vc, "") })
		if err != nil {
			return err
		}
		ready := 0
		for _, vm := range vms {
			if i, ok := s.watch.Of(vm.Domain); ok && vm.State == "running" && vm.Host != from.Name && i.Host == vm.Host && vm.Generation == 2 {
				ready++
			}
		}
		if ready < n {
			return fmt.Errorf("%d of %d: %s", ready, n, describe(vms))
		}
		return nil
	})
	run = time.Since(at)
	began = time.Hour
	for task := range n {
		h := s.watch.History(s.domain(fmt.Sprintf("%s-g-%d", vc, task)), at)
		if len(h) != 2 || h[0].Host != from.Name || h[1].Host == from.Name || h[0].Gone.IsZero() {
			t.Errorf("VM %d of %s had the processes %v", task, vc, h)
			continue
		}
		if !h[0].Seen.Before(h[1].Started) {
			t.Errorf("%s was there until %s, %s began at %s", h[0], h[0].Seen, h[1], h[1].Started)
		}
		t.Logf("%s: on %s until %.2f to %.2f s after the loss; on %s from %.2f s on", h[0].Domain, h[0].Host, h[0].Seen.Sub(at).Seconds(), h[0].Gone.Sub(at).Seconds(),
			h[1].Host, h[1].Started.Sub(at).Seconds())
		gone = max(gone, h[0].Gone.Sub(at))
		began = min(began, h[1].Started.Sub(at))
	}
	return gone, began, run
}

func describe(vms []v1.VM) string {
	var out []string
	for _, vm := range vms {
		out = append(out, fmt.Sprintf("%s %s on %s, generation %d (%s)", vm.Name, vm.State, vm.Host, vm.Generation, vm.Reason))
	}
	return strings.Join(out, "; ")
}

// The network cable of a host is pulled: its restartable VMs are stopped there and started elsewhere.
// When it is plugged in again, they run only there. The host is the leader's, which costs an election
// as well.
func cablePulled(t *testing.T, s *site, tab *table) {
	lost := s.leader(t)
	s.create(t, spec("move", 2, "restart", lost), lost)
	s.create(t, spec("stay", 1, "keep", lost), lost)
	stay, _ := s.watch.Of(s.domain("stay-g-0"))
	at := time.Now()
	if err := lost.CutCable(true); err != nil {
		t.Fatal(err)
	}
	gone, began, run := s.moved(t, "move", lost, 2, 90*time.Second, at)
	within(t, "not all ran again", run, time.Minute)
	if err := lost.CutCable(false); err != nil {
		t.Fatal(err)
	}
	plugged := time.Now()
	after := s.watch.Processes()
	eventually(t, time.Minute, "the cluster is healthy", s.healthy)
	back := time.Since(plugged)
	s.running(t, 10*time.Second, "move", 2)
	s.running(t, 10*time.Second, "stay", 1)
	for name, pid := range s.watch.Processes() {
		if after[name] != pid {
			t.Errorf("%s was process %d before the cable was plugged in again, is %d", name, after[name], pid)
		}
	}
	if i, _ := s.watch.Of(s.domain("stay-g-0")); i.PID != stay.PID {
		t.Errorf("the VM that is kept was %s, is %s", stay, i)
	}
	tab.add("leader's network pulled, 2 restartable VMs", "stopped after %.1f s, first elsewhere after %.1f s, all run after %.1f s; plugged in: healthy after %.1f s, no second copy",
		gone.Seconds(), began.Seconds(), run.Seconds(), back.Seconds())
}

// A host loses its power: restartable VMs start elsewhere, the others again on it when it is back.
func hostLosesPower(t *testing.T, s *site, tab *table) {
	lost := s.others(s.leader(t))[0]
	s.create(t, spec("move", 2, "restart", lost), lost)
	disk := spec("stay", 1, "keep", lost)
	disk.Groups[0].Disk = &v1.Disk{Size: 8 << 20}
	s.create(t, disk, lost)
	at := time.Now()
	if err := lost.PowerOff(); err != nil {
		t.Fatal(err)
	}
	_, began, run := s.moved(t, "move", lost, 2, 90*time.Second, at)
	if n := len(s.watch.History(s.domain("stay-g-0"), at)); n != 0 {
		if i, runs := s.watch.Of(s.domain("stay-g-0")); runs {
			t.Errorf("the VM that is to be kept runs: %s", i)
		}
	}
	back := time.Now()
	lost.boot(t)
	eventually(t, time.Minute, "the VM that is kept runs again on its host", func(ctx context.Context) error {
		vms, err := s.vms(ctx, "stay")
		if err != nil {
			return err
		}
		if len(vms) != 1 || vms[0].Host != lost.Name || vms[0].Generation != 2 || vms[0].State != "running" {
			return fmt.Errorf("%s", describe(vms))
		}
		return s.run(ctx, "stay", 1)
	})
	again := time.Since(back)
	eventually(t, time.Minute, "the cluster is healthy", s.healthy)
	s.running(t, 10*time.Second, "move", 2)
	tab.add("a host loses its power, watchdog armed", "restartable VMs: first elsewhere after %.1f s, all run after %.1f s; the others run on it %.1f s after its power is back",
		began.Seconds(), run.Seconds(), again.Seconds())
}

// All hosts lose their power at once: the same VMs run on the same hosts again.
func allLosePower(t *testing.T, s *site, tab *table) {
	for n, h := range s.hosts {
		vc := spec(fmt.Sprintf("keep%d", n+1), 1, "keep", h)
		vc.Groups[0].Disk = &v1.Disk{Size: 8 << 20}
		s.create(t, vc, h)
		s.create(t, spec(fmt.Sprintf("move%d", n+1), 1, "restart", h), h)
	}
	before := map[string]v1.VM{}
	for _, vm := range must(t, s, func(ctx context.Context, c *client.Client) ([]v1.VM, error) { return c.VMs(ctx, "", "") }) {
		before[vm.Name] = vm
	}
	disks := s.disks(t)
	for _, h := range s.hosts {
		if err := h.PowerOff(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 5*time.Second, "nothing runs without power", func(context.Context) error {
		if all := s.watch.Now(); len(all) > 0 {
			return fmt.Errorf("%v", all)
		}
		return nil
	})
	at := time.Now()
	for _, h := range s.hosts {
		h.boot(t)
	}
	up := time.Since(at)
	mended := false
	eventually(t, 2*time.Minute, "everything runs as before", func(ctx context.Context) error {
		if time.Since(at) > 45*time.Second && !mended {
			mended = true
			for _, h := range s.hosts {
				h.MendDaemon(t)
			}
		}
		vms, err := s.vms(ctx, "")
		if err != nil {
			return err
		}
		if len(vms) != len(before) {
			return fmt.Errorf("%d VMs: %s", len(vms), describe(vms))
		}
		for _, vm := range vms {
			old := before[vm.Name]
			i, runs := s.watch.Of(vm.Domain)
			if vm.ID != old.ID || vm.Host != old.Host || vm.State != "running" || vm.Generation != old.Generation+1 || !runs || i.Host != vm.Host {
				return fmt.Errorf("%s on %s, process %v; before: generation %d on %s", describe([]v1.VM{vm}), vm.Host, i, old.Generation, old.Host)
			}
		}
		return nil
	})
	run := time.Since(at)
	eventually(t, time.Minute, "the cluster is healthy", s.healthy)
	if now := s.disks(t); fmt.Sprint(now) != fmt.Sprint(disks) {
		t.Errorf("disks were %v, are %v", disks, now)
	}
	tab.add("all hosts lose their power", "%d VMs run again on their hosts, generation + 1, %.1f s after the power is back (%.1f s of them the hosts' own start)", len(before), run.Seconds(), up.Seconds())
}
