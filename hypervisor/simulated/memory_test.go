package simulated_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
	"evenkeel/test/scratch"
)

const mib = 1 << 20

// remembering is a world whose guests deal with memory so; a balloon moves 100 MiB a second.
func remembering(t tb, g simulated.Guest, o simulated.Options) (*simulated.World, *simulated.Virtual) {
	t.Helper()
	o.Hosts, o.Guest, o.Timing = 2, func(hypervisor.Spec) simulated.Guest { return g }, &simulated.Timing{Balloon: 100 * mib}
	return stepped(t, o)
}

func memoryOf(t tb, w *simulated.World, id string) (simulated.GuestMemory, hypervisor.Stats) {
	t.Helper()
	for _, host := range w.Hosts() {
		g, err := w.GuestMemory(host, id)
		if err != nil {
			continue
		}
		all, err := w.Host(host).Stats(ctx)
		must(t, err)
		for _, s := range all {
			if s.VM == id {
				return g, s
			}
		}
	}
	t.Fatalf("no VM %s", id)
	return simulated.GuestMemory{}, hypervisor.Stats{}
}

// What becomes of guests of 1,000 MiB whose balloon is set to 500 at 5 s.
func TestGuestMemory(t *testing.T) {
	t.Parallel()
	const no = hypervisor.Unknown
	type at struct {
		after              time.Duration
		balloon, available int64 // MiB
		in, out, took      int64 // MiB
		kills              int
	}
	for _, c := range []struct {
		name  string
		guest simulated.Guest
		want  []at
	}{
		{"not reported", simulated.Guest{}, []at{{4 * time.Second, 1000, no, no, no, 0, 0}, {11 * time.Second, 500, no, no, no, 0, 0}}},
		{"needs little", simulated.Guest{Memory: simulated.Bytes(200 * mib)}, []at{{4 * time.Second, 1000, 800, 0, 0, 0, 0}, {7 * time.Second, 800, 600, 0, 0, 0, 0}, {11 * time.Second, 500, 300, 0, 0, 0, 0}}},
		{"holds what it has", simulated.Guest{Memory: simulated.Bytes(700 * mib)}, []at{{11 * time.Second, 700, 0, 0, 0, 0, 0}}},
		{"swaps what does not fit", simulated.Guest{Memory: simulated.Bytes(700 * mib), Swap: 300 * mib}, []at{{7 * time.Second, 800, 100, 0, 0, 0, 0}, {11 * time.Second, 500, 0, 0, 200, 0, 0}}},
		{"has no driver", simulated.Guest{Memory: simulated.Bytes(200 * mib), Deaf: true}, []at{{11 * time.Second, 1000, no, no, no, 0, 0}}},
		{"spikes, and takes it back", simulated.Guest{Memory: simulated.Spike{From: 100 * mib, To: 900 * mib, At: 20 * time.Second, Took: 2 * time.Second}, Deflates: true},
			[]at{{19 * time.Second, 500, 400, 0, 0, 0, 0}, {21 * time.Second, 540, 0, 0, 0, 40, 0}, {23 * time.Second, 900, 0, 0, 0, 400, 0}, {60 * time.Second, 900, 0, 0, 0, 400, 0}}},
		{"spikes, and cannot", simulated.Guest{Memory: simulated.Spike{From: 100 * mib, To: 900 * mib, At: 20 * time.Second, Took: 2 * time.Second}},
			[]at{{23 * time.Second, 500, 500, 0, 0, 0, 1}}},
		{"leaks until it is killed", simulated.Guest{Memory: simulated.Leak{From: 100 * mib, PerSecond: 50 * mib}, Deflates: true, Swap: 100 * mib},
			[]at{{10 * time.Second, 500, 0, 0, 100, 0, 0}, {15 * time.Second, 750, 0, 0, 100, 250, 0}, {21 * time.Second, 1000, 1000, 0, 0, 500, 1}, {30 * time.Second, 1000, 1000, 0, 0, 500, 1}}},
	} {
		w, clock := remembering(t, c.guest, simulated.Options{})
		s := sized("a", 1, 0, 1)
		s.Memory, s.Balloon = 1000*mib, 1000*mib
		run(t, w, "h1", s)
		set := false
		for _, x := range c.want {
			if x.after > 5*time.Second && !set {
				clock.Advance(start.Add(5 * time.Second).Sub(clock.Now()))
				must(t, w.Host("h1").SetBalloon(ctx, "a", 500*mib))
				set = true
			}
			clock.Advance(start.Add(x.after + time.Millisecond).Sub(clock.Now()))
			g, s := memoryOf(t, w, "a")
			near := func(a, b int64) bool { return b == no && a == no || b != no && a >= b*mib-mib && a <= b*mib+mib }
			swapped := c.guest.Swap > 0 // what is read back all the time is not in the table
			if !near(s.Balloon, x.balloon) || !near(s.Available, x.available) || !swapped && !near(s.SwapIn, x.in) || x.kills == 0 && !swapped && !near(s.SwapOut, x.out) || !near(g.TookBack, x.took) || g.Kills != x.kills ||
				s.Reported.IsZero() != (x.available == no) {
				t.Errorf("%s, after %v: %+v\n%+v\nwant %+v", c.name, x.after, g, s, x)
			}
			if swapped && g.Swapped > 0 && (s.SwapIn == 0 && x.after > 12*time.Second || s.SwapOut < g.Swapped) {
				t.Errorf("%s, after %v: it swaps, and %+v", c.name, x.after, s)
			}
		}
	}
}

