package agent_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
)

// withoutSamples returns the reports that are more than samples.
func (l *leader) telling() (out []agent.Report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, r := range l.reports {
		if i == 0 || len(r.Statuses) > 0 || !slices.Equal(r.Running, l.reports[i-1].Running) || r.Index != l.reports[i-1].Index && !r.Quiet {
			out = append(out, r)
		}
	}
	return out
}

// timed is a world whose hypervisors take no time but for starts.
func timed(t *testing.T, start time.Duration) *simulated.World {
	t.Helper()
	w, err := simulated.New(simulated.Options{Hosts: 1, CPU: 4, Memory: 8 * gib, Timing: &simulated.Timing{Start: start}})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func closed(t *testing.T, w *simulated.World) {
	t.Helper()
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// A VM that starts at once is reported once, and so is its end: with what runs then, and the index in force.
func TestOneReportForAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timed(t, 0)
		defer closed(t, w)
		l := newLeader()
		defer run(t, w, l)()
		after(time.Second)
		l.mu.Lock()
		l.reports = nil
		l.mu.Unlock()
		l.order(func(d *agent.Desired) { d.VMs, d.RequiredIndex = []agent.VM{wanted("a")}, d.Index+1 })
		after(3 * time.Second)
		equal(t, "reported", l.received(), []string{"a/1 running"})
		if r := l.telling(); len(r) != 1 || len(r[0].Running) != 1 || r[0].Index < 2 || r[0].Quiet {
			t.Errorf("reports %+v", r)
		}
		if r := l.last(); r.Index != l.want.Index || !r.Quiet {
			t.Errorf("index %d (quiet: %v) of %d; no caller waits for it", r.Index, r.Quiet, l.want.Index)
		}
		l.mu.Lock()
		l.reports, l.deaf = nil, true // its next word comes late
		l.mu.Unlock()
		l.order(func(d *agent.Desired) { d.VMs[0].Want, d.RequiredIndex = agent.WantAbsent, d.Index+1 })
		after(3 * time.Second)
		equal(t, "reported", l.received(), []string{"a/1 stopped deleted"})
		if r := l.telling(); len(r) != 1 || len(r[0].Running) != 0 || r[0].Index != l.want.Index || r[0].Quiet {
			t.Errorf("reports %+v", r)
		}
	})
}

// A status that the leader took and does not act on is reported again, in the end.
func TestReportedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		l := newLeader(wanted("a"))
		l.deaf = true
		defer run(t, w, l)()
		after(time.Minute)
		if n := len(l.received()); n < 3 || n > 12 {
			t.Errorf("said %d times in a minute: %v", n, l.received())
		}
	})
}

// A host that takes its time over many starts reports meanwhile what runs.
func TestSlowStartsAreReportedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timed(t, 400*time.Millisecond)
		defer closed(t, w)
		var vms []agent.VM
		for _, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"} {
			vm := wanted(id)
			vm.Spec.CPU = hypervisor.CPU{Cap: 0.1, Weight: 0.1}
			vm.Spec.Memory, vm.Spec.Balloon, vm.ChargedMemory = gib/4, gib/4, gib/4
			vms = append(vms, vm)
		}
		l := newLeader(vms...)
		defer run(t, w, l)()
		for len(l.received()) == 0 {
			after(100 * time.Millisecond)
		}
		there, err := w.Host("h1").List(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if len(there) == len(vms) {
			t.Errorf("all %d run before anything was reported", len(vms))
		}
		after(10 * time.Second)
		if n := len(l.received()); n < len(vms) {
			t.Errorf("%d of %d were reported", n, len(vms))
		}
	})
}
