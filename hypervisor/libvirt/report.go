package libvirt

import (
	"math"
	"time"

	"libvirt.org/go/libvirt"

	"evenkeel/hypervisor"
)

// guestReport is what the guest said last of its memory. It counts for a while: a guest may crash, or unload the driver.
type guestReport struct {
	unused, available, swapIn, swapOut, majorFaults int64

	update  uint64             // the guest's last report as QEMU numbers it, by its own clock, in seconds
	at      time.Time          // when that was seen to change, or earlier: see atReport
	balloon int64              // what the guest had when it made that report
	had     [maxHad]hadBalloon // the latest first
}

// hadBalloon is what a guest had at a time.
type hadBalloon struct {
	at      time.Time
	balloon int64
}

// maxHad is how many of these are kept.
const maxHad = 8

// maxBlind is how far apart two samples may be for a report between them to be one of the later sample's balloon, or so:
// balloons follow within a second.
const maxBlind = 2 * time.Second

// atReport returns the balloon that the guest had when it made its last report, and from when on it may have made it. What a
// sample says of use is as old as that report; its balloon is newer. Where the clocks differ too much, atReport returns the
// present balloon. A report between two samples far apart, with different balloons, may be of either: it counts as made at the
// earlier one.
func (g *guestReport) atReport(now time.Time) (balloon int64, since time.Time) {
	made := time.Unix(int64(g.update), 0).Add(time.Second) //nolint:gosec // seconds since 1970
	out := g.had[0].balloon
	if age := now.Sub(made); age < -2*time.Second || age > reportsFor {
		return out, now
	}
	after := g.had[0]
	for _, had := range g.had {
		if had.at.IsZero() {
			break
		}
		if out = had.balloon; !had.at.After(made) {
			if after.balloon != out && after.at.Sub(had.at) > maxBlind {
				return out, had.at
			}
			break
		}
		after = had
	}
	return out, now
}

// left is what the report says was available, corrected for the balloon of now: the guest's own use is
// assumed to stay the same.
func (g *guestReport) left(reported, balloon int64) int64 {
	if reported < 0 {
		return reported
	}
	return min(balloon, max(0, reported+balloon-g.balloon))
}

// reportsFor is how long a guest's report counts: 60 times the period at which the guest is asked to report, for a guest
// with little CPU.
const reportsFor = 60 * statsPeriod * time.Second

var noReport = guestReport{unused: hypervisor.Unknown, available: hypervisor.Unknown,
	swapIn: hypervisor.Unknown, swapOut: hypervisor.Unknown, majorFaults: hypervisor.Unknown}

func (g guestReport) stats() (unused, available, swapIn, swapOut, majorFaults int64) {
	return g.unused, g.available, g.swapIn, g.swapOut, g.majorFaults
}

// take what the statistics of the balloon say of the guest at that time. QEMU gives the last report again and again.
func (g *guestReport) take(b *libvirt.DomainStatsBalloon, now time.Time) {
	copy(g.had[1:], g.had[:])
	g.had[0] = hadBalloon{now, int64(min(b.Current, math.MaxInt64/1024)) * 1024} //nolint:gosec // bounded
	if b.LastUpdateSet {
		forget := func() { g.unused, g.available, g.swapIn, g.swapOut, g.majorFaults = noReport.stats() }
		if b.LastUpdate != g.update {
			forget()
			g.update = b.LastUpdate
			g.balloon, g.at = g.atReport(now)
		}
		if g.update == 0 || now.Sub(g.at) > reportsFor {
			forget()
			return
		}
	}
	// Of a guest that leaves a figure out of its report libvirt says nothing.
	set := func(to *int64, is bool, value, unit uint64) {
		if is && value <= math.MaxInt64/unit {
			*to = int64(value * unit)
		}
	}
	set(&g.unused, b.UnusedSet, b.Unused, 1024)
	set(&g.available, b.UsableSet, b.Usable, 1024) // what libvirt calls available is all that the guest has
	set(&g.swapIn, b.SwapInSet, b.SwapIn, 1024)
	set(&g.swapOut, b.SwapOutSet, b.SwapOut, 1024)
	set(&g.majorFaults, b.MajorFaultSet, b.MajorFault, 1)
}
