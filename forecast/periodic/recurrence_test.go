package periodic

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestRecurrenceOfPatterns: what was found is written as an owner would.
func TestRecurrenceOfPatterns(t *testing.T) {
	zone := berlin(t)
	weekdays := func(d time.Weekday) bool { return d != time.Saturday && d != time.Sunday }
	for _, c := range []struct {
		name  string
		made  made
		days  func(d time.Weekday) bool // nil: all
		want  string
		exact time.Duration // between what the rule says for the days after and what the job does
	}{
		{"nightly, over the change of the clock", made{period: 24 * time.Hour, phase: 2 * time.Hour, wall: true, jitter: 0.001, runs: 60}, nil,
			"DTSTART;TZID=Europe/Berlin:20260302T020000\nRRULE:FREQ=DAILY", 0},
		{"in the night of the change it begins later", made{period: 24 * time.Hour, phase: 150 * time.Minute, wall: true, jitter: 0.0005, runs: 60}, nil,
			"DTSTART;TZID=Europe/Berlin:20260302T023000\nRRULE:FREQ=DAILY", 0},
		{"on weekdays", made{period: 24 * time.Hour, phase: 9*time.Hour + 15*time.Minute, wall: true, jitter: 0.002, runs: 70}, weekdays,
			"DTSTART;TZID=Europe/Berlin:20260302T091500\nRRULE:FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR", 0},
		{"weekly", made{period: 7 * 24 * time.Hour, phase: 3*24*time.Hour + 22*time.Hour, wall: true, jitter: 0.001, runs: 20}, nil,
			"DTSTART;TZID=Europe/Berlin:20260308T220000\nRRULE:FREQ=WEEKLY", 0},
		{"every six hours", made{period: 6 * time.Hour, phase: 30 * time.Minute, wall: true, jitter: 0.001, runs: 200}, nil,
			"DTSTART;TZID=Europe/Berlin:20260301T063000\nRRULE:FREQ=HOURLY;INTERVAL=6", 0},
		{"hourly", made{period: time.Hour, phase: 7 * time.Minute, jitter: 0.004, runs: 300}, nil,
			"DTSTART;TZID=Europe/Berlin:20260301T010700\nRRULE:FREQ=HOURLY", 0},
		{"every three minutes, on the half minute", made{period: 3 * time.Minute, phase: 30 * time.Second, jitter: 0.004, runs: 40}, nil, "0030\nRRULE:FREQ=MINUTELY;INTERVAL=3", 0},
		{"every 47 minutes", made{period: 47 * time.Minute, jitter: 0.01, runs: 100}, nil, "RRULE:FREQ=MINUTELY;INTERVAL=47", time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := newRand(7)
			from := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
			all := c.made.play(from, zone, rng)
			if c.days != nil {
				all = slices.DeleteFunc(all, func(at time.Time) bool { return !c.days(at.In(zone).Weekday()) })
			}
			var runs []Run
			for _, at := range all {
				runs = append(runs, Run{Owner: "a", Name: "render-" + at.Format("2006-01-02T15"), Begin: at})
			}
			jobs := Jobs(runs, zone)
			if len(jobs) != 1 || !strings.Contains(jobs[0].Recurrence.String(), c.want) {
				t.Fatalf("%+v, want %s", jobs, c.want)
			}
			r, err := ParseRecurrence(jobs[0].Recurrence.String())
			if err != nil || r != jobs[0].Recurrence {
				t.Fatalf("read back: %+v, %v", r, err)
			}
			// The rule has a time for every run, to the jitter that they had, also those after a change of the clock.
			margin := min(time.Hour, c.made.period)
			at, err := r.Between(all[0].Add(-margin), all[len(all)-1].Add(margin), in(t, r))
			if err != nil || len(at) < len(all) || len(at) > len(all)+2 {
				t.Fatalf("%d times of the rule for %d runs: %v", len(at), len(all), err)
			}
			for _, run := range all {
				if !slices.ContainsFunc(at, func(a time.Time) bool {
					return run.Sub(a).Abs() <= time.Duration(5*c.made.jitter*float64(c.made.period))+30*time.Second+c.exact
				}) {
					t.Fatalf("no time of the rule is near %v", run.In(zone))
				}
			}
		})
	}
}

