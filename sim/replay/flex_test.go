package replay

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/forecast"
	"evenkeel/sim/flex"
	"evenkeel/sim/workload"
)

var rewriteFlex = flag.Bool("rewrite-flex", false, "write what TestFlexGolden finds as what is expected")

func must(t *testing.T, p *Placer, err error) *Placer {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// one is an application of one component that uses so much of its request: pattern k.
func one(w *workload.Workload, arrival, work, cpu, memory float64, pattern, source int32) {
	w.Apps = append(w.Apps, workload.App{Arrival: arrival, Work: work, Source: source, First: int32(len(w.Groups)), Groups: 1})
	w.Groups = append(w.Groups, workload.Group{Count: 1, CPU: cpu, Memory: memory, CPUUse: flat(pattern), MemoryUse: flat(pattern)})
}

// Of a host of 10 cores the first task asks for 8. The second asks for 6 a minute later, and tries after 0, 60, 180, 420, 900, 1860, 3660 s. With
// the first using 2.5 cores 1.5*2.5 + 6 fit at once; with 4, 1.5*4 + 6 do not, and P*4 + 6 do once P is 1: after 41 updates by 1%, the
// second try after which is at 3720 s. With Pmin = 1.01 they never do; by request never, and oversubscribed by 1.4 at once.
func TestAdmissionByHand(t *testing.T) {
	over, err := OverSub(1.4)
	over = must(t, over, err)
	flexF := func(p forecast.MarginSettings) *Placer {
		x, err := FlexPolicy(flex.FirstCome, p, 1)
		return must(t, x, err)
	}
	gets := forecast.FlexPenalty
	gets.Min = 1.01
	for _, c := range []struct {
		name  string
		p     *Placer
		use   float32
		start float64 // of the second; -1: never
	}{
		{"LeastFit", LeastFit(), 0.25, -1},
		{"OverSub(1.4)", over, 0.25, 60},
		{"Flex, little used", flexF(forecast.FlexPenalty), 0.25, 60},
		{"Flex, half used", flexF(forecast.FlexPenalty), 0.5, 3720},
		{"Flex, half used, Pmin 1.01", flexF(gets), 0.5, -1},
	} {
		w := &workload.Workload{Patterns: []workload.Pattern{{c.use}, {0.1}}}
		one(w, 0, 1e6, 8, 8*gib, 0, 0)
		one(w, 60, 1e6, 6, 6*gib, 1, 1)
		r := run(t, w, []Host{{10, 10 * gib}}, c.p, Options{Until: 7200})
		if r.PerApp[1].Start != c.start {
			t.Errorf("%s: the second starts at %v s, not %v", c.name, r.PerApp[1].Start, c.start)
		}
	}
}

// Three hosts, and three tasks of one source that each fit anywhere: without a charge the emptiest host by load takes them all, with one
// they part. The hosts are uneven by tasks of others.
func TestSourcesPart(t *testing.T) {
	for _, charge := range []float64{0, 1} {
		w := &workload.Workload{Patterns: []workload.Pattern{{1}}}
		one(w, 0, 1e5, 4, gib, 0, 0)
		one(w, 1, 1e5, 5, gib, 0, 1)
		one(w, 2, 1e5, 0.5, gib, 0, 2)
		for i := range 3 {
			one(w, 70+float64(i), 1e5, 0.5, gib/4, 0, 7)
		}
		p, err := Steady(forecast.QualityPenalty, charge, 0, OffloadSettings{})
		p = must(t, p, err)
		var on []int32
		spy := &observed{Policy: p, after: func(c *Cluster) {
			on = on[:0]
			for s, app := range c.App {
				if app >= 3 {
					on = append(on, c.On[s])
				}
			}
		}}
		run(t, w, []Host{{10, 10 * gib}, {10, 10 * gib}, {10, 10 * gib}}, spy, Options{Until: 600})
		slices.Sort(on)
		parted := len(slices.Compact(on)) == 3
		if parted != (charge > 0) {
			t.Errorf("charge %v: on hosts %v", charge, on)
		}
	}
}

// observed calls after each Schedule of a policy.
type observed struct {
	Policy
	after func(c *Cluster)
}

func (w *observed) Schedule(c *Cluster) {
	w.Policy.Schedule(c)
	w.after(c)
}

// On hosts that share memory a shortage ends no task, and counts as missed: two tasks that asked for 3 GiB each and use them on 4 GiB get 2 each.
func TestPagedByHand(t *testing.T) {
	w := &workload.Workload{Patterns: []workload.Pattern{{1}, {0.5}}}
	one(w, 0, 600, 1, 3*gib, 0, 0)
	one(w, 0, 600, 1, 3*gib, 0, 1)
	one(w, 1200, 600, 1, 3*gib, 1, 2) // alone later on
	p, err := OverSub(2)
	p = must(t, p, err)
	r := run(t, w, []Host{{4, 4 * gib}}, p, Options{})
	if r.Failures != 0 || r.Unfinished != 0 {
		t.Errorf("%d failures, %d unfinished", r.Failures, r.Unfinished)
	}
	near(t, "turnaround", r.Turnaround.Max, 600)
	missed, seen := 0, 0
	for _, tick := range p.Ticks() {
		if tick.Quality == 0 {
			missed++
			near(t, "memory used", tick.Used[flex.Memory], 1)
			near(t, "crowded hosts", float64(tick.CrowdedMemory), 1)
		} else if tick.Quality == 1 {
			seen++
		}
	}
	if missed < 9 || seen < 9 {
		t.Errorf("quality is 0 in %d minutes and 1 in %d", missed, seen)
	}
	killing, err := OverSub(2)
	killing = must(t, killing, err).Killing()
	if r := run(t, w, []Host{{4, 4 * gib}}, killing, Options{}); r.Failures == 0 {
		t.Error("no task ends where memory is not shared")
	}
}

// From a host above its mark moves the component that sends the fewest bytes of those that are enough, to the emptiest host.
func TestOffloadByHand(t *testing.T) {
	p, err := Steady(forecast.QualityPenalty, 0, 0, OffloadSettings{Above: 0.8, Below: 0.8, MinResidency: 10, MaxPerTick: 1})
	p = must(t, p, err)
	// The first takes the first host and soon ends; the others have room on the second only, of whose CPU they use 89% after ten minutes. Any of
	// them is enough; the second of them has the least memory.
	w := &workload.Workload{Patterns: []workload.Pattern{{0.05, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9}}}
	rising := func(work, cpu, memory float64, source int32) {
		one(w, 0, work, cpu, memory, 0, source)
		u := workload.Use{Step: 600}
		w.Groups[len(w.Groups)-1].CPUUse, w.Groups[len(w.Groups)-1].MemoryUse = u, u
	}
	rising(300, 9, gib, 3)
	rising(3000, 4, 2*gib, 0)
	rising(3000, 3, 1*gib, 1)
	rising(3000, 2.9, 3*gib, 2)
	r := run(t, w, []Host{{10, 10 * gib}, {10, 10 * gib}}, p, Options{Until: 1200})
	if r.Moves != 1 || r.BytesMoved < 0.7*gib || r.BytesMoved > 0.91*gib {
		t.Errorf("%d moves of %v GiB", r.Moves, r.BytesMoved/gib)
	}
	for _, tick := range p.Ticks() {
		if tick.CrowdedCPU > 0 {
			t.Errorf("CPU is short at %v s", tick.Time)
		}
	}
	for _, bad := range []OffloadSettings{{Above: 0.9}, {Above: 0.9, Below: 0.95, MaxPerTick: 1}, {Above: 1.2, Below: 0.9, MaxPerTick: 1}, {Above: 0.9, Below: 0.8, MinResidency: -1, MaxPerTick: 1}} {
		if _, err := Steady(forecast.QualityPenalty, 0, 0, bad); err == nil {
			t.Errorf("taken: %+v", bad)
		}
	}
}

// randomDay is a few tasks of all kinds, some of several components.
func randomDay(t *rapid.T) (*workload.Workload, []Host) {
	w := &workload.Workload{Patterns: []workload.Pattern{{0.2, 1.4, 0.6}, {0.5}, {1, 0.1}}}
	at := 0.0
	for range rapid.IntRange(1, 25).Draw(t, "apps") {
		at += rapid.Float64Range(0, 200).Draw(t, "gap")
		one(w, at, rapid.Float64Range(1, 3000).Draw(t, "work"), rapid.Float64Range(0.1, 4).Draw(t, "cpu"), rapid.Float64Range(0.1, 4).Draw(t, "GiB")*gib,
			rapid.Int32Range(0, 2).Draw(t, "pattern"), rapid.Int32Range(0, 3).Draw(t, "source"))
		g := &w.Groups[len(w.Groups)-1]
		g.Count = rapid.Int32Range(1, 3).Draw(t, "count")
		g.CPUUse.Step, g.MemoryUse.Step = 200, 300
	}
	hosts := make([]Host, rapid.IntRange(4, 7).Draw(t, "hosts"))
	for h := range hosts {
		hosts[h] = Host{CPU: 8, Memory: 8 * gib}
	}
	return w, hosts
}

// The requests that run on a host never exceed theta times its capacity, quality is 1 where theta is 1, reported sums add up, and every task
// is done in the end: none starves. Equal inputs give equal results.
func TestPlacerLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, hosts := randomDay(t)
		theta := rapid.SampledFrom([]float64{1, 1.5, 2}).Draw(t, "theta")
		make := func() *Placer {
			p, err := OverSub(theta)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		p := make()
		spy := &observed{Policy: p, after: func(c *Cluster) {
			for h := range c.Hosts {
				if c.AllocatedCPU[h] > theta*c.Hosts[h].CPU*(1+1e-6) || c.AllocatedMemory[h] > theta*c.Hosts[h].Memory*(1+1e-6) {
					t.Fatalf("host %d is asked for %v cores and %v bytes", h, c.AllocatedCPU[h], c.AllocatedMemory[h])
				}
			}
		}}
		r, err := Run(w, hosts, spy, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Unfinished != 0 {
			t.Fatalf("%d never end", r.Unfinished)
		}
		for _, tick := range p.Ticks() {
			if theta == 1 && !math.IsNaN(tick.Quality) && tick.Quality != 1 {
				t.Fatalf("quality %v with all requests reserved", tick.Quality)
			}
			if tick.Started < 0 || tick.Started > len(w.Apps) || tick.Used[flex.Memory] > 1+1e-9 || tick.Used[flex.CPU] > 1+1e-9 {
				t.Fatalf("%+v", tick)
			}
		}
		again := make()
		if r2, err := Run(w, hosts, again, Options{}); err != nil || !reflect.DeepEqual(r, r2) || fmt.Sprint(p.Ticks()) != fmt.Sprint(again.Ticks()) {
			t.Fatalf("a second run differs: %v", err)
		}
	})
}

