package allocator

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Where every virtual cluster is on one host the short way gives what the long one does.
func TestSinglesAreDividedAlike(t *testing.T) {
	short := 0
	rapid.Check(t, func(t *rapid.T) {
		var p Problem
		for range rapid.IntRange(1, 4).Draw(t, "hosts") {
			p.Hosts = append(p.Hosts, Host{CPU: rapid.Float64Range(0, 4).Draw(t, "cpu"), Memory: 100})
		}
		for range rapid.IntRange(0, 12).Draw(t, "groups") {
			g := Group{Count: rapid.IntRange(0, 3).Draw(t, "count"), CPU: rapid.SampledFrom([]float64{0, 0.1, 0.3, 0.5, 1}).Draw(t, "need")}
			j := rapid.IntRange(0, len(p.Hosts)-1).Draw(t, "host")
			for range g.Count {
				g.Hosts = append(g.Hosts, j)
			}
			p.Groups = append(p.Groups, g)
		}
		if p.Validate() != nil {
			return
		}
		loads, _ := countLoads(&p)
		of := tenancyOf(p.Groups)
		s := singlesOf(&p, loads, of)
		if s == nil {
			t.Fatalf("%+v: not taken for singles", p)
		}
		got, want := s.divide(), divideAny(&p, loads, of)
		for g := range want {
			if math.Abs(got[g]-want[g]) > 1e-14 {
				t.Fatalf("%+v: %v, the long way %v", p, got, want)
			}
			if want[g] < p.Groups[g].CPU {
				short++
			}
		}
	})
	t.Logf("%d groups get less than they need", short)
}
