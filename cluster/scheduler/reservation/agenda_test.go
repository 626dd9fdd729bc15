package reservation

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/allocator"
	"evenkeel/migration"
)

const gib = 1 << 30

func hosts(n int, cpu, memory float64) (out []migration.Host) {
	for i := range n {
		out = append(out, migration.Host{Name: fmt.Sprintf("h%d", i+1), CPU: cpu, Memory: memory})
	}
	return out
}

// reporter is both *testing.T and *rapid.T.
type reporter interface{ Fatalf(string, ...any) }

// checkWitnesses computes from the accepted slots alone what every host has in every step, and which rules hold there.
func checkWitnesses(t reporter, a *Agenda) {
	c := &a.cluster
	var p allocator.Problem
	rules := &allocator.Rules{ByCluster: true}
	for _, h := range c.Hosts {
		p.Hosts = append(p.Hosts, allocator.Host{Name: h.Name, CPU: 1, Memory: 1})
	}
	for i, g := range c.Residents {
		p.Groups = append(p.Groups, allocator.Group{Cluster: g.Cluster, Name: g.Name, Count: g.Count, Hosts: g.Hosts})
		rules.Labels, rules.Affinity = append(rules.Labels, nil), append(rules.Affinity, nil)
		if c.Rules != nil {
			rules.Labels[i], rules.Affinity[i] = c.Rules.Labels[i], c.Rules.Affinity[i]
		}
	}
	for step := range c.Steps {
		problem := allocator.Problem{Hosts: p.Hosts, Groups: slices.Clone(p.Groups)}
		these := &allocator.Rules{ByCluster: true, Labels: slices.Clone(rules.Labels), Affinity: slices.Clone(rules.Affinity)}
		placed := [][]int{}
		used := make([]Amount, len(c.Hosts))
		deficits := make([]float64, len(c.Hosts))
		for _, g := range c.Residents {
			placed = append(placed, g.Hosts)
			for _, h := range g.Hosts {
				used[h][Cores] += g.CPU * g.MinYield
				used[h][Memory] += g.Memory
				deficits[h] = max(deficits[h], g.Reclaimable)
			}
		}
		for _, s := range a.Accepted() {
			period := s.Slot.Request.period(c.Steps)
			for at, amount := range s.Slot.Amounts {
				if (step-s.Slot.Request.Phase-s.Slot.Start-at)%period != 0 {
					continue
				}
				n := int(math.Ceil(amount[VMs]))
				if n > len(s.Witness.Hosts) {
					t.Fatalf("%s has %d VMs in step %d, and %d hosts", s.Slot.Request.Name, n, step, len(s.Witness.Hosts))
				}
				for _, h := range s.Witness.Hosts[:n] {
					if c.Hosts[h].Cordoned {
						t.Fatalf("%s is on the cordoned %s", s.Slot.Request.Name, c.Hosts[h].Name)
					}
					used[h][Cores] += amount[Cores] / float64(n)
					used[h][Memory] += amount[Memory] / float64(n)
				}
				problem.Groups = append(problem.Groups, allocator.Group{Cluster: s.Slot.Request.Name, Name: s.Slot.Request.Name, Count: n})
				these.Labels, these.Affinity = append(these.Labels, s.Slot.Request.Labels), append(these.Affinity, s.Slot.Request.Affinity)
				placed = append(placed, s.Witness.Hosts[:n])
			}
		}
		for h, u := range used {
			if u[Cores] > c.Hosts[h].CPU*(1+1e-9) || u[Memory]+deficits[h]+c.Hosts[h].Reserve > c.Hosts[h].Memory*(1+1e-9) {
				t.Fatalf("step %d: %s has %v of %v cores and %v bytes, %v of them free", step, c.Hosts[h].Name, u, c.Hosts[h].CPU, c.Hosts[h].Memory, deficits[h]+c.Hosts[h].Reserve)
			}
		}
		if broken := these.Broken(problem, placed); len(broken) > 0 {
			t.Fatalf("step %d: %s", step, broken[0].Text)
		}
	}
}

