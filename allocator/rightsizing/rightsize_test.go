package rightsizing

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/allocator"
)

const gib = 1 << 30

// one is a component of a table test: it has what it asked for.
func one(host int, elastic bool, since int64, cpu, memory, needCPU, needMemory float64) Component {
	return Component{Host: host, Elastic: elastic, Since: since, Request: Amount{cpu, memory * gib}, Present: Amount{cpu, memory * gib}, Need: Amount{needCPU, needMemory * gib}}
}

func problemOf(hosts []Host, apps ...[]Component) *Problem {
	p := &Problem{Hosts: hosts}
	for _, cs := range apps {
		p.Apps = append(p.Apps, App{First: len(p.Components), Count: len(cs), Yield: 1})
		p.Components = append(p.Components, cs...)
	}
	return p
}

func TestAlgorithm1(t *testing.T) {
	hosts := []Host{{"a", 4, 8 * gib}, {"b", 4, 8 * gib}}
	for name, c := range map[string]struct {
		p      *Problem
		fates  []Action
		why    []Why
		memory []float64 // GiB
		gone   []int
	}{
		"all are resized": {problemOf(hosts, []Component{one(0, false, 0, 2, 4, 1, 1), one(1, true, 0, 2, 4, 1, 2)}),
			[]Action{Shrink, Shrink}, []Why{Needed, Needed}, []float64{1, 2}, nil},
		"the later application goes": {problemOf(hosts,
			[]Component{one(0, false, 0, 2, 8, 2, 6)},
			[]Component{one(0, false, 1, 2, 8, 2, 6), one(1, false, 1, 1, 1, 1, 1)}),
			[]Action{Shrink, Preempt, Preempt}, []Why{Needed, NoMemory, WithCore}, []float64{6, 0, 0}, []int{1}},
		"who comes after one that goes may have its room": {problemOf(hosts,
			[]Component{one(1, false, 0, 1, 1, 1, 1), one(0, false, 0, 8, 8, 8, 1)},
			[]Component{one(0, false, 1, 4, 8, 4, 8)}),
			[]Action{Preempt, Preempt, Keep}, []Why{WithCore, NoCPU, AtDeclared}, []float64{0, 0, 8}, []int{0}},
		"the youngest elastic component goes": {problemOf(hosts,
			[]Component{one(0, true, 9, 1, 4, 1, 4), one(0, true, 3, 1, 4, 1, 4), one(0, false, 20, 1, 4, 1, 3)}),
			[]Action{Preempt, Keep, Shrink}, []Why{NoMemory, AtDeclared, Needed}, []float64{0, 4, 3}, nil},
		"core components of an earlier application before elastic ones of a later": {problemOf(hosts,
			[]Component{one(0, false, 0, 1, 8, 1, 5)},
			[]Component{one(0, true, 0, 1, 4, 1, 4), one(0, false, 0, 1, 3, 1, 3)}),
			[]Action{Shrink, Preempt, Keep}, []Why{Needed, NoMemory, AtDeclared}, []float64{5, 0, 3}, nil},
		"elastic ones without a core live alone": {problemOf(hosts,
			[]Component{one(0, true, 0, 1, 8, 1, 8), one(0, true, 1, 1, 8, 1, 8), one(1, true, 2, 1, 8, 1, 8)}),
			[]Action{Keep, Preempt, Keep}, []Why{AtDeclared, NoMemory, AtDeclared}, []float64{8, 0, 8}, nil},
		"CPU makes go": {problemOf(hosts,
			[]Component{one(0, false, 0, 4, 1, 3, 1)}, []Component{one(0, false, 0, 4, 1, 2, 1)}),
			[]Action{Keep, Preempt}, []Why{AtDeclared, NoCPU}, []float64{1, 0}, []int{1}},
	} {
		if err := c.p.check(); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r := new(Rightsizer).Rightsize(c.p, Options{})
		for i, out := range r.Outcomes {
			if out.Action != c.fates[i] || out.Why != c.why[i] || out.Memory != c.memory[i]*gib {
				t.Errorf("%s: component %d: %v (%s), want %v, reason %d, %v GiB", name, i, out, r.Text(c.p, i), c.fates[i], c.why[i], c.memory[i])
			}
		}
		if !slices.Equal(r.Evicted, c.gone) {
			t.Errorf("%s: %v go, want %v", name, r.Evicted, c.gone)
		}
	}
}

