package libvirt

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"evenkeel/hypervisor"
	"evenkeel/test/lab"
)

func TestBudget(t *testing.T) {
	const mib = 1 << 20
	start := time.Unix(0, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	type stats struct {
		bytes, remaining int64
		dirty            float64
		asked, received  int // ms
	}
	cases := []struct {
		name  string
		limit int64
		rate  float64
		stats []stats
		now   int
		want  bool
	}{
		{"no limit", 0, 0, nil, 1e6, false},
		{"nothing known, early", 10 * mib, mib, nil, 1000, false},
		{"nothing known for too long", 10 * mib, mib, nil, 10_000, true},
		{"half sent", 10 * mib, mib, []stats{{5 * mib, 100 * mib, 0, 5000, 5001}}, 5010, false},
		{"nearly all sent", 10 * mib, mib, []stats{{10*mib - 40_000, 100 * mib, 0, 9000, 9001}}, 9010, true},
		{"a stall would exceed it", 10 * mib, mib, []stats{{10*mib - 300_000, 100 * mib, 0, 9000, 9001}}, 9010, true},
		{"QEMU answers slowly: stop sooner", 10 * mib, mib, []stats{{8 * mib, 100 * mib, 0, 8000, 9000}}, 9000, true},
		{"old figures: stop sooner", 10 * mib, mib, []stats{{5 * mib, 100 * mib, 0, 5000, 5001}}, 10_000, true},
		{"what is left fits", 100 * mib, 1000 * mib, []stats{{50 * mib, 40 * mib, 0, 50, 51}}, 500, false},
		{"what is left fits, but for what is written again", 100 * mib, 1000 * mib, []stats{{50 * mib, 40 * mib, 100 * mib, 50, 51}}, 500, true},
		{"zeros before the transfer begins say nothing", 10 * mib, mib, []stats{{0, 0, 0, 9000, 9001}, {0, 0, 0, 19_000, 19_001}}, 19_010, false},
	}
	for _, c := range cases {
		b := &budget{limit: c.limit, rate: c.rate, at: start}
		for _, f := range c.stats {
			b.stats(progress{hypervisor.Moved{Bytes: f.bytes, Remaining: f.remaining, Dirty: f.dirty}, 1}, at(f.asked), at(f.received))
		}
		if got := b.exceeded(at(c.now)); got != c.want {
			t.Errorf("%s: exceeded is %v (bound %d of %d), want %v", c.name, got, b.bound(at(c.now)), c.limit, c.want)
		}
	}
}

// A move is never given a bandwidth at which its budget would be exceeded before the first figures come.
func TestBandwidth(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct{ bandwidth, limit, want int64 }{
		{0, 0, 0},
		{1250 * mib, 0, 1250},
		{1250 * mib, 280 * mib, 70},
		{24 * mib, 500 * mib, 24},
		{0, 280 * mib, 70},
		{0, 2 * mib, 1},
		{1000, 0, 1},
	} {
		for _, disk := range []bool{false, true} {
			m := hypervisor.Migration{Bandwidth: c.bandwidth, MaxBytes: c.limit, CopyStorage: disk}
			tr := &transfer{m: m}
			if got := tr.bandwidth(); got != c.want {
				t.Errorf("%+v: %d MiB/s, want %d", m, got, c.want)
			}
			start := time.Unix(0, 0)
			if b := tr.bill(tr.bandwidth(), start); b.exceeded(start.Add(2 * pollInterval)) {
				t.Errorf("%+v: exceeded before any figures", m)
			}
		}
	}
}

// A budget that the VM fits in does not stop its move; one that is too small does, also
// where no bandwidth was given.
func TestMigrateBudget(t *testing.T) {
	guest := lab.Real(t)
	qemu := os.Getenv("EVENKEEL_QEMU")
	if qemu == "" {
		t.Skip("QEMU before 8 crashes emulated guests that move while they run: set EVENKEEL_QEMU to an unpacked tree of a newer one")
	}
	l := lab.New(t, lab.Options{Hosts: 2, QEMU: qemu})
	here, there := connectTo(t, l.Host(1), guest), connectTo(t, l.Host(2), guest)
	s := here.spec("ek-01M7MOVE", "ek.burn=1")
	s.Title = "film/move-a-0"
	s.CPU = hypervisor.CPU{Cap: 0.5, Weight: 0.5}
	here.run(t, s)
	last := here.attach(t, s.VM).beat(t)
	const small = 8 << 20
	to := l.Host(2).MigrationURI()
	if moved, err := here.Migrate(t.Context(), s.VM, hypervisor.Migration{To: to, MaxBytes: small}); err == nil || moved.Bytes > small {
		t.Errorf("a budget of %d bytes: %+v, %v", small, moved, err)
	}
	t.Cleanup(func() { _ = there.Destroy(context.Background(), s.VM) })
	fits := 3 * s.Memory / 2
	var moved hypervisor.Moved
	var err error
	for range 5 { // a machine that stands still for seconds ends a move before its budget: what may have been sent meanwhile counts
		if moved, err = here.Migrate(t.Context(), s.VM, hypervisor.Migration{To: to, MaxBytes: fits}); err == nil || moved.Bytes > fits || !strings.Contains(err.Error(), "could follow") {
			break
		}
		t.Logf("%+v, %v", moved, err)
	}
	if err != nil || moved.Bytes < 32<<20 || moved.Bytes > fits {
		t.Fatalf("a budget that fits: %+v, %v", moved, err)
	}
	// Name and title go with the VM: the target takes its definition from the source.
	if title, err := exec.CommandContext(t.Context(), "virsh", "-q", "-c", l.Host(2).URI(), "desc", "--title", s.Name).CombinedOutput(); err != nil || strings.TrimSpace(string(title)) != s.Title {
		t.Errorf("at the target the domain %s has the title %q: %v", s.Name, title, err)
	}
	if beat := there.attach(t, s.VM).beat(t); beat["uptime_ms"] <= last["uptime_ms"] {
		t.Errorf("the guest's uptime went from %d to %d ms: it did not run on", last["uptime_ms"], beat["uptime_ms"])
	}
	if err := there.Destroy(t.Context(), s.VM); err != nil {
		t.Error(err)
	}
	t.Logf("%+v", moved)
}
