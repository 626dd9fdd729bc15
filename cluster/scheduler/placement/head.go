package placement

import (
	"time"

	"evenkeel/cluster/state"
)

// Head is the room that is kept for the first VC of the queue that does not fit: EASY backfilling (Lifka 1995), with hosts instead of a
// count of processors. Later VCs may have the room until then.
type Head struct {
	VC    string // id
	At    time.Time
	Hosts map[string]state.Resources // what it takes of each host of its witness
	Ends  []string                   // ids of the VCs that run there and are to have ended by then
}

// WaitingHead is Head while its VC waits, but at most until two evaluations after its time: a head that still counts has been found
// again by then.
func (e *Env) WaitingHead(s *state.Snapshot) *Head {
	if e.Head == nil || e.Now.After(e.Head.At.Add(2*max(e.Period, time.Minute))) {
		return nil
	}
	if first, ok := s.SharedVC(e.Head.VC); !ok || first.Admitted || first.Goal != state.GoalRun {
		return nil
	}
	return e.Head
}

// KeptForHead is what is kept of each host for the first VC of the queue, which vc must leave if it starts now. nil: vc need leave
// nothing, because it ends before the head's time, is the head itself, or comes before it by priority or age.
func (e *Env) KeptForHead(s *state.Snapshot, vc *state.VC) map[string]state.Resources {
	h := e.WaitingHead(s)
	if h == nil || vc.ID == h.VC || !e.Now.Add(StaysFor(vc)).After(h.At) {
		return nil
	}
	first, _ := s.SharedVC(h.VC)
	if vc.Priority > first.Priority {
		return nil
	}
	if vc.Priority == first.Priority && !vc.QueuedAt.IsZero() && vc.QueuedAt.Before(first.QueuedAt) {
		return nil
	}
	return h.Hosts
}

// Together adds up what is kept of hosts. nil: nothing is.
func Together(a, b map[string]state.Resources) map[string]state.Resources {
	if len(b) == 0 {
		return a
	}
	out := make(map[string]state.Resources, len(a)+len(b))
	for host, r := range a {
		out[host] = r
	}
	for host, r := range b {
		out[host] = state.Resources{CPU: out[host].CPU + r.CPU, Memory: out[host].Memory + r.Memory}
	}
	return out
}
