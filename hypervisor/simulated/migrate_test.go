package simulated_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
)

// pair is two hosts with a VM of 256 MiB on the first, in a bubble.
func pair(t *testing.T, dirty int64) (w *simulated.World, a, b hypervisor.Host) {
	t.Helper()
	w, err := simulated.New(simulated.Options{
		Hosts: 2, CPU: 4, Memory: 1 << 40, DirtyRate: func(hypervisor.Spec) int64 { return dirty },
		Timing: &simulated.Timing{Link: 64 << 20, Downtime: 500 * time.Millisecond},
	})
	must(t, err)
	s := sized("vm", 1, 0, 1)
	s.Memory, s.Balloon = 256<<20, 256<<20
	run(t, w, "h1", s)
	return w, w.Host("h1"), w.Host("h2")
}

func TestMigrationPace(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name     string
		dirty    int64
		how      hypervisor.Migration
		bytes    int64
		takes    time.Duration
		downtime time.Duration
	}{
		// 256 MiB at 64 MiB/s.
		{"still guest", 0, hypervisor.Migration{To: "h2"}, 256 << 20, 4 * time.Second, 500 * time.Millisecond},
		// 32 MiB/s gained: 224 MiB less takes 7 s, then 32 MiB in the downtime.
		{"guest that writes", 32 << 20, hypervisor.Migration{To: "h2"}, 480 << 20, 7500 * time.Millisecond, 500 * time.Millisecond},
		{"bandwidth", 0, hypervisor.Migration{To: "h2", Bandwidth: 16 << 20}, 256 << 20, 16 * time.Second, 500 * time.Millisecond},
		{"budget that suffices", 0, hypervisor.Migration{To: "h2", MaxBytes: 257 << 20}, 256 << 20, 4 * time.Second, 500 * time.Millisecond},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, a, b := pair(t, x.dirty)
				begin, looks, incoming := time.Now(), 0, false
				x.how.Progress = func(m hypervisor.Moved) {
					looks++
					vms, err := b.List(ctx)
					must(t, err)
					incoming = incoming || len(vms) == 1 && vms[0].State == hypervisor.Incoming
				}
				moved, err := a.Migrate(ctx, "vm", x.how)
				must(t, err)
				if d := moved.Bytes - x.bytes; d < -1<<16 || d > 1<<16 || moved.Remaining != 0 {
					t.Errorf("moved %+v, want %d bytes", moved, x.bytes)
				}
				if d := time.Since(begin) - x.takes; d.Abs() > 10*time.Millisecond {
					t.Errorf("it took %v, want %v", time.Since(begin), x.takes)
				}
				if d := moved.Downtime - x.downtime; d.Abs() > time.Millisecond {
					t.Errorf("downtime %v, want %v", moved.Downtime, x.downtime)
				}
				if looks == 0 || !incoming {
					t.Errorf("%d looks at it; seen as incoming: %v", looks, incoming)
				}
				time.Sleep(time.Minute)
				if got, want := used(t, w, "h2")["vm"], time.Since(begin); got != want {
					t.Errorf("CPU time is %v, want %v as if it had not moved", got, want)
				}
				if len(used(t, w, "h1")) != 0 || len(w.Audit().Doubled) != 0 {
					t.Errorf("still on h1, or doubled: %v", w.Audit().Doubled)
				}
			})
		})
	}
}

