package allocator_test

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/allocator"
)

// Every VM that is placed heeds every rule, and those of VMs that were there; a
// refusal has a reason for every host, and its advice is true.
func TestAdmitUnderRules(t *testing.T) {
	admitted, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := allocator.Problem{Hosts: drawHosts(t, 5), Policy: drawPolicy(t)}
		rules := &allocator.Rules{ByCluster: true}
		for i := range rapid.IntRange(1, 6).Draw(t, "requests") {
			q := p
			q.Groups = slices.Clone(p.Groups)
			floor := hundredths(t, "floor", 0, 60)
			for g := range rapid.IntRange(1, 3).Draw(t, "groups") {
				q.Groups = append(q.Groups, allocator.Group{Cluster: fmt.Sprintf("vc%d", i), Name: fmt.Sprintf("g%d", g), MinYield: floor,
					Count: rapid.IntRange(1, 3).Draw(t, "count"), CPU: hundredths(t, "CPU", 0, 100), Memory: hundredths(t, "memory", 0, 50)})
			}
			r := drawRules(t, q, rules, len(p.Groups))
			a := allocator.AdmitUnder(q, r)
			if again := allocator.AdmitUnder(q, r); !reflect.DeepEqual(a, again) {
				t.Fatalf("two answers to one request: %+v, %+v", a, again)
			}
			isNew := func(g, _ int) bool { return g >= len(p.Groups) }
			if !a.Admitted {
				refused++
				checkRuledRefusal(t, q, r, a)
				continue
			}
			admitted++
			if err := checkSolution(q, a.Solution); err != nil {
				t.Fatalf("%+v: %v", q, err)
			}
			if len(a.Solution.Shortfall) > 0 {
				t.Fatalf("admitted with %+v", a.Solution.Shortfall)
			}
			if err := ruleBroken(q, r, a.Solution.Hosts, isNew); err != nil {
				t.Fatalf("%v: %+v %+v %+v", err, q, r, a.Solution)
			}
			if b := r.Broken(q, a.Solution.Hosts); len(b) > 0 && isNew(b[0].Group, b[0].VM) {
				t.Fatalf("said to be broken: %+v", b)
			}
			for g := range p.Groups {
				if !slices.Equal(p.Groups[g].Hosts, a.Solution.Hosts[g]) {
					t.Fatalf("group %d moved", g)
				}
			}
			p, rules = q, r
			for g := range p.Groups {
				p.Groups[g].Hosts = a.Solution.Hosts[g]
			}
		}
	})
	t.Logf("%d admitted, %d refused", admitted, refused)
}

func checkRuledRefusal(t *rapid.T, p allocator.Problem, r *allocator.Rules, a allocator.Admission) {
	if len(a.Reasons) != len(p.Hosts) || a.Summary == "" {
		t.Fatalf("%d reasons for %d hosts, %q", len(a.Reasons), len(p.Hosts), a.Summary)
	}
	for _, reason := range a.Reasons {
		if !strings.Contains(reason.Text, reason.Rule.String()) || reason.Text == "" {
			t.Fatalf("%+v", reason)
		}
	}
	for _, advice := range a.Advice {
		var b allocator.Admission
		if group, rule, ok := strings.Cut(advice, " without "); ok {
			b = allocator.AdmitUnder(p, without(t, p, r, group, rule))
		} else {
			b = allocator.AdmitUnder(follow(t, p, advice), r)
		}
		if !b.Admitted {
			t.Fatalf("followed the advice %q and was refused again: %+v\n%+v %+v", advice, b, p, r)
		}
	}
}

func without(t *rapid.T, p allocator.Problem, r *allocator.Rules, group, quoted string) *allocator.Rules {
	rule, err := strconv.Unquote(quoted)
	g := slices.IndexFunc(p.Groups, func(x allocator.Group) bool { return x.Cluster+"/"+x.Name == group })
	if err != nil || g < 0 {
		t.Fatalf("advice on %q, rule %s", group, quoted)
	}
	kind, term, _ := strings.Cut(rule, " ")
	out := *r
	out.Affinity = slices.Clone(r.Affinity)
	a := *out.Affinity[g]
	drop := func(list []string) []string {
		at := slices.Index(list, term)
		if at < 0 {
			t.Fatalf("advice on %q: no rule %s in %+v", group, quoted, a)
		}
		return slices.Delete(slices.Clone(list), at, at+1)
	}
	switch kind {
	case "spread":
		a.Spread = ""
	case "require":
		a.Require = drop(a.Require)
	case "avoid":
		a.Avoid = drop(a.Avoid)
	}
	out.Affinity[g] = &a
	return &out
}

