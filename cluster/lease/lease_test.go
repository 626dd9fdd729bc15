package lease_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"evenkeel/cluster/lease"
)

const twenty = 20 * time.Second

func TestHolder(t *testing.T) {
	var h lease.Holder
	if !h.MustStop(0) || h.Leased(0) {
		t.Error("a host that never held a lease may run no restartable VM")
	}
	h = h.Granted(100*time.Second, twenty, true)
	for _, c := range []struct {
		at           lease.Instant
		leased, stop bool
	}{{100 * time.Second, true, false}, {119 * time.Second, true, false}, {120 * time.Second, false, true}} {
		if h.Leased(c.at) != c.leased || h.MustStop(c.at) != c.stop {
			t.Errorf("at %v: held %v, must stop %v", c.at, h.Leased(c.at), h.MustStop(c.at))
		}
	}
	if late := h.Granted(90*time.Second, twenty, false); late != h {
		t.Errorf("an answer that was overtaken by a later one counts: %+v", late)
	}
	if fencingDisabled := h.Granted(101*time.Second, twenty, false); fencingDisabled.MustStop(time.Hour) {
		t.Error("disarmed: the end of the lease stops VMs")
	}
	for _, c := range []struct {
		running int
		known   bool
		want    bool
	}{{0, true, true}, {0, false, false}, {1, true, false}} {
		if got := h.MayPet(time.Hour, c.running, c.known); got != c.want {
			t.Errorf("lease over, %d running, known %v: may pet %v", c.running, c.known, got)
		}
	}
}

func TestJudge(t *testing.T) {
	good := lease.Enforcement{Enforcing: true, Watchdog: 15 * time.Second}
	for _, c := range []struct {
		name         string
		enforcement  lease.Enforcement
		armed        bool
		at           lease.Instant
		leased, over bool
	}{
		{"just renewed", good, true, 110 * time.Second, true, false},
		{"lease over, watchdog not", good, true, 125 * time.Second, false, false},
		{"at the margin", good, true, 137 * time.Second, false, false},
		{"past the margin", good, true, 138 * time.Second, false, true},
		{"disarmed", good, false, time.Hour, false, false},
		{"no watchdog", lease.Enforcement{Enforcing: true}, true, time.Hour, false, false},
		{"not enforcing", lease.Enforcement{Watchdog: time.Second}, true, time.Hour, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := lease.NewTable(twenty, 0)
			table.Renewed("h", 100*time.Second)
			table.Renewed("h", 90*time.Second) // overtaken
			if v := table.Judge("h", c.enforcement, c.armed, c.at); v.Leased != c.leased || v.Over != c.over || v.Text == "" {
				t.Errorf("%+v", v)
			}
		})
	}
	if v := lease.NewTable(twenty, time.Hour).Judge("h", good, true, time.Hour+time.Minute/2); v.Over {
		t.Error("a new leader must wait from its election on")
	}
}

// Whatever the network does to renewals, and however slow or fast the clocks within
// their rates: when the leader holds the lease to be over, the host holds none, nor is it on.
func TestNoTwoRights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		watchdog := time.Duration(rapid.IntRange(1, 60).Draw(t, "watchdog")) * time.Second
		rate := rapid.Float64Range(0.99, 1.01).Draw(t, "rate") // of the host's clock against the leader's
		hostClock := func(real time.Duration) lease.Instant { return time.Duration(float64(real) * rate) }
		table, holder := lease.NewTable(twenty, 0), lease.Holder{}
		now, lastPet := time.Duration(0), time.Duration(0)
		for range rapid.IntRange(1, 10).Draw(t, "renewals") {
			sent := now + ms(t, "pause", 30_000)
			arrived := sent + ms(t, "there", 10_000)
			answered := arrived + ms(t, "back", 10_000)
			if rapid.Bool().Draw(t, "reaches the leader") {
				table.Renewed("h", arrived)
				if rapid.Bool().Draw(t, "is answered") {
					holder = holder.Granted(hostClock(sent), twenty, true)
				}
			}
			now = answered
		}
		// The agent pets while it may, and may hang at any time; the last pet is at most at the lease's end.
		if holder.Had {
			lastPet = time.Duration(float64(holder.Until) / rate)
		}
		off := lastPet + time.Duration(float64(watchdog)/rate)
		at := now + ms(t, "later", 200_000)
		v := table.Judge("h", lease.Enforcement{Enforcing: true, Watchdog: watchdog}, true, at)
		if v.Over && (holder.Leased(hostClock(at)) || at < off) {
			t.Fatalf("over at %v, but the host holds until %v and is off at %v", at, holder.Until, off)
		}
	})
}

func ms(t *rapid.T, name string, limit int) time.Duration {
	return time.Duration(rapid.IntRange(0, limit).Draw(t, name)) * time.Millisecond
}