func TestBeyondThePaper(t *testing.T) {
	hosts := []Host{{"a", 4, 8 * gib}}
	two := func(edit func(p *Problem)) *Problem {
		p := problemOf(hosts, []Component{one(0, false, 0, 3, 4, 3, 1)}, []Component{one(0, true, 0, 3, 4, 3, 4)})
		edit(p)
		return p
	}
	three := func() *Problem { // a core and an elastic component of one application, a core one of the next
		p := problemOf(hosts, []Component{one(0, false, 0, 1, 3, 1, 3), one(0, true, 0, 1, 3, 1, 3)}, []Component{one(0, false, 0, 1, 3, 1, 3)})
		p.Apps[0].Yield, p.Apps[1].Yield = 0, 0
		return p
	}
	for name, c := range map[string]struct {
		p     *Problem
		o     Options
		fates []Action
		want  []Amount // GiB
	}{
		"CPU is shared": {two(func(p *Problem) { p.Apps[0].Yield, p.Apps[1].Yield = 0, 0 }), Options{},
			[]Action{Shrink, Keep}, []Amount{{2, 1}, {2, 4}}},
		"but for what was promised": {two(func(p *Problem) { p.Apps[0].Yield, p.Apps[1].Yield = 0.9, 0.1 }), Options{},
			[]Action{Shrink, Keep}, []Amount{{2.7, 1}, {1.3, 4}}},
		"and what was promised may take it all": {two(func(p *Problem) { p.Apps[0].Yield, p.Apps[1].Yield = 0.9, 0.9 }), Options{},
			[]Action{Shrink, Preempt}, []Amount{{3, 1}, {}}},
		"in steps": {two(func(p *Problem) { p.Apps[0].Yield, p.Apps[1].Yield = 0, 0 }), Options{Step: 0.125},
			[]Action{Shrink, Keep}, []Amount{{2, 3.5}, {2, 4}}},
		"not below a floor": {two(func(p *Problem) { p.Apps[0].Yield, p.Apps[1].Yield, p.Components[0].Floor = 0, 0, 2*gib }), Options{},
			[]Action{Shrink, Keep}, []Amount{{2, 2}, {2, 4}}},
		"not soon after it grew": {two(func(p *Problem) { p.Apps[0].Yield, p.Apps[1].Yield, p.Components[0].Grew = 0, 0, 50 }), Options{Now: 100, Rest: 60},
			[]Action{Keep, Keep}, []Amount{{2, 4}, {2, 4}}},
		"later it is": {two(func(p *Problem) { p.Apps[0].Yield, p.Apps[1].Yield, p.Components[0].Grew = 0, 0, 50 }), Options{Now: 110, Rest: 60},
			[]Action{Shrink, Keep}, []Amount{{2, 1}, {2, 4}}},
		"not in the grace period": {two(func(p *Problem) { p.Apps[0].Yield, p.Apps[1].Yield, p.Components[0].Since = 0, 0, 50 }), Options{Now: 100, MinAge: 60},
			[]Action{Keep, Keep}, []Amount{{2, 4}, {2, 4}}},
		"a fixed one keeps what it has": {two(func(p *Problem) { p.Apps[0].Yield, p.Apps[1].Yield, p.Apps[0].Fixed = 0, 0, true }), Options{},
			[]Action{Keep, Keep}, []Amount{{2, 4}, {2, 4}}},
		"and is served first": {two(func(p *Problem) {
			p.Apps[0].Yield, p.Apps[1].Yield, p.Apps[1].Fixed = 0, 0, true
			p.Components[1].Present.Memory, p.Components[0].Need.Memory = 6*gib, 4*gib
		}), Options{}, []Action{Preempt, Keep}, []Amount{{}, {3, 6}}},
		"growth finds what another gave": {two(func(p *Problem) {
			p.Apps[0].Yield, p.Apps[1].Yield = 0, 0
			p.Components[1].Request.Memory, p.Components[1].Need.Memory = 7*gib, 7*gib
		}), Options{}, []Action{Shrink, Grow}, []Amount{{2, 1}, {2, 7}}},
		"but not before it is free": {two(func(p *Problem) {
			p.Apps[0].Yield, p.Apps[1].Yield = 0, 0
			p.Components[1].Present.Memory, p.Components[1].Request.Memory, p.Components[1].Need.Memory = 3*gib, 7*gib, 7*gib
		}), Options{Late: true}, []Action{Shrink, Grow}, []Amount{{2, 1}, {2, 4}}},
		"no VM is evicted for an optional amount": {two(func(p *Problem) {
			p.Apps[0].Yield, p.Apps[1].Yield = 0, 0
			p.Components[0].Need.Memory, p.Components[0].Present.Memory, p.Components[0].Required = 4*gib, 2*gib, 2*gib
			p.Components[1].Present.Memory, p.Components[1].Request.Memory, p.Components[1].Need.Memory = 4*gib, 5*gib, 5*gib
		}), Options{}, []Action{Grow, Grow}, []Amount{{2, 3}, {2, 5}}},
		"a fixed one asks for an optional amount": {two(func(p *Problem) {
			p.Apps[0].Yield, p.Apps[1].Yield, p.Apps[0].Fixed = 0, 0, true
			p.Components[0].Need.Memory, p.Components[0].Present.Memory = 4*gib, 2*gib
			p.Components[1].Present.Memory, p.Components[1].Request.Memory, p.Components[1].Need.Memory = 4*gib, 5*gib, 5*gib
		}), Options{}, []Action{Grow, Grow}, []Amount{{2, 3}, {2, 5}}},
		"others go for memory in use alone": {two(func(p *Problem) { // 5 and 4 of 8 GiB are needed, 3 and 4 are in use
			p.Apps[0].Yield, p.Apps[1].Yield = 0, 0
			p.Components[0].Request.Memory, p.Components[0].Need.Memory, p.Components[0].Present.Memory = 5*gib, 5*gib, 3*gib
			p.Components[0].InUse, p.Components[1].InUse = 3*gib, 4*gib
		}), Options{}, []Action{Grow, Keep}, []Amount{{2, 4}, {2, 4}}},
		"where that does not fit": {two(func(p *Problem) {
			p.Apps[0].Yield, p.Apps[1].Yield = 0, 0
			p.Components[0].Request.Memory, p.Components[0].Need.Memory, p.Components[0].Present.Memory = 5*gib, 5*gib, 3*gib
			p.Components[0].InUse, p.Components[1].InUse = 4.5*gib, 4*gib
		}), Options{}, []Action{Grow, Preempt}, []Amount{{3, 5}, {}}},
		"an old one's elastic component goes with its application's turn": {three(), Options{}, []Action{Keep, Keep, Preempt}, []Amount{{1, 3}, {1, 3}, {}}},
		"or before any core one": {three(), Options{CoreFirst: true}, []Action{Keep, Preempt, Keep}, []Amount{{1, 3}, {}, {1, 3}}},
		"a reserve is kept": {two(func(p *Problem) {
			p.Apps[0].Yield, p.Apps[1].Yield, p.Components[0].Need.Memory = 0, 0, 3.5*gib
			p.Components[1].Need.Memory = 4 * gib
			p.Hosts = []Host{{"a", 4, 7.75 * gib}}
		}), Options{Reserve: true}, []Action{Shrink, Preempt}, []Amount{{3, 3.5}, {}}},
		"none is": {two(func(p *Problem) {
			p.Apps[0].Yield, p.Apps[1].Yield, p.Components[0].Need.Memory = 0, 0, 3.5*gib
			p.Hosts = []Host{{"a", 4, 7.75 * gib}}
		}), Options{}, []Action{Shrink, Keep}, []Amount{{2, 3.5}, {2, 4}}},
	} {
		r := new(Rightsizer).Rightsize(c.p, c.o)
		for i, out := range r.Outcomes {
			if out.Action != c.fates[i] || math.Abs(out.CPU-c.want[i].CPU) > 1e-9 || out.Memory != c.want[i].Memory*gib {
				t.Errorf("%s: component %d: %+v (%s), want %v %v", name, i, out, r.Text(c.p, i), c.fates[i], c.want[i])
			}
		}
	}
}

