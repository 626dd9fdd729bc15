package allocator_test

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/allocator"
)

const gib = float64(1 << 30)

func TestAdmitPlacesBesideWhatIsThere(t *testing.T) {
	p := allocator.Problem{
		Hosts: []allocator.Host{{Name: "h1", CPU: 2, Memory: 4 * gib}, {Name: "h2", CPU: 2, Memory: 4 * gib}, {Name: "h3", CPU: 8, Memory: 16 * gib, Cordoned: true}},
		Groups: []allocator.Group{
			{Cluster: "old", Name: "w", Count: 2, CPU: 1.5, Memory: gib, MinYield: 0.5, Hosts: []int{0, 2}},
			{Cluster: "new", Name: "w", Count: 3, CPU: 1, Memory: gib, MinYield: 0.6},
		},
	}
	a := allocator.Admit(p)
	if !a.Admitted {
		t.Fatalf("refused: %+v", a)
	}
	if err := checkSolution(p, a.Solution); err != nil {
		t.Fatal(err)
	}
	// One beside the old VM, two on the empty host; all at their full need but
	// the old cluster, which is held back on h1: 2.5 cores wanted of 2.
	if got := a.Solution.Hosts; !reflect.DeepEqual(got[0], []int{0, 2}) || count(got[1], 0) != 1 || count(got[1], 1) != 2 {
		t.Errorf("hosts %v", got)
	}
	if y := a.Solution.MinYield; y < 0.8-1e-9 || y > 0.8+1e-9 {
		t.Errorf("minimum yield %v, want 0.8", y)
	}
}

func count(hosts []int, j int) (n int) {
	for _, h := range hosts {
		if h == j {
			n++
		}
	}
	return n
}

// A virtual cluster that its own full host limits to 0.25 is no reason to place new VMs
// at that yield on the others.
func TestAdmitDespiteAnOverfullHost(t *testing.T) {
	p := allocator.Problem{
		Hosts: []allocator.Host{{Name: "full", CPU: 1, Memory: 4}, {Name: "a", CPU: 1, Memory: 4}, {Name: "b", CPU: 1, Memory: 4}},
		Groups: []allocator.Group{
			{Name: "crowd", Count: 4, CPU: 1, Memory: 1, Hosts: []int{0, 0, 0, 0}},
			{Name: "new", Count: 2, CPU: 1, Memory: 1},
		},
	}
	a := allocator.Admit(p)
	if !a.Admitted || a.Solution.CPU[1] < 1 {
		t.Errorf("got %+v, want both new VMs at their full need on hosts of their own", a)
	}
}

// Nor by hosts where a floor holds others down.
func TestAdmitDespiteFloors(t *testing.T) {
	p := allocator.Problem{
		Hosts: []allocator.Host{{CPU: 1, Memory: 2}, {CPU: 1, Memory: 2}, {CPU: 1, Memory: 2}, {CPU: 1, Memory: 2}},
		Groups: []allocator.Group{
			{Name: "wide", Count: 2, CPU: 1, Memory: 1, MinYield: 0.8, Hosts: []int{0, 1}},
			{Name: "held", Count: 1, CPU: 1, Memory: 1, Hosts: []int{0}},
			{Name: "held too", Count: 1, CPU: 1, Memory: 1, Hosts: []int{1}},
			{Name: "new", Count: 2, CPU: 1, Memory: 1},
		},
	}
	a := allocator.Admit(p)
	if !a.Admitted || a.Solution.CPU[3] < 1 {
		t.Errorf("got %+v, want both new VMs at their full need on hosts of their own", a)
	}
}

