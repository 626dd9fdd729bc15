package agent_test

import (
	"slices"
	"testing"
	"time"

	"evenkeel/cluster/agent"
)

// An agent that lost what it knew begins with what the leader gives it: restartable VMs run on with a lease, and are stopped at
// once without one. The agent reports VMs that ended meanwhile as lost, and refuses orders from before its admission.
func TestBeginning(t *testing.T) {
	for _, lease := range []time.Duration{0, 20 * time.Second} {
		guard(t, nil, []agent.VM{leased(wanted("a")), leased(wanted("c")), wanted("b")}, func(t *testing.T, g *guarded) {
			stop := g.start(t)
			after(10 * time.Second)
			stop()
			after(time.Hour) // its disk was lost, and an operator took his time
			g.l.order(func(d *agent.Desired) {
				for i := range d.VMs {
					d.VMs[i].Seen = true
				}
			})
			if err := g.w.Host("h1").Destroy(t.Context(), "c"); err != nil {
				t.Fatal(err)
			}
			b := agent.Beginning{Epoch: 0, Index: 1, Lease: lease, Enforce: true}
			g.keep.m = b.Memory("b1", time.Since(g.zero))
			defer g.start(t)()
			after(10 * time.Second)
			want := []string{"a", "b"}
			if lease == 0 {
				want = []string{"b"}
			}
			equal(t, "VMs with a lease of "+lease.String(), names(list(t, g.w)), want)
			if reported := g.l.received(); !slices.Contains(reported, "c/1 lost stopped by its host, whose lease was over") {
				t.Errorf("of a VM that went meanwhile the leader received %q", reported)
			}
		})
	}
}

// The agent reports the machine on which the host's VMs run only once the leader knows what ended with the run before.
func TestMachineIsReportedOnceItsVMsAre(t *testing.T) {
	guard(t, nil, []agent.VM{wanted("a")}, func(t *testing.T, g *guarded) {
		said := func() (out []string) {
			g.l.mu.Lock()
			defer g.l.mu.Unlock()
			for _, r := range g.l.renewals {
				out = append(out, r.Machine)
			}
			g.l.renewals = nil
			return slices.Compact(out)
		}
		g.keep.m = agent.PersistentState{Boot: "b0"} // it was started again
		g.l.order(func(d *agent.Desired) { d.Freeze = "held" })
		defer g.start(t)()
		after(12 * time.Second)
		equal(t, "machines before the VMs were reported", said(), []string{""})
		g.l.order(func(d *agent.Desired) { d.Freeze = "" })
		after(7 * time.Second)
		said()
		after(12 * time.Second)
		equal(t, "machines after that", said(), []string{"m1"})
	})
}
