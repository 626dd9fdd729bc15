package allocator_test

import (
	"flag"
	"math"
	"math/rand/v2"
	"testing"

	"evenkeel/allocator"
)

var (
	startInstances = flag.Int("start-instances", 12, "instances of TestBestIsNotBelowItsStart")
	startFirst     = flag.Int("start-first", 0, "its first instance")
)

// wideInstance has 64 to 500 hosts, with needs and capacities over several powers of ten.
func wideInstance(r *rand.Rand) allocator.Problem {
	hosts := 64 + r.IntN(437)
	vms := hosts * (2 + r.IntN(8))
	powers := 1 + 2*r.Float64()
	wide := func() float64 { return math.Pow(10, -powers*r.Float64()) }
	p := allocator.Problem{Hosts: make([]allocator.Host, hosts), Groups: make([]allocator.Group, vms)}
	var cpu, memory, need, size, limit, greatest float64
	for j := range p.Hosts {
		h := &p.Hosts[j]
		h.CPU, h.Memory = wide(), wide()
		cpu, memory, limit = cpu+h.CPU, memory+h.Memory, max(limit, h.Memory)
	}
	for g := range p.Groups {
		q := &p.Groups[g]
		q.Count, q.CPU, q.Memory = 1, wide(), wide()
		need, size, greatest = need+q.CPU, size+q.Memory, max(greatest, q.Memory)
	}
	load := min((0.3+0.5*r.Float64())*memory/size, limit/greatest)
	for g := range p.Groups {
		p.Groups[g].CPU *= 1.2 * cpu / need
		p.Groups[g].Memory *= load
	}
	return p
}

// However little work it may do, Best is not below MCB8, nor below vector packing with all orders of hosts.
func TestBestIsNotBelowItsStart(t *testing.T) {
	compared, better := 0, 0
	for k := *startFirst; k < *startFirst+*startInstances; k++ {
		p := wideInstance(rand.New(rand.NewPCG(22, uint64(k))))
		s := allocator.Search{Steps: 10_000}
		o := allocator.Best(p, s)
		for name, options := range map[string]allocator.MCBOptions{"MCB8": {}, "all orders of hosts": {Hosts: allocator.HostOrders()}} {
			packed, ok := allocator.MCB(p, options)
			if !ok {
				continue
			}
			compared++
			if o.Verdict >= allocator.Feasible && o.Solution.MinYield > packed.MinYield*(1+1e-9) {
				better++
			}
			if o.Verdict < allocator.Feasible || o.Solution.MinYield < packed.MinYield*(1-1e-9) {
				t.Errorf("instance %d, %d hosts, %d VMs: %v with %s, best has %v (%v)", k, len(p.Hosts), len(p.Groups), packed.MinYield, name, o.Solution.MinYield, o.Verdict)
			}
		}
		if o.Verdict >= allocator.Feasible {
			if err := checkOutcome(p, s, o); err != nil {
				t.Errorf("instance %d: %v", k, err)
			}
		}
		if k%100 == 99 {
			t.Logf("to instance %d: %d comparisons, best is better in %d", k, compared, better)
		}
	}
}

// Where time ends the search it is used: three VMs fill each host in both resources, and all are needed in full.
func TestBestUsesItsTimeForFloors(t *testing.T) {
	r := rand.New(rand.NewPCG(22, 2))
	for k := range 3 {
		p := allocator.Problem{}
		for range 20 {
			p.Hosts = append(p.Hosts, allocator.Host{CPU: 100, Memory: 100})
			cpu, memory := three(r), three(r)
			for i := range cpu {
				p.Groups = append(p.Groups, allocator.Group{Count: 1, CPU: cpu[i], Memory: memory[i], MinYield: 1})
			}
		}
		r.Shuffle(len(p.Groups), func(a, b int) { p.Groups[a], p.Groups[b] = p.Groups[b], p.Groups[a] })
		for name, solve := range map[string]func(allocator.Problem, allocator.Search) allocator.Outcome{"best": allocator.Best, "exact": allocator.Exact} {
			asked := 0
			// So many questions are some minutes, which no answer needs.
			stop := func() bool { asked++; return asked > 100_000_000 }
			if o := solve(p, allocator.Search{Stop: stop}); o.Verdict != allocator.Optimal || o.Solution.MinYield < 1-1e-9 {
				t.Errorf("instance %d, %s: verdict %v, minimum yield %v", k, name, o.Verdict, o.Solution.MinYield)
			}
		}
	}
}

// three is a sum of 100 in three parts between a quarter and a half.
func three(r *rand.Rand) [3]float64 {
	for {
		a, b := float64(26+r.IntN(24)), float64(26+r.IntN(24))
		if c := 100 - a - b; c > 25 && c < 50 {
			return [3]float64{a, b, c}
		}
	}
}
