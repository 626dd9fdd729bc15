package agent

import (
	"fmt"
	"testing"
)

// Who goes without more holds nobody up; who waits to be started, and what else is to be done, does.
func TestUngranted(t *testing.T) {
	more, start := Blocked{VM: "a", More: true}, Blocked{VM: "b"}
	for _, c := range []struct {
		ops []Operation
		vms string
		all bool
	}{
		{nil, "[]", true},
		{[]Operation{more, more}, "[a]", true},
		{[]Operation{more, start}, "[]", false},
		{[]Operation{more, SetCPU{VM: "c"}}, "[]", false},
	} {
		if vms, all := ungranted(c.ops); fmt.Sprint(vms) != c.vms || all != c.all {
			t.Errorf("%v: %v %v, want %v %v", c.ops, vms, all, c.vms, c.all)
		}
	}
}
