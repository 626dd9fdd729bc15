package admission_test

import (
	"slices"
	"strings"
	"testing"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// A VM that was lost starts elsewhere also where another of its VC is on a host that is beyond its memory; nothing starts there.
func TestRestartBesideAnOverfullHost(t *testing.T) {
	c := scheduling.NewCluster(t, "h1", "h2", "h3")
	c.Must(state.KindHostCordon, state.HostCordon{Host: "h1", Cordoned: true})
	x := scheduling.VC("x", 0.2, scheduling.Group(2, 3, 2*scheduling.GiB))
	x.OnHostLoss = state.RestartOnLoss
	c.Enact("create", admission.Create(c.Snapshot(), x, c.Env()).Plan)
	c.CommitPlan()
	on := map[string]state.VM{}
	for _, vm := range c.Snapshot().VMs() {
		on[vm.Host] = vm
	}
	if len(on) != 2 {
		t.Fatalf("placed on %v", on)
	}
	c.Host("h2", 4, scheduling.GiB, state.Resources{}) // less than its VM holds
	c.Must(state.KindHostCordon, state.HostCordon{Host: "h1", Cordoned: false})
	c.Must(state.KindHostLost, state.HostLost{Host: "h3", Proof: state.ProofOperator, Text: "it is dead"})
	p := admission.Restart(c.Snapshot(), c.Env())
	if p == nil {
		t.Fatal("it waits, and h1 is empty")
	}
	c.Enact("restart", p)
	if vm, _ := c.Snapshot().VM(on["h3"].ID); vm.Host != "h1" || vm.Generation != 2 {
		t.Errorf("%+v", vm)
	}
	c.Must(state.KindHostLost, state.HostLost{Host: "h1", Proof: state.ProofOperator, Text: "it is dead"})
	if p := admission.Restart(c.Snapshot(), c.Env()); p != nil && len(p.VMs) > 0 {
		t.Errorf("started beside what is too much already: %+v", p.VMs)
	}
}

// VMs that start on their own host only, which has become too small for all of them: those start for which there is room.
func TestRestartOnAHostThatShrank(t *testing.T) {
	c := scheduling.NewCluster(t, "h1")
	x := scheduling.VC("x", 0.2, scheduling.Group(3, 1, scheduling.GiB))
	x.OnHostLoss = state.KeepOnLoss
	c.Enact("create", admission.Create(c.Snapshot(), x, c.Env()).Plan)
	c.CommitPlan()
	c.Must(state.KindHostLost, state.HostLost{Host: "h1", Proof: state.ProofOperator, Text: "it is dead"})
	h, _ := c.Snapshot().Host("h1")
	c.Host("h1", 4, 2*scheduling.GiB+2*h.VMOverhead, state.Resources{})
	p := admission.Restart(c.Snapshot(), c.Env())
	if p == nil || len(p.VMs) != 1 {
		t.Fatalf("%+v", p)
	}
	c.Enact("restart", p)
	c.Enact("restart", admission.Restart(c.Snapshot(), c.Env()))
	if p := admission.Restart(c.Snapshot(), c.Env()); p == nil || len(p.VMs) != 0 {
		t.Errorf("a third one: %+v", p)
	}
}

// A VM does not start where the hypervisor lists one of its id: it waits, or starts elsewhere.
func TestRestartWhereNothingBarsIt(t *testing.T) {
	for _, c := range []struct {
		name  string
		lists []string
		host  string // "": it waits
	}{
		{"nothing is left of it", nil, "any"},
		{"left on one of two", []string{"h1"}, "h2"},
		{"left on the other", []string{"h2"}, "h1"},
		{"left on both", []string{"h1", "h2"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := scheduling.NewCluster(t, "h1", "h2", "h3")
			for _, h := range []string{"h1", "h2"} {
				s.Must(state.KindHostCordon, state.HostCordon{Host: h, Cordoned: true})
			}
			x := scheduling.VC("x", 0.2, scheduling.Group(1, 1, scheduling.GiB))
			x.OnHostLoss = state.RestartOnLoss
			s.Enact("create", admission.Create(s.Snapshot(), x, s.Env()).Plan)
			s.CommitPlan()
			for _, h := range []string{"h1", "h2"} {
				s.Must(state.KindHostCordon, state.HostCordon{Host: h, Cordoned: false})
			}
			s.Must(state.KindHostLost, state.HostLost{Host: "h3", Proof: state.ProofOperator, Text: "it is dead"})
			env := s.Env()
			env.Lists = func(vm state.VM) []string {
				if vm.ID == s.Snapshot().VMs()[0].ID {
					return c.lists
				}
				return nil
			}
			p := admission.Restart(s.Snapshot(), env)
			host := ""
			if p != nil && len(p.VMs) == 1 {
				host = p.VMs[0].Host
			}
			if host != c.host && (c.host != "any" || host == "") {
				t.Errorf("started on %q, want %q: %+v", host, c.host, p)
			}
		})
	}
}

// A VM does not start where the hypervisor still lists it: it starts elsewhere, or waits.
func TestListedOnHosts(t *testing.T) {
	for _, c := range []struct {
		name          string
		taken, closed []string
		want          []string // hosts it may start on; nil: it waits
	}{
		{"nowhere", nil, nil, []string{"h1", "h2", "h3"}},
		{"on the emptiest", []string{"h1"}, nil, []string{"h2", "h3"}},
		{"on all but one", []string{"h1", "h3"}, nil, []string{"h2"}},
		{"on all but one that is cordoned", []string{"h1", "h3"}, []string{"h2"}, nil},
		{"everywhere", []string{"h1", "h2", "h3"}, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := scheduling.NewCluster(t, "h1", "h2", "h3")
			s.Enact("create", admission.Create(s.Snapshot(), scheduling.VC("y", 0.2, scheduling.Group(2, 1, scheduling.GiB)), s.Env()).Plan)
			s.CommitPlan()
			for _, h := range c.closed {
				s.Must(state.KindHostCordon, state.HostCordon{Host: h, Cordoned: true})
			}
			env := s.Env()
			env.Lists = func(vm state.VM) []string {
				if vm.Name == "x-g0-0" {
					return c.taken
				}
				return nil
			}
			x := scheduling.VC("x", 0.2, scheduling.Group(1, 1, scheduling.GiB))
			x.OnFull = state.Queue
			a := admission.Create(s.Snapshot(), x, env)
			if a.Decision.Admitted != (c.want != nil) || c.want != nil && !slices.Contains(c.want, a.Plan.VMs[0].Host) {
				t.Fatalf("%+v, plan %+v", a.Decision, a.Plan)
			}
			for _, r := range a.Decision.Hosts {
				if r.Text != "its hypervisor still lists VM x-g0-0" && !r.Cordoned {
					t.Errorf("%s: %s", r.Host, r.Text)
				}
			}
			if c.want == nil && (!a.Queued || len(a.Decision.Hosts) != 3) {
				t.Errorf("refused: %+v", a.Decision)
			}
			if slices.ContainsFunc(a.Decision.Advice, func(text string) bool { return strings.Contains(text, "avoid") }) {
				t.Errorf("advice %q: the request has no rule", a.Decision.Advice)
			}
		})
	}
}

