package agent

import (
	"reflect"
	"slices"
	"time"
)

// What is worth a call to the leader, and what is not: where many VMs come and go, the calls of their hosts are most of the
// servers' work.

// sentStatus is a status that the leader has taken.
type sentStatus struct {
	status Status
	at     time.Time
}

// plain is a status that leaves nothing open: a VM runs as it was started, or nothing of it is left.
func plain(st Status) bool {
	return st.Move == 0 && st.ChargedMemory == 0 && (st.Phase == PhaseRunning || st.Phase == PhaseStopped && st.SourceLost)
}

// knows says whether the leader has all that a report has, except for the list of what runs, which the end of the round
// reports. Where VMs may come and go by themselves, that list is reported at once.
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

// mayWait says whether a round need not be reported: it did something, so that the next one follows at once and sees what came
// of it, and it has nothing to report that the next one will not report as well.
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

// unacknowledged are the statuses that the leader has not taken yet.
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

// ungranted returns the VMs that do not get the CPU or memory that they are to have more. all: nothing else is left to do,
// except to report what is done.
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
