package search

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawEqual draws a model with equal hosts, small enough to try every placement.
func drawEqual(t *rapid.T) *Model {
	h, n := rapid.IntRange(2, 4).Draw(t, "hosts"), rapid.IntRange(2, 7).Draw(t, "vms")
	m := &Model{}
	memory := rapid.Int64Range(5, 40).Draw(t, "memory")
	for range h {
		m.CPU, m.Memory = append(m.CPU, 20), append(m.Memory, memory)
	}
	for range n {
		m.Weight = append(m.Weight, rapid.Int64Range(0, 30).Draw(t, "weight"))
		m.Size = append(m.Size, rapid.Int64Range(0, 20).Draw(t, "size"))
	}
	if !rapid.Bool().Draw(t, "rules") {
		return m
	}
	r := &Rules{Budget: -1}
	m.Rules = r
	for range n {
		r.Class = append(r.Class, rapid.Int32Range(0, 2).Draw(t, "class"))
	}
	a, b := rapid.IntRange(0, 2).Draw(t, "a"), rapid.IntRange(0, 2).Draw(t, "b")
	r.Apart = [][]uint64{{0}, {0}, {0}}
	r.Apart[a][0] |= 1 << b
	r.Apart[b][0] |= 1 << a
	if rapid.Bool().Draw(t, "with") {
		r.With = make([][][]uint64, 3)
		r.With[rapid.IntRange(0, 2).Draw(t, "of")] = [][]uint64{{rapid.Uint64Range(0, 7).Draw(t, "set")}}
	}
	return m
}

// A partition is found for the loads that some placement keeps to, and for no
// others, whatever was asked before.
func TestPartitionIsExact(t *testing.T) {
	yes, no := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		m := drawEqual(t)
		lowest := minLevel(m)
		q := newPartition(m)
		for range 6 {
			load := rapid.Int64Range(0, 80).Draw(t, "load")
			steps := int64(1) << 40
			found, final := q.ask(load, &steps, nil)
			want := lowest >= 0 && float64(load)/20 >= lowest
			if !final || found != want {
				t.Fatalf("%+v: load %d: found %v, settled %v; least load %v", m, load, found, final, 20*lowest)
			}
			if !found {
				no++
				continue
			}
			yes++
			p := newPlacement(m)
			q.moveTo(p)
			if slices.Contains(p.host, -1) || !m.Check(p.host) || m.Level(p.host) > float64(load)/20 {
				t.Fatalf("%+v: load %d: placed %v", m, load, p.host)
			}
		}
	})
	t.Logf("%d found, %d refuted", yes, no)
}

// By patterns and by bin completion the least load is the same, with rules and
// without.
func TestCoverAgreesWithCompletion(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	solved := 0
	for range 60 {
		h := 4 + r.IntN(4)
		m := paperModel(r, h, h*(2+r.IntN(2)), 0.05+0.3*r.Float64(), []float64{0.25, 0.75}[r.IntN(2)], 0.25+0.5*r.Float64())
		if r.IntN(2) == 0 {
			m.Rules = pairsApart(len(m.Weight))
		}
		f := newFinder(m, 1, 1<<50, nil)
		p := f.dealt()
		if p == nil {
			p = f.byMemory()
		}
		if p == nil {
			continue
		}
		result := Result{Lower: m.lowerLevel(true)}
		if !f.cover(newPartition(m), p, 0, 0, &result) || !result.Optimal || !m.Check(p.host) {
			t.Fatalf("%+v: not solved: %+v", m, result)
		}
		_, lowest := p.top()
		room := func(max bool) []int64 {
			return slices.Repeat([]int64{under(m.CPU[0], lowest, max)}, h)
		}
		fits := func(room []int64) bool {
			steps := int64(1) << 50
			f.pack.load(m, all(len(m.Weight)), all(h), room, m.Memory)
			return f.pack.solve(&steps, nil)
		}
		if !fits(room(true)) || fits(room(false)) {
			t.Fatalf("%+v: %v is not the least level", m, lowest)
		}
		if result.Lower > lowest {
			t.Fatalf("%+v: bound %v above %v", m, result.Lower, lowest)
		}
		solved++
	}
	if solved < 30 {
		t.Errorf("only %d of 60 models have a placement", solved)
	}
}

// pairsApart keeps every VM and the next one on different hosts.
func pairsApart(n int) *Rules {
	r := &Rules{Budget: -1}
	for i := range n {
		r.Class = append(r.Class, int32(i/2))
		if i%2 == 0 {
			r.Apart = append(r.Apart, setOf(n))
			r.Apart[i/2][i/2>>6] |= 1 << (i / 2 & 63)
		}
	}
	return r
}

