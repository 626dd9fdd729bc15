package scheduling_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// large is a cluster of 1,000 hosts of 30 cores that run 10,000 VMs in virtual clusters of 1 to
// 8, of so many cores each on average.
func large(b scheduling.TB, cpu float64) *scheduling.Cluster {
	b.Helper()
	c := &scheduling.Cluster{Store: state.New(), T: b}
	c.Must(state.KindInit, state.Init{ID: "c"})
	c.Must(state.KindImagePut, state.Image{Name: "kernel", Kind: state.KernelImage})
	for i := range 1000 {
		c.Host(fmt.Sprintf("h%d", i), 30, 120*scheduling.GiB, state.Resources{})
	}
	// Placed by hand, at random: planning every one of them would be the longer part.
	r := rand.New(rand.NewPCG(1, 1))
	for n, vms := 0, 0; vms < 10_000; n++ {
		x := scheduling.VC(fmt.Sprintf("base%d", n), 0.1, scheduling.Group(1+r.IntN(8), cpu*float64(1+r.IntN(16))/8, int64(1+r.IntN(8))*scheduling.GiB/2))
		x.Admitted = true
		g := &x.Groups[0]
		g.Allocation = g.CPU * min(1, 25/(cpu*10))
		p := state.Plan{Basis: c.Index, Verb: "created", VC: &x}
		for task := range g.Count {
			vms++
			p.VMs = append(p.VMs, state.VM{ID: c.ID(), VC: x.ID, Group: g.Name, Task: task, Name: fmt.Sprintf("%s-%d", x.Name, task),
				Host: fmt.Sprintf("h%d", r.IntN(1000)), Generation: 1, Goal: state.GoalRun, Phase: state.Starting, VCPUs: g.VCPUs, BootMemory: g.Memory, ChargedMemory: g.Memory})
		}
		if err := c.Put(state.KindPlan, p); err != nil {
			vms -= g.Count // that host was full
		}
	}
	for n := 0; ; n++ {
		p := placement.Reallocate(c.Snapshot())
		if p == nil || n == 3 {
			break
		}
		c.Must(state.KindPlan, p)
	}
	for _, h := range c.Snapshot().Hosts() {
		report := state.VMReport{Host: h.Name}
		for _, vm := range c.Snapshot().VMsOn(h.Name) {
			report.VMs = append(report.VMs, state.VMStatus{VM: vm.ID, Generation: 1, Phase: state.Running})
		}
		c.Must(state.KindVMReport, report)
	}
	return c
}

// scales are clusters with room for all, and with hosts that are full.
var scales = []struct {
	name string
	make func(*testing.B) *scheduling.Cluster
}{
	{"room", memo(1.5)},
	{"crowded", memo(3)},
}

func memo(cpu float64) func(*testing.B) *scheduling.Cluster {
	var once sync.Once
	var c *scheduling.Cluster
	return func(b *testing.B) *scheduling.Cluster {
		once.Do(func() { c = large(b, cpu) })
		c.T = b
		return c
	}
}

// BenchmarkLarge is what planning costs with 1,000 hosts and 10,000 VMs: a virtual cluster of two VMs comes
// and goes, each step on a new snapshot as it is in life; and the steps of which that is made.
func BenchmarkLarge(b *testing.B) {
	for _, scale := range scales {
		b.Run(scale.name+"/cycle", func(b *testing.B) {
			c := scale.make(b)
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				n++
				x := scheduling.VC(fmt.Sprintf("x%d-%s", n, scale.name), 0.1, scheduling.Group(2, 1, scheduling.GiB))
				x.ID = c.ID()
				a := admission.Create(c.Snapshot(), x, c.Env())
				if a.Plan == nil {
					b.Fatalf("refused: %+v", a.Decision)
				}
				c.Must(state.KindPlan, a.Plan)
				x, _ = c.Snapshot().VC(x.ID)
				c.Must(state.KindPlan, admission.Delete(c.Snapshot(), x, c.Env()).Plan)
				for _, vm := range c.Snapshot().VMsOf(x.ID) {
					c.Must(state.KindVMReport, state.VMReport{Host: vm.Host, VMs: []state.VMStatus{{VM: vm.ID, Generation: 1, Phase: state.Stopped, SourceLost: true}}})
				}
			}
		})
		b.Run(scale.name+"/create", func(b *testing.B) {
			c := scale.make(b)
			x := scheduling.VC("x", 0.1, scheduling.Group(2, 1, scheduling.GiB))
			b.ReportAllocs()
			for b.Loop() {
				if a := admission.Create(c.Snapshot(), x, c.Env()); a.Plan == nil {
					b.Fatalf("refused: %+v", a.Decision)
				}
			}
		})
		b.Run(scale.name+"/roomy", func(b *testing.B) {
			c := scale.make(b)
			var index admission.CapacityIndex
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				n++
				x := scheduling.VC(fmt.Sprintf("r%d-%s", n, scale.name), 0.1, scheduling.Group(2, 1, scheduling.GiB))
				x.ID = c.ID()
				a, ok := index.TryFastPath(c.Snapshot(), x, c.Env(), func(string) bool { return false })
				if !ok {
					b.Skip("there is no room")
				}
				c.Must(state.KindPlan, a.Plan)
				x, _ = c.Snapshot().VC(x.ID)
				c.Must(state.KindPlan, admission.Delete(c.Snapshot(), x, c.Env()).Plan)
				for _, vm := range c.Snapshot().VMsOf(x.ID) {
					c.Must(state.KindVMReport, state.VMReport{Host: vm.Host, VMs: []state.VMStatus{{VM: vm.ID, Generation: 1, Phase: state.Stopped, SourceLost: true}}})
				}
			}
		})
		b.Run(scale.name+"/reallocate", func(b *testing.B) {
			c := scale.make(b)
			b.ReportAllocs()
			for b.Loop() {
				placement.Reallocate(c.Snapshot())
			}
		})
		b.Run(scale.name+"/look", func(b *testing.B) {
			c := scale.make(b)
			b.ReportAllocs()
			for b.Loop() {
				c.Snapshot().PlacementIndex()
				admission.Restart(c.Snapshot(), c.Env())
				admission.Queue(c.Snapshot())
			}
		})
	}
}
