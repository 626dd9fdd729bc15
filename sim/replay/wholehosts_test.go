package replay

import (
	"fmt"
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/allocator/rightsizing"
	"evenkeel/forecast"
	"evenkeel/sim/flex"
	"evenkeel/sim/workload"
)

// Three jobs on two hosts of one core: a long one on one host, one that needs both, and a short and a long one of one host. FCFS keeps the others behind the
// second. EASY lets the short one go before it, for it ends in time, and not the long one.
func TestWholeHostsByHand(t *testing.T) {
	job := func(at, work float64, group int32) workload.App {
		return workload.App{Arrival: at, Work: work, First: group, Groups: 1}
	}
	one := func(count int32) workload.Group {
		return workload.Group{Count: count, CPU: 1, Memory: gib, CPUUse: flat(0), MemoryUse: flat(0)}
	}
	w := small([]workload.Pattern{{1}}, []workload.App{job(0, 1000, 0), job(10, 500, 1), job(20, 900, 2), job(30, 980, 3)}, one(1), one(2), one(1), one(1))
	hosts := []Host{{CPU: 1, Memory: 2 * gib}, {CPU: 1, Memory: 2 * gib}}
	for _, c := range []struct {
		p    *WholeHosts
		ends []float64
	}{
		{&WholeHosts{}, []float64{1000, 1500, 2400, 2480}},
		{&WholeHosts{Backfill: true}, []float64{1000, 1500, 920, 2480}},
	} {
		r := run(t, w, hosts, c.p, Options{})
		for a, want := range c.ends {
			near(t, fmt.Sprintf("%s: end of %d", c.p.Name(), a), r.PerApp[a].End, want)
		}
		if r.QoS != 1 || r.MinYield != 1 {
			t.Errorf("%s: QoS %v, least yield %v", c.p.Name(), r.QoS, r.MinYield)
		}
	}
}

// A host that the first that waits will not need may be taken for any time.
func TestBackfillTakesFreeHosts(t *testing.T) {
	one := func(count int32) workload.Group {
		return workload.Group{Count: count, CPU: 1, Memory: gib, CPUUse: flat(0), MemoryUse: flat(0)}
	}
	w := small([]workload.Pattern{{1}}, []workload.App{
		{Work: 100, First: 0, Groups: 1}, {Arrival: 1, Work: 100, First: 1, Groups: 1}, {Arrival: 2, Work: 9000, First: 2, Groups: 1}, {Arrival: 3, Work: 9000, First: 3, Groups: 1},
	}, one(2), one(3), one(1), one(1))
	r := run(t, w, []Host{{1, gib}, {1, gib}, {1, gib}, {1, gib}}, &WholeHosts{Backfill: true}, Options{})
	near(t, "the first that waits begins", r.PerApp[1].Start, 100)
	near(t, "the one for the spare host begins", r.PerApp[2].Start, 2)
	near(t, "the next begins", r.PerApp[3].Start, 200)
}

// Elastic components come with their application.
func TestWholeHostsStartElasticOnes(t *testing.T) {
	w := small([]workload.Pattern{{1}}, []workload.App{{Work: 100, First: 0, Groups: 2}},
		workload.Group{Count: 1, CPU: 1, Memory: gib, CPUUse: flat(0), MemoryUse: flat(0)},
		workload.Group{Count: 3, CPU: 1, Memory: gib, Elastic: true, CPUUse: flat(0), MemoryUse: flat(0)})
	near(t, "with room for all", run(t, w, []Host{{2, 4 * gib}, {2, 4 * gib}}, &WholeHosts{}, Options{}).Turnaround.Mean, 100)
	near(t, "with room for the core alone", run(t, w, []Host{{2, 4 * gib}}, &WholeHosts{}, Options{}).Turnaround.Mean, 400)
}

// alone looks whether hosts are shared, and how much is allocated.
type alone struct {
	watched
	reserved, whole bool
}

func (p alone) Schedule(c *Cluster) {
	p.watched.Schedule(c)
	for h := range c.Hosts {
		if over := func(a, of float64) bool { return a > of*(1+1e-6)+1e-6 }; p.reserved && (over(c.AllocatedMemory[h], c.Hosts[h].Memory) || over(c.AllocatedCPU[h], c.Hosts[h].CPU)) {
			p.t.Fatalf("at %v %v cores and %v bytes of host %d are allocated, which has %+v", c.Now, c.AllocatedCPU[h], c.AllocatedMemory[h], h, c.Hosts[h])
		}
		for s := c.FirstOn(int32(h)); p.whole && s >= 0; s = c.NextOn(s) {
			if c.App[s] != c.App[c.FirstOn(int32(h))] {
				p.t.Fatalf("at %v applications %d and %d are on host %d", c.Now, c.App[s], c.App[c.FirstOn(int32(h))], h)
			}
		}
	}
}

