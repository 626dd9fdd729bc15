package workload

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"evenkeel/sim/trace"
)

var nan = math.NaN()

// vmSeries are the series of one VM of Bitbrains, in steps of 5 minutes.
func vmSeries(vm string, begin time.Duration, cpu, memory []float64) []trace.Series {
	at := time.Date(2013, 7, 1, 0, 0, 0, 0, time.UTC).Add(begin)
	return []trace.Series{
		{Set: string(trace.Bitbrains), VM: vm, Resource: trace.CPU, Step: 5 * time.Minute, Start: at, Values: cpu, Limit: 5200},
		{Set: string(trace.Bitbrains), VM: vm, Resource: trace.Memory, Step: 5 * time.Minute, Start: at, Values: memory, Limit: 1 << 20},
	}
}

func values(n int, v float64) []float64 { return slices.Repeat([]float64{v}, n) }

// A VM asks for what it had, uses what was measured when it was measured, and is there from the first measurement to the last.
func TestMeasuredByHand(t *testing.T) {
	long := slices.Concat([]float64{nan, nan}, values(10, 1300), values(20, nan), values(20, 10400)) // off for 100 minutes; then twice of what it has
	short := slices.Concat(values(12, 2600), values(40, nan))
	series := slices.Concat(vmSeries("long", 0, long, values(52, 1<<19)), vmSeries("short", 0, short, values(52, 1<<21)))
	w, span, notes, err := Measured(series, Cut{Hosts: []Room{{8, 8 << 30}}})
	if err != nil || len(notes) != 0 || span != 52*300 || len(w.Apps) != 2 {
		t.Fatalf("%v, %v, %v s, %+v", err, notes, span, w)
	}
	if w.Apps[0].Arrival != 0 || w.Apps[0].Work != 12*300 {
		t.Errorf("the short one: %+v", w.Apps[0])
	}
	if w.Apps[1].Arrival != 600 || w.Apps[1].Work < 10*span {
		t.Errorf("the long one comes when it is measured and outlasts the record: %+v", w.Apps[1])
	}
	g := w.Of(1)[0]
	if g.CPU != 2 || g.Memory != 1<<30 {
		t.Errorf("it asks for %v cores and %v bytes", g.CPU, g.Memory)
	}
	cpu, memory := w.Patterns[g.CPUUse.Pattern], w.Patterns[g.MemoryUse.Pattern]
	for i, want := range slices.Concat(values(10, 0.25), values(20, 0), values(20, 2)) {
		if math.Abs(cpu.At(float64(i))-want) > 1e-6 {
			t.Errorf("value %d is %v, not %v", i, cpu.At(float64(i)), want)
		}
	}
	if memory.At(3) != 0.5 || w.Patterns[w.Of(0)[0].MemoryUse.Pattern].At(3) != 1 {
		t.Error("memory is a share of what there was, and never more")
	}

	// From the second hour on there is only the long one, further on in its history.
	w, span, _, err = Measured(series, Cut{Hosts: []Room{{8, 8 << 30}}, From: 3600, Span: 1800})
	if err != nil || span != 1800 || len(w.Apps) != 1 || w.Apps[0].Arrival != 0 || w.Groups[0].CPUUse.Offset != 10 {
		t.Errorf("%v: %+v", err, w)
	}
	if _, _, _, err = Measured(series, Cut{Hosts: []Room{{8, 8 << 30}}, From: 1e6}); err == nil {
		t.Error("nothing is left, and no note says so")
	}
	if _, _, _, err = Measured(series, Cut{Hosts: []Room{{1, 8 << 30}}}); err == nil {
		t.Error("nothing fits, and no note says so")
	}
}