// in is the zone of a recurrence.
func in(t *testing.T, r Recurrence) *time.Location {
	zone, err := time.LoadLocation(r.Zone)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// TestBetween: times that a clock leaves out or shows twice.
func TestBetween(t *testing.T) {
	day := func(s string) time.Time {
		at, err := time.ParseInLocation("2006-01-02", s, berlin(t))
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	for _, c := range []struct{ text, from, to, want string }{
		{"DTSTART;TZID=Europe/Berlin:20260101T023000\nRRULE:FREQ=DAILY", "2026-03-28", "2026-03-31", "28T01:30Z 29T01:30Z 30T00:30Z"},
		{"DTSTART;TZID=Europe/Berlin:20260101T023000\nRRULE:FREQ=DAILY", "2026-10-24", "2026-10-27", "24T00:30Z 25T00:30Z 26T01:30Z"},
		{"DTSTART;TZID=Europe/Berlin:20260101T000000\nRRULE:FREQ=DAILY;COUNT=3", "2026-01-01", "2026-12-31", "31T23:00Z 01T23:00Z 02T23:00Z"},
		{"DTSTART;TZID=UTC:20260101T000000\nRRULE:FREQ=MONTHLY;BYDAY=-1FR", "2026-01-01", "2026-04-01", "30T00:00Z 27T00:00Z 27T00:00Z"},
		{"DTSTART;TZID=UTC:20270101T000000\nRRULE:FREQ=DAILY", "2026-01-01", "2026-04-01", ""},
		{"DTSTART;TZID=UTC:20260101T003000\nRRULE:FREQ=HOURLY;INTERVAL=12;BYMINUTE=50,5", "2026-01-02", "2026-01-03", "02T00:05Z 02T00:50Z 02T12:05Z 02T12:50Z"},
		{"DTSTART;TZID=Europe/Berlin:20260101T000000\nRRULE:FREQ=DAILY;BYHOUR=2,3,4", "2026-03-29", "2026-03-30", "29T01:00Z 29T02:00Z"},
		{"DTSTART;TZID=Europe/Berlin:20260101T000000\nRRULE:FREQ=HOURLY;INTERVAL=6", "2026-03-29", "2026-03-30", "28T23:00Z 29T04:00Z 29T10:00Z 29T16:00Z"},
		{"DTSTART;TZID=Europe/Berlin:20260101T020000\nRRULE:FREQ=HOURLY;INTERVAL=12", "2026-10-25", "2026-10-26", "25T00:00Z 25T13:00Z"},
		{"DTSTART;TZID=Europe/Berlin:20260328T000000\nRRULE:FREQ=HOURLY;INTERVAL=7", "2026-03-29", "2026-03-30", "29T03:00Z 29T10:00Z 29T17:00Z"},
		{"DTSTART;TZID=Europe/Berlin:20260328T000000\nRRULE:FREQ=HOURLY;INTERVAL=7;BYDAY=SU", "2026-03-28", "2026-03-31", "29T03:00Z 29T10:00Z 29T17:00Z"},
		{"DTSTART;TZID=Asia/Kolkata:20270301T020000\nRRULE:FREQ=DAILY;UNTIL=20270331T210000Z", "2027-03-31", "2027-04-03", "31T20:30Z"},
		{"DTSTART;TZID=America/New_York:20270301T020000\nRRULE:FREQ=DAILY;UNTIL=20270401T030000Z", "2027-03-31", "2027-04-03", "31T06:00Z"},
		{"DTSTART;TZID=America/Los_Angeles:20270331T000000\nRRULE:FREQ=HOURLY;INTERVAL=7;UNTIL=20270401T030000Z", "2027-03-31", "2027-04-03", "31T07:00Z 31T14:00Z 31T21:00Z"},
		{"DTSTART;TZID=Asia/Kolkata:20270301T020000\nRRULE:FREQ=DAILY;UNTIL=20270401T020000", "2027-03-31", "2027-04-03", "31T20:30Z"},
		{"DTSTART;TZID=UTC:20200131T050000\nRRULE:FREQ=MONTHLY", "2026-01-15", "2026-06-15", "31T05:00Z 31T05:00Z 31T05:00Z"},
		{"DTSTART;TZID=UTC:20200131T050000\nRRULE:FREQ=MONTHLY;INTERVAL=5;BYMONTHDAY=1,-1;BYHOUR=3", "2026-01-01", "2026-12-31", "01T03:00Z 30T03:00Z 01T03:00Z 30T03:00Z"},
	} {
		r, err := ParseRecurrence(c.text)
		if err != nil {
			t.Fatal(err)
		}
		at, err := r.Between(day(c.from), day(c.to), in(t, r))
		var got []string
		for _, a := range at {
			got = append(got, a.UTC().Format("02T15:04Z"))
		}
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s from %s to %s: %v, %v, want %s", c.text, c.from, c.to, got, err, c.want)
		}
	}
	r, err := ParseRecurrence("DTSTART;TZID=UTC:20251231T000000\nRRULE:FREQ=MINUTELY")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Between(day("2026-01-01"), day("2027-01-01"), berlin(t)); err == nil {
		t.Error("a rule in UTC has times in Berlin")
	}
	if _, err := r.Between(day("2026-01-01"), day("2027-01-01"), in(t, r)); err == nil || !strings.Contains(err.Error(), "50000") {
		t.Errorf("half a million times: %v", err)
	}
}

// TestBetweenWithoutGaps: what comes every hour, or oftener, comes so all the year, also on the days on which a clock changes: each run has
// one slot.
func TestBetweenWithoutGaps(t *testing.T) {
	for _, name := range []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"} {
		for rule, every := range map[string]time.Duration{
			"FREQ=HOURLY": time.Hour, "FREQ=HOURLY;BYMINUTE=0,30": 30 * time.Minute, "FREQ=MINUTELY;INTERVAL=15": 15 * time.Minute, "FREQ=MINUTELY;INTERVAL=47": 47 * time.Minute,
		} {
			r := Recurrence{Zone: name, Start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Rule: rule}
			zone := in(t, r)
			from := time.Date(2026, 1, 1, 0, 0, 0, 0, zone)
			for day := range 365 {
				at, err := r.Between(from.AddDate(0, 0, day), from.AddDate(0, 0, day+1).Add(2*every), zone)
				if err != nil || len(at) < 24 {
					t.Fatalf("%s in %s: %v, %v", rule, name, at, err)
				}
				for i := 1; i < len(at); i++ {
					halves := name == "Australia/Lord_Howe" && strings.Contains(rule, "HOURLY") // the hour itself changes by a half
					if gap := at[i].Sub(at[i-1]); gap != every && (!halves || (gap-every).Abs() > 30*time.Minute) {
						t.Errorf("%s in %s comes %s after %v", rule, name, gap, at[i-1])
					}
				}
			}
		}
	}
}

