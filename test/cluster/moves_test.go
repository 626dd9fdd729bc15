package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/test/lab"
)

// TestMoves moves VMs through a whole cluster: plans, permits, agents, libvirt and QEMU over TLS.
func TestMoves(t *testing.T) {
	lab.Real(t)
	qemu := os.Getenv("EVENKEEL_QEMU")
	if qemu == "" {
		t.Skip("QEMU before 8 crashes emulated guests that move while they run: set EVENKEEL_QEMU to an unpacked tree of a newer one")
	}
	s := newSiteOn(t, lab.Options{Hosts: 3, Shared: true, QEMU: qemu, TLS: true})
	if long() { // what is measured is theirs, not what else this machine does
		if err := s.lab.Precede(); err != nil {
			t.Fatal(err)
		}
	}
	mode, on := "off", true
	s.moves(t, v1.MovePatch{Mode: &mode, AutoConverge: &on, CopyStorage: &on})
	tab := &table{}
	for _, c := range []struct {
		name string
		long bool
		f    func(*testing.T, *site, *table)
	}{
		{"HistoriesMove", false, historiesMove},
		{"FaultsWhileMoving", false, faultsWhileMoving},
		{"SingleVMs", false, singleVMs},
		{"DisksMove", true, disksMove},
		{"DrainWhileAdmitting", true, drainWhileAdmitting},
		{"NeedTriples", true, needTriples},
		{"RestoredBeforeMoves", true, restoredBeforeMoves},
	} {
		if c.long && !long() {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			begun := time.Now()
			s.undrained(t)
			s.calm(t)
			bandwidth := v1.Size(16 << 20)
			s.moves(t, v1.MovePatch{Bandwidth: &bandwidth})
			c.f(t, s, tab)
			s.once(t)
			t.Logf("took %.1f s", time.Since(begun).Seconds())
		})
	}
	looks, gap := s.watch.Looks()
	t.Logf("processes were looked at %d times, at most %v apart; %d ran VMs\n%s", looks, gap, len(s.watch.History("", time.Time{})), tab)
}

// moves changes settings.
func (s *site) moves(t *testing.T, patch v1.MovePatch) {
	t.Helper()
	must(t, s, func(ctx context.Context, c *client.Client) (v1.ClusterSettings, error) {
		return c.SetSettings(ctx, v1.SettingsPatch{Moves: &patch})
	})
}

// loaded is spec with guests that compute, write to their memory, and write a line 20 times a second.
func loaded(name string, n int, where *host) v1.VirtualClusterSpec {
	vc := spec(name, n, "keep", where)
	vc.Groups[0].Boot.Cmdline = lab.Guest{}.Cmdline("ek.burn=1 ek.touch=8 ek.rate=2 ek.beat=50")
	return vc
}

// beats follows the heartbeat of a VM on all hosts.
func (s *site) beats(t *testing.T, vm v1.VM) *lab.Beats {
	t.Helper()
	logs := map[string]string{}
	for _, h := range s.hosts {
		logs[h.Name] = filepath.Join(h.State(), "libvirt", "console", vm.ID+".log")
	}
	b := lab.FollowBeats(logs)
	t.Cleanup(b.Close)
	return b
}

// beating waits until a VM has written a beat since then.
func beating(t *testing.T, b *lab.Beats, since time.Time) {
	t.Helper()
	eventually(t, time.Minute, "the guest beats", func(context.Context) error {
		if last, ok := b.Last(); !ok || last.At.Before(since) {
			return fmt.Errorf("last beat %+v", last)
		}
		return nil
	})
}

func (s *site) migrations(t *testing.T, after time.Time) []v1.Migration {
	t.Helper()
	all := must(t, s, func(ctx context.Context, c *client.Client) ([]v1.Migration, error) {
		return c.Migrations(ctx, "", "", "", 0)
	})
	return slices.DeleteFunc(all, func(m v1.Migration) bool { return m.OpenedAt.Before(after) })
}

// undrained makes all hosts eligible again.
func (s *site) undrained(t *testing.T) {
	t.Helper()
	for _, h := range s.hosts {
		eventually(t, 30*time.Second, h.Name+" takes VMs", func(ctx context.Context) error {
			now, err := ask(ctx, s.hosts, func(ctx context.Context, c *client.Client) (v1.Drain, error) { return c.HostDrain(ctx, h.Name) })
			if err != nil || now.State == "none" {
				return err
			}
			_, err = ask(ctx, s.hosts, func(ctx context.Context, c *client.Client) (v1.Host, error) { return c.Undrain(ctx, h.Name) })
			return err
		})
	}
}