// Eight components of 4 GiB, shrunk to 2 each. The one that grows stops where a quarter of what the others lack has to stay free, and no
// component is evicted where that quarter is not free.
func TestAQuarterOfAllIsKept(t *testing.T) {
	for name, c := range map[string]struct {
		memory  float64 // of the host, GiB
		grown   float64 // what the first has then
		without float64 // likewise, where the quarter is not kept
	}{
		"there is room":               {22, 4, 4}, // 18 + 14/4
		"just the largest would fit":  {20.25, 2 + 1./3, 4},
		"the quarter is there":        {20, 2, 4},
		"short of the quarter":        {19, 2, 3},
		"and just not of the largest": {18, 2, 2},
	} {
		var all [][]Component
		for range 8 {
			x := one(0, true, 0, 1, 4, 1, 2)
			x.Present.Memory, x.Charged = 2*gib, 2*gib
			all = append(all, []Component{x})
		}
		p := problemOf([]Host{{"a", 32, c.memory * gib}}, all...)
		p.Components[0].Need.Memory, p.Components[0].Required = 4*gib, 2*gib
		if r := new(Rightsizer).Rightsize(p, Options{Reserve: true, LargestOnly: true, Late: true, Step: 1}); math.Abs(r.Outcomes[0].Memory-c.without*gib) > 1 || r.Preempted > 0 {
			t.Errorf("%s: without the quarter: %+v", name, r.Outcomes)
		}
		r := new(Rightsizer).Rightsize(p, Options{Reserve: true, Late: true, Step: 1})
		for i, out := range r.Outcomes {
			switch {
			case i == 0 && math.Abs(out.Memory-c.grown*gib) > 1:
				t.Errorf("%s: it has %.3f GiB, want %.3f: %s", name, out.Memory/gib, c.grown, r.Text(p, i))
			case i > 0 && (out.Action != Keep || out.Memory != 2*gib):
				t.Errorf("%s: component %d: %+v (%s)", name, i, out, r.Text(p, i))
			}
		}
	}
}