// TestBetweenOfLongAgo: a rule has the same times whether they are looked for from its start on or, years later, from shortly before.
func TestBetweenOfLongAgo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one := func(name string, of ...string) string { return rapid.SampledFrom(of).Draw(t, name) }
		rule := one("rule", "FREQ=MONTHLY", "FREQ=MONTHLY;BYDAY=-5FR,5MO", "FREQ=MONTHLY;BYDAY=1MO", "FREQ=MONTHLY;BYMONTHDAY=-1,31,1", "FREQ=MONTHLY;BYDAY=MO,TU,WE;BYSETPOS=-1",
			"FREQ=MONTHLY;BYSETPOS=1,-366;BYDAY=SU;BYHOUR=0,23", "FREQ=WEEKLY;BYDAY=MO,SU;WKST=SU", "FREQ=WEEKLY", "FREQ=DAILY;BYHOUR=2,3", "FREQ=DAILY") +
			one("interval", "", ";INTERVAL=2", ";INTERVAL=3", ";INTERVAL=5", ";INTERVAL=11")
		start := time.Date(2026, time.Month(rapid.IntRange(1, 12).Draw(t, "month")), rapid.IntRange(1, 28).Draw(t, "day"), rapid.IntRange(0, 23).Draw(t, "hour"), 30, 0, 0, time.UTC)
		r := Recurrence{Zone: one("zone", "UTC", "Europe/Berlin", "Asia/Kathmandu"), Start: start, Rule: rule}
		zone, err := time.LoadLocation(r.Zone)
		if err != nil {
			t.Fatal(err)
		}
		end := start.AddDate(4, 0, 0)
		all, err := r.Between(start.AddDate(0, 0, -2), end, zone)
		if err != nil {
			t.Fatal(err)
		}
		from := start.AddDate(0, 0, rapid.IntRange(0, 1200).Draw(t, "days"))
		late, err := r.Between(from, end, zone)
		if err != nil {
			t.Fatal(err)
		}
		all = slices.DeleteFunc(all, func(at time.Time) bool { return at.Before(from) })
		if !slices.EqualFunc(all, late, time.Time.Equal) {
			t.Fatalf("%s from %s on: %v\nfrom its start on: %v", rule, from, late, all)
		}
	})
}

