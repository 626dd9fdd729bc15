package state_test

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"

	"evenkeel/cluster/state"
)

// together applies a log in pieces of the sizes that next draws, and returns the outcomes.
func together(s *state.Store, log [][]byte, next func(left int) int) (outcomes []string) {
	for from := 0; from < len(log); {
		n := next(len(log) - from)
		var entries []state.Entry
		for i, entry := range log[from : from+n] {
			entries = append(entries, state.Entry{Index: uint64(from+i) + 1, Data: entry})
		}
		for _, err := range s.ApplyAll(entries) {
			outcomes = append(outcomes, fmt.Sprint(err))
		}
		if amiss := s.SeenAmiss(); len(amiss) > 0 {
			panic(fmt.Sprintf("VCs at hand are not as they are: %v", amiss))
		}
		from += n
	}
	return outcomes
}

// Entries that are applied together have the outcomes, and leave the bytes, that they have and leave one by one, also
// where many of them are refused.
func TestTogetherAsOneByOne(t *testing.T) {
	mixed := 0 // pieces in which some were refused and others were not
	rapid.Check(t, func(t *rapid.T) {
		d := &drawn{t: t, k: small(t, 3)}
		one := make([]string, len(d.k.log))
		for i := range one {
			one[i] = "<nil>"
		}
		for range rapid.IntRange(1, 60).Draw(t, "length") {
			if d.chance("remember", 5) {
				d.old = append(d.old, d.k.Snapshot())
			}
			kind, body := d.command()
			one = append(one, fmt.Sprint(d.k.apply(t, kind, body)))
		}
		all := state.New()
		from := 0
		outcomes := together(all, d.k.log, func(left int) int {
			n := rapid.IntRange(1, min(left, 64)).Draw(t, "piece")
			refused := 0
			for _, outcome := range one[from : from+n] {
				if outcome != "<nil>" {
					refused++
				}
			}
			if from += n; refused > 0 && refused < n {
				mixed++
			}
			return n
		})
		for i := range one {
			if outcomes[i] != one[i] {
				t.Fatalf("entry %d: outcome %s, alone %s", i+1, outcomes[i], one[i])
			}
		}
		if got, want := save(t, all.Snapshot()), save(t, d.k.Snapshot()); got != want {
			t.Fatalf("state differs:\n%s\nwant:\n%s", got, want)
		}
	})
	if mixed == 0 {
		t.Error("no piece had both refused and accepted entries")
	}
}

// The recorded log of every version, applied as a whole, give the state that they gave when they were written.
func TestOldLogsTogether(t *testing.T) {
	for v := 1; v <= state.FormatVersion; v++ {
		raw, err := os.ReadFile(fmt.Sprintf("testdata/log-v%d.jsonl", v))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(fmt.Sprintf("testdata/state-v%d.golden", v))
		if err != nil {
			t.Fatal(err)
		}
		saved, s := state.New(), state.New()
		if err := saved.Restore(bytes.NewReader(want)); err != nil {
			t.Fatal(err)
		}
		together(s, bytes.Split(bytes.TrimSpace(raw), []byte("\n")), func(left int) int { return left })
		if save(t, s.Snapshot()) != save(t, saved.Snapshot()) {
			t.Errorf("the log of version %d gives another state as a whole", v)
		}
	}
}

// Half of a batch is refused. The others are in force, each at its own index, and only they are reported.
func TestHalfIsRefused(t *testing.T) {
	k := small(t, 2)
	basis := k.Snapshot()
	h1, h2 := k.WatchHost("h1"), k.WatchHost("h2")
	var entries []state.Entry
	first := basis.Index() + 1
	for i, p := range []state.Plan{
		planOf(basis, "a", 1, gib, "h1"),
		planOf(basis, "b", 1, gib, "h1"), // h1 has changed since
		planOf(basis, "a", 1, gib, "h1"), // is there
		{Basis: basis.Index(), Verb: "stopped", VC: &state.VC{ID: "none", Name: "none", Goal: state.GoalStop}, VCVersion: 7},
	} {
		index := first + uint64(i)
		entry, err := state.Encode(state.KindPlan, start, p)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, state.Entry{Index: index, Data: entry})
	}
	cordon, err := state.Encode(state.KindHostCordon, start, state.HostCordon{Host: "h1", Cordoned: true, Reason: "fan"})
	if err != nil {
		t.Fatal(err)
	}
	entries = append(entries, state.Entry{Index: first + 4, Data: cordon})
	for i, err := range k.ApplyAll(entries) {
		if accepted := i == 0 || i == 4; (err == nil) != accepted {
			t.Errorf("entry %d: %v", i, err)
		}
	}
	s := k.Snapshot()
	vc, _ := s.VCNamed("a")
	h, _ := s.Host("h1")
	if s.Index() != first+4 || vc.ModifyIndex != first || h.Version != first+4 || !h.Cordoned || len(s.VCs()) != 1 || len(s.VMs()) != 1 {
		t.Errorf("at index %d of %d: VC %+v, host %+v, %d VMs", s.Index(), first+4, vc, h, len(s.VMs()))
	}
	select {
	case <-h1:
	default:
		t.Error("no watcher was woken for h1")
	}
	select {
	case <-h2:
		t.Error("h2 was woken for what does not concern it")
	default:
	}
}

// What is old is forgotten at the same entry, wherever pieces end.
func TestForgettingTogether(t *testing.T) {
	k := small(t, 1)
	for n := range 600 {
		if n%3 == 0 {
			k.must(t, state.KindTokenPut, state.JoinToken{ID: fmt.Sprintf("t%03d", n), Hash: "f00d", Agent: true, Until: start.Add(time.Duration(n)*time.Second - 8*24*time.Hour)})
			continue
		}
		k.must(t, state.KindHostCordon, state.HostCordon{Host: "h1", Cordoned: n%3 == 1})
	}
	if n := len(k.Snapshot().JoinTokens()); n == 0 || n > 150 {
		t.Fatalf("%d tokens are left", n)
	}
	for _, size := range []int{7, 64, 255, 257, 1000} {
		s := state.New()
		together(s, k.log, func(left int) int { return min(left, size) })
		if save(t, s.Snapshot()) != save(t, k.Snapshot()) {
			t.Errorf("pieces of %d give another state", size)
		}
	}
}
