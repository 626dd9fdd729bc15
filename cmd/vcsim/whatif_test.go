package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"evenkeel/api/v1"
)

// pastCluster is one of two hosts, of 4 cores and 8 GB each, with so many virtual clusters of one VM that declare 2 cores and 4 GB, and use half a
// core and 1 GB, a little more each noon.
func pastCluster(n int) v1.ClusterHistory {
	h := v1.ClusterHistory{Version: 1, From: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), StepSeconds: 300, Steps: 300,
		Hosts: []v1.HistoryHost{{Name: "h1", CPU: 6, Memory: 12e9}, {Name: "h2", CPU: 6, Memory: 12e9}}}
	for i := range n {
		vm := v1.HistoryVM{Name: "vm"}
		for s := range h.Steps {
			noon := math.Max(0, -math.Cos(2*math.Pi*float64(s)/72))
			cpu, memory := 0.5+0.2*noon, 1e9+2e8*noon
			vm.CPU, vm.Memory = append(vm.CPU, &cpu), append(vm.Memory, &memory)
		}
		vm.CPU[7], vm.Memory[0] = nil, nil
		h.VirtualClusters = append(h.VirtualClusters, v1.HistoryVirtualCluster{Name: string(rune('a' + i)), CreatedAt: h.From.Add(time.Duration(i) * 20 * time.Minute),
			Groups: []v1.HistoryGroup{{Name: "g", CPU: 2, Memory: 4e9, MemoryMin: 5e8, VMs: []v1.HistoryVM{vm}}}})
	}
	return h
}

func whatifOf(t *testing.T, h v1.ClusterHistory, args ...string) (out, output string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "history.json")
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var o, e bytes.Buffer
	app := &cli.App{Name: "vcsim", Writer: &o, ErrWriter: &e, Commands: []*cli.Command{whatifCommand()}, ExitErrHandler: func(*cli.Context, error) {}}
	if err := app.Run(append(append([]string{"vcsim", "whatif"}, args...), file)); err != nil {
		t.Fatal(err)
	}
	return o.String(), e.String()
}

// Three fit on each of two hosts by what they declare. By what they use five do: what four need, what their host keeps for all, and all that a new one declares. A
// move makes room for one more.
func TestWhatif(t *testing.T) {
	out, output := whatifOf(t, pastCluster(6), "--settings", "declared,balanced", "--more", "100", "-o", "json")
	var results []struct {
		Policy         string  `json:"policy"`
		Failures       int64   `json:"failures"`
		QoS            float64 `json:"qos"`
		PerApplication []struct {
			Start float64 `json:"start"`
		} `json:"perApplication"`
	}
	if err := json.Unmarshal([]byte(out), &results); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ran := map[string]int{}
	for _, r := range results {
		for _, a := range r.PerApplication {
			if a.Start >= 0 {
				ran[r.Policy]++
			}
		}
		if r.Failures > 0 || r.QoS < 0.99 {
			t.Errorf("%s: %d failures, QoS %v", r.Policy, r.Failures, r.QoS)
		}
	}
	if ran["declared"] != 6 || ran["balanced"] != 11 {
		t.Errorf("as declared %d of 12 ran, with needs estimated %d", ran["declared"], ran["balanced"])
	}
	if !strings.Contains(output, "6 virtual clusters are played beside the 6 of the history") {
		t.Error(output)
	}
	first, _ := whatifOf(t, pastCluster(2), "--settings", "balanced", "--more", "50", "-o", "csv")
	if again, _ := whatifOf(t, pastCluster(2), "--settings", "balanced", "--more", "50", "-o", "csv"); again != first {
		t.Error("the same again is not the same")
	}
}

func TestWhatifHosts(t *testing.T) {
	out, _ := whatifOf(t, pastCluster(4), "--settings", "declared", "--without", "h2", "--add", "2")
	if !strings.Contains(out, "4 of 4") || !strings.Contains(out, "declared │     3 │") {
		t.Error(out)
	}
	out, _ = whatifOf(t, pastCluster(4), "--settings", "declared", "--without", "h2")
	if !strings.Contains(out, "3 of 4") {
		t.Error(out)
	}
}

func TestWhatifNotes(t *testing.T) {
	h := pastCluster(2)
	h.VirtualClusters[0].Groups[0].VMs[0].Throttled = 0.4
	clear(h.VirtualClusters[1].Groups[0].VMs[0].CPU)
	_, output := whatifOf(t, h, "--settings", "declared")
	for _, want := range []string{"caps held 1 of 2 VMs back", "nothing was measured of 1 of 2 VMs"} {
		if !strings.Contains(output, want) {
			t.Errorf("%q is not in %q", want, output)
		}
	}
}