func TestAdmitRefusals(t *testing.T) {
	hosts := func(cordoned bool) []allocator.Host {
		return []allocator.Host{{Name: "h1", CPU: 2, Memory: 4 * gib}, {Name: "h2", CPU: 2, Memory: 4 * gib, Cordoned: cordoned}}
	}
	for name, c := range map[string]struct {
		p       allocator.Problem
		never   bool
		fits    int
		reasons []allocator.HostReason // without the text
		advice  []string
	}{
		"too many for the CPU": {
			p: allocator.Problem{Hosts: hosts(false), Groups: []allocator.Group{
				{Name: "old", Count: 2, CPU: 1, Memory: gib, MinYield: 1, Hosts: []int{0, 1}},
				{Name: "new", Count: 5, CPU: 1, Memory: gib, MinYield: 0.5}}},
			fits:    4,
			reasons: []allocator.HostReason{{Host: "h1", CPUMissing: 0.5}, {Host: "h2", CPUMissing: 0.5}},
			advice:  []string{"at most 4 VMs in new instead of 5", "a minYield of at most 0.33 for new instead of 0.5", "one more host like h1 (2 cores, 4 GiB)"},
		},
		"too large for the memory left": {
			p: allocator.Problem{Hosts: hosts(false), Groups: []allocator.Group{
				{Name: "old", Count: 2, CPU: 0.1, Memory: 3 * gib, Hosts: []int{0, 1}},
				{Name: "new", Count: 2, CPU: 0.1, Memory: 2 * gib}}},
			reasons: []allocator.HostReason{{Host: "h1", MemoryMissing: gib}, {Host: "h2", MemoryMissing: gib}},
			advice:  []string{"at most 1024 MiB of memory per VM of new instead of 2 GiB", "one more host like h1 (2 cores, 4 GiB)"},
		},
		"a host is cordoned": {
			p: allocator.Problem{Hosts: hosts(true), Groups: []allocator.Group{
				{Name: "new", Count: 2, CPU: 1, Memory: 4 * gib, MinYield: 1}}},
			fits:    1,
			reasons: []allocator.HostReason{{Host: "h1", MemoryMissing: 4 * gib}, {Host: "h2", Cordoned: true}},
			advice:  []string{"at most 1 VM in new instead of 2", "at most 2048 MiB of memory per VM of new instead of 4 GiB", "uncordon host h2", "one more host like h1 (2 cores, 4 GiB)"},
		},
		"larger than any host": {
			p: allocator.Problem{Hosts: hosts(false), Groups: []allocator.Group{
				{Name: "new", Count: 1, CPU: 1, Memory: 5 * gib}}},
			never:   true,
			reasons: []allocator.HostReason{{Host: "h1", MemoryMissing: gib}, {Host: "h2", MemoryMissing: gib}},
			advice:  []string{"at most 4096 MiB of memory per VM of new instead of 5 GiB"},
		},
		"more than all hosts": {
			p: allocator.Problem{Hosts: hosts(false), Groups: []allocator.Group{
				{Name: "new", Count: 5, CPU: 2, Memory: gib, MinYield: 0.5}}},
			never: true, fits: 4,
			reasons: []allocator.HostReason{{Host: "h1", CPUMissing: 1}, {Host: "h2", CPUMissing: 1}},
			advice:  []string{"at most 4 VMs in new instead of 5", "a minYield of at most 0.33 for new instead of 0.5", "one more host like h1 (2 cores, 4 GiB)"},
		},
		"a need that grows in place": {
			p: allocator.Problem{Hosts: hosts(false), Groups: []allocator.Group{
				{Name: "neighbour", Count: 1, CPU: 1, Memory: gib, MinYield: 1, Hosts: []int{0}},
				{Name: "grown", Count: 2, CPU: 3, Memory: gib, MinYield: 0.5, Hosts: []int{0, 1}, Requested: true}}},
			reasons: []allocator.HostReason{{Host: "h1", CPUMissing: 0.5}, {Host: "h2"}},
			advice:  []string{"a minYield of at most 0.33 for grown instead of 0.5", "a need of at most 2 cores of CPU per VM of grown instead of 3 cores"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := allocator.Admit(c.p)
			if a.Admitted || a.NeverFits != c.never || a.Fits != c.fits || a.Summary == "" {
				t.Fatalf("got %+v", a)
			}
			for j := range a.Reasons {
				if a.Reasons[j].Text == "" {
					t.Errorf("no text for host %d", j)
				}
				a.Reasons[j].Text = ""
				// Of a cordoned host nothing but that is of interest here.
				if a.Reasons[j].Cordoned {
					a.Reasons[j] = allocator.HostReason{Host: a.Reasons[j].Host, Cordoned: true}
				}
			}
			if !reflect.DeepEqual(a.Reasons, c.reasons) {
				t.Errorf("reasons %+v, want %+v", a.Reasons, c.reasons)
			}
			if !slices.Equal(a.Advice, c.advice) {
				t.Errorf("advice %q, want %q", a.Advice, c.advice)
			}
		})
	}
}

