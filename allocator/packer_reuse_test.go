package allocator

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
)

// A packer that was used for other problems finds what a new one finds.
func TestPackerOfAnotherProblem(t *testing.T) {
	r := rand.New(rand.NewPCG(35, 36))
	used, n := new(packer), 0
	for range 200 {
		hosts := 1 + r.IntN(12)
		p := slackInstance(r, hosts, 1+r.IntN(8*hosts), 0.1+0.8*r.Float64(), r.Float64(), r.Float64())
		counts := make([]int, len(p.Groups))
		for g := range counts {
			p.Groups[g].Count = r.IntN(3)
			counts[g] = p.Groups[g].Count
		}
		for j := range p.Hosts {
			if size := float64(1+r.IntN(20)) / 10; hosts%3 > 0 {
				p.Hosts[j] = Host{CPU: size, Memory: math.Pow(size, float64(hosts%3)), Cordoned: r.IntN(9) == 0}
			}
		}
		fresh := newPacker(&p, nil, counts)
		used.reset(&p, nil, counts)
		lists := ListOrder(1 + r.IntN(8))
		fresh.lists, used.lists = lists, lists
		seek := func(hi float64, try probe) { searchLoad(hi, 0, try) }
		want, placed := fresh.best(seek)
		if placed {
			n++
		}
		got, again := used.best(seek)
		if placed != again || !reflect.DeepEqual(got, want) {
			t.Fatalf("lists %d, %d hosts, %d groups: %v, %v and from a packer that was used %v, %v", lists, hosts, len(p.Groups), placed, want, again, got)
		}
	}
	if n < 50 {
		t.Errorf("only %d problems have a placement", n)
	}
}
