package state_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"evenkeel/cluster/state"
)

// Keys are bounded in number: the oldest go first, and no tenant's requests push out the keys of another.
func TestRememberedKeysAreBounded(t *testing.T) {
	const limit, slack = 10_000, 256
	k := small(t, 1)
	k.must(t, state.KindPlan, planOf(k.Snapshot(), "a", 1, gib, "h1"))
	film := func(n int) string { return state.KeyOfTenant("film", 7, fmt.Sprintf("k%d", n)) }
	put := func(key string) {
		t.Helper()
		k.must(t, state.KindPlan, state.Plan{Basis: uint64(len(k.log)), Remembered: &state.Remembered{Key: key, Fingerprint: "f", Operation: "op"}})
	}
	for n := range 100 {
		put(film(n))
	}
	later, half := state.New(), 0
	const mine = limit + 2*slack
	for n := range mine {
		if n == limit-500 {
			if err := later.Restore(strings.NewReader(save(t, k.Snapshot()))); err != nil {
				t.Fatal(err)
			}
			half = len(k.log)
		}
		if len(k.log)%slack == slack-1 { // the entry at which keys are counted is refused
			if err := k.apply(t, state.KindPlan, state.Plan{Basis: 1 << 40, Remembered: &state.Remembered{Key: "never"}}); !errors.Is(err, state.ErrConflict) {
				t.Fatal(err)
			}
		}
		put(fmt.Sprintf("mine-%d", n))
	}
	there := func(key string) bool { _, is := k.Snapshot().Remembered(key); return is }
	for n := range 100 {
		if !there(film(n)) {
			t.Fatalf("key %d of a tenant with 100 keys was pushed out by those of another", n)
		}
	}
	kept, oldest := 0, -1
	for n := range mine {
		if is := there(fmt.Sprintf("mine-%d", n)); is {
			kept++
			if oldest < 0 {
				oldest = n
			}
		}
	}
	if kept+100 < limit-1 || kept+100 > limit+slack {
		t.Errorf("%d keys are kept", kept+100)
	}
	if oldest+kept != mine {
		t.Errorf("%d keys are kept of those from %d to %d: not the newest", kept, oldest, mine)
	}
	for _, step := range []int{1, 64, 1000} { // applied one by one, and together
		again := state.New()
		if err := again.Restore(strings.NewReader(save(t, later.Snapshot()))); err != nil {
			t.Fatal(err)
		}
		var entries []state.Entry
		for i, entry := range k.log[half:] {
			entries = append(entries, state.Entry{Index: uint64(half + i + 1), Data: entry})
		}
		for part := range slices.Chunk(entries, step) {
			again.ApplyAll(part)
		}
		if save(t, again.Snapshot()) != save(t, k.Snapshot()) {
			t.Errorf("a server that was started again, and applies %d entries at a time, keeps other keys", step)
		}
	}
}

func TestFairLimit(t *testing.T) {
	for _, c := range []struct {
		counts []int
		n      int
		want   []int // kept, of the sorted counts
	}{
		{[]int{5}, 10, []int{5}},
		{[]int{20}, 10, []int{10}},
		{[]int{1, 100}, 10, []int{1, 9}},
		{[]int{100, 1, 4}, 12, []int{1, 4, 7}},
		{[]int{8, 8, 8}, 10, []int{3, 3, 3}},
		{[]int{2, 3, 5}, 10, []int{2, 3, 5}},
	} {
		limit := state.FairLimit(slices.Clone(c.counts), c.n)
		var kept []int
		for _, x := range slices.Sorted(slices.Values(c.counts)) {
			kept = append(kept, min(x, limit))
		}
		if !slices.Equal(kept, c.want) {
			t.Errorf("%v, of which %d may stay: %v stay, not %v", c.counts, c.n, kept, c.want)
		}
	}
}
