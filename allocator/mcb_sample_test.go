package allocator

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A sample has one VM and one host in n, whose load and shortage of memory are about those of all.
func TestSample(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	for _, perGroup := range []int{1, 3, 200} {
		p := slackInstance(r, 400, 4000, 0.3, 0.5, 0.5)
		for g := range p.Groups {
			p.Groups[g].Count = 1 + r.IntN(perGroup)
		}
		for j := range p.Hosts {
			size := float64(1 + r.IntN(3))
			p.Hosts[j] = Host{CPU: size, Memory: size, Cordoned: j%7 == 0}
		}
		counts, sums := make([]int, len(p.Groups)), func(p *Problem) (vms int, cpu, memory, free float64) {
			for _, g := range p.Groups {
				vms += g.Count
				cpu += float64(g.Count) * g.CPU
				memory += float64(g.Count) * g.Memory
			}
			for _, h := range p.Hosts {
				free += h.Memory
			}
			return vms, cpu, memory, free
		}
		for g := range counts {
			counts[g] = p.Groups[g].Count
		}
		const n = 16
		q := newPacker(&p, nil, counts).sample(n)
		if err := q.Validate(); err != nil {
			t.Fatal(err)
		}
		vms, cpu, memory, free := sums(&p)
		some, someCPU, someMemory, someFree := sums(&q)
		if math.Abs(float64(some)-float64(vms)/n) > 1 || len(q.Hosts) != len(p.Hosts)/n {
			t.Errorf("%d of %d VMs and %d of %d hosts", some, vms, len(q.Hosts), len(p.Hosts))
		}
		if got, want := someCPU/float64(some), cpu/float64(vms); math.Abs(got-want) > 0.01*want {
			t.Errorf("a VM of the sample needs %.4f of CPU, one of all %.4f", got, want)
		}
		if got, want := someMemory/someFree, memory/free; math.Abs(got-want) > 1e-9 {
			t.Errorf("VMs of the sample need %.4f of its memory, all VMs %.4f of all", got, want)
		}
	}
}

// With as many VMs as a sample is taken of, fewer are placed than without one, in all, and what is found is about as good.
func TestSampleSavesPackings(t *testing.T) {
	r := rand.New(rand.NewPCG(33, 34))
	var before, after float64 // VMs placed, in times all of them
	for _, slack := range []float64{0.2, 0.4, 0.6} {
		p := slackInstance(r, manyVMs/10, manyVMs, slack, 0.5, 0.5)
		counts := make([]int, len(p.Groups))
		for g := range counts {
			counts[g] = 1
		}
		search := func(expected float64, placed *float64) (yield float64) {
			newPacker(&p, nil, counts).best(func(hi float64, try probe) {
				searchLoad(hi, expected, func(y float64) (reached, share float64) {
					reached, share = try(y)
					yield = max(yield, reached)
					*placed += share
					return reached, share
				})
			})
			return yield
		}
		plain := search(0, &before)
		expected := newPacker(&p, nil, counts).expected(MCBOptions{})
		if expected <= 0 {
			t.Fatalf("slack %.1f: a sample says nothing", slack)
		}
		if with := search(expected, &after); with < plain*0.999 {
			t.Errorf("slack %.1f: yield %.5f with a sample, %.5f without", slack, with, plain)
		}
	}
	if after > 0.9*before {
		t.Errorf("all VMs were placed %.1f times with samples, %.1f times without", after, before)
	}
}

// Whatever excess is expected, the search ends with one that is within a part of what suffices.
func TestSearchLoadWithWrongExpectations(t *testing.T) {
	const hi = 0.8
	for _, suffices := range []float64{0, 1e-4, 0.01, 0.3, 20} {
		for _, expected := range []float64{0, 1e-9, suffices / 50, 0.93 * suffices, suffices, 1.5 * suffices, 100 * suffices} {
			found, probes := math.Inf(1), 0
			searchLoad(hi, expected, func(y float64) (reached, share float64) {
				if probes++; probes > 200 {
					t.Fatalf("expected %g of %g: the search does not end", expected, suffices)
				}
				excess := hi/y - 1
				if excess < suffices*(1-1e-12) {
					return -1, excess / suffices
				}
				found = min(found, excess)
				return y, 1
			})
			if found > suffices*(1+1.0/lastParts)+2*searchTolerance/hi {
				t.Errorf("expected %g: found %g, and %g suffices", expected, found, suffices)
			}
		}
	}
}

// A sample that fits at its own bound says nothing of how much all VMs need beyond theirs.
func TestSampleThatFitsAtItsBound(t *testing.T) {
	p := Problem{Groups: []Group{{Count: 99_996, CPU: 0.4, Memory: 1}}}
	for j := range 10_000 {
		h := Host{CPU: 1, Memory: 40}
		if j >= 9_992 {
			h.CPU = 0.95
		}
		p.Hosts = append(p.Hosts, h)
	}
	s, ok := MCB8(p)
	if !ok || s.MinYield < 0.23 { // ten VMs on a host of 0.95 have 0.2375
		t.Errorf("placed: %v, minimum yield %.4f", ok, s.MinYield)
	}
}