// drained waits for the end of a drain, whatever its result.
func (s *site) drained(t *testing.T, h *host, within time.Duration) v1.Drain {
	t.Helper()
	var d v1.Drain
	eventually(t, within, "the drain of "+h.Name+" ends", func(ctx context.Context) (err error) {
		d, err = ask(ctx, s.hosts, func(ctx context.Context, c *client.Client) (v1.Drain, error) { return c.HostDrain(ctx, h.Name) })
		if err == nil && !d.Ended() {
			err = fmt.Errorf("%s: %s", d.State, d.Text)
		}
		return err
	})
	return d
}

// faults that strike a move, and how each is undone.
var faults = []struct {
	name   string
	strike func(t *testing.T, s *site, m v1.Migration) (undo func())
}{
	{"target's libvirtd killed", func(t *testing.T, s *site, m v1.Migration) func() {
		to := s.host(m.To)
		if err := to.KillDaemon(); err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := to.StartDaemon(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}},
	{"target's cable pulled", func(t *testing.T, s *site, m v1.Migration) func() {
		to := s.host(m.To)
		if err := to.CutCable(true); err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := to.CutCable(false); err != nil {
				t.Fatal(err)
			}
		}
	}},
	{"source's agent killed", func(t *testing.T, s *site, m v1.Migration) func() { return killed(t, s.host(m.From)) }},
	{"leader killed", func(t *testing.T, s *site, m v1.Migration) func() { return killed(t, s.leader(t)) }},
}

func killed(t *testing.T, h *host) func() {
	if err := h.Vcd().Kill(); err != nil {
		t.Fatal(err)
	}
	return func() { h.launch(t) }
}

// faultsWhileMoving strikes each move at a random moment. The VM must go on, in one place, and the move must show its outcome.
func faultsWhileMoving(t *testing.T, s *site, tab *table) {
	rounds := 4
	if long() {
		rounds = 30
	}
	slow := v1.Size(8 << 20) // a move takes some 10 s
	s.moves(t, v1.MovePatch{Bandwidth: &slow})
	s.create(t, loaded("struck", 1, s.hosts[0]), nil)
	vm := must(t, s, func(ctx context.Context, c *client.Client) (v1.VM, error) { return c.VM(ctx, "struck-g-0") })
	b := s.beats(t, vm)
	beating(t, b, time.Now())
	born := vm.Generation
	ends := map[string]int{}
	var bytes v1.Size
	var worst time.Duration
	for n := range rounds {
		fault := faults[n%len(faults)]
		vm = must(t, s, func(ctx context.Context, c *client.Client) (v1.VM, error) { return c.VM(ctx, "struck-g-0") })
		from := s.host(vm.Host)
		begun := time.Now()
		after := begun.Add(-time.Second)
		key := client.IdempotencyKey(fmt.Sprint("struck", n, begun.UnixNano()))
		must(t, s, func(ctx context.Context, c *client.Client) (v1.DrainResult, error) {
			return c.Drain(ctx, from.Name, v1.DrainRequest{Reason: "round " + fmt.Sprint(n)}, key)
		})
		var m v1.Migration
		eventually(t, time.Minute, "a migration begins", func(context.Context) error {
			all := s.migrations(t, after)
			if len(all) == 0 {
				return errors.New("none yet")
			}
			m = all[0]
			return nil
		})
		wait := rand.N(9 * time.Second)
		time.Sleep(wait) // sleep: to a random moment of the move
		struck := time.Now()
		undo := fault.strike(t, s, m)
		time.Sleep(2 * time.Second) // sleep: the fault lasts
		undo()
		d := s.drained(t, from, 3*time.Minute)
		quietAt := time.Now()
		beating(t, b, quietAt)
		eventually(t, time.Minute, "the VM runs once, where the cluster says", func(ctx context.Context) error {
			if of := s.watch.Now(); len(of) != 1 {
				return fmt.Errorf("processes %v", of)
			}
			return s.run(ctx, "struck", 1)
		})
		gap := b.Gap(struck, time.Now())
		worst = max(worst, gap)
		var reported []string
		for _, m := range s.migrations(t, after) {
			ends[fault.name+": "+m.State]++
			bytes += m.BytesMoved
			if m.State == "running" || m.State != "done" && m.Error == "" && m.Abort == "" {
				t.Errorf("round %d: a migration is %s and says nothing: %+v", n, m.State, m)
			}
			if m.BytesBudget != nil && m.BytesMoved > *m.BytesBudget {
				t.Errorf("round %d: %d bytes moved of at most %d", n, m.BytesMoved, *m.BytesBudget)
			}
			reported = append(reported, fmt.Sprintf("%s -> %s %s after %.1f s, %d bytes %s%s", m.From, m.To, m.State, m.EndedAt.Sub(m.OpenedAt).Seconds(), m.BytesMoved, m.Error, m.Abort))
		}
		if d.State != "drained" && d.Text == "" {
			t.Errorf("round %d: the drain is %s and says nothing", n, d.State)
		}
		t.Logf("round %d: %s %.1f s after the intent; %s; drain %s (%s); longest silence %.2f s", n, fault.name, wait.Seconds(), strings.Join(reported, "; "), d.State, d.Text, gap.Seconds())
		for _, wrong := range b.Wrongs() {
			t.Fatalf("round %d: %s", n, wrong)
		}
		eventually(t, time.Minute, "the cluster is healthy", s.healthyBut(from))
		s.undrained(t)
	}
	if vm = must(t, s, func(ctx context.Context, c *client.Client) (v1.VM, error) { return c.VM(ctx, "struck-g-0") }); vm.Generation != born {
		t.Errorf("generation %d was started, it is %d", born, vm.Generation)
	}
	tab.add(fmt.Sprintf("%d moves struck by a fault", rounds), "0 lost, 0 doubled; %v; %d MiB moved; longest silence of the guest %.2f s", counts(ends), bytes>>20, worst.Seconds())
}

