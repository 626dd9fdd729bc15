package flex

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func fleet(t testing.TB, limit float64, capacity ...Vector) *Fleet {
	t.Helper()
	f, err := NewFleet(capacity, limit)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestPickByHand(t *testing.T) {
	ten := Vector{10, 10}
	for name, c := range map[string]struct {
		limit   float64
		hosts   []Vector
		taken   []Vector
		source  []int // hosts of tasks of the same source
		charge  float64
		request Vector
		want    int // -1: none
	}{
		"no hosts":                                {1, nil, nil, nil, 0, Vector{1, 1}, -1},
		"all empty: the first":                    {1, []Vector{ten, ten, ten}, nil, nil, 0, Vector{1, 1}, 0},
		"the least loaded":                        {1, []Vector{ten, ten, ten}, []Vector{{4, 1}, {3, 1}, {5, 1}}, nil, 0, Vector{1, 1}, 1},
		"by the fuller resource, with the task":   {1, []Vector{ten, ten}, []Vector{{1, 6}, {5, 1}}, nil, 0, Vector{3, 1}, 0}, // 0.7 against 0.8
		"a larger host is emptier":                {1, []Vector{ten, {40, 40}}, []Vector{{1, 1}, {6, 6}}, nil, 0, Vector{1, 1}, 1},
		"memory does not fit where CPU would":     {1, []Vector{ten, ten}, []Vector{{0, 9}, {8, 7}}, nil, 0, Vector{1, 2}, 1},
		"exactly full":                            {1, []Vector{ten}, []Vector{{9, 9}}, nil, 0, Vector{1, 1}, 0},
		"one too many":                            {1, []Vector{ten}, []Vector{{9, 9}}, nil, 0, Vector{1, 1.001}, -1},
		"oversubscribed by 2":                     {2, []Vector{ten}, []Vector{{9, 18}}, nil, 0, Vector{1, 2}, 0},
		"oversubscribed by 2 and full":            {2, []Vector{ten}, []Vector{{9, 18}}, nil, 0, Vector{1, 2.1}, -1},
		"two of the source cost more than load":   {1, []Vector{ten, ten}, []Vector{{1, 1}, {2.5, 1}}, []int{0, 0}, 0.1, Vector{1, 1}, 1}, // 0.2 + 0.2, 0.35
		"one of the source costs less than load":  {1, []Vector{ten, ten}, []Vector{{1, 1}, {2.5, 1}}, []int{0}, 0.1, Vector{1, 1}, 0},    // 0.3, 0.35
		"the source is on both":                   {1, []Vector{ten, ten}, []Vector{{1, 1}, {2, 1}}, []int{0, 0, 1}, 0.2, Vector{1, 1}, 1},
		"the source's only host is the only room": {1, []Vector{ten, ten}, []Vector{{10, 1}, {2, 1}}, []int{1}, 5, Vector{1, 1}, 1},
		"more taken than there is":                {1, []Vector{ten, ten}, []Vector{{12, 1}, {2, 11}}, nil, 0, Vector{0, 0}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			f := fleet(t, c.limit, c.hosts...)
			for h, v := range c.taken {
				f.Add(h, v)
			}
			var s Source
			for _, h := range c.source {
				s.Add(h)
			}
			got, ok := f.Pick(c.request, c.charge, &s)
			if got != c.want || ok != (c.want >= 0) {
				t.Errorf("host %d, %v; want %d", got, ok, c.want)
			}
		})
	}
}

func TestNewFleetRefuses(t *testing.T) {
	for _, c := range []struct {
		capacity Vector
		limit    float64
	}{{Vector{1, 1}, 0}, {Vector{1, 1}, math.NaN()}, {Vector{1, 1}, math.Inf(1)}, {Vector{0, 1}, 1}, {Vector{1, math.Inf(1)}, 1}, {Vector{1, math.NaN()}, 1}} {
		if _, err := NewFleet([]Vector{c.capacity}, c.limit); err == nil {
			t.Errorf("taken: %+v", c)
		}
	}
}

// scan is Pick by looking at every host.
func scan(f *Fleet, request Vector, charge float64, s *Source) (int, bool) {
	best, found := math.Inf(1), -1
	for h := range f.capacity {
		if !f.taken[h].Plus(request).Within(f.limit[h]) {
			continue
		}
		load := 0.0
		for k := range request {
			load = max(load, f.taken[h][k]/f.capacity[h][k]+request[k]/f.capacity[h][k])
		}
		if cost := load + charge*float64(s.On(h)); found < 0 || cost < best {
			best, found = cost, h
		}
	}
	return found, found >= 0
}