func TestAdmitReasonTexts(t *testing.T) {
	a := allocator.Admit(allocator.Problem{
		Hosts: []allocator.Host{{Name: "h1", CPU: 2, Memory: 4 * gib}, {Name: "h2", CPU: 2, Memory: 4 * gib, Cordoned: true}},
		Groups: []allocator.Group{
			{Cluster: "render", Name: "worker", Count: 4, CPU: 1.5, Memory: 3 * gib, MinYield: 0.8},
		},
	})
	want := []string{
		"1 of 4 VMs fit: one of render/worker needs 1.2 cores of CPU (1.5 cores at yield 0.8) and 3 GiB of memory, and would not fit if all hosts were empty",
		"takes 1 of the VMs; lacks 0.4 cores of CPU and 2 GiB of memory for one more of render/worker",
		"cordoned: takes no new VM",
	}
	got := []string{a.Summary}
	for _, r := range a.Reasons {
		got = append(got, r.Text)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A cluster that is below its floor where the request does not go must not
// keep all others out, and its host must take no more.
func TestAdmitDespiteAnOldShortfall(t *testing.T) {
	p := allocator.Problem{
		Hosts: []allocator.Host{{Name: "shrunk", CPU: 0.5, Memory: 8}, {Name: "h2", CPU: 2, Memory: 8}},
		Groups: []allocator.Group{
			{Name: "old", Count: 1, CPU: 1, Memory: 1, MinYield: 0.8, Hosts: []int{0}},
			{Name: "new", Count: 2, CPU: 0.5, Memory: 1, MinYield: 0.5},
		},
	}
	a := allocator.Admit(p)
	if !a.Admitted || !reflect.DeepEqual(a.Solution.Hosts[1], []int{1, 1}) {
		t.Fatalf("got %+v", a)
	}
	if s := a.Solution.Shortfall; len(s) != 1 || s[0].Cluster != "old" {
		t.Errorf("shortfall %+v", s)
	}
	// CPU that VMs with a lower floor could give up there is no room for new VMs.
	short := allocator.Problem{
		Hosts: []allocator.Host{{Name: "shrunk", CPU: 1, Memory: 8}, {Name: "h2", CPU: 2, Memory: 1}},
		Groups: []allocator.Group{
			{Name: "old", Count: 1, CPU: 1, Memory: 1, MinYield: 0.8, Hosts: []int{0}},
			{Name: "modest", Count: 1, CPU: 1, Memory: 1, MinYield: 0.3, Hosts: []int{0}},
			{Name: "new", Count: 1, CPU: 0.1, Memory: 2, MinYield: 0.5},
		},
	}
	if b := allocator.Admit(short); b.Admitted || !strings.Contains(b.Reasons[0].Text, "too little for the VMs it has") {
		t.Errorf("new VM on a host that is short: %+v", b)
	}
	p.Groups[0].Requested = true // but not if the request is the cause
	p.Groups[1].Hosts = []int{1, 1}
	if a := allocator.Admit(p); a.Admitted {
		t.Errorf("a need that does not fit in place is admitted: %+v", a)
	}
}

func TestAdmitMalformed(t *testing.T) {
	a := allocator.Admit(allocator.Problem{})
	if a.Admitted || !strings.Contains(a.Summary, "at least one host") {
		t.Errorf("got %+v", a)
	}
}

// grow admits drawn clusters one after the other and returns the problem with
// those that were admitted.
func grow(t *rapid.T, check func(p allocator.Problem, a allocator.Admission)) allocator.Problem {
	p := allocator.Problem{Hosts: drawHosts(t, 5), Policy: drawPolicy(t)}
	for i := range rapid.IntRange(1, 8).Draw(t, "requests") {
		floor := hundredths(t, "floor", 0, 100)
		q := p
		q.Groups = slices.Clone(p.Groups)
		for g := range rapid.IntRange(1, 2).Draw(t, "groups") {
			q.Groups = append(q.Groups, allocator.Group{
				Cluster: fmt.Sprintf("vc%d", i), Name: fmt.Sprintf("g%d", g),
				Count:    rapid.IntRange(1, 4).Draw(t, "count"),
				CPU:      hundredths(t, "CPU", 0, 150),
				Memory:   hundredths(t, "memory", 0, 100),
				MinYield: floor,
			})
		}
		q.Hosts = slices.Clone(p.Hosts)
		for j := range q.Hosts {
			q.Hosts[j].Cordoned = rapid.IntRange(0, 4).Draw(t, "cordoned") == 0
		}
		a := allocator.Admit(q)
		check(q, a)
		if a.Admitted {
			p = q
			for g := range p.Groups {
				p.Groups[g].Hosts = a.Solution.Hosts[g]
			}
		}
	}
	return p
}

func TestAdmitKeepsItsPromises(t *testing.T) {
	admitted, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		grow(t, func(p allocator.Problem, a allocator.Admission) {
			if again := allocator.Admit(p); !reflect.DeepEqual(a, again) {
				t.Fatalf("two answers to one request: %+v, %+v", a, again)
			}
			if !a.Admitted {
				refused++
				checkRefusal(t, p, a)
				return
			}
			admitted++
			if err := checkSolution(p, a.Solution); err != nil {
				t.Fatalf("%+v: %v", p, err)
			}
			if len(a.Solution.Shortfall) > 0 {
				t.Fatalf("admitted with %+v", a.Solution.Shortfall)
			}
			for g, group := range p.Groups {
				if group.CPU > 0 && a.Solution.CPU[g]/group.CPU < group.MinYield-1e-9 {
					t.Fatalf("group %d gets yield %v under its floor %v", g, a.Solution.CPU[g]/group.CPU, group.MinYield)
				}
				for vm, j := range a.Solution.Hosts[g] {
					if group.Hosts != nil && group.Hosts[vm] != j {
						t.Fatalf("VM %d of group %d moved from %d to %d", vm, g, group.Hosts[vm], j)
					}
					if group.Hosts == nil && p.Hosts[j].Cordoned {
						t.Fatalf("new VM of group %d on cordoned host %d", g, j)
					}
				}
			}
		})
	})
	t.Logf("%d admitted, %d refused", admitted, refused)
}