func TestOptimistic(t *testing.T) {
	p := problemOf([]Host{{"a", 4, 8 * gib}},
		[]Component{one(0, false, 0, 2, 4, 2, 2)},
		[]Component{one(0, false, 0, 2, 6, 2, 5)},
		[]Component{one(0, true, 0, 2, 6, 2, 4)})
	p.Components[1].Present.Memory, p.Components[2].Present.Memory = 2*gib, 1*gib
	r := new(Rightsizer).Rightsize(p, Options{Policy: Optimistic})
	want := []Outcome{{CPU: 4. / 3, Memory: 2 * gib, Action: Shrink, Core: -1}, {CPU: 4. / 3, Memory: 5 * gib, Action: Grow, Core: -1},
		{CPU: 4. / 3, Memory: 1 * gib, Action: Fail, Why: NoRoom, Core: -1, Deficit: 3 * gib}}
	if !slices.Equal(r.Outcomes, want) || r.Failed != 1 || len(r.Evicted) != 0 {
		t.Errorf("%+v, want %+v", r, want)
	}
}

// draw a problem.
func draw(t *rapid.T) *Problem {
	p := &Problem{}
	for range rapid.IntRange(1, 4).Draw(t, "hosts") {
		p.Hosts = append(p.Hosts, Host{Name: "h", CPU: rapid.Float64Range(0, 10).Draw(t, "cores"), Memory: float64(rapid.IntRange(0, 40).Draw(t, "memory"))})
	}
	for range rapid.IntRange(0, 6).Draw(t, "applications") {
		a := App{First: len(p.Components), Count: rapid.IntRange(0, 4).Draw(t, "components"), Yield: rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(t, "yield"),
			Fixed: rapid.IntRange(0, 5).Draw(t, "fixed") == 0}
		p.Apps = append(p.Apps, a)
		for range a.Count {
			c := Component{Host: rapid.IntRange(0, len(p.Hosts)-1).Draw(t, "host"), Elastic: rapid.Bool().Draw(t, "elastic"),
				Since: int64(rapid.IntRange(0, 100).Draw(t, "since")), Grew: int64(rapid.IntRange(0, 100).Draw(t, "grew"))}
			c.Request = Amount{rapid.Float64Range(0, 4).Draw(t, "cpu"), float64(rapid.IntRange(0, 16).Draw(t, "request"))}
			c.Present = Amount{c.Request.CPU, float64(rapid.IntRange(0, int(c.Request.Memory)).Draw(t, "present"))}
			c.Need = Amount{rapid.Float64Range(0, 5).Draw(t, "need"), float64(rapid.IntRange(0, 20).Draw(t, "needed"))}
			if rapid.IntRange(0, 9).Draw(t, "unknown") == 0 {
				c.Need.Memory = math.NaN()
			}
			c.Floor = float64(rapid.IntRange(0, int(c.Request.Memory)).Draw(t, "floor"))
			if rapid.IntRange(0, 3).Draw(t, "optional") == 0 {
				c.Required = float64(rapid.IntRange(0, 16).Draw(t, "must"))
			}
			c.Charged = c.Present.Memory + float64(rapid.IntRange(0, 3).Draw(t, "held"))
			p.Components = append(p.Components, c)
		}
	}
	if err := p.check(); err != nil {
		t.Fatal(err)
	}
	return p
}

