package state_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/cluster/state"
)

func TestTokenRanges(t *testing.T) {
	for _, c := range []struct {
		in   string
		want string // or a part of the error
		ok   bool
	}{
		{"10.0.0.0/24", "10.0.0.0/24", true},
		{"192.0.2.7", "192.0.2.7/32", true},
		{"2001:DB8::1", "2001:db8::1/128", true},
		{"::ffff:192.0.2.7", "192.0.2.7/32", true},
		{"2001:db8::/48,10.0.0.0/8,10.0.0.0/8", "10.0.0.0/8,2001:db8::/48", true},
		{"0.0.0.0/0", "0.0.0.0/0", true},
		{"10.0.0.5/24", "write 10.0.0.0/24", false},
		{"::ffff:10.0.0.0/104", "as one of IPv4", false},
		{"fe80::1%eth0", "no range of IP addresses", false},
		{"fe80::%eth0/64", "no range of IP addresses", false},
		{"10.0.0.0/33", "no range of IP addresses", false},
		{"010.0.0.1", "no range of IP addresses", false},
		{"localhost", "no range of IP addresses", false},
		{"", "no range of IP addresses", false},
		{strings.Repeat("1", 1000), "at most 49 characters", false},
		{strings.TrimSuffix(strings.Repeat("10.1.0.0/16,", 3), ","), "10.1.0.0/16", true},
		{ranges(17), "17 ranges are more than 16", false},
	} {
		got, err := state.TokenRanges(strings.Split(c.in, ","))
		switch {
		case c.ok && (err != nil || strings.Join(got, ",") != c.want):
			t.Errorf("%s: %v, %v", c.in, got, err)
		case !c.ok && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, %v, want %q", c.in, got, err, c.want)
		}
	}
}

func ranges(n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("10.%d.0.0/16", i))
	}
	return strings.Join(out, ",")
}

func TestGoodFrom(t *testing.T) {
	for _, c := range []struct {
		from, client string
		want         bool
	}{
		{"", "203.0.113.9:1", true},
		{"", "", true},
		{"10.0.0.0/24", "10.0.0.9:4000", true},
		{"10.0.0.0/24", "10.0.1.9:4000", false},
		{"10.0.0.0/24", "[::ffff:10.0.0.9]:4000", true},
		{"10.0.0.0/24", "[::ffff:10.0.1.9]:4000", false},
		{"10.0.0.0/24", "[::10.0.0.9]:4000", false}, // an IPv6 address that only looks alike
		{"10.0.0.0/24", "[2002:a00:9::]:4000", false},
		{"::/0", "10.0.0.9:4000", false},
		{"0.0.0.0/0", "[::1]:4000", false},
		{"fe80::/10", "[fe80::1%eth0]:4000", true},
		{"fe80::1/128", "[fe80::2%fe80::1]:4000", false},
		{"127.0.0.0/8", "127.0.0.1:4000", true},
		{"10.0.0.0/24", "127.0.0.1:4000", false}, // loopback is an address as any
		{"10.0.0.0/24", "", false},
		{"0.0.0.0/0,::/0", "", false},
		{"0.0.0.0/0,::/0", "@", false}, // of a unix socket
		{"0.0.0.0/0,::/0", "10.0.0.9", false},
		{"0.0.0.0/0,::/0", "10.0.0.9:1, 10.0.0.8:2", false},
	} {
		row := state.Token{}
		if c.from != "" {
			row.From = strings.Split(c.from, ",")
		}
		if got := row.GoodFrom(c.client); got != c.want {
			t.Errorf("from %q, client %q: %v", c.from, c.client, got)
		}
	}
}

// A token whose ranges are within another's is good nowhere where that one is not.
func TestRangesWithin(t *testing.T) {
	if state.RangesWithin(nil, []string{"10.0.0.0/8"}) {
		t.Error("all addresses are within a range")
	}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(of string) []string {
			texts := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
				a := netip.AddrFrom4([4]byte{10, 0, rapid.Byte().Draw(t, "b"), rapid.Byte().Draw(t, "c")})
				return netip.PrefixFrom(a, rapid.IntRange(14, 32).Draw(t, "bits")).Masked().String()
			}), 1, 4).Draw(t, of)
			out, err := state.TokenRanges(texts)
			if err != nil || !slices.IsSortedFunc(out, func(a, b string) int { return netip.MustParsePrefix(a).Compare(netip.MustParsePrefix(b)) }) {
				t.Fatalf("%v: %v, %v", texts, out, err)
			}
			return out
		}
		inner, outer := state.Token{From: draw("inner")}, state.Token{From: draw("outer")}
		client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, rapid.Byte().Draw(t, "b"), rapid.Byte().Draw(t, "c")}), 1).String()
		if state.RangesWithin(inner.From, outer.From) && inner.GoodFrom(client) && !outer.GoodFrom(client) {
			t.Fatalf("%v within %v, and good from %s alone", inner.From, outer.From, client)
		}
		if !state.RangesWithin(inner.From, inner.From) {
			t.Fatalf("%v not within itself", inner.From)
		}
	})
}
