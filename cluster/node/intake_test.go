package node

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

// Entries that come together are written together, and each has its own index and outcome.
func TestIntake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var writes atomic.Int64
		s := open(t, Options{Dir: t.TempDir(), Fault: func(write string) error {
			if write == WriteLog {
				writes.Add(1)
			}
			return nil
		}}).lead(t)
		const n = 300
		writes.Store(0)
		var wg sync.WaitGroup
		var mu sync.Mutex
		indexes := map[uint64]bool{}
		refused := 0
		for i := range n {
			wg.Go(func() {
				index, outcome, err := s.Apply(t.Context(), entry(i/2)) // each comes twice: the second is refused
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Errorf("entry %d: %v", i, err)
				}
				if indexes[index] {
					t.Errorf("two entries have the index %d", index)
				}
				indexes[index] = true
				if outcome != nil {
					refused++
				}
			})
		}
		wg.Wait()
		if refused != n/2 || len(s.o.State.Snapshot().Images()) != n/2 {
			t.Errorf("%d refused, %d images, want %d of each", refused, len(s.o.State.Snapshot().Images()), n/2)
		}
		if w := writes.Load(); w > n/4 {
			t.Errorf("%d writes for %d entries that came together", w, n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := s.Apply(ctx, entry(n)); !errors.Is(err, ErrUnknown) {
			t.Errorf("an entry of a member that has left: %v", err)
		}
		s.close(t)
		if _, _, err := s.Apply(t.Context(), entry(n+1)); !errors.Is(err, ErrClosed) {
			t.Errorf("an entry for a closed server: %v", err)
		}
	})
}
