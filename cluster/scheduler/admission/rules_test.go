package admission_test

import (
	"slices"
	"strings"
	"testing"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

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

// hostsOf returns the hosts of a VC's VMs that hold a place, by number.
func hostsOf(c *scheduling.Cluster, name string) string {
	var hosts []string
	for _, vm := range c.Snapshot().VMsOf(c.Named(name).ID) {
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
	c := scheduling.NewCluster(t, "h1", "h2", "h3")
	c.Create(labelled(ruled(scheduling.VC("db", 0.5, scheduling.Group(1, 1, scheduling.GiB)), state.Affinity{Require: []string{"host:h2"}}), "db"))
	c.Create(ruled(scheduling.VC("spread", 0.5, scheduling.Group(3, 0.5, scheduling.GiB)), state.Affinity{Spread: "host"}))
	c.Create(ruled(scheduling.VC("beside", 0.5, scheduling.Group(2, 0.5, scheduling.GiB)), state.Affinity{Require: []string{"vc:db"}}))
	c.Create(labelled(ruled(scheduling.VC("away", 0.5, scheduling.Group(2, 0.5, scheduling.GiB)), state.Affinity{Avoid: []string{"app=db", "host:h1"}}), "shy"))
	c.Create(ruled(scheduling.VC("rather", 0.5, scheduling.Group(2, 0.1, scheduling.GiB/4)), state.Affinity{Prefer: []string{"host:h3"}}))
	for name, want := range map[string]string{"db": "h2", "spread": "h1 h2 h3", "beside": "h2 h2", "away": "h3 h3", "rather": "h3 h3"} {
		if got := hostsOf(c, name); got != want {
			t.Errorf("%s is on %s, want %s", name, got, want)
		}
	}
	c.CommitPlan()

	// One more than there are hosts: never; and where it is said, in words.
	more := c.Named("spread")
	more.Groups = slices.Clone(more.Groups)
	more.Groups[0].Count = 4
	a := admission.Scale(c.Snapshot(), more, c.Env())
	want := "h1: spread host: a VM of the group is on it\nh2: spread host: a VM of the group is on it\nh3: spread host: a VM of the group is on it"
	if a.Plan != nil || reasons(a.Decision) != want || a.Decision.Hosts[0].Rule != "spread host" {
		t.Errorf("scaled beyond the hosts: %+v", a)
	}
	if !slices.Contains(a.Decision.Advice, `spread/g0 without "spread host"`) {
		t.Errorf("advice %q", a.Decision.Advice)
	}

	// What was there avoids what comes.
	x := labelled(scheduling.VC("late", 0.5, scheduling.Group(1, 0.5, scheduling.GiB)), "db")
	x.Groups[0].Affinity.Avoid = []string{"host:h1"}
	c.Create(x)
	if got := hostsOf(c, "late"); got != "h2" {
		t.Errorf("late is on %s, want h2: on h3 is what avoids app=db", got)
	}

	// What is required goes away: nothing happens to what runs, and more of it does not fit.
	c.Enact("delete", admission.Delete(c.Snapshot(), c.Named("db"), c.Env()).Plan)
	c.CommitPlan()
	if got := hostsOf(c, "beside"); got != "h2 h2" {
		t.Errorf("beside is on %s", got)
	}
	if got := strings.Join(placement.RulesOf(c.Snapshot(), c.Named("beside")), "\n"); got != "group g0: require vc:db: kept by 0 of 2 VMs; VM beside-g0-0 on host h2 does not" {
		t.Errorf("rules of beside: %s", got)
	}
	more = c.Named("beside")
	more.Groups = slices.Clone(more.Groups)
	more.Groups[0].Count = 3
	if a := admission.Scale(c.Snapshot(), more, c.Env()); a.Plan != nil || !strings.Contains(reasons(a.Decision), "h2: require vc:db: no other VM that it names is on it") {
		t.Errorf("one more beside what is gone: %+v", a)
	}
	fewer := c.Named("beside")
	fewer.Groups = slices.Clone(fewer.Groups)
	fewer.Groups[0].Count = 1
	if a := admission.Scale(c.Snapshot(), fewer, c.Env()); a.Plan == nil {
		t.Errorf("one less: %+v", a.Decision)
	}
	if got := strings.Join(placement.RulesOf(c.Snapshot(), c.Named("away")), "\n"); got != "group g0: avoid app=db: kept by 2 of 2 VMs\ngroup g0: avoid host:h1: kept by 2 of 2 VMs" {
		t.Errorf("rules of away: %s", got)
	}
}

// A disk keeps its VM on a host. If a new rule bars the VM from that host, it does not start, and its reason says why.
func TestDiskAgainstARule(t *testing.T) {
	c := scheduling.NewCluster(t, "h1")
	x := scheduling.VC("x", 0.5, scheduling.Group(1, 1, scheduling.GiB))
	x.Groups[0].Image = "disk"
	x.Groups[0].Affinity.Avoid = []string{"app=loud"}
	c.Create(x)
	c.CommitPlan()
	c.Enact("stop", admission.Stop(c.Snapshot(), c.Named("x"), c.Env()).Plan)
	c.CommitPlan()
	c.Create(labelled(scheduling.VC("loud", 0.5, scheduling.Group(1, 1, scheduling.GiB)), "loud"))
	c.CommitPlan()
	a := admission.Start(c.Snapshot(), c.Named("x"), c.Env())
	if !a.Queued || a.Decision.Admitted || reasons(a.Decision) != "h1: avoid app=loud: a VM of loud/g0 is on it; and the disk of VM x-g0-0 lies there" {
		t.Errorf("started beside what it avoids: %+v", a)
	}
	c.Enact("start", a.Plan)
	c.Enact("delete", admission.Delete(c.Snapshot(), c.Named("loud"), c.Env()).Plan)
	c.CommitPlan()
	if got := hostsOf(c, "x"); got != "h1" {
		t.Errorf("x is on %q once the other is gone", got)
	}
}
