package agenda_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/scheduler/agenda"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// nights are runs at two o'clock on the clock of a zone, of so many minutes, whose use rises to a peak.
func nights(n, minutes int, zone *time.Location, r *rand.Rand) (out []state.Run) {
	for i := range n {
		at := time.Date(2026, 3, 20+i, 2, r.IntN(5), r.IntN(60), 0, zone).UTC()
		u := state.RunUsage{Step: 60}
		for u.Step*state.MaxRunSteps < int64(minutes)*60 {
			u.Step *= 2
		}
		for k := range minutes * 60 / int(u.Step) {
			u.VMs, u.Cores, u.Memory = append(u.VMs, 4), append(u.Cores, int64(1000+1000*k*int(u.Step)/60/minutes+r.IntN(100))), append(u.Memory, 100)
		}
		out = append(out, state.Run{ID: fmt.Sprint(i), Job: "j", Submitted: at, Started: at.Add(10 * time.Second), Ended: at.Add(time.Duration(minutes) * time.Minute), Outcome: state.RunDeleted,
			Kind: "a", Groups: []state.RunGroup{{Name: "g", Count: 4, CPU: 1, Memory: gib}}, MinYield: 0.5, Usage: &u})
	}
	return out
}

func TestProposal(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	runs := func() []state.Run { return nights(20, 50, berlin, rand.New(rand.NewPCG(1, 1))) }
	p, err := agenda.Propose(runs(), agenda.Ask{Zone: berlin, Miss: 0.1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := p.SignOff
	if !strings.Contains(c.Recurrence, "TZID=Europe/Berlin") || !strings.Contains(c.Recurrence, "FREQ=DAILY") || c.Length() != 50*time.Minute || c.Runs != 20 || c.Miss > 0.1 || c.Lateness < 300 || c.Lateness > 600 || c.Declared {
		t.Errorf("%+v", c)
	}
	for k, cores := range c.Cores {
		if want := 1 + float64(k+1)*5/50; cores < want-0.05 || cores > want*1.3 {
			t.Errorf("step %d has %v cores, runs use up to %v", k, cores, want+0.1)
		}
	}
	for name, x := range map[string]struct {
		spoil func([]state.Run) []state.Run
		ask   agenda.Ask
		says  string // in the error; "" = none
		text  string // in the proposal
	}{
		"few runs":         {func(r []state.Run) []state.Run { return r[:7] }, agenda.Ask{}, "and 7 can be used", ""},
		"no runs":          {func([]state.Run) []state.Run { return nil }, agenda.Ask{}, "no run of it is recorded", ""},
		"other images":     {func(r []state.Run) []state.Run { r[19].Kind = "b"; return r }, agenda.Ask{}, "and 1 can be used", ""},
		"a rule":           {func(r []state.Run) []state.Run { return r[:1] }, agenda.Ask{Rule: "FREQ=HOURLY", Length: time.Hour, Cores: 2}, "", "the owner gave its CPU"},
		"a bad rule":       {func(r []state.Run) []state.Run { return r }, agenda.Ask{Rule: "FREQ=SECONDLY"}, "FREQ must be", ""},
		"due too early":    {func(r []state.Run) []state.Run { return r }, agenda.Ask{Zone: berlin, Deadline: 30 * time.Minute}, "give a later deadline", ""},
		"not observed":     {func(r []state.Run) []state.Run { return blind(r) }, agenda.Ask{Zone: berlin}, "", "of 0 runs it is known"},
		"declared":         {func(r []state.Run) []state.Run { r[19].Deadline = 7200; return r }, agenda.Ask{Zone: berlin}, "", ""},
		"lost runs no use": {func(r []state.Run) []state.Run { return lostAll(r) }, agenda.Ask{Zone: berlin}, "no period was found", ""},
	} {
		p, err := agenda.Propose(x.spoil(runs()), x.ask, nil)
		if x.says != "" && (err == nil || !strings.Contains(err.Error(), x.says)) || x.says == "" && err != nil || !strings.Contains(p.Text, x.text) {
			t.Errorf("%s: %v, %q", name, err, p.Text)
		}
		if name == "declared" && (p.SignOff.Due != 7200 || !p.SignOff.Declared) {
			t.Errorf("%s: %+v", name, p.SignOff)
		}
		if strings.HasPrefix(name, "few") && !errors.Is(err, agenda.ErrNoPattern) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func blind(r []state.Run) []state.Run {
	for i := range r {
		for k := range 20 {
			r[i].Usage.Unknown = append(r[i].Usage.Unknown, k)
		}
	}
	return r
}

func lostAll(r []state.Run) []state.Run {
	for i := range r[:19] {
		r[i].Outcome = state.RunLost
	}
	return r
}

// A chance that its runs do not support is not promised; a job beside others borrows a run, and is promised no more.
func TestProposalOfFewRuns(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	runs := nights(20, 50, time.UTC, r)
	enough, err := agenda.Propose(runs, agenda.Ask{Miss: 0.05}, nil)
	if err != nil || enough.Support != "" || math.Abs(enough.SignOff.Miss-1.0/21) > 1e-9 {
		t.Errorf("of 20 runs 5%%: %+v, %v", enough, err)
	}
	alone, err := agenda.Propose(runs, agenda.Ask{Miss: 0.01}, nil)
	if err != nil || !strings.HasPrefix(alone.Support, "asked 1%, 20 runs support 4.8%; it takes 99") || strings.Contains(alone.Support, "borrow") || alone.SignOff.Miss != enough.SignOff.Miss {
		t.Errorf("of 20 runs 1%%: %+v, %v", alone, err)
	}
	if got := agenda.Supported(alone.SignOff); got != "no smaller chance follows from 20 runs" {
		t.Errorf("of a contract: %q", got)
	}
	// The later runs of another job, as steady, had twice the work of its earlier ones.
	other := nights(200, 50, time.UTC, r)
	for _, x := range other[100:] {
		for k := range x.Usage.Cores {
			x.Usage.Cores[k] *= 2
		}
	}
	borrowed, err := agenda.Propose(runs, agenda.Ask{Miss: 0.01}, slices.Values([][]state.Run{other}))
	if err != nil || !strings.Contains(borrowed.Support, "borrows") || borrowed.SignOff.Miss != alone.SignOff.Miss {
		t.Errorf("beside another job: %+v, %v", borrowed, err)
	}
	for k, cores := range borrowed.SignOff.Cores {
		if want := min(4, 1.7*(1+float64(k)*5/50)); cores < alone.SignOff.Cores[k] || cores < want {
			t.Errorf("step %d has %v cores, alone %v", k, cores, alone.SignOff.Cores[k])
		}
	}
}

// Sixty runs of ten days: learning stays bounded. Its time is measured by BenchmarkProposal.
func BenchmarkProposal(b *testing.B) {
	runs := nights(60, 800, time.UTC, rand.New(rand.NewPCG(1, 1)))
	for b.Loop() {
		if _, err := agenda.Propose(runs, agenda.Ask{}, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// What an owner changes is changed, and nothing else.
func TestOverride(t *testing.T) {
	c := contract(2, gib)
	for name, x := range map[string]struct {
		ask  agenda.Ask
		good bool
		is   func(state.SignOff) bool
	}{
		"deadline":  {agenda.Ask{Deadline: 90 * time.Minute}, true, func(s state.SignOff) bool { return s.Due == 5400 && len(s.Cores) == 2 }},
		"too early": {agenda.Ask{Deadline: time.Minute}, false, nil},
		"rule": {agenda.Ask{Rule: "FREQ=HOURLY"}, true, func(s state.SignOff) bool {
			return strings.HasSuffix(s.Recurrence, "RRULE:FREQ=HOURLY") && s.Due == c.Due
		}},
		"length":  {agenda.Ask{Length: time.Hour}, true, func(s state.SignOff) bool { return s.Length() == time.Hour && math.Abs(s.Cores[11]-2) < 1e-9 }},
		"miss":    {agenda.Ask{Miss: 0.1}, false, nil},
		"nothing": {agenda.Ask{}, true, func(s state.SignOff) bool { return fmt.Sprint(s) == fmt.Sprint(c) }},
	} {
		s, err := agenda.Override(c, x.ask)
		if (err == nil) != x.good || x.good && !x.is(s) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}

// With another rule or zone a contract has the steps that it would have been proposed with; its length and needs stay.
func TestOverrideOfTheRuleChangesTheStep(t *testing.T) {
	const hourly, nine, three = "FREQ=HOURLY", "FREQ=MINUTELY;INTERVAL=9", "FREQ=MINUTELY;INTERVAL=3"
	for _, x := range []struct {
		from, to             string
		length               time.Duration
		step, lateness, long int64 // s
		fits                 bool
	}{
		{hourly, nine, 70 * time.Second, 30, 30, 300, true},
		{hourly, three, 70 * time.Second, 30, 30, 300, false}, // its length stays: a run takes up to five minutes
		{three, hourly, 70 * time.Second, 300, 300, 300, true},
		{nine, hourly, 400 * time.Second, 300, 300, 600, true},
		{nine, three, 70 * time.Second, 30, 30, 90, true},
		{hourly, "FREQ=DAILY", 70 * time.Second, 300, 300, 300, true},
	} {
		k := askedFor(t, x.from, x.length)
		k.Miss, k.Runs = 0.1, 7
		k.Cores[len(k.Cores)-1] = 0.5
		o, err := agenda.Override(k, agenda.Ask{Rule: x.to})
		if err != nil || o.Step != x.step || o.Lateness != x.lateness || int64(o.Length()/time.Second) != x.long || o.Miss != k.Miss || o.Runs != k.Runs {
			t.Errorf("%s to %s: %+v, %v; want %+v", x.from, x.to, o, err, x)
			continue
		}
		if want := o.Arrival + x.long + x.lateness; o.Due != want {
			t.Errorf("%s to %s: due after %d s, want %d", x.from, x.to, o.Due, want)
		}
		if slices.Max(o.Cores) != slices.Max(k.Cores) {
			t.Errorf("%s to %s: the peak of %v is not that of %v", x.from, x.to, o.Cores, k.Cores)
		}
		if err := agenda.Fits(&o, scheduling.Start); (err == nil) != x.fits {
			t.Errorf("%s to %s: %v", x.from, x.to, err)
		}
	}
}

// TestLeftOut: dates that are over are dropped from a contract, which has room for a year of them, and refused of an owner. A date is over
// once any run of it would have been due, on the clock of the job.
func TestLeftOut(t *testing.T) {
	c := state.SignOff{Recurrence: "DTSTART;TZID=America/New_York:20260101T230000\nRRULE:FREQ=DAILY", Due: 2 * 3600, Skips: []string{"2026-11-26", "2026-11-27", "2026-12-24"}}
	now := time.Date(2026, 11, 28, 6, 30, 0, 0, time.UTC) // half past one there: a run at the end of yesterday is not due
	for _, x := range []struct {
		skip, keep []string
		want, says string
	}{
		{nil, nil, "2026-11-27 2026-12-24", ""},
		{[]string{"2026-12-24", "2026-11-27", "2026-12-01"}, nil, "2026-11-27 2026-12-01 2026-12-24", ""},
		{nil, []string{"2026-12-24", "2026-11-26"}, "2026-11-27", ""},
		{[]string{"2026-12-31"}, []string{"2026-12-31", "2026-11-27"}, "2026-12-24", ""},
		{[]string{"2026-11-26"}, nil, "", "2026-11-26 is over: give a date from 2026-11-27 on"},
	} {
		got, err := agenda.LeftOut(c, x.skip, x.keep, now)
		if strings.Join(got, " ") != x.want || (err == nil) != (x.says == "") || err != nil && err.Error() != x.says {
			t.Errorf("skip %v, keep %v: %v, %v, want %s", x.skip, x.keep, got, err, x.want+x.says)
		}
	}
	if got, err := agenda.LeftOut(c, nil, nil, now.Add(time.Hour)); err != nil || len(got) != 1 {
		t.Errorf("an hour later: %v, %v", got, err)
	}
}

// TestKeeps: a slot of half an hour keeps what the skyline has for a run that arrives when it may, and no less than admission asks for.
func TestKeeps(t *testing.T) {
	c := state.SignOff{Lateness: 600, Step: 600, Cores: []float64{1, 8}, MinYield: 0.25, Groups: []state.RunGroup{{Name: "a", Count: 2, CPU: 3, Memory: 1 << 30}, {Name: "b", Count: 4, CPU: 1, Memory: 2 << 30}}}
	highest, coreSeconds, slot := agenda.Keeps(&c)
	if want := (state.Resources{CPU: 8, Memory: 10 << 30}); highest != want || math.Abs(coreSeconds-600*(2.5+8+8)) > 1e-6 || slot != 30*time.Minute {
		t.Errorf("%+v, %v core-seconds in %v", highest, coreSeconds, slot)
	}
}
