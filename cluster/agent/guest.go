package agent

import (
	"fmt"
	"slices"
	"time"

	"evenkeel/hypervisor"
)

// GuestNeed is the memory that the host itself asks for a guest. The zero value asks for nothing.
type GuestNeed struct {
	MinBalloon int64 // bytes: its balloon is not shrunk below that
	Raise      int64 // bytes: it is short of memory, and to have that much as far as there is room
	Enough     int64 // bytes that suffice for now, by what the guest uses; 0 = not known
}

// guestWatch is what an agent observes of one guest's memory over time. One with only a step has observed nothing.
type guestWatch struct {
	step       time.Duration // of forecasts
	generation uint64
	points     []guestPoint // of a while, oldest first
	last       hypervisor.Stats
	memory     int64 // most it can have

	target     int64 // the size to which this agent last set its balloon; 0: it set none
	reached    bool  // the balloon got to target
	nearest    int64 // the smallest distance from target so far, bytes
	progressed time.Time
	defied     time.Time     // when it was found not to follow; zero: it was not
	moved      time.Time     // when the balloon was last seen to be of another size, or set
	falls      []balloonFall // within reportDelay before the last measurement, oldest first
	margin     int64         // bytes that may be left beyond what the last report says, see balloonFall

	taken   int64     // bytes in use, and in its swap since it booted, by the report before
	takenAt time.Time // that report; zero: there is none
	rate    float64   // bytes a second that it took into use between its last two reports

	pressure   string // by its last report
	grant      int64  // bytes it is to have because of that; 0 = no grant
	raised     time.Time
	pressureAt time.Time // when it was under memory pressure last
}

// balloonFall is by how much a balloon fell, or may have fallen between two measurements. A report says what was left with the balloon
// of its time, which is known to about reportDelay: if the balloon fell meanwhile, that much more may be left than the report seems to say.
type balloonFall struct {
	at    time.Time
	bytes int64
}

type guestPoint struct {
	at             time.Time
	swapIn, faults int64
}

// set notes that the balloon is being set.
func (g *guestWatch) set(from, to int64, now time.Time) {
	if g.target != to {
		if low := g.target; low > 0 && low < to && low < g.last.Balloon { // it may have been there since the last measurement
			g.falls = append(g.falls, balloonFall{now, g.last.Balloon - low})
		}
		g.target, g.reached, g.nearest, g.progressed, g.moved = to, false, distance(from, to), now, now
	}
	if to < from && to < g.grant { // the host takes back, where memory is short, what the guest does not use of its grant
		g.grant = to
	}
}

func distance(a, b int64) int64 { return max(a-b, b-a) }

// observe takes in a measurement of a guest that can have that much memory.
func (g *guestWatch) observe(s hypervisor.Stats, memory int64, window time.Duration) {
	if g.generation != s.Generation {
		*g = guestWatch{step: g.step, generation: s.Generation}
	}
	g.memory = memory
	g.follow(s)
	if len(g.points) > 0 && s.MajorFaults < g.points[len(g.points)-1].faults {
		g.points = nil // it was booted again, or fell silent
	}
	if s.MajorFaults >= 0 || s.SwapIn >= 0 {
		g.points = append(g.points, guestPoint{s.At, s.SwapIn, s.MajorFaults})
	}
	for len(g.points) > 2 && s.At.Sub(g.points[1].at) >= window {
		g.points = g.points[1:]
	}
	if distance(s.Balloon, g.last.Balloon) > balloonSlack {
		g.moved = s.At
	}
	g.measureMargin(s)
	took := g.reached && g.target > 0 && s.Balloon > g.target+balloonSlack
	g.last = s
	g.measureRate()
	if g.pressure = g.pressureReason(took); g.pressure != "" || g.outruns() {
		g.pressureAt = s.At
		g.raise(took)
	}
	if g.grant > 0 && s.At.Sub(g.pressureAt) > grantStays*g.step {
		g.grant = 0
	}
}

// follow notes how far the balloon is.
func (g *guestWatch) follow(s hypervisor.Stats) {
	if g.target == 0 {
		return
	}
	switch off := distance(s.Balloon, g.target); {
	case g.reached:
	case off <= balloonSlack:
		g.reached, g.defied = true, time.Time{}
	case off < g.nearest-balloonSlack:
		g.nearest, g.progressed = off, s.At
	case s.At.Sub(g.progressed) > balloonPatient && g.defied.IsZero():
		g.defied = s.At
	}
	if !g.defied.IsZero() && s.At.Sub(g.defied) > defies*g.step {
		g.target, g.defied = 0, time.Time{}
	}
}

// measureMargin finds the margin of a report that is new with this measurement.
func (g *guestWatch) measureMargin(s hypervisor.Stats) {
	if less := g.last.Balloon - s.Balloon; less > 0 {
		g.falls = append(g.falls, balloonFall{s.At, less})
	}
	g.falls = slices.DeleteFunc(g.falls, func(f balloonFall) bool { return s.At.Sub(f.at) >= reportDelay })
	if s.Reported.IsZero() || !s.Reported.Equal(g.last.Reported) {
		g.margin = 0
		for _, f := range g.falls {
			g.margin += f.bytes
		}
	}
}

// left is what may be left of the balloon by the last report.
func (g *guestWatch) left() int64 { return min(g.last.Balloon, g.last.Available+g.margin) }

