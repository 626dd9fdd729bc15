package agenda_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"evenkeel/cluster/scheduler/agenda"
	"evenkeel/cluster/scheduler/placement"
	"evenkeel/cluster/state"
	"evenkeel/test/scheduling"
)

// Hosts are looked for outside of the leader's turn; in the turn it is only checked that they have the room still. What another plan took
// meanwhile is not promised, and all else is.
func TestHostsAreFoundOutsideOfTheTurn(t *testing.T) {
	for _, takes := range []bool{false, true} {
		c := withJobs(t, 3, 3, 1, 4*scheduling.GiB)
		turn, planned, checked := false, 0, 0
		var put state.AgendaPut
		ctx, cancel := context.WithCancel(context.Background())
		r := agenda.NewRunner(agenda.Options{Period: time.Minute, Now: c.Now, Log: slog.New(slog.DiscardHandler), Snapshot: c.Snapshot, Leads: func() bool { return ctx.Err() == nil },
			Drained: func(context.Context) error { return nil },
			Turn: func(context.Context) (func(), error) {
				turn = true
				if takes { // all that one host has left
					vc := scheduling.VC("takes", 0.5, scheduling.Group(1, 0.1, 6*scheduling.GiB))
					if a := c.Create(vc); a.Plan == nil || a.Queued {
						t.Errorf("%+v", a.Decision)
					}
				}
				return func() { turn = false }, nil
			},
			Unavailable: func(*state.Snapshot) map[string]string {
				if turn {
					checked++
				} else {
					planned++
				}
				return nil
			},
			Pools:   func() placement.Pools { return nil },
			Queue:   func(*state.Snapshot) []state.VC { return nil },
			Silent:  func(*state.Snapshot) bool { return false },
			Samples: func(*state.Snapshot) map[string]agenda.Sample { return nil },
			Propose: func(_ context.Context, kind state.Kind, body any) error {
				if kind == state.KindAgenda {
					if !turn {
						t.Error("proposed outside of the turn")
					}
					put = body.(state.AgendaPut)
					cancel()
				}
				return c.Put(kind, body)
			},
			Evaluated: func() {},
		})
		r.Soon()
		r.Run(ctx)
		if planned == 0 || checked != map[bool]int{false: 0, true: 1}[takes] {
			t.Errorf("another plan: %v: planned %d times outside of the turn, checked %d times in it", takes, planned, checked)
		}
		want := map[bool]int{false: 3, true: 2}[takes]
		if n := len(put.Occurrences); n != want {
			t.Errorf("another plan: %v: %d occurrences, want %d: %+v", takes, n, want, put.Occurrences)
		}
		for _, o := range put.Occurrences {
			if got, is := c.Snapshot().Occurrence(o.ID); !is || !got.Reserves() {
				t.Errorf("%+v is not in the state", o)
			}
		}
		fits(t, c)
	}
}

// Of many occurrences without hosts each is tried again within a few minutes, whatever those before it lack.
func TestEachDegradedOccurrenceHasItsTurn(t *testing.T) {
	c := scheduling.NewCluster(t, "h1")
	const large, small = 25, 60
	for j := range large + small {
		k := by(fmt.Sprintf("FREQ=DAILY;BYHOUR=12;BYMINUTE=%d", j%60))
		if j < large {
			k = by("FREQ=DAILY;BYHOUR=11")
			k.Groups[0].Memory = 100 * scheduling.GiB
		}
		k.Groups[0].Memory = max(k.Groups[0].Memory, scheduling.GiB/64)
		signed(t, c, fmt.Sprintf("job%d", j), k)
	}
	c.Must(state.KindHostCordon, state.HostCordon{Host: "h1", Cordoned: true})
	untilRest(t, c, 5)
	c.Must(state.KindHostCordon, state.HostCordon{Host: "h1"})
	confirmed := func() (n int) {
		for _, o := range c.Snapshot().Agenda() {
			if o.Reserves() {
				n++
			}
		}
		return n
	}
	if n := confirmed(); n != 0 {
		t.Fatalf("%d have hosts while none takes VMs", n)
	}
	for range 15 {
		put, err := agenda.Plan(c.Snapshot(), c.Now(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(put.Occurrences) > 0 {
			c.Must(state.KindAgenda, put)
		}
		c.Ahead += time.Minute
	}
	if n := confirmed(); n != small {
		t.Errorf("after fifteen minutes %d of %d have hosts", n, small)
	}
}