// The tree finds the host that a look at all finds, whatever was set and added before; what Pick admits keeps to the limit.
// Amounts are of a coarse grid, so that equal costs are common.
func TestPickIsAScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		grid := func(name string, lowest, limit int) float64 {
			return float64(rapid.IntRange(lowest, limit).Draw(t, name)) / 4
		}
		capacity := make([]Vector, rapid.IntRange(1, 40).Draw(t, "hosts"))
		for h := range capacity {
			c := float64(8)
			if rapid.IntRange(0, 3).Draw(t, "unequal") == 0 {
				c = grid("capacity", 4, 64)
			}
			capacity[h] = Vector{c, 2 * c}
		}
		f, err := NewFleet(capacity, rapid.SampledFrom([]float64{1, 1.5, 2}).Draw(t, "limit"))
		if err != nil {
			t.Fatal(err)
		}
		sources := make([]Source, 3)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				f.Set(rapid.IntRange(0, len(capacity)-1).Draw(t, "host"), Vector{grid("cpu", 0, 48), grid("memory", 0, 96)})
			case 1:
				by := grid("times", 0, 6)
				f.SetAll(func(h int) Vector { return f.Taken(h).Times(by) })
			default:
				r := Vector{grid("cpu", 0, 12), grid("memory", 0, 24)}
				s := &sources[rapid.IntRange(0, 2).Draw(t, "source")]
				charge := grid("charge", 0, 2)
				want, fits := scan(f, r, charge, s)
				got, ok := f.Pick(r, charge, s)
				if got != want || ok != fits {
					t.Fatalf("%v at charge %v on %v of %v: host %d, %v; a scan finds %d, %v", r, charge, f.taken, f.limit, got, ok, want, fits)
				}
				if !ok {
					continue
				}
				if f.Add(got, r); !f.Taken(got).Within(f.limit[got]) {
					t.Fatalf("host %d has %v of %v", got, f.Taken(got), f.limit[got])
				}
				s.Add(got)
			}
		}
	})
}

// Least-loaded placement of tasks that all fit is within twice the optimum (Theorem 4.1), of which the mean load and the largest
// task are lower bounds.
func TestFirstComeIsTwoApproximation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts := rapid.IntRange(1, 12).Draw(t, "hosts")
		capacity := slices.Repeat([]Vector{{1, 1}}, hosts)
		f, err := NewFleet(capacity, 1e9)
		if err != nil {
			t.Fatal(err)
		}
		var sum, largest float64
		for _, r := range rapid.SliceOfN(rapid.Float64Range(0.01, 1), 1, 60).Draw(t, "requests") {
			h, ok := f.Pick(Vector{r, 0}, 0, nil)
			if !ok {
				t.Fatal("does not fit")
			}
			f.Add(h, Vector{r, 0})
			sum, largest = sum+r, max(largest, r)
		}
		highest := 0.0
		for h := range capacity {
			highest = max(highest, f.Taken(h)[CPU])
		}
		if bound := 2 * max(sum/float64(hosts), largest); highest > bound+1e-9 {
			t.Fatalf("the fullest host has %v, twice the optimum is at most %v", highest, bound)
		}
	})
}

func TestSource(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const hosts = 4
		var s Source
		var want [hosts]int
		for _, step := range rapid.SliceOf(rapid.IntRange(-hosts, hosts-1)).Draw(t, "steps") {
			if step >= 0 {
				s.Add(step)
				want[step]++
			} else if h := -step - 1; true {
				s.Remove(h)
				want[h] = max(0, want[h]-1)
			}
			on := 0
			for h, n := range want {
				if s.On(h) != n {
					t.Fatalf("host %d: %d, want %d", h, s.On(h), n)
				}
				if n > 0 {
					on++
				}
			}
			if s.Hosts() != on || s.minHosts(hosts) != slices.Min(want[:]) {
				t.Fatalf("on %d hosts, at least %d: want %d of %v", s.Hosts(), s.minHosts(hosts), on, want)
			}
		}
	})
}

// BenchmarkPick: a fleet at 75%, measured again after every 500 tasks, tasks of sources of many sizes come, old ones go. "scan" is what it costs to look at all hosts.
func BenchmarkPick(b *testing.B) {
	for _, hosts := range []int{100, 1000, 4000} {
		for _, how := range []string{"tree", "scan"} {
			b.Run(fmt.Sprintf("%d/%s", hosts, how), func(b *testing.B) {
				rng := rand.New(rand.NewPCG(1, 1))
				f := fleet(b, 1, slices.Repeat([]Vector{{64, 128}}, hosts)...)
				f.SetAll(func(int) Vector { return Vector{45 + 8*rng.Float64(), 90 + 16*rng.Float64()} })
				sources := make([]Source, 200)
				type running struct {
					host, source int
					r            Vector
				}
				var ring []running
				b.ResetTimer()
				for i := range b.N {
					if i%500 == 499 && how == "tree" { // what a minute of a day with 714,030 tasks has
						f.SetAll(func(h int) Vector { return f.Taken(h) })
					}
					r := Vector{4 * rng.Float64(), 8 * rng.Float64()}
					s := int(200 * rng.Float64() * rng.Float64())
					var h int
					var ok bool
					if how == "tree" {
						h, ok = f.Pick(r, 0.02, &sources[s])
					} else {
						h, ok = scan(f, r, 0.02, &sources[s])
					}
					if ok {
						f.Add(h, r)
						sources[s].Add(h)
						ring = append(ring, running{h, s, r})
					}
					if len(ring) > 2*hosts {
						old := ring[0]
						ring = ring[1:]
						f.Add(old.host, Vector{}.Minus(old.r))
						sources[old.source].Remove(old.host)
					}
				}
				b.ReportMetric(float64(f.Examined())/float64(b.N), "nodes/op")
			})
		}
	}
}