func drawOptions(t *rapid.T) Options {
	return Options{Policy: rapid.SampledFrom([]Policy{Pessimistic, Pessimistic, Optimistic}).Draw(t, "policy"), Now: 100,
		MinAge: int64(rapid.IntRange(0, 50).Draw(t, "grace")), Rest: int64(rapid.IntRange(0, 50).Draw(t, "rest")),
		Step: rapid.SampledFrom([]float64{0, 0.1, 0.25}).Draw(t, "step"), Reserve: rapid.Bool().Draw(t, "reserve"), Late: rapid.Bool().Draw(t, "late")}
}

// literal is Algorithm 1 as it is printed: arrays are copied for each application.
func literal(p *Problem, claim func(int) Amount) (evicted []int, preempted map[int]bool) {
	cpuFree, memFree := make([]float64, len(p.Hosts)), make([]float64, len(p.Hosts))
	for j, h := range p.Hosts {
		cpuFree[j], memFree[j] = h.CPU, h.Memory
	}
	preempted = map[int]bool{}
	for i, a := range p.Apps {
		cpus, mem, remove := slices.Clone(cpuFree), slices.Clone(memFree), false
		var elastic []int
		for c := a.First; c < a.First+a.Count; c++ {
			if p.Components[c].Elastic {
				elastic = append(elastic, c)
				continue
			}
			at := p.Components[c].Host
			cpus[at] -= claim(c).CPU
			mem[at] -= claim(c).Memory
			remove = remove || cpus[at] < -1e-9*p.Hosts[at].CPU || mem[at] < 0
		}
		if remove {
			evicted = append(evicted, i)
			for c := a.First; c < a.First+a.Count; c++ {
				preempted[c] = true
			}
			continue
		}
		cpuFree, memFree = cpus, mem
		slices.SortStableFunc(elastic, func(x, y int) int { return int(p.Components[x].Since - p.Components[y].Since) })
		for _, c := range elastic {
			at := p.Components[c].Host
			if cpuFree[at]-claim(c).CPU < -1e-9*p.Hosts[at].CPU || memFree[at] < claim(c).Memory {
				preempted[c] = true
				continue
			}
			cpuFree[at] -= claim(c).CPU
			memFree[at] -= claim(c).Memory
		}
	}
	return evicted, preempted
}