func TestParseRecurrenceRefuses(t *testing.T) {
	for _, c := range []struct{ text, says string }{
		{"", "two lines"},
		{"RRULE:FREQ=DAILY", "two lines"},
		{"DTSTART;TZID=UTC:20260101T000000\nFREQ=DAILY", "two lines"},
		{"DTSTART;TZID=UTC:2026-01-01\nRRULE:FREQ=DAILY", "wall clock"},
		{"DTSTART;TZID=:20260101T000000\nRRULE:FREQ=DAILY", "time zone"},
		{"DTSTART;TZID=Local:20260101T000000\nRRULE:FREQ=DAILY", "time zone"},
		{"DTSTART;TZID=UTC:20260101T000000\nRRULE:FREQ=SECONDLY", "FREQ"},
		{"DTSTART;TZID=UTC:20260101T000000\nRRULE:FREQ=YEARLY", "FREQ"},
		{"DTSTART;TZID=UTC:20260101T000000\nRRULE:BYDAY=MO", "FREQ must"},
		{"DTSTART;TZID=UTC:20260101T000000\nRRULE:FREQ=DAILY;BYHOUR=77", "rule"},
		{"DTSTART;TZID=UTC:20260101T000000\nRRULE:FREQ=DAILY;INTERVAL=-1", "INTERVAL must"},
		{"DTSTART;TZID=UTC:20260101T000000\nRRULE:FREQ=MINUTELY;BYMONTH=2;BYMONTHDAY=30", "not possible"},
		{"DTSTART;TZID=UTC:20260101T000000\nRRULE:FREQ=DAILY;FREQ=HOURLY", "once"},
		{"DTSTART;TZID=UTC:20260101T000000\nRRULE:FREQ=DAILY;BYHOUR=", "once"},
		{"DTSTART;TZID=UTC:20260101T000000\nRRULE:FREQ=MONTHLY;BYDAY=-6FR", "from -5 to -1"}, // the library's index out of range in January
		{"DTSTART;TZID=UTC:20260101T000000\nRRULE:FREQ=MONTHLY;BYDAY=1FR,47MO", "from 1 to 5"},
		{"DTSTART;TZID=UTC:20260101T000000\nRRULE:FREQ=MONTHLY;BYDAY=0FR", "from 1 to 5"},
		{"DTSTART;TZID=UTC:20260101T000000\nRRULE:FREQ=WEEKLY;BYDAY=1MO", "MONTHLY alone"}, // the library would leave the number out
		{"DTSTART;TZID=UTC:20260101T000000\nRRULE:FREQ=DAILY;COUNT=0", "COUNT must"},
		{"DTSTART;TZID=UTC:20260101T000000\nRRULE:FREQ=DAILY;COUNT=-3", "COUNT must"},
		{"DTSTART;TZID=UTC:20260101T000000\nRRULE:FREQ=MINUTELY;COUNT=50001", "COUNT must"}, // it would end before its last time
		{"DTSTART;TZID=UTC:20260101T000000\nRRULE:FREQ=MINUTELY;COUNT=7143;BYDAY=MO", "COUNT must be a number from 1 to 7142"},
		{"DTSTART;TZID=UTC:20260101T000000\nRRULE:FREQ=HOURLY;BYHOUR=2", "these are: INTERVAL, COUNT, UNTIL, BYDAY, BYMINUTE"},
	} {
		if _, err := ParseRecurrence(c.text); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v, want %q", c.text, err, c.says)
		}
	}
}

