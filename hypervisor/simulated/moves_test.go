package simulated_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/hypervisor"
	"evenkeel/hypervisor/simulated"
)

// A guest that writes faster than can be sent: it is tried until the budget is spent, slowed down, or handed over before all
// is sent.
func TestMigrationOfBusyGuest(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name     string
		how      hypervisor.Migration
		arrives  bool
		postCopy bool
		within   time.Duration
	}{
		{"neither", hypervisor.Migration{MaxBytes: 1 << 30}, false, false, 20 * time.Second},
		{"slowed down", hypervisor.Migration{MaxBytes: 4 << 30, AutoConverge: true}, true, false, time.Minute},
		{"handed over before", hypervisor.Migration{MaxBytes: 1 << 30, PostCopy: true}, true, true, 9 * time.Second},
		{"what is left would not fit", hypervisor.Migration{MaxBytes: 400 << 20, PostCopy: true}, false, false, 9 * time.Second},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, a, _ := pair(t, 80<<20) // of a link of 64 MiB/s
				x.how.To = "h2"
				begun := time.Now()
				moved, err := a.Migrate(ctx, "vm", x.how)
				if (err == nil) != x.arrives || moved.PostCopy != x.postCopy || moved.Bytes > x.how.MaxBytes || time.Since(begun) > x.within {
					t.Errorf("after %v: %+v, %v", time.Since(begun), moved, err)
				}
				if on := len(used(t, w, "h2")) == 1; on != x.arrives || len(w.Audit().Doubled) > 0 {
					t.Errorf("it runs on h2: %v; doubled: %v", on, w.Audit().Doubled)
				}
				arrival, err := w.Host("h2").Arrival(ctx, "vm")
				if x.arrives && (err != nil || arrival.Bytes != moved.Bytes || arrival.Downtime != moved.Downtime) {
					t.Errorf("it was sent as %+v and came as %+v, %v", moved, arrival, err)
				}
			})
		})
	}
}

// A disk is either on both hosts, as the caller states, or it is copied along and its bytes count.
func TestMigrationWithDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, err := simulated.New(simulated.Options{
			Hosts: 2, CPU: 4, Memory: 1 << 40, DirtyRate: func(hypervisor.Spec) int64 { return 0 },
			Written: func(hypervisor.Spec) int64 { return 100 << 20 },
			Timing:  &simulated.Timing{Link: 64 << 20},
		})
		must(t, err)
		s := sized("vm", 1, 0, 1)
		s.Memory, s.Balloon, s.Disk = 256<<20, 256<<20, hypervisor.Disk{Size: 1 << 30}
		run(t, w, "h1", s)
		if _, err := w.Host("h1").Migrate(ctx, "vm", hypervisor.Migration{To: "h2"}); !errors.Is(err, hypervisor.ErrInvalid) {
			t.Errorf("a move without a word on the disk: %v", err)
		}
		moved, err := w.Host("h1").Migrate(ctx, "vm", hypervisor.Migration{To: "h2", CopyStorage: true, Spec: s})
		if want := int64(356 << 20); err != nil || moved.Bytes < want-1<<16 || moved.Bytes > want+1<<16 {
			t.Errorf("with its disk: %+v, %v, want %d bytes", moved, err, want)
		}
		moved, err = w.Host("h2").Migrate(ctx, "vm", hypervisor.Migration{To: "h1", SharedDisk: true})
		if want := int64(256 << 20); err != nil || moved.Bytes < want-1<<16 || moved.Bytes > want+1<<16 {
			t.Errorf("on a shared disk: %+v, %v, want %d bytes", moved, err, want)
		}
		must(t, w.Close())
	})
}

// A host that cannot send VMs says why when it is asked, and so does a move from it; what comes to it comes.
func TestNoRoute(t *testing.T) {
	t.Parallel()
	w, err := simulated.New(simulated.Options{Hosts: 3, CPU: 4, Memory: 1 << 40})
	must(t, err)
	defer w.Close() //nolint:errcheck // nothing is kept
	here := hypervisor.Obstacle{Why: "a key is missing", Here: true}
	look := func(from, to string, want hypervisor.Obstacle) {
		t.Helper()
		if got, err := w.Host(from).CheckPeer(t.Context(), to); err != nil || got != want {
			t.Errorf("from %s to %s: %+v, %v, want %+v", from, to, got, err, want)
		}
	}
	look("h1", "h2", hypervisor.Obstacle{})
	for _, err := range []error{w.NoRoute("h1", "", here), w.NoRoute("h2", "h3", hypervisor.Obstacle{Why: "refused"}), w.Disconnect("h1")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	look("h2", "h3", hypervisor.Obstacle{Why: "refused"})
	look("h2", "h1", hypervisor.Obstacle{Why: "the hypervisor at h1 does not answer"})
	look("h3", "h2", hypervisor.Obstacle{})
	look("h3", "h9", hypervisor.Obstacle{Why: `there is no host at "h9"`})
	if _, err := w.Host("h1").CheckPeer(t.Context(), "h2"); !errors.Is(err, hypervisor.ErrUnavailable) {
		t.Errorf("whose own hypervisor is away: %v", err)
	}
	if err := w.Reconnect("h1"); err != nil {
		t.Fatal(err)
	}
	look("h1", "h3", here)
	run(t, w, "h1", sized("vm", 1, 0, 1))
	if _, err := w.Host("h1").Migrate(t.Context(), "vm", hypervisor.Migration{To: "h2"}); err == nil || !strings.Contains(err.Error(), here.Why) {
		t.Errorf("the move: %v", err)
	}
}
