package state_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"evenkeel/cluster/state"
)

var update = flag.Bool("update", false, "write the log of the newest version of the format and its golden state again: only before it is released")

// A log of an older version gives the state that it gave when it was written. Its files stay for ever:
// a later version of the format gets a log of its own beside them.
func TestLogsOfEveryVersion(t *testing.T) {
	for v := 1; v <= state.FormatVersion; v++ {
		t.Run(fmt.Sprint(v), func(t *testing.T) { logOfVersion(t, v) })
	}
}

func logOfVersion(t *testing.T, v int) {
	log, golden, outcomes := fmt.Sprintf("testdata/log-v%d.jsonl", v), fmt.Sprintf("testdata/state-v%d.golden", v), fmt.Sprintf("testdata/outcomes-v%d.txt", v)
	if *update && v == state.FormatVersion {
		k := newestLog(t)
		write(t, log, append(bytes.Join(k.log, []byte("\n")), '\n'))
		write(t, golden, []byte(save(t, k.Snapshot())))
		got, _ := replay(t, k.log)
		write(t, outcomes, []byte(got))
	}
	entries, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	reference, err := os.ReadFile(outcomes)
	if err != nil {
		t.Fatal(err)
	}
	got, s := replay(t, bytes.Split(bytes.TrimSpace(entries), []byte("\n")))
	if diff := cmp.Diff(strings.Split(string(reference), "\n"), strings.Split(got, "\n")); diff != "" { // a refusal is an outcome that must stay, too
		t.Errorf("outcomes differ (-want +got):\n%s", diff)
	}
	saved := state.New()
	if err := saved.Restore(bytes.NewReader(want)); err != nil {
		t.Fatalf("the saved state of version %d cannot be restored: %v", v, err)
	}
	if diff := cmp.Diff(save(t, saved.Snapshot()), save(t, s.Snapshot())); diff != "" {
		t.Errorf("state differs (-want +got):\n%s", diff)
	}
	for _, kind := range state.Kinds() {
		if v == state.FormatVersion && !strings.Contains(got, " "+string(kind)+" ok\n") && kind != state.KindRestore {
			t.Errorf("the log has no %s that is applied", kind)
		}
	}
}

// replay applies a log to an empty state, and says what became of each entry.
func replay(t *testing.T, log [][]byte) (outcomes string, s *state.Store) {
	s = state.New()
	var out strings.Builder
	for i, entry := range log {
		cmd, _, err := state.Decode(entry)
		if err != nil {
			t.Fatalf("entry %d: %v", i+1, err)
		}
		outcome := "ok"
		if err := s.Apply(uint64(i)+1, entry); err != nil {
			outcome = "refused"
			for _, known := range []error{state.ErrConflict, state.ErrNotFound, state.ErrInUse, state.ErrInvalid, state.ErrToken, state.ErrQuota, state.ErrSuspended} {
				if errors.Is(err, known) {
					outcome = known.Error()
				}
			}
		}
		fmt.Fprintf(&out, "%d %s %s\n", i+1, cmd.Kind, outcome)
	}
	return out.String(), s
}