// healthyBut is healthy, with a host that is drained.
func (s *site) healthyBut(h *host) func(context.Context) error {
	return func(ctx context.Context) error {
		st, err := ask(ctx, s.hosts, func(ctx context.Context, c *client.Client) (v1.ClusterStatus, error) { return c.Status(ctx) })
		if err != nil {
			return err
		}
		for _, m := range st.Members {
			if !m.Healthy || m.Lease != "held" {
				return fmt.Errorf("member %s: healthy %v (%s), lease %s", m.Name, m.Healthy, m.Trouble, m.Lease)
			}
		}
		return nil
	}
}

// disksMove drains a host with a VM on a shared pool, and one whose disk goes along.
func disksMove(t *testing.T, s *site, tab *table) {
	shared := loaded("onshared", 1, s.hosts[0])
	shared.Groups[0].Disk = &v1.Disk{Size: 16 << 20, Pool: "shared"}
	own := loaded("own", 1, s.hosts[0])
	own.Groups[0].Disk = &v1.Disk{Size: 16 << 20}
	s.create(t, shared, s.hosts[0])
	s.create(t, own, s.hosts[0])
	at := time.Now()
	must(t, s, func(ctx context.Context, c *client.Client) (v1.DrainResult, error) {
		return c.Drain(ctx, s.hosts[0].Name, v1.DrainRequest{}, client.IdempotencyKey(fmt.Sprint("disks", at.UnixNano())))
	})
	if d := s.drained(t, s.hosts[0], 3*time.Minute); d.State != "drained" {
		t.Fatalf("the drain ended as %s: %s", d.State, d.Text)
	}
	for _, vc := range []string{"onshared", "own"} {
		s.running(t, 30*time.Second, vc, 1)
	}
	for _, d := range s.disks(t) {
		if strings.HasPrefix(d, s.hosts[0].Name+"/") {
			t.Errorf("the drained host still has %s", d)
		}
	}
	for _, m := range s.migrations(t, at.Add(-time.Second)) {
		tab.add("a disk moved: "+m.VM, "%s -> %s, %s, %.1f MiB in %.1f s, downtime %d ms", m.From, m.To, m.State, float64(m.BytesMoved)/(1<<20), m.EndedAt.Sub(m.OpenedAt).Seconds(), m.DowntimeMs)
	}
}

// drainWhileAdmitting empties a host of 8 VMs while VCs come.
func drainWhileAdmitting(t *testing.T, s *site, tab *table) {
	h := s.hosts[0]
	vc := loaded("eight", 8, h)
	vc.Groups[0].CPU, vc.Groups[0].Memory = 0.1, 80<<20
	vc.Groups[0].Boot.Cmdline = lab.Guest{}.Cmdline("ek.touch=6 ek.rate=1 ek.beat=100")
	s.create(t, vc, h)
	var all []*lab.Beats
	for _, vm := range must(t, s, func(ctx context.Context, c *client.Client) ([]v1.VM, error) { return c.VMs(ctx, "eight", "") }) {
		all = append(all, s.beats(t, vm))
	}
	for _, b := range all {
		beating(t, b, time.Now())
	}
	at := time.Now()
	must(t, s, func(ctx context.Context, c *client.Client) (v1.DrainResult, error) {
		return c.Drain(ctx, h.Name, v1.DrainRequest{}, client.IdempotencyKey(fmt.Sprint("eight", at.UnixNano())))
	})
	admitted := 0
	for n := range 3 {
		s.create(t, spec(fmt.Sprintf("late%d", n), 1, "keep", h), nil)
		admitted++
	}
	d := s.drained(t, h, 6*time.Minute)
	took := time.Since(at)
	if d.State != "drained" {
		t.Fatalf("the drain ended as %s: %s", d.State, d.Text)
	}
	if e := must(t, s, func(ctx context.Context, c *client.Client) (v1.HostEmpty, error) { return c.HostEmpty(ctx, h.Name) }); !e.Empty {
		t.Errorf("drained, and not empty: %+v", e)
	}
	for _, i := range s.watch.Now() {
		if i.Host == h.Name {
			t.Errorf("drained, and there is %s", i)
		}
	}
	s.running(t, 30*time.Second, "eight", 8)
	var gap time.Duration
	for _, b := range all {
		beating(t, b, at.Add(took))
		gap = max(gap, b.Gap(at, time.Now()))
		for _, wrong := range b.Wrongs() {
			t.Error(wrong)
		}
	}
	bytes, states := v1.Size(0), map[string]int{}
	for _, m := range s.migrations(t, at.Add(-time.Second)) {
		bytes += m.BytesMoved
		states[m.State]++
	}
	tab.add("drain of a host with 8 VMs", "%.1f s, migrations %s, %d MiB; %d virtual clusters were admitted meanwhile, none on it; longest silence of a guest %.2f s",
		took.Seconds(), counts(states), bytes>>20, admitted, gap.Seconds())
}