// No accepted agenda without a witness: whatever is asked for, hosts keep to their capacity and reserve in every step, rules hold,
// slots that were accepted stay as they were, and moves keep to their budget.
func TestNoSlotWithoutAWitness(t *testing.T) {
	accepted, refused, moved := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		const steps = 12
		c := Cluster{Steps: steps, Hosts: hosts(rapid.IntRange(1, 4).Draw(t, "hosts"), 8, 16*gib), MoveBudget: rapid.SampledFrom([]float64{0, 4 * gib, 64 * gib}).Draw(t, "budget"), Effort: 1_000_000}
		c.Hosts[0].Reserve = gib
		c.Rules = &allocator.Rules{ByCluster: true}
		for i := range rapid.IntRange(0, 5).Draw(t, "residents") {
			h := rapid.IntRange(0, len(c.Hosts)-1).Draw(t, "on")
			if slices.ContainsFunc(c.Residents, func(g migration.Group) bool { return g.Hosts[0] == h }) {
				continue
			}
			g := migration.Group{Cluster: fmt.Sprintf("r%d", i), Name: "g", Count: 1, CPU: 2, MinYield: 0.5, Memory: float64(rapid.IntRange(1, 8).Draw(t, "GiB")) * gib, Hosts: []int{h}}
			if rapid.Bool().Draw(t, "ballooned") {
				g.Reclaimable = gib
			}
			c.Residents = append(c.Residents, g)
			c.Rules.Labels = append(c.Rules.Labels, map[string]string{"app": rapid.SampledFrom([]string{"db", "web"}).Draw(t, "app")})
			c.Rules.Affinity = append(c.Rules.Affinity, nil)
		}
		a, err := New(c, DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		for i := range rapid.IntRange(1, 6).Draw(t, "requests") {
			r := Request{Name: fmt.Sprintf("p%d", i), Period: rapid.SampledFrom([]int{0, 6, 12}).Draw(t, "period"), Phase: rapid.IntRange(0, 5).Draw(t, "phase"), MinYield: rapid.SampledFrom([]float64{0, 0.5}).Draw(t, "yield")}
			r.Due = rapid.IntRange(2, 6).Draw(t, "due")
			for range rapid.IntRange(1, 3).Draw(t, "stages") {
				n := rapid.IntRange(1, 4).Draw(t, "VMs")
				r.Stages = append(r.Stages, Stage{n, float64(n) * rapid.Float64Range(0, 6).Draw(t, "cores"), float64(n) * rapid.Float64Range(0, 14*gib).Draw(t, "memory")})
			}
			if rapid.IntRange(0, 3).Draw(t, "large") == 0 { // one large VM: residents may have to move
				r.Stages = []Stage{{1, 1, 12 * gib}}
			} else if rapid.Bool().Draw(t, "elastic") {
				r.Elastic = &Elastic{Unit: Amount{1, 3 * gib, 1}}
			}
			r.Labels = map[string]string{"app": "batch"}
			r.Affinity = rapid.SampledFrom([]*allocator.Affinity{nil, {Spread: "host"}, {Avoid: []string{"app=db"}}, {Avoid: []string{"vc:p0"}}}).Draw(t, "rules")
			if i == 0 && r.Affinity != nil && len(r.Affinity.Avoid) > 0 {
				r.Affinity = nil
			}
			before := fmt.Sprint(values(a))
			s, no, err := a.Accept(r)
			switch {
			case err != nil && strings.Contains(err.Error(), "do not fit its window"):
			case err != nil:
				t.Fatal(err)
			case no != nil:
				refused++
				if no.Text == "" || s != nil || fmt.Sprint(values(a)) != before {
					t.Fatalf("refused: %+v, %v", no, s)
				}
			default:
				accepted++
				if s.Witness.Bytes > c.MoveBudget || s.Slot.Cost > 1+1e-9 {
					t.Fatalf("%+v", s)
				}
				if len(s.Witness.Moves) > 0 {
					moved++
				}
				if now := fmt.Sprint(values(a)); !strings.HasPrefix(now, strings.TrimSuffix(before, "]")) {
					t.Fatal("slots that were accepted before changed")
				}
			}
			checkWitnesses(t, a)
		}
		for len(a.Accepted()) > 0 {
			if !a.Remove(a.Accepted()[0].Slot.Request.Name) {
				t.Fatal("not removed")
			}
			checkWitnesses(t, a)
		}
		if a.Load().Peak() != 0 {
			t.Fatal("an empty agenda has load")
		}
	})
	t.Logf("accepted %d, of them with moves %d; refused %d", accepted, moved, refused)
	if accepted < 50 || refused < 20 {
		t.Error("the cases are one-sided")
	}
}

func values(a *Agenda) (out []Accepted) {
	for _, s := range a.Accepted() {
		s := *s
		s.Slot.Request = Request{Name: s.Slot.Request.Name}
		s.Witness.Moves = nil
		out = append(out, s)
	}
	return out
}

