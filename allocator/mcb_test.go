package allocator_test

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/allocator"
)

func TestEveryMCBKeepsEveryLimit(t *testing.T) {
	orders := allocator.HostOrders()
	if len(orders) != 15 {
		t.Fatalf("%d orders of hosts", len(orders))
	}
	rapid.Check(t, func(t *rapid.T) {
		p := allocator.Problem{Hosts: drawHosts(t, 6), Groups: drawGroups(t, 8, 40)}
		for j := range p.Hosts {
			p.Hosts[j].Cordoned = rapid.IntRange(0, 5).Draw(t, "cordoned") == 0
		}
		if rapid.Bool().Draw(t, "floors") {
			for g := range p.Groups {
				p.Groups[g].MinYield = hundredths(t, "floor", 0, 60)
			}
		}
		o := allocator.MCBOptions{
			Lists:  allocator.ListOrder(rapid.IntRange(0, 8).Draw(t, "lists")),
			Hosts:  rapid.SliceOfN(rapid.SampledFrom(orders), 0, 4).Draw(t, "host orders"),
			Bisect: rapid.Bool().Draw(t, "bisect"),
		}
		s, ok := allocator.MCB(p, o)
		again, okAgain := allocator.MCB(p, o)
		if ok != okAgain || !reflect.DeepEqual(s, again) {
			t.Fatalf("two answers to one problem: %+v, %+v", s, again)
		}
		if !ok {
			return
		}
		if err := checkSolution(p, s); err != nil {
			t.Fatalf("%+v, %+v: %v", p, o, err)
		}
		if len(s.Shortfall) > 0 {
			t.Errorf("floors were packed for, but are not kept: %+v", s.Shortfall)
		}
		for g := range s.Hosts {
			for _, j := range s.Hosts[g] {
				if p.Hosts[j].Cordoned {
					t.Errorf("VM of group %d on cordoned host %d", g, j)
				}
			}
		}
	})
}

func TestMCBRefusesUnknownLists(t *testing.T) {
	p := allocator.Problem{Hosts: []allocator.Host{{CPU: 1, Memory: 1}}}
	for _, lists := range []allocator.ListOrder{-1, 9} {
		if _, ok := allocator.MCB(p, allocator.MCBOptions{Lists: lists}); ok {
			t.Errorf("lists %d: placed", lists)
		}
	}
}

// On unequal hosts more orders find more, on average; no order is best for all.
func TestHostOrdersHelp(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	usual, all := 0.0, 0.0
	for range 30 {
		p := paperInstance(r, 16, 64, 0.3, 0.75, 0.75)
		for j := range p.Hosts {
			p.Hosts[j].CPU = 0.5 + r.Float64()
			p.Hosts[j].Memory = 0.5 + r.Float64()
		}
		if s, ok := allocator.MCB(p, allocator.MCBOptions{}); ok {
			usual += s.MinYield
		}
		if s, ok := allocator.MCB(p, allocator.MCBOptions{Hosts: allocator.HostOrders()}); ok {
			all += s.MinYield
		}
	}
	if all <= usual {
		t.Errorf("sum of the minimum yields %.4f with all orders, %.4f with two", all, usual)
	}
	t.Logf("sum of the minimum yields %.4f with all orders, %.4f with two", all, usual)
}
