package search

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawCrowdModel draws a model of more than 16 hosts without rules.
func drawCrowdModel(t *rapid.T) *Model {
	h := rapid.IntRange(17, 40).Draw(t, "hosts")
	n := h * rapid.IntRange(3, 12).Draw(t, "VMs per host")
	m := &Model{}
	for range n {
		m.Weight = append(m.Weight, rapid.Int64Range(0, 1000).Draw(t, "weight"))
		m.Size = append(m.Size, rapid.Int64Range(0, 100).Draw(t, "size"))
	}
	var size int64
	for _, s := range m.Size {
		size += s
	}
	equal := rapid.Bool().Draw(t, "equal hosts")
	share := rapid.Float64Range(0.9, 3).Draw(t, "memory over need")
	for j := range h {
		f := 1.0
		if !equal {
			f = rapid.SampledFrom([]float64{0.25, 1, 4}).Draw(t, "factor")
		}
		if j > 0 && equal {
			f = float64(m.CPU[0]) / 1000
		}
		m.CPU = append(m.CPU, int64(1000*f))
		m.Memory = append(m.Memory, int64(f*share*float64(size)/float64(h)))
	}
	return m
}

func TestManyHosts(t *testing.T) {
	placed, reached := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		m := drawCrowdModel(t)
		o := Options{Seed: 1, Steps: 300_000, Within: -1, Gap: rapid.SampledFrom([]float64{0, 0.01}).Draw(t, "gap")}
		r := Minimize(m, o)
		if again := Minimize(m, o); !reflect.DeepEqual(r, again) {
			t.Fatalf("two answers: %+v, %+v", r, again)
		}
		if r.Host == nil {
			return
		}
		placed++
		if !m.Check(r.Host) || m.Level(r.Host) != r.Level || r.Level < r.Lower {
			t.Fatalf("%+v: level %v, bound %v, hosts %v", m, r.Level, r.Lower, r.Host)
		}
		if r.Optimal && r.Level > r.Lower*(1+1e-9) {
			t.Fatalf("level %v said to be least, the bound is %v", r.Level, r.Lower)
		}
		if r.Level <= r.Lower*1.01 {
			reached++
		}
	})
	t.Logf("%d placed, %d of them within 1%% of the bound", placed, reached)
}

// The exchange is the best of all exchanges of at most two VMs each.
func TestExchangeIsTheBest(t *testing.T) {
	done := 0
	rapid.Check(t, func(t *rapid.T) {
		m := &Model{CPU: []int64{rapid.Int64Range(1, 9).Draw(t, "cpu"), rapid.Int64Range(1, 9).Draw(t, "cpu")}, Memory: []int64{0, 0}}
		n := rapid.IntRange(0, 12).Draw(t, "vms")
		host := make([]int32, n)
		for i := range host {
			m.Weight = append(m.Weight, rapid.Int64Range(0, 50).Draw(t, "weight"))
			m.Size = append(m.Size, rapid.Int64Range(0, 20).Draw(t, "size"))
			host[i] = rapid.Int32Range(0, 1).Draw(t, "host")
			m.Memory[host[i]] += m.Size[i]
		}
		for j := range m.Memory {
			m.Memory[j] += rapid.Int64Range(0, 20).Draw(t, "free")
		}
		c := crowdOf(m, host)
		a, b := int32(0), int32(1)
		if rapid.Bool().Draw(t, "back") {
			a, b = b, a
		}
		ideal := rapid.Int64Range(1, 50).Draw(t, "wanted")
		// Every exchange: bits of the VMs that change hosts, at most two from either.
		best := ideal
		for set := range 1 << n {
			var moved [2]int
			var weight, size int64
			for i := range n {
				if set>>i&1 == 0 {
					continue
				}
				moved[host[i]]++
				if host[i] == a {
					weight, size = weight+m.Weight[i], size+m.Size[i]
				} else {
					weight, size = weight-m.Weight[i], size-m.Size[i]
				}
			}
			if moved[0] > 2 || moved[1] > 2 || size > c.free[b] || -size > c.free[a] {
				continue
			}
			best = min(best, max(weight-ideal, ideal-weight))
		}
		before := c.load[a]
		x := &swapper{c: c}
		found := x.exchange(a, b, ideal, 0)
		after := slices.Clone(host)
		c.hosts(after)
		gap := before - c.load[a] - ideal
		if !m.Check(after) || found != (best < ideal) || found && max(gap, -gap) != best {
			t.Fatalf("%+v on %v: exchange %v, %v from the wanted %v, the best is %v; now %v", m, host, found, gap, ideal, best, after)
		}
		if want := crowdOf(m, after); !slices.Equal(want.load, c.load) || !slices.Equal(want.free, c.free) {
			t.Fatalf("loads %v and memory %v, in truth %v and %v", c.load, c.free, want.load, want.free)
		}
		if found {
			done++
		}
	})
	t.Logf("%d exchanges", done)
}

func TestByGreaterIsLargestFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawCrowdModel(t)
		perCPU, perMemory := rapid.Float64Range(0.001, 1).Draw(t, "per CPU"), rapid.Float64Range(0.001, 1).Draw(t, "per memory")
		seen := make([]bool, len(m.Weight))
		last := math.Inf(1)
		for _, i := range m.byGreater(perCPU, perMemory) {
			key := max(float64(m.Weight[i])*perCPU, float64(m.Size[i])*perMemory)
			if seen[i] || key > last*(1+1.0/128) {
				t.Fatalf("VM %d: seen %v, key %v after %v", i, seen[i], key, last)
			}
			seen[i], last = true, key
		}
		if slices.Contains(seen, false) {
			t.Fatal("a VM is missing")
		}
	})
}
