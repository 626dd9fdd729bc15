package loop_test

import (
	"slices"
	"strings"
	"testing"

	"evenkeel/cluster/loop"
	"evenkeel/cluster/state"
)

// keepsRules checks, from the definition of affinity alone, the VMs that have a place now and had none before.
func keepsRules(t failer, what string, before, after *state.Snapshot) {
	t.Helper()
	group := func(vm state.VM) (string, state.Group) {
		x, _ := after.VC(vm.VC)
		g, _ := x.GroupOf(vm)
		return x.Name, g
	}
	is := func(vm state.VM, term string) bool {
		name, g := group(vm)
		if k, v, ok := strings.Cut(term, "="); ok {
			got, has := g.Labels[k]
			return has && got == v
		}
		return term == "vc:"+name
	}
	there := func(vm state.VM) bool { return vm.ConsumesResources() && vm.Goal == state.GoalRun }
	isNew := func(vm state.VM) bool {
		old, known := before.VM(vm.ID)
		return !known || !there(old)
	}
	for _, vm := range after.VMs() {
		if !there(vm) {
			continue
		}
		_, g := group(vm)
		var others []state.VM
		for _, o := range after.VMsOn(vm.Host) {
			if o.ID != vm.ID && there(o) {
				others = append(others, o)
			}
		}
		for _, o := range others {
			together := o.VC == vm.VC && o.Group == vm.Group && g.Affinity.Spread == "host"
			if (isNew(vm) || isNew(o)) && (together || slices.ContainsFunc(g.Affinity.Avoid, func(term string) bool { return is(o, term) })) {
				t.Fatalf("%s: %s (%+v) and %s are both on %s", what, vm.Name, g.Affinity, o.Name, vm.Host)
			}
		}
		if !isNew(vm) {
			continue
		}
		if slices.Contains(g.Affinity.Avoid, "host:"+vm.Host) {
			t.Fatalf("%s: %s is on %s, which it avoids", what, vm.Name, vm.Host)
		}
		named, found := false, false
		for _, term := range g.Affinity.Require {
			if strings.HasPrefix(term, "host:") {
				named, found = true, found || term == "host:"+vm.Host
			} else if !slices.ContainsFunc(others, func(o state.VM) bool { return is(o, term) }) {
				t.Fatalf("%s: %s requires %s, and has none on %s", what, vm.Name, term, vm.Host)
			}
		}
		if named && !found {
			t.Fatalf("%s: %s is on %s, not on one of %v", what, vm.Name, vm.Host, g.Affinity.Require)
		}
	}
}

func ruled(x state.VC, a state.Affinity) state.VC {
	for i := range x.Groups {
		x.Groups[i].Affinity = a
	}
	return x
}

func labelled(x state.VC, app string) state.VC {
	for i := range x.Groups {
		x.Groups[i].Labels = map[string]string{"app": app}
	}
	return x
}

// on is the hosts of a VC's VMs that hold a place, by number.
func (c *cluster) on(name string) string {
	var hosts []string
	for _, vm := range c.Snapshot().VMsOf(c.named(name).ID) {
		if vm.ConsumesResources() {
			hosts = append(hosts, vm.Host)
		}
	}
	slices.Sort(hosts)
	return strings.Join(hosts, " ")
}

func reasons(d state.Decision) string {
	var lines []string
	for _, h := range d.Hosts {
		lines = append(lines, h.Host+": "+h.Text)
	}
	return strings.Join(lines, "\n")
}

