package search

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The deal ends where its time is over, if the VMs may stay where they are instead: not for few VMs, which take no time.
func TestLateDeal(t *testing.T) {
	for _, c := range []struct {
		name    string
		vms     int
		without bool // one VM has no host
		stays   bool
	}{{"few VMs", 40, false, false}, {"many", 600, false, true}, {"many, one without a host", 600, true, false}} {
		m := &Model{CPU: slices.Repeat([]int64{1000}, 20), Memory: slices.Repeat([]int64{1000}, 20), Weight: slices.Repeat([]int64{1}, c.vms), Size: slices.Repeat([]int64{1}, c.vms),
			Rules: &Rules{Home: make([]int32, c.vms), Cost: slices.Repeat([]int64{1}, c.vms), Budget: int64(c.vms)}}
		if c.without {
			m.Rules.Home[0] = -1
		}
		p := newFinder(m, 1, 1_000_000_000, func() bool { return true }).dealt()
		if p == nil {
			t.Fatalf("%s: no placement", c.name)
		}
		if stays := slices.Equal(p.host, m.Rules.Home); stays != c.stays {
			t.Errorf("%s: all stay: %v", c.name, stays)
		}
	}
}

// drawModel draws a model small enough to try every placement, with rules or without.
func drawModel(t *rapid.T) *Model {
	h := rapid.IntRange(1, 4).Draw(t, "hosts")
	n := rapid.IntRange(1, 7).Draw(t, "vms")
	m := &Model{}
	equal := rapid.Bool().Draw(t, "equal hosts")
	for j := range h {
		if j > 0 && equal {
			m.CPU, m.Memory = append(m.CPU, m.CPU[0]), append(m.Memory, m.Memory[0])
			continue
		}
		m.CPU = append(m.CPU, rapid.Int64Range(5, 40).Draw(t, "cpu"))
		m.Memory = append(m.Memory, rapid.Int64Range(0, 40).Draw(t, "memory"))
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
	classes := rapid.IntRange(1, 3).Draw(t, "classes")
	for range n {
		r.Class = append(r.Class, rapid.Int32Range(0, int32(classes)-1).Draw(t, "class"))
	}
	draws := func(what string) bool { return rapid.IntRange(0, 2).Draw(t, what) == 0 }
	if draws("restricted") {
		for range n {
			r.Allowed = append(r.Allowed, []uint64{rapid.Uint64Range(1, 1<<h-1).Draw(t, "allowed")})
		}
	}
	if draws("apart") {
		r.Apart = make([][]uint64, classes)
		for c := range classes {
			r.Apart[c] = make([]uint64, 1)
		}
		for range 2 {
			a, b := rapid.IntRange(0, classes-1).Draw(t, "a"), rapid.IntRange(0, classes-1).Draw(t, "b")
			r.Apart[a][0] |= 1 << b
			r.Apart[b][0] |= 1 << a
		}
	}
	if draws("with") {
		r.With = make([][][]uint64, classes)
		r.With[rapid.IntRange(0, classes-1).Draw(t, "of")] = [][]uint64{{rapid.Uint64Range(0, 1<<classes-1).Draw(t, "set")}}
	}
	if draws("homes") {
		for range n {
			r.Home = append(r.Home, rapid.Int32Range(-1, int32(h)-1).Draw(t, "home"))
			r.Cost = append(r.Cost, rapid.Int64Range(0, 10).Draw(t, "cost"))
		}
		r.Budget = rapid.Int64Range(-1, 30).Draw(t, "budget")
	}
	return m
}

// minLevel tries every placement: the least level, -1 if there is none.
func minLevel(m *Model) float64 {
	lowest := -1.0
	every(m, func(host []int32) {
		if m.Check(host) {
			if t := m.Level(host); lowest < 0 || t < lowest {
				lowest = t
			}
		}
	})
	return lowest
}

// every calls do with every way of putting VMs on hosts.
func every(m *Model, do func(host []int32)) {
	host := make([]int32, len(m.Weight))
	for {
		do(host)
		i := 0
		for i < len(host) {
			if host[i]++; int(host[i]) < len(m.CPU) {
				break
			}
			host[i] = 0
			i++
		}
		if i == len(host) {
			return
		}
	}
}

func TestMinimizeIsExact(t *testing.T) {
	found, none := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		want := minLevel(m)
		r := Minimize(m, Options{Prove: true, Seed: rapid.Uint64().Draw(t, "seed"), Within: -1})
		if want < 0 {
			none++
			if !r.Infeasible || r.Host != nil {
				t.Fatalf("%+v (rules %+v): there is no placement, got %+v", m, m.Rules, r)
			}
			return
		}
		found++
		if r.Infeasible || !r.Optimal || r.Host == nil || !m.Check(r.Host) || r.Level != want || m.Level(r.Host) != want || r.Lower > want {
			t.Fatalf("%+v (rules %+v): least level %v, got %+v", m, m.Rules, want, r)
		}
	})
	t.Logf("%d solved, %d without a placement", found, none)
}

// What is not proved is a placement all the same, and bounds hold for it.
func TestMinimizeWithLittleWork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		o := Options{Seed: rapid.Uint64().Draw(t, "seed"), Steps: rapid.Int64Range(1, 3000).Draw(t, "steps"), Prove: rapid.Bool().Draw(t, "prove"), Within: -1}
		r := Minimize(m, o)
		if again := Minimize(m, o); !reflect.DeepEqual(r, again) {
			t.Fatalf("two answers: %+v, %+v", r, again)
		}
		want := minLevel(m)
		if r.Infeasible && want >= 0 || r.Host != nil && (!m.Check(r.Host) || m.Level(r.Host) != r.Level || r.Level < want) {
			t.Fatalf("%+v (rules %+v): least level %v, got %+v", m, m.Rules, want, r)
		}
		if want >= 0 && (r.Lower > want || r.Relaxed > want || r.Optimal && r.Level != want) {
			t.Fatalf("%+v (rules %+v): least level %v, bounds %+v", m, m.Rules, want, r)
		}
	})
}
