package lease

import "time"

// Instant is a reading of one machine's CLOCK_BOOTTIME: time since it booted.
type Instant = time.Duration

// Holder is an agent's side: whether this host may run restartable VMs now. The zero Holder has no lease and enforces nothing.
// It is a value: methods return the changed one.
type Holder struct {
	// Until is the end of the lease, if Had was ever true; counted from the sending of the renewal.
	Until Instant
	// Had: there was a lease, though it may be over by now.
	Had bool
	// Enforce says whether the end of the lease stops VMs, by the leader's last answer.
	Enforce bool
}

// Granted takes in the answer to a renewal that was sent at the given instant.
// Answers may come late and out of order: the latest end counts.
func (h Holder) Granted(sent Instant, lease time.Duration, enforce bool) Holder {
	if until := sent + lease; !h.Had || until > h.Until {
		h.Until, h.Enforce = until, enforce
	}
	h.Had = true
	return h
}

// Leased says whether the lease runs at the instant.
func (h Holder) Leased(now Instant) bool { return h.Had && now < h.Until }

// MustStop says whether restartable VMs have no right to run at the instant. While fencing is disabled they have it.
func (h Holder) MustStop(now Instant) bool { return !h.Leased(now) && (h.Enforce || !h.Had) }

// MayPet says whether the agent may pet the watchdog: restartable VMs have a right to run, or none runs. running are the restartable
// VMs that the hypervisor last listed, known whether it answered.
func (h Holder) MayPet(now Instant, running int, known bool) bool {
	return !h.MustStop(now) || known && running == 0
}

// RenewEvery is how often to renew a lease.
func RenewEvery(lease time.Duration) time.Duration { return lease / 4 }