func TestMigrationThatFails(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name  string
		dirty int64
		how   hypervisor.Migration
		upset func(w *simulated.World, cancel func()) error // two seconds into it
		want  error
		bytes int64 // at most
	}{
		{name: "over budget", how: hypervisor.Migration{To: "h2", MaxBytes: 100 << 20}, bytes: 100 << 20},
		{name: "over budget by what it writes", dirty: 80 << 20, how: hypervisor.Migration{To: "h2", MaxBytes: 1 << 30}, bytes: 1 << 30},
		{name: "to itself", how: hypervisor.Migration{To: "h1"}, want: hypervisor.ErrInvalid},
		{name: "to nowhere", how: hypervisor.Migration{To: "h3"}, want: hypervisor.ErrInvalid},
		{
			name: "target loses power", how: hypervisor.Migration{To: "h2"}, bytes: 256 << 20, want: hypervisor.ErrUnavailable,
			upset: func(w *simulated.World, _ func()) error { return w.PowerOff("h2") },
		},
		{
			name: "source's daemon stops", how: hypervisor.Migration{To: "h2"}, bytes: 256 << 20, want: hypervisor.ErrUnavailable,
			upset: func(w *simulated.World, _ func()) error { return w.Disconnect("h1") },
		},
		{
			name: "context ends", how: hypervisor.Migration{To: "h2"}, bytes: 256 << 20, want: context.Canceled,
			upset: func(_ *simulated.World, cancel func()) error { cancel(); return nil },
		},
		{
			name: "guest crashes", how: hypervisor.Migration{To: "h2"}, bytes: 256 << 20, want: hypervisor.ErrNotFound,
			upset: func(w *simulated.World, _ func()) error { return w.Crash("h1", "vm") },
		},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, a, b := pair(t, x.dirty)
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				if x.upset != nil {
					time.AfterFunc(2*time.Second, func() {
						if err := x.upset(w, cancel); err != nil {
							t.Error(err)
						}
					})
				}
				moved, err := a.Migrate(ctx, "vm", x.how)
				if err == nil || x.want != nil && !errors.Is(err, x.want) {
					t.Fatalf("Migrate: %+v, %v; want %v", moved, err, x.want)
				}
				if unknown := x.name == "source's daemon stops"; errors.Is(err, hypervisor.ErrEndUnknown) != unknown {
					t.Errorf("Migrate: %v; what became of it is unknown: want %v", err, unknown)
				}
				if moved.Bytes > x.bytes {
					t.Errorf("sent %d, want at most %d", moved.Bytes, x.bytes)
				}
				must(t, w.Reconnect("h1"))
				must(t, w.PowerOn("h2"))
				vms, err := b.List(t.Context())
				must(t, err)
				if len(vms) != 0 {
					t.Errorf("target has %+v", vms)
				}
				runs := len(used(t, w, "h1")) == 1
				if want := x.name != "guest crashes"; runs != want {
					t.Errorf("runs on the source: %v, want %v", runs, want)
				}
				if runs {
					must(t, a.SetCPU(t.Context(), "vm", hypervisor.CPU{Cap: 0.1})) // nothing is left of the move
				}
			})
		})
	}
}

// What is asked of a VM on the move waits for the end and then fails.
func TestSettingsWaitForMigration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, a, b := pair(t, 0)
		done := make(chan error)
		go func() {
			_, err := a.Migrate(ctx, "vm", hypervisor.Migration{To: "h2"})
			done <- err
		}()
		synctest.Wait()
		if _, err := a.Migrate(ctx, "vm", hypervisor.Migration{To: "h2"}); err == nil {
			t.Error("a second move of a moving VM is no error")
		}
		begin := time.Now()
		if err := a.SetCPU(ctx, "vm", hypervisor.CPU{Cap: 0.5}); !errors.Is(err, hypervisor.ErrNotFound) {
			t.Errorf("SetCPU: %v", err)
		}
		if time.Since(begin) != 4*time.Second {
			t.Errorf("SetCPU returned after %v", time.Since(begin))
		}
		must(t, <-done)
		must(t, b.SetCPU(ctx, "vm", hypervisor.CPU{Cap: 0.5}))
		must(t, w.Close())
	})
}

// A balloon that moves goes on moving on the other host.
func TestMigrationWithBalloonInMotion(t *testing.T) {
	t.Parallel()
	w, clock := stepped(t, simulated.Options{Hosts: 2, Timing: &simulated.Timing{Balloon: 1 << 20, Link: 1 << 62}})
	s := sized("vm", 1, 0, 1)
	s.Balloon = s.Memory / 2
	run(t, w, "h1", s)
	clock.Advance(10 * time.Second)
	h := w.Host("h2")
	events, err := h.Events(ctx)
	must(t, err)
	if _, err := w.Host("h1").Migrate(ctx, "vm", hypervisor.Migration{To: "h2"}); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		after time.Duration
		less  int64
	}{{0, 10 << 20}, {10 * time.Second, 20 << 20}, {time.Minute, 64 << 20}} {
		clock.Advance(x.after)
		vms, err := h.List(ctx)
		must(t, err)
		if len(vms) != 1 || vms[0].Balloon != s.Memory-x.less {
			t.Errorf("%+v, want a balloon of %d", vms, s.Memory-x.less)
		}
	}
	for _, want := range []hypervisor.EventKind{hypervisor.MovedIn, hypervisor.BalloonMoved} {
		if e := <-events; e.Kind != want || e.VM != "vm" {
			t.Errorf("reported %+v, want %s", e, want)
		}
	}
	// What belongs to a VM has moved with it.
	must(t, h.Destroy(ctx, "vm"))
	must(t, h.Start(ctx, s))
}
