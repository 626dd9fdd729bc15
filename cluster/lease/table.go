package lease

import (
	"fmt"
	"time"
)

// Rates is how far the rates of two clocks may differ, as a fraction.
const Rates = 0.01

// Margin is how long the leader waits beyond the end of the lease and the time-out of the watchdog, for rounding, scheduling
// and the reset itself.
const Margin = 2 * time.Second

// Stopped is how long a restartable VM may run on a host after it came there without a lease, if a watchdog of that time-out is armed
// there. The agent lists what runs every few seconds and stops the VM, or no longer pets the watchdog.
func Stopped(watchdog time.Duration) time.Duration {
	need := watchdog + 5*time.Second
	return need + time.Duration(float64(need)*Rates) + Margin
}

// Enforcement is how a host enforces its lease, as the log has it: its renewals reported it, and were answered after it was
// recorded.
type Enforcement struct {
	Enforcing bool
	Watchdog  time.Duration // time-out of the armed watchdog, 0 = none is armed
	// Lease is the longest lease that the host may have since its last renewal, of this leader or of one whose leases are
	// longer.
	Lease time.Duration
}

// Table is the leader's side: when it last answered a renewal of each host, in this term. It belongs to one term and to one goroutine
// at a time.
type Table struct {
	lease         time.Duration
	elected       Instant
	hosts         map[string]Instant
	pendingLosses map[string]int // losses on their way into the log
}

// NewTable makes the table at the leader's election, for leases of that length. Every host counts as renewed then.
func NewTable(lease time.Duration, elected Instant) *Table {
	return &Table{lease: lease, elected: elected, hosts: map[string]Instant{}, pendingLosses: map[string]int{}}
}

// Renewed notes that the host's renewal is about to be answered. The caller must call it before the answer leaves, so that the
// host's lease can only end earlier than what is counted here. False: the caller must not answer, the host's loss is on its way
// into the log.
func (t *Table) Renewed(host string, now Instant) bool {
	if t.pendingLosses[host] > 0 {
		return false
	}
	t.hosts[host] = max(t.hosts[host], now)
	return true
}

// BeginLoss notes that a proof of the host's loss is on its way into the log. The proof does not cover what the host begins
// now: it is granted nothing until Recorded, which the caller calls once it knows the outcome of the entry.
func (t *Table) BeginLoss(host string) { t.pendingLosses[host]++ }

// Recorded ends what BeginLoss began.
func (t *Table) Recorded(host string) { t.pendingLosses[host]-- }

// Leased says whether the host has a lease, and may be granted something on it.
func (t *Table) Leased(host string, now Instant) bool {
	ago, _ := t.Heard(host, now)
	return ago < t.lease && !t.LossPending(host)
}

// LossPending says whether the host's loss is on its way into the log.
func (t *Table) LossPending(host string) bool { return t.pendingLosses[host] > 0 }

// Heard says whether the host renewed in this term, and how long ago it last did, or
// how long ago the term began.
func (t *Table) Heard(host string, now Instant) (ago time.Duration, inTerm bool) {
	at, inTerm := t.hosts[host]
	if !inTerm {
		at = t.elected
	}
	return now - at, inTerm
}

// Verdict is the leader's judgement of a host.
type Verdict struct {
	// Leased: the host has its lease, as far as this leader knows.
	Leased bool
	// Over: the host has surely stopped its restartable VMs, or is off.
	Over bool
	// In is how long it takes until Over, if the host does not renew; 0 if it is over, below 0 if it never will be.
	In time.Duration
	// Text says why it is not over, or how it is proved.
	Text string
}

// Judge judges a host by its silence alone.
func (t *Table) Judge(host string, enforcement Enforcement, fencing bool, now Instant) Verdict {
	ago, _ := t.Heard(host, now)
	if ago < t.lease {
		return Verdict{Leased: true, In: -1, Text: "it holds a lease"}
	}
	switch {
	case !fencing:
		return Verdict{In: -1, Text: "fencing is disabled: the end of its lease proves nothing"}
	case !enforcement.Enforcing:
		return Verdict{In: -1, Text: "it does not enforce its lease: its silence proves nothing"}
	case enforcement.Watchdog <= 0:
		return Verdict{In: -1, Text: "it has no armed watchdog: its silence proves nothing"}
	}
	need := max(t.lease, enforcement.Lease) + enforcement.Watchdog
	need += time.Duration(float64(need)*Rates) + Margin
	if left := need - ago; left > 0 {
		return Verdict{In: left, Text: fmt.Sprintf("its watchdog turns it off within %s", left.Round(time.Second))}
	}
	return Verdict{Over: true, Text: fmt.Sprintf("its lease ended, and its watchdog of %s with it: nothing heard for %s", enforcement.Watchdog, ago.Round(time.Second))}
}