// rates returns what the guest read back since the oldest measurement of the window: bytes and faults per second.
func (g *guestWatch) rates() (swapIn, faults float64) {
	if len(g.points) < 2 {
		return 0, 0
	}
	a, b := g.points[0], g.points[len(g.points)-1]
	wall := b.at.Sub(a.at).Seconds()
	if wall <= 0 {
		return 0, 0
	}
	return max(0, float64(b.swapIn-a.swapIn)) / wall, max(0, float64(b.faults-a.faults)) / wall
}

// measureRate updates the rate at which the guest takes memory, if the guest has reported again. Memory that went to its swap counts as
// taken.
func (g *guestWatch) measureRate() {
	s := g.last
	if !g.reports() || s.Reported.IsZero() || !g.reportedSinceResize() || g.margin > balloonSlack {
		g.takenAt, g.rate = time.Time{}, 0
		return
	}
	wall := s.Reported.Sub(g.takenAt)
	if wall < glanceEvery/2 { // so short a time says nothing
		return
	}
	taken := g.used() + max(0, s.SwapOut) - max(0, s.SwapIn)
	if g.rate = 0; !g.takenAt.IsZero() && wall <= rateWindow {
		g.rate = max(0, float64(taken-g.taken)/wall.Seconds())
	}
	g.taken, g.takenAt = taken, s.Reported
}

// outruns says whether the guest takes memory so fast that it would have none left before its host can act on its next report. Such a
// guest gets more memory but is not under memory pressure: it has missed nothing yet, and no other VM is evicted for it.
func (g *guestWatch) outruns() bool {
	return g.reports() && g.last.Balloon < g.memory-balloonSlack && float64(g.left()) < g.rate*outrunWithin.Seconds()
}

// reports says whether the guest reports what it uses.
func (g *guestWatch) reports() bool { return g.last.Available >= 0 && g.last.Balloon > 0 }

// reportedSinceResize says whether the guest reported since its balloon moved. Before that, its available memory and its balloon are of
// different times: their ratio says nothing.
func (g *guestWatch) reportedSinceResize() bool {
	return g.last.Reported.IsZero() || g.last.Reported.After(g.moved) || g.last.Reported.Equal(g.last.At)
}

// used is the memory without which the guest cannot run, bytes.
func (g *guestWatch) used() int64 { return max(0, g.last.Balloon-g.last.Available) }

// pressureReason says why the guest is short of memory; "" = it is not, or that is not known. took: the guest took memory back by
// itself.
func (g *guestWatch) pressureReason(took bool) string {
	s := g.last
	if took {
		return fmt.Sprintf("it ran out of memory and took %d MiB back by itself", (s.Balloon-g.target)>>20)
	}
	if !g.reports() || !g.reportedSinceResize() {
		return ""
	}
	left := g.left()
	share := float64(left) / float64(s.Balloon)
	swap, faults := g.rates()
	switch {
	case share < pressureBelow:
		return fmt.Sprintf("%d of %d MiB are left", left>>20, s.Balloon>>20)
	case share < swapsBelow && swap > swapRate:
		return fmt.Sprintf("it swaps: %.1f MiB/s, %d of %d MiB are left", swap/(1<<20), left>>20, s.Balloon>>20)
	case share < swapsBelow && faults > faultRate:
		return fmt.Sprintf("it reads pages again: %.0f/s, %d of %d MiB are left", faults, left>>20, s.Balloon>>20)
	}
	return ""
}

// raise raises the grant of a guest that needs more memory by a step, once the guest has reported since the last step.
func (g *guestWatch) raise(took bool) {
	s := g.last
	if s.Balloon >= g.memory-balloonSlack { // it has all there is
		g.grant = g.memory
		return
	}
	if g.grant > s.Balloon+balloonSlack || s.Reported.Before(g.raised) && !took {
		return // there is no room for it yet, or it has not reported since it got the last
	}
	g.grant = min(g.memory, max(g.grant, s.Balloon+g.memory/grantStep, g.used()+g.memory/grantStep))
	g.raised = s.At
}

// content says whether the guest, with less memory than its grant, reported that it is not short of memory any more, while no more is
// on its way to it.
func (g *guestWatch) content() bool {
	return g.pressure == "" && !g.outruns() && g.reports() && g.reportedSinceResize() && g.margin <= balloonSlack && !g.last.Reported.Before(g.raised) && (g.reached || g.target <= g.last.Balloon)
}

// need returns the guest's need now.
func (g *guestWatch) need() GuestNeed {
	n := GuestNeed{MinBalloon: g.grant}
	if g.grant > g.last.Balloon+balloonSlack && !g.content() {
		n.Raise = g.grant
	}
	if g.reports() {
		bears := min(g.last.Balloon, (int64(float64(g.used())/squeezeTo)+balloonSlack-1)/balloonSlack*balloonSlack)
		n.MinBalloon = max(n.MinBalloon, bears)
		if g.pressure == "" && !g.outruns() && g.defied.IsZero() && g.reportedSinceResize() {
			n.Enough = bears
		}
	}
	if !g.defied.IsZero() && g.target < g.last.Balloon {
		n.MinBalloon = max(n.MinBalloon, g.last.Balloon)
	}
	return n
}

// report returns what the guest reports; nil of a guest that reports nothing.
func (g *guestWatch) report() *Guest {
	if !g.reports() && g.last.Unused < 0 {
		return nil
	}
	swap, faults := g.rates()
	out := &Guest{Available: g.last.Available, Unused: g.last.Unused, SwapIn: swap, MajorFaults: faults, Follows: g.defied.IsZero()}
	if g.last.Balloon < g.memory-balloonSlack {
		out.Pressure = g.pressure
	}
	return out
}
