package simulated_test

import (
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
	"evenkeel/test/scratch"
)

// states are what List says of each VM of a host, with "leftover" for those.
func states(t tb, w *simulated.World, host string) map[string]string {
	t.Helper()
	vms, err := w.Host(host).List(ctx)
	must(t, err)
	r := map[string]string{}
	for _, vm := range vms {
		if r[vm.Identity.VM] = string(vm.State); vm.Leftover {
			r[vm.Identity.VM] = "leftover"
		}
	}
	return r
}

// is checks what two hosts say of one VM, "" where it is not there.
func is(t *testing.T, w *simulated.World, h1, h2 string) {
	t.Helper()
	if a, b := states(t, w, "h1")["vm"], states(t, w, "h2")["vm"]; a != h1 || b != h2 {
		t.Errorf("it is %q on h1 and %q on h2, want %q and %q", a, b, h1, h2)
	}
}

// kinds of the events that were sent so far.
func kinds(events <-chan hypervisor.Event) (r []hypervisor.EventKind) {
	for {
		synctest.Wait()
		select {
		case e := <-events:
			r = append(r, e.Kind)
		default:
			return r
		}
	}
}

// A guest that arrives paused stands still in every respect until it is resumed, and then goes on as if no time had passed.
func TestPausedMigration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		guest := simulated.Guest{Memory: simulated.Bytes(300 << 20), Swap: 1 << 30}
		w, err := simulated.New(simulated.Options{Hosts: 2, CPU: 4, Memory: 1 << 40, Guest: func(hypervisor.Spec) simulated.Guest { return guest },
			Timing: &simulated.Timing{Link: 64 << 20, Balloon: 1 << 20, Shutdown: 10 * time.Second, Boot: time.Second}})
		must(t, err)
		defer w.Close() //nolint:errcheck // nothing is kept
		s := sized("vm", 1, 0.5, 1)
		s.Memory, s.Balloon = 256<<20, 128<<20
		run(t, w, "h1", s)
		a, b := w.Host("h1"), w.Host("h2")
		here, err := a.Events(ctx)
		must(t, err)
		there, err := b.Events(ctx)
		must(t, err)
		time.Sleep(10 * time.Second)
		must(t, a.SetBalloon(ctx, "vm", 120<<20))

		if _, err := a.Migrate(ctx, "vm", hypervisor.Migration{To: "h2", Paused: true, PostCopy: true}); !errors.Is(err, hypervisor.ErrInvalid) {
			t.Errorf("paused, and by post-copy: %v", err)
		}
		before := used(t, w, "h1")["vm"]
		begun := time.Now()
		moved, err := a.Migrate(ctx, "vm", hypervisor.Migration{To: "h2", Paused: true})
		must(t, err)
		is(t, w, "", "paused")
		if got, want := kinds(here), []hypervisor.EventKind{hypervisor.MovedOut}; !slices.Equal(got, want) {
			t.Errorf("the source reported %v, want %v", got, want)
		}
		if got, want := kinds(there), []hypervisor.EventKind{hypervisor.Suspended}; !slices.Equal(got, want) {
			t.Errorf("the target reported %v, want %v", got, want)
		}
		if arrival, err := b.Arrival(ctx, "vm"); err != nil || arrival.Bytes != moved.Bytes || arrival.Downtime != moved.Downtime {
			t.Errorf("it was sent as %+v and came as %+v, %v", moved, arrival, err)
		}
		sample := func() hypervisor.Stats {
			t.Helper()
			all, err := b.Stats(ctx)
			if err != nil || len(all) != 1 {
				t.Fatalf("Stats: %+v, %v", all, err)
			}
			all[0].At = time.Time{}
			return all[0]
		}
		paused := sample()
		if want := before + time.Since(begun)/2; paused.VCPUTime != want || paused.SwapIn <= 0 {
			t.Errorf("it arrived with %+v, want a CPU time of %v, and pages swapped in", paused, want)
		}
		must(t, b.Stop(ctx, "vm"))
		console, err := b.Console(ctx, "vm")
		must(t, err)
		time.Sleep(time.Hour)
		is(t, w, "", "paused")
		if now := sample(); now != paused {
			t.Errorf("an hour later: %+v, before %+v", now, paused)
		}
		if got := w.Audit().Peaks["h2"]; got.CPU != 0 || got.Memory < s.Balloon {
			t.Errorf("peak %+v with a paused VM, which takes memory alone", got)
		}

		for range 2 {
			must(t, b.Resume(ctx, "vm"))
			is(t, w, "", "stopping")
		}
		if got, want := kinds(there), []hypervisor.EventKind{hypervisor.Resumed}; !slices.Equal(got, want) {
			t.Errorf("the target reported %v, want %v", got, want)
		}
		if got := w.Audit().Peaks["h2"].CPU; got != 0.5 {
			t.Errorf("peak of %v cores once it runs", got)
		}
		time.Sleep(9 * time.Second)
		if now := sample(); now.VCPUTime != paused.VCPUTime+4500*time.Millisecond || now.SwapIn <= paused.SwapIn || paused.Balloon-now.Balloon != 9<<20 {
			t.Errorf("9 s after it went on: %+v, before %+v", now, paused)
		}
		is(t, w, "", "stopping")
		time.Sleep(2 * time.Second)
		is(t, w, "", "") // asked to stop while it stood still, it took its 10 s once it ran
		if text, err := io.ReadAll(console); err != nil || !strings.Contains(string(text), "ready") {
			t.Errorf("console: %q, %v", text, err)
		}
		if d := w.Audit().Doubled; len(d) > 0 {
			t.Errorf("doubled: %v", d)
		}
	})
}

