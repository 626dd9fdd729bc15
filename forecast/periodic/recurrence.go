package periodic

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	_ "time/tzdata" // for a host without zones of its own, such as a small Debian: all servers must read a rule alike

	"github.com/teambition/rrule-go"
)

// Recurrence is when a job comes again: a rule of RFC 5545 in a time zone.
type Recurrence struct {
	Zone  string    // of the IANA database
	Start time.Time // DTSTART, on the wall clock of Zone; its location is UTC and says nothing
	Rule  string    // RRULE, without its name: FREQ=DAILY;BYHOUR=2
}

// clock is how DTSTART is written.
const clock = "20060102T150405"

// String returns the two lines of RFC 5545.
func (r Recurrence) String() string {
	return fmt.Sprintf("DTSTART;TZID=%s:%s\nRRULE:%s", r.Zone, r.Start.Format(clock), r.Rule)
}

// parts that a rule may have, by FREQ, beside INTERVAL, COUNT and UNTIL. Nothing comes more often than once a minute, and the
// library would look for the first time of a rule that has none, such as the 30th of each February, for years minute by minute.
var parts = map[string][]string{
	"MONTHLY": {"BYMONTHDAY", "BYDAY", "BYSETPOS", "BYHOUR", "BYMINUTE"},
	"WEEKLY":  {"BYDAY", "BYHOUR", "BYMINUTE", "WKST"},
	"DAILY":   {"BYDAY", "BYHOUR", "BYMINUTE"},
	"HOURLY":  {"BYDAY", "BYMINUTE"}, "MINUTELY": {"BYDAY"},
}

// maxInterval and maxSearched: how large INTERVAL may be, and how many times of a rule Between looks at.
const (
	maxInterval = 10_000
	maxSearched = 50_000
)

// allowed says what a rule has that it may not have.
func allowed(rule string) error {
	given := map[string]string{}
	for _, part := range strings.Split(rule, ";") {
		name, value, ok := strings.Cut(part, "=")
		if _, twice := given[name]; twice || !ok || value == "" {
			return fmt.Errorf("%q is not a part that a rule has once, such as FREQ=DAILY", part)
		}
		given[name] = value
	}
	more, ok := parts[given["FREQ"]]
	if !ok {
		return errors.New("FREQ must be MINUTELY, HOURLY, DAILY, WEEKLY or MONTHLY")
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains([]string{"FREQ", "INTERVAL", "COUNT", "UNTIL"}, name) && !slices.Contains(more, name) {
			return fmt.Errorf("%s is not possible with FREQ=%s; these are: INTERVAL, COUNT, UNTIL, %s", name, given["FREQ"], strings.Join(more, ", "))
		}
	}
	if n, err := strconv.Atoi(cmp.Or(given["INTERVAL"], "1")); err != nil || n < 1 || n > maxInterval {
		return fmt.Errorf("INTERVAL must be a number from 1 to %d", maxInterval)
	}
	counted := maxSearched
	if given["BYDAY"] != "" {
		counted /= 7 // days that it leaves out are searched, too
	}
	if n, err := strconv.Atoi(cmp.Or(given["COUNT"], "1")); err != nil || n < 1 || n > counted {
		return fmt.Errorf("COUNT must be a number from 1 to %d", counted)
	}
	for _, day := range strings.Split(given["BYDAY"], ",") {
		number := day[:max(0, len(day)-len("MO"))]
		if n, err := strconv.Atoi(number); number != "" && (err != nil || n == 0 || n < -5 || n > 5 || given["FREQ"] != "MONTHLY") {
			return fmt.Errorf("BYDAY=%s: a weekday may have a number with FREQ=MONTHLY alone, from 1 to 5 or from -5 to -1", given["BYDAY"])
		}
	}
	return nil
}

