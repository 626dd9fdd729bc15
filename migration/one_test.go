package migration_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/allocator"
	"evenkeel/migration"
)

func TestMoveOneTable(t *testing.T) {
	problem := func() migration.Problem {
		return migration.Problem{
			Hosts: []migration.Host{{Name: "h0", CPU: 2, Memory: 8}, {Name: "h1", CPU: 4, Memory: 8}, {Name: "h2", CPU: 8, Memory: 8}},
			Groups: []migration.Group{{Cluster: "a", Name: "a", Count: 2, CPU: 2, Memory: 2, Hosts: []int{0, 0}, Names: []string{"a-0", "a-1"}},
				{Cluster: "b", Name: "b", Count: 1, CPU: 4, Memory: 5, Hosts: []int{1}}},
		}
	}
	for name, c := range map[string]struct {
		change      func(*migration.Problem)
		to, arrives int
		says        string
		advice      migration.Advice
	}{
		"to the best":      {nil, migration.AnyHost, 2, "1 move of 2 B; the minimum yield goes from 0.5000 to 1.0000", ""},
		"to one asked for": {nil, 1, 1, "1 move of 2 B; the minimum yield goes from 0.5000 to 0.6667", ""},
		"where it is":      {nil, 0, -1, "it runs there already", ""},
		"cordoned":         {func(p *migration.Problem) { p.Hosts[2].Cordoned = true }, 2, -1, "host h2 is cordoned", "uncordon host h2"},
		"unavailable":      {func(p *migration.Problem) { p.Hosts[2].Cordoned, p.Hosts[2].Unavailable = true, "is lost" }, 2, -1, "host h2 is lost", "bring host h2 back"},
		"no memory":        {func(p *migration.Problem) { p.Groups[1].Memory = 7 }, 1, -1, "host h1 has 1 B of memory too little for it", "free 1 B on host h1"},
		"a floor":          {func(p *migration.Problem) { p.Groups[0].MinYield, p.Groups[1].MinYield = 0.1, 1 }, 1, -1, "host h1 could not give its VMs what they must have", ""},
		"a rule": {func(p *migration.Problem) {
			p.Rules = &allocator.Rules{Affinity: []*allocator.Affinity{{Avoid: []string{"host:h2"}}, nil}}
		}, 2, -1, "its rules keep it from host h2", ""},
		"no route": {func(p *migration.Problem) {
			p.NoRoute = func(_, to int) string { return map[int]string{2: "no key"}[to] }
		}, 2, -1, "host h0 cannot send VMs to h2: no key", ""},
		"past one no route": {func(p *migration.Problem) {
			p.NoRoute = func(_, to int) string { return map[int]string{2: "no key"}[to] }
		}, migration.AnyHost, 1, "1 move", ""},
		"pinned":             {func(p *migration.Problem) { p.Groups[0].Pinned = []int{0} }, 2, -1, "it cannot be moved while it runs", ""},
		"no host of several": {func(p *migration.Problem) { p.Hosts[1].Cordoned, p.Hosts[2].Cordoned = true, true }, migration.AnyHost, -1, "no host can take it: 2 hosts are cordoned", "add a host"},
	} {
		p := problem()
		if c.change != nil {
			c.change(&p)
		}
		out, err := migration.MoveOne(p, 0, 0, c.to)
		if err != nil || out.To != c.arrives || out.Feasible != (c.arrives >= 0) || !strings.HasPrefix(out.Reason, c.says) || c.advice != "" && !slices.Contains(out.Advice, c.advice) {
			t.Errorf("%s: to %d, %q, advice %q, %v; want %d, %q", name, out.To, out.Reason, out.Advice, err, c.arrives, c.says)
		}
		if out.Feasible && (out.Before[0] != 0.5 || out.After[0] < 0.5 || out.Moves != 1) {
			t.Errorf("%s: yields of hosts %v, then %v", name, out.Before, out.After)
		}
	}
	for _, bad := range [][3]int{{-1, 0, 0}, {2, 0, 0}, {0, 2, 0}, {0, 0, 3}, {0, 0, -2}} {
		if _, err := migration.MoveOne(problem(), bad[0], bad[1], bad[2]); err == nil {
			t.Errorf("no VM or host %v: no error", bad)
		}
	}
}

// TestOneMoveKeepsTheRules: the plan is one that the checker of plans carries out; it moves that VM alone, and a refusal has a reason.
// The best host gives no less than any that is asked for.
func TestOneMoveKeepsTheRules(t *testing.T) {
	moved, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := drawn(t)
		for g := range p.Groups {
			if slices.Contains(p.Groups[g].Hosts, -1) || p.Groups[g].Count == 0 {
				t.Skip("not all VMs run, and only those are moved") // another is drawn
			}
		}
		g := rapid.IntRange(0, len(p.Groups)-1).Draw(t, "group")
		vm := rapid.IntRange(0, p.Groups[g].Count-1).Draw(t, "vm")
		best, err := migration.MoveOne(p, g, vm, migration.AnyHost)
		if err != nil {
			t.Fatal(err)
		}
		check := func(out migration.OneMove) {
			if !out.Feasible {
				refused++
				if out.Reason == "" || len(out.Steps) > 0 {
					t.Fatalf("refused as %q with %d steps", out.Reason, len(out.Steps))
				}
				return
			}
			moved++
			if err := checkPlan(p, out.Plan, math.Inf(1), rand.New(rand.NewPCG(1, 2)), true); err != nil {
				t.Fatal(err)
			}
			for i := range out.Hosts {
				for k, j := range out.Hosts[i] {
					if (i != g || k != vm) && j != p.Groups[i].Hosts[k] {
						t.Fatalf("VM %d of group %d moves, too", k, i)
					}
				}
			}
			if out.Hosts[g][vm] != out.To || out.To == p.Groups[g].Hosts[vm] {
				t.Fatalf("to host %d: %v", out.To, out.Hosts[g])
			}
		}
		check(best)
		for j := range p.Hosts {
			out, err := migration.MoveOne(p, g, vm, j)
			if err != nil {
				t.Fatal(err)
			}
			check(out)
			if out.Feasible && (!best.Feasible || best.MinYieldAfter < out.MinYieldAfter-1e-9) {
				t.Fatalf("host %d gives %v, the best one %v", j, out.MinYieldAfter, best.MinYieldAfter)
			}
		}
	})
	if moved == 0 || refused == 0 {
		t.Errorf("%d moves, %d refused: both must be tried", moved, refused)
	}
}