// FuzzParseRecurrence: what is read is written as it was read, and gives its times without a panic and within bounds.
func FuzzParseRecurrence(f *testing.F) {
	f.Add("DTSTART;TZID=Europe/Berlin:20260301T020000\nRRULE:FREQ=DAILY")
	f.Add("DTSTART;TZID=UTC:20260101T000000\nRRULE:FREQ=WEEKLY;BYDAY=MO,FR;BYHOUR=7,19;UNTIL=20270101T000000Z")
	f.Add("DTSTART;TZID=Europe/Berlin:20260329T000000\nRRULE:FREQ=HOURLY;BYMINUTE=7,52;BYDAY=SU;COUNT=9")
	f.Add("DTSTART;TZID=UTC:20260101T000000\nRRULE:FREQ=MONTHLY;BYSETPOS=-1;BYDAY=MO;INTERVAL=3")
	f.Add("DTSTART;TZID=UTC:20260228T233000\nRRULE:FREQ=MONTHLY;BYDAY=-5FR,5MO;BYMONTHDAY=-31,29;BYHOUR=0,23;COUNT=50")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRecurrence(text)
		if err != nil {
			return
		}
		if again, err := ParseRecurrence(r.String()); err != nil || again != r {
			t.Fatalf("%q is read as %+v, then as %+v: %v", text, r, again, err)
		}
		from := r.Start.Add(-48 * time.Hour)
		at, err := r.Between(from, from.Add(400*24*time.Hour), time.FixedZone(r.Zone, 3600))
		if err != nil {
			if strings.Contains(err.Error(), "library") {
				t.Fatal(err)
			}
			return
		}
		for i, a := range at {
			if a.Before(from) || i > 0 && a.Before(at[i-1]) {
				t.Fatalf("%q: times %v", text, at)
			}
		}
	})
}

func TestTemplate(t *testing.T) {
	for name, want := range map[string]string{
		"render-2026-11-22": "render-#", "render-2026-11-22T02:00": "render-#", "render": "render", "etl.7-v2": "etl.#-v#",
		"20261122-render": "#-render", "a1b22c": "a#b#c", "": "", "x-": "x-", "run-1.5": "run-#", "t2t3": "t#", "Δ7": "Δ#",
	} {
		if got := Template(name); got != want {
			t.Errorf("Template(%q) = %q, want %q", name, got, want)
		}
	}
}

