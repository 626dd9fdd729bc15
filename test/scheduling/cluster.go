package scheduling

import (
	"fmt"
	"math"
	"slices"
	"time"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
)

// Bytes.
const (
	MiB = int64(1) << 20
	GiB = int64(1) << 30
)

// Start is when the log begins.
var Start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// TB is what the tests here need of a *testing.T or a *rapid.T.
type TB interface {
	Helper()
	Fatalf(string, ...any)
	Errorf(string, ...any)
}

// Cluster is a state that is changed by commands alone, as the real one is.
type Cluster struct {
	*state.Store
	T     TB
	Index uint64        // of the last command
	IDs   int           // that were given
	Ahead time.Duration // by which the clock was put forward
}

// Env is what a leader has that knows nothing besides the state. A second passes with each command.
func (c *Cluster) Env() placement.Env {
	return placement.Env{Now: c.Now(), NewID: c.ID}
}

// Now is the time of the last command.
func (c *Cluster) Now() time.Time {
	return Start.Add(c.Ahead + time.Duration(c.Index)*time.Second)
}

// ID returns a new id.
func (c *Cluster) ID() string { c.IDs++; return fmt.Sprintf("id-%05d", c.IDs) }

// Put applies a command.
func (c *Cluster) Put(kind state.Kind, body any) error {
	c.T.Helper()
	c.Index++
	entry, err := state.Encode(kind, c.Now(), body)
	if err != nil {
		c.T.Fatalf("encode: %v", err)
	}
	return c.Apply(c.Index, entry)
}

// Must applies a command that cannot be refused.
func (c *Cluster) Must(kind state.Kind, body any) {
	c.T.Helper()
	if err := c.Put(kind, body); err != nil {
		c.T.Fatalf("%s: %v", kind, err)
	}
}

// MoveOf returns the log index at which the move of a VM was opened.
func (c *Cluster) MoveOf(vm string) uint64 {
	m, _ := c.Snapshot().MigrationOf(vm)
	return m.Open
}

// NewCluster has the given hosts of 4 cores and 8 GiB, 64 MiB overhead.
func NewCluster(t TB, hosts ...string) *Cluster {
	c := &Cluster{Store: state.New(), T: t}
	c.Must(state.KindInit, state.Init{ID: "c"})
	c.Must(state.KindImagePut, state.Image{Name: "kernel", Kind: state.KernelImage})
	c.Must(state.KindImagePut, state.Image{Name: "disk", Kind: state.DiskImage})
	for _, h := range hosts {
		c.Host(h, 4, 8*GiB, state.Resources{})
	}
	return c
}

// Host reports a host.
func (c *Cluster) Host(name string, cpu float64, memory int64, foreign state.Resources) {
	c.T.Helper()
	r := state.Resources{CPU: cpu, Memory: memory}
	c.Must(state.KindHostReport, state.HostReport{Name: name, Capacity: r, Allowance: r, Foreign: foreign, VMOverhead: 64 * MiB})
}

// VC is a VC whose groups are g0, g1 and so on.
func VC(name string, minYield float64, groups ...state.Group) state.VC {
	for i := range groups {
		g := &groups[i]
		g.Name, g.VCPUs, g.MemoryMin = fmt.Sprintf("g%d", i), int(math.Ceil(g.CPU)), min(g.Memory, GiB/4)
		if g.Image == "" {
			g.Image = "kernel"
		}
	}
	return state.VC{ID: "vc-" + name, Name: name, MinYield: minYield, OnFull: state.Queue, Goal: state.GoalRun, Groups: groups}
}

// Group is a group of VMs of so many cores and bytes.
func Group(count int, cpu float64, memory int64) state.Group {
	return state.Group{Count: count, CPU: cpu, Memory: memory}
}

// Enact a plan, which must be whole: what was planned on a snapshot applies to it.
func (c *Cluster) Enact(what string, p *state.Plan) {
	c.T.Helper()
	before := c.Snapshot()
	if err := c.Put(state.KindPlan, p); err != nil {
		c.T.Fatalf("%s: a plan made on this very state is refused: %v\n%+v", what, err, *p)
	}
	c.check(what, before)
}

