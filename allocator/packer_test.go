package allocator

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// scan is sec. 3.4 as it is written, task by task on equal hosts of capacity 1:
// the oracle of the packer. It returns the tasks of each host, nil for failure.
func scan(hosts int, cpu, memory []float64) [][]int {
	var cpuList, memoryList []int
	for i := range cpu {
		if cpu[i] > memory[i] {
			cpuList = append(cpuList, i)
		} else {
			memoryList = append(memoryList, i)
		}
	}
	byMaximum := func(a, b int) int {
		ma, mb := max(cpu[a], memory[a]), max(cpu[b], memory[b])
		switch {
		case ma != mb && ma > mb:
			return -1
		case ma != mb:
			return 1
		case cpu[a]+memory[a] > cpu[b]+memory[b]:
			return -1
		case cpu[a]+memory[a] < cpu[b]+memory[b]:
			return 1
		}
		return a - b
	}
	slices.SortFunc(cpuList, byMaximum)
	slices.SortFunc(memoryList, byMaximum)
	placed := make([][]int, hosts)
	for j := range placed {
		freeCPU, freeMemory := 1.0, 1.0
		for {
			lists := [2]*[]int{&cpuList, &memoryList}
			if freeCPU < freeMemory {
				lists[0], lists[1] = lists[1], lists[0]
			}
			found := false
			for _, list := range lists {
				at := slices.IndexFunc(*list, func(i int) bool {
					return cpu[i] <= freeCPU+roundingSlack && memory[i] <= freeMemory+roundingSlack
				})
				if at < 0 {
					continue
				}
				i := (*list)[at]
				*list = slices.Delete(*list, at, at+1)
				freeCPU -= cpu[i]
				freeMemory -= memory[i]
				placed[j] = append(placed[j], i)
				found = true
				break
			}
			if !found {
				break
			}
		}
	}
	if len(cpuList)+len(memoryList) > 0 {
		return nil
	}
	return placed
}

func TestPackerIsThePlainScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Problem{Hosts: make([]Host, rapid.IntRange(1, 6).Draw(t, "hosts"))}
		for j := range p.Hosts {
			p.Hosts[j] = Host{CPU: 1, Memory: 1}
		}
		var cpu, memory []float64
		var group, counts []int
		var need []float64
		for g := range rapid.IntRange(1, 8).Draw(t, "groups") {
			n := rapid.IntRange(1, 5).Draw(t, "count")
			// Powers of two: the sums are exact, so that the two cannot differ by rounding.
			c, m := float64(rapid.IntRange(0, 64).Draw(t, "CPU"))/64, float64(rapid.IntRange(0, 64).Draw(t, "memory"))/64
			p.Groups = append(p.Groups, Group{Count: n, CPU: c, Memory: m})
			counts, need = append(counts, n), append(need, c)
			for range n {
				cpu, memory, group = append(cpu, c), append(memory, m), append(group, g)
			}
		}
		want := scan(len(p.Hosts), cpu, memory)
		k := newPacker(&p, nil, counts)
		if ok := k.pack(need); ok != (want != nil) {
			t.Fatalf("packed: %v; by the plain scan: %v", ok, want)
		}
		if want == nil {
			return
		}
		got := make([][]int, len(p.Hosts))
		for j := range got {
			got[j] = make([]int, len(p.Groups))
		}
		for g, loads := range k.loads(nil) {
			for _, l := range loads {
				got[l.host][g] += l.n
			}
		}
		for j := range want {
			n := make([]int, len(p.Groups))
			for _, i := range want[j] {
				n[group[i]]++
			}
			// Equal groups are interchangeable.
			for g := range n {
				a, b := 0, 0
				for o := range n {
					if p.Groups[o].CPU == p.Groups[g].CPU && p.Groups[o].Memory == p.Groups[g].Memory {
						a, b = a+n[o], b+got[j][o]
					}
				}
				if a != b {
					t.Fatalf("host %d: %v VMs by group, by the plain scan %v", j, got[j], n)
				}
			}
		}
	})
}

func TestRealizedYieldIsNotBelowTheTarget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p Problem
		for range rapid.IntRange(1, 5).Draw(t, "hosts") {
			p.Hosts = append(p.Hosts, Host{CPU: rapid.Float64Range(0.1, 4).Draw(t, "host CPU"), Memory: 4})
		}
		var counts []int
		var need, floor []float64
		y := rapid.Float64Range(0, 1).Draw(t, "target")
		for range rapid.IntRange(1, 8).Draw(t, "groups") {
			g := Group{Count: rapid.IntRange(1, 5).Draw(t, "count"), CPU: rapid.Float64Range(0.01, 2).Draw(t, "CPU"), Memory: rapid.Float64Range(0, 1).Draw(t, "memory")}
			floor = append(floor, rapid.SampledFrom([]float64{0, 0, 0.3, 0.7, 1}).Draw(t, "floor"))
			p.Groups = append(p.Groups, g)
			counts, need = append(counts, g.Count), append(need, max(y, floor[len(floor)-1])*g.CPU)
		}
		k := newPacker(&p, nil, counts)
		if !k.pack(need) {
			return
		}
		if got := maxMin(&p, k.loads(nil), floor); got < y-1e-11 {
			t.Fatalf("packed at yield %v, but only %v can be given", y, got)
		}
	})
}

