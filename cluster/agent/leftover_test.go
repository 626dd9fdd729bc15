package agent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"evenkeel/cluster/agent"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
)

func leftover(vm *hypervisor.VM) { vm.State, vm.Leftover = hypervisor.Incoming, true }

// What a migration left behind is destroyed once that is believed, wherever the VM is to be.
func TestDecideLeftovers(t *testing.T) {
	left := func(age time.Duration) agent.Past {
		return agent.Past{Leftover: map[string]time.Duration{"a": age}, Waits: map[string]agent.Waits{"a": {For: age}}}
	}
	const clear = "destroy ek-a generation 1, which a migration left behind"
	from := func(vm *agent.VM) { vm.Move = &agent.Move{Open: 5, To: "h2"}; vm.FreezeCPU = true }
	to := func(vm *agent.VM) {
		vm.Move, vm.MayStart, vm.Seen = &agent.Move{Open: 5, Incoming: true, Wait: true}, false, true
	}
	older := "generation 1 of it is here, paused by a migration"
	for _, c := range []struct {
		name  string
		want  agent.Desired
		there []hypervisor.VM
		past  agent.Past
		ops   []string
	}{
		{"an older generation", host(wanted("a", generation(2))), []hypervisor.VM{runs("a", leftover)}, left(5 * time.Second),
			[]string{clear, "hold ek-a: " + older, "report a generation 2 starting"}},
		{"seen for a moment only", host(wanted("a", generation(2), func(vm *agent.VM) { vm.Waits = older })), []hypervisor.VM{runs("a", leftover)}, left(4 * time.Second),
			[]string{"hold ek-a: " + older}},
		{"it comes in by a migration", host(wanted("a", generation(2), func(vm *agent.VM) { vm.Waits = older })), []hypervisor.VM{runs("a", func(vm *hypervisor.VM) { vm.State = hypervisor.Incoming })}, agent.Past{},
			[]string{"hold ek-a: " + older}},
		{"it runs", host(wanted("a", generation(2))), []hypervisor.VM{runs("a")}, agent.Past{}, []string{"hold ek-a: generation 1 runs, 2 is wanted"}},
		{"the VM is elsewhere", host(), []hypervisor.VM{runs("a", leftover)}, left(time.Minute), []string{clear}},
		{"the VM is elsewhere, and runs here as well", host(), []hypervisor.VM{runs("a")}, left(time.Minute), []string{clear}},
		{"the VM is to come back", host(wanted("a", to)), []hypervisor.VM{runs("a", leftover)}, left(time.Minute),
			[]string{"hold ek-a: an earlier migration left it behind here", clear}},
		{"its move is open", host(wanted("a", seen, from)), []hypervisor.VM{runs("a", leftover)}, left(59 * time.Second), nil},
		{"its move is open for long", host(wanted("a", seen, from)), []hypervisor.VM{runs("a", leftover)}, left(time.Minute), []string{clear}},
		{"not while the cluster is held", func() agent.Desired { d := host(); d.Freeze = "held after a restore"; return d }(), []hypervisor.VM{runs("a", leftover)}, left(time.Hour), nil},
		{"another cluster's", host(), []hypervisor.VM{runs("a", leftover, func(vm *hypervisor.VM) { vm.Cluster = "other" })}, left(time.Hour), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(append([]string{}, c.ops...), texts(agent.Decide(c.want, c.there, c.past))); diff != "" {
				t.Errorf("operations (-want +got):\n%s", diff)
			}
		})
	}
}

// behind puts what is left of generation 1 of a VM on h1, by a mark that bears no lease: an agent that begins without one stops
// restartable VMs, leftovers as well, if it looks before it has its first.
func behind(t *testing.T, w *simulated.World, id string) {
	t.Helper()
	if err := w.LeaveBehind("h1", wanted(id).Spec); err != nil {
		t.Fatal(err)
	}
}

