package server

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

func TestJoinLimit(t *testing.T) {
	l, now := newJoinLimit(), time.Unix(1000, 0)
	takes := func(address string, n int) (ok int) {
		for range n {
			if l.take(netip.MustParseAddr(address), now) == 0 {
				ok++
			}
		}
		return ok
	}
	for _, c := range []struct {
		what, address string
		after         time.Duration
		want          int
	}{
		{"a first address", "192.0.2.1", 0, 20},
		{"the same one", "192.0.2.1", 0, 0},
		{"the same one, as IPv6 writes it", "::ffff:192.0.2.1", 0, 0},
		{"another one", "192.0.2.2", 0, 20},
		{"IPv6", "2001:db8::1", 0, 20},
		{"another of its network", "2001:db8::ffff:2", 0, 0},
		{"another network", "2001:db8:0:1::1", 0, 20},
		{"after a second", "192.0.2.1", time.Second, 5},
		{"after a long time", "192.0.2.1", time.Hour, 20},
		{"a zone of an interface", "fe80::1%eth0", 0, 20},
		{"the same network, by another interface", "fe80::2%eth1", 0, 0},
	} {
		now = now.Add(c.after)
		if got := takes(c.address, 30); got != c.want {
			t.Errorf("%s: %d of 30 requests were taken, want %d", c.what, got, c.want)
		}
	}
	if wait := l.take(netip.MustParseAddr("fe80::1"), now); wait <= 0 || wait > 200*time.Millisecond {
		t.Errorf("ask again after %s", wait)
	}

	// Of all addresses together: no more than 100 at once and 50 a second, and no more are remembered than the table holds.
	l, now = newJoinLimit(), now.Add(time.Hour)
	ok := 0
	for i := range 10_000 {
		ok += takes(fmt.Sprintf("10.0.%d.%d", i/250, i%250), 1)
	}
	if ok != 100 || l.by.Len() != maxJoinSources {
		t.Errorf("%d of 10,000 addresses were let through, and %d are remembered", ok, l.by.Len())
	}
	now = now.Add(time.Second)
	for i := range 100 {
		ok += takes(fmt.Sprintf("10.1.0.%d", i), 1)
	}
	if ok != 150 {
		t.Errorf("%d within a second of the first, want 150", ok)
	}
	// An address that is not known counts as one.
	l = newJoinLimit()
	ok = 0
	for range 30 {
		if l.take(netip.Addr{}, now) == 0 {
			ok++
		}
	}
	if ok != 20 {
		t.Errorf("%d requests of no address, want 20", ok)
	}
}