// Sizes and memory that the set does not have are drawn, and notes say so.
// By the record's clock every VM, a copy too, is at each time where its record was then.
func TestMeasuredByClock(t *testing.T) {
	ramp := make([]float64, 100)
	for i := range ramp {
		ramp[i] = 26 * float64(i)
	}
	series := slices.Concat(vmSeries("a", 0, ramp, values(100, 1<<19)), vmSeries("b", 2*time.Hour, ramp[:60], values(60, 1<<19)))
	for _, poisson := range []bool{false, true} {
		const from = 3000
		w, span, _, err := Measured(series, Cut{Hosts: []Room{{8, 64 << 30}}, From: from, Load: 2, Seed: 3, Poisson: poisson, ByClock: true})
		if err != nil || !w.ByClock || len(w.Apps) < 4 {
			t.Fatalf("%v: %d applications", err, len(w.Apps))
		}
		for i, a := range w.Apps {
			use := w.Of(i)[0].CPUUse
			begin := []float64{0, 2 * 3600}[a.Source]
			for at := begin - from; at < begin-from+50*300; at += 300 {
				if at < 0 || at > span {
					continue
				}
				want := (from + at - begin) / 300 * 26 / 5200
				if got := w.Patterns[use.Pattern].At(float64(use.Offset) + at/float64(use.Step)); math.Abs(got-want) > 1e-6 {
					t.Fatalf("Poisson arrivals %v: VM %d of the record uses %v of its CPU at %v s, not %v", poisson, a.Source, got, at, want)
				}
			}
		}
	}
}

func TestMeasuredPercents(t *testing.T) {
	series := []trace.Series{{Set: string(trace.PlanetLab), VM: "a", Resource: trace.CPU, Step: 5 * time.Minute, Values: values(288, 30), Limit: 100}}
	w, _, notes, err := Measured(series, Cut{Hosts: []Room{{8, 64 << 30}}})
	if err != nil || len(notes) != 2 || !strings.Contains(notes[0], "sizes of VMs are drawn") || !strings.Contains(notes[1], "memory use is drawn") {
		t.Fatalf("%v: %q", err, notes)
	}
	if p := w.Patterns[w.Groups[0].CPUUse.Pattern]; math.Abs(p.Mean()-0.3) > 1e-6 {
		t.Errorf("it uses %v of its CPU", p.Mean())
	}
}

// With a load there are as many VMs as it takes; with Poisson arrivals too, and they come and go.
func TestMeasuredLoad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var series []trace.Series
		for i := range rapid.IntRange(1, 5).Draw(t, "vms") {
			series = append(series, vmSeries(string(rune('a'+i)), 0, values(100, 1000), values(100, 1<<19))...)
		}
		c := Cut{Hosts: slices.Repeat([]Room{{16, 64 << 30}}, rapid.IntRange(1, 4).Draw(t, "hosts")), Load: rapid.Float64Range(0.2, 3).Draw(t, "load"),
			Seed: rapid.Uint64().Draw(t, "seed"), Poisson: rapid.Bool().Draw(t, "poisson")}
		w, span, _, err := Measured(series, c)
		if err != nil {
			t.Fatal(err)
		}
		cpu := 0.0
		one := 0.0
		for i, a := range w.Apps {
			part := min(a.Work, span-a.Arrival) / span * w.Of(i)[0].CPU / 16 / float64(len(c.Hosts))
			cpu += part
			one = max(one, part)
		}
		if !(cpu >= c.Load-1e-9 && cpu <= c.Load+one+1e-9) {
			t.Fatalf("%d VMs ask for %v times what there is, not %v", len(w.Apps), cpu, c.Load)
		}
		again, _, _, err := Measured(series, c)
		if err != nil || !reflect.DeepEqual(w, again) {
			t.Fatalf("the same seed draws another workload (%v)", err)
		}
	})
}

