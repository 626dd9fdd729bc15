package loop_test

import (
	"fmt"
	"math"
	"slices"
	"time"

	"evenkeel/cluster/loop"
	"evenkeel/cluster/state"
)

const (
	mib = int64(1) << 20
	gib = int64(1) << 30
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// failer is what the tests here need of a *testing.T or a *rapid.T.
type failer interface {
	Helper()
	Fatalf(string, ...any)
	Errorf(string, ...any)
}

// cluster is a state that is changed by commands alone, as the real one is.
type cluster struct {
	*state.Store
	t     failer
	index uint64
	ids   int
}

func (c *cluster) env() loop.Env {
	return loop.Env{Now: start.Add(time.Duration(c.index) * time.Second), NewID: c.id}
}

func (c *cluster) id() string { c.ids++; return fmt.Sprintf("id-%05d", c.ids) }

func (c *cluster) apply(kind state.Kind, body any) error {
	c.t.Helper()
	c.index++
	entry, err := state.Encode(kind, start.Add(time.Duration(c.index)*time.Second), body)
	if err != nil {
		c.t.Fatalf("encode: %v", err)
	}
	return c.Apply(c.index, entry)
}

func (c *cluster) must(kind state.Kind, body any) {
	c.t.Helper()
	if err := c.apply(kind, body); err != nil {
		c.t.Fatalf("%s: %v", kind, err)
	}
}

// newCluster has the given hosts of 4 cores and 8 GiB, 64 MiB overhead.
func newCluster(t failer, hosts ...string) *cluster {
	c := &cluster{Store: state.New(), t: t}
	c.must(state.KindInit, state.Init{ID: "c"})
	c.must(state.KindImagePut, state.Image{Name: "kernel", Kind: state.KernelImage})
	c.must(state.KindImagePut, state.Image{Name: "disk", Kind: state.DiskImage})
	for _, h := range hosts {
		c.host(h, 4, 8*gib, state.Resources{})
	}
	return c
}

func (c *cluster) host(name string, cpu float64, memory int64, foreign state.Resources) {
	c.t.Helper()
	r := state.Resources{CPU: cpu, Memory: memory}
	c.must(state.KindHostReport, state.HostReport{Name: name, Capacity: r, Allowance: r, Foreign: foreign, VMOverhead: 64 * mib})
}

func vc(name string, minYield float64, groups ...state.Group) state.VC {
	for i := range groups {
		g := &groups[i]
		g.Name, g.VCPUs, g.MemoryMin = fmt.Sprintf("g%d", i), int(math.Ceil(g.CPU)), min(g.Memory, gib/4)
		if g.Image == "" {
			g.Image = "kernel"
		}
	}
	return state.VC{ID: "vc-" + name, Name: name, MinYield: minYield, OnFull: state.Queue, Goal: state.GoalRun, Groups: groups}
}

func group(count int, cpu float64, memory int64) state.Group {
	return state.Group{Count: count, CPU: cpu, Memory: memory}
}

// enact a plan, which must be whole: what was planned on a snapshot applies to it.
func (c *cluster) enact(what string, p *state.Plan) {
	c.t.Helper()
	before := c.Snapshot()
	if err := c.apply(state.KindPlan, p); err != nil {
		c.t.Fatalf("%s: a plan made on this very state is refused: %v\n%+v", what, err, *p)
	}
	c.check(what, before)
}

// sameLedger checks that all that plan count a host's memory alike: the state's ledger, the index, admission, and plans of moves, which may
// keep more free.
func (c *cluster) sameLedger(what string, s *state.Snapshot) {
	c.t.Helper()
	var index loop.CapacityIndex
	admission, moves := loop.MemoryLeft(s, c.env())
	for _, h := range s.Hosts() {
		left := index.MemoryLeft(s, h.Name)
		if l := s.LedgerOf(h.Name).Free().Memory; l != left && len(s.Preparing()) == 0 || l < left {
			c.t.Fatalf("%s: host %s: %d bytes are left, %d by the index", what, h.Name, l, left)
		}
		if got := admission[h.Name]; got != float64(left) {
			c.t.Fatalf("%s: host %s: %d bytes are left, %v by admission", what, h.Name, left, got)
		}
		if got := moves[h.Name]; got > float64(max(left, 1)) {
			c.t.Fatalf("%s: host %s: %d bytes are left, %v by plans of moves", what, h.Name, left, got)
		}
	}
}

// check what holds after every plan.
func (c *cluster) check(what string, before *state.Snapshot) {
	c.t.Helper()
	after := c.Snapshot()
	c.sameLedger(what, after)
	keepsRules(c.t, what, before, after)
	for _, old := range before.VMs() {
		if vm, ok := after.VM(old.ID); old.ConsumesResources() && (!ok || vm.Host != old.Host) {
			c.t.Fatalf("%s: VM moved: %+v, then %+v", what, old, vm)
		}
	}
	for _, h := range after.Hosts() {
		limit, l, was := h.Usable(), after.LoadOf(h.Name), before.LoadOf(h.Name)
		if l.CPU > max(limit.CPU, was.CPU)*(1+1e-9) || l.Taken() > max(limit.Memory, was.Taken()) {
			c.t.Fatalf("%s: host %s: %+v of %+v, before %+v", what, h.Name, l, limit, was)
		}
	}
	// Where a host lost CPU, the minimum yields of those on it cannot be kept, nor always of those who share another host with them.
	short := slices.ContainsFunc(before.Hosts(), func(h state.Host) bool { return before.LoadOf(h.Name).CPU > h.Usable().CPU*(1+1e-9) })
	for _, x := range after.VCs() {
		if x.Goal == state.GoalRun && !x.Admitted && slices.ContainsFunc(after.VMsOf(x.ID), func(vm state.VM) bool { return vm.ConsumesResources() && vm.Goal == state.GoalRun }) {
			c.t.Fatalf("%s: %s waits, and runs", what, x.Name)
		}
		old, known := before.VC(x.ID)
		floor := x.MinYield
		if known {
			floor = min(floor, state.YieldOf(old))
		}
		if n := state.CountPhases(after.VMsOf(x.ID)); x.Admitted && x.Goal == state.GoalRun && n.Running+n.Starting > 0 && !short && state.YieldOf(x) < floor-1e-6 {
			c.t.Fatalf("%s: yield of %s fell to %v, below %v", what, x.Name, state.YieldOf(x), floor)
		}
	}
}

func (c *cluster) create(x state.VC) loop.Answer {
	c.t.Helper()
	a := loop.Create(c.Snapshot(), x, c.env())
	if a.Plan != nil {
		c.enact("create "+x.Name, a.Plan)
	}
	return a
}

// commitPlan lets the hosts carry out their orders; the queue and the shares follow.
func (c *cluster) commitPlan() {
	c.t.Helper()
	for _, vm := range c.Snapshot().VMs() {
		c.follow(vm)
	}
	c.decide()
}

// follow reports for its host that a VM has come as far as it is to.
func (c *cluster) follow(vm state.VM) {
	c.t.Helper()
	st := state.VMStatus{VM: vm.ID, Generation: vm.Generation, Phase: state.Running}
	switch {
	case vm.Goal == state.GoalDelete:
		st.Phase, st.SourceLost = state.Stopped, true
	case vm.Goal == state.GoalStop && vm.Phase == state.Stopping:
		st.Phase = state.Stopped
	case vm.Phase == state.Starting:
	case vm.Phase == state.Running:
		x, _ := c.Snapshot().VC(vm.VC)
		g, _ := x.GroupOf(vm)
		st.ChargedMemory = vm.Due(g)
	default:
		return
	}
	c.must(state.KindVMReport, state.VMReport{Host: vm.Host, VMs: []state.VMStatus{st}})
}

// decide does what the control loop does until it has nothing to do.
func (c *cluster) decide() {
	c.t.Helper()
	for range 100 {
		s := c.Snapshot()
		if p := loop.AdmitQueue(s, c.env()); p != nil {
			c.enact("admit", p)
			continue
		}
		p := loop.Reallocate(s)
		if p == nil {
			for _, x := range loop.Queue(s) { // no VC that would fit waits
				if p := loop.Admit(s, x.ID, c.env()); p != nil {
					c.t.Fatalf("the loop rests, and %s fits: %+v", x.Name, p)
				}
			}
			return
		}
		if err := c.apply(state.KindPlan, p); err != nil {
			c.t.Fatalf("reallocate: refused on its own state: %v", err)
		}
		if again := loop.Reallocate(c.Snapshot()); again != nil {
			c.t.Fatalf("reallocate does not rest: %+v, then %+v", p.Allocations, again.Allocations)
		}
	}
	c.t.Fatalf("the loop does not come to rest")
}

func (c *cluster) named(name string) state.VC {
	c.t.Helper()
	x, ok := c.Snapshot().VCNamed(name)
	if !ok {
		c.t.Fatalf("no virtual cluster %s", name)
	}
	return x
}

func (c *cluster) state(name string) state.VCState {
	c.t.Helper()
	x := c.named(name)
	return state.StateOf(x, c.Snapshot().VMsOf(x.ID))
}

func (c *cluster) yield(name string) float64 { c.t.Helper(); return state.YieldOf(c.named(name)) }

func near(a, b float64) bool { return math.Abs(a-b) < 1e-6 }