// checkRefusal checks that a refusal says something of every host, that its
// advice is true, and that what never fits does not fit on empty hosts.
func checkRefusal(t *rapid.T, p allocator.Problem, a allocator.Admission) {
	if len(a.Reasons) != len(p.Hosts) {
		t.Fatalf("%d reasons for %d hosts", len(a.Reasons), len(p.Hosts))
	}
	for _, r := range a.Reasons {
		if r.Rule.Kind != allocator.NoRefusal || !r.Cordoned && r.CPUMissing == 0 && r.MemoryMissing == 0 {
			t.Fatalf("host %s lacks nothing: %+v", r.Host, a)
		}
	}
	checkSingleGroup(t, p)
	for _, advice := range a.Advice {
		q := follow(t, p, advice)
		if b := allocator.Admit(q); !b.Admitted {
			t.Fatalf("followed the advice %q and was refused again: %+v", advice, b)
		}
	}
	if a.NeverFits {
		var alone allocator.Problem
		vms := 0
		for _, h := range p.Hosts {
			alone.Hosts = append(alone.Hosts, allocator.Host{CPU: h.CPU, Memory: h.Memory})
		}
		for _, g := range p.Groups {
			if g.Hosts == nil {
				alone.Groups = append(alone.Groups, g)
				vms += g.Count
			}
		}
		if vms <= 6 && optimum(alone) > alone.Groups[0].MinYield {
			t.Fatalf("said to fit never, but a placement has yield %v: %+v", optimum(alone), alone)
		}
	}
}