// TestJobs: runs of other owners, kinds or names are other jobs; a declared name goes before the template.
func TestJobs(t *testing.T) {
	var runs []Run
	begin := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	for i := range 20 {
		day := begin.AddDate(0, 0, i)
		runs = append(runs,
			Run{Owner: "a", Name: fmt.Sprint("etl-", i), Kind: "x", Begin: day.Add(2 * time.Hour)},
			Run{Owner: "b", Name: fmt.Sprint("etl-", i), Kind: "x", Begin: day.Add(2 * time.Hour)},
			Run{Owner: "a", Name: fmt.Sprint("etl-", i), Kind: "y", Begin: day.Add(3 * time.Hour)},
			Run{Owner: "a", Name: fmt.Sprint("etl-", i), Job: "nightly", Kind: "x", Begin: day.Add(14 * time.Hour)})
	}
	jobs := Jobs(runs, time.UTC)
	if len(jobs) != 4 {
		t.Fatalf("%+v", jobs)
	}
	for i, want := range []Key{{"a", "etl-#", "x", false}, {"a", "etl-#", "y", false}, {"a", "nightly", "x", true}, {"b", "etl-#", "x", false}} {
		if jobs[i].Key != want || len(jobs[i].Runs) != 20 || jobs[i].Period != 24*time.Hour {
			t.Errorf("%+v, want %+v", jobs[i], want)
		}
		for _, r := range jobs[i].Runs {
			if runs[r].Key() != want {
				t.Errorf("%+v has run %+v", want, runs[r])
			}
		}
	}
}

func TestParseRecorded(t *testing.T) {
	line := func(more string) []byte { return []byte(`{"name":"a-1","begin":"2026-01-01T00:00:00Z"` + more + `}`) }
	runs, err := ParseRecorded(line(`,"started":"2026-01-01T00:01:00Z","deadline":"90m","cpu":2,"memory":1e9,"step":60,"usage":[1,2,0],"memoryUsage":[1e9],"throttled":[1]`))
	if err != nil {
		t.Fatal(err)
	}
	if r := runs[0]; r.From().Minute() != 1 || r.Deadline != 90*time.Minute || r.Count != 1 || len(r.Usage) != 3 || !r.Throttled[1] || r.Throttled[0] || len(r.Throttled) != 3 {
		t.Errorf("%+v", r)
	}
	for more, says := range map[string]string{
		`,"usage":[1]`: "step is 0", `,"step":60,"usage":[-1]`: "-1 in step 0", `,"deadline":"soon"`: "deadline", `,"deadline":"-1h"`: "deadline", `,"count":-1`: "count",
		`,"step":60,"usage":[1],"throttled":[1]`: "throttled has step 1", `,"memory":1e19`: "memory", `,"step":0.5,"memoryUsage":[1]`: "step is 0.5", `,"use":[1]`: "known are",
	} {
		if _, err := ParseRecorded(line(more)); err == nil || !strings.Contains(err.Error(), "line 1") || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", more, err, says)
		}
	}
}

// FuzzParseRuns: no file makes reading runs panic, or finding jobs among them.
func FuzzParseRuns(f *testing.F) {
	f.Add([]byte(`{"name":"a-1","begin":"2026-01-01T00:00:00Z"}
{"name":"a-2","begin":"2026-01-02T00:00:00+01:00","end":null}
{"owner":"o","job":"a","kind":"k","begin":"8999-01-01T00:00:00Z","end":"2026-01-01T00:00:00Z"}`))
	f.Add([]byte(`{"name":"a","begin":"2026-01-01T00:00:00Z","started":"2026-01-01T00:01:00Z","read":"2026-01-01T09:00:00Z","deadline":"2h","count":3,"cpu":2,"memory":1e9,"step":60,"usage":[1,2],"memoryUsage":[1e9],"throttled":[1]}`))
	var eight []byte
	for i := range 9 {
		eight = fmt.Appendf(eight, "{\"name\":\"a\",\"begin\":\"2026-01-0%dT00:00:00Z\"}\n", i+1)
	}
	f.Add(eight)
	zone := berlin(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		runs, err := ParseRuns(data)
		if err != nil || len(runs) > 30 {
			return
		}
		for _, j := range Jobs(runs, zone) {
			if len(j.Runs) < MinRuns || j.Period < time.Minute || j.CV > maxCV {
				t.Fatalf("%+v", j)
			}
			if r, err := ParseRecurrence(j.Recurrence.String()); err != nil || r != j.Recurrence {
				t.Fatalf("%+v is read as %+v: %v", j.Recurrence, r, err)
			}
		}
	})
}
