package member

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/leader"
	"evenkeel/cluster/pki"
	"evenkeel/cluster/state"
	"evenkeel/cluster/transport"
	"evenkeel/hypervisor"
)

func TestMayRenew(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	id := pki.Identity{Cluster: "c", Name: "h1", Agent: true}
	row := func(live, over int) state.Member {
		m := state.Member{Name: "h1", Agent: true}
		for i := range live {
			m.Serials = append(m.Serials, state.Serial{Number: fmt.Sprintf("live%d", i), Until: now.Add(time.Hour)})
		}
		for i := range over {
			m.Serials = append(m.Serials, state.Serial{Number: fmt.Sprintf("over%d", i), Until: now.Add(-time.Hour)})
		}
		return m
	}
	server := row(1, 0)
	server.Server = true
	for _, c := range []struct {
		what    string
		row     state.Member
		serial  string
		revoked bool
		want    error
	}{
		{"a recorded one", row(1, 0), "live0", false, nil},
		{"an older one that is good still", row(3, 2), "live0", false, nil},
		{"one that is not recorded", row(1, 0), "other", false, leader.ErrConflict},
		{"none", row(1, 0), "", false, leader.ErrConflict},
		{"a revoked one", row(1, 0), "live0", true, leader.ErrConflict},
		{"of no member", state.Member{}, "live0", false, leader.ErrNotFound},
		{"of a member with other roles", server, "live0", false, leader.ErrNotFound},
		{"the 16th", row(15, 20), "live0", false, nil},
		{"the 17th", row(16, 0), "live0", false, leader.ErrConflict},
	} {
		if err := mayRenew(c.row, id, c.serial, c.revoked, now); !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
	}
}

// Renewals by command leave half of the places to those that come due by themselves.
func TestMayRenewNow(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	row := state.Member{Name: "h1"}
	for i := range 20 {
		row.Serials = append(row.Serials, state.Serial{Number: fmt.Sprintf("over%d", i), Until: now.Add(-time.Hour)})
	}
	asked := 0
	for ; mayRenewNow(row, now) == nil && asked < 100; asked++ {
		row.Serials = append(row.Serials, state.Serial{Number: fmt.Sprint(asked), Until: now.Add(time.Hour)})
	}
	if err := mayRenewNow(row, now); asked != 8 || !errors.Is(err, leader.ErrConflict) {
		t.Errorf("%d by command, then %v", asked, err)
	}
	for own := 0; own < 8; own++ {
		if err := mayAdd(row, now); err != nil {
			t.Fatalf("renewal %d that is due: %v", own, err)
		}
		row.Serials = append(row.Serials, state.Serial{Number: fmt.Sprint("own", own), Until: now.Add(time.Hour)})
	}
}

// What a member says of its new certificate is believed only as far as its row has it.
func TestRenewedIsInTheRow(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	before := state.Member{Name: "h1", Serials: []state.Serial{{Number: "old", Until: now}}}
	after := before
	after.Serials = append(slices.Clone(before.Serials), state.Serial{Number: "new", Until: now.Add(time.Hour)})
	for said, want := range map[string]bool{"new": true, "old": false, "other": false, "": false} {
		got, err := renewed(before, after, transport.Renewed{Serial: said, Until: now.Add(1000 * time.Hour)})
		switch {
		case want && (err != nil || got != transport.Renewed{Serial: said, Until: now.Add(time.Hour)}):
			t.Errorf("%q: %+v, %v", said, got, err)
		case !want && (!errors.Is(err, hypervisor.ErrUnavailable) || got != transport.Renewed{} || !strings.Contains(err.Error(), "vcctl cluster certificates list")):
			t.Errorf("%q: %+v, %v", said, got, err)
		}
	}
}

// Three at once, so that lost answers can be asked for again, and then one in ten minutes, for each member by itself.
func TestRenewalsAreBounded(t *testing.T) {
	var r renewals
	now := time.Unix(1_000_000, 0)
	take := func(member string, n int) (ok int) {
		for range n {
			switch err := r.take(member, now); {
			case err == nil:
				ok++
			case !errors.Is(err, transport.ErrThrottled):
				t.Fatal(err)
			}
		}
		return ok
	}
	if a, b := take("h1", 10), take("h2", 2); a != 3 || b != 2 {
		t.Errorf("at once: %d and %d, want 3 and 2", a, b)
	}
	now = now.Add(10 * time.Minute)
	if a := take("h1", 10); a != 1 {
		t.Errorf("after ten minutes: %d, want 1", a)
	}
	sum := 0
	for range 24 * 60 {
		now = now.Add(time.Minute)
		sum += take("h1", 1)
	}
	if sum < 143 || sum > 146 {
		t.Errorf("%d in a day of asking each minute, want 144", sum)
	}
	for i := range 10_000 {
		take(fmt.Sprint("m", i), 1)
	}
	if r.by.Len() != maxRenewers {
		t.Errorf("%d members are remembered", r.by.Len())
	}
}

func TestAskAgainAfter(t *testing.T) {
	other := errors.New("no answer")
	last := time.Duration(0)
	for i := range 100 {
		wait := askAgainAfter(i, other)
		if wait < last || wait < takeDownAgain || wait > recordWithin {
			t.Errorf("after %d failures: %s, before %s", i, wait, last)
		}
		last = wait
	}
	if last != recordWithin {
		t.Errorf("at last %s", last)
	}
	if wait := askAgainAfter(0, fmt.Errorf("renew: %w", transport.ErrThrottled)); wait != renewEvery {
		t.Errorf("throttled: %s", wait)
	}
}