// ParseRecurrence reads what String writes.
func ParseRecurrence(text string) (Recurrence, error) {
	var r Recurrence
	first, second, _ := strings.Cut(strings.TrimSpace(text), "\n")
	head, isHead := strings.CutPrefix(first, "DTSTART;TZID=")
	zone, start, hasStart := strings.Cut(head, ":")
	rule, isRule := strings.CutPrefix(strings.TrimSpace(second), "RRULE:")
	if r.Rule = rule; !isHead || !hasStart || !isRule {
		return r, fmt.Errorf("recurrence %q: it must have two lines, such as DTSTART;TZID=Europe/Berlin:20260301T020000 and RRULE:FREQ=DAILY", text)
	}
	r.Zone = zone
	var err error
	if r.Start, err = time.Parse(clock, strings.TrimSpace(start)); err != nil {
		return r, fmt.Errorf("recurrence: DTSTART %q is not a time of the wall clock such as 20260301T020000", start)
	}
	_, err = r.rule()
	return r, err
}

// rule returns the parsed rule.
func (r Recurrence) rule() (*rrule.RRule, error) {
	if r.Zone == "" || r.Zone == "Local" {
		return nil, fmt.Errorf("recurrence: time zone %q is none of the IANA database, such as Europe/Berlin", r.Zone)
	}
	if err := allowed(r.Rule); err != nil {
		return nil, fmt.Errorf("recurrence: rule %q: %w", r.Rule, err)
	}
	o, err := rrule.StrToROption(r.Rule)
	if err != nil {
		return nil, fmt.Errorf("recurrence: rule %q: %w", r.Rule, err)
	}
	o.Dtstart = r.Start
	rule, err := rrule.NewRRule(*o)
	if err != nil {
		return nil, fmt.Errorf("recurrence: rule %q: %w", r.Rule, err)
	}
	return rule, nil
}

// Between returns the times of the rule from from on and before to, in UTC, each once. The library counts on a clock without summer time;
// what it counts is put on the clock of the rule's zone here.
func (r Recurrence) Between(from, to time.Time, zone *time.Location) (times []time.Time, err error) {
	if zone.String() != r.Zone {
		return nil, fmt.Errorf("recurrence: its time zone is %s, not %s", r.Zone, zone)
	}
	// A rule that passes allowed makes the library panic nowhere that is known. All servers would read the same rule from the log.
	defer func() {
		if fault := recover(); fault != nil {
			times, err = nil, fmt.Errorf("recurrence %q: the library that reads rules failed: %v; choose another rule", r.Rule, fault)
		}
	}()
	const margin = 25 * time.Hour // more than a clock is ever put forward or back
	s, err := r.search(onClock(from, zone).Add(-margin), zone)
	if err != nil {
		return nil, err
	}
	atStart := ahead(instant(r.Start, zone), zone)
	var out []time.Time
	next, left := s.rule.Iterator(), s.count
	for n := 0; ; n++ {
		at, more := next()
		if !more || at.After(onClock(to, zone).Add(margin)) {
			break
		}
		if n == maxSearched {
			return nil, fmt.Errorf("recurrence %q comes more than %d times before %s: choose a later DTSTART", r.Rule, maxSearched, to)
		}
		comes := []time.Time{at.Add(-atStart)}
		if s.elapses() {
			at = onClock(comes[0], zone)
		} else {
			comes = instants(at, s.interval, zone)
		}
		if len(s.days) > 0 && !slices.Contains(s.days, at.Weekday()) {
			continue
		}
		for _, t := range comes {
			if !t.Before(from) && t.Before(to) {
				out = append(out, t)
			}
		}
		if left--; left == 0 {
			break
		}
	}
	slices.SortFunc(out, time.Time.Compare)
	return slices.CompactFunc(out, time.Time.Equal), nil
}

// search is a rule as it is searched.
type search struct {
	rule     *rrule.RRule
	interval time.Duration  // between two times of HOURLY and MINUTELY; 0: the rule counts days
	days     []time.Weekday // on which it comes, if not all: the library would look for them for thousands of years
	count    int            // how many times it has on these days; 0: no such limit
}

