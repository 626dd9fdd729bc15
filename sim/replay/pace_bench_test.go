package replay

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"evenkeel/allocator/rightsizing"
	"evenkeel/forecast"
	"evenkeel/sim/workload"
)

// paceOf is the paper's workload on so many hosts, with as many applications per host.
func paceOf(tb testing.TB, hosts int, seed uint64) (*workload.Workload, []Host) {
	tb.Helper()
	p := workload.PaceDefault
	days := p.Days
	if hosts < p.Hosts {
		days = 7
	}
	p = p.Scaled(hosts, p.Apps*hosts/p.Hosts, days)
	w, err := p.Draw(rand.New(rand.NewPCG(seed, 0)))
	if err != nil {
		tb.Fatal(err)
	}
	machines := make([]Host, hosts)
	for i := range machines {
		machines[i] = Host{p.CPU, p.Memory}
	}
	return w, machines
}

func pacePolicies() []Policy {
	how := Enforcement{Capped: true}
	return []Policy{
		&Reservation{},
		&Rightsizing{Label: "optimistic", Foresight: &Oracle{}, Options: rightsizing.Options{Policy: rightsizing.Optimistic}, Yield: 1, How: how},
		&Rightsizing{Label: "pessimistic", Foresight: &Oracle{}, Yield: 1, How: how},
		&Rightsizing{Label: "persist", Foresight: &Persist{}, Buffer: forecast.Buffer{K1: 0.05}, Yield: 1, How: how},
	}
}

// BenchmarkPace plays the paper's three months; b.N times 250 hosts take minutes.
func BenchmarkPace(b *testing.B) {
	for _, hosts := range []int{10, 250} {
		for _, p := range pacePolicies() {
			b.Run(fmt.Sprintf("%d/%s", hosts, p.Name()), func(b *testing.B) {
				w, machines := paceOf(b, hosts, 1)
				for b.Loop() {
					r, err := Run(w, machines, p, Options{})
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(r.Turnaround.Mean, "turnaround-s")
					b.ReportMetric(100*r.Failed, "failed-%")
					b.Logf("%s: turnaround mean %.0f median %.0f p95 %.0f, wait %.0f, stretch median %.2f, slack cpu %.3f mem %.3f, failed %.4f requeued %.4f kills %d preempted %d requeues %d pressed %d qos %.5f used %.3f %.3f allocated %.3f %.3f yield %.3f %.3f thrash %.3f days %.1f unfinished %d",
						r.Policy, r.Turnaround.Mean, r.Turnaround.Median, r.Turnaround.P95, r.Wait.Mean, r.Stretch.Median, r.SlackCPU, r.SlackMemory, r.Failed, r.Requeued, r.Kills, r.Preempted, r.Requeues, r.MemoryExceeded, r.QoS,
						r.UsedCPU, r.UsedMemory, r.AllocatedCPU, r.AllocatedMemory, r.MinYield, r.MeanYield, r.Thrash, r.Seconds/86400, r.Unfinished)
				}
			})
		}
	}
}