// TestLostBeforeNew: what would take the room of VMs that were lost with their host, and fit elsewhere now, waits or is refused; what fits
// beside them is admitted.
func TestLostBeforeNew(t *testing.T) {
	away := scheduling.VC("w", 0.2, scheduling.Group(2, 0.1, scheduling.GiB/4))
	away.Groups[0].Affinity = state.Affinity{Spread: "host", Avoid: []string{"vc:x"}}
	large, small := scheduling.VC("l", 0.2, scheduling.Group(1, 1, 5*scheduling.GiB)), scheduling.VC("s", 0.2, scheduling.Group(1, 1, scheduling.GiB/4))
	for _, c := range []struct {
		name     string
		vc       state.VC
		onFull   state.OnFull
		admitted bool
	}{
		{"needs the hosts that they need", away, state.Queue, false},
		{"takes their memory", large, state.Queue, false},
		{"takes their memory, and does not wait", large, state.Reject, false},
		{"fits beside them", small, state.Reject, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := scheduling.NewCluster(t, "h1", "h2", "h3")
			for _, h := range []string{"h2", "h3"} {
				s.Must(state.KindHostCordon, state.HostCordon{Host: h, Cordoned: true})
			}
			x := scheduling.VC("x", 0.2, scheduling.Group(2, 0.1, 2*scheduling.GiB))
			x.OnHostLoss = state.RestartOnLoss
			s.Enact("create", admission.Create(s.Snapshot(), x, s.Env()).Plan)
			s.CommitPlan()
			for _, h := range []string{"h2", "h3"} {
				s.Must(state.KindHostCordon, state.HostCordon{Host: h, Cordoned: false})
			}
			s.Must(state.KindHostLost, state.HostLost{Host: "h1", Proof: state.ProofOperator, Text: "it is dead"})
			s.Must(state.KindHostCordon, state.HostCordon{Host: "h1", Cordoned: true})
			if c.vc.Name == "l" { // it fits on one host alone, and so do they
				s.Must(state.KindHostCordon, state.HostCordon{Host: "h3", Cordoned: true})
			}
			c.vc.OnFull = c.onFull
			a := admission.Create(s.Snapshot(), c.vc, s.Env())
			if admitted := a.Plan != nil && !a.Queued; admitted != c.admitted || a.Queued != (c.onFull == state.Queue && !c.admitted) {
				t.Fatalf("%+v", a)
			}
			if !c.admitted && !strings.Contains(a.Decision.Summary, "virtual cluster x lost VMs with their host, which start first") {
				t.Errorf("%q", a.Decision.Summary)
			}
			if a.Plan != nil {
				s.Enact("create", a.Plan)
			}
			if p := admission.Restart(s.Snapshot(), s.Env()); p == nil || len(p.VMs) != 2 {
				t.Errorf("the lost VMs do not start: %+v", p)
			}
		})
	}
}

