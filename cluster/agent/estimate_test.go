package agent_test

import (
	"errors"
	"log/slog"
	"math"
	"testing"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
)

// estimated returns all estimates of a VM that the leader received, in order.
func (l *leader) estimated(id string) []agent.Estimate {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []agent.Estimate
	for _, r := range l.reports {
		for _, e := range r.Estimates {
			if e.VM == id {
				out = append(out, e)
			}
		}
	}
	return out
}

// inFirstHalfHour: there is one estimate for each minute, and none is trusted yet.
func inFirstHalfHour(t *testing.T, sent []agent.Estimate) {
	t.Helper()
	if n := len(sent); n < 27 || n > 31 {
		t.Fatalf("%d estimates in 30 minutes", n)
	}
	for i, e := range sent {
		if i > 0 && !e.Until.After(sent[i-1].Until) || e.Generation != 1 || e.Until.Second() != 0 {
			t.Fatalf("estimate %d: %+v after %+v", i, e, sent[max(0, i-1)])
		}
		if e.CPU.Trusted || e.CPU.Reason == "" {
			t.Fatalf("trusted in the first half hour: %+v", e)
		}
	}
}

func TestEstimatesAreReported(t *testing.T) {
	inBubbleOf(t, waves, func(t *testing.T, w *simulated.World) {
		l := newLeader(limited("a", 1, ""))
		defer recording(t, w, l, quietRecorder("", nil))()
		after(30 * time.Minute)
		sent := l.estimated("a")
		inFirstHalfHour(t, sent)

		// An estimate that did not reach the leader is reported again, and once.
		l.mu.Lock()
		l.down = errors.New("no leader")
		l.mu.Unlock()
		after(3 * time.Minute)
		before := len(l.estimated("a"))
		l.mu.Lock()
		l.down = nil
		l.next()
		l.mu.Unlock()
		after(20 * time.Second)
		if n := len(l.estimated("a")); n != before+1 && n != before+2 {
			t.Errorf("%d estimates at the leader's return", n-before)
		}

		after(4 * time.Hour)
		sent = l.estimated("a")
		last := sent[len(sent)-1]
		if !last.CPU.Trusted || last.CPU.Reason != "" || len(last.CPU.Mean) != agent.AheadSteps || len(last.CPU.Deviation) != agent.AheadSteps || len(last.Memory.Mean) != agent.AheadSteps {
			t.Fatalf("after hours of the same: %+v", last)
		}
		for i, m := range last.CPU.Mean {
			if m < 0.1 || m > 0.9 || last.CPU.Deviation[i] < 0 || math.Abs(m*1e4-math.Round(m*1e4)) > 1e-6 {
				t.Errorf("step %d of a wave between 0.2 and 0.8 cores: %v, deviation %v", i, m, last.CPU.Deviation[i])
			}
		}

		// A VM that is gone is not reported.
		l.order(func(d *agent.Desired) { absent(&d.VMs[0]) })
		after(time.Minute)
		before = len(l.estimated("a"))
		after(5 * time.Minute)
		if n := len(l.estimated("a")); n != before {
			t.Errorf("%d estimates of a VM that is gone", n-before)
		}
	})
}

// Where a step is less than a minute a forecast is trusted so much sooner.
func TestEstimatesByTheSecond(t *testing.T) {
	quick := func(spec hypervisor.Spec) simulated.Workload {
		w := waves(spec).(simulated.Trace)
		w.Interval = 2 * time.Second
		return w
	}
	inBubbleOf(t, quick, func(t *testing.T, w *simulated.World) {
		l := newLeader(limited("a", 1, ""))
		rec := agent.OpenRecorder(agent.RecorderOptions{Log: slog.New(slog.DiscardHandler), Step: 2 * time.Second})
		defer recordingEvery(t, w, l, rec, time.Second)()
		after(6 * time.Minute)
		sent := l.estimated("a")
		if n := len(sent); n < 160 || n > 182 {
			t.Fatalf("%d estimates in 6 minutes of steps of 2 s", n)
		}
		last := sent[len(sent)-1]
		if !last.CPU.Trusted || time.Since(last.Until) > 5*time.Second {
			t.Errorf("after 6 minutes: trusted %v (%s), until %v of %v", last.CPU.Trusted, last.CPU.Reason, last.Until, time.Now())
		}
	})
}
