package main

import (
	"testing"

	"evenkeel/api/v1"
)

// A reason that several VMs have is said once.
func TestEqualReasons(t *testing.T) {
	for _, c := range []struct {
		vms  []v1.VMEffect
		want string
	}{
		{nil, ""},
		{[]v1.VMEffect{{VM: "a", Why: "x"}}, "; a x"},
		{[]v1.VMEffect{{VM: "a", Why: "x"}, {VM: "b", Why: "y"}, {VM: "c", Why: "x"}}, "; 2 VMs, a, c: each x; b y"},
		{[]v1.VMEffect{{VM: "a", Why: "x"}, {VM: "b", Why: "x"}, {VM: "c", Why: "x"}, {VM: "d", Why: "x"}, {VM: "e", Why: "x"}}, "; 5 VMs, a, b, c and 2 more: each x"},
	} {
		if got := equalReasons(c.vms); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
