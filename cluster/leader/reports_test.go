package leader_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/lease"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
)

// crew is a leader and agents of hosts with 4 cores and 8 GiB, in fake time. Agents act when they are asked to.
type crew struct {
	*leader.Service
	t      *testing.T
	o      leader.Options
	handed map[string]bool // VMs that their source has handed over, by id
	refuse bool            // sources give their moves up, as an agent that was restarted does
	over   func()          // ends the term
}

// newCrew f, in the first term, with h1 and the other hosts having reported.
func newCrew(t *testing.T, f func(t *testing.T, c *crew), others ...string) {
	synctest.Test(t, func(t *testing.T) {
		store, zero := state.New(), time.Now()
		c := &crew{t: t, handed: map[string]bool{}, over: func() {}}
		c.o = leader.Options{State: store, Log: &instantLog{store: store}, Settings: state.DefaultSettings(), Logger: slog.New(slog.DiscardHandler),
			Inspect: func(i state.Image) (state.Image, error) { return i, nil }, Clock: func() lease.Instant { return time.Since(zero) }}
		c.lead(1)
		defer func() { c.over() }()
		c.agents(append(others, "h1")...)
		c.moves(func(m *state.MoveSettings) { m.Mode, m.PerHost = state.MovesOff, 1 })
		_, _, err := c.AddImage(t.Context(), state.Image{Name: "tiny", Kind: state.KernelImage, File: "/tiny"}, leader.Call{})
		c.must(err)
		f(t, c)
	})
}

func (c *crew) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *crew) state() *state.Snapshot { return c.o.State.Snapshot() }

// lead begins a term of another server, on the same state.
func (c *crew) lead(term uint64) {
	c.t.Helper()
	c.over()
	c.Service = leader.New(c.o)
	c.must(c.StartTerm(c.t.Context(), term, "c1"))
	ctx, cancel := context.WithCancel(c.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { c.Run(ctx) })
	wg.Go(func() { c.Guard(ctx) })
	c.over = func() { cancel(); wg.Wait() }
	synctest.Wait()
}

func (c *crew) moves(patch func(m *state.MoveSettings)) {
	c.t.Helper()
	_, err := c.Settings(c.t.Context(), func(s *state.Settings) error { patch(&s.Moves); return nil }, leader.Call{})
	c.must(err)
}

// agents of some hosts each do one round, and the leader's loop has time for what follows.
func (c *crew) agents(hosts ...string) {
	c.t.Helper()
	for _, host := range hosts {
		c.round(host)
	}
	pass(100 * time.Millisecond)
}

// pass lets simulated time pass.
func pass(d time.Duration) {
	time.Sleep(d) // sleep: simulated time
	synctest.Wait()
}

func (c *crew) round(host string) {
	want, _, err := c.Desired(c.t.Context(), host)
	c.must(err)
	r := agent.Report{Host: host, Epoch: want.Epoch, Index: want.Index, Reach: true, MigrateURI: host, Capacity: hypervisor.Capacity{CPU: 4, Memory: 8 << 30},
		Allowance: agent.Limits{CPU: 4, Memory: 8 << 30}, Running: []agent.Instance{}, Migrates: agent.Migrates{CPUModel: "qemu64"}}
	for _, vm := range want.VMs {
		id, generation := vm.Spec.VM, vm.Spec.Generation
		st := agent.Status{VM: id, Generation: generation, Phase: agent.PhaseRunning}
		if m := vm.Move; m != nil {
			st.Move, st.Phase = m.Open, ""
			switch {
			case m.Incoming && c.handed[id]:
				st.Phase = agent.PhaseArrived
			case m.Incoming:
				st.Phase = agent.PhaseRoom
			case c.refuse:
				st.Phase, st.Reason = agent.PhaseStayed, "the agent was restarted"
			case !m.Wait:
				c.handed[id] = c.handed[id] || c.permitted(host, agent.Handover{VM: id, Generation: generation, Move: m.Open})
			}
			if c.handed[id] && !m.Incoming {
				st.Phase, st.Bytes = agent.PhaseLeft, 1<<20
			}
		} else {
			delete(c.handed, id)
		}
		if st.Phase == agent.PhaseRunning {
			r.Running = append(r.Running, agent.Instance{VM: id, Name: vm.Spec.Name, Generation: generation})
		}
		if st.Phase != "" {
			r.Statuses = append(r.Statuses, st)
		}
	}
	c.must(c.Report(c.t.Context(), r))
}

