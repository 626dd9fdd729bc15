package migration_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"evenkeel/allocator"
	"evenkeel/migration"
)

func everyHost(p migration.Problem) []int {
	hosts := make([]int, len(p.Hosts))
	for j := range hosts {
		hosts[j] = j
	}
	return hosts
}

func TestBatchesOfMaintenance(t *testing.T) {
	host := func(name string) migration.Host { return migration.Host{Name: name, CPU: 4, Memory: 8} }
	p := migration.Problem{
		Hosts: []migration.Host{host("h0"), host("h1"), host("h2"), host("h3"), host("h4")},
		Groups: []migration.Group{
			{Name: "a", Count: 2, CPU: 1, Memory: 4, Hosts: []int{0, 1}},
			{Name: "b", Count: 2, CPU: 1, Memory: 6, Hosts: []int{2, 3}},
			{Name: "stays", Count: 1, CPU: 1, Memory: 1, Hosts: []int{4}, Pinned: []int{0}},
		},
	}
	batches, stuck, err := migration.Batches(p, everyHost(p), 0)
	if err != nil {
		t.Fatal(err)
	}
	// h0 goes to h4 or h1; what is left then has to make room for two of 6.
	served := map[int]int{}
	for _, r := range batches {
		for _, j := range r.Hosts {
			served[j]++
		}
	}
	if len(served) != 4 || len(stuck) != 1 || stuck[0].Host != 4 || len(stuck[0].Blockers) != 1 || stuck[0].Blockers[0].Cause != migration.ByPinned || len(batches) > 3 {
		t.Errorf("rounds %+v, stuck %+v", batches, stuck)
	}
	for _, hosts := range [][]int{{0, 0}, {9}, {-1}} {
		if _, _, err := migration.Batches(p, hosts, 0); err == nil {
			t.Errorf("hosts %v", hosts)
		}
	}
}

// A round keeps to the floor: with two of four busy hosts away the others would have half of what they need.
func TestBatchesKeepTheFloor(t *testing.T) {
	p := migration.Problem{Groups: []migration.Group{{Name: "a", Count: 8, CPU: 1.5, Memory: 1, Hosts: []int{0, 0, 1, 1, 2, 2, 3, 3}}}}
	for _, name := range []string{"h0", "h1", "h2", "h3"} {
		p.Hosts = append(p.Hosts, migration.Host{Name: name, CPU: 4, Memory: 80})
	}
	for _, c := range []struct {
		floor         float64
		rounds, stuck int
	}{{0.8, 4, 0}, {0.6, 2, 0}, {0.95, 0, 4}} {
		batches, stuck, err := migration.Batches(p, everyHost(p), c.floor)
		if err != nil || len(batches) != c.rounds || len(stuck) != c.stuck {
			t.Errorf("floor %v: %+v, stuck %+v, %v", c.floor, batches, stuck, err)
		}
		for _, r := range batches {
			if r.MinYield < c.floor {
				t.Errorf("floor %v: %+v", c.floor, r)
			}
		}
	}
}

// Each batch can be planned as a drain, from where the batch before left the VMs.
func TestBatchesCanBePlanned(t *testing.T) {
	served, alone, largest := 0, 0, 0
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 13))
		p := scattered(seed, 6+rng.IntN(6), 30+rng.IntN(30))
		if seed%3 == 0 {
			p.Rules = &allocator.Rules{Affinity: make([]*allocator.Affinity, len(p.Groups))}
			for g := range p.Groups {
				if rng.IntN(5) == 0 && g > 0 {
					p.Rules.Affinity[g] = &allocator.Affinity{Avoid: []string{"vc:" + p.Groups[0].Name}}
					if p.Groups[g].Hosts[0] == p.Groups[0].Hosts[0] {
						p.Rules.Affinity[g] = nil
					}
				}
			}
		}
		batches, stuck, err := migration.Batches(p, everyHost(p), 0.3)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[int]bool{}
		for _, r := range batches {
			d := migration.DrainRequest{Hosts: r.Hosts, Budget: math.Inf(1)}
			out := drained(t, p, d)
			if err := checkDrain(p, d, out, rng); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if !out.Empties() || out.MinYieldAfter < 0.3-1e-9 {
				t.Errorf("seed %d: round %+v cannot be planned: %s", seed, r, out.Reason)
				break
			}
			served += len(r.Hosts)
			largest = max(largest, len(r.Hosts))
			if len(r.Hosts) == 1 {
				alone++
			}
			for _, j := range r.Hosts {
				if seen[j] {
					t.Errorf("seed %d: host %d twice", seed, j)
				}
				seen[j] = true
			}
			p.Groups = slices.Clone(p.Groups)
			for g := range p.Groups {
				p.Groups[g].Hosts = out.Hosts[g]
			}
		}
		if len(seen)+len(stuck) != len(p.Hosts) {
			t.Errorf("seed %d: %d hosts of %d, %d stuck", seed, len(seen), len(p.Hosts), len(stuck))
		}
	}
	t.Logf("%d hosts in rounds, %d alone, the largest round has %d", served, alone, largest)
	if largest < 2 {
		t.Error("no two hosts together")
	}
}