// Four VMs of 48 GiB fit the sum of hosts of 64 GiB with 20 GiB in use each, and no host (pitfall 2). The refusal names a host, and
// what would fit does.
func TestSumsAreNoWitness(t *testing.T) {
	a, err := New(Cluster{Steps: 24, Hosts: hosts(5, 16, 64*gib)}, DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	day := Request{Name: "day", Period: 24, Due: 24}
	for range 24 {
		day.Stages = append(day.Stages, Stage{5, 5, 100 * gib})
	}
	day.Affinity = &allocator.Affinity{Spread: "host"}
	if _, no, err := a.Accept(day); no != nil || err != nil {
		t.Fatal(no, err)
	}
	r := Request{Name: "render", Period: 24, Due: 12, Stages: []Stage{{4, 8, 192 * gib}}}
	s, no, err := a.Accept(r)
	if s != nil || no == nil || err != nil || no.Host == "" || no.Resource != Memory || len(no.Changes) == 0 {
		t.Fatalf("%+v, %+v, %v", s, no, err)
	}
	for _, c := range no.Changes {
		if c.Kind != SmallerDemand {
			t.Errorf("%s was proposed", c.Text)
			continue
		}
		if s, no, err := a.Accept(r.scaled(c.Value)); s == nil {
			t.Errorf("%s was proposed: %+v, %v", c.Text, no, err)
		}
	}
}

// Memory that stands in pieces is joined by a move of a resident, within the budget.
func TestMovesBeforeTheSlot(t *testing.T) {
	c := Cluster{Steps: 24, Hosts: hosts(2, 16, 64*gib), MoveBudget: 20 * gib, Residents: []migration.Group{
		{Cluster: "a", Name: "a", Count: 1, CPU: 1, Memory: 20 * gib, Hosts: []int{0}}, {Cluster: "b", Name: "b", Count: 1, CPU: 1, Memory: 20 * gib, Hosts: []int{1}}}}
	r := Request{Name: "render", Period: 24, Due: 12, Stages: []Stage{{1, 8, 60 * gib}}}
	a, err := New(c, DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	s, no, err := a.Accept(r)
	if err != nil || no != nil {
		t.Fatal(no, err)
	}
	if len(s.Witness.Moves) == 0 || s.Witness.Bytes != 20*gib || a.Residents()[0].Hosts[0] != a.Residents()[1].Hosts[0] {
		t.Errorf("%+v, residents %+v", s.Witness, a.Residents())
	}
	checkWitnesses(t, a)
	c.MoveBudget = 19 * gib
	a, _ = New(c, DefaultOptions())
	if _, no, err := a.Accept(r); err != nil || no == nil {
		t.Errorf("accepted beyond the budget: %v", err)
	}
}

// A refusal for want of cores names the step, and a later deadline that fits.
func TestRefusalNamesTheStep(t *testing.T) {
	a, err := New(Cluster{Steps: 24, Hosts: hosts(2, 8, 64*gib)}, DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	first := Request{Name: "first", Period: 24, Due: 3, Stages: []Stage{{2, 14, gib}, {2, 14, gib}, {2, 14, gib}}}
	if _, no, err := a.Accept(first); err != nil || no != nil {
		t.Fatal(no, err)
	}
	second := Request{Name: "second", Period: 24, Due: 3, Stages: []Stage{{2, 8, gib}}}
	_, no, err := a.Accept(second)
	if err != nil || no == nil || no.Resource != Cores || no.Step > 2 || no.Missing != 6 {
		t.Fatalf("%+v, %v", no, err)
	}
	if no.Changes[0].Kind != LaterDue || no.Changes[0].Value != 4 {
		t.Errorf("%+v", no.Changes)
	}
	if f := a.Free(0, 0, 3); f[Cores] != 1 {
		t.Errorf("free in the slot: %v", f)
	}
	if f := a.Free(0, 3, 24); f[Cores] != 8 {
		t.Errorf("free after the slot: %v", f)
	}
}

func TestReprovisioning(t *testing.T) {
	p := DefaultReprovisioning()
	for name, c := range map[string]struct {
		i    Instance
		r    Room
		want Grant
	}{
		"no need":              {Instance{5, 5, nil}, Room{100, 5, 0}, Grant{0, 0, ByDemand}},
		"all it asks for":      {Instance{8, 5, []float64{5, 5}}, Room{100, 5, 0}, Grant{3, 1, ByDemand}},
		"rho times the recent": {Instance{50, 5, []float64{40, 5, 6}}, Room{100, 5, 0}, Grant{7, 1, ByRecent}},
		"after its end":        {Instance{50, 0, []float64{10, 8}}, Room{100, 0, 0}, Grant{20, 1, ByRecent}},
		"the plan is full":     {Instance{50, 20, nil}, Room{100, 90, 8}, Grant{2, 1, ByPlan}},
		"over full":            {Instance{50, 20, nil}, Room{100, 99, 8}, Grant{0, 0, ByPlan}},
		"all grants together":  {Instance{50, 30, nil}, Room{100, 30, 20}, Grant{5, 1, ByShare}},
		"long gone":            {Instance{50, 0, []float64{9, 0, 0}}, Room{100, 0, 0}, Grant{0, 0, ByRecent}},
	} {
		if got := p.Decide(c.i, c.r); got != c.want {
			t.Errorf("%s: %+v, not %+v", name, got, c.want)
		}
	}
}

func TestLate(t *testing.T) {
	slot := []float64{10, 10, 5}
	for name, c := range map[string]struct {
		at           int
		used, demand float64
		want         float64
	}{
		"not begun":               {0, 0, 25, 0},
		"on time, and asks":       {1, 10, 15, 0},
		"came a step late":        {1, 0, 25, 10},
		"used less than it has":   {2, 13, 5, 7},
		"more work than the slot": {2, 20, 9, 4},
		"after its end":           {3, 25, 6, 6},
		"done":                    {3, 25, 0, 0},
	} {
		if got := Late(slot, c.at, c.used, c.demand); got != c.want {
			t.Errorf("%s: late by %v, not %v", name, got, c.want)
		}
	}
}
