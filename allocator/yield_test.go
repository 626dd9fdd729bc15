package allocator_test

import (
	"math"
	"reflect"
	"sort"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/allocator"
)

func TestAllocateKnownAnswers(t *testing.T) {
	host := func(cpu float64) allocator.Host { return allocator.Host{CPU: cpu, Memory: 100} }
	group := func(cluster string, cpu, floor float64, hosts ...int) allocator.Group {
		return allocator.Group{Cluster: cluster, Name: cluster, Count: len(hosts), CPU: cpu, Memory: 1, MinYield: floor, Hosts: hosts}
	}
	for name, c := range map[string]struct {
		hosts           []allocator.Host
		groups          []allocator.Group
		cpu             []float64
		lowest, average float64
		short           []string
	}{
		"smallest need first (sec. 3.5)": {
			// Host 0 holds the minimum at 0.5; on host 1 the small VM is filled first.
			hosts:  []allocator.Host{host(1), host(1)},
			groups: []allocator.Group{group("a", 2, 0, 0), group("small", 0.2, 0, 1), group("large", 1, 0, 1)},
			cpu:    []float64{1, 0.2, 0.8}, lowest: 0.5, average: (0.5 + 1 + 0.8) / 3,
		},
		"VMs of a group get equal CPU though one host has more": {
			hosts:  []allocator.Host{host(0.5), host(1)},
			groups: []allocator.Group{group("a", 1, 0, 0, 1)},
			cpu:    []float64{0.5}, lowest: 0.5, average: 0.5,
		},
		"a cluster over two hosts is stopped for two clusters": {
			// y1 + y2 <= 1 + ... : wide uses both hosts; two narrow ones gain more.
			hosts:  []allocator.Host{host(1.5), host(1.5), host(1)},
			groups: []allocator.Group{group("wide", 1, 0, 0, 1), group("n1", 1, 0, 0), group("n2", 1, 0, 1), group("low", 4, 0, 2)},
			cpu:    []float64{0.5, 1, 1, 1}, lowest: 0.25, average: (0.5 + 1 + 1 + 0.25) / 4,
		},
		"only CPU that is scarce counts as need": {
			// wide needs 1.0 in sum, but only 0.5 of it where CPU is short.
			hosts:  []allocator.Host{host(1), host(9), host(1)},
			groups: []allocator.Group{group("wide", 0.5, 0, 0, 1), group("n", 0.6, 0, 0), group("low", 10, 0, 2)},
			cpu:    []float64{0.5, 0.5, 1}, lowest: 0.1, average: (1 + 0.5/0.6 + 0.1) / 3,
		},
		"floors before the minimum": {
			hosts:  []allocator.Host{host(1)},
			groups: []allocator.Group{group("a", 1, 0.8, 0), group("b", 1, 0, 0)},
			cpu:    []float64{0.8, 0.2}, lowest: 0.2, average: 0.5,
		},
		"floors that cannot be kept": {
			hosts:  []allocator.Host{host(1), host(4)},
			groups: []allocator.Group{group("a", 1, 0.8, 0), group("b", 1, 0.4, 0), group("c", 1, 1, 1)},
			cpu:    []float64{0.5, 0.5, 1}, lowest: 0.5, average: 2.0 / 3, short: []string{"a"},
		},
		"what one group of a cluster cannot use goes to another": {
			hosts:  []allocator.Host{host(0.5), host(1)},
			groups: []allocator.Group{group("a", 1, 0, 0), group("a", 1, 0, 1)},
			cpu:    []float64{0.5, 1}, lowest: 0.5, average: 0.5,
		},
		"no need": {
			hosts:  []allocator.Host{host(1)},
			groups: []allocator.Group{group("a", 0, 1, 0), group("b", 2, 0, 0)},
			cpu:    []float64{0, 1}, lowest: 0.5, average: 0.75,
		},
		"a host with no CPU left": {
			hosts:  []allocator.Host{host(0), host(1)},
			groups: []allocator.Group{group("a", 1, 0.5, 0), group("b", 1, 0.5, 1)},
			cpu:    []float64{0, 1}, lowest: 0, average: 0.5, short: []string{"a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := allocator.Problem{Hosts: c.hosts, Groups: c.groups}
			s, err := allocator.Allocate(p)
			if err != nil {
				t.Fatal(err)
			}
			if err := checkSolution(p, s); err != nil {
				t.Fatal(err)
			}
			for g := range c.cpu {
				if math.Abs(s.CPU[g]-c.cpu[g]) > 1e-9 {
					t.Errorf("CPU %v, want %v", s.CPU, c.cpu)
					break
				}
			}
			if math.Abs(s.MinYield-c.lowest) > 1e-9 || math.Abs(s.AverageYield-c.average) > 1e-9 {
				t.Errorf("yields %v, %v; want %v, %v", s.MinYield, s.AverageYield, c.lowest, c.average)
			}
			var short []string
			for _, f := range s.Shortfall {
				short = append(short, f.Cluster)
			}
			if !reflect.DeepEqual(short, c.short) {
				t.Errorf("short: %+v, want %v", s.Shortfall, c.short)
			}
		})
	}
}