func TestFailoverCapacity(t *testing.T) {
	p := migration.Problem{
		Hosts: []migration.Host{{Name: "h0", CPU: 4, Memory: 8}, {Name: "h1", CPU: 4, Memory: 8}, {Name: "h2", CPU: 2, Memory: 4}},
		Groups: []migration.Group{
			{Name: "a", Count: 2, CPU: 2, Memory: 3, Hosts: []int{0, 1}},
			{Name: "b", Count: 1, CPU: 2, Memory: 5, Hosts: []int{0}},
			{Name: "c", Count: 1, CPU: 1, Memory: 3, Hosts: []int{2}},
		},
	}
	deaths, err := migration.FailoverCapacity(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	// h0: b (5) fits on h1 beside a (3), and a (3) nowhere then. h1: a fits nowhere: h0 is full, h2 has 1. h2: c fits on h1.
	if d := deaths[0]; d.VMs != 2 || len(d.Unplaced) != 1 || d.Unplaced[0].Cause != migration.ByMemory || d.MinYield != 1 {
		t.Errorf("h0: %+v", d)
	}
	if d := deaths[1]; d.VMs != 1 || len(d.Unplaced) != 1 {
		t.Errorf("h1: %+v", d)
	}
	if d := deaths[2]; d.VMs != 1 || len(d.Unplaced) != 0 || d.MinYield != 1 {
		t.Errorf("h2: %+v", d)
	}
	deaths, err = migration.FailoverCapacity(p, func(g, _ int) bool { return p.Groups[g].Name == "b" })
	if err != nil {
		t.Fatal(err)
	}
	if d := deaths[0]; d.VMs != 1 || len(d.Unplaced) != 0 || d.MinYield != 1 {
		t.Errorf("only b starts again: %+v", d)
	}
}

// FailoverCapacity says that everything fits only if it does: whichever host fails, memory and rules hold with the VMs that it left out.
func TestFailoverCapacityAgainstAllPlacements(t *testing.T) {
	fits, not := 0, 0
	for seed := range uint64(80) {
		p, ok := overfull(seed, 3, 7, 0.2+0.2*float64(seed%8))
		if !ok {
			continue
		}
		deaths, err := migration.FailoverCapacity(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range deaths {
			free := make([]float64, len(p.Hosts))
			var again []float64
			for j := range free {
				free[j] = p.Hosts[j].Memory
			}
			for _, q := range p.Groups {
				if free[q.Hosts[0]] -= q.Memory; q.Hosts[0] == d.Host {
					again = append(again, q.Memory)
				}
			}
			free[d.Host] = 0
			could := packs(free, again)
			if len(d.Unplaced) == 0 {
				fits++
				if !could {
					t.Errorf("seed %d: %+v does not fit", seed, d)
				}
			} else if could {
				not++
			}
		}
	}
	t.Logf("%d deaths can be borne; %d more could, by other placements", fits, not)
	if fits < 20 || not*10 > fits {
		t.Errorf("too often wrong, or too hard")
	}
}

// packs says whether sizes fit into what is free, all ways being tried.
func packs(free, sizes []float64) bool {
	if len(sizes) == 0 {
		return true
	}
	for j := range free {
		if free[j] >= sizes[0] {
			free[j] -= sizes[0]
			ok := packs(free, sizes[1:])
			free[j] += sizes[0]
			if ok {
				return true
			}
		}
	}
	return false
}

func BenchmarkDrain(b *testing.B) {
	p := scattered(1, 1000, 10_000)
	for _, extra := range []float64{math.Inf(1), 0} {
		name := "any gain"
		if extra == 0 {
			name = "only what has to go"
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				out, err := migration.Drain(p, migration.DrainRequest{Hosts: []int{7}, Budget: math.Inf(1), OptionalBytes: extra})
				if err != nil || !out.Empties() {
					b.Fatal(err, out.Reason)
				}
			}
		})
	}
}

func BenchmarkFailoverCapacity(b *testing.B) {
	p := scattered(1, 1000, 10_000)
	for b.Loop() {
		if _, err := migration.FailoverCapacity(p, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBatches(b *testing.B) {
	p := scattered(1, 1000, 10_000)
	for b.Loop() {
		batches, stuck, err := migration.Batches(p, everyHost(p), 0.2)
		if err != nil || len(stuck) > 0 {
			b.Fatal(err, len(batches), len(stuck))
		}
		b.ReportMetric(float64(len(batches)), "rounds")
	}
}

// The reserve for the memory that VMs may take back moves with the VMs: drained hosts take as many VMs again.
func TestBatchesFreeReserves(t *testing.T) {
	p := migration.Problem{Groups: []migration.Group{{Name: "a", Count: 24, CPU: 0.1, Memory: 1, Reclaimable: 3}}}
	for j := range 6 { // two of them empty; up to seven VMs fit on each
		p.Hosts = append(p.Hosts, migration.Host{Name: string(rune('a' + j)), CPU: 4, Memory: 13})
	}
	for vm := range 24 {
		p.Groups[0].Hosts = append(p.Groups[0].Hosts, vm/6)
	}
	batches, stuck, err := migration.Batches(p, []int{0, 1, 2, 3}, 0)
	if err != nil || len(batches) != 2 || len(batches[0].Hosts) != 2 || len(batches[1].Hosts) != 2 || len(stuck) > 0 {
		t.Errorf("rounds %+v, stuck %+v, %v", batches, stuck, err)
	}
}