// The same of Flex and of Evenkeel with its moves: all is done in the end, all components of an application start together, and nothing moves twice
// within its grace.
func TestFlexLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, hosts := randomDay(t)
		for _, p := range []*Placer{EvenkeelPlacer(), func() *Placer {
			x, err := FlexPolicy(rapid.SampledFrom([]flex.Order{flex.FirstCome, flex.LargestMemory}).Draw(t, "order"), forecast.FlexPenalty, 1)
			if err != nil {
				t.Fatal(err)
			}
			return x
		}()} {
			type where struct {
				host  int32
				tick  int
				moved bool
			}
			last := map[[2]uint32]where{}
			spy := &observed{Policy: p, after: func(c *Cluster) {
				for s, app := range c.App {
					if app < 0 {
						continue
					}
					if got := c.Components[app]; got != w.Of(int(app))[0].Count {
						t.Fatalf("application %d runs with %d components", app, got)
					}
					key := [2]uint32{uint32(s), c.Born[s]}
					was, known := last[key]
					switch {
					case !known:
						last[key] = where{c.On[s], c.Ticks, false}
					case was.host != c.On[s]:
						if was.moved && c.Ticks-was.tick < p.offload.MinResidency {
							t.Fatalf("slot %d moves again after %d ticks", s, c.Ticks-was.tick)
						}
						last[key] = where{c.On[s], c.Ticks, true}
					}
				}
			}}
			r, err := Run(w, hosts, spy, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if r.Unfinished != 0 {
				t.Fatalf("%s: %d never end", p.Name(), r.Unfinished)
			}
		}
	})
}

