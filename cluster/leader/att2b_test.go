package leader_test

import (
	"testing"

	"evenkeel/cluster/leader"
	"evenkeel/test/scratch"
)

// a rollback to "the one before" that is sent again under its key gets the first answer.
func TestAtt2RollbackReplay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startCluster(t, scratch.Dir(t), newWorld(t, 2), 2)
		ctx := t.Context()
		spec := vc("a", 2, 1, 512*mib)
		how := leader.Apply{Verb: "apply", Create: true}
		c.done(c.Apply(ctx, spec, how, leader.Call{}))
		spec.Priority = 5
		c.done(c.Apply(ctx, spec, how, leader.Call{}))
		first, err := c.Rollback(ctx, "a", 0, leader.Apply{}, leader.Call{IdempotencyKey: "k"})
		t.Logf("%v %v", first.Operation.ID, err)
		again, err := c.Rollback(ctx, "a", 0, leader.Apply{}, leader.Call{IdempotencyKey: "k"})
		if err != nil || !again.Replayed {
			t.Errorf("again: %+v, %v", again.Operation, err)
		}
	})
}