// A VM whose name is taken by a migration's leftover starts once the leftover is destroyed. Where the leader does not permit
// that, the agent reports why the VM does not start, and after a time that it does not run. After that no agent ever starts it,
// also not one that comes later.
func TestRunLeftovers(t *testing.T) {
	guard(t, nil, []agent.VM{leased(wanted("a", generation(2)))}, func(t *testing.T, g *guarded) {
		behind(t, g.w, "a")
		defer g.start(t)()
		after(10 * time.Second)
		if vms := list(t, g.w); len(vms) != 1 || vms[0].Generation != 2 || vms[0].State != hypervisor.Running {
			t.Errorf("VMs %+v, want a of generation 2", vms)
		}
	})
	guard(t, nil, []agent.VM{leased(wanted("a", generation(2)))}, func(t *testing.T, g *guarded) {
		behind(t, g.w, "a")
		g.l.order(func(d *agent.Desired) { d.VMs = nil })
		g.l.refuse = true
		stop := g.start(t)
		after(5 * time.Second)
		g.l.deaf = true // it does not take the word
		g.l.order(func(d *agent.Desired) { d.VMs = []agent.VM{leased(wanted("a", generation(2)))} })
		after(50 * time.Second)
		equal(t, "reported before its time", g.l.received(), []string{})
		after(20 * time.Second)
		if reported := g.l.received(); len(reported) == 0 || !strings.HasPrefix(reported[0], "a/2 lost it did not start within 1m0s: generation 1 of it is here") {
			t.Errorf("the leader received %q", reported)
		}
		stop()
		g.l.mu.Lock()
		g.l.refuse = false
		g.l.mu.Unlock()
		stop = g.start(t)
		defer stop()
		after(2 * time.Minute)
		equal(t, "VMs", names(list(t, g.w)), nil)
		if reported := g.l.received(); !strings.HasPrefix(reported[len(reported)-1], "a/2 lost") {
			t.Errorf("another agent reported %q last", reported[len(reported)-1])
		}
		g.l.mu.Lock()
		g.l.deaf = false
		g.l.mu.Unlock()
		g.l.order(func(d *agent.Desired) { d.VMs = []agent.VM{leased(wanted("a", generation(3)))} })
		after(10 * time.Second)
		equal(t, "the next generation", names(list(t, g.w)), []string{"a"})
	})
}

// A VM that the state has on another host and that runs here as well, because its source took a lost answer for a failure, is
// destroyed here. Where the leader does not confirm that, the VM is left alone.
func TestRunElsewhere(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		guard(t, nil, []agent.VM{wanted("a")}, func(t *testing.T, g *guarded) {
			defer g.start(t)()
			after(5 * time.Second)
			g.l.mu.Lock()
			g.l.refuse = refuse
			g.l.mu.Unlock()
			g.l.order(func(d *agent.Desired) { d.VMs = nil })
			after(3 * time.Second)
			equal(t, "at first", names(list(t, g.w)), []string{"a"})
			after(20 * time.Second)
			var want []string
			if refuse {
				want = []string{"a"}
			}
			equal(t, "VMs", names(list(t, g.w)), want)
		})
	}
}

// A VM that does not fit is reported as waiting. It is given back if it may run elsewhere, unless this agent, or one before it,
// may have tried to start it.
func TestRunWaits(t *testing.T) {
	big := func(id string) agent.VM { return wanted(id, capped(3)) }
	for _, c := range []struct {
		name    string
		vm      agent.VM
		early   bool // the agent finds it in its first word
		reports string
	}{
		{"restartable", leased(big("b")), false, "b/1 lost it did not start within 1m0s: 3.000 cores do not fit yet"},
		{"of an agent before", leased(big("b")), true, ""},
		{"bound to its host", big("b"), false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			guard(t, nil, []agent.VM{wanted("a", capped(2))}, func(t *testing.T, g *guarded) {
				if c.early {
					g.l.order(func(d *agent.Desired) { d.VMs = append(d.VMs, c.vm) })
				}
				defer g.start(t)()
				after(10 * time.Second)
				if !c.early {
					g.l.order(func(d *agent.Desired) { d.VMs = append(d.VMs, c.vm) })
				}
				after(10 * time.Second)
				g.l.mu.Lock()
				waits := g.l.want.VMs[1].Waits
				g.l.mu.Unlock()
				if waits != "3.000 cores do not fit yet" {
					t.Errorf("the leader knows that b waits for %q", waits)
				}
				after(2 * time.Minute)
				var reported []string
				for _, s := range g.l.received() {
					if strings.HasPrefix(s, "b/") {
						reported = append(reported, s)
					}
				}
				if strings.Join(reported, "\n") != c.reports {
					t.Errorf("the leader received %q, want %q", reported, c.reports)
				}
			})
		})
	}
}