// VMs that require others of their own cluster never fit where these cannot be beside them; what others may bring is waited for.
func TestNeverTogether(t *testing.T) {
	hosts := []allocator.Host{{Name: "h1", CPU: 4, Memory: 4 * gib}, {Name: "h2", CPU: 4, Memory: 4 * gib}}
	own := &allocator.Affinity{Require: []string{"vc:a"}}
	group := func(count int, memory float64) allocator.Group {
		return allocator.Group{Cluster: "a", Name: "g", Count: count, CPU: 1, Memory: memory * gib}
	}
	for name, c := range map[string]struct {
		groups []allocator.Group
		rules  []*allocator.Affinity
		never  bool
	}{
		"alone":            {[]allocator.Group{group(1, 1)}, []*allocator.Affinity{own}, true},
		"a label of it":    {[]allocator.Group{group(1, 1)}, []*allocator.Affinity{{Require: []string{"app=web"}}}, false},
		"another cluster":  {[]allocator.Group{group(1, 1)}, []*allocator.Affinity{{Require: []string{"vc:b"}}}, false},
		"spread":           {[]allocator.Group{group(2, 1)}, []*allocator.Affinity{{Spread: "host", Require: []string{"vc:a"}}}, true},
		"too large":        {[]allocator.Group{group(2, 3)}, []*allocator.Affinity{own}, true},
		"on two hosts":     {[]allocator.Group{group(1, 1), group(1, 1)}, []*allocator.Affinity{{Require: []string{"vc:a", "host:h1"}}, {Require: []string{"host:h2"}}}, true},
		"one host is full": {[]allocator.Group{group(2, 2), {Cluster: "full", Name: "f", Count: 2, CPU: 1, Memory: 3 * gib, Hosts: []int{0, 1}}}, []*allocator.Affinity{own}, false},
		"one runs":         {[]allocator.Group{{Cluster: "a", Name: "g", Count: 2, CPU: 1, Memory: 3 * gib, Hosts: []int{0, -1}}}, []*allocator.Affinity{own}, false},
	} {
		r := &allocator.Rules{ByCluster: true, Labels: make([]map[string]string, len(c.groups)), Affinity: c.rules}
		if c.rules[0].Require[0] == "app=web" {
			r.Labels[0] = map[string]string{"app": "web"}
		}
		if a := allocator.AdmitUnder(allocator.Problem{Hosts: hosts, Groups: c.groups}, r); a.Admitted || a.NeverFits != c.never {
			t.Errorf("%s: admitted %v, never fits %v: %s", name, a.Admitted, a.NeverFits, a.Summary)
		}
	}
}