func (c *crew) permitted(host string, h agent.Handover) bool {
	p, err := c.Permit(c.t.Context(), agent.PermitRequest{Host: host, Moves: []agent.Handover{h}})
	return err == nil && slices.Contains(p.Moves, h)
}

// close or open hosts.
func (c *crew) cordon(on bool, hosts ...string) {
	c.t.Helper()
	for _, h := range hosts {
		c.must(c.Cordon(c.t.Context(), h, on, "", false))
	}
}

// crowd h1 with VMs that need a whole host each.
func (c *crew) crowd(others []string, names ...string) {
	c.t.Helper()
	c.cordon(true, others...)
	for _, name := range names {
		x := vc(name, 1, 4, 512<<20)
		x.MinYield = 0.1
		_, err := c.Create(c.t.Context(), x, leader.Call{})
		c.must(err)
	}
	c.agents("h1")
	c.cordon(false, others...)
	c.agents(append(others, "h1")...)
}

// underWay plans moves, and returns once the first is open.
func (c *crew) underWay() state.MovePlan {
	c.t.Helper()
	r, err := c.Rebalance(c.t.Context(), leader.RebalanceRequest{}, leader.Call{})
	c.must(err)
	for range 20 {
		if len(c.state().MigrationsOf(r.Plan.ID)) > 0 {
			return r.Plan
		}
		c.agents("h1", "h2")
	}
	c.t.Fatal("no move was opened")
	return r.Plan
}

// TestDomainsOfOtherVMs: where a domain runs or stands that has the name of a VM, as VMs of earlier versions have, that VM is started all
// the same: its own domain is named by its id.
func TestDomainsOfOtherVMs(t *testing.T) {
	for _, there := range []agent.Instance{
		{VM: "gone", Name: "ek-web-g-0", Generation: 1},
		{VM: "gone", Name: "ek-web-g-0", Generation: 1, Incoming: true, Leftover: true},
	} {
		newCrew(t, func(t *testing.T, k *crew) {
			want, _, err := k.Desired(t.Context(), "h1")
			k.must(err)
			k.must(k.Report(t.Context(), agent.Report{Host: "h1", Epoch: want.Epoch, Index: want.Index, Reach: true, Running: []agent.Instance{there}, Unmanaged: []string{"ek-web-g-0"},
				Capacity: hypervisor.Capacity{CPU: 4, Memory: 8 << 30}, Allowance: agent.Limits{CPU: 4, Memory: 8 << 30}}))
			_, err = k.Create(t.Context(), vc("web", 1, 1, 512<<20), leader.Call{})
			k.must(err)
			vm, _ := k.state().VMNamed("web-g-0")
			want, _, err = k.Desired(t.Context(), "h1")
			k.must(err)
			if vm.Host != "h1" || len(want.VMs) != 1 || want.VMs[0].Spec.Name != "ek-"+vm.ID || want.VMs[0].Spec.Title != "web-g-0" {
				t.Errorf("placed on %q; h1 is sent %+v", vm.Host, want.VMs)
			}
		}, "h2")
	}
}

