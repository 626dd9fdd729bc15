package batch

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	ticked "evenkeel/sim/replay"
	"evenkeel/sim/workload"
)

// The same jobs end at the same times under FCFS and EASY of this package and of package replay, which were written apart, where all that is asked for
// is used.
func TestWholeNodesAgreeWithReplay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.IntRange(1, 6).Draw(t, "nodes")
		jobs := drawJobs(t, nodes)
		w := &workload.Workload{Patterns: []workload.Pattern{{1}}}
		const cores, bytes = 4, 1 << 30
		for i := range jobs {
			jobs[i].Submit += 1e-3 * float64(i) // no two at once: which of them comes first is not said
			use := workload.Use{Step: 1}
			w.Apps = append(w.Apps, workload.App{Arrival: jobs[i].Submit, Work: jobs[i].Run, First: int32(i), Groups: 1})
			w.Groups = append(w.Groups, workload.Group{Count: int32(jobs[i].Tasks), CPU: jobs[i].CPU * cores, Memory: jobs[i].Memory * bytes, CPUUse: use, MemoryUse: use})
		}
		hosts := make([]ticked.Host, nodes)
		for h := range hosts {
			hosts[h] = ticked.Host{CPU: cores, Memory: bytes}
		}
		for _, p := range []struct {
			here  Policy
			there ticked.Policy
		}{{FCFS(), &ticked.WholeHosts{}}, {EASY(), &ticked.WholeHosts{Backfill: true}}} {
			a, err := Run(Cluster{Nodes: nodes, Memory: bytes}, jobs, p.here)
			if err != nil {
				t.Fatal(err)
			}
			b, err := ticked.Run(w, hosts, p.there, ticked.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range jobs {
				if math.Abs(a.Jobs[i].End-b.PerApp[i].End) > 1e-3 {
					t.Fatalf("%s: job %d of %+v ends at %v here and at %v there", p.here.Name(), i, jobs, a.Jobs[i].End, b.PerApp[i].End)
				}
			}
		}
	})
}
