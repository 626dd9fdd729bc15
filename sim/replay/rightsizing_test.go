package replay

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/allocator/rightsizing"
	"evenkeel/forecast"
	"evenkeel/sim/workload"
)

var rewrite = flag.Bool("rewrite", false, "write testdata again")

// Algorithm 1 with an oracle fails no component: it knows what will be used, and evicts in time.
func TestPessimistWithOracleFailsNone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, hosts := drawn(t)
		p := &Rightsizing{Label: "pessimistic", Foresight: &Oracle{}, Yield: 1, How: Enforcement{Capped: true, Hard: rapid.Bool().Draw(t, "hard")}}
		r, err := Run(w, hosts, watched{p, t}, Options{Until: 1e6})
		if err != nil {
			t.Fatal(err)
		}
		if r.Kills > 0 || r.Failed > 0 || r.MemoryExceeded > 0 {
			t.Fatalf("%d kills, %v failed, %d pressed", r.Kills, r.Failed, r.MemoryExceeded)
		}
		if r.QoS < 1 {
			t.Fatalf("QoS %v: every VM is given what it will use", r.QoS)
		}
	})
}

// Two applications hold 1 GiB for two minutes and then 4 GiB, on a host with 5; each asked for 4. The oracle starts the second once the first was shrunk;
// when both grow the pessimist takes the second back, and the optimist lets one fail.
func TestEviction(t *testing.T) {
	grows := workload.Pattern{0.25, 0.25, 0.25, 1, 1, 1, 1, 1, 1, 1}
	w := small([]workload.Pattern{{1}, grows},
		[]workload.App{{Work: 400, First: 0, Groups: 1}, {Arrival: 1, Work: 400, First: 1, Groups: 1}},
		workload.Group{Count: 1, CPU: 1, Memory: 4 * gib, CPUUse: flat(0), MemoryUse: workload.Use{Pattern: 1, Step: 60}},
		workload.Group{Count: 1, CPU: 1, Memory: 4 * gib, CPUUse: flat(0), MemoryUse: workload.Use{Pattern: 1, Step: 60}})
	hosts := []Host{{CPU: 4, Memory: 5 * gib}}
	how := Enforcement{Capped: true}
	pess := run(t, w, hosts, &Rightsizing{Label: "pessimistic", Foresight: &Oracle{}, Yield: 1, How: how}, Options{})
	if pess.Failures != 0 || pess.Requeues != 1 || pess.PerApp[0].Preemptions != 0 || pess.PerApp[0].Turnaround != 400 {
		t.Errorf("pessimist: %d failures, %d requeues, %+v", pess.Failures, pess.Requeues, pess.PerApp)
	}
	opt := run(t, w, hosts, &Rightsizing{Label: "optimistic", Foresight: &Oracle{}, Yield: 1, How: how, Options: rightsizing.Options{Policy: rightsizing.Optimistic}}, Options{})
	if opt.Failures == 0 || opt.Requeues != 0 {
		t.Errorf("optimist: %d failures, %d requeues", opt.Failures, opt.Requeues)
	}
	offloaded := run(t, w, hosts, &Rightsizing{Label: "relieved", Foresight: &Oracle{}, Yield: 1, How: how, Options: rightsizing.Options{Policy: rightsizing.Optimistic}, EmergencyEviction: true}, Options{})
	if offloaded.Failures != 0 || offloaded.Requeues == 0 || offloaded.PerApp[0].Preemptions != 0 {
		t.Errorf("optimist with relief: %d failures, %d requeues, %+v", offloaded.Failures, offloaded.Requeues, offloaded.PerApp)
	}
}

// The buffer is what keeps those that the forecast is wrong about: with a hard limit and no buffer a rising use ends its component, with all of the request as a buffer it does not.
func TestBufferKeeps(t *testing.T) {
	w := small([]workload.Pattern{{1}, {0.1, 0.3, 0.5, 0.7, 0.9, 0.9}},
		[]workload.App{{Work: 300, First: 0, Groups: 1}},
		workload.Group{Count: 1, CPU: 1, Memory: gib, CPUUse: flat(0), MemoryUse: workload.Use{Pattern: 1, Step: 60}})
	hosts := []Host{{CPU: 4, Memory: 4 * gib}}
	of := func(k1 float64) *Result {
		return run(t, w, hosts, &Rightsizing{Label: "persist", Foresight: &Persist{}, Buffer: forecast.Buffer{K1: k1}, Yield: 1, Trust: 2,
			How: Enforcement{Capped: true, Hard: true}}, Options{})
	}
	if r := of(0.05); r.Failures != 2 { // then it is given its request
		t.Errorf("K1 = 5%%: %d failures", r.Failures)
	}
	if r := of(0.25); r.Failures != 0 {
		t.Errorf("K1 = 25%%: %d failures; use rises by 20%% a minute", r.Failures)
	}
}

// A small run under all policies that need no fitting, to the last byte.
func TestGolden(t *testing.T) {
	w, hosts := paceOf(t, 1, 3)
	w.Apps = w.Apps[:30]
	var results []*Result
	policies := append(pacePolicies(), &Rightsizing{Label: "arima10", Foresight: &Models{Kind: "arima10", New: FewARIMA}, Buffer: forecast.Buffer{K1: 0.05, K2: 3}, Yield: 1, Trust: 3},
		&Rightsizing{Label: "gp10", Foresight: &Models{Kind: "gp10", New: FewGP}, Buffer: forecast.Buffer{K1: 0.05, K2: 3}, Yield: 1, Trust: 3})
	for _, p := range policies {
		results = append(results, run(t, w, hosts, p, Options{Until: 6 * 3600}))
	}
	var b bytes.Buffer
	if err := WriteCSV(&b, results); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "golden.csv")
	if *rewrite {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.Bytes(), want) {
		t.Errorf("the figures changed (-rewrite if that is right):\n%s\nwere:\n%s", b.Bytes(), want)
	}
}

func TestWrite(t *testing.T) {
	r := &Result{Policy: "p", Hosts: 1, Apps: 1, Series: []Point{{Time: 60, Running: 1}}, PerApp: []AppOutcome{{Start: 1, End: 2, Turnaround: 2, Stretch: 1}}}
	for name, write := range map[string]func(*bytes.Buffer) error{
		"p,60,0,0,0,0,1,0,0,0,0,0,0":   func(b *bytes.Buffer) error { return WriteSeries(b, []*Result{r}) },
		"p,0,0,1,2,2,1,0,0,0,0":        func(b *bytes.Buffer) error { return WriteApps(b, []*Result{r}) },
		"\"policy\": \"p\"":            func(b *bytes.Buffer) error { return WriteJSON(b, []*Result{r}) },
		"policy,hosts,applications,tu": func(b *bytes.Buffer) error { return WriteCSV(b, []*Result{r}) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(b.Bytes(), []byte(name)) {
			t.Errorf("%q is not in:\n%s", name, b.Bytes())
		}
	}
}
