package agent_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"evenkeel/cluster/agent"
	"evenkeel/hypervisor/simulated"
)

// Several guests take memory back from their balloons in the same second, more than was kept free for the largest of them: none is killed, those that had
// nothing to do with it go on with what they use, and within seconds no more is in use than there is, though the leader does nothing.
func TestGuestsThatTakeMemoryAtOnce(t *testing.T) {
	const overhead, floor, spikes = 64 * mib, 128 * mib, 2 * time.Minute
	over := 0
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(4, 7).Draw(rt, "guests")
		guests, targets := map[string]simulated.Guest{}, map[string]int64{}
		uses, limit, needs, swells := make([]int64, n), int64(0), int64(0), map[string]bool{}
		memory := int64(n) * overhead
		for i := range n {
			id := string(rune('a' + i))
			uses[i] = int64(rapid.IntRange(100, 250).Draw(rt, "uses")) * mib
			targets[id] = max(256*mib, uses[i]*int64(rapid.IntRange(125, 200).Draw(rt, "has"))/100/mib*mib)
			memory += targets[id]
			limit = max(limit, gib-targets[id])
			needs += uses[i]*100/85 + 4*mib
		}
		memory += limit                           // kept free for one
		left := memory - n64(n, overhead) - needs // what guests may use more, so that all fit
		for i := range n {
			id := string(rune('a' + i))
			to := uses[i]
			if rapid.IntRange(0, 2).Draw(rt, "spikes") > 0 {
				to = min(uses[i]+max(0, left)*85/100, int64(rapid.IntRange(400, 950).Draw(rt, "to"))*mib)
				left -= (to - uses[i]) * 100 / 85
				swells[id] = to > uses[i]
			}
			guests[id] = simulated.Guest{Deflates: true, Memory: simulated.Spike{From: uses[i], To: to,
				At:   spikes + time.Duration(rapid.IntRange(0, 2000).Draw(rt, "at"))*time.Millisecond,
				Took: time.Duration(rapid.IntRange(0, 2000).Draw(rt, "took")) * time.Millisecond}}
		}
		wrong, was := "", int64(0)
		guestsOf(t, 64*gib, guests, func(t *testing.T, w *simulated.World) {
			l := newLeader()
			l.order(func(d *agent.Desired) {
				for i := range n {
					d.VMs = append(d.VMs, wanted(string(rune('a'+i)), capped(0.5)))
				}
				d.Memory = 64 * gib
			})
			defer run(t, w, l)()
			after(20 * time.Second)
			l.order(func(d *agent.Desired) {
				d.Memory = memory
				for i := range d.VMs {
					vm := &d.VMs[i]
					vm.Spec.Balloon, vm.MinMemory = targets[vm.Spec.Identity.VM], floor
				}
			})
			after(spikes - 22*time.Second)
			for tick := range 4 * 60 {
				sum, each := int64(0), ""
				for id := range guests {
					m := memoryOf(t, w, id)
					sum += m.Balloon + overhead
					each += fmt.Sprintf("; %s has %.2f MiB of %d, wants %d, took %d", id, float64(m.Balloon)/float64(mib), targets[id]/mib, m.Wanted/mib, m.TookBack/mib)
					if m.Kills+int(m.Swapped) > 0 || !swells[id] && (m.TookBack > 0 || m.Balloon < floor) {
						wrong = fmt.Sprintf("%s, which spikes (%v): %+v", id, swells[id], m)
					}
				}
				was = max(was, sum-memory)
				if tick > 4*15 && sum > memory+2*mib {
					wrong = fmt.Sprintf("%d s after the spikes: %.2f of %d MiB%s", tick/4-4, float64(sum)/float64(mib), memory/mib, each)
				}
				after(time.Second / 4)
			}
		})
		if wrong != "" {
			rt.Fatal(wrong)
		}
		if was > 0 {
			over++
		}
	})
	if over == 0 && !t.Failed() {
		t.Error("never was more in use than there is: nothing was tried")
	}
	t.Logf("in %d runs more was in use than there is, for a while", over)
}

func n64(n int, bytes int64) int64 { return int64(n) * bytes }
