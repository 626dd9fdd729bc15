package libvirt

import (
	"time"

	"evenkeel/hypervisor"
)

// pollInterval is how often a migration's figures are asked for at most. QEMU
// may take a second to answer, and to abort, while its VM is throttled: budget
// allows for that.
const pollInterval = 50 * time.Millisecond

// stallAllowance is how long this process may be kept from the CPU between two looks without the budget being exceeded.
const stallAllowance = 200 * time.Millisecond

// sendWindow is the span over which QEMU keeps to the bandwidth: what it allows for a window may be sent at its start.
const sendWindow = 100 * time.Millisecond

// diskBurst is what QEMU sends of a disk before it heeds the bandwidth: it reads up to 16 MiB ahead.
const diskBurst = 16 << 20

// progress is how far a migration got, and what else decides when to switch to post-copy.
type progress struct {
	moved hypervisor.Moved
	pass  int // over the guest's memory, from 1; 0 = not begun
}

// budget bounds what a migration may have sent by the time an abort would take
// effect: by its bandwidth and the time since the last figures, and by what there
// was left to send.
type budget struct {
	limit   int64   // bytes; 0 = none
	rate    float64 // bytes per second, which QEMU keeps to
	burst   float64 // bytes that may be sent beyond that at once
	last    hypervisor.Moved
	pass    int
	known   bool // last holds figures of a migration under way
	at      time.Time
	took    time.Duration // until the last figures came
	slowest time.Duration // that figures took to come, lately
}

// stats takes what QEMU said in an answer asked for at one time and received at another.
func (b *budget) stats(p progress, asked, received time.Time) {
	b.took = received.Sub(asked)
	b.slowest = max(b.slowest-b.slowest/16, b.took)  // on a busy machine one answer may take seconds, and the next none
	p.moved.Bytes = max(p.moved.Bytes, b.last.Bytes) // libvirt reports a migration that is just failing with zeros
	b.last, b.pass, b.at = p.moved, p.pass, asked
	b.known = b.known || p.moved.Bytes > 0
}

// since is the most that may have been sent since the last figures, after so long.
func (b *budget) since(lag time.Duration) float64 {
	more := b.rate*(lag+sendWindow).Seconds() + b.burst
	if b.known && b.pass > 0 { // while a disk is copied libvirt reports what is left of the disk, and not the memory
		more = min(more, float64(b.last.Remaining)+b.last.Dirty*lag.Seconds())
	}
	return more
}

// bound is the most that may have been sent when an abort asked for now takes effect.
func (b *budget) bound(now time.Time) int64 {
	return b.last.Bytes + int64(b.since(now.Sub(b.at)+pollInterval+stallAllowance+2*b.slowest))
}

func (b *budget) exceeded(now time.Time) bool { return b.limit > 0 && b.bound(now) > b.limit }

// charged is what a move that was aborted, or failed, counts as having sent. QEMU's own count is gone with the
// move, so the most that it can have sent since the last figures counts. An abort because of the budget came in time.
func (b *budget) charged(now time.Time) int64 {
	limit := b.last.Bytes + int64(b.since(now.Sub(b.at)))
	if b.limit > 0 {
		limit = min(limit, b.limit)
	}
	return max(limit, b.last.Bytes)
}

// pagesTwice is the part of what is left that a switch to post-copy may send in vain: pages on their way
// when it happens, and the list of those that are to be sent again.
const pagesTwice = 0.03

// latePasses is how many passes over the memory are made before post-copy is thought of: most guests need two or three.
const latePasses = 4

// rest reports whether all that is left can be sent once within the limit. After a switch to post-copy nothing
// is written again here, and nothing can abort the move.
func (b *budget) rest(now time.Time) bool {
	if b.pass < 2 { // a pass is needed in which everything is sent: the guest waits for each page that is missing
		return false
	}
	lag := now.Sub(b.at) + pollInterval + 2*b.took
	highest := float64(b.last.Remaining)*(1+pagesTwice) + b.last.Dirty*lag.Seconds() + (1 << 20)
	return b.limit == 0 || float64(b.last.Bytes)+highest <= float64(b.limit)
}

// passFits says whether the limit holds a pass over what is left and, after it, one over what was written meanwhile.
func (b *budget) passFits() bool {
	rate := b.last.Rate
	if b.rate > 0 {
		rate = b.rate
	}
	if b.limit == 0 || rate <= 0 {
		return true
	}
	left := float64(b.last.Remaining)
	return float64(b.last.Bytes)+left+min(left*b.last.Dirty/rate, left) <= float64(b.limit)
}

// switchOver says whether to switch to post-copy now: it would keep the budget, and going on without it has been tried
// long enough, or would exceed the budget, or more than half of the move's time has passed.
func (b *budget) switchOver(now, begun, deadline time.Time) bool {
	late := !deadline.IsZero() && now.Sub(begun) > deadline.Sub(now)
	return b.rest(now) && (b.pass >= latePasses || late || !b.passFits() || b.exceeded(now))
}
