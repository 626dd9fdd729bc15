package hypervisor_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"evenkeel/hypervisor"
)

func TestAddresses(t *testing.T) {
	many := []string{}
	for i := range 50 {
		many = append(many, fmt.Sprintf("192.0.2.%d", i+1))
	}
	for _, c := range []struct {
		name  string
		found []string
		want  []string
	}{
		{"none", nil, nil},
		{"each once, IPv4 first", []string{"2001:db8::5", "192.0.2.9", "192.0.2.9", "::ffff:192.0.2.9"}, []string{"192.0.2.9", "2001:db8::5"}},
		{"only those that others reach", []string{"127.0.0.1", "::1", "fe80::1%eth0", "169.254.3.4", "0.0.0.0", "224.0.0.1", "192.0.2.1"}, []string{"192.0.2.1"}},
		{"what is no address", []string{"", "web", "192.0.2.1/24", "192.0.2.1\n"}, nil},
		{"not too many", many, many[:hypervisor.MaxAddresses]},
	} {
		var want []netip.Addr
		for _, w := range c.want {
			want = append(want, netip.MustParseAddr(w))
		}
		if got := hypervisor.Addresses(c.found); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", c.name, got, want)
		}
	}
}
