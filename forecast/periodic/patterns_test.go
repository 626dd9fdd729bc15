package periodic

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var (
	seed = flag.Uint64("seed", 24, "of made runs")
	more = flag.Int("more", 1, "as many made cases as usual")
)

// made is a job that a test makes: it begins at a phase of each period, with jitter, and misses some.
type made struct {
	period time.Duration
	phase  time.Duration
	wall   bool
	jitter float64 // standard deviation, in periods
	missed float64 // share of periods without a run
	runs   int     // periods
}

func berlin(t testing.TB) *time.Location {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// play returns the begins of a job from about a time on.
func (m made) play(from time.Time, zone *time.Location, rng *rand.Rand) (out []time.Time) {
	x := math.Ceil(seconds(from, zone, m.wall)/m.period.Seconds())*m.period.Seconds() + m.phase.Seconds()
	for k := range m.runs {
		if rng.Float64() < m.missed {
			continue
		}
		at := time.Unix(0, int64((x+float64(k)*m.period.Seconds())*1e9)).UTC()
		if m.wall {
			at = instant(at, zone)
		}
		out = append(out, at.Add(time.Duration(rng.NormFloat64()*m.jitter*float64(m.period))))
	}
	return out
}

// matches says whether a pattern is that of a job: its period, and most of its runs begin then. Which of two jobs a run is of that
// both begin then cannot be seen.
func (m made) matches(p Pattern, own []time.Time, zone *time.Location) bool {
	n := 0
	for _, at := range own {
		k := (seconds(at, zone, p.Wall) - float64(p.Anchor.Unix())) / p.Period.Seconds()
		if math.Abs(k-math.Round(k)) < 0.15 {
			n++
		}
	}
	return math.Abs(p.Period.Seconds()/m.period.Seconds()-1) < 0.005 && float64(n) >= 0.8*float64(len(own))
}

// TestPatternsOfMadeRuns: jobs with jitter to 5%, missed runs and summer time, alone or two under one name, are found (recall) and
// nothing else is (precision).
func TestPatternsOfMadeRuns(t *testing.T) {
	zone := berlin(t)
	rng := newRand(1)
	odd := []time.Duration{7 * time.Minute, 47 * time.Minute, 61 * time.Minute, 100 * time.Minute, 5 * time.Hour, 25 * time.Hour}
	for _, kind := range []string{"one job", "two jobs of one name"} {
		jobs, right, reported, cases := 0, 0, 0, 150**more
		for c := range cases {
			from := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(rng.IntN(240*24)) * time.Hour) // often across a change of the clock
			var all []made
			for range 1 + map[string]int{"one job": 0, "two jobs of one name": 1}[kind] {
				m := made{period: natural[rng.IntN(len(natural))], jitter: 0.05 * rng.Float64(), missed: 0.2 * rng.Float64(), runs: 20 + rng.IntN(60)}
				if kind == "one job" && rng.IntN(4) == 0 {
					m.period = odd[rng.IntN(len(odd))]
				}
				m.wall = m.period >= 12*time.Hour && m.period%(12*time.Hour) == 0
				m.phase = time.Duration(rng.Float64() * float64(m.period))
				all = append(all, m)
			}
			if len(all) == 2 { // the second at other times than the first, for as long
				if all[1].period == all[0].period {
					// Not half a period later: two such jobs are one of half the period.
					all[1].phase = all[0].phase + time.Duration((0.25+0.15*rng.Float64())*float64(all[0].period))
					all[0].jitter, all[1].jitter = all[0].jitter/2, all[1].jitter/2
				}
				all[0].jitter, all[1].jitter = min(all[0].jitter, 0.03), min(all[1].jitter, 0.03)
				length := max(all[0].period, all[1].period) * 24
				for i := range all {
					all[i].runs = min(400, int(length/all[i].period))
				}
			}
			var times []time.Time
			var ends []int
			for _, m := range all {
				times = append(times, m.play(from, zone, rng)...)
				ends = append(ends, len(times))
			}
			found := Patterns(times, zone)
			reported += len(found)
			jobs += len(all)
			begin := 0
			for i, m := range all {
				if at := slices.IndexFunc(found, func(p Pattern) bool { return m.matches(p, times[begin:ends[i]], zone) }); at >= 0 {
					right++
					found = slices.Delete(found, at, at+1)
				} else if testing.Verbose() {
					t.Logf("%s, case %d: not found: %+v from %s, beside %+v; found %s", kind, c, m, from, all, texts(found))
				}
				begin = ends[i]
			}
		}
		recall, precision := float64(right)/float64(jobs), float64(right)/float64(reported)
		t.Logf("%s: recall %.3f, precision %.3f", kind, recall, precision)
		if recall < 0.95 || precision < 0.95 {
			t.Errorf("%s: recall %.3f, precision %.3f, want 0.95", kind, recall, precision)
		}
	}
}

