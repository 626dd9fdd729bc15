package state_test

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"evenkeel/cluster/state"
)

var update = flag.Bool("update", false, "write testdata/log-v1.jsonl and its golden state anew: only before version 1 of the format is released")

// A log of version 1 gives the state that it gave when it was written. Its files stay for ever:
// a later version of the format gets a log of its own beside them.
func TestLogOfVersion1(t *testing.T) {
	const log, golden = "testdata/log-v1.jsonl", "testdata/state-v1.golden"
	if *update {
		k := logOfVersion1(t)
		write(t, log, append(bytes.Join(k.log, []byte("\n")), '\n'))
		write(t, golden, []byte(save(t, k.Snapshot())))
	}
	entries, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	s := state.New()
	kinds := map[state.Kind]bool{}
	for i, entry := range bytes.Split(bytes.TrimSpace(entries), []byte("\n")) {
		cmd, _, err := state.Decode(entry)
		if err != nil {
			t.Fatalf("entry %d: %v", i+1, err)
		}
		kinds[cmd.Kind] = true
		_ = s.Apply(uint64(i)+1, entry) // a refusal is an outcome that must stay, too
	}
	if diff := cmp.Diff(string(want), save(t, s.Snapshot())); diff != "" {
		t.Errorf("state differs (-want +got):\n%s", diff)
	}
	for _, kind := range []state.Kind{state.KindInit, state.KindHostReport, state.KindHostCordon, state.KindPlan, state.KindVMReport, state.KindImagePut, state.KindImageDrop} {
		if !kinds[kind] {
			t.Errorf("the log has no %s", kind)
		}
	}
	other := state.New()
	if err := other.Restore(bytes.NewReader(want)); err != nil {
		t.Errorf("the saved state of version 1 cannot be restored: %v", err)
	}
}

func write(t *testing.T, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// logOfVersion1 is a log with every kind of command and every field of each.
func logOfVersion1(t *testing.T) *cluster {
	k := small(t, 3)
	r := hostReport("h3", 8, 16*gib)
	r.Foreign, r.ForeignVMs, r.KVM = state.Resources{CPU: 1.5, Memory: 2 * gib}, 2, true
	k.must(t, state.KindHostReport, r)
	k.must(t, state.KindImagePut, state.Image{Name: "initrd", Kind: state.InitrdImage, File: "/images/initrd", Size: 1 << 20})
	k.must(t, state.KindImagePut, state.Image{Name: "linux", Kind: state.KernelImage, File: "/images/linux", Initrd: "initrd", Cmdline: "quiet"})
	k.must(t, state.KindImagePut, state.Image{Name: "debian", Kind: state.DiskImage, File: "/images/debian.qcow2", Size: gib})
	k.must(t, state.KindImagePut, state.Image{Name: "unused", Kind: state.DiskImage, File: "/images/unused"})
	k.must(t, state.KindImageDrop, state.ImageDrop{Name: "unused"})
	if err := k.apply(t, state.KindImageDrop, state.ImageDrop{Name: "initrd"}); err == nil {
		t.Fatal("dropped an image in use")
	}

	full := planOf(k.Snapshot(), "full", 1.25, gib, "h1", "h3")
	full.VC.OnFull, full.VC.OnHostLoss, full.VC.Needs, full.VC.Priority = state.Queue, "keep", "declared", 3
	g := &full.VC.Groups[0]
	g.VCPUs, g.MemoryMin, g.Role, g.Network, g.Labels = 2, gib/2, "core", "default", map[string]string{"app": "render", "a": "b"}
	g.Image, g.Boot = "", state.Boot{Kernel: "linux", Initrd: "initrd", Cmdline: "console=ttyS0"}
	g.Disk = state.Disk{Size: 10 * gib, Pool: "default", Ephemeral: true}
	g.CloudInit = state.CloudInit{UserData: "#cloud-config\n", MetaData: "{}", NetworkConfig: "version: 2\n"}
	full.VC.Decision = state.Decision{At: start, Admitted: true, Summary: "fits", MinYield: 0.8, UpperBound: 0.9, Basis: full.Basis}
	full.Remembered = &state.Remembered{Key: "key", Fingerprint: "f00d", Operation: "op-full"}
	full.Text = "created"
	k.must(t, state.KindPlan, full)

	waits := planOf(k.Snapshot(), "waits", 64, gib)
	waits.VC.Admitted, waits.VC.QueuedAt, waits.Verb, waits.Allocations = false, start, "queued", nil
	waits.VC.Decision = state.Decision{At: start, Summary: "too big", Advice: []string{"ask for less"}, Hosts: []state.HostReason{
		{Host: "h1", CPUMissing: 60, MemoryMissing: 5, Cordoned: true, Text: "60 cores short"}}}
	k.must(t, state.KindPlan, waits)

	k.must(t, state.KindVMReport, report("h1", "vm-full-0", 1, state.Running))
	k.must(t, state.KindVMReport, report("h3", "vm-full-1", 1, state.Failed))
	k.must(t, state.KindHostCordon, state.HostCordon{Host: "h2", Cordoned: true, Reason: "fan"})
	if err := k.apply(t, state.KindPlan, planOf(k.Snapshot(), "refused", 1, gib, "h2")); err == nil {
		t.Fatal("placed on a cordoned host")
	}
	k.must(t, state.KindPlan, state.Plan{Basis: k.Snapshot().Index(), Verb: "reallocated", Touched: []string{"h1"},
		Allocations: []state.Allocation{{VC: "vc-full", Group: "g", CPU: 1.0 / 3}}})
	held := report("h1", "vm-full-0", 1, state.Running)
	held.VMs[0].Held = 3 * gib / 2
	k.must(t, state.KindVMReport, held)

	k.must(t, state.KindPlan, planOf(k.Snapshot(), "short", 1, gib, "h3"))
	k.must(t, state.KindVMReport, report("h3", "vm-short-0", 1, state.Running))
	k.must(t, state.KindPlan, leave(k.Snapshot(), "short", state.GoalDelete))
	gone := report("h3", "vm-short-0", 1, state.Stopped)
	gone.VMs[0].Gone = true
	k.must(t, state.KindVMReport, gone)
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "leaving", 0.5, gib, "h1"))
	k.must(t, state.KindPlan, leave(k.Snapshot(), "leaving", state.GoalStop))
	k.must(t, state.KindHostReport, hostReport("h1", 3, 6*gib))
	k.must(t, state.KindHostCordon, state.HostCordon{Host: "h2"})
	return k
}
