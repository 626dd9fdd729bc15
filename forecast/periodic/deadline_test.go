package periodic

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// flow makes runs of a nightly job that begins at its period's begin and takes an hour, with noise; read says when its output is read.
func flow(rng *rand.Rand, n int, read func(r Dataflow) time.Time) (runs []Dataflow) {
	noise := func(d time.Duration) time.Duration { return time.Duration(rng.NormFloat64() * float64(d)) }
	for i := range n {
		at := time.Date(2026, 1, 1+i, 2, 0, 0, 0, time.UTC)
		r := Dataflow{Period: at, Inputs: at.Add(-10*time.Minute + noise(3*time.Minute)), Begin: at.Add(noise(time.Minute).Abs())}
		r.End = r.Begin.Add(time.Hour + noise(10*time.Minute))
		r.Read = read(r)
		runs = append(runs, r)
	}
	return runs
}

func TestDeadlineOfData(t *testing.T) {
	rng := newRand(5)
	day := 24 * time.Hour
	at := func(after, spread time.Duration) func(r Dataflow) time.Time {
		return func(r Dataflow) time.Time {
			return r.Period.Add(after + time.Duration(rng.NormFloat64()*float64(spread)))
		}
	}
	for _, c := range []struct {
		name string
		runs []Dataflow
		due  time.Duration // 0: none
		why  string
	}{
		{"read at six", flow(rng, 30, at(4*time.Hour, 5*time.Minute)), 4 * time.Hour, ""},
		{"read whenever", flow(rng, 30, at(8*time.Hour, 4*time.Hour)), 0, "unsteady"},
		{"read as soon as it is there", flow(rng, 30, func(r Dataflow) time.Time { return r.End.Add(time.Second) }), 0, "waits for the run"},
		{"too few", flow(rng, 7, at(4*time.Hour, time.Minute)), 0, "7 runs"},
		{"no reads known", flow(rng, 30, func(Dataflow) time.Time { return time.Time{} }), 0, "0 runs"},
	} {
		d, why := DeadlineOfData(c.runs, day)
		if (d.Due-c.due).Abs() > 5*time.Minute || !strings.Contains(why, c.why) || (why == "") != (c.due > 0) {
			t.Errorf("%s: %+v, %q", c.name, d, why)
		}
		if c.due > 0 && (d.Slack < 2 || d.Slack > 4 || d.Runs != 30 || d.Arrival > -2*time.Minute || d.Arrival < -10*time.Minute) {
			t.Errorf("%s: %+v", c.name, d)
		}
	}
}

func TestDeadlineOfFollower(t *testing.T) {
	rng := newRand(6)
	for _, c := range []struct {
		name string
		next func(i int, r Dataflow) time.Time // zero: it does not follow
		due  time.Duration
		why  string
	}{
		{"begins at four each night", func(_ int, r Dataflow) time.Time { return r.Period.Add(2 * time.Hour) }, 2 * time.Hour, ""},
		{"begins at four in eight of the last ten nights", func(i int, r Dataflow) time.Time {
			if i == 12 || i == 17 {
				return time.Time{}
			}
			return r.Period.Add(2 * time.Hour)
		}, 2 * time.Hour, ""},
		{"begins at four in seven", func(i int, r Dataflow) time.Time {
			if i == 12 || i == 17 || i == 18 {
				return time.Time{}
			}
			return r.Period.Add(2 * time.Hour)
		}, 0, "in 7 of the last 10"},
		{"is begun by the end of the run", func(_ int, r Dataflow) time.Time { return r.End.Add(time.Minute) }, 0, "waits for the run"},
		{"begins at any time", func(_ int, r Dataflow) time.Time {
			return r.End.Add(time.Duration(rng.Float64() * 5 * float64(time.Hour)))
		}, 0, "steady"},
		{"begins half a day later", func(_ int, r Dataflow) time.Time { return r.Period.Add(14 * time.Hour) }, 0, "in 0 of"},
		{"never", func(int, Dataflow) time.Time { return time.Time{} }, 0, "in 0 of"},
	} {
		runs := flow(rng, 20, func(Dataflow) time.Time { return time.Time{} })
		var begins []time.Time
		for i, r := range runs {
			if at := c.next(i, r); !at.IsZero() {
				begins = append(begins, at)
			}
		}
		d, why := DeadlineOfFollower(runs, begins, 24*time.Hour)
		if d.Due != c.due || !strings.Contains(why, c.why) || (why == "") != (c.due > 0) {
			t.Errorf("%s: %+v, %q", c.name, d, why)
		}
	}
}
