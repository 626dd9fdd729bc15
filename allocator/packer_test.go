package allocator

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// scan is sec. 3.4 as it is written, task by task on equal hosts of capacity 1,
// walking the lists from their beginning for each: the oracle of the packer. It
// returns the tasks of each host, nil for failure.
func scan(order ListOrder, hosts int, cpu, memory []float64) [][]int {
	var cpuList, memoryList []int
	for i := range cpu {
		if cpu[i] > memory[i] {
			cpuList = append(cpuList, i)
		} else {
			memoryList = append(memoryList, i)
		}
	}
	key := func(i int) float64 {
		c, m := cpu[i], memory[i]
		switch order {
		case 1, 5:
			return c + m
		case 2, 6:
			return max(c, m) - min(c, m)
		case 3, 7:
			if c == m {
				return 1
			}
			return max(c, m) / min(c, m) // infinite where one is zero
		}
		return max(c, m)
	}
	byKey := func(a, b int) int {
		up := a - b
		switch {
		case key(a) != key(b):
			up = 1
			if key(a) < key(b) {
				up = -1
			}
		case cpu[a] != cpu[b]:
			up = 1
			if cpu[a] < cpu[b] {
				up = -1
			}
		case memory[a] != memory[b]:
			up = 1
			if memory[a] < memory[b] {
				up = -1
			}
		default:
			return up
		}
		if order > 4 {
			return -up
		}
		return up
	}
	slices.SortFunc(cpuList, byKey)
	slices.SortFunc(memoryList, byKey)
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

// samePacking compares a packing with the plain scan's of the same VMs, group[i]
// being the group of the i-th. Equal groups are interchangeable.
func samePacking(k *packer, packed bool, want [][]int, group []int) error {
	if packed != (want != nil) {
		return fmt.Errorf("packed: %v; by the plain scan: %v", packed, want)
	}
	if !packed {
		return nil
	}
	groups := k.p.Groups
	twin := make([]int, len(groups)) // first group that is equal
	type size struct{ cpu, memory float64 }
	known := map[size]int{}
	for g := range groups {
		s := size{groups[g].CPU, groups[g].Memory}
		if _, ok := known[s]; !ok {
			known[s] = g
		}
		twin[g] = known[s]
	}
	got := make([][]int, len(want))
	for j := range got {
		got[j] = make([]int, len(groups))
	}
	for g, loads := range k.loads(nil) {
		for _, l := range loads {
			got[l.host][twin[g]] += l.n
		}
	}
	for j := range want {
		n := make([]int, len(groups))
		for _, i := range want[j] {
			n[twin[group[i]]]++
		}
		if !slices.Equal(n, got[j]) {
			return fmt.Errorf("host %d: %v VMs by group, by the plain scan %v", j, got[j], n)
		}
	}
	return nil
}

func TestPackerIsThePlainScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Problem{Hosts: make([]Host, rapid.IntRange(1, 12).Draw(t, "hosts"))}
		for j := range p.Hosts {
			p.Hosts[j] = Host{CPU: 1, Memory: 1}
		}
		var cpu, memory []float64
		var group, counts []int
		var need []float64
		for g := range rapid.IntRange(1, 40).Draw(t, "groups") {
			n := rapid.IntRange(1, 3).Draw(t, "count")
			// Powers of two: the sums are exact, so that the two cannot differ by rounding.
			c, m := float64(rapid.IntRange(0, 64).Draw(t, "CPU"))/64, float64(rapid.IntRange(0, 64).Draw(t, "memory"))/64
			p.Groups = append(p.Groups, Group{Count: n, CPU: c, Memory: m})
			counts, need = append(counts, n), append(need, c)
			for range n {
				cpu, memory, group = append(cpu, c), append(memory, m), append(group, g)
			}
		}
		k := newPacker(&p, nil, counts)
		for order := ListOrder(1); order <= 8; order++ {
			k.lists, k.sorted = order, false
			// Twice: what one packing leaves behind must not matter to the next.
			for range 2 {
				packed := k.pack(need)
				if err := samePacking(k, packed, scan(order, len(p.Hosts), cpu, memory), group); err != nil {
					t.Fatalf("MCB%d: %v", order, err)
				}
			}
		}
	})
}

// One pair of lists for all shapes of hosts, or a pair for each, is the same.
func TestSharedListsChangeNothing(t *testing.T) {
	packed := 0
	rapid.Check(t, func(t *rapid.T) {
		quarters := func(label string) float64 { return float64(rapid.IntRange(0, 8).Draw(t, label)) / 4 }
		var p Problem
		for range manyShapes + rapid.IntRange(0, 4).Draw(t, "more hosts") {
			p.Hosts = append(p.Hosts, Host{CPU: quarters("host CPU") + 1.0/64*float64(len(p.Hosts)), Memory: quarters("host memory")})
		}
		var counts []int
		for range rapid.IntRange(1, 40).Draw(t, "groups") {
			n := rapid.IntRange(1, 3).Draw(t, "count")
			p.Groups = append(p.Groups, Group{Count: n, CPU: quarters("CPU") / 4, Memory: quarters("memory") / 4})
			counts = append(counts, n)
		}
		for _, lists := range []ListOrder{4, 8} {
			shared, single := newPacker(&p, nil, counts), newPacker(&p, nil, counts)
			shared.lists, single.lists, single.apart = lists, lists, true
			if !shared.shares() {
				t.Fatalf("%d shapes are not many", len(shared.shapes))
			}
			for _, y := range []float64{1, 0.5, 0} {
				shared.scale, single.scale = 1/y, 1/y
				for _, o := range defaultHostOrders {
					shared.empty()
					shared.arrange(o)
					single.empty()
					single.arrange(o)
					a, b := shared.fill(false), single.fill(false)
					if a != b || !slices.Equal(shared.runs, single.runs) || !slices.Equal(shared.left, single.left) {
						t.Fatalf("yield %v: with shared lists %v %v, with single ones %v %v", y, a, shared.runs, b, single.runs)
					}
					if a {
						packed++
					}
				}
			}
		}
	})
	if packed == 0 {
		t.Error("nothing was ever packed")
	}
}

