package state_test

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"evenkeel/cluster/state"
)

const (
	mib = int64(1) << 20
	gib = int64(1) << 30
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// cluster is a store and the log that made it.
type cluster struct {
	*state.Store
	log [][]byte
}

func newCluster() *cluster { return &cluster{Store: state.New()} }

// small is a cluster with an image and n hosts of 4 cores and 8 GiB, 64 MiB overhead.
func small(t failer, hosts int) *cluster {
	t.Helper()
	c := newCluster()
	c.must(t, state.KindInit, state.Init{ID: "cluster-1", Settings: state.Settings{MinYield: 0.5, OnFull: state.Queue, MaxVMs: 64}})
	c.must(t, state.KindImagePut, state.Image{Name: "tiny", Kind: state.KernelImage, File: "/images/tiny"})
	for i := range hosts {
		c.must(t, state.KindHostReport, hostReport(fmt.Sprintf("h%d", i+1), 4, 8*gib))
	}
	return c
}

func hostReport(name string, cpu float64, memory int64) state.HostReport {
	r := state.Resources{CPU: cpu, Memory: memory}
	return state.HostReport{Name: name, Capacity: r, Allowance: r, VMOverhead: 64 * mib, Software: "test"}
}

// apply a command as the next entry of the log, at a time that follows from its index.
func (c *cluster) apply(t failer, kind state.Kind, body any) error {
	t.Helper()
	index := uint64(len(c.log)) + 1
	entry, err := state.Encode(kind, start.Add(time.Duration(index)*time.Second), body)
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	c.log = append(c.log, entry)
	return c.Apply(index, entry)
}

// failer is what testing.TB and *rapid.T have in common here.
type failer interface {
	Helper()
	Fatalf(string, ...any)
	Errorf(string, ...any)
}

func (c *cluster) must(t failer, kind state.Kind, body any) {
	t.Helper()
	if err := c.apply(t, kind, body); err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
}

// migration returns the running migration of a VM, the zero value if there is none.
func (c *cluster) migration(vm string) state.Migration {
	m, _ := c.Snapshot().MigrationOf(vm)
	return m
}

// opens a move of generation 1 of a VM to a host, with an id of its own.
func (c *cluster) opens(vm, to string) state.Move {
	return state.Move{VM: vm, Generation: 1, To: to, Open: true, ID: fmt.Sprintf("mg-%04d", len(c.log)+1)}
}

func save(t failer, s *state.Snapshot) string {
	t.Helper()
	var b bytes.Buffer
	if err := s.Save(&b); err != nil {
		t.Fatalf("save: %v", err)
	}
	return b.String()
}

// rows is what Save writes less the position in the log and the seal over it.
func rows(t failer, s *state.Snapshot) string {
	t.Helper()
	lines := strings.SplitAfter(save(t, s), "\n")
	return strings.Join(lines[:len(lines)-3], "")
}

// planOf makes a plan to create a VC of one group with a VM on each of the hosts.
func planOf(s *state.Snapshot, name string, cpu float64, memory int64, hosts ...string) state.Plan {
	id := "vc-" + name
	vc := state.VC{ID: id, Name: name, MinYield: 0.5, Goal: state.GoalRun, Admitted: true,
		Groups: []state.Group{{Name: "g", Count: len(hosts), CPU: cpu, VCPUs: 1, Memory: memory, MemoryMin: memory, Image: "tiny"}}}
	p := state.Plan{Basis: s.Index(), Verb: "created", VC: &vc, AffectedHosts: hosts,
		Allocations: []state.Allocation{{VC: id, Group: "g", CPU: cpu}},
		Operation:   &state.Operation{ID: "op-" + name, Kind: "create", VC: id, Name: name}}
	for i, h := range hosts {
		p.VMs = append(p.VMs, state.VM{ID: fmt.Sprintf("vm-%s-%d", name, i), VC: id, Group: "g", Task: i, Name: fmt.Sprintf("%s-g-%d", name, i),
			Host: h, Generation: 1, Goal: state.GoalRun, Phase: state.Starting, VCPUs: 1, BootMemory: memory, ChargedMemory: memory})
	}
	return p
}

// leave makes a plan to stop or delete a VC.
func leave(s *state.Snapshot, name string, goal state.Goal) state.Plan {
	vc, _ := s.VCNamed(name)
	p := state.Plan{Basis: s.Index(), Verb: string(goal), VCVersion: vc.ModifyIndex}
	for _, vm := range s.VMsOf(vc.ID) {
		g, _ := vc.GroupOf(vm)
		vm.Goal = goal
		if vm.Phase == state.Starting || vm.Phase == state.Running {
			vm.Phase, vm.Frozen = state.Stopping, g.Allocation
		}
		p.VMs = append(p.VMs, vm)
		p.AffectedHosts = append(p.AffectedHosts, vm.Host)
	}
	vc.Goal, vc.Admitted = goal, false
	p.VC = &vc
	return p
}

func report(host, vm string, generation uint64, phase state.Phase) state.VMReport {
	return state.VMReport{Host: host, VMs: []state.VMStatus{{VM: vm, Generation: generation, Phase: phase, Reason: "because"}}}
}