// elapses says whether the rule goes by the time that elapses since its start: its interval is no part of a day, such as 47 minutes, so that
// it has no times of its own on the wall clock.
func (s search) elapses() bool { return s.interval > 0 && 24*time.Hour%s.interval != 0 }

// search returns the rule as it is searched from a time of the wall clock on. Where it has no COUNT it begins shortly before that time.
func (r Recurrence) search(from time.Time, zone *time.Location) (s search, err error) {
	if s.rule, err = r.rule(); err != nil {
		return s, err
	}
	o := s.rule.OrigOptions
	unit := map[rrule.Frequency]time.Duration{rrule.MINUTELY: time.Minute, rrule.HOURLY: time.Hour, rrule.DAILY: 24 * time.Hour, rrule.WEEKLY: 7 * 24 * time.Hour}[o.Freq]
	if unit > 0 && o.Freq != rrule.WEEKLY {
		for _, day := range o.Byweekday {
			s.days = append(s.days, time.Weekday((day.Day()+1)%7))
		}
		o.Byweekday = nil
		if len(s.days) > 0 {
			s.count, o.Count = o.Count, 0
		}
	}
	interval := unit * time.Duration(max(1, o.Interval))
	if unit == time.Minute || unit == time.Hour {
		s.interval = interval
	}
	if r.untilIsUTC() {
		if s.elapses() {
			o.Until = o.Until.Add(ahead(instant(r.Start, zone), zone))
		} else {
			o.Until = onClock(o.Until, zone)
		}
	}
	if o.Freq == rrule.MONTHLY && o.Count == 0 {
		o = laterMonths(o, from)
	}
	if unit > 0 && o.Count == 0 && s.count == 0 {
		if whole := from.Sub(o.Dtstart)/interval - 1; whole > 0 {
			o.Dtstart = o.Dtstart.Add(whole * interval)
		}
	}
	s.rule, err = rrule.NewRRule(o)
	return s, err
}

// untilIsUTC says whether UNTIL is a time of UTC, as RFC 5545 asks for. Without the Z it is one of the rule's own clock.
func (r Recurrence) untilIsUTC() bool {
	_, value, _ := strings.Cut(";"+r.Rule, ";UNTIL=")
	value, _, _ = strings.Cut(value, ";")
	return strings.HasSuffix(value, "Z")
}

// laterMonths begins a monthly rule as many whole intervals later as it can, at least a month before from, at the beginning of a month.
func laterMonths(o rrule.ROption, from time.Time) rrule.ROption {
	every := max(1, o.Interval)
	start := o.Dtstart
	months := (from.Year()-start.Year())*12 + int(from.Month()) - int(start.Month()) - 1
	if months < every {
		return o
	}
	if len(o.Bymonthday) == 0 && len(o.Byweekday) == 0 {
		o.Bymonthday = []int{start.Day()}
	}
	if len(o.Byhour) == 0 {
		o.Byhour = []int{start.Hour()}
	}
	if len(o.Byminute) == 0 {
		o.Byminute = []int{start.Minute()}
	}
	o.Bysecond = []int{start.Second()}
	o.Dtstart = time.Date(start.Year(), start.Month()+time.Month(months/every*every), 1, 0, 0, 0, 0, time.UTC)
	return o
}

// instants returns when a time of a rule comes. A rule that counts days (interval 0), or whose interval is longer than the change of
// the clock, comes once: a time that the zone's clock leaves out comes as much later as the clock is put forward, and one that it shows
// twice comes the first time. Any other rule, such as one of every hour, does not come at a time that is left out, and comes both times
// at one that is shown twice.
func instants(wall time.Time, interval time.Duration, zone *time.Location) []time.Time {
	first, second := readings(wall, zone)
	if interval == 0 || interval > second.Sub(first).Abs() {
		return []time.Time{instant(wall, zone)}
	}
	return slices.DeleteFunc([]time.Time{first, second}, func(t time.Time) bool { return !onClock(t, zone).Equal(wall) })
}

