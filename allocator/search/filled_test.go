package search

import (
	"math/rand/v2"
	"testing"
)

// What fill finds is a placement at the level, and it finds the planted one of hosts that are all full.
func TestFill(t *testing.T) {
	r := rand.New(rand.NewPCG(22, 5))
	found := 0
	for k := range 400 {
		h := 2 + r.IntN(6)
		m := &Model{}
		over := int64(r.IntN(3)) * 2
		for range h {
			m.CPU, m.Memory = append(m.CPU, 1000+over), append(m.Memory, 1000+over)
			w, s := int64(1000), int64(1000)
			for w > 0 {
				a, b := min(w, 200+r.Int64N(300)), min(s, r.Int64N(500))
				if w-a < 100 {
					a, b = w, s
				}
				m.Weight, m.Size = append(m.Weight, a), append(m.Size, b)
				w, s = w-a, s-b
			}
		}
		f := newFinder(m, uint64(k), 10_000_000, nil)
		p := f.fill(1)
		if p == nil {
			if f.fillings(1) != nil {
				t.Errorf("model %d: %d hosts, %d VMs: not found", k, h, len(m.Weight))
			}
			continue
		}
		found++
		if _, l := p.top(); !m.Check(p.host) || l > 1 {
			t.Errorf("model %d: level %v, placement %v", k, l, p.host)
		}
	}
	if found < 100 {
		t.Errorf("found %d", found)
	}
}
