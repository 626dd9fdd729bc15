package replay

import (
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/sim/workload"
)

const gib = 1 << 30

// flat is a use that stays at a share of the request.
func flat(pattern int32) workload.Use { return workload.Use{Pattern: pattern, Step: 1} }

// small makes a workload of applications with one core group each; patterns are shares of the request, one per pattern.
func small(patterns []workload.Pattern, apps []workload.App, groups ...workload.Group) *workload.Workload {
	return &workload.Workload{Apps: apps, Groups: groups, Patterns: patterns}
}

func run(t *testing.T, w *workload.Workload, hosts []Host, p Policy, o Options) *Result {
	t.Helper()
	r, err := Run(w, hosts, p, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*max(1, math.Abs(want)) {
		t.Errorf("%s is %v, not %v", what, got, want)
	}
}

// Two applications of one component each, that do not fit side by side. The first arrives at 30 s and works 100 s, the second at 60 s and works
// 50 s. Half of the CPU and a quarter of the memory are used.
func TestMetricsByHand(t *testing.T) {
	w := small([]workload.Pattern{{0.5}, {0.25}},
		[]workload.App{{Arrival: 30, Work: 100, First: 0, Groups: 1}, {Arrival: 60, Work: 50, First: 1, Groups: 1}},
		workload.Group{Count: 1, CPU: 3, Memory: 2 * gib, CPUUse: flat(0), MemoryUse: flat(1)},
		workload.Group{Count: 1, CPU: 2, Memory: 1 * gib, CPUUse: flat(0), MemoryUse: flat(1)})
	r := run(t, w, []Host{{CPU: 4, Memory: 4 * gib}}, &Reservation{}, Options{})
	near(t, "first's turnaround", r.PerApp[0].Turnaround, 100)
	near(t, "second's turnaround", r.PerApp[1].Turnaround, 120) // waits until 130
	near(t, "mean turnaround", r.Turnaround.Mean, 110)
	near(t, "median turnaround", r.Turnaround.Median, 100)
	near(t, "mean wait", r.Wait.Mean, 35)
	near(t, "first's stretch", r.PerApp[0].Stretch, 1)
	near(t, "second's stretch", r.PerApp[1].Stretch, 120.0/50)
	near(t, "CPU slack", r.SlackCPU, 0.5)
	near(t, "memory slack", r.SlackMemory, 0.75)
	near(t, "memory slack of the allocation", r.SlackMemoryOfAllocation, 0.75)
	near(t, "failed", r.Failed, 0)
	near(t, "QoS", r.QoS, 1)
	near(t, "least yield", r.MinYield, 1)
	near(t, "thrash", r.Thrash, 0)
	// Ticks at 0 s, when nothing had arrived, and at 60 and 120 s, when the first ran; at 180 s all was done.
	near(t, "seconds", r.Seconds, 180)
	near(t, "allocated CPU", r.AllocatedCPU, (0+3+3)/12.0)
	near(t, "used CPU", r.UsedCPU, (0+1.5+1.5)/12)
	near(t, "used memory", r.UsedMemory, (0+0.5+0.5)/12)
}

// greedy starts everything at once, allocates what was asked for, and enforces nothing: hosts are overcommitted.
type greedy struct {
	how        Enforcement
	freeMemory func(c *Cluster, host int32)
	rightsize  func(c *Cluster)
	started    int
}

func (*greedy) Name() string                 { return "greedy" }
func (g *greedy) Begin(*Cluster) Enforcement { return g.how }
func (g *greedy) FreeMemory(c *Cluster, h int32) {
	if g.freeMemory != nil {
		g.freeMemory(c, h)
	}
}
func (g *greedy) Rightsize(c *Cluster) {
	if g.rightsize != nil {
		g.rightsize(c)
	}
}
func (g *greedy) Schedule(c *Cluster) {
	for a := c.FirstWaiting(); a >= 0; a = c.FirstWaiting() {
		if c.Failures[a] > 0 && c.Running() > 0 {
			return
		}
		g.started++
		hosts := make([]int32, c.core[a])
		c.Start(a, hosts)
		for g := c.Workload.Apps[a].First; g < c.Workload.Apps[a].First+c.Workload.Apps[a].Groups; g++ {
			for c.Workload.Groups[g].Elastic && c.Missing(g) > 0 {
				c.Grow(a, g, 0)
			}
		}
	}
}

// Two applications want 3 cores each of a host with 4: each gets 2, works at 2/3 of its speed, and takes 150 s for 100 s of work.
func TestShortCPUIsSlower(t *testing.T) {
	w := small([]workload.Pattern{{1}},
		[]workload.App{{Work: 100, First: 0, Groups: 1}, {Work: 100, First: 1, Groups: 1}},
		workload.Group{Count: 1, CPU: 3}, workload.Group{Count: 1, CPU: 3})
	for i := range w.Groups {
		w.Groups[i].CPUUse, w.Groups[i].MemoryUse = flat(0), flat(0)
	}
	r := run(t, w, []Host{{CPU: 4, Memory: gib}}, &greedy{}, Options{})
	near(t, "turnaround", r.Turnaround.Max, 150)
	near(t, "least yield", r.MinYield, 2.0/3)
	near(t, "QoS", r.QoS, 0)
	near(t, "used CPU", r.UsedCPU, 1)

	// Weights: 3 and 1 cores are asked for, 3 and 3 wanted. 3:1 of 4 cores gives the first all that it wants.
	w.Groups[1].CPU = 1
	w.Patterns = append(w.Patterns, workload.Pattern{3})
	w.Groups[1].CPUUse = flat(1)
	r = run(t, w, []Host{{CPU: 4, Memory: gib}}, &greedy{}, Options{})
	near(t, "first's turnaround", r.PerApp[0].Turnaround, 100)
	near(t, "second's turnaround", r.PerApp[1].Turnaround, 100+100*(1-1.0/3)) // a third of its speed until 100 s
	if r.QoS != 1 {
		t.Errorf("QoS is %v: the second got what it asked for at least", r.QoS)
	}

	// Capped, the second gets no more than it asked for, ever.
	r = run(t, w, []Host{{CPU: 4, Memory: gib}}, &greedy{how: Enforcement{Capped: true}}, Options{})
	near(t, "second's turnaround, capped", r.PerApp[1].Turnaround, 300)
}

// By the clock an application that waited, and works slowly, uses what is used at the time that it is.
func TestUseByClock(t *testing.T) {
	for _, byClock := range []bool{false, true} {
		w := small([]workload.Pattern{{1}, {0.25, 0.25, 0.25, 0.25, 1, 1, 1, 1}},
			[]workload.App{{Arrival: 240, Work: 120, First: 0, Groups: 1}},
			workload.Group{Count: 1, CPU: 1, Memory: 4 * gib, CPUUse: flat(0), MemoryUse: workload.Use{Pattern: 1, Step: 60}})
		w.ByClock = byClock
		used := 0.0
		run(t, w, []Host{{CPU: 4, Memory: 4 * gib}}, &greedy{rightsize: func(c *Cluster) {
			if s := c.FirstOf(0); s >= 0 && c.Measured[s] > 0 {
				used = max(used, c.UsedMemory[s]/gib)
			}
		}}, Options{})
		want := 1.0
		if byClock {
			want = 4
		}
		near(t, "most memory used, GiB", used, want)
	}
}

// A core component that is ended takes its application along, whose work is done again; an elastic one takes its own part.
func TestShortMemoryEnds(t *testing.T) {
	// Both grow from 1 to 3 GiB in 120 s of work; the host has 4. At 60 s they hold 2 GiB each, at 120 s 3 GiB: one is ended, the other ends at 200 s,
	// when the one that waited begins again.
	w := small([]workload.Pattern{{1}, {0.25, 0.5, 0.75, 0.75, 0.75, 0.75, 0.75, 0.75}},
		[]workload.App{{Work: 200, First: 0, Groups: 1}, {Work: 200, First: 1, Groups: 1}},
		workload.Group{Count: 1, CPU: 1, Memory: 4 * gib, CPUUse: flat(0), MemoryUse: workload.Use{Pattern: 1, Step: 60}},
		workload.Group{Count: 1, CPU: 1, Memory: 4 * gib, CPUUse: flat(0), MemoryUse: workload.Use{Pattern: 1, Step: 60}})
	r := run(t, w, []Host{{CPU: 4, Memory: 4 * gib}}, &greedy{}, Options{})
	if r.Failed != 0.5 || r.Failures != 1 || r.Kills != 1 || r.MemoryExceeded != 1 {
		t.Fatalf("failed %v, %d failures, %d kills, %d pressed; one application should have failed once", r.Failed, r.Failures, r.Kills, r.MemoryExceeded)
	}
	near(t, "last end", r.Turnaround.Max, 400)
	near(t, "thrash", r.Thrash, 120.0/(120+400))

	// A policy that is asked to free memory on the host does so.
	r = run(t, w, []Host{{CPU: 4, Memory: 4 * gib}}, &greedy{freeMemory: func(c *Cluster, h int32) { c.Requeue(c.App[c.FirstOn(h)]) }}, Options{Until: 3000})
	if r.Failed != 0 || r.Requeues == 0 {
		t.Errorf("failed %v, %d requeues: the policy made room", r.Failed, r.Requeues)
	}

	// Elastic: half of the work is its own. It is ended at 120 s, having contributed 60 s of the 120 s that were done.
	w.Apps = []workload.App{{Work: 200, First: 0, Groups: 2}}
	w.Groups[1].Elastic = true
	once := false
	r = run(t, w, []Host{{CPU: 4, Memory: 8 * gib}}, &greedy{rightsize: func(c *Cluster) {
		if c.Now == 120 && !once {
			once = true
			c.Preempt(c.FirstOf(0))
		}
	}}, Options{})
	if r.Preempted != 1 || r.Requeues != 0 || r.Failures != 0 {
		t.Errorf("%d preempted, %d requeued, %d failed", r.Preempted, r.Requeues, r.Failures)
	}
	near(t, "thrash", r.Thrash, 120.0/(120+400))         // it ran for 120 s, of 400 in all
	near(t, "turnaround", r.Turnaround.Max, 120+140/0.5) // 60 s are left of the first 120 s, the rest at half the speed
}

// A hard limit ends what uses more than its allocation, also where the host has memory.
func TestHardLimit(t *testing.T) {
	w := small([]workload.Pattern{{0.5}}, []workload.App{{Work: 100, Groups: 1}},
		workload.Group{Count: 1, CPU: 1, Memory: 2 * gib, CPUUse: flat(0), MemoryUse: flat(0)})
	shrink := func(c *Cluster) {
		if s := c.FirstOf(0); c.Running() > 0 && c.Now == 60 {
			c.Allocate(s, 1, gib/2)
		}
	}
	r := run(t, w, []Host{{CPU: 4, Memory: 4 * gib}}, &greedy{how: Enforcement{Hard: true}, rightsize: shrink}, Options{})
	if r.Failures != 1 {
		t.Errorf("%d failures; 1 GiB is used and 0.5 GiB allocated", r.Failures)
	}
	r = run(t, w, []Host{{CPU: 4, Memory: 4 * gib}}, &greedy{rightsize: shrink}, Options{})
	if r.Failures != 0 {
		t.Errorf("%d failures; the host has memory", r.Failures)
	}
}

// drawn is any workload whose applications fit the hosts.
func drawn(t *rapid.T) (*workload.Workload, []Host) {
	w := &workload.Workload{Patterns: []workload.Pattern{{1}, {0.5}}}
	for range rapid.IntRange(1, 3).Draw(t, "patterns") {
		w.Patterns = append(w.Patterns, rapid.SliceOfN(rapid.Float32Range(0, 1), 1, 8).Draw(t, "pattern"))
	}
	use := func() workload.Use {
		return workload.Use{Pattern: int32(rapid.IntRange(0, len(w.Patterns)-1).Draw(t, "use")), Step: rapid.Float32Range(1, 300).Draw(t, "step"),
			Offset: rapid.Float32Range(0, 8).Draw(t, "offset"), Spread: rapid.Float32Range(0, 8).Draw(t, "spread")}
	}
	at := 0.0
	for range rapid.IntRange(1, 30).Draw(t, "apps") {
		at += rapid.Float64Range(0, 200).Draw(t, "gap")
		a := workload.App{Arrival: at, Work: rapid.Float64Range(1, 2000).Draw(t, "work"), Priority: int32(rapid.IntRange(0, 2).Draw(t, "priority")),
			First: int32(len(w.Groups)), Groups: 1}
		group := func(elastic bool) {
			w.Groups = append(w.Groups, workload.Group{Count: int32(rapid.IntRange(1, 4).Draw(t, "count")), Elastic: elastic,
				CPU: rapid.Float64Range(0, 2).Draw(t, "cpu"), Memory: rapid.Float64Range(0, 2*gib).Draw(t, "memory"), CPUUse: use(), MemoryUse: use()})
		}
		group(false)
		if rapid.Bool().Draw(t, "elastic") {
			a.Groups++
			group(true)
		}
		w.Apps = append(w.Apps, a)
	}
	return w, []Host{{CPU: 4, Memory: 4 * gib}, {CPU: 4, Memory: 8 * gib}}
}

// watched looks at every instant whether hosts give no more than they have.
type watched struct {
	Policy
	t *rapid.T
}

func (p watched) Schedule(c *Cluster) {
	p.check(c)
	p.Policy.Schedule(c)
}

func (p watched) check(c *Cluster) {
	cpu, memory := make([]float64, len(c.Hosts)), make([]float64, len(c.Hosts))
	for s, app := range c.App {
		if app < 0 {
			continue
		}
		if c.given[s] > c.wants[s]*tolerance {
			p.t.Fatalf("at %v slot %d gets %v cores and wants %v", c.Now, s, c.given[s], c.wants[s])
		}
		cpu[c.On[s]] += c.given[s]
		memory[c.On[s]] += c.gets[s]
	}
	for h := range c.Hosts {
		if cpu[h] > c.Hosts[h].CPU*tolerance {
			p.t.Fatalf("at %v host %d gives %v of %v cores", c.Now, h, cpu[h], c.Hosts[h].CPU)
		}
		if memory[h] > c.Hosts[h].Memory*tolerance {
			p.t.Fatalf("at %v the components on host %d use %v of %v bytes", c.Now, h, memory[h], c.Hosts[h].Memory)
		}
	}
	for a := range c.Workload.Apps {
		if done := c.done[a]; done > c.Workload.Apps[a].Work*tolerance+1e-6 || done < 0 {
			p.t.Fatalf("at %v application %d has done %v of %v", c.Now, a, done, c.Workload.Apps[a].Work)
		}
	}
}

func TestConservation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, hosts := drawn(t)
		var p Policy = &Reservation{}
		if rapid.Bool().Draw(t, "overcommitted") {
			p = &greedy{how: Enforcement{Capped: rapid.Bool().Draw(t, "capped"), Hard: rapid.Bool().Draw(t, "hard")}}
			hosts = []Host{{CPU: 8, Memory: 9 * gib}}
		}
		o := Options{Until: 1e5} // an application that fails again and again is never done
		r, err := Run(w, hosts, watched{p, t}, o)
		if err != nil {
			t.Fatal(err)
		}
		for a, f := range r.PerApp {
			if f.End >= 0 && f.Turnaround < w.Apps[a].Work*(1-1e-9)-1e-6 {
				t.Fatalf("application %d took %v s for %v s of work", a, f.Turnaround, w.Apps[a].Work)
			}
		}
		if _, reserved := p.(*Reservation); reserved && (r.Unfinished > 0 || r.Failures > 0 || r.QoS < 1 || r.Thrash > 0) {
			t.Fatalf("reservation: %d unfinished, %d failures, QoS %v, thrash %v", r.Unfinished, r.Failures, r.QoS, r.Thrash)
		}
		again, err := Run(w, hosts, p, o)
		if err != nil || !reflect.DeepEqual(r.PerApp, again.PerApp) {
			t.Fatalf("the same run came out differently (%v)", err)
		}
	})
}

func TestRanks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 20000).Draw(t, "size")
		r, in := newRanks(size), map[int32]bool{}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			i := int32(rapid.IntRange(0, size-1).Draw(t, "i"))
			if rapid.Bool().Draw(t, "add") {
				r.add(i)
				in[i] = true
			} else {
				r.remove(i)
				delete(in, i)
			}
		}
		n := 0
		last := int32(-1)
		for i := r.from(0); i >= 0; i = r.from(i + 1) {
			if !in[i] || i <= last {
				t.Fatalf("%d after %d", i, last)
			}
			last = i
			n++
		}
		if n != len(in) || r.n != n {
			t.Fatalf("%d found, %d counted, %d there", n, r.n, len(in))
		}
	})
}