func TestLikeTheAlgorithmAsPrinted(t *testing.T) {
	var s Rightsizer
	rapid.Check(t, func(t *rapid.T) {
		p := draw(t)
		for i := range p.Apps {
			p.Apps[i].Yield, p.Apps[i].Fixed = 1, false
		}
		for i := range p.Components {
			p.Components[i].Required = 0
		}
		r := s.Rightsize(p, Options{})
		evicted, preempted := literal(p, func(c int) Amount {
			in := p.Components[c]
			if math.IsNaN(in.Need.Memory) {
				in.Need.Memory = in.Request.Memory
			}
			return Amount{min(in.Need.CPU, in.Request.CPU), min(max(in.Need.Memory, in.Floor), in.Request.Memory)}
		})
		if !slices.Equal(r.Evicted, evicted) {
			t.Fatalf("%v go, the algorithm says %v", r.Evicted, evicted)
		}
		for c, out := range r.Outcomes {
			if (out.Action == Preempt) != preempted[c] {
				t.Fatalf("component %d: %v, the algorithm says preempted: %v", c, out.Action, preempted[c])
			}
			if in := p.Components[c]; out.Action != Preempt && !math.IsNaN(in.Need.Memory) && out.Memory != min(max(in.Need.Memory, in.Floor), in.Request.Memory) {
				t.Fatalf("component %d: %v, of %+v", c, out, in)
			}
		}
	})
}

