package agent

import (
	"reflect"
	"slices"
	"time"
)

// This file decides what is worth a call to the leader. Where many VMs come and go, the calls of their hosts are most of the servers'
// work.

// sentStatus is a status that the leader has taken.
type sentStatus struct {
	status Status
	at     time.Time
}

// plain is a status that leaves nothing open: a VM runs as it was started, or nothing of it is left.
func plain(st Status) bool {
	return st.Move == 0 && st.ChargedMemory == 0 && (st.Phase == PhaseRunning || st.Phase == PhaseStopped && st.SourceLost)
}

// knows says whether the leader has all of a report, apart from the list of what runs. The report at the end of the round brings that
// list; it is sent at once if a migration may add or remove VMs meanwhile.
func (r *runner) knows(now Report) bool {
	if len(now.Moves) > 0 || slices.ContainsFunc(now.Running, func(i Instance) bool { return i.Incoming || i.Leaving }) {
		return false
	}
	was := r.last
	for _, p := range []*Report{&was, &now} {
		p.Running, p.Statuses, p.Samples, p.Estimates, p.Pressure, p.Available, p.Unmanaged, p.Lacking, p.Index, p.Quiet = nil, nil, nil, nil, nil, nil, nil, nil, 0, false
	}
	return reflect.DeepEqual(was, now)
}

// mayWait says whether a round need not be reported. It may wait if it did something, because the next round then follows at once, and
// if the next round will report everything that it has to report. Rounds wait for unspokenFor at most.
func (r *runner) mayWait(done outcome) bool {
	if done.acted == 0 || len(r.left) > 0 || len(r.moves) > 0 || r.underPressure() || slices.ContainsFunc(done.statuses, func(st Status) bool { return !plain(st) }) {
		r.unspoken = time.Time{}
		return false
	}
	if r.unspoken.IsZero() {
		r.unspoken = time.Now()
		return true
	}
	if time.Since(r.unspoken) < unspokenFor {
		return true
	}
	r.unspoken = time.Time{}
	return false
}

// unacknowledged are the statuses to send: all but plain ones that the leader has taken within resendAfter.
func (r *runner) unacknowledged(statuses []Status) []Status {
	return slices.DeleteFunc(statuses, func(st Status) bool {
		was, is := r.sent[st.VM]
		return is && was.status == st && time.Since(was.at) < resendAfter
	})
}

// has notes that the leader has taken these statuses.
func (r *runner) has(statuses []Status) {
	for id, s := range r.sent {
		if time.Since(s.at) >= resendAfter {
			delete(r.sent, id)
		}
	}
	for _, st := range statuses {
		delete(r.sent, st.VM)
		if plain(st) {
			r.sent[st.VM] = sentStatus{st, time.Now()}
		}
	}
}

// ungranted returns the VMs that do not get the additional CPU or memory that they are to have. all: the operations have nothing else
// to do, apart from plain statuses and Undefine.
func ungranted(ops []Operation) (vms []string, all bool) {
	for _, op := range ops {
		switch op := op.(type) {
		case Blocked:
			if !op.More {
				return nil, false
			}
			if !slices.Contains(vms, op.VM) {
				vms = append(vms, op.VM)
			}
		case ReportStatus:
			if !plain(op.Status) {
				return nil, false
			}
		case Undefine:
		default:
			return nil, false
		}
	}
	return vms, true
}
