package morpheus

import (
	"fmt"
	"testing"
)

// The 13 runs of TPC-H Q12 (fig. 5 has another cluster's), each left out in its turn: a skyline is fitted to the other twelve, and the run plays in it. With re-provisioning it
// is due twice as long after its start as the longest run, on a cluster of 2,600 containers for itself. go test -run Q12 -v prints what comes out.
func TestQ12LeftOut(t *testing.T) {
	var runs [][]float64
	longest := 0
	for _, r := range q12(t) {
		runs = append(runs, r)
		longest = max(longest, len(r))
	}
	missed := map[string]int{}
	for _, name := range []string{"0.001", "0.01", "0.05", "0.1", "0.25", "0.5", "beta=0", "mean", "p95", "max"} {
		reserved, used, granted, again, late := 0.0, 0.0, 0.0, 0, 0
		for out := range runs {
			c := contract{job: &Job{Name: fmt.Sprint("q12-", out), Period: Day, Phase: 0}, due: 2 * longest}
			for i, r := range runs {
				if i != out {
					c.past = append(c.past, r)
				}
			}
			c.future = []Run{{Usage: runs[out]}}
			skyline, err := c.skyline(name)
			if err != nil {
				t.Fatal(err)
			}
			p, err := place([]contract{c}, [][]float64{skyline}, atArrival)
			if err != nil {
				t.Fatal(err)
			}
			o := p.onlyReserved([]contract{c})
			missed[name] += o.Missed
			reserved, used = reserved+o.Reserved, used+o.Used
			for _, r := range []rules{asInPaper(), forLateRuns()} {
				r.Reprovisioning.MaxShare = 1
				o := p.reprovisioned([]contract{c}, 2600, r)
				if r.lateOnly {
					late += o.Missed
					granted += o.Granted
				} else {
					again += o.Missed
				}
			}
		}
		t.Logf("%-6s reserved %.3f of what is used; of 13 missed %d, re-provisioned %d, late runs only %d, which grants %.4f of what is reserved", name, reserved/used, missed[name], again, late, granted/reserved)
		if late > again || again > missed[name] {
			t.Errorf("%s: re-provisioning misses more: %d, %d, %d", name, missed[name], again, late)
		}
	}
	if missed["0.01"] > missed["0.5"] || missed["0.01"] >= missed["mean"] {
		t.Errorf("missed %v", missed)
	}
}