// bestVertex solves a boundedLP by trying every vertex.
func bestVertex(lp boundedLP) float64 {
	m, n := len(lp.limit), len(lp.upper)
	a := make([][]float64, m)
	for i := range a {
		a[i] = make([]float64, n)
	}
	for k := range lp.column {
		for _, c := range lp.column[k] {
			a[c.host][k] = c.weight
		}
	}
	best := 0.0
	state := make([]int, n) // 0: at zero, 1: at its upper bound, 2: between
	var try func(k int)
	try = func(k int) {
		if k < n {
			for state[k] = range 3 {
				try(k + 1)
			}
			return
		}
		var free []int
		x := make([]float64, n)
		for k, s := range state {
			if s == 1 {
				x[k] = lp.upper[k]
			} else if s == 2 {
				free = append(free, k)
			}
		}
		if len(free) > m {
			return
		}
		for rows := range 1 << m {
			var tight []int
			for i := range m {
				if rows>>i&1 == 1 {
					tight = append(tight, i)
				}
			}
			if len(tight) != len(free) || !between(a, lp.limit, x, tight, free) {
				continue
			}
			sum, feasible := 0.0, true
			for k := range x {
				feasible = feasible && x[k] >= -1e-9 && x[k] <= lp.upper[k]+1e-9
				sum += x[k]
			}
			for i := range m {
				used := 0.0
				for k := range x {
					used += a[i][k] * x[k]
				}
				feasible = feasible && used <= lp.limit[i]+1e-9
			}
			if feasible {
				best = max(best, sum)
			}
		}
	}
	try(0)
	return best
}

// between sets the free variables so that the tight rows are met exactly, by
// Gauss elimination; false if they do not determine them.
func between(a [][]float64, limit, x []float64, tight, free []int) bool {
	n := len(free)
	rows := make([][]float64, n)
	for r, i := range tight {
		rows[r] = make([]float64, n+1)
		rows[r][n] = limit[i]
		for k := range x {
			if at := slices.Index(free, k); at >= 0 {
				rows[r][at] = a[i][k]
			} else {
				rows[r][n] -= a[i][k] * x[k]
			}
		}
	}
	for c := range n {
		p := c
		for r := c; r < n; r++ {
			if math.Abs(rows[r][c]) > math.Abs(rows[p][c]) {
				p = r
			}
		}
		if math.Abs(rows[p][c]) < 1e-9 {
			return false
		}
		rows[c], rows[p] = rows[p], rows[c]
		for r := range n {
			if r == c {
				continue
			}
			f := rows[r][c] / rows[c][c]
			for k := c; k <= n; k++ {
				rows[r][k] -= f * rows[c][k]
			}
		}
	}
	for c, k := range free {
		x[k] = rows[c][n] / rows[c][c]
	}
	return true
}

func TestSimplexFindsTheBestVertex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lp := boundedLP{}
		for range rapid.IntRange(1, 3).Draw(t, "rows") {
			lp.limit = append(lp.limit, float64(rapid.IntRange(0, 40).Draw(t, "limit"))/10)
		}
		for range rapid.IntRange(1, 5).Draw(t, "columns") {
			lp.upper = append(lp.upper, float64(rapid.IntRange(1, 10).Draw(t, "upper"))/10)
			var column []cell
			for i := range lp.limit {
				if w := rapid.IntRange(0, 20).Draw(t, "weight"); w > 0 {
					column = append(column, cell{i, float64(w) / 10})
				}
			}
			if len(column) == 0 {
				column = []cell{{0, 1}}
			}
			lp.column = append(lp.column, column)
		}
		sum := 0.0
		used := make([]float64, len(lp.limit))
		for k, x := range lp.maximize() {
			if x < 0 || x > lp.upper[k] {
				t.Fatalf("x[%d] = %v of %v", k, x, lp.upper[k])
			}
			sum += x
			for _, c := range lp.column[k] {
				used[c.host] += c.weight * x
			}
		}
		for i := range used {
			if used[i] > lp.limit[i]+1e-9 {
				t.Fatalf("row %d: %v of %v", i, used[i], lp.limit[i])
			}
		}
		if want := bestVertex(lp); math.Abs(sum-want) > 1e-8 {
			t.Fatalf("%+v: sum %v, want %v", lp, sum, want)
		}
	})
}