// sameLedger checks that all that plan count a host's memory alike: the state's ledger, the index, admission, and plans of moves, which may
// keep more free.
func (c *Cluster) sameLedger(what string, s *state.Snapshot) {
	c.T.Helper()
	var index admission.CapacityIndex
	byAdmission, byMoves := MemoryLeft(s, c.Env())
	for _, h := range s.Hosts() {
		left := index.Free(s, h.Name).Memory
		if l := s.LedgerOf(h.Name).Free().Memory; l != left && len(s.Preparing()) == 0 || l < left {
			c.T.Fatalf("%s: host %s: %d bytes are left, %d by the index", what, h.Name, l, left)
		}
		if got := byAdmission[h.Name]; got != float64(left) {
			c.T.Fatalf("%s: host %s: %d bytes are left, %v by admission", what, h.Name, left, got)
		}
		if got := byMoves[h.Name]; got > float64(max(left, 1)) {
			c.T.Fatalf("%s: host %s: %d bytes are left, %v by plans of moves", what, h.Name, left, got)
		}
	}
}

// Check what holds after every plan.
func (c *Cluster) check(what string, before *state.Snapshot) {
	c.T.Helper()
	after := c.Snapshot()
	c.sameLedger(what, after)
	keepsRules(c.T, what, before, after)
	for _, old := range before.VMs() {
		if vm, ok := after.VM(old.ID); old.ConsumesResources() && (!ok || vm.Host != old.Host) {
			c.T.Fatalf("%s: VM moved: %+v, then %+v", what, old, vm)
		}
	}
	for _, h := range after.Hosts() {
		limit, l, was := h.Usable(), after.LoadOf(h.Name), before.LoadOf(h.Name)
		if l.CPU > max(limit.CPU, was.CPU)*(1+1e-9) || l.Taken() > max(limit.Memory, was.Taken()) {
			c.T.Fatalf("%s: host %s: %+v of %+v, before %+v", what, h.Name, l, limit, was)
		}
	}
	// Where a host lost CPU, the minimum yields of those on it cannot be kept, nor always of those who share another host with them.
	short := slices.ContainsFunc(before.Hosts(), func(h state.Host) bool { return before.LoadOf(h.Name).CPU > h.Usable().CPU*(1+1e-9) })
	for _, x := range after.VCs() {
		if x.Goal == state.GoalRun && !x.Admitted && slices.ContainsFunc(after.VMsOf(x.ID), func(vm state.VM) bool { return vm.ConsumesResources() && vm.Goal == state.GoalRun }) {
			c.T.Fatalf("%s: %s waits, and runs", what, x.Name)
		}
		old, known := before.VC(x.ID)
		floor := x.MinYield
		if known {
			floor = min(floor, state.YieldOf(old, before.VMsOf(x.ID)))
		}
		if n := state.CountPhases(after.VMsOf(x.ID)); x.Admitted && x.Goal == state.GoalRun && n.Running+n.Starting > 0 && !short && state.YieldOf(x, after.VMsOf(x.ID)) < floor-1e-6 {
			c.T.Fatalf("%s: yield of %s fell to %v, below %v", what, x.Name, state.YieldOf(x, after.VMsOf(x.ID)), floor)
		}
	}
}

// Create asks for a VC, and enacts the answer.
func (c *Cluster) Create(x state.VC) admission.Answer {
	c.T.Helper()
	a := admission.Create(c.Snapshot(), x, c.Env())
	if a.Plan != nil {
		c.Enact("create "+x.Name, a.Plan)
	}
	return a
}

// CommitPlan lets the hosts carry out their orders; the queue and the shares follow.
func (c *Cluster) CommitPlan() {
	c.T.Helper()
	for _, vm := range c.Snapshot().VMs() {
		c.Follow(vm)
	}
	c.Decide()
}

// Follow reports for its host that a VM has come as far as it is to.
func (c *Cluster) Follow(vm state.VM) {
	c.T.Helper()
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
	c.Must(state.KindVMReport, state.VMReport{Host: vm.Host, VMs: []state.VMStatus{st}})
}

// Decide does what the control loop does until it has nothing to do.
func (c *Cluster) Decide() {
	c.T.Helper()
	for range 100 {
		s := c.Snapshot()
		if p := new(admission.QueueCache).Admit(s, c.Env()); p != nil {
			c.Enact("admit", p)
			continue
		}
		p := placement.Reallocate(s)
		if p == nil {
			for _, x := range admission.Queue(s) { // no VC that would fit waits
				if p := admission.Admit(s, x.ID, c.Env()); p != nil {
					c.T.Fatalf("the loop rests, and %s fits: %+v", x.Name, p)
				}
			}
			return
		}
		if err := c.Put(state.KindPlan, p); err != nil {
			c.T.Fatalf("reallocate: refused on its own state: %v", err)
		}
		if again := placement.Reallocate(c.Snapshot()); again != nil {
			c.T.Fatalf("reallocate does not rest: %+v, then %+v", p.Allocations, again.Allocations)
		}
	}
	c.T.Fatalf("the loop does not come to rest")
}

