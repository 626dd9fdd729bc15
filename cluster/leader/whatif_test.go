package leader_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/node"
	"evenkeel/cluster/state"
	"evenkeel/test/scratch"
)

// saved is a snapshot, as servers save it, of a cluster with two hosts of 4 cores and a VC of so many VMs of 1 core on the first.
func saved(t *testing.T, vms int) []byte {
	t.Helper()
	store := state.New()
	n, err := node.Open(node.Options{Dir: scratch.Dir(t), ID: "s1", State: store, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	if err := n.Lead(t.Context()); err != nil {
		t.Fatal(err)
	}
	put := func(kind state.Kind, body any) {
		t.Helper()
		entry, err := state.Encode(kind, time.Unix(1, 0), body)
		if err != nil {
			t.Fatal(err)
		}
		if _, outcome, err := n.Apply(t.Context(), entry); outcome != nil || err != nil {
			t.Fatalf("%s: %v, %v", kind, outcome, err)
		}
	}
	put(state.KindInit, state.Init{ID: "saved", Settings: state.DefaultSettings()})
	for _, h := range []string{"h1", "h2"} {
		put(state.KindHostReport, state.HostReport{Name: h, Capacity: state.Resources{CPU: 4, Memory: 8 << 30}, Allowance: state.Resources{CPU: 4, Memory: 8 << 30}})
	}
	x := state.VC{ID: "v", Name: "old", Goal: state.GoalRun, Admitted: true, OnFull: state.Queue, Groups: []state.Group{
		{Name: "g", Count: vms, CPU: 1, VCPUs: 1, Memory: 1 << 30, MemoryMin: 1 << 30, Allocation: min(1, 4/float64(vms))}}}
	p := state.Plan{Basis: store.Snapshot().Index(), Verb: "created", VC: &x}
	report := state.VMReport{Host: "h1"}
	for i := range vms {
		id := "v" + string(rune('a'+i))
		p.VMs = append(p.VMs, state.VM{ID: id, VC: "v", Group: "g", Task: i, Name: "old-g-" + id, Host: "h1", Generation: 1, Goal: state.GoalRun, Phase: state.Starting,
			VCPUs: 1, BootMemory: 1 << 30, ChargedMemory: 1 << 30})
		report.VMs = append(report.VMs, state.VMStatus{VM: id, Generation: 1, Phase: state.Running})
	}
	put(state.KindPlan, p)
	put(state.KindVMReport, report)
	var file bytes.Buffer
	if err := n.Save(t.Context(), &file); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// A saved state is asked in place of the present one, of which nothing counts then.
func TestSimulateOnASavedState(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 1), 1)
		file := saved(t, 6)
		r, err := c.Simulate(t.Context(), leader.SimulateRequest{Snapshot: file})
		if err != nil || r.MinYieldAfter != 1 || r.MinYieldBefore > 0.67 || len(r.Plan.Steps) < 2 || r.Plan.Steps[0].To != "h2" {
			t.Errorf("%+v, %v", r, err)
		}
		if r, err = c.Simulate(t.Context(), leader.SimulateRequest{Snapshot: file, RemoveHosts: []string{"h2"}}); err != nil || len(r.Plan.Steps) != 0 || len(r.Unplaced) != 0 || !strings.Contains(r.Plan.Reason, "no VM") {
			t.Errorf("without the empty one: %+v, %v", r, err)
		}
		if r, err = c.Simulate(t.Context(), leader.SimulateRequest{Snapshot: file, RemoveHosts: []string{"h1", "h2"}}); err != nil || len(r.Unplaced) != 6 {
			t.Errorf("without any: %+v, %v", r, err)
		}
		var invalid *leader.Invalid
		if _, err := c.Simulate(t.Context(), leader.SimulateRequest{Snapshot: bytes.Replace(file, []byte("old-g"), []byte("odd-g"), 1)}); !errors.As(err, &invalid) {
			t.Errorf("a file that was changed: %v", err)
		}
	})
}