func TestRequestedByHand(t *testing.T) {
	requests := []trace.Request{
		{Batch: 7, Submit: 100, Run: 600, CPU: 2, Memory: 4 << 30},
		{Batch: 7, Submit: 100, Run: 5000, Censored: true, CPU: 1, Memory: 1 << 30},
		{Batch: 8, Submit: 900, Run: nan, CPU: 1, Memory: 1 << 30},
		{Batch: 9, Submit: 1000, Run: 50, CPU: 99, Memory: 1 << 30, GPUs: 1},
		{Batch: 9, Submit: 9000, Run: 50, CPU: 1, Memory: 1 << 30},
	}
	w, span, notes, err := Requested(requests, FullUse(), Cut{Hosts: []Room{{8, 8 << 30}}, From: 50, Span: 2000})
	if err != nil || span != 2000 || len(w.Apps) != 2 {
		t.Fatalf("%v, %v s, %+v", err, span, w)
	}
	if a := w.Apps[0]; a.Arrival != 50 || a.Work != 600 || a.Source != 7 || w.Groups[0].CPU != 2 || w.Groups[0].Memory != 4<<30 {
		t.Errorf("%+v, %+v", a, w.Groups[0])
	}
	if w.Apps[1].Work < 10*span {
		t.Errorf("it ran when the record ended: %+v", w.Apps[1])
	}
	if all := strings.Join(notes, "; "); !strings.Contains(all, "1 of 4 were never placed") || !strings.Contains(all, "1 of 3 VMs would not fit") || !strings.Contains(all, "GPUs of 1") {
		t.Error(all)
	}
	// Where the record has no lengths of lives, lives are drawn.
	for i := range requests {
		requests[i].Run, requests[i].Censored = nan, false
	}
	w, _, notes, err = Requested(requests, FullUse(), Cut{Hosts: []Room{{8, 8 << 30}}, Span: 2000, Load: 5})
	if all := strings.Join(notes, "; "); err != nil || len(w.Apps) != 3 || !strings.Contains(all, "lives are drawn") || !strings.Contains(all, "no more") {
		t.Errorf("%v: %+v, %s", err, w, all)
	}
}

// A load or a number draws from the record, and arrivals stay.
func TestRequestedLoad(t *testing.T) {
	use := ServiceUses(1)
	rapid.Check(t, func(t *rapid.T) {
		var requests []trace.Request
		at := map[float64]bool{}
		for i := range 200 {
			requests = append(requests, trace.Request{Batch: i, Submit: float64(i) * 10, Run: 1000, CPU: 1, Memory: 1 << 30})
			at[float64(i)*10] = true
		}
		c := Cut{Hosts: []Room{{10, 1 << 40}}, Span: 2000, Load: rapid.Float64Range(0, 3).Draw(t, "load"), Apps: rapid.IntRange(0, 300).Draw(t, "apps"), Seed: rapid.Uint64().Draw(t, "seed")}
		w, span, _, err := Requested(requests, use, c)
		if err != nil {
			t.Fatal(err)
		}
		got := 0.0
		for _, a := range w.Apps {
			if !at[a.Arrival] {
				t.Fatalf("an arrival at %v", a.Arrival)
			}
			got += min(a.Work, span-a.Arrival) / span / 10
		}
		there := 0.0
		for a := range at {
			there += min(1000, span-a) / span / 10
		}
		switch {
		case c.Apps > 0 && len(w.Apps) != min(c.Apps, 200):
			t.Fatalf("%d VMs, not %d", len(w.Apps), c.Apps)
		case c.Apps == 0 && c.Load == 0 && len(w.Apps) != 200:
			t.Fatalf("%d of 200", len(w.Apps))
		case c.Apps == 0 && c.Load > 0 && !(got >= min(c.Load, there)-1e-9 && got <= c.Load+0.051):
			t.Fatalf("a load of %v, not %v", got, c.Load)
		}
	})
}