// TestPatternsInTheHourThatComesTwice: a short period goes on in the time that passes while the wall clock is put back.
func TestPatternsInTheHourThatComesTwice(t *testing.T) {
	zone := berlin(t)
	for _, period := range []time.Duration{7 * time.Minute, 13 * time.Minute, 20 * time.Minute} {
		m := made{period: period, jitter: 0.01, runs: 90}
		times := m.play(time.Date(2026, 10, 24, 20, 0, 0, 0, time.UTC), zone, newRand(8)) // put back at 01:00 UTC
		found := Patterns(times, zone)
		if len(found) != 1 || found[0].Wall || found[0].Period != period || len(found[0].Runs) != len(times) {
			t.Errorf("%v: %s of %d runs", period, texts(found), len(times))
		}
	}
}

func texts(found []Pattern) (out []string) {
	for _, p := range found {
		out = append(out, fmt.Sprintf("%v from %v wall %v, %d runs of %d, CV %.3f", p.Period, p.Anchor, p.Wall, len(p.Runs), p.Periods, p.CV))
	}
	return out
}

// TestPatternsOfChance: arrivals at random, at a constant rate or more of them by day, seldom seem to have a period.
func TestPatternsOfChance(t *testing.T) {
	rng := newRand(2)
	from := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for _, kind := range []string{"constant rate", "by day"} {
		wrong, groups := 0, 300**more
		for range groups {
			mean := math.Exp(rng.Float64()*math.Log(24*60)) * float64(2*time.Minute) // 2 minutes to 2 days
			var times []time.Time
			at := from
			for n := 10 + rng.IntN(190); len(times) < n; {
				at = at.Add(time.Duration(rng.ExpFloat64() * mean))
				if kind == "by day" && rng.Float64() > 0.5-0.4*math.Cos(2*math.Pi*float64(at.Hour()*60+at.Minute())/1440) {
					continue
				}
				times = append(times, at)
			}
			if len(Patterns(times, time.UTC)) > 0 {
				wrong++
			}
		}
		t.Logf("%s: %d of %d", kind, wrong, groups)
		if float64(wrong) > 0.01*float64(groups) {
			t.Errorf("%s: %d of %d groups seem to have a period, want at most 1%%", kind, wrong, groups)
		}
	}
}

func newRand(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(*seed, stream)) }

// As few runs as make a pattern make one wherever they lie in their window: the first and the last one are in it, too.
func TestPatternsKeepTheOutermostRuns(t *testing.T) {
	t.Parallel()
	base := time.Date(2026, 11, 28, 1, 33, 0, 0, time.UTC)
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		period := time.Duration(1+rng.IntN(2000)) * time.Minute
		times := make([]time.Time, MinRuns)
		for k := range times {
			times[k] = base.Add(time.Duration(k)*period + time.Duration(0.01*rng.Float64()*float64(period)))
		}
		if p := Patterns(times, time.UTC); len(p) != 1 || len(p[0].Runs) != MinRuns {
			t.Fatalf("seed %d: %d runs every %v have the patterns %+v", seed, MinRuns, period, p)
		}
	}
}
