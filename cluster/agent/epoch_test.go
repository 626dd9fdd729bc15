package agent_test

import (
	"fmt"
	"testing"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/hypervisor/simulated"
)

// After a restore the leader waits for a list of VMs taken once the new epoch was known. The agent reports it at once.
func TestRunReportsANewEpoch(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		l := newLeader(wanted("a"))
		defer run(t, w, l)()
		after(5 * time.Second)
		l.order(func(d *agent.Desired) { d.Epoch, d.Freeze = 7, "held after a restore" })
		after(time.Second)
		if r := l.last(); r.Epoch != 7 || len(r.Running) != 1 {
			t.Errorf("a second after the new epoch the last report is of epoch %d, with %d VMs", r.Epoch, len(r.Running))
		}
	})
}

// A restore that puts the state of another cluster in force makes its VMs this cluster's. The report of the new epoch has them,
// also where a grant had given the agent that epoch before it received the state.
func TestRunReportsAnotherCluster(t *testing.T) {
	for _, granted := range []bool{false, true} {
		t.Run(fmt.Sprint("granted before ", granted), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *simulated.World) {
				end := run(t, w, newLeader(wanted("a")))
				after(5 * time.Second)
				end()
				l := newLeader()
				ours := l.want.Cluster
				l.want.Cluster = "of the moment"
				defer run(t, w, l)()
				after(5 * time.Second)
				if r := l.last(); len(r.Running) != 0 || r.ForeignVMs != 1 {
					t.Fatalf("at first %d VMs are reported, and %d that are not ours", len(r.Running), r.ForeignVMs)
				}
				restored := func(d *agent.Desired) {
					d.Cluster, d.Epoch, d.Freeze, d.VMs = ours, 7, "held after a restore", []agent.VM{wanted("a")}
				}
				if granted {
					l.mu.Lock()
					restored(&l.want)
					l.want.Index++
					l.mu.Unlock()
					after(15 * time.Second)
				}
				from := l.count()
				l.order(restored)
				after(time.Second)
				for _, r := range l.reports[from:] {
					if r.Epoch == 7 && (len(r.Running) != 1 || r.ForeignVMs != 0) {
						t.Errorf("of the new epoch %d VMs are reported, and %d that are not ours", len(r.Running), r.ForeignVMs)
					}
				}
				if r := l.last(); r.Epoch != 7 {
					t.Errorf("the last report is of epoch %d", r.Epoch)
				}
			})
		})
	}
}