func TestParallel(t *testing.T) {
	hosts := []Room{{4, 16 << 30}, {4, 16 << 30}}
	jobs := []trace.ParallelJob{{Submit: 100, Run: 50, Processors: 6, Memory: 1 << 30}, {Submit: 300, Run: 400, Processors: 1}, {Submit: 400, Run: 400, Processors: 9}}
	w, span, notes, err := ParallelLog(jobs, FullUse(), Cut{Hosts: hosts, From: 100, Span: 1000})
	if err != nil || span != 1000 || len(w.Apps) != 2 {
		t.Fatalf("%v, %v s, %+v", err, span, w)
	}
	if g := w.Groups[0]; w.Apps[0].Arrival != 0 || w.Apps[0].Work != 50 || g.Count != 6 || g.CPU != 1 || g.Memory != 1<<30 || g.Elastic {
		t.Errorf("%+v, %+v", w.Apps[0], g)
	}
	if m := w.Groups[1].Memory; !(m >= 0.4*(1<<30)-1 && m <= 4<<30) {
		t.Errorf("memory is drawn as %v bytes, of a core's 4 GiB", m)
	}
	if all := strings.Join(notes, "; "); !strings.Contains(all, "memory of 2 of 3 jobs is drawn") || !strings.Contains(all, "1 of 3 jobs would not fit") {
		t.Error(all)
	}
	if _, _, _, err := ParallelLog(jobs, FullUse(), Cut{Hosts: hosts, From: 5000}); err == nil {
		t.Error("no jobs, and no note says so")
	}

	// Drawn jobs with a load.
	drawn, err := NewLublin(16).Draw(3, 200)
	if err != nil {
		t.Fatal(err)
	}
	DrawNeeds(3, drawn)
	c := Cut{Hosts: slices.Repeat([]Room{{4, 16 << 30}}, 16), Load: 0.8}
	w, span, _, err = ParallelJobs(drawn, BatchUses(1), c)
	if err != nil || len(w.Apps) != 200 {
		t.Fatalf("%v", err)
	}
	var cpu, memory float64
	for i, a := range w.Apps {
		g := w.Of(i)[0]
		cpu += a.Work * float64(g.Count) * g.CPU / (16 * 4)
		memory += a.Work * float64(g.Count) * g.Memory / (16 * 16 * (1 << 30))
	}
	if got := max(cpu, memory) / span; math.Abs(got-0.8) > 0.001 {
		t.Errorf("the load is %v", got)
	}
}

// What is stated of drawn VMs holds of the draw.
func TestServiceUses(t *testing.T) {
	u := ServiceUses(5)
	low, calm := 0, 0
	for _, p := range u.Of {
		cpu := slices.Clone(u.Patterns[p.CPU])
		if cpu.Mean() < 0.2 {
			low++
		}
		slices.Sort(cpu)
		if cpu[len(cpu)*95/100] < 0.5 {
			calm++
		}
		for _, v := range u.Patterns[p.Memory] {
			if !(v > 0.1 && v <= 1) {
				t.Fatalf("memory of %v of the request", v)
			}
		}
	}
	n := float64(len(u.Of))
	if share := float64(low) / n; !(share > 0.52 && share < 0.68) {
		t.Errorf("%.0f%% use less than 20%% of their CPU on average, 60%% are stated", 100*share)
	}
	t.Logf("%.0f%% use less than 50%% at their 95th percentile", 100*float64(calm)/n)
	if share := float64(calm) / n; !(share > 0.4) {
		t.Errorf("%.0f%% use less than 50%% at their 95th percentile: at least 40%% are stated", 100*share)
	}
}

func TestMeasuredUses(t *testing.T) {
	series := slices.Concat(vmSeries("a", 0, values(20, 520), values(20, 1<<18)), vmSeries("b", 0, values(30, 2600), values(30, 1<<19)))
	u, err := MeasuredUses(series, 1)
	if err != nil || len(u.Of) != 2 || u.Step != 300 {
		t.Fatalf("%+v, %v", u, err)
	}
	if c, m := u.Patterns[u.Of[0].CPU].Mean(), u.Patterns[u.Of[0].Memory].Mean(); math.Abs(c-0.1) > 1e-6 || math.Abs(m-0.25) > 1e-6 {
		t.Errorf("%v of the CPU, %v of the memory", c, m)
	}
	a := ask{count: 1, life: 100}
	u.give(rand.New(rand.NewPCG(1, 1)), &a)
	if a.cpuUse.Offset != a.memoryUse.Offset || a.cpuUse.Step != 300 {
		t.Errorf("%+v", a)
	}
	series[2].Step = time.Minute
	if _, err := MeasuredUses(series, 1); err == nil {
		t.Error("two steps, and no note says so")
	}
}