// Whatever the policy: hosts give no more than they have, figures are shares where they are to be, the same again is the same; and what some promise besides.
func TestPolicyLaws(t *testing.T) {
	policy := func(policy rightsizing.Policy) *Rightsizing {
		return &Rightsizing{Label: "rightsizing", Foresight: &Persist{}, Yield: 1, Trust: 2, How: Enforcement{Capped: true}, Buffer: forecast.Buffer{K1: 0.05},
			Options: rightsizing.Options{Policy: policy}, EmergencyEviction: policy == rightsizing.Pessimistic}
	}
	must := func(p *Placer, err error) *Placer {
		if err != nil {
			t.Fatal(err)
		}
		return p.Killing()
	}
	for _, one := range []struct {
		name            string
		of              func() Policy
		reserved, whole bool
		elastic         bool // starts elastic components
	}{
		{"reservation", func() Policy { return &Reservation{} }, true, false, true},
		{"fcfs", func() Policy { return &WholeHosts{} }, true, true, true},
		{"easy", func() Policy { return &WholeHosts{Backfill: true} }, true, true, true},
		{"optimistic", func() Policy { return policy(rightsizing.Optimistic) }, false, false, true},
		{"pessimistic", func() Policy { return policy(rightsizing.Pessimistic) }, true, false, true},
		{"leastfit", func() Policy { return must(LeastFit(), nil) }, true, false, false},
		{"oversub", func() Policy { return must(OverSub(2)) }, false, false, false},
		{"flexf", func() Policy { return must(FlexPolicy(flex.FirstCome, forecast.QualityPenalty, 1)) }, false, false, false},
		{"flexl", func() Policy { return must(FlexPolicy(flex.LargestMemory, forecast.QualityPenalty, 1)) }, false, false, false},
		{"ha", func() Policy { return must(Ha(4, 4*gib, 0.125)) }, false, false, false},
	} {
		t.Run(one.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				w, hosts := drawn(t)
				for i := range w.Groups {
					w.Groups[i].Elastic = w.Groups[i].Elastic && one.elastic
				}
				if one.name == "ha" { // of equal hosts
					hosts = []Host{{CPU: 4, Memory: 4 * gib}, {CPU: 4, Memory: 4 * gib}, {CPU: 4, Memory: 4 * gib}}
				}
				o := Options{Until: 30000}
				r, err := Run(w, hosts, alone{watched{one.of(), t}, one.reserved, one.whole}, o)
				if err != nil {
					t.Skip(err) // an application larger than the cluster
				}
				for what, v := range map[string]float64{"CPU in use": r.UsedCPU, "memory in use": r.UsedMemory, "QoS": r.QoS, "least yield": r.MinYield, "mean yield": r.MeanYield,
					"failed": r.Failed, "requeued": r.Requeued, "thrash": r.Thrash, "CPU slack": r.SlackCPU, "memory slack": r.SlackMemory} {
					if !(v >= 0 && v <= 1+1e-9) {
						t.Fatalf("%s is %v", what, v)
					}
				}
				if r.MinYield > r.MeanYield+1e-9 {
					t.Fatalf("the least yield is %v, the mean %v", r.MinYield, r.MeanYield)
				}
				ends := 0
				for a, f := range r.PerApp {
					if f.End < 0 {
						continue
					}
					ends++
					if f.Start < f.Arrival-1e-9 || f.Turnaround < w.Apps[a].Work*(1-1e-9)-1e-6 {
						t.Fatalf("application %d: %+v, with %v s of work", a, f, w.Apps[a].Work)
					}
				}
				if ends != r.Apps-r.Unfinished {
					t.Fatalf("%d ended, %d of %d did not", ends, r.Unfinished, r.Apps)
				}
				if one.whole && (r.Failures > 0 || r.Requeues > 0 || r.Thrash > 0 || r.QoS < 1) {
					t.Fatalf("on hosts of their own: %+v", r)
				}
				again, err := Run(w, hosts, one.of(), o)
				if err != nil || !reflect.DeepEqual(r.PerApp, again.PerApp) {
					t.Fatalf("the same run came out differently (%v)", err)
				}
			})
		})
	}
}

// With jobs of one host each, hosts are servers: FCFS starts a job when the first host is free.
func TestFirstComeIsAQueueOfServers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "hosts")
		w := &workload.Workload{Patterns: []workload.Pattern{{1}}, Groups: []workload.Group{{Count: 1, CPU: 1, Memory: 1, CPUUse: flat(0), MemoryUse: flat(0)}}}
		free, at := make([]float64, n), 0.0
		var ends []float64
		for range rapid.IntRange(1, 30).Draw(t, "jobs") {
			at += float64(rapid.IntRange(0, 300).Draw(t, "gap"))
			work := float64(rapid.IntRange(1, 900).Draw(t, "work"))
			w.Apps = append(w.Apps, workload.App{Arrival: at, Work: work, Groups: 1})
			first := 0
			for i := range free {
				if free[i] < free[first] {
					first = i
				}
			}
			free[first] = max(free[first], at) + work
			ends = append(ends, free[first])
		}
		hosts := make([]Host, n)
		for i := range hosts {
			hosts[i] = Host{CPU: 2, Memory: gib}
		}
		for _, backfill := range []bool{false, true} {
			r, err := Run(w, hosts, &WholeHosts{Backfill: backfill}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			for i, f := range r.PerApp {
				if math.Abs(f.End-ends[i]) > 1e-6 {
					t.Fatalf("job %d ends at %v, not %v", i, f.End, ends[i])
				}
			}
		}
	})
}
