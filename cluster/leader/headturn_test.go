package leader_test

import (
	"testing"
	"time"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
)

// The room that is kept for the first of the queue outlives the leader: neither what waits behind it nor what comes right after a change
// of leaders takes it.
func TestHeadKeepsItsTurn(t *testing.T) {
	recommendationIn(t, func(t *testing.T, h *rightsizedHost) {
		create := func(name string, memory int64, duration int64) {
			t.Helper()
			spec := vc(name, 1, 0.5, memory)
			spec.OnFull, spec.Duration = state.Queue, duration
			if _, err := h.Create(t.Context(), spec, leader.Call{}); err != nil {
				t.Fatal(err)
			}
		}
		waits := func(when string, names ...string) {
			t.Helper()
			for _, name := range names {
				if x, ok := h.store.Snapshot().VCNamed(name); !ok || x.Admitted {
					t.Errorf("%s: %s took room that is kept for the first of the queue: %s", when, name, x.Decision.Summary)
				}
			}
		}
		create("runs", 5<<30, 3600)
		h.pass(20 * time.Second)
		create("first", 6<<30, 0)
		h.pass(70 * time.Second)
		create("behind", 2<<30, 0)
		waits("before", "first", "behind")
		h.end()
		h.lead(2)
		h.report()
		create("late", 2<<30, 0)
		waits("another leader", "first", "behind", "late")
		for range 8 {
			h.pass(10 * time.Second)
			waits("a while later", "first", "behind", "late")
		}
		if _, err := h.Delete(t.Context(), "runs", leader.Call{}); err != nil {
			t.Fatal(err)
		}
		h.pass(90 * time.Second)
		if x, _ := h.store.Snapshot().VCNamed("first"); !x.Admitted {
			t.Errorf("the first of the queue does not run: %s", x.Decision.Summary)
		}
	})
}
