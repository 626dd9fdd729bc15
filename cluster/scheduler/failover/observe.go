package failover

import (
	"fmt"
	"time"

	"evenkeel/cluster/lease"
	"evenkeel/cluster/state"
)

// HostReport is what a host's agent last reported of its hypervisor.
type HostReport struct {
	Reach bool   // it answers
	Error string // why it does not
}

// renewal is when a host last renewed its lease.
type renewal struct {
	ago    time.Duration // since then, or since the term began
	inTerm bool          // it renewed in this term
}

// whyUnavailable returns why nothing may be decided for a host now; "": it may.
func whyUnavailable(h *state.Host, r HostReport, reported bool, last renewal, leased time.Duration) string {
	switch {
	case h.Lost.Proof != "":
		return "is lost: " + h.Lost.Text
	case !reported:
		return "has not reported since this server leads"
	case !r.Reach:
		return "has a hypervisor that does not answer: " + r.Error
	case last.inTerm && last.ago >= leased:
		return fmt.Sprintf("has not been heard of for %s", last.ago.Round(time.Second))
	}
	return ""
}

// A new leader does not know what a host runs, nor which VMs it could take, until the host's agent has reported to it. Until all agents
// have, or until a lease has passed, in which a host that lives reports, the leader plans nothing that needs a target, and refuses
// nothing for lack of one.

// owesReport says whether a leader must not plan without a host that has not reported to it. A lost host has a proof instead,
// and one that is cordoned without a drain and without VMs is neither source nor target.
func owesReport(s *state.Snapshot, h *state.Host, reported bool) bool {
	if reported || h.Lost.Proof != "" {
		return false
	}
	return !h.Cordoned || h.Drain.State == state.DrainRunning || s.LoadOf(h.Name).VMs > 0
}

// enforcementOf returns how a host enforces its lease, by the log.
func enforcementOf(h state.Host) lease.Enforcement {
	f := h.Fencing
	return lease.Enforcement{Enforcing: f.Enforcing, Watchdog: time.Duration(f.Watchdog) * time.Millisecond, Lease: time.Duration(f.Lease) * time.Millisecond}
}

// runsRestartable says whether a host may run restartable VMs.
func runsRestartable(s *state.Snapshot, host string) (runs bool) {
	s.EachVMOn(host, func(vm *state.VM) bool {
		if vm.ConsumesResources() && (vm.Host != host || !s.SourceLost(vm)) {
			vc, _ := s.VC(vm.VC)
			runs = vc.Restartable()
		}
		return !runs
	})
	return runs
}

// arrivals notes by VM when this leader first observed that the VM was proved gone from the source of its move.
type arrivals map[string]arrival

type arrival struct {
	index uint64 // of the log, since when it is proved: state.Migration.SourceLostSince
	at    lease.Instant
}

// at says whether a restartable VM may have come to the host, by migration, after its lease had ended, so that the watchdog may
// not have reset the host since. A VM cannot come any more once it is proved gone from its source.
func (a arrivals) at(s *state.Snapshot, h state.Host, now lease.Instant) (coming bool) {
	wait := lease.Stopped(time.Duration(h.Fencing.Watchdog) * time.Millisecond)
	for _, vm := range s.VMsMovingTo(h.Name) {
		m, _ := s.MigrationOf(vm.ID)
		if m.SourceLost == 0 {
			continue
		}
		since, known := a[vm.ID]
		if !known || since.index != m.SourceLostSince() {
			since = arrival{m.SourceLostSince(), now}
			a[vm.ID] = since
		}
		coming = coming || now-since.at < wait
	}
	return coming
}