// A paused guest prints nothing, whenever a reader attaches.
func TestPausedConsole(t *testing.T) {
	t.Parallel()
	w, clock := stepped(t, simulated.Options{Hosts: 2, Timing: &simulated.Timing{Link: 1 << 62, Beat: time.Second}})
	run(t, w, "h1", sized("vm", 1, 0, 1))
	if _, err := w.Host("h1").Migrate(ctx, "vm", hypervisor.Migration{To: "h2", Paused: true}); err != nil {
		t.Fatal(err)
	}
	h := w.Host("h2")
	console, err := h.Console(ctx, "vm")
	must(t, err)
	clock.Advance(time.Minute)
	must(t, h.Resume(ctx, "vm"))
	clock.Advance(2500 * time.Millisecond)
	must(t, h.Destroy(ctx, "vm"))
	text, err := io.ReadAll(console)
	must(t, err)
	if got := strings.Count(string(text), "BEAT "); got != 2 || !strings.Contains(string(text), "BEAT 1 uptime_ms=1000 ") {
		t.Errorf("in 2.5 s after a minute's pause it printed %q", text)
	}
}

func TestResume(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, a, b := pair(t, 0)
		must(t, w.Inject("h1", simulated.Fault{Call: simulated.CallResume}))
		if err := a.Resume(ctx, "vm"); !errors.Is(err, hypervisor.ErrUnavailable) {
			t.Errorf("struck by a fault: %v", err)
		}
		must(t, a.Resume(ctx, "vm")) // it runs
		for _, id := range []string{"no", ""} {
			if err := a.Resume(ctx, id); !errors.Is(err, hypervisor.ErrNotFound) {
				t.Errorf("of %q: %v", id, err)
			}
		}
		done := make(chan error)
		go func() {
			_, err := a.Migrate(ctx, "vm", hypervisor.Migration{To: "h2", Paused: true})
			done <- err
		}()
		time.Sleep(time.Second)
		is(t, w, "running", "incoming")
		if err := b.Resume(ctx, "vm"); !errors.Is(err, hypervisor.ErrInvalid) {
			t.Errorf("of one that comes in: %v", err)
		}
		must(t, <-done)
		if _, err := b.Migrate(ctx, "vm", hypervisor.Migration{To: "h1"}); !errors.Is(err, hypervisor.ErrInvalid) {
			t.Errorf("move of a paused VM: %v", err)
		}
		must(t, b.Resume(ctx, "vm"))
		if _, err := b.Migrate(ctx, "vm", hypervisor.Migration{To: "h1"}); err != nil {
			t.Errorf("move of a resumed VM: %v", err)
		}
		must(t, w.Close())
	})
}