func TestLaws(t *testing.T) {
	var s Rightsizer
	rapid.Check(t, func(t *rapid.T) {
		p, o := draw(t), drawOptions(t)
		r := s.Rightsize(p, o)
		used, before, fixed := make([]Amount, len(p.Hosts)), make([]float64, len(p.Hosts)), make([]float64, len(p.Hosts))
		keep, keepBefore := make([]allocator.Reserve[float64], len(p.Hosts)), make([]allocator.Reserve[float64], len(p.Hosts))
		for i, a := range p.Apps {
			for c := a.First; c < a.First+a.Count; c++ {
				in, out := p.Components[c], r.Outcomes[c]
				charged := in.Present.Memory
				if o.Late {
					charged = max(charged, in.Charged)
				}
				stays := out.Action != Preempt
				counts := out.Memory
				if o.Late {
					counts = max(counts, charged)
				}
				if !stays && !o.Late {
					counts = 0
				} else if o.Reserve {
					keep[in.Host].Add(in.Request.Memory - counts)
				}
				if o.Reserve {
					keepBefore[in.Host].Add(in.Request.Memory - charged)
				}
				used[in.Host].Memory += counts
				used[in.Host].CPU += out.CPU
				before[in.Host] += charged
				if a.Fixed {
					fixed[in.Host] += in.Present.Memory
				}
				switch {
				case a.Fixed && (out.Action != Keep && out.Action != Grow || out.Memory < in.Present.Memory):
					t.Fatalf("component %d is fixed: %+v", c, out)
				case !stays && o.Policy == Optimistic:
					t.Fatalf("component %d is preempted by an optimist", c)
				case !stays && !in.Elastic && !slices.Contains(r.Evicted, i):
					t.Fatalf("component %d goes, and its application stays", c)
				case stays && slices.Contains(r.Evicted, i) && o.Policy == Pessimistic:
					t.Fatalf("component %d stays, and its application goes", c)
				case stays && out.Memory < min(in.Floor, in.Present.Memory):
					t.Fatalf("component %d is below its floor: %+v of %+v", c, out, in)
				case stays && out.Memory > in.Request.Memory && out.Memory > charged:
					t.Fatalf("component %d has more than was asked for: %+v of %+v", c, out, in)
				case stays && o.Step > 0 && out.Memory < in.Present.Memory-o.Step*in.Request.Memory:
					t.Fatalf("component %d falls by more than a step: %+v of %+v", c, out, in)
				case stays && o.Now-in.Grew < o.Rest && in.Grew != 0 && out.Memory < in.Present.Memory:
					t.Fatalf("component %d grew a short while ago and shrinks: %+v of %+v", c, out, in)
				case out.CPU > in.Request.CPU:
					t.Fatalf("component %d has more CPU than was asked for: %+v of %+v", c, out, in)
				}
				if r.Text(p, c) == "" {
					t.Fatalf("component %d: no words for %+v", c, out)
				}
			}
		}
		for j, h := range p.Hosts {
			if used[j].CPU > h.CPU*(1+1e-6)+1e-12 {
				t.Fatalf("host %d: %v cores given, it has %v", j, used[j].CPU, h.CPU)
			}
			// Memory is within its limit, or no more than it was.
			if limit := max(h.Memory, before[j]); used[j].Memory > limit*(1+1e-6) {
				t.Fatalf("host %d: %v of memory given, it has %v and had given %v", j, used[j].Memory, h.Memory, before[j])
			}
			if limit := max(h.Memory, before[j]+keepBefore[j].Bytes()); o.Late && used[j].Memory+keep[j].Bytes() > limit*(1+1e-6) {
				t.Fatalf("host %d: %v of memory given, %v to be kept, it has %v, and %v were before", j, used[j].Memory, keep[j], h.Memory, limit)
			}
			if kept := r.Hosts[j].Reserve; kept < keep[j].Bytes()*(1-1e-9) {
				t.Fatalf("host %d: %v are said to be kept, of %v", j, kept, keep[j])
			}
			if !o.Late && o.Step == 0 && o.Policy == Pessimistic && fixed[j] <= h.Memory && used[j].Memory > h.Memory*(1+1e-6) {
				t.Fatalf("host %d: %v of memory given, it has %v", j, used[j].Memory, h.Memory)
			}
		}
	})
}

// Applications that come later in the order take nothing from earlier ones.
func TestOrder(t *testing.T) {
	var s, fewer Rightsizer
	rapid.Check(t, func(t *rapid.T) {
		p, o := draw(t), drawOptions(t)
		if len(p.Apps) == 0 || p.Apps[len(p.Apps)-1].Fixed || o.Policy == Optimistic {
			t.Skip()
		}
		r := s.Rightsize(p, o)
		last := p.Apps[len(p.Apps)-1]
		q := *p
		q.Apps, q.Components = p.Apps[:len(p.Apps)-1], p.Components[:last.First]
		for c, out := range fewer.Rightsize(&q, o).Outcomes {
			if (out.Action == Preempt) != (r.Outcomes[c].Action == Preempt) {
				t.Fatalf("component %d: %+v, without the last application %+v", c, r.Outcomes[c], out)
			}
		}
	})
}