// Equal models give equal answers, and what a little work leads to is true.
func TestCoverWithLittleWork(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	for i := range 20 {
		m := paperModel(r, 8, 24, 0.3, 0.75, 0.5)
		best := Minimize(m, Options{Prove: true})
		o := Options{Prove: true, Steps: 1000 << (i % 10)}
		a, b := Minimize(m, o), Minimize(m, o)
		if !slices.Equal(a.Host, b.Host) || a.Lower != b.Lower || a.Optimal != b.Optimal {
			t.Fatalf("%+v: two answers: %+v, %+v", m, a, b)
		}
		if !best.Optimal || a.Lower > best.Level || a.Level < best.Level || a.Optimal && a.Level != best.Level {
			t.Fatalf("%+v: least level %v, got %+v", m, best.Level, a)
		}
	}
}

// With a gap the search ends early, not too early.
func TestCoverWithGap(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	short := 0
	for range 20 {
		m := paperModel(r, 8, 24, 0.3, 0.75, 0.5)
		a := Minimize(m, Options{Prove: true, Gap: 0.01})
		if a.Host == nil || !m.Check(a.Host) || a.Level > a.Lower/(1-0.01)*(1+1e-12) {
			t.Fatalf("%+v: level %v, bound %v", m, a.Level, a.Lower)
		}
		if !a.Optimal {
			short++
		}
		if best := Minimize(m, Options{Prove: true}); a.Lower > best.Level || a.Level < best.Level || a.Optimal && a.Level != best.Level {
			t.Fatalf("%+v: least level %v, got %+v", m, best.Level, a)
		}
	}
	if short == 0 {
		t.Error("every search went on to the end")
	}
}

// Values refute a number of hosts only if they really do.
func TestRefutes(t *testing.T) {
	// Three items of which a host takes any two: two hosts will do, one will not.
	list := []pattern{{set: 0b011}, {set: 0b101}, {set: 0b110}, {set: 0b001}, {set: 0b010}, {set: 0b100}}
	which := []int32{0, 1, 2, 3, 4, 5}
	for _, c := range []struct {
		name  string
		value []int64
		which []int32
		left  uint64
		hosts int
		want  bool
	}{
		{"one host", []int64{1, 1, 1}, which, 0b111, 1, true},
		{"two hosts", []int64{1, 1, 1}, which, 0b111, 2, false},
		{"a wrong value", []int64{-1, 1, 0}, which, 0b111, 1, false},
		{"no value at all", []int64{0, 0, 0}, which, 0b111, 1, false},
		{"equal is not more", []int64{2, 1, 0}, which, 0b111, 1, false},
		{"fewer items", []int64{1, 1, 1}, which, 0b011, 1, false},
		{"items alone", []int64{1, 1, 1}, which[3:], 0b111, 2, true},
		{"items alone, enough", []int64{1, 1, 1}, which[3:], 0b111, 3, false},
		{"pairs only: below zero", []int64{-1, -1, -1}, which[:3], 0b111, 2, true},
		{"nothing fits", []int64{0, 0, 0}, nil, 0b1, 9, true},
		{"nothing to place", []int64{0, 0, 0}, nil, 0, 9, false},
	} {
		if got := refutes(c.value, list, c.which, c.left, c.hosts); got != c.want {
			t.Errorf("%s: refuted %v", c.name, got)
		}
	}
}

// Whatever the values, nothing that can be placed is refuted, and no pattern of
// a placement is dropped.
func TestAnyValuesAreSafe(t *testing.T) {
	refuted, kept := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		m := drawEqual(t)
		value := rapid.SliceOfN(rapid.Int64Range(-1000, 1000), len(m.Weight), len(m.Weight)).Draw(t, "value")
		load := rapid.Int64Range(0, 60).Draw(t, "load")
		c := newCatalogue(m)
		steps := int64(1) << 40
		if !c.enumerate(load, &steps, nil) {
			t.Fatal("gave up")
		}
		fits := minLevel(m)
		fit := fits >= 0 && float64(load)/20 >= fits
		if refutes(value, c.list, all(len(c.list)), c.all(), c.hosts) {
			refuted++
			if fit {
				t.Fatalf("%+v: load %d refuted by %v", m, load, value)
			}
		}
		_, possible := c.thin(value)
		if fit && !possible {
			t.Fatalf("%+v: load %d excluded by %v", m, load, value)
		}
		if !fit {
			return
		}
		kept++
		// Every placement that keeps to the load is made of patterns that are left.
		left := map[uint64]bool{}
		for _, p := range c.list {
			left[p.set] = true
		}
		sets := make([]uint64, c.hosts)
		every(m, func(host []int32) {
			if !m.Check(host) || m.Level(host) > float64(load)/20 {
				return
			}
			clear(sets)
			for i, vm := range c.vms {
				sets[host[vm]] |= 1 << uint(i)
			}
			for _, set := range sets {
				if !left[set] {
					t.Fatalf("%+v: load %d: %v is a placement, and %b was dropped for %v", m, load, host, set, value)
				}
			}
		})
	})
	t.Logf("%d refuted, %d placeable", refuted, kept)
}