// However often a test reads its memory, moves it or starts the process again: the guest does the same.
func TestGuestMemoryIsTheSameHoweverOftenOneLooks(t *testing.T) {
	t.Parallel()
	dir := scratch.Dir(t)
	files := 0
	rapid.Check(t, func(t *rapid.T) {
		steps := simulated.MemorySteps{}
		for at := time.Duration(0); at < time.Minute; at += time.Duration(rapid.IntRange(1, 10).Draw(t, "after")) * time.Second {
			steps = append(steps, simulated.MemoryStep{At: at, Bytes: int64(rapid.IntRange(0, 1200).Draw(t, "wants")) * mib})
		}
		guest := simulated.Guest{Memory: steps, Swap: int64(rapid.IntRange(0, 2).Draw(t, "swap")) * 100 * mib, Deflates: rapid.Bool().Draw(t, "deflates")}
		sets := map[int]int64{}
		for range rapid.IntRange(0, 5).Draw(t, "sets") {
			sets[rapid.IntRange(0, 59).Draw(t, "set at")] = int64(rapid.IntRange(1, 1000).Draw(t, "to")) * mib
		}
		looks := map[int]bool{}
		for range rapid.IntRange(0, 10).Draw(t, "looks") {
			looks[rapid.IntRange(0, 59).Draw(t, "look at")] = true
		}
		moves := rapid.IntRange(0, 59).Draw(t, "moves at")
		files++
		live := func(o simulated.Options, look bool) simulated.GuestMemory {
			w, clock := remembering(t, guest, o)
			s := sized("a", 1, 0, 1)
			s.Memory, s.Balloon = 1000*mib, 1000*mib
			run(t, w, "h1", s)
			host := "h1"
			for sec := range 60 {
				clock.Advance(time.Second)
				if bytes, is := sets[sec]; is {
					must(t, w.Host(host).SetBalloon(ctx, "a", bytes))
				}
				if !look {
					continue
				}
				if looks[sec] {
					g, s := memoryOf(t, w, "a")
					if s.Available > s.Balloon || s.Available < 0 || g.Balloon > 1000*mib || g.Swapped > guest.Swap {
						t.Fatalf("after %d s: %+v, %+v", sec, g, s)
					}
				}
				if sec == moves && o.StateFile != "" { // a process that goes on where another ended
					must(t, w.Close())
					o.Clock = clock
					var err error
					o.Hosts, o.Guest, o.Timing = 2, func(hypervisor.Spec) simulated.Guest { return guest }, &simulated.Timing{Balloon: 100 * mib}
					w, err = simulated.New(o)
					must(t, err)
				}
			}
			g, _ := memoryOf(t, w, "a")
			must(t, w.Close())
			return g
		}
		plain := live(simulated.Options{}, false)
		kept := live(simulated.Options{StateFile: filepath.Join(dir, fmt.Sprint(files))}, true)
		near := cmp.Comparer(func(a, b int64) bool { return a-b <= 2 && b-a <= 2 }) // bytes: halves are cut off at each look
		if diff := cmp.Diff(plain, kept, near); diff != "" {
			t.Fatalf("looked at (-not +yes):\n%s", diff)
		}
	})
}
