package state

import (
	"errors"
	"testing"
	"time"
)

// Where a drain can come to from each of its states; what it does not come to is refused and changes nothing. The host is cordoned
// exactly while it has a drain, and the drain keeps its beginning until the next one.
func TestDrainTransitions(t *testing.T) {
	all := []DrainState{"", DrainRunning, DrainDone, DrainBlocked, DrainStopped}
	want := map[DrainState][]DrainState{
		"":           {"", DrainRunning},
		DrainRunning: {"", DrainRunning, DrainDone, DrainBlocked, DrainStopped},
		DrainBlocked: {"", DrainRunning, DrainDone, DrainBlocked},
		DrainStopped: {"", DrainRunning, DrainDone, DrainStopped},
		DrainDone:    {"", DrainRunning, DrainDone},
	}
	for _, from := range all {
		may := map[DrainState]bool{}
		for _, to := range want[from] {
			may[to] = true
		}
		for _, to := range all {
			h := Host{Name: "h1", Version: 3}
			if from != "" {
				h.Drain, h.Cordoned, h.CordonReason = Drain{State: from, Begun: 5, Index: 6}, true, "drain"
			}
			after, err := h.withDrain(Drain{State: to, Text: "because", Begun: 99, Index: 99}, 20)
			if (err == nil) != may[to] || err != nil && (!errors.Is(err, ErrConflict) || after != h) {
				t.Errorf("%q to %q: %+v, %v, want it refused: %v", from, to, after, err, !may[to])
			}
			if err != nil {
				continue
			}
			if after.Cordoned != (to != "") || after.Drain.State != to || (after.CordonReason == "") != (to == "") {
				t.Errorf("%q to %q: %+v", from, to, after)
			}
			begun := h.Drain.Begun
			if to == DrainRunning && from != DrainRunning {
				begun = 20
			}
			if to != "" && (after.Drain.Begun != begun || after.Drain.Index != 20) || to == "" && after.Drain != (Drain{}) {
				t.Errorf("%q to %q: began at %d, want %d: %+v", from, to, after.Drain.Begun, begun, after.Drain)
			}
			if changed := after.Cordoned != h.Cordoned; changed != (after.Version == 20) {
				t.Errorf("%q to %q: version %d", from, to, after.Version)
			}
		}
	}
	own := Host{Name: "h1", Cordoned: true, CordonReason: "fan"} // an operator's cordon keeps its reason, and needs no new plans
	if after, err := own.withDrain(Drain{State: DrainRunning, Reason: "disk"}, 20); err != nil || after.CordonReason != "fan" || after.Version != 0 {
		t.Errorf("%+v, %v", after, err)
	}
}

// A host that an operator had cordoned stays cordoned, for the operator's reason, once its drain is taken back, however often that began.
func TestCordonOutlastsADrain(t *testing.T) {
	for _, c := range []struct {
		before Host
		format int
		want   Host
	}{
		{Host{}, FormatVersion, Host{}},
		{Host{Cordoned: true, CordonReason: "fan"}, FormatVersion, Host{Cordoned: true, CordonReason: "fan"}},
		{Host{Cordoned: true}, FormatVersion, Host{Cordoned: true}},
		{Host{Cordoned: true, CordonReason: "fan"}, 1, Host{}}, // servers of the version before know no better
	} {
		h := c.before
		for index := range uint64(2) {
			d := h.BeginDrain(Drain{Reason: "disk"}, time.Unix(50, 0), c.format)
			if (&HostDrain{Drain: d}).since() > c.format {
				t.Errorf("%+v: the drain %+v is of a later format", c, d)
			}
			var err error
			if h, err = h.withDrain(d, index+20); err != nil || !h.Cordoned {
				t.Fatalf("%+v: drained as %+v, %v", c, h, err)
			}
			if h, err = h.withDrain(h.Drain.End(DrainStopped, "no time"), index+20); err != nil {
				t.Fatal(err)
			}
		}
		h, err := h.withDrain(Drain{}, 30)
		if h.Version = 0; err != nil || h != c.want {
			t.Errorf("%+v: undrained as %+v, %v", c, h, err)
		}
	}
}

func TestDrainBeginsAndEnds(t *testing.T) {
	at := time.Unix(50, 0)
	for _, state := range []DrainState{"", DrainRunning, DrainDone, DrainBlocked, DrainStopped} {
		old := Drain{State: state, Since: at.Add(-time.Hour), By: "ann"}
		next := Host{Drain: old, Cordoned: old.State != ""}.BeginDrain(Drain{By: "bob", MaxBytes: 7}, at, FormatVersion)
		since := at
		if state == DrainRunning {
			since = old.Since
		}
		if next != (Drain{State: DrainRunning, Since: since, By: "bob", MaxBytes: 7}) {
			t.Errorf("%q: begins as %+v", state, next)
		}
	}
	d := Drain{State: DrainRunning, By: "ann", Plan: "p", Text: "1 left"}
	if got := d.End(DrainDone, "empty"); got != (Drain{State: DrainDone, By: "ann", Plan: "p", Text: "empty"}) {
		t.Errorf("%+v", got)
	}
}