// What hand-overs that go wrong leave on either side, and where the guest can go on from there.
func TestHandOverThatGoesWrong(t *testing.T) {
	t.Parallel()
	keep, lose := (*simulated.World).KeepSources, (*simulated.World).LoseAnswer
	for _, x := range []struct {
		name    string
		fault   func(*simulated.World, string, int) error
		how     hypervisor.Migration
		errs    []error
		h1, h2  string
		doubled bool // at once
		events  []hypervisor.EventKind
	}{
		{"source kept", keep, hypervisor.Migration{}, nil, "leftover", "running", false, []hypervisor.EventKind{hypervisor.MovedOut}},
		{"source kept, paused", keep, hypervisor.Migration{Paused: true}, []error{hypervisor.ErrEndUnknown, hypervisor.ErrUnavailable}, "leftover", "paused", false,
			[]hypervisor.EventKind{hypervisor.Suspended}},
		{"answer lost", lose, hypervisor.Migration{}, []error{hypervisor.ErrUnavailable}, "running", "running", true,
			[]hypervisor.EventKind{hypervisor.Suspended, hypervisor.Resumed}},
		{"answer lost, paused", lose, hypervisor.Migration{Paused: true}, []error{hypervisor.ErrUnavailable}, "running", "paused", false,
			[]hypervisor.EventKind{hypervisor.Suspended, hypervisor.Resumed}},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, a, b := pair(t, 0)
				must(t, x.fault(w, "h1", 1))
				events, err := a.Events(ctx)
				must(t, err)
				x.how.To = "h2"
				moved, err := a.Migrate(ctx, "vm", x.how)
				if (err == nil) != (x.errs == nil) {
					t.Fatalf("Migrate: %v, want one that is %v", err, x.errs)
				}
				for _, want := range x.errs {
					if !errors.Is(err, want) {
						t.Errorf("Migrate: %v, want one that is %q", err, want)
					}
				}
				if unknown := errors.Is(err, hypervisor.ErrEndUnknown); unknown != slices.Contains(x.errs, hypervisor.ErrEndUnknown) {
					t.Errorf("Migrate: %v; what became of it is unknown: %v", err, unknown)
				}
				is(t, w, x.h1, x.h2)
				if got := kinds(events); !slices.Equal(got, x.events) {
					t.Errorf("the source reported %v, want %v", got, x.events)
				}
				if got := len(w.Audit().Doubled) > 0; got != x.doubled {
					t.Errorf("doubled: %v", w.Audit().Doubled)
				}
				if arrival, err := b.Arrival(ctx, "vm"); err != nil || arrival.Bytes < moved.Bytes || arrival.Bytes == 0 {
					t.Errorf("it was sent as %+v and came as %+v, %v", moved, arrival, err)
				}

				// The guest goes on on the source once more, and then on both.
				before := time.Now()
				must(t, a.Resume(ctx, "vm"))
				if x.h1 == "leftover" && x.h2 == "running" != (len(w.Audit().Doubled) > 0) {
					t.Errorf("resumed on its source: doubled: %v", w.Audit().Doubled)
				}
				if x.h1 == "leftover" {
					if got, want := kinds(events), []hypervisor.EventKind{hypervisor.Resumed}; !slices.Equal(got, want) {
						t.Errorf("the source reported %v, want %v", got, want)
					}
				}
				at := used(t, w, "h1")["vm"]
				time.Sleep(time.Minute)
				if got := used(t, w, "h1")["vm"] - at; got != time.Since(before) {
					t.Errorf("on its source it used %v in %v", got, time.Since(before))
				}
				must(t, a.SetCPU(ctx, "vm", hypervisor.CPU{Cap: 0.5})) // nothing is left of the move
				must(t, b.Resume(ctx, "vm"))
				is(t, w, "running", "running")
				if d := w.Audit().Doubled; !slices.Equal(d, []string{"vm on h1 and h2"}) && !slices.Equal(d, []string{"vm on h2 and h1"}) {
					t.Errorf("doubled: %v", d)
				}

				// It is known for what it is until one of them has gone.
				must(t, a.Destroy(ctx, "vm"))
				s := sized("vm", 1, 0, 1)
				run(t, w, "h1", s)
				must(t, b.Destroy(ctx, "vm"))
				must(t, a.Destroy(ctx, "vm"))
				if d := w.Audit().Doubled; len(d) != 2 {
					t.Errorf("started again while it ran on h2: doubled: %v", d)
				}
				run(t, w, "h2", s)
				if d := w.Audit().Doubled; len(d) != 2 {
					t.Errorf("started when it ran nowhere: doubled: %v", d)
				}

				// The fault struck once.
				must(t, b.Destroy(ctx, "vm"))
				run(t, w, "h1", s)
				if _, err := a.Migrate(ctx, "vm", x.how); err != nil {
					t.Errorf("the next move: %v", err)
				}
				must(t, w.Close())
			})
		})
	}
}

