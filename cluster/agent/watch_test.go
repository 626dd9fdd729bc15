package agent

import (
	"strings"
	"testing"
	"time"

	"evenkeel/hypervisor"
)

const mib = 1 << 20

// watched is a guest of 1,000 MiB, measured once a second from a time on: what it has, and what of that it could still use.
type watched struct {
	guestWatch
	at            time.Time
	swap, swapOut int64
	faults        int64
}

func (w *watched) sees(balloon, available int64, swap, faults int64) GuestNeed {
	if w.at.IsZero() {
		w.at = time.Unix(1_800_000_000, 0)
	}
	w.at = w.at.Add(time.Second)
	w.swap, w.faults = w.swap+swap, w.faults+faults
	s := hypervisor.Stats{Identity: hypervisor.Identity{VM: "a", Generation: 1}, At: w.at, Reported: w.at, Balloon: balloon * mib, Available: available * mib, Unused: available * mib,
		SwapIn: w.swap, SwapOut: w.swapOut, MajorFaults: w.faults}
	if available < 0 {
		s.Reported, s.Available, s.Unused, s.SwapIn, s.MajorFaults = time.Time{}, hypervisor.Unknown, hypervisor.Unknown, hypervisor.Unknown, hypervisor.Unknown
	}
	w.observe(s, 1000*mib, 5*time.Second)
	return w.need()
}

// When a guest counts as short of memory, and what it gets.
func TestGuestIsShortOfMemory(t *testing.T) {
	for _, c := range []struct {
		name               string
		balloon, available int64
		swap, faults       int64 // a second
		raise              int64 // MiB
		why                string
	}{
		{"plenty", 500, 200, 0, 0, 0, ""},
		{"just enough", 500, 50, 0, 0, 0, ""},
		{"too little", 500, 49, 0, 0, 750, "49 of 500 MiB are left"},
		{"nearly nothing", 300, 1, 0, 0, 550, "1 of 300 MiB are left"},
		{"swaps", 500, 100, mib, 300, 750, "it swaps: 1.0 MiB/s, 100 of 500 MiB are left"},
		{"swaps back what was swapped out before", 500, 300, mib, 300, 0, ""},
		{"swaps a little", 500, 100, mib / 4, 50, 0, ""},
		{"reads pages again", 500, 100, 0, 400, 750, "it reads pages again: 400/s, 100 of 500 MiB are left"},
		{"reads its programs for the first time", 500, 300, 0, 4000, 0, ""},
		{"has all there is", 1000, 10, mib, 400, 0, ""},
		{"reports nothing", 500, -1, 0, 0, 0, ""},
	} {
		w := watched{guestWatch: guestWatch{step: time.Minute}}
		var need GuestNeed
		for range 5 { // a while, without getting anything
			need = w.sees(c.balloon, c.available, c.swap, c.faults)
		}
		report := w.report()
		if need.Raise != c.raise*mib || (report != nil && report.Pressure != c.why) || (report == nil) != (c.available < 0) {
			t.Errorf("%s: raised to %d MiB, want %d; reported %+v, want %q", c.name, need.Raise/mib, c.raise, report, c.why)
		}
	}
}