// What a refusal and Broken say, word for word.
func TestRuleTexts(t *testing.T) {
	hosts := []allocator.Host{{Name: "h1", CPU: 4, Memory: 8 * gib}, {Name: "h2", CPU: 4, Memory: 8 * gib}, {Name: "h3", CPU: 4, Memory: 8 * gib}}
	p := allocator.Problem{Hosts: hosts, Groups: []allocator.Group{
		{Cluster: "db", Name: "main", Count: 1, CPU: 1, Memory: gib, Hosts: []int{0}},
		{Cluster: "shy", Name: "only", Count: 1, CPU: 1, Memory: gib, Hosts: []int{1}},
		{Cluster: "shop", Name: "web", Count: 3, CPU: 1, Memory: gib, MinYield: 0.5},
	}}
	labels := []map[string]string{{"app": "db"}, nil, {"app": "web"}}
	shy := &allocator.Affinity{Avoid: []string{"app=web"}}
	for name, c := range map[string]struct {
		web     *allocator.Affinity
		never   bool
		summary string
		texts   []string
		advice  []string
	}{
		"avoid, both ways, and spread": {
			web:     &allocator.Affinity{Spread: "host", Avoid: []string{"app=db"}},
			summary: "1 of 3 VMs fit: one of shop/web needs 0.5 cores of CPU (1 core at yield 0.5) and 1 GiB of memory, and its rules keep it from 3 hosts",
			texts: []string{
				"avoid app=db: a VM of db/main is on it",
				"avoid app=web: so says shy/only, a VM of which is on it",
				"takes 1 of the VMs; spread host: a VM of the group is on it"},
			advice: []string{"at most 1 VM in shop/web instead of 3", `shop/web without "spread host"`, "2 more hosts like h1 (4 cores, 8 GiB)"},
		},
		"require hosts": {
			web:     &allocator.Affinity{Require: []string{"host:h1", "host:h2"}, Avoid: []string{"host:h1"}},
			summary: "0 of 3 VMs fit: one of shop/web needs 0.5 cores of CPU (1 core at yield 0.5) and 1 GiB of memory, and its rules keep it from 3 hosts",
			texts: []string{
				"avoid host:h1: this is the host",
				"avoid app=web: so says shy/only, a VM of which is on it",
				"require host:h1, host:h2: this is none of them"},
			advice: []string{`shop/web without "avoid host:h1"`},
		},
		"require company": {
			web:     &allocator.Affinity{Require: []string{"vc:gone"}},
			summary: "0 of 3 VMs fit: one of shop/web needs 0.5 cores of CPU (1 core at yield 0.5) and 1 GiB of memory, and its rules keep it from 3 hosts",
			texts: []string{
				"require vc:gone: no other VM that it names is on it",
				"avoid app=web: so says shy/only, a VM of which is on it",
				"require vc:gone: no other VM that it names is on it"},
			advice: []string{`shop/web without "require vc:gone"`},
		},
		"never": {
			web: &allocator.Affinity{Require: []string{"host:gone"}}, never: true,
			summary: "0 of 3 VMs fit: one of shop/web needs 0.5 cores of CPU (1 core at yield 0.5) and 1 GiB of memory, and its rules keep it from 3 hosts, and would not fit if all hosts were empty",
			texts: []string{"require host:gone: this is another host", "require host:gone: this is another host",
				"require host:gone: this is another host"},
			advice: []string{`shop/web without "require host:gone"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &allocator.Rules{ByCluster: true, Labels: labels, Affinity: []*allocator.Affinity{nil, shy, c.web}}
			a := allocator.AdmitUnder(p, r)
			if a.Admitted || a.NeverFits != c.never || a.Summary != c.summary {
				t.Errorf("got %+v", a)
			}
			var texts []string
			for _, reason := range a.Reasons {
				texts = append(texts, reason.Text)
			}
			if !slices.Equal(texts, c.texts) {
				t.Errorf("got  %q\nwant %q", texts, c.texts)
			}
			if !slices.Equal(a.Advice, c.advice) {
				t.Errorf("got  %q\nwant %q", a.Advice, c.advice)
			}
		})
	}
	r := &allocator.Rules{ByCluster: true, Labels: labels, Affinity: []*allocator.Affinity{nil, shy, {Spread: "host", Require: []string{"vc:db"}}}}
	var got []string
	for _, b := range r.Broken(p, [][]int{{0}, {1}, {0, 1, -1}}) {
		got = append(got, fmt.Sprintf("%d/%d on %d: %s", b.Group, b.VM, b.Host, b.Text))
	}
	want := []string{"1/0 on 1: avoid app=web: a VM of shop/web is on it", "2/1 on 1: avoid app=web: so says shy/only, a VM of which is on it"}
	if !slices.Equal(got, want) {
		t.Errorf("broken: %q, want %q", got, want)
	}
}

// What is preferred is met where that costs no yield, and not where it does.
func TestAdmitPrefers(t *testing.T) {
	p := allocator.Problem{Hosts: []allocator.Host{{Name: "h1", CPU: 4, Memory: 8}, {Name: "h2", CPU: 4, Memory: 8}, {Name: "h3", CPU: 4, Memory: 8}}, Groups: []allocator.Group{
		{Cluster: "db", Name: "main", Count: 1, CPU: 1, Memory: 1, Hosts: []int{1}},
		{Cluster: "web", Name: "a", Count: 2, CPU: 1, Memory: 1},
	}}
	for want, prefer := range map[string][]string{"[2 2]": {"host:h3"}, "[1 1]": {"vc:db"}} {
		r := &allocator.Rules{ByCluster: true, Affinity: []*allocator.Affinity{nil, {Prefer: prefer}}}
		if a := allocator.AdmitUnder(p, r); fmt.Sprint(a.Solution.Hosts[1]) != want {
			t.Errorf("prefer %v: on %v, want %s", prefer, a.Solution.Hosts[1], want)
		}
	}
	p.Groups[1].CPU = 3.5
	r := &allocator.Rules{Affinity: []*allocator.Affinity{nil, {Prefer: []string{"host:h3"}}}}
	if a := allocator.AdmitUnder(p, r); a.Solution.MinYield < 1-1e-9 || count(a.Solution.Hosts[1], 2) != 1 {
		t.Errorf("on %v at yield %v, want one on h3 and yield 1", a.Solution.Hosts[1], a.Solution.MinYield)
	}
}