// checkSingleGroup: a request of one group is refused only if the hosts,
// counted one by one, do not take its VMs.
func checkSingleGroup(t *rapid.T, p allocator.Problem) {
	var request *allocator.Group
	free := slices.Clone(p.Hosts)
	for g := range p.Groups {
		group := &p.Groups[g]
		if group.Hosts == nil {
			if request != nil {
				return
			}
			request = group
		}
		for _, j := range group.Hosts {
			free[j].CPU -= group.MinYield * group.CPU
			free[j].Memory -= group.Memory
		}
	}
	room := 0
	for j := range free {
		for n := 1; !p.Hosts[j].Cordoned && n <= request.Count; n++ {
			if float64(n)*request.MinYield*request.CPU > free[j].CPU-1e-9 || float64(n)*request.Memory > free[j].Memory-1e-9 {
				break
			}
			room++
		}
	}
	if room >= request.Count {
		t.Fatalf("%+v refused, though the hosts take %d", request, room)
	}
}

// A request with nothing to place is granted if and only if every floor and
// every memory holds where the VMs are.
func TestAdmitInPlace(t *testing.T) {
	granted, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlaced(t)
		fits := fitsLimits(p, clusterFloors(p), 0)
		for j := range p.Hosts {
			p.Hosts[j].Memory = hundredths(t, "memory", 100, 2000)
			used := 0.0
			for _, g := range p.Groups {
				used += float64(count(g.Hosts, j)) * g.Memory
			}
			fits = fits && used <= p.Hosts[j].Memory*(1+1e-12)
		}
		a := allocator.Admit(p)
		if a.Admitted != fits {
			t.Fatalf("admitted %v, want %v: %+v", a.Admitted, fits, a)
		}
		if fits {
			granted++
			if err := checkSolution(p, a.Solution); err != nil {
				t.Fatal(err)
			}
			return
		}
		refused++
		if !slices.ContainsFunc(a.Reasons, func(r allocator.HostReason) bool { return r.CPUMissing > 0 || r.MemoryMissing > 0 }) {
			t.Fatalf("no host lacks anything: %+v", a)
		}
	})
	t.Logf("%d granted, %d refused", granted, refused)
}

var adviceForms = regexp.MustCompile(`^(?:at most (\d+) VMs? in (\S+) instead|a minYield of at most ([\d.]+) for (\S+) instead|at most ([-+.e\d]+) bytes of memory per VM of (\S+) instead)`)

// follow changes a request as the advice says.
func follow(t *rapid.T, p allocator.Problem, advice string) allocator.Problem {
	named := func(prefix string) int {
		for j, h := range p.Hosts {
			if advice == prefix+h.Name || strings.HasPrefix(advice, prefix+h.Name+" (") {
				return j
			}
		}
		return -1
	}
	q := p
	q.Hosts = slices.Clone(p.Hosts)
	if j := named("uncordon host "); j >= 0 {
		q.Hosts[j].Cordoned = false
		return q
	}
	for n, prefix := 1, "one more host like "; n <= 64; n++ {
		if j := named(prefix); j >= 0 {
			more := q.Hosts[j]
			more.Cordoned, more.Name = false, "" // a new one, of a name that no rule has
			for range n {
				q.Hosts = append(q.Hosts, more)
			}
			return q
		}
		prefix = fmt.Sprintf("%d more hosts like ", n+1)
	}
	m := adviceForms.FindStringSubmatch(advice)
	if m == nil {
		t.Fatalf("advice of no known form: %q", advice)
	}
	value, err := strconv.ParseFloat(m[1]+m[3]+m[5], 64)
	if err != nil || value <= 0 {
		t.Fatalf("silly advice: %q (%v)", advice, err)
	}
	name := m[2] + m[4] + m[6]
	q.Groups = slices.Clone(p.Groups)
	changed := false
	for g := range q.Groups {
		group := &q.Groups[g]
		switch {
		case m[4] != "" && group.Cluster == name:
			group.MinYield = value
		case group.Cluster+"/"+group.Name != name:
			continue
		case m[2] != "":
			group.Count = int(value)
		case m[6] != "":
			group.Memory = value
		}
		changed = true
	}
	if !changed {
		t.Fatalf("advice %q names nothing", advice)
	}
	return q
}