// On instances like the paper's, at yields around where packing begins to fail:
// the packings that the search sees.
func TestPackerIsThePlainScanOnLargeInstances(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	packed, failed := 0, 0
	for _, slack := range []float64{0.2, 0.5, 0.8} {
		p := slackInstance(r, 64, 500, slack, 0.75, 0.75)
		counts, group := make([]int, len(p.Groups)), make([]int, len(p.Groups))
		need, memory := make([]float64, len(p.Groups)), make([]float64, len(p.Groups))
		for i := range p.Groups {
			counts[i], group[i], memory[i] = 1, i, p.Groups[i].Memory
		}
		k := newPacker(&p, nil, counts)
		for order := ListOrder(1); order <= 8; order++ {
			k.lists, k.sorted = order, false
			for _, part := range []float64{1, 0.995, 0.98, 0.9, 0.5} {
				for i := range need {
					need[i] = part * Bound(p) * p.Groups[i].CPU
				}
				ok := k.pack(need)
				if err := samePacking(k, ok, scan(order, 64, need, memory), group); err != nil {
					t.Fatalf("slack %v, MCB%d at %v of the bound: %v", slack, order, part, err)
				}
				if ok {
					packed++
				} else {
					failed++
				}
			}
		}
	}
	if packed < 20 || failed < 20 {
		t.Errorf("%d packed, %d failed: too one-sided to compare", packed, failed)
	}
}

func TestFitIndexIsALinearSearch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]float64{1, 1e-90, 1e90}).Draw(t, "unit")
		amount := func(t *rapid.T, lowest int, what string) float64 {
			// Some differ by next to nothing.
			near := float64(rapid.IntRange(0, 2).Draw(t, what+" beyond")) * 1e-12
			return unit * float64(rapid.IntRange(lowest, 9).Draw(t, what)) * (1 + near)
		}
		list := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) demand {
			return demand{amount(t, 0, "CPU"), amount(t, 0, "memory")}
		}), 0, 200).Draw(t, "list")
		var x fitIndex
		x.reset(len(list) + rapid.IntRange(0, 3).Draw(t, "unused"))
		copy(x.room[0], list)
		x.items = x.items[:len(list)]
		x.build()
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			i := x.head + rapid.IntRange(0, len(list)).Draw(t, "from")
			d := demand{amount(t, -1, "CPU"), amount(t, -1, "memory")}
			if rapid.IntRange(0, 9).Draw(t, "unlimited") == 0 {
				d.cpu = math.Inf(1)
			}
			want := min(i, len(list))
			for ; want < len(list); want++ {
				if list[want].cpu <= d.cpu && list[want].memory <= d.memory {
					break
				}
			}
			got := x.first(min(i, len(list)), d.cpu, d.memory)
			if got != want {
				t.Fatalf("first at or after %d within %v: %d, want %d of %v", i, d, got, want, list)
			}
			if got < len(list) {
				x.remove(got)
				list[got] = nothingLeft
			}
		}
	})
}

// Spread first or not, sorted is sorted.
func TestSortEntries(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for name, key := range map[string]func() float64{
		"uniform":  r.Float64,
		"few":      func() float64 { return float64(r.IntN(5)) },
		"skewed":   func() float64 { return math.Exp(20 * r.NormFloat64()) },
		"equal":    func() float64 { return 1 },
		"infinite": func() float64 { return 1 / float64(r.IntN(9)) },
	} {
		for _, descending := range []bool{false, true} {
			s := make([]entry, 5000)
			k := packer{need: make([]float64, len(s)), size: make([]float64, len(s))}
			for i := range s {
				s[i] = entry{key(), int32(i)}
				k.need[i], k.size[i] = float64(r.IntN(3)), float64(r.IntN(3))
			}
			sum := 0
			for range 2 { // the second time they come sorted
				s = k.sortEntries(s, make([]entry, len(s)), descending)
				sum = 0
				for i := 1; i < len(s); i++ {
					a, b := s[i-1], s[i]
					if descending {
						a, b = b, a
					}
					cpu, memory := cmp.Compare(k.need[a.item], k.need[b.item]), cmp.Compare(k.size[a.item], k.size[b.item])
					in := a.key < b.key || a.key == b.key && (cpu < 0 || cpu == 0 && (memory < 0 || memory == 0 && s[i-1].item < s[i].item))
					if !in {
						t.Fatalf("%s, descending %v: %v before %v", name, descending, s[i-1], s[i])
					}
					sum += int(s[i].item)
				}
				sum += int(s[0].item)
			}
			if sum != len(s)*(len(s)-1)/2 {
				t.Errorf("%s: entries were lost", name)
			}
		}
	}
}

// A probe of the search allocates nothing.
func TestProbesDoNotAllocate(t *testing.T) {
	p := slackInstance(rand.New(rand.NewPCG(1, 2)), 64, 500, 0.4, 0.75, 0.75)
	counts := make([]int, len(p.Groups))
	for i := range counts {
		counts[i] = 1
	}
	k := newPacker(&p, nil, counts)
	y := Bound(p)
	k.packScaled(1 / y)
	if n := testing.AllocsPerRun(20, func() {
		y *= 0.999
		k.packScaled(1 / y)
	}); n > 0 {
		t.Errorf("%v allocations per packing", n)
	}
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
