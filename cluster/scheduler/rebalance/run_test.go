package rebalance

import (
	"fmt"
	"slices"
	"testing"

	"evenkeel/cluster/state"
)

// Room is looked for for every VC of a queue, the first ones at each look.
func TestInTurn(t *testing.T) {
	for n := range 12 {
		var queue []state.VC
		for i := range n {
			queue = append(queue, state.VC{ID: fmt.Sprint(i)})
		}
		tried, last := map[string]int{}, "gone"
		looks := max(1, n)
		for range looks {
			look := inTurn(queue, last)
			if len(look) != min(n, maxRoomTries) || slices.ContainsFunc(look[min(n, maxRoomFirst):], func(vc state.VC) bool {
				return slices.ContainsFunc(look[:min(n, maxRoomFirst)], func(f state.VC) bool { return f.ID == vc.ID })
			}) {
				t.Fatalf("queue of %d: %v", n, look)
			}
			for i, vc := range look {
				tried[vc.ID]++
				if i >= maxRoomFirst {
					last = vc.ID
				}
			}
		}
		for i, vc := range queue {
			if tried[vc.ID] == 0 || i < maxRoomFirst && tried[vc.ID] != looks {
				t.Errorf("queue of %d: number %d was tried %d times in %d looks", n, i, tried[vc.ID], looks)
			}
		}
	}
}