func TestAllocateRefuses(t *testing.T) {
	hosts := []allocator.Host{{Name: "h1", CPU: 1, Memory: 1}}
	for name, c := range map[string]struct {
		p    allocator.Problem
		want string
	}{
		"no hosts":            {allocator.Problem{}, "at least one host"},
		"memory over":         {allocator.Problem{Hosts: hosts, Groups: []allocator.Group{{Count: 2, Memory: 0.6, Hosts: []int{0, 0}}}}, "host h1: its VMs need"},
		"no host yet":         {allocator.Problem{Hosts: hosts, Groups: []allocator.Group{{Name: "g", Count: 2, Hosts: []int{0, -1}}}}, "group g: 1 of 2 VMs have no host"},
		"no such host":        {allocator.Problem{Hosts: hosts, Groups: []allocator.Group{{Name: "g", Count: 1, Hosts: []int{1}}}}, "VM 0 is on host 1 of 1"},
		"hosts and count":     {allocator.Problem{Hosts: hosts, Groups: []allocator.Group{{Name: "g", Count: 3, Hosts: []int{0}}}}, "1 hosts are given for 3 VMs"},
		"negative count":      {allocator.Problem{Hosts: hosts, Groups: []allocator.Group{{Name: "g", Count: -1}}}, "count -1 is not in"},
		"10^9 VMs":            {allocator.Problem{Hosts: hosts, Groups: []allocator.Group{{Name: "g", Count: 1_000_000_000}}}, "count 1000000000 is not in"},
		"too many VMs in sum": {allocator.Problem{Hosts: hosts, Groups: []allocator.Group{{Name: "g", Count: 9_000_000}, {Name: "h", Count: 9_000_000}}}, "group h: with it there are more than 10000000 VMs"},
		"CPU not a number":    {allocator.Problem{Hosts: hosts, Groups: []allocator.Group{{Name: "g", CPU: math.NaN()}}}, "not a finite number"},
		"infinite memory":     {allocator.Problem{Hosts: []allocator.Host{{Name: "h", Memory: math.Inf(1)}}}, "host h: memory +Inf is not"},
		"yield above 1":       {allocator.Problem{Hosts: hosts, Groups: []allocator.Group{{Name: "g", MinYield: 1.5}}}, "not in 0..1"},
		"yield not a value":   {allocator.Problem{Hosts: hosts, Groups: []allocator.Group{{Name: "g", MinYield: math.NaN()}}}, "not in 0..1"},
		"denormal":            {allocator.Problem{Hosts: hosts, Groups: []allocator.Group{{Name: "g", CPU: 1e-310}}}, "out of range"},
	} {
		if _, err := allocator.Allocate(c.p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

// drawPlaced draws a problem all of whose VMs have hosts with memory enough.
func drawPlaced(t *rapid.T) allocator.Problem {
	p := allocator.Problem{Hosts: drawHosts(t, 5), Groups: drawGroups(t, 8, 30)}
	for j := range p.Hosts {
		p.Hosts[j].Memory = 100
	}
	for g := range p.Groups {
		p.Groups[g].Hosts = make([]int, p.Groups[g].Count)
		for vm := range p.Groups[g].Hosts {
			p.Groups[g].Hosts[vm] = rapid.IntRange(0, len(p.Hosts)-1).Draw(t, "host")
		}
		p.Groups[g].MinYield = max(0, hundredths(t, "floor", -100, 60))
	}
	return p
}

// clusterFloors is the floor of each group: the greatest of its cluster.
func clusterFloors(p allocator.Problem) []float64 {
	floors := make([]float64, len(p.Groups))
	for g := range floors {
		floors[g] = p.Groups[g].MinYield
		for _, o := range p.Groups {
			if o.Cluster != "" && o.Cluster == p.Groups[g].Cluster {
				floors[g] = max(floors[g], o.MinYield)
			}
		}
	}
	return floors
}

// lowered gives clusters with VMs on a host that cannot keep its floors at most
// the equal yield of that host as their floor, scarcest hosts first: what a cluster
// lost on one counts on the next. ok is false where two hosts are equally scarce, so
// that rounding decides which comes first.
func lowered(p allocator.Problem, floors []float64) (low []float64, ok bool) {
	need := make([]float64, len(p.Hosts))
	var order []int
	for _, group := range p.Groups {
		for _, j := range group.Hosts {
			need[j] += group.CPU
		}
	}
	for j := range need {
		if need[j] > 0 {
			order = append(order, j)
		}
	}
	sort.SliceStable(order, func(a, b int) bool {
		return p.Hosts[order[a]].CPU/need[order[a]] < p.Hosts[order[b]].CPU/need[order[b]]
	})
	for k := 1; k < len(order); k++ {
		a, b := p.Hosts[order[k-1]].CPU/need[order[k-1]], p.Hosts[order[k]].CPU/need[order[k]]
		if a >= b*(1-1e-9) {
			return nil, false
		}
	}
	low = append(low, floors...)
	for _, j := range order {
		atFloors := 0.0
		for g, group := range p.Groups {
			for _, k := range group.Hosts {
				if k == j {
					atFloors += low[g] * group.CPU
				}
			}
		}
		if atFloors <= p.Hosts[j].CPU*(1+1e-9) {
			continue
		}
		for g, group := range p.Groups {
			for o, other := range p.Groups {
				if g != o && (group.Cluster == "" || group.Cluster != other.Cluster) {
					continue
				}
				for _, k := range other.Hosts {
					if k == j && other.CPU > 0 {
						low[g] = min(low[g], p.Hosts[j].CPU/need[j])
					}
				}
			}
		}
	}
	return low, true
}

// fitsLimits says whether every host can give each VM max(y, floor).
func fitsLimits(p allocator.Problem, floors []float64, y float64) bool {
	used := make([]float64, len(p.Hosts))
	for g, group := range p.Groups {
		for _, j := range group.Hosts {
			used[j] += max(y, floors[g]) * group.CPU
		}
	}
	for j := range used {
		if used[j] > p.Hosts[j].CPU*(1+1e-12) {
			return false
		}
	}
	return true
}

func TestAllocateReachesTheGreatestMinimum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlaced(t)
		s, err := allocator.Allocate(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkSolution(p, s); err != nil {
			t.Fatalf("%+v: %v", p, err)
		}
		for g := range s.Hosts {
			if !reflect.DeepEqual(s.Hosts[g], p.Groups[g].Hosts) {
				t.Fatalf("group %d moved from %v to %v", g, p.Groups[g].Hosts, s.Hosts[g])
			}
		}
		floors := clusterFloors(p)
		if !fitsLimits(p, floors, 0) {
			if len(s.Shortfall) == 0 {
				t.Fatalf("the floors cannot all hold, but none is said to be short: %+v", s)
			}
			var ok bool
			if floors, ok = lowered(p, floors); !ok {
				return
			}
		} else if len(s.Shortfall) > 0 {
			t.Fatalf("the floors can all hold, but %+v", s.Shortfall)
		}
		want := 1.0
		y := greatest(func(y float64) bool { return fitsLimits(p, floors, y) })
		for g := range floors {
			if p.Groups[g].CPU > 0 {
				want = min(want, max(y, floors[g]))
				if got := s.CPU[g] / p.Groups[g].CPU; got < floors[g]-1e-9 {
					t.Fatalf("group %d has yield %v under its floor %v", g, got, floors[g])
				}
			}
		}
		if s.MinYield < want-1e-9 {
			t.Fatalf("minimum yield %v, want %v", s.MinYield, want)
		}
	})
}

func greatest(ok func(float64) bool) float64 {
	if ok(1) {
		return 1
	}
	lo, hi := 0.0, 1.0
	for range 60 {
		if mid := (lo + hi) / 2; ok(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// No small change may raise the mean: take from one cluster, give to another.
func TestAllocateLeavesNoGainInTheMean(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlaced(t)
		for g := range p.Groups {
			p.Groups[g].Cluster, p.Groups[g].MinYield = "", 0
		}
		s, err := allocator.Allocate(p)
		if err != nil {
			t.Fatal(err)
		}
		free := make([]float64, len(p.Hosts))
		weight := make([][]float64, len(p.Groups))
		for j := range free {
			free[j] = p.Hosts[j].CPU
		}
		for g := range p.Groups {
			weight[g] = make([]float64, len(p.Hosts))
			for _, j := range p.Groups[g].Hosts {
				weight[g][j] += p.Groups[g].CPU
				free[j] -= s.CPU[g]
			}
		}
		base := greatest(func(y float64) bool { return fitsLimits(p, make([]float64, len(p.Groups)), y) })
		const step = 1e-3
		for to := range p.Groups {
			if p.Groups[to].CPU == 0 || s.CPU[to]/p.Groups[to].CPU > 1-step {
				continue
			}
			for from := range p.Groups {
				if from == to || p.Groups[from].CPU == 0 {
					continue
				}
				give := min(s.CPU[from]/p.Groups[from].CPU-base, step)
				gain := 1.0
				for j := range free {
					if weight[to][j] > 0 {
						gain = min(gain, (max(0, free[j])+give*weight[from][j])/weight[to][j])
					}
				}
				if gain > max(0, give)+1e-7 {
					t.Fatalf("%+v: taking %v of yield from group %d would give %v to group %d", s, give, from, gain, to)
				}
			}
		}
	})
}
