package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

type movable struct {
	Name     string         `json:"name"`
	Cluster  string         `json:"cluster,omitempty"`
	Count    int            `json:"count"`
	CPU      float64        `json:"cpu"`
	Memory   float64        `json:"memory"`
	MinYield float64        `json:"minYield"`
	Current  []*string      `json:"current,omitempty"`
	Affinity map[string]any `json:"affinity,omitempty"`
}

type movableHost struct {
	Name        string  `json:"name"`
	CPU, Memory float64 `json:"-"`
}

func (h movableHost) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, `{"name":%q,"cpu":%v,"memory":%v}`, h.Name, h.CPU, h.Memory), nil
}

// crowd is groups whose VMs lie on random hosts. Some VMs have no host yet, some groups
// are spread, some must be together, some have a least yield.
func crowd(seed uint64, hosts, groups int) (hs []movableHost, vcs []movable) {
	r := rand.New(rand.NewPCG(seed, 9))
	free := make([]float64, hosts)
	for j := range hosts {
		free[j] = 10
		hs = append(hs, movableHost{fmt.Sprint("h", j), 4, 16})
	}
	for g := range groups {
		v := movable{Name: fmt.Sprint("v", g), Count: 1 + r.IntN(3), CPU: 0.2 + 2*r.Float64(), Memory: float64(1+r.IntN(30)) / 10}
		if g%5 == 1 {
			v.Cluster = "pair"
		}
		if g%7 == 2 {
			v.Affinity = map[string]any{"spread": "host"}
		}
		if g%9 == 3 {
			v.MinYield = 0.05
		}
		on := map[int]bool{}
		for range v.Count {
			var at *string
			for range 30 {
				if j := r.IntN(hosts); free[j] >= v.Memory && !on[j] && r.IntN(12) > 0 {
					free[j] -= v.Memory
					on[j], at = true, &hs[j].Name
					break
				}
			}
			v.Current = append(v.Current, at)
		}
		vcs = append(vcs, v)
	}
	return hs, vcs
}

// checkMoves looks at an answer as eq. 22-31 have it, affinity, groups and floors included.
func checkMoves(hs []movableHost, vcs []movable, budget float64, a solved) error {
	cpu, memory, moved := map[string]float64{}, map[string]float64{}, 0.0
	yield := map[string]float64{}
	on := map[string]bool{}
	given := map[string]float64{}
	byName := map[string]movable{}
	tasks := 0
	for _, v := range vcs {
		byName[v.Name] = v
		tasks += v.Count
	}
	for _, p := range a.Placements {
		v := byName[p.VirtualCluster]
		cpu[p.Host] += p.CPU
		memory[p.Host] += v.Memory
		if c := v.Current[p.Task]; c != nil && *c != p.Host {
			moved += v.Memory
		}
		if v.Affinity != nil && on[v.Name+p.Host] {
			return fmt.Errorf("two of %s on %s", v.Name, p.Host)
		}
		on[v.Name+p.Host] = true
		if c, ok := given[v.Name]; ok && math.Abs(c-p.CPU) > 1e-9 {
			return fmt.Errorf("VMs of %s get %v and %v", v.Name, c, p.CPU)
		}
		given[v.Name] = p.CPU
		if y := p.CPU / v.CPU; y < v.MinYield-1e-9 {
			return fmt.Errorf("%s has yield %v", v.Name, y)
		}
		vc := v.Name
		if v.Cluster != "" {
			vc = v.Cluster + "/"
		}
		if old, ok := yield[vc]; !ok || p.CPU/v.CPU < old {
			yield[vc] = p.CPU / v.CPU
		}
	}
	lowest := 1.0
	for _, y := range yield {
		lowest = min(lowest, y)
	}
	for _, h := range hs {
		if cpu[h.Name] > h.CPU*(1+1e-9) || memory[h.Name] > h.Memory*(1+1e-9) {
			return fmt.Errorf("host %s: %v cores, %v of memory", h.Name, cpu[h.Name], memory[h.Name])
		}
	}
	switch {
	case len(a.Placements) != tasks:
		return fmt.Errorf("%d of %d are placed", len(a.Placements), tasks)
	case math.Abs(moved-a.MovedBytes) > 1e-9 || moved > budget*(1+1e-9):
		return fmt.Errorf("%v bytes move, %v are said to, of %v", moved, a.MovedBytes, budget)
	case math.Abs(lowest-a.MinYield) > 1e-9 || a.UpperBound < a.MinYield:
		return fmt.Errorf("least yield %v, said to be %v of %v", lowest, a.MinYield, a.UpperBound)
	}
	return nil
}

// More bytes never give less, no yield is above a bound for as many bytes or more, and
// every answer holds.
func TestSolveMoreBytes(t *testing.T) {
	for seed, size := range [][2]int{{3, 5}, {8, 20}, {20, 60}} {
		hs, vcs := crowd(uint64(seed), size[0], size[1])
		total := 0.0
		for _, v := range vcs {
			total += v.Memory * float64(v.Count)
		}
		last, first := 0.0, 0.0
		for i, share := range []float64{0, 0.01, 0.03, 0.07, 0.15, 0.3, 0.6, 1, math.Inf(1)} {
			in := map[string]any{"name": "x", "hosts": hs, "virtualClusters": vcs}
			if budget := total * share; !math.IsInf(budget, 1) {
				in["maxMigrationBytes"] = budget
			}
			line, err := json.Marshal(in)
			if err != nil {
				t.Fatal(err)
			}
			out, message, exit := runSolver(t, strings.NewReader(string(line)), "--effort", "1000000")
			if exit != 0 {
				t.Fatalf("%v, %v: exit %d: %s", size, share, exit, message)
			}
			a := decodeAnswers(t, out)[0]
			if err := checkMoves(hs, vcs, total*share, a); err != nil {
				t.Errorf("%v, %v: %v", size, share, err)
			}
			if a.MinYield < last-1e-12 {
				t.Errorf("%v, %v: %v, with less there was %v", size, share, a.MinYield, last)
			}
			if last = a.MinYield; i == 0 {
				first = last
			}
		}
		if last <= first {
			t.Errorf("%v: moves bring nothing: %v", size, last)
		}
	}
}
