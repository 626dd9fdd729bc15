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
	"evenkeel/forecast"
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
		refusesForecasts(t, rec)
		after(30 * time.Minute)
		if f := foreseen(t, rec, "a"); f.Trusted || f.Reason == "" || len(f.Ahead) != 10 {
			t.Errorf("after half an hour: %+v", f)
		}
		after(4 * time.Hour)
		f := foreseen(t, rec, "a")
		raw := kept(t, rec, "a").Buckets(history.Minute, time.Time{})
		isTrusted(t, f)
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
		after(4 * time.Minute) // a forecast without new samples is not trusted for long
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

// isTrusted: after hours of the same use a forecast goes ten minutes ahead, and stays within a core.
func isTrusted(t *testing.T, f agent.VMForecast) {
	t.Helper()
	if !f.Trusted || len(f.Ahead) != 10 || time.Since(f.Until) > 2*time.Minute || f.Step != time.Minute {
		t.Errorf("after hours of the same: %v (%s), until %v of %v", f.Trusted, f.Reason, f.Until, time.Now())
	}
	for i, p := range f.Ahead {
		if p.Mean < 0 || p.Quantiles[len(p.Quantiles)-1] > 1+1e-9 {
			t.Errorf("step %d is out of bounds: %+v", i, p)
		}
	}
}

// refusesForecasts: there are none of other resources, and none too far ahead.
func refusesForecasts(t *testing.T, rec *agent.Recorder) {
	t.Helper()
	for _, c := range []struct {
		resource string
		steps    int
	}{{"disk", 10}, {"", 10}, {agent.ResourceCPU, 0}, {agent.ResourceMemory, agent.MaxSteps + 1}} {
		if _, err := rec.Forecast("a", c.resource, c.steps); !errors.Is(err, hypervisor.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
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

// A history of another host brings its forecasts along where they have seen more than those here, and fit the VM; else they are
// learned from the minutes of both.
func TestForecastsOfAnotherHost(t *testing.T) {
	const cpu = 1 // the note of its forecasts
	for name, c := range map[string]struct {
		minutes int     // of history at the other host
		noted   int     // values that its forecast has seen, until now; below 0: there are no notes
		max     float64 // that its forecast is bounded by
		lowest  int     // values that the forecast here is to have seen, 40 minutes later
	}{
		"as it was":            {minutes: 200, noted: 300, max: 1, lowest: 310},
		"of more vCPUs":        {minutes: 200, noted: 300, max: 2, lowest: 230},
		"younger than here":    {minutes: 5, noted: 5, max: 1, lowest: 35},
		"without forecasts":    {minutes: 200, noted: -1, lowest: 230},
		"damaged":              {minutes: 200, noted: -2, lowest: 230},
		"without measurements": {minutes: 200, noted: 0, max: 1, lowest: 230},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *simulated.World) {
				other := &elsewhere{err: errors.New("host h2 does not answer")}
				rec := quietRecorder("", other.fetch)
				defer recording(t, w, newLeader(arrives(t, w, "moved")), rec)()
				after(30 * time.Minute)
				var before history.History
				now := time.Now().Truncate(time.Minute)
				begin := now.Add(-30 * time.Minute)
				if c.minutes < 30 {
					begin = now
				}
				for i := range c.minutes * 6 {
					before.Add(history.Sample{At: begin.Add(time.Duration(i-c.minutes*6) * history.RawStep), CPU: c.max * (0.7 + 0.2*math.Sin(float64(i))), Memory: 1})
				}
				notes := history.Notes{}
				if c.noted >= 0 {
					s := forecast.New(forecast.Options{Max: c.max, Positive: true})
					for i := range c.noted {
						if err := s.Observe(now.Unix()/60-2+int64(i-c.noted), c.max*(0.7+0.2*math.Sin(float64(i))), false); err != nil {
							t.Fatal(err)
						}
					}
					state, err := s.MarshalBinary()
					if err != nil {
						t.Fatal(err)
					}
					notes[cpu] = state
				} else if c.noted < -1 {
					notes[cpu] = []byte("ekfc and no more")
				}
				other.say(history.Encode(&before, notes), nil)
				after(10 * time.Minute)
				data, err := rec.History("moved")
				if err != nil {
					t.Fatal(err)
				}
				_, notes, err = history.Decode(data)
				if err != nil {
					t.Fatal(err)
				}
				s, err := forecast.Restore(notes[cpu], nil)
				if err != nil {
					t.Fatal(err)
				}
				if s.Values() < c.lowest || s.Max() != 1 {
					t.Errorf("%d values, bounded by %v; want %d, 1", s.Values(), s.Max(), c.lowest)
				}
				for i, p := range foreseen(t, rec, "moved").Ahead {
					if high := p.Quantiles[len(p.Quantiles)-1]; high > 1+1e-9 {
						t.Errorf("step %d: %v cores of one", i, high)
					}
				}
			})
		})
	}
}