// Whether a request is admitted does not depend on the order in which the state
// lists its groups.
func TestAdmitDoesNotDependOnTheOrderOfGroups(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		grow(t, func(p allocator.Problem, a allocator.Admission) {
			q := p
			q.Groups = rapid.Permutation(p.Groups).Draw(t, "order")
			if b := allocator.Admit(q); a.Admitted != b.Admitted {
				t.Fatalf("admitted %v in one order, %v in another", a.Admitted, b.Admitted)
			}
		})
	})
}

// More VMs of a group: those that are there stay, the new ones are placed.
func TestAdmitScale(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := grow(t, func(allocator.Problem, allocator.Admission) {})
		if len(p.Groups) == 0 {
			return
		}
		g := rapid.IntRange(0, len(p.Groups)-1).Draw(t, "group")
		more := rapid.IntRange(1, 3).Draw(t, "more")
		group := &p.Groups[g]
		group.Count += more
		old := group.Hosts
		group.Hosts = slices.Clone(old)
		// The new ones are not always the last.
		for range more {
			group.Hosts = slices.Insert(group.Hosts, rapid.IntRange(0, len(group.Hosts)).Draw(t, "at"), -1)
		}
		a := allocator.Admit(p)
		if !a.Admitted {
			return
		}
		if err := checkSolution(p, a.Solution); err != nil {
			t.Fatal(err)
		}
		for vm, j := range group.Hosts {
			if j >= 0 && a.Solution.Hosts[g][vm] != j {
				t.Fatalf("VM %d moved: %v, was %v", vm, a.Solution.Hosts[g], group.Hosts)
			}
		}
	})
}

// The largest first is not how these VMs fit: 0.5+0.3+0.2 and 0.4+0.4+0.2 of
// the memory of two hosts.
func TestAdmitSearchesWherePackingFails(t *testing.T) {
	p := allocator.Problem{Hosts: []allocator.Host{{Name: "full", CPU: 1, Memory: 1, Cordoned: true}, {Name: "h1", CPU: 1, Memory: 2}, {Name: "h2", CPU: 1, Memory: 1}}}
	p.Groups = append(p.Groups, allocator.Group{Cluster: "old", Name: "o", Count: 1, CPU: 0.5, Memory: 1, MinYield: 0.5, Hosts: []int{1}})
	for i, g := range []struct {
		count  int
		memory float64
	}{{1, 0.5}, {2, 0.4}, {1, 0.3}, {2, 0.2}} {
		p.Groups = append(p.Groups, allocator.Group{Cluster: "new", Name: fmt.Sprint(i), Count: g.count, CPU: 0.2, Memory: g.memory, MinYield: 0.5})
	}
	if _, ok := allocator.MCB8(allocator.Problem{Hosts: []allocator.Host{{CPU: 1, Memory: 1}, {CPU: 1, Memory: 1}}, Groups: p.Groups[1:]}); ok {
		t.Error("the heuristic finds it: this shows nothing")
	}
	a := allocator.Admit(p)
	if !a.Admitted {
		t.Fatalf("refused: %+v", a)
	}
	if err := checkSolution(p, a.Solution); err != nil || len(a.Solution.Shortfall) > 0 {
		t.Errorf("%v: %+v", err, a.Solution)
	}
}
