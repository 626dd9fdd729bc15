package leader_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
	"evenkeel/test/scratch"
)

// Requests side by side on a cluster that is large enough for their plans to be on their way together: each
// is done once and whole, whatever the others do; a key that several use at once is one request.
func TestSideBySide(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const clients, rounds, hosts = 12, 6, 66
		c := startCluster(t, scratch.Dir(t), newWorld(t, hosts), hosts)
		defer c.stop()
		ctx := t.Context()
		small := func(name string, count int) state.VC {
			return state.VC{Name: name, MinYield: -1, OnFull: state.Reject, Groups: []state.Group{{Name: "g", Count: count, CPU: 0.5, Memory: 128 << 20, Image: "tiny"}}}
		}
		if _, _, err := c.AddImage(ctx, state.Image{Name: "tiny", Kind: state.KernelImage, File: "/images/tiny"}, leader.Call{}); err != nil && !errors.Is(err, leader.ErrConflict) {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		shared := make([]leader.Result, clients)
		for n := range clients {
			wg.Go(func() {
				r, err := c.Create(ctx, small("shared", 2), leader.Call{IdempotencyKey: "one-key"})
				if err != nil {
					t.Errorf("shared: %v", err)
				}
				shared[n] = r
				for i := range rounds {
					name := fmt.Sprintf("x%d-%d", n, i)
					r, err := c.Create(ctx, small(name, 1+i%3), leader.Call{})
					if err != nil {
						t.Errorf("create %s: %v", name, err)
						return
					}
					if r.Operation.Index == 0 || r.VC.Groups[0].Yield() != 1 || !r.Decision.Admitted {
						t.Errorf("create %s: %+v", name, r)
					}
					if _, err := c.Create(ctx, small(name, 1), leader.Call{}); !errors.Is(err, leader.ErrConflict) {
						t.Errorf("create %s again: %v", name, err)
					}
					if i%2 == 0 {
						if _, err := c.Delete(ctx, name, leader.Call{}); err != nil {
							t.Errorf("delete %s: %v", name, err)
						}
					}
					if i == 3 { // one that is planned alone, between those that are not
						four := 4
						if _, err := c.Scale(ctx, name, leader.Scale{Count: &four}, leader.Call{}); err != nil {
							t.Errorf("scale %s: %v", name, err)
						}
					}
				}
			})
		}
		wg.Wait()
		for _, r := range shared {
			if r.Operation.ID != shared[0].Operation.ID || r.VC.ID != shared[0].VC.ID {
				t.Errorf("one key, two requests: %+v, %+v", shared[0], r)
			}
		}
		want := 2
		for i := 1; i < rounds; i += 2 {
			if count := 1 + i%3; i == 3 {
				want += clients * 4
			} else {
				want += clients * count
			}
		}
		c.eventually(fmt.Sprintf("%d VMs run, and no other is there", want), func(v *leader.View) bool {
			return state.CountPhases(v.VMs()) == state.Count{Running: want}
		})
		if doubled := c.world.Audit().Doubled; len(doubled) > 0 {
			t.Errorf("ran twice: %v", doubled)
		}
	})
}