func write(t *testing.T, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// newestLog is a log with every kind of command and every field of each.
func newestLog(t *testing.T) *cluster {
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
	k.must(t, state.KindPlan, state.Plan{Basis: k.Snapshot().Index(), Verb: "reallocated", AffectedHosts: []string{"h1"},
		Allocations: []state.Allocation{{VC: "vc-full", Group: "g", CPU: 1.0 / 3}}})
	frozen := report("h1", "vm-full-0", 1, state.Running)
	frozen.VMs[0].ChargedMemory = 3 * gib / 2
	k.must(t, state.KindVMReport, frozen)

	k.must(t, state.KindPlan, planOf(k.Snapshot(), "short", 1, gib, "h3"))
	k.must(t, state.KindVMReport, report("h3", "vm-short-0", 1, state.Running))
	k.must(t, state.KindPlan, leave(k.Snapshot(), "short", state.GoalDelete))
	gone := report("h3", "vm-short-0", 1, state.Stopped)
	gone.VMs[0].SourceLost = true
	k.must(t, state.KindVMReport, gone)
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "leaving", 0.5, gib, "h1"))
	k.must(t, state.KindPlan, leave(k.Snapshot(), "leaving", state.GoalStop))
	k.must(t, state.KindHostReport, hostReport("h1", 3, 6*gib))
	k.must(t, state.KindHostCordon, state.HostCordon{Host: "h2"})

	server := state.Member{Name: "h1", Server: true, Agent: true, Address: "10.0.0.1:7480", Gossip: "10.0.0.1:7481", Version: "1.0", Format: state.FormatVersion}
	k.must(t, state.KindMemberPut, server)
	k.must(t, state.KindCertificate, state.Certificate{Member: "h1", Serial: state.Serial{Number: "01", Until: start.Add(time.Hour)}})
	k.must(t, state.KindTokenPut, state.JoinToken{ID: "t1", Hash: "f00d", Agent: true, Until: start.Add(time.Hour), Comment: "for h2"})
	join := state.Join{Token: "t1", Hash: "f00d", Member: state.Member{Name: "h4", Agent: true, Address: "10.0.0.4:7480", Format: state.FormatVersion}}
	k.must(t, state.KindJoin, join)
	join.Member.Name = "h5"
	if err := k.apply(t, state.KindJoin, join); !errors.Is(err, state.ErrToken) {
		t.Fatalf("a token used twice: %v", err)
	}
	k.must(t, state.KindCertificate, state.Certificate{Member: "h4", Serial: state.Serial{Number: "04", Until: start.Add(time.Hour)}})
	k.must(t, state.KindMemberDrop, state.MemberDrop{Name: "h4"})
	withTokens(t, k)
	k.must(t, state.KindAudit, state.Audit{Kind: "refused", Object: "member", Name: "10.0.0.9:1234", Text: "wrong CA"})

	k.must(t, state.KindFencing, state.HostFencing{Host: "h3", Fencing: state.Fencing{Enforcing: true, Watchdog: 15_000}})
	again := planOf(k.Snapshot(), "again", 0.5, gib, "h3")
	again.VC.OnHostLoss = state.RestartOnLoss
	k.must(t, state.KindPlan, again)
	k.must(t, state.KindVMReport, report("h3", "vm-again-0", 1, state.Running))
	balance := k.opens("vm-again-0", "h2")
	balance.Text = "balance"
	k.must(t, state.KindMove, balance)
	move := func() uint64 { return k.migration("vm-again-0").Open }
	k.must(t, state.KindMove, state.Move{VM: "vm-again-0", Generation: 1, To: "h2", Text: "it stayed", Move: move()})
	k.must(t, state.KindMove, k.opens("vm-again-0", "h2"))
	k.must(t, state.KindVMReport, state.VMReport{Host: "h2", VMs: []state.VMStatus{{VM: "vm-again-0", Generation: 1, Move: move(), Room: true}}})
	k.must(t, state.KindVMReport, state.VMReport{Host: "h3", VMs: []state.VMStatus{{VM: "vm-again-0", Generation: 1, Move: move(), Permit: true}}})
	k.must(t, state.KindVMReport, state.VMReport{Host: "h3", VMs: []state.VMStatus{{VM: "vm-again-0", Generation: 1, Phase: state.Lost}}}) // of before the move
	k.must(t, state.KindHostLost, state.HostLost{Host: "h3", Proof: state.ProofLease, Text: "silent for 40s"})
	k.must(t, state.KindSetFencing, state.SetFencing{FencingDisabled: true, Reason: "switch is replaced"})
	if err := k.apply(t, state.KindHostLost, state.HostLost{Host: "h3", Proof: state.ProofLease}); err == nil {
		t.Fatal("a lease proves something while fencing is disabled")
	}
	k.must(t, state.KindSetFencing, state.SetFencing{})
	k.must(t, state.KindHostLost, state.HostLost{Host: "h2", Proof: state.ProofOperator, Text: "ann: it burnt", Basis: k.Snapshot().Index()})
	r.MigrateURI = "qemu+tls://10.0.0.3/system"
	k.must(t, state.KindHostReport, r)
	k.must(t, state.KindInventory, state.Inventory{Host: "h3"})
	withMoves(t, k)
	withRightsize(t, k)
	withHours(t, k)
	withHandover(t, k)
	withTenants(t, k)
	withVersions(t, k)
	withVMOrders(t, k)
	withBindings(t, k)
	withPeriodic(t, k)
	withEveryField(t, k)
	withRestore(t, k)
	return k
}

