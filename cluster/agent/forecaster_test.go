package agent_test

import (
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/history"
	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
)

// waves is a load that comes and goes every 20 minutes, in steps of a minute.
func waves(hypervisor.Spec) simulated.Workload {
	t := simulated.Trace{Interval: time.Minute}
	for i := range 20 {
		t.Cores = append(t.Cores, 0.5+0.3*math.Sin(float64(i)*math.Pi/10))
	}
	return t
}

// inBubbleOf is inBubble with other workloads.
func inBubbleOf(t *testing.T, load func(hypervisor.Spec) simulated.Workload, f func(t *testing.T, w *simulated.World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		timing := simulated.DefaultTiming()
		w, err := simulated.New(simulated.Options{Hosts: 1, CPU: 4, Memory: 8 * gib, Timing: &timing, Workload: load})
		if err != nil {
			t.Fatal(err)
		}
		f(t, w)
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}

// foreseen is what a recorder forecasts of a VM's CPU.
func foreseen(t *testing.T, rec *agent.Recorder, id string) agent.VMForecast {
	t.Helper()
	f, err := rec.Forecast(id, agent.ResourceCPU, 10)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestForecasts(t *testing.T) {
	inBubbleOf(t, waves, func(t *testing.T, w *simulated.World) {
		dir := t.TempDir()
		l := newLeader(limited("a", 1, ""))
		rec := quietRecorder(dir, nil)
		stop := recording(t, w, l, rec)
		after(90 * time.Second)
		if _, err := rec.Forecast("b", agent.ResourceCPU, 10); !errors.Is(err, hypervisor.ErrNotFound) {
			t.Errorf("of a VM that is not here: %v", err)
		}
		for _, c := range []struct {
			resource string
			steps    int
		}{{"disk", 10}, {"", 10}, {agent.ResourceCPU, 0}, {agent.ResourceMemory, agent.MostSteps + 1}} {
			if _, err := rec.Forecast("a", c.resource, c.steps); !errors.Is(err, hypervisor.ErrInvalid) {
				t.Errorf("%+v: %v", c, err)
			}
		}
		after(30 * time.Minute)
		if f := foreseen(t, rec, "a"); f.Trusted || f.Reason == "" || len(f.Ahead) != 10 {
			t.Errorf("after half an hour: %+v", f)
		}
		after(4 * time.Hour)
		f := foreseen(t, rec, "a")
		raw := kept(t, rec, "a").Buckets(history.Minute, time.Time{})
		if !f.Trusted || len(f.Ahead) != 10 || time.Since(f.Until) > 2*time.Minute || f.Step != time.Minute {
			t.Errorf("after hours of the same: %v (%s), until %v of %v", f.Trusted, f.Reason, f.Until, time.Now())
		}
		for i, p := range f.Ahead {
			if p.Mean < 0 || p.Quantiles[len(p.Quantiles)-1] > 1+1e-9 {
				t.Errorf("step %d is out of bounds: %+v", i, p)
			}
		}
		if m, err := rec.Forecast("a", agent.ResourceMemory, 3); err != nil || len(m.Ahead) != 3 || math.Abs(m.Ahead[0].Mean-raw[0].Memory) > 64<<20 {
			t.Errorf("memory, %v all the time: %+v, %v", raw[0].Memory, m.Ahead, err)
		}

		// What it has learned outlasts the agent, and goes along to another host: what came since is learned there.
		stop()
		moved, err := rec.History("a")
		if err != nil {
			t.Fatal(err)
		}
		again := quietRecorder(dir, nil)
		if g := foreseen(t, again, "a"); len(g.Ahead) != 10 || f.Until.Sub(g.Until) > 11*time.Minute {
			t.Errorf("after a restart: %d steps, until %v", len(g.Ahead), g.Until)
		}
		before := foreseen(t, rec, "a")
		after(4 * time.Minute) // what nobody measures any more is not trusted for long
		if g := foreseen(t, rec, "a"); !g.Trusted {
			t.Errorf("four minutes after the last: %s", g.Reason)
		}
		after(2 * time.Minute)
		if g := foreseen(t, rec, "a"); g.Trusted || g.Reason != "nothing was measured since "+before.Until.Format(time.RFC3339) {
			t.Errorf("six minutes after the last: %v %q", g.Trusted, g.Reason)
		}
		other := &elsewhere{data: moved}
		target := quietRecorder(filepath.Join(dir, "target"), other.fetch)
		seen := limited("a", 1, "")
		seen.Seen, seen.MayStart = true, false
		stop = recording(t, w, newLeader(seen), target)
		after(3 * time.Minute)
		g := foreseen(t, target, "a")
		if !g.Trusted || g.Until.Before(before.Until) || time.Since(g.Until) > 2*time.Minute {
			t.Errorf("at the target: %v (%s), until %v", g.Trusted, g.Reason, g.Until)
		}
		if values := func(f agent.VMForecast) float64 { return f.Calibration[0].Horizons[0].Values }; values(g) < values(before) {
			t.Errorf("checked %v forecasts at the source, %v at the target", values(before), values(g))
		}
		stop()
	})
}

// A guest at its cap is not trusted: what it would use is not known.
func TestForecastAtTheCap(t *testing.T) {
	inBubble(t, func(t *testing.T, w *simulated.World) {
		rec := quietRecorder("", nil)
		defer recording(t, w, newLeader(limited("a", 0.25, "ek.burn=1")), rec)()
		after(3 * time.Hour)
		if f := foreseen(t, rec, "a"); f.Trusted || !strings.Contains(f.Reason, "at their cap") {
			t.Errorf("%v %q", f.Trusted, f.Reason)
		}
	})
}