// restartAlone restarts one VM: it shuts down, and keeps its share until it has.
func restartAlone(c *scheduling.Cluster, vm state.VM) {
	x, _ := c.Snapshot().VC(vm.VC)
	c.Must(state.KindPlan, admission.RestartVM(c.Snapshot(), x, vm, "ann").Plan)
}

// While one VM restarts, its group's share does not fall below what that VM keeps: a plan that grows the group waits, and is none that
// the state refuses.
func TestScaleBesideARestart(t *testing.T) {
	for _, tc := range []struct {
		count int
		cpu   float64
		fits  bool
	}{{3, 4, false}, {2, 2, true}, {2, 1, true}, {3, 1, true}, {4, 1, false}} {
		c := scheduling.NewCluster(t, "h1")
		c.Create(scheduling.VC("a", 0.25, scheduling.Group(2, 4, scheduling.GiB)))
		c.CommitPlan()
		restartAlone(c, c.VMOf("a"))
		next := c.Named("a")
		next.Groups = slices.Clone(next.Groups)
		next.Groups[0].Count, next.Groups[0].CPU = tc.count, tc.cpu
		a := admission.Scale(c.Snapshot(), next, c.Env())
		if (a.Plan != nil) != tc.fits {
			t.Errorf("%d VMs of %v cores: %+v", tc.count, tc.cpu, a.Decision)
		}
		if a.Plan != nil {
			c.Enact("scale", a.Plan)
		}
		c.CommitPlan()
		c.CommitPlan()
		if a = admission.Scale(c.Snapshot(), next, c.Env()); a.Plan == nil {
			t.Errorf("%d VMs of %v cores, after the restart: %+v", tc.count, tc.cpu, a.Decision)
		}
	}
}