// TestStartRightAfterAStop: a VC can start as soon as the state says that its VMs have stopped, which the host of one without a disk lists
// no more then.
func TestStartRightAfterAStop(t *testing.T) {
	newCrew(t, func(t *testing.T, k *crew) {
		_, err := k.Create(t.Context(), vc("web", 1, 1, 512<<20), leader.Call{})
		k.must(err)
		k.agents("h1")
		_, err = k.Stop(t.Context(), "web", leader.Call{})
		k.must(err)
		vm, _ := k.state().VMNamed("web-g-0")
		started := 0
		k.o.Log.(*instantLog).after = func(kind state.Kind) {
			if now, _ := k.state().VM(vm.ID); kind != state.KindVMReport || now.Phase != state.Stopped {
				return
			}
			started++
			r, err := k.Start(t.Context(), "web", leader.Call{})
			k.must(err)
			if web, _ := k.state().VCNamed("web"); !web.Admitted {
				t.Errorf("it waits: %+v", r.Decision)
			}
		}
		k.must(k.Report(t.Context(), agent.Report{Host: "h1", Reach: true, Running: []agent.Instance{}, Capacity: hypervisor.Capacity{CPU: 4, Memory: 8 << 30},
			Allowance: agent.Limits{CPU: 4, Memory: 8 << 30}, Statuses: []agent.Status{{VM: vm.ID, Generation: vm.Generation, Phase: agent.PhaseStopped}}}))
		if started != 1 {
			t.Errorf("started %d times", started)
		}
	})
}

// TestDomainThatIsShown: a VM has the domain that its host lists, which an earlier version may have named; one that no host lists is
// started by its id.
func TestDomainThatIsShown(t *testing.T) {
	newCrew(t, func(t *testing.T, k *crew) {
		_, err := k.Create(t.Context(), vc("web", 1, 1, 512<<20), leader.Call{})
		k.must(err)
		vm, _ := k.state().VMNamed("web-g-0")
		for _, c := range []struct{ listed, want string }{{"", "ek-" + vm.ID}, {"ek-web-g-0", "ek-web-g-0"}, {"", "ek-" + vm.ID}} {
			r := agent.Report{Host: vm.Host, Reach: true, Running: []agent.Instance{}, Capacity: hypervisor.Capacity{CPU: 4, Memory: 8 << 30}, Allowance: agent.Limits{CPU: 4, Memory: 8 << 30}}
			if c.listed != "" {
				r.Running = append(r.Running, agent.Instance{VM: "other", Name: "ek-other"}, agent.Instance{VM: vm.ID, Name: c.listed, Generation: vm.Generation})
			}
			k.must(k.Report(t.Context(), r))
			v, err := k.View(t.Context(), false)
			k.must(err)
			if got := v.VMView(vm).Domain; got != c.want {
				t.Errorf("listed as %q: %q, want %q", c.listed, got, c.want)
			}
		}
	})
}

// A leader plans nothing again, and no plan ends, before it knows of all hosts which VMs they could take: moves go to a target
// whose first report comes late, once it has come.
func TestATargetReportsLateToANewLeader(t *testing.T) {
	for _, late := range []time.Duration{0, 300 * time.Millisecond, time.Second, 3 * time.Second, leader.DefaultLease - time.Second} {
		t.Run(late.String(), func(t *testing.T) {
			newCrew(t, func(t *testing.T, c *crew) {
				c.crowd([]string{"h2"}, "a", "b", "c", "d")
				plan := c.underWay()
				c.lead(2)
				c.refuse = true
				for end := time.Now().Add(late); time.Now().Before(end); {
					c.agents("h1")
					if p, _ := c.state().MovePlan(plan.ID); p.State != state.MovesRunning || p.Tries > 0 {
						t.Fatalf("before h2 reported the plan is %s, planned again %d times: %s", p.State, p.Tries, p.Reason)
					}
				}
				c.agents("h1", "h2")
				c.refuse = false
				for range 100 {
					c.agents("h1", "h2")
				}
				p, _ := c.state().MovePlan(plan.ID)
				if p.State != state.MovesDone || p.Tries != 1 || c.state().LoadOf("h2").VMs != 2 {
					t.Errorf("the plan is %s, planned again %d times: %s; h2 has %d VMs", p.State, p.Tries, p.Reason, c.state().LoadOf("h2").VMs)
				}
			}, "h2")
		})
	}
}

// No plan waits for ever: once a lease has passed the plan ends, but not as failed, and it names the host that was not counted.
func TestATargetDoesNotReportToANewLeader(t *testing.T) {
	newCrew(t, func(t *testing.T, c *crew) {
		c.crowd([]string{"h2"}, "a", "b", "c", "d")
		plan := c.underWay()
		c.lead(2)
		c.refuse = true
		for end := time.Now().Add(leader.DefaultLease + 5*time.Second); time.Now().Before(end); {
			c.agents("h1")
		}
		p, _ := c.state().MovePlan(plan.ID)
		if p.State != state.MovesStopped || !strings.Contains(p.Reason, "not counted: h2") {
			t.Errorf("the plan is %s: %s", p.State, p.Reason)
		}
	}, "h2")
}