// withHandover moves a VM whose guest arrives paused: its target has room, an attempt fails, the next hands it over.
func withHandover(t *testing.T, k *cluster) {
	t.Helper()
	for _, name := range []string{"from", "to"} {
		k.must(t, state.KindHostReport, hostReport(name, 4, 8*gib))
	}
	k.must(t, state.KindFencing, state.HostFencing{Host: "from", Fencing: state.Fencing{Enforcing: true, Watchdog: 15_000, Lease: 30_000},
		Machine: state.Machine{ID: "machine", Boot: "first"}})
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "handed", 0.5, gib, "from"))
	vm := "vm-handed-0"
	k.must(t, state.KindVMReport, report("from", vm, 1, state.Running))
	report := func(host string, st state.VMStatus) {
		t.Helper()
		st.VM, st.Generation, st.Move = vm, 1, k.migration(vm).Open
		k.must(t, state.KindVMReport, state.VMReport{Host: host, VMs: []state.VMStatus{st}})
	}
	for _, arrives := range []bool{false, true} {
		k.must(t, state.KindMove, k.opens(vm, "to"))
		report("to", state.VMStatus{Room: true, Resumes: true})
		report("from", state.VMStatus{Permit: true})
		m := k.migration(vm)
		over := state.Move{VM: vm, Generation: 1, To: "to", Move: m.Open, Permit: m.Permit, Text: "the network was cut"}
		if arrives {
			over.Arrived, over.Permit, over.Text = true, 0, ""
			if err := k.apply(t, state.KindMove, over); !errors.Is(err, state.ErrConflict) {
				t.Fatalf("it arrived, and may run at its source: %v", err)
			}
			report("from", state.VMStatus{Phase: state.Lost, Left: true})
		}
		k.must(t, state.KindMove, over)
	}
}

// withTenants has a tenant with a quota, which refuses a VC, and one that is made and deleted.
func withTenants(t *testing.T, k *cluster) {
	t.Helper()
	k.must(t, state.KindTenantPut, state.TenantPut{Tenant: state.Tenant{Name: "film", DisplayName: "Film school", Labels: map[string]string{"floor": "2"},
		Quota: map[state.QuotaKey]state.Limit{state.QuotaVMs: 1, state.QuotaCPU: state.Unlimited}, Salt: "ab"}, By: "ann"})
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "film/shot", 0.25, gib, "h1"))
	if err := k.apply(t, state.KindPlan, planOf(k.Snapshot(), "film/second", 0.25, gib, "h1")); !errors.Is(err, state.ErrQuota) {
		t.Fatalf("beyond the quota: %v", err)
	}
	k.must(t, state.KindTenantPut, state.TenantPut{Tenant: state.Tenant{Name: "gone", Salt: "cd"}})
	k.must(t, state.KindTenantDrop, state.TenantDrop{Name: "gone", By: "ann"})
	of := token("film", state.RoleEditor)
	of.Tenant = "film"
	k.must(t, state.KindAdminToken, of)
}

// withVMOrders resets a VM, restarts it, and stops it alone.
func withVMOrders(t *testing.T, k *cluster) {
	t.Helper()
	k.must(t, state.KindHostReport, hostReport("alone", 4, 8*gib))
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "alone", 0.5, gib, "alone"))
	const vm = "vm-alone-0"
	k.must(t, state.KindVMReport, report("alone", vm, 1, state.Running))
	k.must(t, state.KindPlan, k.order(vm, "reset", func(vm *state.VM, _ state.Group) {
		vm.Order.Reset = state.Reset{ID: "op-reset", State: state.ResetAsked}
	}))
	step := state.VMReset{VM: vm, Generation: 1, ID: "op-reset", Host: "alone", Permit: true}
	k.must(t, state.KindVMReset, step)
	if err := k.apply(t, state.KindVMReset, step); !errors.Is(err, state.ErrConflict) {
		t.Fatalf("a second permit: %v", err)
	}
	step.Permit = false
	k.must(t, state.KindVMReset, step)
	k.must(t, state.KindPlan, k.order(vm, "restart", func(vm *state.VM, g state.Group) { *vm = vm.Restarting(g, "restarted by ann", false) }))
	k.must(t, state.KindVMReport, report("alone", vm, 1, state.Stopped))
	k.must(t, state.KindVMReport, report("alone", vm, 2, state.Running))
	k.must(t, state.KindPlan, k.order(vm, "restart", func(vm *state.VM, g state.Group) { *vm = vm.Restarting(g, "its VC was changed", true) }))
	k.must(t, state.KindVMReport, report("alone", vm, 2, state.Stopped))
	k.must(t, state.KindPlan, k.order(vm, "stop", func(vm *state.VM, g state.Group) { *vm = vm.StopAlone(g, "ann") }))
}

// withEveryField has a command of every kind with a value in every field: most of them are refused, but all of them are read.
func withEveryField(t *testing.T, k *cluster) {
	t.Helper()
	for _, kind := range state.Kinds() {
		body := state.Body(kind)
		fill(reflect.ValueOf(body).Elem())
		_ = k.apply(t, kind, body)
	}
}

// fill gives every field a value.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(start))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		of := reflect.New(v.Type().Elem()).Elem()
		fill(of)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("x").Convert(v.Type().Key()), of)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1)
	case reflect.Int, reflect.Int64, reflect.Int32:
		v.SetInt(1)
	case reflect.Uint8, reflect.Uint, reflect.Uint64, reflect.Uint32:
		v.SetUint(1)
	}
}
