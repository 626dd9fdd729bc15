package agent_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"evenkeel/cluster/agent"
	"evenkeel/hypervisor"
)

const (
	mib = int64(1) << 20
	gib = int64(1) << 30
)

// wanted is a VM of 1 core and 1 GiB that may start, generation 1.
func wanted(id string, change ...func(*agent.VM)) agent.VM {
	vm := agent.VM{Want: agent.WantRun, MayStart: true, ChargedMemory: gib, Spec: hypervisor.Spec{
		Identity: hypervisor.Identity{Cluster: "c", VM: id, Generation: 1}, Name: "ek-" + id, VCPUs: 1,
		Memory: gib, Balloon: gib, CPU: hypervisor.CPU{Cap: 1, Weight: 1}}}
	for _, f := range change {
		f(&vm)
	}
	return vm
}

func seen(vm *agent.VM)   { vm.Seen, vm.MayStart = true, false }
func stop(vm *agent.VM)   { vm.Want, vm.MayStart, vm.FreezeCPU = agent.WantStop, false, true }
func absent(vm *agent.VM) { vm.Want, vm.MayStart, vm.FreezeCPU = agent.WantAbsent, false, true }
func failed(vm *agent.VM) { vm.EndKnown, vm.Seen, vm.MayStart = true, false, false }
func capped(cores float64) func(*agent.VM) {
	return func(vm *agent.VM) { vm.Spec.CPU = hypervisor.CPU{Cap: cores, Weight: cores} }
}
func balloon(bytes int64) func(*agent.VM)     { return func(vm *agent.VM) { vm.Spec.Balloon = bytes } }
func generation(n uint64) func(*agent.VM)     { return func(vm *agent.VM) { vm.Spec.Generation = n } }
func withCharged(bytes int64) func(*agent.VM) { return func(vm *agent.VM) { vm.ChargedMemory = bytes } }
func disk(vm *agent.VM)                       { vm.Spec.Disk.Size = gib }

// runs is the VM as it runs once it was started as wanted.
func runs(id string, change ...func(*hypervisor.VM)) hypervisor.VM {
	s := wanted(id).Spec
	vm := hypervisor.VM{Identity: s.Identity, Name: s.Name, State: hypervisor.Running, VCPUs: s.VCPUs, Memory: s.Memory, Balloon: s.Balloon, CPU: s.CPU}
	for _, f := range change {
		f(&vm)
	}
	return vm
}

func cores(n float64) func(*hypervisor.VM) {
	return func(vm *hypervisor.VM) { vm.CPU = hypervisor.CPU{Cap: n, Weight: n} }
}
func has(bytes int64) func(*hypervisor.VM) { return func(vm *hypervisor.VM) { vm.Balloon = bytes } }

// host of 4 cores and 8 GiB, of which 64 MiB go with each VM.
func host(vms ...agent.VM) agent.Desired {
	return agent.Desired{Cluster: "c", Index: 7, CPU: 4, Memory: 8 * gib, Overhead: 64 * mib, VMs: vms}
}

func texts(ops []agent.Operation) []string {
	out := []string{}
	for _, op := range ops {
		out = append(out, op.String())
	}
	return out
}