// A VM that restarts keeps its share: lost VMs of its group wait until it has stopped, and those of other VCs start.
func TestFailoverBesideARestart(t *testing.T) {
	c := scheduling.NewCluster(t, "h1", "h2")
	x := scheduling.VC("a", 0.25, scheduling.Group(2, 4, scheduling.GiB))
	x.OnHostLoss = state.RestartOnLoss
	c.Create(x)
	y := scheduling.VC("z", 0.1, scheduling.Group(2, 0.5, scheduling.GiB))
	y.OnHostLoss = state.RestartOnLoss
	c.Create(y)
	c.CommitPlan()
	vm := c.VMOf("a")
	restartAlone(c, vm)
	lost := "h1"
	if vm.Host == lost {
		lost = "h2"
	}
	c.Must(state.KindHostLost, state.HostLost{Host: lost, Proof: state.ProofOperator, Text: "burnt", Basis: c.Snapshot().Index()})
	restart := func() {
		for range 5 {
			if p := admission.Restart(c.Snapshot(), c.Env()); p != nil {
				c.Enact("restart", p)
			}
		}
	}
	wants := func(name string, running int) {
		t.Helper()
		n := 0
		for _, vm := range c.Snapshot().VMsOf(c.Named(name).ID) {
			if vm.ConsumesResources() && vm.Host != lost {
				n++
			}
		}
		if n != running {
			t.Errorf("%d VMs of %s run on what is left, want %d", n, name, running)
		}
	}
	restart()
	wants("a", 1)
	wants("z", 2)
	now, _ := c.Snapshot().VM(vm.ID)
	c.Follow(now)
	restart()
	wants("a", 2)
}

// VMs that stop, to start again as a change needs, count once in what is asked of their VC meanwhile: as what they keep or as what they
// start with, whichever is more.
func TestScaleBesideVMsThatStop(t *testing.T) {
	for _, tc := range []struct {
		count    int
		cpu      float64
		mib      int64
		fits     bool
		ofTheOne bool // a change that stops one VM
	}{
		{count: 2, cpu: 2, mib: 3072, fits: true},
		{count: 1, cpu: 2, mib: 3072, fits: true},
		{count: 2, cpu: 1, mib: 2048, fits: true},
		{count: 2, cpu: 4, mib: 3072, fits: true},
		{count: 2, cpu: 5, mib: 3072},
		{count: 3, cpu: 1, mib: 1024},
		{count: 2, cpu: 2, mib: 3584, fits: true},
		{count: 2, cpu: 2, mib: 4096},
		{count: 2, cpu: 4, mib: 3072, fits: true, ofTheOne: true},
		{count: 2, cpu: 2, mib: 4096, ofTheOne: true},
		{count: 3, cpu: 1, mib: 1024, fits: true, ofTheOne: true},
	} {
		c := scheduling.NewCluster(t, "h1")
		c.Create(scheduling.VC("a", 0.5, scheduling.Group(2, 2, 3*scheduling.GiB)))
		c.CommitPlan()
		next := c.Named("a")
		next.Groups = slices.Clone(next.Groups)
		next.Groups[0].Network = "other"
		restart := map[string]bool{}
		for i, vm := range c.Snapshot().VMsOf(next.ID) {
			restart[vm.ID] = i == 0 || !tc.ofTheOne
		}
		for id, is := range restart {
			if !is {
				delete(restart, id)
			}
		}
		c.Enact("apply", admission.Change(c.Snapshot(), next, "apply", restart, c.Env()).Plan)
		next = c.Named("a")
		next.Groups = slices.Clone(next.Groups)
		next.Groups[0].Count, next.Groups[0].CPU, next.Groups[0].Memory = tc.count, tc.cpu, tc.mib*scheduling.MiB
		a := admission.Scale(c.Snapshot(), next, c.Env())
		if a.Decision.Admitted != tc.fits {
			t.Errorf("%+v: %s %+v", tc, a.Decision.Summary, a.Decision.Hosts)
		}
		if a.Plan == nil {
			continue
		}
		c.Enact("scale", a.Plan)
		for range 4 {
			c.CommitPlan()
			if p := admission.Restart(c.Snapshot(), c.Env()); p != nil {
				c.Enact("restart", p)
			}
		}
		if n := state.CountPhases(c.Snapshot().VMsOf(next.ID)); n.Running != tc.count {
			t.Errorf("%+v: in the end %+v", tc, n)
		}
	}
}
