package agent

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"evenkeel/cluster/history"
	"evenkeel/hypervisor"
)

// loaded is a host of 8 cores and 16 GiB, of which 7 and 14 may be used, and its load.
type loaded struct {
	t      *testing.T
	load   hostLoad
	now    time.Time
	m      machine
	listed map[string]hypervisor.VM
	use    map[string]float64 // cores
	memory map[string]int64   // in use, bytes; below 0: the guest does not report it
}

const (
	testStep = time.Minute
	giga     = int64(1) << 30
)

func newLoaded(t *testing.T) *loaded {
	return &loaded{t: t, load: newHostLoad(nil), now: time.Unix(1_800_000_000, 0), listed: map[string]hypervisor.VM{}, use: map[string]float64{}, memory: map[string]int64{},
		m: machine{capacity: hypervisor.Capacity{CPU: 8, Memory: 16 * giga}, allowance: Limits{CPU: 7, Memory: 14 * giga}}}
}

func (w *loaded) run(id string, generation uint64, cores float64, memory int64) {
	w.listed[id] = hypervisor.VM{Identity: hypervisor.Identity{VM: id, Generation: generation}, VCPUs: int(math.Ceil(cores)), Memory: memory, Balloon: memory,
		CPU: hypervisor.CPU{Cap: cores}, State: hypervisor.Running}
}

// minutes pass, with a look every ten seconds.
func (w *loaded) minutes(n int) *Available {
	for range 6 * n {
		w.now = w.now.Add(testStep / 6)
		w.look()
	}
	return w.load.available
}

func (w *loaded) look() {
	var stats []hypervisor.Stats
	for _, id := range slices.Sorted(maps.Keys(w.listed)) {
		vm := w.listed[id]
		s := hypervisor.Stats{Identity: vm.Identity, Balloon: vm.Balloon, Available: vm.Balloon - w.memory[id]}
		if w.memory[id] < 0 {
			s.Available = hypervisor.Unknown
		}
		stats = append(stats, s)
	}
	w.load.measure(stats, w.use, w.listed, w.m, w.now, testStep)
}

func (w *loaded) is(what string, cpu float64, memory float64) {
	w.t.Helper()
	a := w.load.available
	if a == nil {
		w.t.Fatalf("%s: no word", what)
	}
	if math.Abs(a.Available.CPU-cpu) > 1e-6 || math.Abs(float64(a.Available.Memory)/float64(giga)-memory) > 1e-6 {
		w.t.Errorf("%s: %.6f cores and %.6f GiB are available, want %.6f and %.6f\n%+v", what, a.Available.CPU, float64(a.Available.Memory)/float64(giga), cpu, memory, *a)
	}
}

// The lesser of eq. 5 and 6: what is asked for counts at first, use the more the longer it is seen, and a peak at once and for a while.
func TestAvailable(t *testing.T) {
	w := newLoaded(t)
	w.look()
	if w.load.available != nil {
		t.Fatal("a word before anything was seen for a step")
	}
	w.minutes(1)
	w.is("an empty host", 7, 14)

	w.run("a", 1, 4, 8*giga)
	w.use["a"], w.memory["a"] = 1, giga
	w.minutes(1)
	// E = 7/8 R + 1/8 U (eq. 1, 2): 3.625 cores and 7.125 GiB; what is allowed less use is more (eq. 5: 6 and 13).
	w.is("one that is new", 8-3.625, 16-7.125)
	if a := w.load.available; a.Used != (Limits{CPU: 1, Memory: giga}) || !maps.Equal(a.VMs, map[string]uint64{"a": 1}) || a.Estimated.CPU != 3.625 {
		t.Errorf("%+v", *a)
	}
	w.minutes(60)
	e := 1 + 3*math.Pow(0.875, 61)
	w.is("an hour later", min(6, 8-e), min(12.9, 16-(1+7*math.Pow(0.875, 61)))) // a tenth more than it used in a day is kept

	// A peak counts at once (eq. 3), and is remembered. Of CPU the mean of a step counts, of memory the most.
	w.use["a"], w.memory["a"] = 3, 6*giga
	w.look()
	w.use["a"], w.memory["a"] = 1, giga
	w.minutes(1)
	if a := w.load.available; a.Used.Memory != 6*giga || a.Used.CPU > 1.5 {
		t.Errorf("a peak of 10 s: %+v", *a)
	}
	w.minutes(1)
	if a := w.load.available; a.Used.Memory != giga || a.Estimated.Memory != int64(0.875*6*float64(giga)+0.125*float64(giga)) {
		t.Errorf("a minute after a peak: %+v", *a)
	}

	// What is gone is gone at once, and so is what it used.
	delete(w.listed, "a")
	w.look()
	if a := w.load.available; len(a.VMs) != 0 || a.Estimated != (Limits{}) {
		t.Errorf("one that is gone: %+v", *a)
	}
	w.minutes(1)
	w.is("after it", 7, 14)
}