// What is done in each situation, and in which order.
func TestDecide(t *testing.T) {
	full := func(vms ...agent.VM) agent.Desired {
		d := host(vms...)
		d.CPU, d.Memory = 2, 2*(gib+64*mib)
		return d
	}
	// leftOut is a full host, of whose room the leader leaves out so much for VMs that are not its own.
	leftOut := func(cores float64, memory int64, vms ...agent.VM) agent.Desired {
		d := full(vms...)
		d.CPU, d.Memory, d.Foreign = d.CPU-cores, d.Memory-memory, agent.Limits{CPU: cores, Memory: memory}
		return d
	}
	for _, c := range []struct {
		name  string
		want  agent.Desired
		there []hypervisor.VM
		past  agent.Past
		ops   []string
	}{
		{"nothing wanted, nothing there", host(), nil, agent.Past{}, nil},
		{"start, then report", host(wanted("a")), nil, agent.Past{}, []string{"start ek-a generation 1", "report a generation 1 running"}},
		{"adopted after a restart of the agent", host(wanted("a", seen)), []hypervisor.VM{runs("a")}, agent.Past{}, nil},
		{"started, and the leader does not know", host(wanted("a")), []hypervisor.VM{runs("a")}, agent.Past{}, []string{"report a generation 1 running"}},
		{"no permit, no start", host(wanted("a", func(vm *agent.VM) { vm.MayStart = false })), nil, agent.Past{}, nil},
		{"ended by itself", host(wanted("a", seen)), nil, agent.Past{Ended: map[string]string{"a": "crashed"}}, []string{"report a generation 1 failed"}},
		{"failed, the leader knows", host(wanted("a", failed)), nil, agent.Past{}, nil},
		{"failed, but it runs", host(wanted("a", failed)), []hypervisor.VM{runs("a")}, agent.Past{}, []string{"report a generation 1 running"}},
		{"an older generation runs", host(wanted("a", generation(2))), []hypervisor.VM{runs("a", cores(3))}, agent.Past{}, []string{"hold ek-a: generation 1 runs, 2 is wanted"}},
		{"a newer generation runs, and is to go", host(wanted("a", absent, generation(0))), []hypervisor.VM{runs("a")}, agent.Past{}, []string{"hold ek-a: generation 1 runs, 0 is wanted"}},
		{"foreign ones of the same name", host(wanted("a", absent)), []hypervisor.VM{{Foreign: true, Name: "ek-a", VCPUs: 1, Memory: gib, Balloon: gib}}, agent.Past{},
			[]string{"remove ek-a", "report a generation 1 stopped"}},
		{"of another cluster", host(wanted("a", absent)), []hypervisor.VM{runs("a", func(vm *hypervisor.VM) { vm.Cluster = "other" })}, agent.Past{},
			[]string{"remove ek-a", "report a generation 1 stopped"}},
		{"with our mark, unknown", host(), []hypervisor.VM{runs("x")}, agent.Past{}, nil},
		{"what is unknown takes room", full(wanted("a"), wanted("b")), []hypervisor.VM{runs("x")}, agent.Past{},
			[]string{"start ek-a generation 1", "report a generation 1 running", "hold ek-b: 1.000 cores do not fit yet"}},
		{"what is unknown and left out by the leader is counted once", leftOut(1, gib+64*mib, wanted("a")), []hypervisor.VM{runs("x")}, agent.Past{},
			[]string{"start ek-a generation 1", "report a generation 1 running"}},
		{"what is unknown and not yet left out takes room", leftOut(0, 0, wanted("a"), wanted("b")), []hypervisor.VM{runs("x")}, agent.Past{},
			[]string{"start ek-a generation 1", "report a generation 1 running", "hold ek-b: 1.000 cores do not fit yet"}},
		{"what is not ours and not yet left out takes room", leftOut(0, 0, wanted("a"), wanted("b")), []hypervisor.VM{{Foreign: true, Name: "x", VCPUs: 1, Memory: gib}}, agent.Past{},
			[]string{"start ek-a generation 1", "report a generation 1 running", "hold ek-b: 1.000 cores do not fit yet"}},
		{"what went since the leader left it out gives no room yet", leftOut(1, gib+64*mib, wanted("a"), wanted("b")), nil, agent.Past{},
			[]string{"start ek-a generation 1", "report a generation 1 running", "hold ek-b: 1.000 cores do not fit yet"}},
		{"without a cap it takes no more than the machine has", leftOut(1, gib+64*mib, wanted("a")), []hypervisor.VM{{Foreign: true, Name: "x", VCPUs: 64, Memory: gib}}, agent.Past{Cores: 1},
			[]string{"start ek-a generation 1", "report a generation 1 running"}},
		{"stop", host(wanted("a", seen, stop)), []hypervisor.VM{runs("a")}, agent.Past{}, []string{"shut down ek-a"}},
		{"stop, asked already", host(wanted("a", seen, stop)), []hypervisor.VM{runs("a")}, agent.Past{Asked: map[string]bool{"a": true}}, nil},
		{"stop, asked too long ago", host(wanted("a", seen, stop)), []hypervisor.VM{runs("a")}, agent.Past{Asked: map[string]bool{"a": true}, Overdue: map[string]bool{"a": true}},
			[]string{"destroy ek-a", "remove ek-a", "report a generation 1 stopped"}},
		{"stop of what crashed", host(wanted("a", seen, stop)), []hypervisor.VM{runs("a", func(vm *hypervisor.VM) { vm.State = hypervisor.Crashed })}, agent.Past{},
			[]string{"destroy ek-a", "remove ek-a", "report a generation 1 stopped"}},
		{"stopped, its disk is kept", host(wanted("a", stop, disk)), nil, agent.Past{}, []string{"report a generation 1 stopped"}},
		{"stopped, an ephemeral disk is not", host(wanted("a", stop, disk, func(vm *agent.VM) { vm.Spec.Disk.Ephemeral = true })), nil, agent.Past{},
			[]string{"remove ek-a", "report a generation 1 stopped"}},
		{"stopped, the leader knows", host(wanted("a", stop, failed)), nil, agent.Past{}, nil},
		{"delete", host(wanted("a", seen, absent)), []hypervisor.VM{runs("a")}, agent.Past{}, []string{"destroy ek-a", "remove ek-a", "report a generation 1 stopped"}},
		{"delete what failed", host(wanted("a", failed, absent)), nil, agent.Past{}, []string{"remove ek-a", "report a generation 1 stopped"}},
		{"a start failed for good", host(wanted("a")), nil, agent.Past{FailedStart: map[string]agent.Failure{"a": {Generation: 1, Reason: "no image"}}}, []string{"report a generation 1 failed"}},
		{"a start of an earlier generation failed", host(wanted("a", generation(2))), nil, agent.Past{FailedStart: map[string]agent.Failure{"a": {Generation: 1}}},
			[]string{"start ek-a generation 2", "report a generation 2 running"}},
		{"shrink before grow, whatever the names", full(wanted("a", seen, capped(1.5)), wanted("b", seen, capped(0.5))), []hypervisor.VM{runs("a"), runs("b")}, agent.Past{},
			[]string{"cap ek-b: 1.0000 -> 0.5000 cores", "cap ek-a: 1.0000 -> 1.5000 cores"}},
		{"growing waits for what another still has", full(wanted("a", seen, capped(1.5)), wanted("b", seen, stop, capped(0.5))), []hypervisor.VM{runs("a"), runs("b")},
			agent.Past{Asked: map[string]bool{"b": true}}, []string{"hold ek-a: 0.500 cores more do not fit yet"}},
		{"a start waits for what another still has", full(wanted("a"), wanted("b", seen), wanted("c", seen, stop)), []hypervisor.VM{runs("b"), runs("c")},
			agent.Past{Asked: map[string]bool{"c": true}}, []string{"hold ek-a: 1.000 cores do not fit yet"}},
		{"destroying makes room at once", full(wanted("a"), wanted("b", seen), wanted("c", seen, absent)), []hypervisor.VM{runs("b"), runs("c")}, agent.Past{},
			[]string{"destroy ek-c", "remove ek-c", "report c generation 1 stopped", "start ek-a generation 1", "report a generation 1 running"}},
		{"a VM that stops keeps its share", host(wanted("a", seen, stop, capped(0.2))), []hypervisor.VM{runs("a")}, agent.Past{Asked: map[string]bool{"a": true}}, nil},
		{"a frozen share", host(wanted("a", seen, capped(0.2), func(vm *agent.VM) { vm.FreezeCPU = true })), []hypervisor.VM{runs("a")}, agent.Past{}, nil},
		{"no cap is as many cores as it has vCPUs", host(wanted("a", seen)), []hypervisor.VM{runs("a", cores(0), func(vm *hypervisor.VM) { vm.VCPUs = 4 })}, agent.Past{},
			[]string{"cap ek-a: 0.0000 -> 1.0000 cores"}},
		{"no share at all is a least cap, not none", host(wanted("a", seen, capped(0))), []hypervisor.VM{runs("a")}, agent.Past{}, []string{"cap ek-a: 1.0000 -> 0.0010 cores"}},
		{"and then it is in force", host(wanted("a", seen, capped(0))), []hypervisor.VM{runs("a", cores(0.001))}, agent.Past{}, nil},
		{"balloon down", host(wanted("a", seen, balloon(gib/2))), []hypervisor.VM{runs("a")}, agent.Past{}, []string{"balloon ek-a: 1073741824 -> 536870912 bytes"}},
		{"balloon down, set already", host(wanted("a", seen, balloon(gib/2))), []hypervisor.VM{runs("a")}, agent.Past{Balloon: map[string]int64{"a": gib / 2}}, nil},
		{"balloon down, and the guest let go", host(wanted("a", seen, balloon(gib/2), withCharged(gib))), []hypervisor.VM{runs("a", has(gib/2))}, agent.Past{}, []string{"report a generation 1 running"}},
		{"the guest let go all but a page, reported once", host(wanted("a", seen, balloon(gib/2), withCharged(gib/2+4096))), []hypervisor.VM{runs("a", has(gib/2+4096))}, agent.Past{}, nil},
		{"the guest let go more than asked, reported once", host(wanted("a", seen, balloon(gib/2), withCharged(gib/2))), []hypervisor.VM{runs("a", has(gib/2-8192))}, agent.Past{}, nil},
		{"balloon up", host(wanted("a", seen)), []hypervisor.VM{runs("a", has(gib/2))}, agent.Past{}, []string{"balloon ek-a: 536870912 -> 1073741824 bytes"}},
		{"balloon up where there is no room", full(wanted("a", seen, balloon(gib+gib/2)), wanted("b", seen)), []hypervisor.VM{runs("a"), runs("b")}, agent.Past{},
			[]string{"hold ek-a: 536870912 bytes of memory more do not fit yet"}},
		{"balloon up waits until another has let go", full(wanted("a", seen, balloon(gib+gib/2)), wanted("b", seen, balloon(gib/2))), []hypervisor.VM{runs("a"), runs("b")}, agent.Past{},
			[]string{"balloon ek-b: 1073741824 -> 536870912 bytes", "hold ek-a: 536870912 bytes of memory more do not fit yet"}},
		{"a target set before counts while the guest is on its way", full(wanted("a", seen, balloon(gib+gib/2)), wanted("b")), []hypervisor.VM{runs("a", has(gib/2))},
			agent.Past{Balloon: map[string]int64{"a": gib + gib/2}}, []string{"hold ek-b: 1140850688 bytes of memory do not fit yet"}},
		{"it took memory back by itself", host(wanted("a", seen, balloon(gib/2), withCharged(gib/2))), []hypervisor.VM{runs("a")}, agent.Past{Balloon: map[string]int64{"a": gib / 2}},
			[]string{"report a generation 1 running"}},
		{"a cap is read back a little off", host(wanted("a", seen)), []hypervisor.VM{runs("a", cores(1.00005), has(gib-mib/2))}, agent.Past{CPU: map[string]float64{"a": 1}}, nil},
		{"a cap that was set by no known caller", host(wanted("a", seen)), []hypervisor.VM{runs("a", cores(1.00005))}, agent.Past{}, []string{"cap ek-a: 1.0001 -> 1.0000 cores"}},
		{"the smallest fall counts", host(wanted("a", seen, capped(0.99999))), []hypervisor.VM{runs("a")}, agent.Past{CPU: map[string]float64{"a": 1}},
			[]string{"cap ek-a: 1.0000 -> 1.0000 cores"}},
		{"another program set the cap", host(wanted("a", seen)), []hypervisor.VM{runs("a", cores(0.5))}, agent.Past{CPU: map[string]float64{"a": 1}},
			[]string{"cap ek-a: 0.5000 -> 1.0000 cores"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(append([]string{}, c.ops...), texts(agent.Decide(c.want, c.there, c.past))); diff != "" {
				t.Errorf("operations (-want +got):\n%s", diff)
			}
		})
	}
}