// What is given as the reason of an answer is that of the hosts, not that a leader began a moment ago.
func TestAnswersBeforeHostsReport(t *testing.T) {
	asks := map[string]func(*crew) error{
		"rebalance": func(c *crew) error {
			_, err := c.Rebalance(c.t.Context(), leader.RebalanceRequest{}, leader.Call{DryRun: true})
			return err
		},
		"curve":  func(c *crew) error { _, err := c.Curve(c.t.Context()); return err },
		"groups": func(c *crew) error { _, _, err := c.DrainBatches(c.t.Context()); return err },
		"try":    func(c *crew) error { _, err := c.Simulate(c.t.Context(), leader.SimulateRequest{}); return err },
		"spare":  func(c *crew) error { _, err := c.FailoverCapacity(c.t.Context()); return err },
		"drain": func(c *crew) error {
			_, err := c.Drain(c.t.Context(), "h1", leader.DrainRequest{}, leader.Call{DryRun: true})
			return err
		},
		"drain of the one that is silent": func(c *crew) error {
			_, err := c.Drain(c.t.Context(), "h2", leader.DrainRequest{}, leader.Call{DryRun: true})
			return err
		},
		"create": func(c *crew) error {
			big := vc("big", 2, 1, 6<<30)
			big.OnFull = state.Reject
			_, err := c.Create(c.t.Context(), big, leader.Call{DryRun: true})
			return err
		},
	}
	newCrew(t, func(t *testing.T, c *crew) {
		c.crowd([]string{"h2"}, "a")
		c.cordon(true, "h1")
		one := vc("one", 1, 1, 512<<20)
		_, err := c.Create(t.Context(), one, leader.Call{})
		c.must(err)
		c.agents("h1", "h2")
		c.cordon(false, "h1")
		c.lead(2)
		c.agents("h1")
		for name, ask := range asks {
			if err := ask(c); !errors.Is(err, leader.ErrNoLeader) || !strings.Contains(err.Error(), "yet to report to the new leader: h2") {
				t.Errorf("%s before h2 reported: %v", name, err)
			}
		}
		c.agents("h1", "h2")
		for name, ask := range asks {
			if err := ask(c); err != nil {
				t.Errorf("%s once it has: %v", name, err)
			}
		}
		c.lead(3)
		c.agents("h1")
		pass(leader.DefaultLease)
		c.agents("h1")
		for name, ask := range asks {
			if err := ask(c); errors.Is(err, leader.ErrNoLeader) {
				t.Errorf("%s a lease later: %v", name, err)
			}
		}
	}, "h2")
}

// A move whose target has yet to report is not given up for it: its source asks again.
func TestAHandOverWaitsForItsTarget(t *testing.T) {
	newCrew(t, func(t *testing.T, c *crew) {
		c.crowd([]string{"h2"}, "a", "b")
		plan := c.underWay()
		c.agents("h2") // it has room
		m := c.state().MigrationsOf(plan.ID)[0]
		q := agent.PermitRequest{Host: "h1", Moves: []agent.Handover{{VM: m.VM, Generation: m.Generation, Move: m.Open}}}
		c.lead(2)
		if p, err := c.Permit(t.Context(), q); !errors.Is(err, leader.ErrNoLeader) {
			t.Errorf("before h2 reported: %+v, %v", p, err)
		}
		pass(leader.DefaultLease)
		if p, err := c.Permit(t.Context(), q); err != nil || p.Refused == "" {
			t.Errorf("a lease later: %+v, %v", p, err)
		}
		c.agents("h1", "h2")
		if p, err := c.Permit(t.Context(), q); err != nil || len(p.Moves) != 1 {
			t.Errorf("once it has: %+v, %v", p, err)
		}
	}, "h2")
}