func TestAffinity(t *testing.T) {
	c := newCluster(t, "h1", "h2", "h3")
	c.create(labelled(ruled(vc("db", 0.5, group(1, 1, gib)), state.Affinity{Require: []string{"host:h2"}}), "db"))
	c.create(ruled(vc("spread", 0.5, group(3, 0.5, gib)), state.Affinity{Spread: "host"}))
	c.create(ruled(vc("beside", 0.5, group(2, 0.5, gib)), state.Affinity{Require: []string{"vc:db"}}))
	c.create(labelled(ruled(vc("away", 0.5, group(2, 0.5, gib)), state.Affinity{Avoid: []string{"app=db", "host:h1"}}), "shy"))
	c.create(ruled(vc("rather", 0.5, group(2, 0.1, gib/4)), state.Affinity{Prefer: []string{"host:h3"}}))
	for name, want := range map[string]string{"db": "h2", "spread": "h1 h2 h3", "beside": "h2 h2", "away": "h3 h3", "rather": "h3 h3"} {
		if got := c.on(name); got != want {
			t.Errorf("%s is on %s, want %s", name, got, want)
		}
	}
	c.commitPlan()

	// One more than there are hosts: never; and where it is said, in words.
	more := c.named("spread")
	more.Groups = slices.Clone(more.Groups)
	more.Groups[0].Count = 4
	a := loop.Scale(c.Snapshot(), more, c.env())
	want := "h1: spread host: a VM of the group is on it\nh2: spread host: a VM of the group is on it\nh3: spread host: a VM of the group is on it"
	if a.Plan != nil || reasons(a.Decision) != want || a.Decision.Hosts[0].Rule != "spread host" {
		t.Errorf("scaled beyond the hosts: %+v", a)
	}
	if !slices.Contains(a.Decision.Advice, `spread/g0 without "spread host"`) {
		t.Errorf("advice %q", a.Decision.Advice)
	}

	// What was there avoids what comes.
	x := labelled(vc("late", 0.5, group(1, 0.5, gib)), "db")
	x.Groups[0].Affinity.Avoid = []string{"host:h1"}
	c.create(x)
	if got := c.on("late"); got != "h2" {
		t.Errorf("late is on %s, want h2: on h3 is what avoids app=db", got)
	}

	// What is required goes away: nothing happens to what runs, and more of it does not fit.
	c.enact("delete", loop.Delete(c.Snapshot(), c.named("db"), c.env()).Plan)
	c.commitPlan()
	if got := c.on("beside"); got != "h2 h2" {
		t.Errorf("beside is on %s", got)
	}
	if got := strings.Join(loop.RulesOf(c.Snapshot(), c.named("beside")), "\n"); got != "group g0: require vc:db: kept by 0 of 2 VMs; VM beside-g0-0 on host h2 does not" {
		t.Errorf("rules of beside: %s", got)
	}
	more = c.named("beside")
	more.Groups = slices.Clone(more.Groups)
	more.Groups[0].Count = 3
	if a := loop.Scale(c.Snapshot(), more, c.env()); a.Plan != nil || !strings.Contains(reasons(a.Decision), "h2: require vc:db: no other VM that it names is on it") {
		t.Errorf("one more beside what is gone: %+v", a)
	}
	fewer := c.named("beside")
	fewer.Groups = slices.Clone(fewer.Groups)
	fewer.Groups[0].Count = 1
	if a := loop.Scale(c.Snapshot(), fewer, c.env()); a.Plan == nil {
		t.Errorf("one less: %+v", a.Decision)
	}
	if got := strings.Join(loop.RulesOf(c.Snapshot(), c.named("away")), "\n"); got != "group g0: avoid app=db: kept by 2 of 2 VMs\ngroup g0: avoid host:h1: kept by 2 of 2 VMs" {
		t.Errorf("rules of away: %s", got)
	}
}

// A disk keeps its VM on a host. If a new rule bars the VM from that host, it does not start, and its reason says why.
func TestDiskAgainstARule(t *testing.T) {
	c := newCluster(t, "h1")
	x := vc("x", 0.5, group(1, 1, gib))
	x.Groups[0].Image = "disk"
	x.Groups[0].Affinity.Avoid = []string{"app=loud"}
	c.create(x)
	c.commitPlan()
	c.enact("stop", loop.Stop(c.Snapshot(), c.named("x"), c.env()).Plan)
	c.commitPlan()
	c.create(labelled(vc("loud", 0.5, group(1, 1, gib)), "loud"))
	c.commitPlan()
	a := loop.Start(c.Snapshot(), c.named("x"), c.env())
	if !a.Queued || a.Decision.Admitted || reasons(a.Decision) != "h1: avoid app=loud: a VM of loud/g0 is on it; and the disk of VM x-g0-0 lies there" {
		t.Errorf("started beside what it avoids: %+v", a)
	}
	c.enact("start", a.Plan)
	c.enact("delete", loop.Delete(c.Snapshot(), c.named("loud"), c.env()).Plan)
	c.commitPlan()
	if got := c.on("x"); got != "h1" {
		t.Errorf("x is on %q once the other is gone", got)
	}
}
