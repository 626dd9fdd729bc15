package libvirt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"evenkeel/hypervisor"
	"evenkeel/test/lab"
)

// pair is two lab hosts with TLS and a shared pool, whose libvirts this process reaches by their sockets.
func pair(t *testing.T) (here, there bench) {
	t.Helper()
	guest := lab.Real(t)
	if os.Getenv("EVENKEEL_QEMU") == "" {
		t.Skip("QEMU before 8 crashes emulated guests that move while they run: set EVENKEEL_QEMU to an unpacked tree of a newer one")
	}
	l := pairLab(t)
	here, there = connectTo(t, l.Host(1), guest), connectTo(t, l.Host(2), guest)
	t.Cleanup(func() { here.empty(t); there.empty(t) })
	// Both would have their state in the same place, and each its own file system.
	for _, h := range []bench{here, there} {
		if out, err := h.lab.Command(t.Context(), "mkdir", "-p", "/var/lib/libvirt/pool").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		h.Host.opts.StateDir = "/var/lib/libvirt"
	}
	here.peerURI = func(string) string { return l.Host(2).URI() }
	there.peerURI = func(string) string { return l.Host(1).URI() }
	return here, there
}

// files of a host's own pool.
func (b bench) files(t *testing.T) string {
	t.Helper()
	out, err := b.lab.Command(t.Context(), "ls", "/var/lib/libvirt/pool").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.Join(strings.Fields(string(out)), " ")
}

// io has qemu-io do something to the VM's disk, which must succeed.
func (b bench) io(t *testing.T, s hypervisor.Spec, what string) {
	t.Helper()
	out, err := b.lab.Command(t.Context(), "qemu-io", "-c", what, "/var/lib/libvirt/pool/"+diskName(s.VM)).CombinedOutput()
	if err != nil || strings.Contains(string(out), "failed") {
		t.Fatalf("qemu-io %s: %v: %s", what, err, out)
	}
}

