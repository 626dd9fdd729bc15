package admission

import (
	"slices"

	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
)

// QueueCache is what the leader keeps of the queue from one plan to the next. The zero value knows nothing.
type QueueCache struct {
	fitting []string        // ids of VCs that were found to fit and are not admitted yet
	known   map[string]bool // ids of the queue as it was then
}

// Admit returns a plan that admits one VC of the queue, nil if none fits. The whole queue is decided at once. That decision is
// void once another VC joins the queue.
func (t *QueueCache) Admit(s *state.Snapshot, env placement.Env) *state.Plan {
	queue := Queue(s)
	isNew := func(vc state.VC) bool { return !t.known[vc.ID] }
	for decided := false; ; {
		if len(t.fitting) == 0 || slices.ContainsFunc(queue, isNew) {
			if decided || len(queue) == 0 {
				return nil
			}
			decided = true
			t.fitting, t.known = Fitting(s, env), map[string]bool{}
			for _, vc := range queue {
				t.known[vc.ID] = true
			}
			if len(t.fitting) == 0 {
				return nil
			}
		}
		id := t.fitting[0]
		t.fitting = t.fitting[1:]
		if p := Admit(s, id, env); p != nil {
			return p
		}
	}
}