// A guest gets one step at a time, once it reported after the last step, and keeps it for a while.
func TestEmergencyGrantStepByStep(t *testing.T) {
	w := watched{guestWatch: guestWatch{step: time.Minute}}
	if n := w.sees(400, 20, 0, 0); n.Raise != 650*mib || n.MinBalloon != 650*mib {
		t.Fatalf("short: %+v", n)
	}
	if n := w.sees(650, 20, 0, 0); n.Raise != 900*mib { // its report is a new one
		t.Fatalf("short again: %+v", n)
	}
	if n := w.sees(900, 400, 0, 0); n.Raise != 0 || n.MinBalloon != 900*mib || w.report().Pressure != "" {
		t.Fatalf("not any more: %+v", n)
	}
	for range int(grantStays*time.Minute/time.Second) - 1 {
		if n := w.sees(900, 400, 0, 0); n.MinBalloon != 900*mib {
			t.Fatalf("%v after it was short: %+v", w.at.Sub(w.pressureAt), n)
		}
	}
	w.sees(900, 400, 0, 0)
	if n := w.sees(900, 400, 0, 0); n.MinBalloon >= 900*mib || n.MinBalloon < 500*mib { // what it uses, and a little more
		t.Fatalf("%v after it was short: %+v", w.at.Sub(w.pressureAt), n)
	}

	// An old report says nothing of what it has now.
	w = watched{guestWatch: guestWatch{step: time.Minute}}
	w.sees(400, 20, 0, 0)
	stale := w.last
	stale.At, stale.Balloon = w.at.Add(time.Second), 650*mib
	stale.Reported = w.at.Add(-time.Second)
	w.observe(stale, 1000*mib, 5*time.Second)
	if n := w.need(); n.Raise != 0 || n.MinBalloon != 650*mib {
		t.Fatalf("by a report from before it got more: %+v", n)
	}

	// Nor is it short by what was left at some moment of the way.
	w = watched{guestWatch: guestWatch{step: time.Minute}}
	w.sees(800, 500, 0, 0)
	w.set(800*mib, 400*mib, w.at)
	onTheWay := w.last
	onTheWay.At, onTheWay.Reported = w.at.Add(2*time.Second), w.at.Add(time.Second)
	onTheWay.Balloon, onTheWay.Available = 450*mib, 20*mib
	w.observe(onTheWay, 1000*mib, 5*time.Second)
	if n := w.need(); n.Raise != 0 || w.pressure != "" {
		t.Fatalf("squeezed and relieved in one: %+v, %q", n, w.pressure)
	}
	w.at = onTheWay.At.Add(reportDelay - time.Second)
	if n := w.sees(450, 20, 0, 0); n.Raise == 0 { // a later report says the same
		t.Fatalf("it is short of memory: %+v", n)
	}
}

// Where a balloon falls, a report may be of the smaller balloon already, also one that comes with it: as much as it fell may be left
// beyond what the report seems to say.
func TestReportsWhileABalloonFalls(t *testing.T) {
	w := watched{guestWatch: guestWatch{step: time.Minute}}
	w.sees(800, 500, 0, 0)
	w.set(800*mib, 400*mib, w.at)
	for range int(reportDelay / time.Second) {
		if n := w.sees(400, 0, 0, 0); n.Raise != 0 || w.pressure != "" {
			t.Fatalf("%v: %+v, %q", w.at.Sub(w.falls[0].at), n, w.pressure)
		}
	}
	if n := w.sees(400, 100, 0, 0); n.Raise != 0 || n.Enough == 0 {
		t.Fatalf("it is not short of memory: %+v", n)
	}
	w.set(400*mib, 300*mib, w.at)
	for range int(reportDelay / time.Second) {
		w.sees(300, 0, 0, 0)
	}
	if n := w.sees(300, 0, 0, 0); n.Raise == 0 {
		t.Fatalf("it is short of memory: %+v", n)
	}

	// It fell to a target that was raised before the next measurement.
	w = watched{guestWatch: guestWatch{step: time.Minute}}
	w.sees(800, 500, 0, 0)
	w.set(800*mib, 400*mib, w.at)
	w.set(800*mib, 700*mib, w.at.Add(400*time.Millisecond))
	if n := w.sees(700, 0, 0, 0); n.Raise != 0 || w.pressure != "" {
		t.Fatalf("raised in time: %+v, %q", n, w.pressure)
	}

	// One that falls for long, a little each second, hides no memory pressure.
	w = watched{guestWatch: guestWatch{step: time.Minute}}
	w.sees(800, 100, 0, 0)
	w.set(800*mib, 600*mib, w.at)
	for balloon := int64(790); ; balloon -= 10 {
		if n := w.sees(balloon, 20, 0, 0); n.Raise != 0 {
			break
		}
		if balloon < 780 {
			t.Fatalf("at %d MiB with 20 left: %+v", balloon, w.need())
		}
	}
}