func TestCheck(t *testing.T) {
	good := func() *Problem { return problemOf([]Host{{"a", 1, 1}}, []Component{{}}) }
	for name, edit := range map[string]func(p *Problem){
		"gap":      func(p *Problem) { p.Apps[0].First = 1 },
		"too many": func(p *Problem) { p.Apps[0].Count = 2 },
		"too few":  func(p *Problem) { p.Apps[0].Count = 0 },
		"yield":    func(p *Problem) { p.Apps[0].Yield = math.NaN() },
		"host":     func(p *Problem) { p.Components[0].Host = 1 },
		"cores":    func(p *Problem) { p.Hosts[0].CPU = math.Inf(1) },
		"request":  func(p *Problem) { p.Components[0].Request.Memory = -1 },
		"present":  func(p *Problem) { p.Components[0].Present.CPU = math.NaN() },
	} {
		p := good()
		if err := p.check(); err != nil {
			t.Fatal(err)
		}
		if edit(p); p.check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestBefore(t *testing.T) {
	if Before(1, 0, 9, 3) >= 0 || Before(0, 0, 3, 9) >= 0 || Before(0, 1, 3, 9) <= 0 || Before(1, 1, 3, 3) != 0 {
		t.Error("not by priority, then by age")
	}
}

// many is a cluster of 250 hosts with n components that need so much that some are evicted.
func many(n int) *Problem {
	p := &Problem{}
	for range 250 {
		p.Hosts = append(p.Hosts, Host{CPU: 32, Memory: 128 * gib})
	}
	for i := 0; i < n; i++ {
		if i%8 == 0 {
			p.Apps = append(p.Apps, App{First: i, Count: min(8, n-i), Yield: float64(i / 8 % 2)})
		}
		need := 0.3 + 0.1*float64(i*7%8)
		p.Components = append(p.Components, Component{Host: i * 31 % 250, Elastic: i%8 > 2, Since: int64(i * 37 % 1000),
			Request: Amount{1, 4 * gib}, Present: Amount{1, 4 * gib * float64(2+i%3) / 4}, Need: Amount{need, need * 4 * gib}})
	}
	return p
}

func TestNothingIsAllocated(t *testing.T) {
	var s Rightsizer
	p := many(5000)
	if n := testing.AllocsPerRun(10, func() { s.Rightsize(p, Options{Step: 0.1, Reserve: true, Late: true}) }); n != 0 {
		t.Errorf("%v allocations a look", n)
	}
}

func BenchmarkShape(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		p := many(n)
		var s Rightsizer
		b.Run(map[int]string{1_000: "1k", 10_000: "10k", 100_000: "100k"}[n], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Rightsize(p, Options{})
			}
		})
	}
}

// check says what Rightsize does not accept in a problem; nil: nothing.
func (p *Problem) check() error {
	next := 0
	for i, a := range p.Apps {
		if a.First != next || a.Count < 0 || a.Count > len(p.Components)-next {
			return fmt.Errorf("application %d: components %d and %d on: they are to follow each other without gaps, and there are %d", i, a.First, a.Count, len(p.Components))
		}
		if !(a.Yield >= 0 && a.Yield <= 1) {
			return fmt.Errorf("application %d: least yield %v, not from 0 to 1", i, a.Yield)
		}
		next += a.Count
	}
	if next != len(p.Components) {
		return fmt.Errorf("%d components, of which applications have %d", len(p.Components), next)
	}
	for i, h := range p.Hosts {
		if !finite(h.CPU) || !finite(h.Memory) {
			return fmt.Errorf("host %d (%s): %v cores, %v bytes", i, h.Name, h.CPU, h.Memory)
		}
	}
	for i, c := range p.Components {
		if c.Host < 0 || c.Host >= len(p.Hosts) {
			return fmt.Errorf("component %d: host %d of %d", i, c.Host, len(p.Hosts))
		}
		for _, x := range [...]float64{c.Request.CPU, c.Request.Memory, c.Present.CPU, c.Present.Memory, c.Floor, c.Charged, c.Required, c.InUse} {
			if !(x >= 0) || math.IsInf(x, 0) {
				return fmt.Errorf("component %d: request %v, present %v, floor %v, charged %v, required %v, in use %v: they are to be finite and not below 0", i, c.Request, c.Present, c.Floor, c.Charged, c.Required, c.InUse)
			}
		}
	}
	return nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
