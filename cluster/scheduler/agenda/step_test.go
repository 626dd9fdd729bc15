package agenda_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/agenda"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// askedFor is the contract of a job with one run of a length, by a rule from the start of the play's day on.
func askedFor(t *testing.T, rule string, length time.Duration) state.SignOff {
	t.Helper()
	run := state.Run{ID: "x", Submitted: scheduling.Start, Started: scheduling.Start, Ended: scheduling.Start.Add(length), Groups: []state.RunGroup{{Name: "g0", Count: 2, CPU: 1, Memory: scheduling.GiB}}, MinYield: 0.5}
	p, err := agenda.Propose([]state.Run{run}, agenda.Ask{Rule: rule}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p.SignOff
}

// Only jobs that come again within ten minutes have fine steps; the contracts of all others are as they were.
func TestStepsOfContracts(t *testing.T) {
	for rule, want := range map[string]struct{ step, lateness int64 }{
		"FREQ=MINUTELY;INTERVAL=2": {30, 30}, "FREQ=MINUTELY;INTERVAL=3": {30, 30}, "FREQ=MINUTELY;INTERVAL=9": {30, 30}, "FREQ=DAILY;BYHOUR=1,2;BYMINUTE=0,55": {30, 30},
		"FREQ=WEEKLY;BYDAY=WE;BYHOUR=1,2;BYMINUTE=0,55": {30, 30}, "FREQ=WEEKLY;BYDAY=SA;BYHOUR=1,2;BYMINUTE=0,55": {30, 30}, "FREQ=MONTHLY;BYMONTHDAY=30;BYHOUR=1,2;BYMINUTE=0,55": {30, 30},
		"FREQ=MONTHLY;INTERVAL=12;BYMONTHDAY=1;BYHOUR=1,2;BYMINUTE=0,55": {30, 30},
		"FREQ=MINUTELY;INTERVAL=10":                                      {300, 300}, "FREQ=HOURLY": {300, 300}, "FREQ=DAILY;BYHOUR=2": {300, 300}, "FREQ=WEEKLY": {300, 300}, "FREQ=MONTHLY;BYMONTHDAY=31": {300, 300},
	} {
		c := askedFor(t, rule, 70*time.Second)
		if c.Step != want.step || c.Lateness != want.lateness || c.Length() != time.Duration((70+want.step-1)/want.step*want.step)*time.Second {
			t.Errorf("%s: steps of %d s, %s long, up to %d s late; want %+v", rule, c.Step, c.Length(), c.Lateness, want)
		}
		if err := agenda.Fits(&c, scheduling.Start); err != nil {
			t.Errorf("%s: %v", rule, err)
		}
	}
}

// Four jobs that come every three minutes each start on their witness, run by run, beside other work that takes all that is left and says
// how long it runs; a run that comes too late for its slot does not take that of the next one.
func TestShortPeriods(t *testing.T) {
	c := scheduling.NewCluster(t, "h1", "h2", "h3", "h4")
	for j := range 4 {
		k := askedFor(t, "FREQ=MINUTELY;INTERVAL=3", 70*time.Second)
		signed(t, c, fmt.Sprintf("job%d", j), k)
	}
	began := c.Now().Truncate(3 * time.Minute).Add(6 * time.Minute)
	untilRest(t, c, 20)
	if n := len(c.Snapshot().Agenda()); n != 4*150 {
		t.Fatalf("%d occurrences are ahead, want 150 of each job", n)
	}
	for name := range 4 {
		last := time.Time{}
		for _, o := range c.Snapshot().Occurrences(fmt.Sprintf("job%d", name)) {
			if !o.Reserves() || o.Start.Before(last) {
				t.Fatalf("%+v; the one before ends at %s", o, last)
			}
			last = o.End
		}
	}
	for n := range 5 {
		c.Ahead += began.Add(time.Duration(n) * 3 * time.Minute).Sub(c.Now())
		plan(t, c)
		c.Create(scheduling.VC(fmt.Sprintf("other%d", n), 0.5, scheduling.Group(4, 1, 4*scheduling.GiB))) // it stays, or waits
		if n == 3 {
			c.Ahead += 45 * time.Second // later than the slot allows
			plan(t, c)
		}
		for j := range 4 {
			vc := scheduling.VC(fmt.Sprintf("run%d-%d", j, n), 0.5, scheduling.Group(2, 1, scheduling.GiB))
			vc.Periodic.Name = fmt.Sprintf("job%d", j)
			o, claims := placement.Claim(c.Snapshot(), &vc, c.Now())
			if n == 3 {
				if claims {
					t.Fatalf("a run that comes 45 s late claims %+v", o)
				}
				continue
			}
			if a := c.Create(vc); a.Queued || a.Plan == nil || a.Plan.Occurrence != o.ID || !claims || !o.Start.Equal(c.Now().UTC().Truncate(time.Minute)) {
				t.Fatalf("run %d of job %d: %s; it claims %+v at %s", n, j, a.Decision.Summary, o, c.Now())
			}
			for _, vm := range c.Snapshot().VMsOf(c.Named(vc.Name).ID) {
				if !slices.Contains(o.Hosts, vm.Host) {
					t.Errorf("%s is on %s, not on one of %s", vm.Name, vm.Host, o.Hosts)
				}
			}
		}
		c.Run()
		c.Ahead += 70 * time.Second
		for j := range 4 {
			name := fmt.Sprintf("run%d-%d", j, n)
			if vc, ok := c.Snapshot().VCNamed(name); ok {
				c.Must(state.KindPlan, admission.Delete(c.Snapshot(), vc, c.Env()).Plan)
			}
		}
		for _, vm := range c.Snapshot().VMs() {
			if vm.Goal == state.GoalDelete {
				c.Follow(vm)
			}
		}
	}
}

// A run that goes on into the next period is no run of that: whatever is changed of it then, the next occurrence is for the run that
// arrives for it. One that arrived nearer to the next period, and waits, is the run of that.
func TestARunThatGoesOnIsOfItsOwnPeriod(t *testing.T) {
	for arrives, claims := range map[time.Duration]bool{45 * time.Second: false, 80 * time.Second: false, 100 * time.Second: true} {
		c := scheduling.NewCluster(t, "h1", "h2")
		signed(t, c, "job", askedFor(t, "FREQ=MINUTELY;INTERVAL=3", 70*time.Second))
		began := c.Now().Truncate(3 * time.Minute).Add(6 * time.Minute)
		untilRest(t, c, 20)
		c.Ahead += began.Sub(c.Now()) + arrives
		plan(t, c)
		for range 2 { // one runs, the other waits
			vc := scheduling.VC(fmt.Sprintf("run%d", c.Index), 0.5, scheduling.Group(2, 1, 5*scheduling.GiB))
			vc.Periodic.Name = "job"
			if a := c.Create(vc); a.Plan == nil || (a.Plan.Occurrence != "") != claims && !a.Queued {
				t.Fatalf("%s after its period began: %+v", arrives, a)
			}
			c.Run()
		}
		if claims {
			continue // it has the next slot already
		}
		c.Ahead += began.Add(3*time.Minute + 5*time.Second).Sub(c.Now())
		plan(t, c)
		for _, vc := range c.Snapshot().VCs() {
			if o, is := placement.Claim(c.Snapshot(), &vc, c.Now()); is {
				t.Errorf("%s, which arrived %s after its period began and is admitted: %v, claims that of %s", vc.Name, arrives, vc.Admitted, o.Period)
			}
		}
	}
}

// A VC that ends in the step in which a slot begins does not come to its witness: the agenda would find the host full.
func TestBackfillLeavesTheStepOfASlot(t *testing.T) {
	c := withJobs(t, 1, 0, 0, 0)
	k := contract(1, 3*scheduling.GiB)
	k.Recurrence = "DTSTART;TZID=UTC:20260101T000400\nRRULE:FREQ=HOURLY" // four minutes into a step
	signed(t, c, "job", k)
	c.Ahead += c.Now().Truncate(time.Hour).Add(time.Hour + time.Minute).Sub(c.Now())
	before := plan(t, c)["job"]
	if !before.Reserves() {
		t.Fatalf("%+v", before)
	}
	for _, short := range []bool{true, false} {
		vc := scheduling.VC(fmt.Sprintf("short%v", short), 0.5, scheduling.Group(1, 1, 6*scheduling.GiB))
		vc.Duration = 60
		if !short { // an hour before another slot
			c.Ahead += 20 * time.Minute
		}
		c.Create(vc)
		c.Run()
		for _, o := range c.Snapshot().Occurrences("job") {
			was := o
			plan(t, c)
			if o, _ = c.Snapshot().Occurrence(o.ID); short && o.State != was.State {
				t.Errorf("%+v, before %+v", o, was)
			}
		}
		if got := c.Named(vc.Name).Admitted; got == short {
			t.Errorf("%s: it runs: %v", vc.Name, got)
		}
	}
}
