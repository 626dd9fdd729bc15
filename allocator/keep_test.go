package allocator

import "testing"

// What a cluster lost on a scarce host it does not take from others elsewhere:
// b keeps its floor beside a, which can only use half a core on h2, and the new c.
func TestFloorsLostElsewhere(t *testing.T) {
	p := Problem{
		Hosts: []Host{{Name: "h1", CPU: 1, Memory: 0.625}, {Name: "h2", CPU: 4, Memory: 8}, {Name: "h3", CPU: 0.1, Memory: 8}},
		Groups: []Group{
			{Cluster: "a", Name: "g", Count: 3, CPU: 1.2, Memory: 0.25, MinYield: 0.75, Hosts: []int{0, 0, 1}},
			{Cluster: "b", Name: "g", Count: 2, CPU: 1.9, Memory: 0.25, MinYield: 0.75, Hosts: []int{1, 1}},
			{Cluster: "c", Name: "g", Count: 1, CPU: 1.2, Memory: 0.75, MinYield: 0.25},
		},
	}
	adm := Admit(p)
	if !adm.Admitted {
		t.Fatal("refused:", adm.Summary)
	}
	if y := adm.Solution.CPU[1] / 1.9; y < 0.75-1e-9 {
		t.Errorf("b fell to %v, below its floor", y)
	}
}