// Many caps that are read back a little off must not keep a VM from what it is given for ever.
func TestManySmallDifferencesDoNotBlock(t *testing.T) {
	want := host(wanted("z", seen, capped(0.4)))
	set := map[string]float64{}
	var there []hypervisor.VM
	for n := range 40 {
		id := fmt.Sprintf("a%02d", n)
		want.VMs = append(want.VMs, wanted(id, seen, capped(0.09)))
		there = append(there, runs(id, cores(0.09009)))
		set[id] = 0.09
	}
	there = append(there, runs("z", cores(0.3964)))
	for n := range want.VMs {
		want.VMs[n].Spec.Memory, want.VMs[n].Spec.Balloon, want.VMs[n].ChargedMemory = 64*mib, 64*mib, 64*mib
	}
	for n := range there {
		there[n].Memory, there[n].Balloon = 64*mib, 64*mib
	}
	if got := texts(agent.Decide(want, there, agent.Past{CPU: set})); !slices.Equal(got, []string{"cap ek-z: 0.3964 -> 0.4000 cores"}) {
		t.Errorf("operations %q", got)
	}
}

func TestReportsWhatHappened(t *testing.T) {
	ops := agent.Decide(host(wanted("a", seen), wanted("b", absent), wanted("c", seen, balloon(gib/2))), []hypervisor.VM{runs("c", has(gib/2+1))},
		agent.Past{Ended: map[string]string{"a": "crashed"}})
	var got []agent.Status
	for _, op := range ops {
		if report, is := op.(agent.ReportStatus); is {
			got = append(got, report.Status)
		}
	}
	want := []agent.Status{
		{VM: "a", Generation: 1, Phase: agent.PhaseFailed, Reason: "ended by itself: crashed"},
		{VM: "b", Generation: 1, Phase: agent.PhaseStopped, SourceLost: true, Reason: "deleted"},
		{VM: "c", Generation: 1, Phase: agent.PhaseRunning, ChargedMemory: gib/2 + 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
}

func TestUnknown(t *testing.T) {
	other := runs("o", func(vm *hypervisor.VM) { vm.Cluster = "other" })
	got := agent.Unmanaged(host(wanted("a")), []hypervisor.VM{runs("a"), runs("x"), other, {Foreign: true, Name: "f"}})
	if len(got) != 1 || got[0].Identity.VM != "x" {
		t.Errorf("unknown: %+v", got)
	}
}

// model is a host that carries out every order.
type model struct{ vms []hypervisor.VM }

func (m *model) find(id string) int {
	return slices.IndexFunc(m.vms, func(vm hypervisor.VM) bool {
		return !vm.Foreign && vm.Cluster == "c" && vm.Identity.VM == id
	})
}

// do carries one operation out and returns the VM that it acted on.
func (m *model) do(t *rapid.T, op agent.Operation) string {
	at := func(id string) *hypervisor.VM {
		i := m.find(id)
		if i < 0 {
			t.Fatalf("%s: it does not run here", op)
		}
		return &m.vms[i]
	}
	switch op := op.(type) {
	case agent.Shutdown:
		at(op.VM).State = hypervisor.Stopping
		return op.VM
	case agent.Destroy:
		at(op.VM)
		m.vms = slices.Delete(m.vms, m.find(op.VM), m.find(op.VM)+1)
		return op.VM
	case agent.SetCPU:
		at(op.VM).CPU = op.To
		return op.VM
	case agent.SetBalloon:
		if op.To > at(op.VM).Memory {
			t.Fatalf("%s: it has %d", op, at(op.VM).Memory)
		}
		at(op.VM).Balloon = max(op.To, at(op.VM).Balloon) // what shrinks does so later, if ever
		return op.VM
	case agent.Undefine:
		if m.find(op.Spec.Identity.VM) >= 0 {
			t.Fatalf("%s: it runs", op)
		}
		return op.Spec.Identity.VM
	case agent.Start:
		if m.find(op.Spec.Identity.VM) >= 0 {
			t.Fatalf("%s: it runs already", op)
		}
		m.vms = append(m.vms, hypervisor.VM{Identity: op.Spec.Identity, Name: op.Spec.Name, State: hypervisor.Running, VCPUs: op.Spec.VCPUs,
			Memory: op.Spec.Memory, Balloon: op.Spec.Memory, CPU: op.Spec.CPU})
		return op.Spec.Identity.VM
	}
	return ""
}

// load is the sum of caps and the memory that VMs of ours take.
func (m *model) load(overhead int64, targets map[string]int64) (cpu float64, memory int64) {
	for _, vm := range m.vms {
		if vm.Foreign || vm.Cluster != "c" {
			continue
		}
		if vm.CPU.Cap > 0 {
			cpu += vm.CPU.Cap
		} else {
			cpu += float64(vm.VCPUs)
		}
		memory += max(vm.Balloon, targets[vm.Identity.VM]) + overhead
	}
	return cpu, memory
}

func drawHost(t *rapid.T) (agent.Desired, []hypervisor.VM, agent.Past) {
	draw := func(name string, limit int) int { return rapid.IntRange(0, limit).Draw(t, name) }
	want := agent.Desired{Cluster: "c", Index: 1, CPU: float64(draw("cores", 8)) / 2, Memory: int64(draw("memory", 8)) * gib / 2, Overhead: int64(draw("overhead", 2)) * 64 * mib}
	past := agent.Past{Overdue: map[string]bool{}, Asked: map[string]bool{}, Balloon: map[string]int64{}, Guests: map[string]agent.GuestNeed{}, FailedStart: map[string]agent.Failure{}, Ended: map[string]string{}}
	var there []hypervisor.VM
	for n := range draw("VMs", 6) {
		id := string(rune('a' + n))
		size := int64(1+draw("size", 3)) * gib / 2
		vm := agent.VM{Want: rapid.SampledFrom([]agent.Want{agent.WantRun, agent.WantRun, agent.WantStop, agent.WantAbsent}).Draw(t, "want"),
			Spec: hypervisor.Spec{Identity: hypervisor.Identity{Cluster: "c", VM: id, Generation: uint64(1 + draw("generation", 1))}, Name: "ek-" + id, VCPUs: 2,
				Memory: size, Balloon: size - int64(draw("balloon", 2))*gib/8, CPU: hypervisor.CPU{Cap: float64(draw("cap", 8)) / 4, Weight: 1}}}
		switch draw("phase", 3) {
		case 0:
			vm.MayStart = vm.Want == agent.WantRun
		case 1:
			vm.Seen = true
		case 2:
			vm.EndKnown = true
		}
		vm.ChargedMemory = vm.Spec.Balloon + int64(draw("held", 1))*gib/8
		vm.FreezeCPU = vm.Want != agent.WantRun
		vm.MinMemory = int64(draw("least", 2)) * gib / 8
		if draw("wanted", 5) > 0 {
			want.VMs = append(want.VMs, vm)
		}
		if draw("there", 2) > 0 {
			run := hypervisor.VM{Identity: vm.Spec.Identity, Name: vm.Spec.Name, State: rapid.SampledFrom([]hypervisor.State{hypervisor.Running, hypervisor.Running, hypervisor.Paused, hypervisor.Crashed}).Draw(t, "state"),
				VCPUs: 2, Memory: size, Balloon: size - int64(draw("has", 4))*gib/8, CPU: hypervisor.CPU{Cap: float64(draw("in force", 8)) / 4}}
			switch draw("whose", 6) {
			case 0:
				run.Identity, run.Foreign = hypervisor.Identity{}, true
			case 1:
				run.Cluster = "other"
			case 2:
				run.Generation++
			}
			there = append(there, run)
		}
		past.Asked[id] = draw("asked", 2) == 0
		past.Overdue[id] = past.Asked[id] && draw("overdue", 1) == 0
		if draw("set", 3) == 0 {
			past.Balloon[id] = size - int64(draw("target", 3))*gib/8
		}
		if draw("guest", 2) == 0 {
			past.Guests[id] = agent.GuestNeed{MinBalloon: int64(draw("keep", 12)) * gib / 8, Raise: int64(draw("raise", 12)) * gib / 8, Enough: int64(draw("spare", 12)) * gib / 8}
		}
		if draw("failed", 5) == 0 {
			past.FailedStart[id] = agent.Failure{Generation: vm.Spec.Generation, Reason: "no"}
		}
	}
	return want, there, past
}

// leavesOthers: nothing was done to what is not ours.
func (m *model) leavesOthers(t *rapid.T, there []hypervisor.VM) {
	for _, vm := range there {
		if (vm.Foreign || vm.Cluster != "c") && !slices.Contains(m.vms, vm) {
			t.Fatalf("touched what is not ours: %+v", vm)
		}
	}
}

// isAllowed: nothing starts without its permit, and nothing that is to run, or runs as another generation, is stopped or removed.
func isAllowed(t *rapid.T, op agent.Operation, vm agent.VM, there []hypervisor.VM, past agent.Past) {
	switch op := op.(type) {
	case agent.Start:
		f, failed := past.FailedStart[vm.Spec.Identity.VM]
		if vm.Want != agent.WantRun || !vm.MayStart || vm.Seen || vm.EndKnown || op.Spec.Identity != vm.Spec.Identity || (failed && f.Generation == op.Spec.Generation) {
			t.Fatalf("%s is not permitted: %+v", op, vm)
		}
	case agent.Shutdown, agent.Destroy:
		if vm.Want == agent.WantRun {
			t.Fatalf("%s, which is to run", op)
		}
	case agent.Undefine:
		if vm.Want == agent.WantRun {
			t.Fatalf("%s, which is to run", op)
		}
		for _, x := range there {
			if !x.Foreign && x.Identity == op.Spec.Identity && x.Generation != vm.Spec.Generation {
				t.Fatalf("%s while %+v runs", op, x)
			}
		}
	}
}

// Whatever is wanted and there: however many of the operations are carried out, the host's
// limits hold (or are exceeded by no more than before), nothing starts without its permit, and
// nothing is stopped, changed or removed that is to run, is not ours or not of that generation.
func TestDecideIsSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want, there, past := drawHost(t)
		byID := map[string]agent.VM{}
		for _, vm := range want.VMs {
			byID[vm.Spec.Identity.VM] = vm
		}
		m := &model{vms: slices.Clone(there)}
		targets := map[string]int64{}
		for id, bytes := range past.Balloon {
			targets[id] = bytes
		}
		before, had := m.load(want.Overhead, targets)
		ops := agent.Decide(want, slices.Clone(there), past)
		for _, op := range ops {
			var was hypervisor.VM
			runs := false
			for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
				if i := m.find(id); i >= 0 && named(op) == id {
					was, runs = m.vms[i], true
				}
			}
			id := m.do(t, op)
			vm := byID[id]
			switch op := op.(type) {
			case agent.Blocked, agent.ReportStatus:
				continue
			case agent.SetBalloon:
				targets[id] = op.To
			default:
				isAllowed(t, op, vm, there, past)
			}
			if runs && was.Generation != vm.Spec.Generation {
				t.Fatalf("%s touches generation %d, %d is the leader's", op, was.Generation, vm.Spec.Generation)
			}
			cpu, memory := m.load(want.Overhead, targets)
			if slack := 1e-4 * float64(1+len(m.vms)); cpu > max(want.CPU, before)+slack {
				t.Fatalf("after %s: %v cores of %v, %v before\n%v", op, cpu, want.CPU, before, ops)
			}
			if memory > max(want.Memory, had) {
				t.Fatalf("after %s: %d bytes of %d, %d before\n%v", op, memory, want.Memory, had, ops)
			}
		}
		m.leavesOthers(t, there)
		// The order of the lists has no meaning.
		shuffled, mixed := want, slices.Clone(there)
		shuffled.VMs = rapid.Permutation(want.VMs).Draw(t, "order")
		mixed = rapid.Permutation(mixed).Draw(t, "order there")
		if diff := cmp.Diff(texts(ops), texts(agent.Decide(shuffled, mixed, past))); diff != "" {
			t.Fatalf("the order of the lists matters (-before +after):\n%s", diff)
		}
	})
}

