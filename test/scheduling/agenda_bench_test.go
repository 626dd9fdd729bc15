package scheduling_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/agenda"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// periodicScale is a cluster of 1,000 hosts that run 10,000 VMs, with 900 jobs that are signed off: a third of them hourly, the
// others daily, of 1 to 8 VMs for 10 to 120 minutes; but a tenth come each five minutes, with steps of 30 seconds.
var periodicScale = sync.OnceValues(func() (*scheduling.Cluster, error) {
	c := large(quiet{}, 1.5)
	r := rand.New(rand.NewPCG(25, 1))
	for j := range 900 {
		name := fmt.Sprintf("job%d", j)
		x := scheduling.VC(name+"-1", 0.1, scheduling.Group(1, 0.01, scheduling.GiB/64))
		x.ID, x.Admitted, x.Periodic.Name = c.ID(), true, name
		host := fmt.Sprintf("h%d", r.IntN(1000))
		g := x.Groups[0]
		vm := state.VM{ID: c.ID(), VC: x.ID, Group: g.Name, Name: name + "-1-0", Host: host, Generation: 1, Goal: state.GoalRun, Phase: state.Starting, VCPUs: g.VCPUs, BootMemory: g.Memory, ChargedMemory: g.Memory}
		if err := c.Put(state.KindPlan, state.Plan{Basis: c.Index, Verb: "created", VC: &x, VMs: []state.VM{vm}, Job: name}); err != nil {
			return nil, err
		}
		c.Must(state.KindVMReport, state.VMReport{Host: host, VMs: []state.VMStatus{{VM: vm.ID, Generation: 1, Phase: state.Running}}})
		x, _ = c.Snapshot().VC(x.ID)
		c.Must(state.KindPlan, admission.Delete(c.Snapshot(), x, c.Env()).Plan)
		c.Must(state.KindVMReport, state.VMReport{Host: host, VMs: []state.VMStatus{{VM: vm.ID, Generation: 1, Phase: state.Stopped, SourceLost: true}}})
		vms, steps := 1+r.IntN(8), 2+r.IntN(23)
		k := state.SignOff{State: state.SignedOff, Recurrence: fmt.Sprintf("DTSTART;TZID=UTC:20260101T000000\nRRULE:FREQ=DAILY;BYHOUR=%d;BYMINUTE=%d", r.IntN(24), r.IntN(60)),
			Lateness: 300, Groups: []state.RunGroup{{Name: "g0", Count: vms, CPU: 1, Memory: scheduling.GiB}}, MinYield: 0.5, Step: 300}
		if j%3 == 0 {
			k.Recurrence, steps = fmt.Sprintf("DTSTART;TZID=UTC:20260101T00%02d00\nRRULE:FREQ=HOURLY", r.IntN(60)), 2+r.IntN(8)
		}
		if j%10 == 5 {
			k.Recurrence, k.Step, k.Lateness, steps = fmt.Sprintf("DTSTART;TZID=UTC:20260101T00%02d30\nRRULE:FREQ=MINUTELY;INTERVAL=5", r.IntN(5)), 30, 30, 2+r.IntN(6)
		}
		for range steps {
			k.Cores = append(k.Cores, float64(vms)*(0.3+0.7*r.Float64()))
		}
		k.Due = int64(steps)*k.Step + 1800
		c.Must(state.KindPeriodic, state.PeriodicPut{Job: name, SignOff: k, Verb: "accept"})
	}
	return c, nil
})

// quiet lets a cluster be made outside of a test; what goes wrong panics.
type quiet struct{ testing.TB }

func (quiet) Helper() {}

// BenchmarkPeriodic is what 900 jobs that are signed off cost the leader of 1,000 hosts: to fill the agenda, an evaluation at rest, and
// the admission of a virtual cluster of two VMs, of which it reports the 99th percentile.
func BenchmarkPeriodic(b *testing.B) {
	c, err := periodicScale()
	if err != nil {
		b.Fatal(err)
	}
	c.T = b
	began, rounds := time.Now(), 0
	longest := time.Duration(0)
	for ; ; rounds++ {
		from := time.Now()
		put, err := agenda.Plan(c.Snapshot(), c.Now(), nil)
		if err != nil {
			b.Fatal(err)
		}
		longest = max(longest, time.Since(from))
		if len(put.Occurrences)+len(put.Drop) == 0 || testing.Short() && rounds == 3 {
			break
		}
		c.Must(state.KindAgenda, put)
	}
	states := map[state.OccurrenceState]int{}
	for _, o := range c.Snapshot().Agenda() {
		states[o.State]++
	}
	b.Logf("filled in %s and %d evaluations, the longest of %s: %v", time.Since(began).Round(time.Millisecond), rounds, longest.Round(time.Millisecond), states)
	b.Run("rest", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := agenda.Plan(c.Snapshot(), c.Now(), nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("admission", func(b *testing.B) {
		var index admission.CapacityIndex
		var took []time.Duration
		fast, n := 0, 0
		b.ReportAllocs()
		for b.Loop() {
			n++
			x := scheduling.VC(fmt.Sprintf("p%d", n), 0.1, scheduling.Group(2, 1, scheduling.GiB))
			x.ID = c.ID()
			from := time.Now()
			a, ok := index.TryFastPath(c.Snapshot(), x, c.Env(), func(string) bool { return false })
			if ok {
				fast++
			} else {
				a = admission.Create(c.Snapshot(), x, c.Env())
			}
			took = append(took, time.Since(from))
			if a.Plan == nil || a.Queued {
				b.Fatalf("refused: %+v", a.Decision)
			}
			c.Must(state.KindPlan, a.Plan)
			x, _ = c.Snapshot().VC(x.ID)
			c.Must(state.KindPlan, admission.Delete(c.Snapshot(), x, c.Env()).Plan)
			for _, vm := range c.Snapshot().VMsOf(x.ID) {
				c.Must(state.KindVMReport, state.VMReport{Host: vm.Host, VMs: []state.VMStatus{{VM: vm.ID, Generation: 1, Phase: state.Stopped, SourceLost: true}}})
			}
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		b.ReportMetric(float64(fast)/float64(n), "fast")
	})
}
