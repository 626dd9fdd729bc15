package workload

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

func drawPace(t *testing.T, p Pace, seed uint64) *Workload {
	t.Helper()
	w, err := p.Draw(rand.New(rand.NewPCG(seed, 0)))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Validate(); err != nil {
		t.Fatal(err)
	}
	return w
}

// What the paper states of its workload holds for this one.
func TestPaceIsAsStated(t *testing.T) {
	p := PaceDefault
	p.Apps = 20000
	w := drawPace(t, p, 1)
	var elastic, limit int
	var runtimes, gaps []float64
	var asked, askedMemory, usedMemory, usedCPU float64
	for i, a := range w.Apps {
		n := 0
		for _, g := range w.Of(i) {
			n += int(g.Count)
			if g.CPU > 6 || g.CPU <= 0 || g.Memory > 48e9 || g.Memory < 1e6 {
				t.Fatalf("application %d asks for %v cores and %v bytes", i, g.CPU, g.Memory)
			}
			c, m := float64(g.Count)*a.Work*g.CPU, float64(g.Count)*a.Work*g.Memory
			asked, askedMemory = asked+c, askedMemory+m
			usedCPU += c * w.Patterns[g.CPUUse.Pattern].Mean()
			usedMemory += m * w.Patterns[g.MemoryUse.Pattern].Mean()
		}
		if a.Groups == 2 {
			elastic++
		}
		limit = max(limit, n)
		runtimes = append(runtimes, a.Work)
		if i > 0 {
			gaps = append(gaps, a.Arrival-w.Apps[i-1].Arrival)
		}
	}
	slices.Sort(runtimes)
	slices.Sort(gaps)
	span := p.Days * 86400 * float64(p.Hosts)
	load := max(asked/(span*p.CPU), askedMemory/(span*p.Memory))
	t.Logf("runtimes %.0f s to %.1f days, median %.0f s; at most %d components; load %.2f (CPU %.2f, memory %.2f); use %.2f of the CPU and %.2f of the memory asked for",
		runtimes[0], runtimes[len(runtimes)-1]/86400, runtimes[len(runtimes)/2], limit, load, asked/(span*p.CPU), askedMemory/(span*p.Memory), usedCPU/asked, usedMemory/askedMemory)
	if runtimes[0] > 60 || runtimes[len(runtimes)-1] < 14*86400 {
		t.Error("runtimes are to reach from dozens of seconds to weeks")
	}
	if limit < 1000 {
		t.Error("some applications are to have very many components")
	}
	if load < 0.99*p.Load || load > 1.01*p.Load {
		t.Errorf("load %v, not %v", load, p.Load)
	}
	if use := usedMemory / askedMemory; use < 0.25 || use > 0.55 {
		t.Errorf("%v of the memory asked for is used", use)
	}
	// Bursts: the median gap is far below the mean.
	if mean := p.Days * 86400 / float64(p.Apps); gaps[len(gaps)/2] > mean/4 {
		t.Errorf("median gap %v s at a mean of %v s is no burst", gaps[len(gaps)/2], mean)
	}
	for i, pattern := range w.Patterns {
		if highest := slices.Max(pattern); highest != 1 {
			t.Fatalf("pattern %d peaks at %v", i, highest)
		}
	}
	if !reflect.DeepEqual(w, drawPace(t, p, 1)) {
		t.Error("the same seed drew another workload")
	}
	if reflect.DeepEqual(w.Apps, drawPace(t, p, 2).Apps) {
		t.Error("another seed drew the same workload")
	}
}

func TestAt(t *testing.T) {
	p := Pattern{0, 1, 0.5}
	for place, want := range map[float64]float64{0: 0, 0.5: 0.5, 1: 1, 1.5: 0.75, 2: 0.5, 2.5: 0.25, 3: 0, 3.25: 0.25, 301: 1} {
		if got := p.At(place); got != want {
			t.Errorf("at %v: %v, not %v", place, got, want)
		}
	}
	if u := (Use{Offset: 3, Spread: 2}); u.Begin(0) != 3 || u.Begin(1) != 3+2*golden {
		t.Errorf("begins at %v and %v", u.Begin(0), u.Begin(1))
	}
}
