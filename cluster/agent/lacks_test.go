package agent

import (
	"fmt"
	"testing"
)

// A VM that runs without more memory or CPU delays no operation. A VM that waits to be started does, and so does other work
// that is left.
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
