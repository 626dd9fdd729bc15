package agenda_test

import (
	"testing"
	"time"

	"evenkeel/cluster/scheduler/admission"
	"evenkeel/cluster/scheduler/agenda"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// A job of weeks beside one of fine steps keeps no other from being planned, nor the first of the queue from its turn.
func TestLongJobsBesideFineSteps(t *testing.T) {
	c := scheduling.NewCluster(t, "h1", "h2", "h3")
	signed(t, c, "long", askedFor(t, "FREQ=MONTHLY;BYMONTHDAY="+c.Now().UTC().AddDate(0, 0, 1).Format("2"), 23*24*time.Hour))
	signed(t, c, "daily", askedFor(t, "FREQ=DAILY;BYHOUR="+c.Now().UTC().Add(5*time.Hour).Format("15"), time.Hour))
	signed(t, c, "fine", askedFor(t, "FREQ=MINUTELY;INTERVAL=3", 70*time.Second))
	put, err := agenda.Plan(c.Snapshot(), c.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := agenda.Recheck(c.Snapshot(), put, c.Now(), nil); err != nil || len(again.Occurrences) != len(put.Occurrences) {
		t.Errorf("of %d occurrences %d hold: %v", len(put.Occurrences), len(again.Occurrences), err)
	}
	c.Must(state.KindAgenda, put)
	untilRest(t, c, 20)
	for job, want := range map[string]int{"long": 1, "daily": 1, "fine": 150} {
		n := 0
		for _, o := range c.Snapshot().Occurrences(job) {
			if o.Reserves() {
				n++
			}
		}
		if n != want {
			t.Errorf("%s: %d occurrences have hosts, want %d", job, n, want)
		}
	}
	runs := scheduling.VC("runs", 0.5, scheduling.Group(3, 1, 2*scheduling.GiB))
	runs.Duration = 3600
	c.Create(runs)
	c.Create(scheduling.VC("first", 0.5, scheduling.Group(1, 1, 6*scheduling.GiB)))
	if head, err := agenda.First(c.Snapshot(), admission.Queue(c.Snapshot()), c.Env()); err != nil || head == nil {
		t.Errorf("the first of the queue: %+v, %v", head, err)
	}
}

// What two runs of days need after the next day counts as well: one host does not promise it to both.
func TestLongSlotsMeetAfterTheAgenda(t *testing.T) {
	for peak, both := range map[float64]bool{2: true, 3: false} {
		c := scheduling.NewCluster(t, "h1")
		for i, name := range []string{"a", "b"} {
			k := contract(1, scheduling.GiB)
			k.Recurrence = "DTSTART;TZID=UTC:20260101T000000\nRRULE:FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR,SA,SU;BYHOUR=" + c.Now().UTC().Add(time.Duration(3+i)*time.Hour).Format("15")
			k.Groups[0].CPU, k.MinYield, k.Step, k.Cores, k.Due = peak, 0.1, 6*3600, []float64{1, 1, 1, 1, 1, 1, 1, peak}, 4*24*3600
			signed(t, c, name, k)
		}
		with := 0
		for _, o := range plan(t, c) {
			if o.Reserves() {
				with++
			}
		}
		if want := map[bool]int{true: 2, false: 1}[both]; with != want {
			t.Errorf("with a peak of %v cores in the second day %d have hosts, want %d", peak, with, want)
		}
	}
}