// named is the VM that an operation acts on.
func named(op agent.Operation) string {
	switch op := op.(type) {
	case agent.Shutdown:
		return op.VM
	case agent.Destroy:
		return op.VM
	case agent.SetCPU:
		return op.VM
	case agent.SetBalloon:
		return op.VM
	case agent.Undefine:
		return op.Spec.Identity.VM
	case agent.Start:
		return op.Spec.Identity.VM
	}
	return ""
}

// Where each VM fits, the host is as wanted after one round, and a second round has nothing to do.
func TestDecideConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want, there, _ := drawHost(t)
		want.CPU, want.Memory = 100, 100*gib
		for i := range want.VMs {
			want.VMs[i].Seen = want.VMs[i].Want == agent.WantRun && !want.VMs[i].MayStart && !want.VMs[i].EndKnown
			want.VMs[i].ChargedMemory = want.VMs[i].Spec.Balloon
		}
		past := agent.Past{Overdue: map[string]bool{"a": true, "b": true, "c": true, "d": true, "e": true, "f": true}}
		m := &model{vms: slices.DeleteFunc(there, func(vm hypervisor.VM) bool {
			i := slices.IndexFunc(want.VMs, func(w agent.VM) bool { return w.Spec.Identity.VM == vm.Identity.VM })
			return !vm.Foreign && i >= 0 && want.VMs[i].Spec.Generation != vm.Generation
		})}
		for _, op := range agent.Decide(want, m.vms, past) {
			m.do(t, op)
			if b, is := op.(agent.SetBalloon); is {
				m.vms[m.find(b.VM)].Balloon = b.To
			}
		}
		for i, vm := range m.vms { // a guest boots with all its memory and gives back what is above its balloon
			for _, w := range want.VMs {
				if w.Spec.Identity == vm.Identity && !vm.Foreign && w.Want == agent.WantRun {
					m.vms[i].Balloon = w.Spec.Balloon
				}
			}
		}
		for _, op := range agent.Decide(want, m.vms, past) {
			switch op := op.(type) {
			case agent.ReportStatus, agent.Undefine: // until the leader has heard it
			default:
				t.Fatalf("still to do: %s", op)
			}
		}
	})
}