// A guest that takes memory faster than its host can follow gets more before it is short of it; one that takes it slowly, or has plenty left, does not.
// It is not under memory pressure.
func TestGuestThatOutrunsItsHost(t *testing.T) {
	for _, c := range []struct {
		name      string
		available []int64 // MiB of 400, each second
		swapOut   int64   // MiB, with the last
		raise     int64
	}{
		{"jumps", []int64{200, 200, 130}, 0, 650},
		{"jumps, with plenty left", []int64{350, 350, 290}, 0, 0},
		{"takes it slowly", []int64{140, 130, 120}, 0, 0},
		{"gives back", []int64{100, 100, 180}, 0, 0},
		{"has stopped", []int64{300, 130, 130}, 0, 0},
		{"swaps out instead", []int64{60, 60, 60}, 30, 650},
	} {
		w := watched{guestWatch: guestWatch{step: time.Minute}}
		var n GuestNeed
		for i, left := range c.available {
			if i == len(c.available)-1 {
				w.swapOut = c.swapOut * mib
			}
			if i == 0 {
				w.sees(400, left, 0, 0)
				continue
			}
			n = w.sees(400, left, 0, 0)
		}
		if c.name == "has stopped" { // its jump gave it more, which it keeps for a while
			if n.Raise != 0 || n.MinBalloon == 0 {
				t.Errorf("%s: %+v", c.name, n)
			}
			continue
		}
		if n.Raise != c.raise*mib || w.report().Pressure != "" {
			t.Errorf("%s: raised to %d MiB, want %d: %+v, %q", c.name, n.Raise/mib, c.raise, n, w.report().Pressure)
		}
		if c.raise > 0 && n.Enough != 0 {
			t.Errorf("%s: %d MiB are enough for a guest that takes more", c.name, n.Enough/mib)
		}
	}
}

// A guest that took memory back by itself gets some more, and is not squeezed again at once.
func TestGuestThatTakesMemoryBack(t *testing.T) {
	w := watched{guestWatch: guestWatch{step: time.Minute}}
	w.sees(1000, 500, 0, 0)
	w.set(1000*mib, 500*mib, w.at)
	w.sees(700, 200, 0, 0) // on its way
	if n := w.sees(500, 80, 0, 0); n.Raise != 0 {
		t.Fatalf("it followed: %+v", n)
	}
	n := w.sees(520, 60, 0, 0)
	if report := w.report(); n.Raise < 700*mib || report.Pressure != "it ran out of memory and took 20 MiB back by itself" || !report.Follows {
		t.Fatalf("it took 20 MiB back: %+v, %+v", n, report)
	}
}

// A guest that does not follow its balloon is not asked again for a while.
func TestGuestThatDefiesItsBalloon(t *testing.T) {
	w := watched{guestWatch: guestWatch{step: time.Minute}}
	w.sees(1000, 600, 0, 0)
	w.set(1000*mib, 500*mib, w.at)
	for range int(balloonPatient / time.Second) {
		if w.sees(1000, 600, 0, 0); !w.report().Follows {
			t.Fatalf("given up after %v", w.at.Sub(w.progressed))
		}
	}
	if n := w.sees(1000, 600, 0, 0); w.report().Follows || n.MinBalloon != 1000*mib {
		t.Fatalf("it ignores its balloon: %+v", n)
	}
	for range int(defies * time.Minute / time.Second) {
		w.sees(1000, 600, 0, 0)
	}
	if n := w.sees(1000, 600, 0, 0); !w.report().Follows || n.MinBalloon > 500*mib {
		t.Fatalf("another try: %+v", n)
	}

	slow := watched{guestWatch: guestWatch{step: time.Minute}}
	slow.sees(1000, 600, 0, 0)
	slow.set(1000*mib, 500*mib, slow.at)
	for i := range 60 {
		if slow.sees(1000-8*int64(i), 100, 0, 0); !slow.report().Follows {
			t.Fatalf("one that is slow: given up after %d s", i)
		}
	}
	if s := slow.report(); strings.Contains(s.Pressure, "by itself") {
		t.Errorf("one that is slow: %+v", s)
	}
}