// A source cannot go on once its guest runs at the target before all of it is there.
func TestLoseAnswerNotByPostCopy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, a, _ := pair(t, 80<<20)
		must(t, w.LoseAnswer("h1", 1))
		if _, err := a.Migrate(ctx, "vm", hypervisor.Migration{To: "h2", MaxBytes: 1 << 30, PostCopy: true}); err != nil {
			t.Error(err)
		}
		is(t, w, "", "running")
		must(t, w.Close())
	})
}

// What hand-overs leave outlives the process, and what is paused goes on in the next one as it would have in the last.
func TestRestorePaused(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name   string
		fault  func(*simulated.World) error
		h1, h2 string
	}{
		{"moved", func(*simulated.World) error { return nil }, "", "paused"},
		{"source kept", func(w *simulated.World) error { return w.KeepSources("h1", 1) }, "leftover", "paused"},
		{"answer lost", func(w *simulated.World) error { return w.LoseAnswer("h1", 1) }, "running", "paused"},
	} {
		for _, compact := range []bool{false, true} {
			t.Run(x.name, func(t *testing.T) {
				o := simulated.Options{Hosts: 2, StateFile: scratch.Dir(t) + "/state", Timing: &simulated.Timing{Link: 1 << 62}}
				w, clock := stepped(t, o)
				run(t, w, "h1", sized("vm", 1, 0, 1))
				clock.Advance(10 * time.Second)
				must(t, x.fault(w))
				_, _ = w.Host("h1").Migrate(ctx, "vm", hypervisor.Migration{To: "h2", Paused: true})
				clock.Advance(10 * time.Second)
				if compact {
					must(t, simulated.Compact(w))
				}
				must(t, w.Close())
				dir := scratch.Dir(t)
				again, clock := after(t, o.StateFile, dir, o, clock.Now(), time.Minute)
				is(t, again, x.h1, x.h2)
				if got := used(t, again, "h2")["vm"]; got != 10*time.Second {
					t.Errorf("paused after 10 s it has used %v", got)
				}
				if x.h1 == "leftover" {
					must(t, again.Host("h1").Destroy(ctx, "vm"))
				}
				must(t, again.Host("h2").Resume(ctx, "vm"))
				clock.Advance(5 * time.Second)
				third, _ := after(t, filepath.Join(dir, "copy"), scratch.Dir(t), o, clock.Now(), 5*time.Second)
				if got := used(t, third, "h2")["vm"]; got != 20*time.Second {
					t.Errorf("10 s after it went on it has used %v, want %v", got, 20*time.Second)
				}
				if x.h1 != "running" {
					is(t, third, "", "running")
				}
				must(t, third.Close())
			})
		}
	}
}