// needTriples re-balances after one VC needs three times as much, within 30% of the memory in use.
func needTriples(t *testing.T, s *site, tab *table) {
	memory := int64(0)
	for n, h := range s.hosts {
		vc := spec(fmt.Sprintf("vc%d", n), 3, "keep", h)
		vc.Groups[0].CPU = 0.33
		s.create(t, vc, h)
		memory += 3 * int64(vc.Groups[0].Memory)
	}
	three := 0.99
	key := client.IdempotencyKey(fmt.Sprint("triple", time.Now().UnixNano()))
	must(t, s, func(ctx context.Context, c *client.Client) (v1.Result, error) {
		return c.Scale(ctx, "vc0", v1.ScaleRequest{Group: "g", CPU: &three}, key)
	})
	s.running(t, 30*time.Second, "vc0", 3)
	lowest := func(ctx context.Context) (float64, error) {
		vcs, err := ask(ctx, s.hosts, func(ctx context.Context, c *client.Client) ([]v1.VirtualCluster, error) {
			return c.VirtualClusters(ctx)
		})
		out := 1.0
		for _, vc := range vcs {
			out = min(out, vc.Yield)
		}
		return out, err
	}
	before, err := lowest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	budget := v1.Size(float64(memory) * 0.3)
	at := time.Now()
	key = client.IdempotencyKey(fmt.Sprint("rebalance", at.UnixNano()))
	r := must(t, s, func(ctx context.Context, c *client.Client) (v1.PlanResult, error) {
		return c.Rebalance(ctx, v1.RebalanceRequest{MaxBytes: ptr(v1.Bound(budget))}, key)
	})
	if len(r.Plan.Moves) == 0 {
		t.Fatalf("no move: %s", r.Plan.Reason)
	}
	var p v1.Plan
	eventually(t, 5*time.Minute, "the plan ends", func(ctx context.Context) (err error) {
		p, err = ask(ctx, s.hosts, func(ctx context.Context, c *client.Client) (v1.Plan, error) { return c.Plan(ctx, r.Plan.ID) })
		if err == nil && !p.Ended() {
			err = fmt.Errorf("%s: %+v", p.State, p.Moves)
		}
		return err
	})
	took := time.Since(at)
	if p.State != "done" || p.BytesMoved > budget || p.BytesMoved == 0 {
		t.Errorf("the plan is %s (%s), moved %d bytes of at most %d", p.State, p.Reason, p.BytesMoved, budget)
	}
	var after float64
	eventually(t, time.Minute, "the least yield is as predicted", func(ctx context.Context) error {
		now, err := lowest(ctx)
		if after = now; err == nil && (now < r.Plan.MinYieldAfter*0.98 || now > r.Plan.MinYieldAfter*1.02) {
			err = fmt.Errorf("%.4f, predicted %.4f", now, r.Plan.MinYieldAfter)
		}
		return err
	})
	for n := range s.hosts {
		s.running(t, 30*time.Second, fmt.Sprintf("vc%d", n), 3)
	}
	tab.add("one virtual cluster needs three times as much", "least yield %.4f, predicted %.4f, reached %.4f; %d moves, %.1f MiB measured, %.1f predicted, %.1f allowed; %.1f s",
		before, r.Plan.MinYieldAfter, after, len(p.Moves), float64(p.BytesMoved)/(1<<20), float64(p.Bytes)/(1<<20), float64(budget)/(1<<20), took.Seconds())
}

func ptr[T any](v T) *T { return &v }