func TestPoliciesRefuse(t *testing.T) {
	bad := forecast.FlexPenalty
	bad.Decay = 2
	for name, f := range map[string]func() (*Placer, error){
		"no oversubscription": func() (*Placer, error) { return OverSub(0) },
		"a bad penalty":       func() (*Placer, error) { return FlexPolicy(flex.FirstCome, bad, 1) },
		"a bad order":         func() (*Placer, error) { return FlexPolicy(7, forecast.FlexPenalty, 1) },
		"no updates":          func() (*Placer, error) { return FlexPolicy(flex.FirstCome, forecast.FlexPenalty, 0) },
		"a bad charge":        func() (*Placer, error) { return Steady(forecast.QualityPenalty, -1, 0, OffloadSettings{}) },
		"Steady, bad penalty": func() (*Placer, error) { return Steady(bad, 0, 0, OffloadSettings{}) },
		"no damping":          func() (*Placer, error) { return Ha(1, 1, 0) },
		"nothing allowed":     func() (*Placer, error) { return HaReservation(0, 1) },
		"no memory allowed":   func() (*Placer, error) { return HaEvenkeel(1, math.NaN()) },
	} {
		if _, err := f(); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if err := EvenkeelPlacer().check(); err != nil {
		t.Error(err)
	}
}

// A tiny day under every policy of Flex, to the digit.
func TestFlexGolden(t *testing.T) {
	w, err := workload.Flex{Nodes: 12}.Draw(5)
	if err != nil {
		t.Fatal(err)
	}
	over, err := OverSub(2)
	over = must(t, over, err)
	flexF, err := FlexPolicy(flex.FirstCome, forecast.FlexPenalty, 1)
	flexF = must(t, flexF, err)
	flexL, err := FlexPolicy(flex.LargestMemory, forecast.QualityPenalty, 1)
	flexL = must(t, flexL, err)
	var b bytes.Buffer
	for _, p := range []*Placer{LeastFit(), over, flexF, flexL, EvenkeelPlacer()} {
		r := run(t, w, slices.Repeat([]Host{{workload.FlexNodeCPU, workload.FlexNodeMemory}}, 12), p, Options{Until: 6 * 3600})
		fmt.Fprintf(&b, "%s: QoS %.6f, used %.6f %.6f, moves %d\n", p.Name(), r.QoS, r.UsedCPU, r.UsedMemory, r.Moves)
		for _, tick := range p.Ticks() {
			if int(tick.Time)%3600 == 0 {
				fmt.Fprintf(&b, "  %5.0f s: P %.4f, asked %.4f %.4f, used %.4f %.4f, quality %.4f, uneven %.4f %.4f, started %d, waiting %d\n", tick.Time, tick.Penalty,
					tick.Asked[flex.CPU], tick.Asked[flex.Memory], tick.Used[flex.CPU], tick.Used[flex.Memory], tick.Quality, tick.Uneven[flex.CPU], tick.Uneven[flex.Memory], tick.Started, tick.Waiting)
			}
		}
	}
	name := filepath.Join("testdata", "flex.golden")
	if *rewriteFlex {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, b.Bytes()) {
		t.Errorf("got\n%s\nwant\n%s\n(go test ./sim/replay -run TestFlexGolden -rewrite-flex writes it again)", b.Bytes(), want)
	}
}

// On an overloaded host the components that get less than owed are those of the paper's three cases of weighted fair share: of CPU, which the engine divides
// by itself, and of memory.
func TestQualityIsThatOfFairShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "tasks")
		w := &workload.Workload{}
		var request, demand [2][]float64
		for i := range n {
			var r, d [2]float64
			for k := range r {
				r[k] = float64(rapid.IntRange(1, 16).Draw(t, "request")) / 4
				d[k] = float64(rapid.IntRange(0, 24).Draw(t, "demand")) / 4
				request[k], demand[k] = append(request[k], r[k]), append(demand[k], d[k])
				w.Patterns = append(w.Patterns, workload.Pattern{float32(d[k] / r[k])})
			}
			one(w, 0, 1e9, r[0], r[1]*gib, int32(2*i), int32(i))
			w.Groups[i].MemoryUse.Pattern++
		}
		capacity := [2]float64{8.1234567, 8.1234567} // of which no share is one of quarters, so that rounding decides nothing
		missed := make([]bool, n)
		for k := range capacity {
			for j, given := range flex.Share(capacity[k], request[k], demand[k], make([]float64, n)) {
				missed[j] = missed[j] || given < flex.Owed(request[k][j], demand[k][j])*(1-1e-5)
			}
		}
		want := 1.0
		for _, m := range missed {
			if m {
				want -= 1 / float64(n)
			}
		}
		p, err := OverSub(1000)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Run(w, []Host{{capacity[0], capacity[1] * gib}}, p, Options{Until: 300}); err != nil {
			t.Fatal(err)
		}
		last := p.Ticks()[len(p.Ticks())-1]
		if math.Abs(last.Quality-want) > 1e-9 {
			t.Fatalf("quality %v, by fair share %v: requests %v, demands %v", last.Quality, want, request, demand)
		}
	})
}