// instant returns when a zone's wall clock shows a time, first.
func instant(wall time.Time, zone *time.Location) time.Time {
	first, second := readings(wall, zone)
	if !onClock(first, zone).Equal(wall) && onClock(second, zone).Equal(wall) {
		return second
	}
	return first // also where the clock is put forward over it
}

// readings are the times at which a zone's clock would show a time with the offset of the day before, and with that of
// the day after.
func readings(wall time.Time, zone *time.Location) (before, after time.Time) {
	at := func(near time.Time) time.Time { return wall.Add(-ahead(near, zone)) }
	return at(wall.Add(-24 * time.Hour)), at(wall.Add(24 * time.Hour))
}

// onClock is what the clock of a zone shows at a time, as if it were UTC.
func onClock(t time.Time, zone *time.Location) time.Time { return t.UTC().Add(ahead(t, zone)) }

// ahead is by how much the clock of a zone is ahead of UTC at a time.
func ahead(t time.Time, zone *time.Location) time.Duration {
	_, offset := t.In(zone).Zone()
	return time.Duration(offset) * time.Second
}

// recurrence writes a pattern as a rule, from its first run on. Begins are rounded to the largest of an hour's usual parts that
// is no farther off than runs are from each other.
func (p Pattern) recurrence(times []time.Time, zone *time.Location) Recurrence {
	zone = p.Clock(zone)
	r := Recurrence{Zone: zone.String()}
	r.Start = p.rounded()
	minutes := int(p.Period / time.Minute)
	switch {
	case p.Period%(7*24*time.Hour) == 0:
		r.Rule = interval("WEEKLY", minutes/7/24/60)
	case p.Period == 24*time.Hour:
		r.Rule = p.daily(times, zone)
	case p.Period%(24*time.Hour) == 0:
		r.Rule = interval("DAILY", minutes/24/60)
	case p.Period%time.Hour == 0:
		r.Rule = interval("HOURLY", minutes/60)
	default:
		r.Rule = interval("MINUTELY", max(1, int((p.Period+30*time.Second)/time.Minute)))
	}
	return r
}

func interval(freq string, n int) string {
	if n == 1 {
		return "FREQ=" + freq
	}
	return fmt.Sprintf("FREQ=%s;INTERVAL=%d", freq, n)
}

// rounded is the anchor on the minute, of short periods on the half minute, or on 5, 15, 30 or 60 minutes where runs begin about then.
func (p Pattern) rounded() time.Time {
	near := time.Duration(1.5 * p.CV * float64(p.Period))
	for _, step := range []time.Duration{time.Hour, 30 * time.Minute, 15 * time.Minute, 5 * time.Minute} {
		if to := p.Anchor.Round(step); p.Period%step == 0 && to.Sub(p.Anchor).Abs() <= max(near, 30*time.Second) && step > 2*near {
			return to
		}
	}
	if p.Period < 10*time.Minute { // it comes again so soon that half a minute counts
		return p.Anchor.Round(30 * time.Second)
	}
	return p.Anchor.Round(time.Minute)
}

// daily returns the rule of a daily pattern, which may leave out days of the week.
func (p Pattern) daily(times []time.Time, zone *time.Location) string {
	var runs [7]int
	for _, i := range p.Runs {
		runs[times[i].In(zone).Weekday()]++
	}
	weeks := p.Periods / 7
	if weeks < 3 {
		return "FREQ=DAILY"
	}
	names := [7]string{"SU", "MO", "TU", "WE", "TH", "FR", "SA"}
	var days []string
	for _, day := range []int{1, 2, 3, 4, 5, 6, 0} {
		if 5*runs[day] >= weeks { // on a day left out, at most a run in five weeks
			days = append(days, names[day])
		}
	}
	if len(days) == 7 {
		return "FREQ=DAILY"
	}
	return "FREQ=WEEKLY;BYDAY=" + strings.Join(days, ",")
}
