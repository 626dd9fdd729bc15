package periodic

import (
	"slices"
	"testing"
	"time"
)

// The times of a rule are the same from wherever one asks for them on, also where the search begins long after its start.
func TestBetweenIsTheSameFromAnyTimeOn(t *testing.T) {
	for _, rule := range []string{
		"FREQ=MINUTELY;INTERVAL=37", "FREQ=MINUTELY;INTERVAL=45;BYDAY=MO,SU", "FREQ=HOURLY;INTERVAL=5", "FREQ=HOURLY;INTERVAL=7;BYDAY=WE;COUNT=90", "FREQ=HOURLY;INTERVAL=168;BYDAY=TU",
		"FREQ=DAILY;INTERVAL=3", "FREQ=DAILY;BYDAY=SA,SU;BYHOUR=2,14;BYMINUTE=30", "FREQ=DAILY;INTERVAL=3;COUNT=60", "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,FR;WKST=SU", "FREQ=WEEKLY;INTERVAL=3",
		"FREQ=MONTHLY;BYDAY=-1FR", "FREQ=DAILY;UNTIL=20251101T000000Z",
	} {
		r, err := ParseRecurrence("DTSTART;TZID=Europe/Berlin:20250108T013000\nRRULE:" + rule)
		if err != nil {
			t.Fatal(err)
		}
		begin := r.Start.Add(-48 * time.Hour)
		all, err := r.Between(begin, begin.AddDate(2, 0, 0), berlin(t))
		if err != nil {
			t.Fatal(err)
		}
		for n := range 100 {
			from := begin.Add(time.Duration(n) * 171 * time.Hour)
			to := from.Add(time.Duration(1+n%9) * 26 * time.Hour)
			want := slices.DeleteFunc(slices.Clone(all), func(at time.Time) bool { return at.Before(from) || !at.Before(to) })
			if got, err := r.Between(from, to, berlin(t)); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s from %s to %s: %v, %v, want %v", rule, from, to, got, err, want)
			}
		}
	}
}

// A rule that began long ago is searched from about the times that are asked for. One that counts comes to its end.
func TestOldRules(t *testing.T) {
	from := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for rule, want := range map[string]int{"FREQ=MINUTELY": 60, "FREQ=MINUTELY;COUNT=50000": 0, "FREQ=MINUTELY;COUNT=7142;BYDAY=MO": 0, "FREQ=MONTHLY;BYDAY=SU;BYHOUR=0": 1, "FREQ=MONTHLY;COUNT=7142;BYDAY=SU;BYHOUR=0": 1, "FREQ=HOURLY;INTERVAL=168;BYDAY=TU;COUNT=3": 0} {
		r, err := ParseRecurrence("DTSTART;TZID=UTC:20190107T000000\nRRULE:" + rule)
		if err != nil {
			t.Fatal(err)
		}
		if at, err := r.Between(from, from.Add(time.Hour), in(t, r)); err != nil || len(at) != want {
			t.Errorf("%s: %d times, %v, want %d", rule, len(at), err, want)
		}
	}
}
