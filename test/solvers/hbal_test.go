package solvers

import (
	"strings"
	"testing"

	"evenkeel/allocator"
)

func TestHbalFiles(t *testing.T) {
	p := allocator.Problem{
		Hosts:  []allocator.Host{{CPU: 4, Memory: 4096}, {CPU: 4, Memory: 2048}},
		Groups: []allocator.Group{{Count: 1, CPU: 0.5, Memory: 1024, Hosts: []int{0}}, {Count: 1, CPU: 1, Memory: 2000, Hosts: []int{1}}},
	}
	var state, load strings.Builder
	if err := WriteHbal(&state, &load, p); err != nil {
		t.Fatal(err)
	}
	want := `all|all|preferred||

h0|4096|0|3072|1000000|1000000|64|M|all|1||N|0|0|1
h1|2048|0|48|1000000|1000000|64|N|all|1||N|0|0|1

v0|1024|0|1|running|Y|h0||ext||1|-
v1|2000|0|1|running|Y|h1||ext||1|-


|1024,1,1,1,1,1|1,1,0,0,0,1;1000000,64,1000000,100,100,64|ext|1000|1000
`
	if state.String() != want || load.String() != "v0 0.5 0 0 0\nv1 1 0 0 0\n" {
		t.Errorf("got\n%s\n%s", state.String(), load.String())
	}
	on, err := placed(strings.Replace(want, "Y|h1", "Y|h0", 1), 2, 2)
	if err != nil || on[0] != 0 || on[1] != 0 {
		t.Errorf("%v, %v", on, err)
	}
	if _, err := placed(strings.Replace(want, "v1|", "v2|", 1), 2, 2); err == nil {
		t.Error("a VM that is none of ours is taken")
	}
	if _, err := placed("", 2, 2); err == nil {
		t.Error("an empty answer is taken")
	}
}