func TestAvailableBesideOthers(t *testing.T) {
	for name, c := range map[string]struct {
		set         func(w *loaded)
		cpu, memory float64 // after two hours
	}{
		"foreign VMs":             {func(w *loaded) { w.m.foreign = Limits{CPU: 2, Memory: 4 * giga} }, 4, 8.9},
		"what the kernel reports": {func(w *loaded) { w.load.left = 5 * giga }, 6, 5},
		"that there is plenty":    {func(w *loaded) { w.load.left = 16 * giga }, 6, 12.9},
		"a guest that is silent":  {func(w *loaded) { w.memory["a"] = -1 }, 6, 6},
		"one that comes by move":  {func(w *loaded) { vm := w.listed["a"]; vm.State = hypervisor.Incoming; w.listed["a"] = vm }, 7, 14},
		"what a VM costs besides": {func(w *loaded) { w.m.overhead = giga }, 6, 11.8},
		"an overloaded host":      {func(w *loaded) { w.use["a"], w.m.foreign.Memory = 9, 20*giga }, -2, -7.1},
		"no cap":                  {func(w *loaded) { vm := w.listed["a"]; vm.CPU.Cap = 0; w.listed["a"] = vm }, 6, 12.9},
	} {
		t.Run(name, func(t *testing.T) {
			w := newLoaded(t)
			w.run("a", 1, 4, 8*giga)
			w.use["a"], w.memory["a"] = 1, giga
			c.set(w)
			w.minutes(120)
			w.is(name, c.cpu, c.memory)
		})
	}
	w := newLoaded(t) // one that was started again is another
	w.run("a", 1, 4, 8*giga)
	w.use["a"], w.memory["a"] = 1, giga
	w.minutes(120)
	w.run("a", 2, 4, 8*giga)
	w.minutes(2)
	if a := w.load.available; a.VMs["a"] != 2 || math.Abs(a.Estimated.CPU-3.625) > 1e-9 {
		t.Errorf("%+v", *a)
	}
	w.now = w.now.Add(-time.Hour) // the clock was set back
	before := w.load.available
	if w.minutes(2); w.load.available == before {
		t.Error("no word since the clock was set back")
	}
}

// A host keeps what its VMs used at the same time, for a day: both of two that peak together, the larger of two that take turns.
func TestAvailableAfterPeaks(t *testing.T) {
	for name, c := range map[string]struct {
		second int     // minute of the hour in which the second VM peaks; the first does in minute 5
		peak   float64 // GiB that both used
	}{"together": {5, 8}, "in turn": {35, 5}} {
		w := newLoaded(t)
		w.run("a", 1, 1, 6*giga)
		w.run("b", 1, 1, 6*giga)
		for minute := range 23 * 60 {
			w.memory["a"], w.memory["b"] = giga, giga
			if minute == 5 {
				w.memory["a"] = 4 * giga
			}
			if minute == c.second {
				w.memory["b"] = 4 * giga
			}
			w.minutes(1)
			if minute > 300 && minute%60 == 0 {
				w.is(name, 7, 14-1.1*c.peak)
			}
		}
		w.minutes(150)
		w.is(name+", a day later", 7, 14-1.1*2)
	}
	// An agent that begins knows it from histories, and one that came later is taken to have done as the others did.
	w := newLoaded(t)
	for _, id := range []string{"a", "b", "c"} {
		w.run(id, 1, 1, 4*giga)
		w.memory[id] = giga / 2
	}
	w.load.past = func(vm string, since time.Time) (out []history.Bucket) {
		for at := w.now.Add(-2 * time.Hour).Truncate(5 * time.Minute); at.Before(w.now) && vm != "c"; at = at.Add(5 * time.Minute) {
			b := history.Bucket{At: at, MemorySamples: 30, MemoryMax: float64(giga) / 2}
			if at.Before(w.now.Add(-time.Hour)) {
				b.MemoryMax = 3 * float64(giga)
			}
			out = append(out, b)
		}
		return out
	}
	w.minutes(40)
	w.is("after a restart", 7, 14-1.1*9)
}

// VMs that boot at the same time are not taken to have used all that they have together.
func TestBootIsNoPeak(t *testing.T) {
	w := newLoaded(t)
	for _, id := range []string{"a", "b", "c"} { // guests that boot report nothing
		w.run(id, 1, 1, 4*giga)
		w.memory[id] = -1
	}
	w.minutes(3)
	for _, id := range []string{"a", "b"} {
		w.memory[id] = giga / 2
	}
	w.minutes(historySteps + 5)
	// c never reports: it counts with all that it has, a and b with what they use, and all with a tenth more.
	if got, want := w.load.together(w.now), 1.1*5*float64(giga); math.Abs(got-want) > 1 {
		t.Errorf("%.2f GiB are kept, want %.2f", got/float64(giga), want/float64(giga))
	}
}

// A guest that boots again by itself reports nothing meanwhile, in the same generation: that is no use of all that it has. One that stays silent counts with all.
func TestRebootIsNoPeak(t *testing.T) {
	w := newLoaded(t)
	w.run("a", 1, 1, 8*giga)
	w.memory["a"] = giga
	w.minutes(20)
	kept := func(what string, want int64) {
		t.Helper()
		if got := w.load.together(w.now); math.Abs(got-float64(want)) > 1 {
			t.Errorf("%s: %.2f GiB are kept, want %.2f", what, got/float64(giga), float64(want)/float64(giga))
		}
	}
	for range 2 * historySteps { // each reboot is counted by itself
		w.memory["a"] = -1
		w.minutes(1)
		w.memory["a"] = giga
		w.minutes(1)
	}
	kept("after reboots", giga*11/10)
	w.memory["a"] = -1
	w.minutes(historySteps)
	kept("silent for as long as a boot may last", giga*11/10)
	w.minutes(2)
	kept("silent for longer", 8*giga)
}

// A report that was made does not change while another goroutine reads it. Without samples nothing is reported.
func TestAvailabilityIsKept(t *testing.T) {
	w := newLoaded(t)
	w.run("a", 1, 4, 8*giga)
	available := w.minutes(2)
	text := fmt.Sprint(*available)
	delete(w.listed, "a")
	w.minutes(2)
	if fmt.Sprint(*available) != text || w.load.report([]Sample{}) != w.load.available || w.load.report(nil) != nil {
		t.Errorf("%+v, %s", *available, text)
	}
}