// Named returns the VC of that name.
func (c *Cluster) Named(name string) state.VC {
	c.T.Helper()
	x, ok := c.Snapshot().VCNamed(name)
	if !ok {
		c.T.Fatalf("no virtual cluster %s", name)
	}
	return x
}

// State of a VC, by its name.
func (c *Cluster) State(name string) state.VCState {
	c.T.Helper()
	x := c.Named(name)
	return state.StateOf(x, c.Snapshot().VMsOf(x.ID))
}

// Yield of a VC, by its name.
func (c *Cluster) Yield(name string) float64 {
	c.T.Helper()
	x := c.Named(name)
	return state.YieldOf(x, c.Snapshot().VMsOf(x.ID))
}

// Near says whether two yields are equal but for rounding.
func Near(a, b float64) bool { return math.Abs(a-b) < 1e-6 }

// Run everything that was admitted.
func (c *Cluster) Run() {
	c.T.Helper()
	for _, vm := range c.Snapshot().VMs() {
		if vm.Phase == state.Starting {
			c.Must(state.KindVMReport, state.VMReport{Host: vm.Host, VMs: []state.VMStatus{{VM: vm.ID, Generation: vm.Generation, Phase: state.Running}}})
		}
	}
}

// Shares in force, by VC.
func (c *Cluster) Share(name string) float64 {
	c.T.Helper()
	vc, ok := c.Snapshot().VCNamed(name)
	if !ok {
		c.T.Fatalf("no %s", name)
	}
	return vc.Groups[0].Allocation
}

// VMOf returns the first VM of a VC, by the name of that.
func (c *Cluster) VMOf(name string) state.VM {
	c.T.Helper()
	vc, _ := c.Snapshot().VCNamed(name)
	return c.Snapshot().VMsOf(vc.ID)[0]
}

// Expect makes a plan whose only step is about to begin.
func (c *Cluster) Expect(id string, vm state.VM, to string) {
	c.T.Helper()
	c.Must(state.KindMovePlan, state.MovePlanPut{Plan: state.MovePlan{ID: id, Kind: state.MovesRebalance, State: state.MovesRunning, Budget: -1,
		Steps: []state.MoveStep{{VM: vm.ID, From: vm.Host, To: to, Allotment: -1, State: state.StepPreparing}}}})
}

// Reallocate divides CPU again, and returns whether that changed anything. The shares of VMs that move stand still.
func (c *Cluster) Reallocate() bool {
	c.T.Helper()
	p := placement.Reallocate(c.Snapshot())
	if p == nil {
		return false
	}
	before := c.Snapshot()
	c.Must(state.KindPlan, p)
	for _, vm := range before.VMs() {
		if old, _ := before.VC(vm.VC); vm.MovingTo != "" {
			if now, _ := c.Snapshot().VC(vm.VC); now.Groups[0].Allocation != old.Groups[0].Allocation {
				c.T.Fatalf("the share of %s changed from %v to %v while it moves", vm.Name, old.Groups[0].Allocation, now.Groups[0].Allocation)
			}
		}
	}
	return true
}

// Overfull is a cluster whose first host has two VMs of 4 cores, and whose others are empty.
func Overfull(t TB, hosts ...string) *Cluster {
	c := NewCluster(t, hosts...)
	for _, h := range hosts[1:] {
		c.Must(state.KindHostCordon, state.HostCordon{Host: h, Cordoned: true})
	}
	for _, name := range []string{"x", "y"} {
		c.Enact(name, admission.Create(c.Snapshot(), VC(name, 0, Group(1, 4, GiB)), c.Env()).Plan)
	}
	c.Run()
	for _, h := range hosts[1:] {
		c.Must(state.KindHostCordon, state.HostCordon{Host: h})
	}
	return c
}

// LessMemory gives the VMs of a VC less than they were started with, and their guests let go.
func (c *Cluster) LessMemory(name string, memory int64) {
	c.T.Helper()
	x := c.Named(name)
	x.Groups = slices.Clone(x.Groups)
	x.Groups[0].Memory = memory
	c.Enact("less memory", admission.Scale(c.Snapshot(), x, c.Env()).Plan)
	c.CommitPlan()
}