// A disk in a pool that the operator declared shared, and one that is copied with the VM.
func TestMigrateDisks(t *testing.T) {
	here, there := pair(t)
	base := filepath.Join(filepath.Dir(here.guest.Kernel), "disk.qcow2")
	for _, c := range []struct {
		name string
		disk hypervisor.Disk
		seed bool
		fill bool
		how  hypervisor.Migration
	}{
		{"shared pool", hypervisor.Disk{Base: base, Pool: "shared"}, true, false, hypervisor.Migration{SharedDisk: true}},
		{"overlay that goes along", hypervisor.Disk{Base: base}, true, false, hypervisor.Migration{CopyStorage: true, MaxBytes: 300 << 20, Bandwidth: 16 << 20}},
		{"own disk that goes along", hypervisor.Disk{Size: 32 << 20}, false, true, hypervisor.Migration{CopyStorage: true, PostCopy: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := here.spec("ek-disk-a-0", "")
			s.Disk = c.disk
			if c.seed {
				s.CloudInit = hypervisor.CloudInit{MetaData: "instance-id: x\n"}
			}
			const filled = 12 << 20
			if c.fill { // what a guest may have written there
				if err := here.Define(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				here.io(t, s, fmt.Sprintf("write -P 90 16M %d", filled))
			}
			here.run(t, s)
			t.Cleanup(func() {
				_ = there.Destroy(context.Background(), s.VM)
				_ = there.Undefine(context.Background(), s)
			})
			last := here.attach(t, s.VM).beat(t)
			m := c.how
			m.To, m.Spec = there.lab.MigrationURI(), s
			if _, err := here.Migrate(t.Context(), s.VM, hypervisor.Migration{To: m.To}); err == nil || !strings.Contains(err.Error(), "nsafe") {
				t.Errorf("a move of a disk without a word on it: %v", err)
			}
			if m.CopyStorage {
				// What is sent of a disk counts, and QEMU sends some of it at once, whatever the bandwidth.
				for _, budget := range []int64{3 << 20, 30 << 20} {
					small := m
					small.Bandwidth, small.MaxBytes = 1<<20, budget
					if moved, err := here.Migrate(t.Context(), s.VM, small); err == nil || moved.Bytes > small.MaxBytes {
						t.Errorf("a budget of %d bytes: %+v, %v", small.MaxBytes, moved, err)
					}
				}
				if left := there.files(t); left != "" {
					t.Errorf("after a move that failed the target holds %s", left)
				}
			}
			moved, err := here.Migrate(t.Context(), s.VM, m)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%+v", moved)
			if beat := there.attach(t, s.VM).beat(t); beat["uptime_ms"] <= last["uptime_ms"] {
				t.Errorf("the guest's uptime went from %d to %d ms: it did not run on", last["uptime_ms"], beat["uptime_ms"])
			}
			if left := here.files(t); left != "" {
				t.Errorf("the source still holds %s", left)
			}
			if m.CopyStorage {
				if got := there.files(t); !strings.Contains(got, diskName(s.VM)) {
					t.Errorf("the target holds %s", got)
				}
			}
			if err := there.Destroy(t.Context(), s.VM); err != nil {
				t.Error(err)
			}
			if c.fill {
				there.io(t, s, fmt.Sprintf("read -P 90 16M %d", filled))
				if moved.Bytes < 64<<20+filled {
					t.Errorf("%d bytes were counted, of memory and %d of the disk", moved.Bytes, filled)
				}
			}
			if err := there.Undefine(t.Context(), s); err != nil {
				t.Error(err)
			}
		})
	}
}

// A guest that writes faster than can be sent: post-copy ends its move within the budget.
func TestMigratePostCopy(t *testing.T) {
	here, there := pair(t)
	s := here.spec("ek-post-a-0", "ek.touch=24 ek.rate=80")
	here.run(t, s)
	t.Cleanup(func() { _ = there.Destroy(context.Background(), s.VM) })
	console := here.attach(t, s.VM)
	first := console.beat(t)
	for updated := first["touched"]; updated < 24<<20>>12; {
		updated = console.beat(t)["touched"]
	}
	m := hypervisor.Migration{To: there.lab.MigrationURI(), Bandwidth: 24 << 20, MaxBytes: 500 << 20, PostCopy: true}
	seen := false
	m.Progress = func(p hypervisor.Moved) { seen = seen || p.PostCopy }
	moved, err := here.Migrate(t.Context(), s.VM, m)
	t.Logf("%+v", moved)
	if err != nil || moved.Bytes > 250<<20 || moved.Remaining != 0 {
		t.Fatalf("%+v, %v", moved, err)
	}
	if !moved.PostCopy {
		t.Skip("this machine sent faster than the guest wrote")
	}
	if !seen {
		t.Error("no figures between the hand-over and the end")
	}
	after := there.attach(t, s.VM)
	if beat := after.beat(t); beat["uptime_ms"] <= first["uptime_ms"] {
		t.Errorf("the guest's uptime went from %d to %d ms: it did not run on", first["uptime_ms"], beat["uptime_ms"])
	}
}

// What two equal hosts have agrees, and is what the lab gave them.
func TestPartner(t *testing.T) {
	b := realHost(t)
	p, err := b.Partner(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Machines) == 0 || !strings.HasPrefix(p.Machines[0], "pc-q35-") || p.QEMU == "" || p.Networks == nil || p.Pools == nil || p.CPUModel == "" {
		t.Errorf("%+v", p)
	}
	t.Logf("%+v", p)
}

// What a move that failed is charged with: all that may have been sent since the last figures, which are zeros at its very end.
func TestCharged(t *testing.T) {
	const mib = 1 << 20
	at := func(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }
	b := &budget{limit: 60 * mib, rate: 8 * mib, at: at(0)} // 0.8 MiB in a window
	if got := b.charged(at(400)); got != 4*mib {
		t.Errorf("before any figures: %d", got)
	}
	b.stats(progress{hypervisor.Moved{Bytes: 40 * mib, Remaining: 50 * mib}, 1}, at(5000), at(5001))
	if got := b.charged(at(5900)); got != 48*mib {
		t.Errorf("a second after the last figures: %d", got)
	}
	if got := b.charged(at(60_000)); got != 60*mib {
		t.Errorf("long after them, more than the budget: %d", got)
	}
	b.stats(progress{}, at(6000), at(6001))
	if got := b.charged(at(6050)); got < 40*mib {
		t.Errorf("after zeros: %d", got)
	}
}

func TestSwitchOver(t *testing.T) {
	const mib = 1 << 20
	begun := time.Unix(0, 0)
	at := func(s int) time.Time { return begun.Add(time.Duration(s) * time.Second) }
	for _, c := range []struct {
		name       string
		limit      int64
		bytes      int64
		left       int64
		pass       int
		now, until int // s; until 0 = no deadline
		want       bool
	}{
		{"first pass", 0, 50 * mib, 50 * mib, 1, 10, 0, false},
		{"may yet end by itself", 0, 100 * mib, 20 * mib, 2, 10, 0, false},
		{"does not end by itself", 0, 300 * mib, 20 * mib, 4, 10, 0, true},
		{"half of its time is up", 0, 100 * mib, 20 * mib, 2, 10, 19, true},
		{"less than half is", 0, 100 * mib, 20 * mib, 2, 10, 21, false},
		{"what is left does not fit", 110 * mib, 100 * mib, 20 * mib, 4, 10, 0, false},
		{"fits now, and would not later", 125 * mib, 100 * mib, 20 * mib, 2, 10, 0, true},
	} {
		b := &budget{limit: c.limit, rate: 100 * mib, at: begun}
		b.stats(progress{hypervisor.Moved{Bytes: c.bytes, Remaining: c.left, Dirty: 30 * mib}, c.pass}, at(c.now), at(c.now))
		deadline := time.Time{}
		if c.until > 0 {
			deadline = at(c.until)
		}
		if got := b.switchOver(at(c.now), begun, deadline); got != c.want {
			t.Errorf("%s: switch over is %v, want %v", c.name, got, c.want)
		}
	}
}

// A guest that arrives paused stands still until it is resumed, and its share can be set meanwhile.
func TestMigratePaused(t *testing.T) {
	here, there := pair(t)
	s := here.spec("ek-paused-a-0", "")
	here.run(t, s)
	t.Cleanup(func() { _ = there.Destroy(context.Background(), s.VM) })
	last := here.attach(t, s.VM).beat(t)
	moved, err := here.Migrate(t.Context(), s.VM, hypervisor.Migration{To: there.lab.MigrationURI(), Paused: true})
	if err != nil {
		t.Fatal(err)
	}
	is := func(want hypervisor.State) {
		t.Helper()
		vms, err := there.List(t.Context())
		if err != nil || len(vms) != 1 || vms[0].State != want || vms[0].Leftover || vms[0].Standing != (want == hypervisor.Paused) || vms[0].Identity != s.Identity {
			t.Fatalf("the target lists %+v, %v; want it %s", vms, err, want)
		}
	}
	is(hypervisor.Paused)
	if vms, err := here.List(t.Context()); err != nil || len(vms) != 0 {
		t.Errorf("the source lists %+v, %v", vms, err)
	}
	if err := there.SetCPU(t.Context(), s.VM, hypervisor.CPU{Cap: 0.5, Weight: 0.5}); err != nil {
		t.Error(err)
	}
	if _, err := there.Stats(t.Context()); err != nil {
		t.Error(err)
	}
	arrival, err := there.Arrival(t.Context(), s.VM)
	if err != nil || arrival.Bytes == 0 {
		t.Errorf("the target says of the migration %+v, %v", arrival, err)
	}
	for range 2 {
		begun := time.Now()
		if err := there.Resume(t.Context(), s.VM); err != nil {
			t.Fatal(err)
		}
		t.Logf("resumed in %s", time.Since(begun))
		is(hypervisor.Running)
	}
	t.Logf("%+v, by the target's count %+v", moved, arrival)
	if beat := there.attach(t, s.VM).beat(t); beat["uptime_ms"] <= last["uptime_ms"] {
		t.Errorf("the guest's uptime went from %d to %d ms: it did not run on", last["uptime_ms"], beat["uptime_ms"])
	}
	if err := there.Resume(t.Context(), "no-such"); !errors.Is(err, hypervisor.ErrNotFound) {
		t.Errorf("resume of a VM that is not there: %v", err)
	}
}