// The room of a host that has yet to report is not taken for none: what waits first in the queue is not passed by.
func TestTheQueueBeforeHostsReport(t *testing.T) {
	newCrew(t, func(t *testing.T, c *crew) {
		c.cordon(true, "h1", "h2")
		big, small := vc("big", 2, 1, 5<<30), vc("small", 1, 1, 5<<30)
		big.Priority = 10
		for _, x := range []state.VC{small, big} {
			x.OnFull = state.Queue
			_, err := c.Create(t.Context(), x, leader.Call{})
			c.must(err)
		}
		c.lead(2)
		c.agents("h1")
		c.cordon(false, "h1", "h2")
		for range 50 {
			c.agents("h1")
		}
		if vms := c.state().VMs(); len(vms) > 0 {
			t.Errorf("before h2 reported %s began", vms[0].Name)
		}
		c.agents("h1", "h2")
		if vms := c.state().VMs(); len(vms) != 2 || vms[0].Name[:3] != "big" {
			t.Errorf("once it has: %+v", vms)
		}
	}, "h2")
}

// VMs that were lost with a host are not reported as having no room, either.
func TestARestartBeforeHostsReport(t *testing.T) {
	newCrew(t, func(t *testing.T, c *crew) {
		begin := func(x state.VC, on string) state.VC {
			c.cordon(true, "h1", "h2", "h3")
			c.cordon(false, on)
			r, err := c.Create(t.Context(), x, leader.Call{})
			c.must(err)
			c.agents("h1", "h2", "h3")
			return r.VC
		}
		x := vc("r", 1, 1, 5<<30)
		x.OnHostLoss = state.RestartOnLoss
		x = begin(x, "h2")
		begin(vc("full", 1, 1, 5<<30), "h1")
		c.cordon(false, "h2", "h3")
		c.over() // before it starts the VM elsewhere
		pass(leader.DefaultLease)
		c.must(c.ConfirmDead(t.Context(), "h2", "ann", "", false))
		c.lead(2)
		for range 20 {
			c.agents("h1")
		}
		if now, _ := c.state().VC(x.ID); strings.Contains(now.Decision.Summary, "wait for room") {
			t.Errorf("before h3 reported: %s", now.Decision.Summary)
		}
		c.agents("h1", "h3")
		if vm := c.state().VMsOf(x.ID)[0]; vm.Host != "h3" || vm.Phase != state.Starting {
			t.Errorf("once it has: %+v", vm)
		}
	}, "h2", "h3")
}

// A host with a drain is closed for VMs. A leader that begins meanwhile waits for its report as for any other host's: the drain
// does not report it as silent. A host that is closed and off does not hold up the others.
func TestADrainGoesOnUnderANewLeader(t *testing.T) {
	for _, left := range []int{0, 2} {
		t.Run(fmt.Sprintf("%d VMs", left), func(t *testing.T) {
			newCrew(t, func(t *testing.T, c *crew) {
				c.crowd([]string{"h2"}, []string{"a", "b"}[:left]...)
				_, err := c.Drain(t.Context(), "h1", leader.DrainRequest{}, leader.Call{})
				c.must(err)
				c.lead(2)
				quiet := func(when string) {
					t.Helper()
					if h, _ := c.state().Host("h1"); h.Drain.State == state.DrainDone || strings.Contains(h.Drain.Text, "not reported") {
						t.Errorf("%s: the drain is %s: %q", when, h.Drain.State, h.Drain.Text)
					}
				}
				c.agents("h2")
				pass(3 * time.Second)
				quiet("h1 has not reported")
				for range 100 {
					c.agents("h1", "h2")
				}
				if h, _ := c.state().Host("h1"); h.Drain.State != state.DrainDone {
					t.Fatalf("the drain is %s: %s", h.Drain.State, h.Drain.Text)
				}
				c.lead(3)
				c.agents("h2")
				if _, err := c.Rebalance(t.Context(), leader.RebalanceRequest{}, leader.Call{DryRun: true}); err != nil {
					t.Errorf("while h1 is empty and off: %v", err)
				}
			}, "h2")
		})
	}
}
