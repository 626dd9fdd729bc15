package main

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"
	"pgregory.net/rapid"

	"evenkeel/api/v1"
	"evenkeel/cluster/state"
	"evenkeel/sim/replay"
)

type whatifResult struct {
	Policy         string  `json:"policy"`
	Failures       int64   `json:"failures"`
	QoS            float64 `json:"qos"`
	Moves          int     `json:"moves"`
	BytesMoved     float64 `json:"bytesMoved"`
	SlackMemory    float64 `json:"slackMemory"`
	MeanYield      float64 `json:"meanYield"`
	MinYield       float64 `json:"minYield"`
	PerApplication []struct {
		Start float64 `json:"start"`
	} `json:"perApplication"`
}

func whatifResults(t *testing.T, h v1.ClusterHistory, args ...string) []whatifResult {
	t.Helper()
	out, _ := whatifOf(t, h, append(args, "-o", "json")...)
	var r []whatifResult
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return r
}

// pastVM is a virtual cluster of one VM that uses the same all the time.
func pastVM(h *v1.ClusterHistory, name string, after time.Duration, cpu, memory, usedCPU, usedMemory, lowest float64) {
	vm := v1.HistoryVM{Name: name}
	for range h.Steps {
		vm.CPU, vm.Memory = append(vm.CPU, &usedCPU), append(vm.Memory, &usedMemory)
	}
	h.VirtualClusters = append(h.VirtualClusters, v1.HistoryVirtualCluster{Name: name, CreatedAt: h.From.Add(after),
		Groups: []v1.HistoryGroup{{Name: "g", CPU: cpu, Memory: memory, MemoryMin: lowest, VMs: []v1.HistoryVM{vm}}}})
}

func emptyPast(steps int) v1.ClusterHistory {
	return v1.ClusterHistory{Version: 1, From: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), StepSeconds: 300, Steps: steps,
		Hosts: []v1.HistoryHost{{Name: "h1", CPU: 4, Memory: 8e9}, {Name: "h2", CPU: 4, Memory: 8e9}}}
}

// Two small VMs on two hosts leave no host for a large one. One of them is moved for it, if the budget lets it.
func TestWhatifMakesRoom(t *testing.T) {
	h := emptyPast(60)
	pastVM(&h, "a", 0, 1, 2e9, 0.5, 1.5e9, 2e9)
	pastVM(&h, "b", 0, 1, 2e9, 0.5, 1.5e9, 2e9)
	pastVM(&h, "large", time.Hour, 4, 8e9, 2, 6e9, 8e9)
	ran := func(args ...string) (n, moves int, bytes float64) {
		r := whatifResults(t, h, append([]string{"--settings", "declared"}, args...)...)[0]
		for _, a := range r.PerApplication {
			if a.Start >= 0 {
				n++
			}
		}
		return n, r.Moves, r.BytesMoved
	}
	if n, moves, bytes := ran("--no-moves"); n != 2 || moves != 0 || bytes != 0 {
		t.Fatalf("without moves %d ran, with %d moves of %v bytes", n, moves, bytes)
	}
	if n, moves, bytes := ran(); n != 3 || moves != 1 || bytes != 1.5e9 {
		t.Errorf("%d ran, with %d moves of %v bytes", n, moves, bytes)
	}
	if n, moves, _ := ran("--max-bytes", "1GiB"); n != 2 || moves != 0 {
		t.Errorf("with a budget of 1 GiB %d ran, with %d moves", n, moves)
	}
}

// Two VMs come to a host while they use little, and then want more than it has, while the other host is idle: one moves, and nothing more does.
func TestWhatifBalances(t *testing.T) {
	h := emptyPast(288)
	h.Hosts[1].CPU = 2.5 // no VM can begin there
	for i, name := range []string{"a", "b"} {
		busy := 2.4
		pastVM(&h, name, time.Duration(i)*3*time.Hour, 3, 1e9, 0.2, 5e8, 1e9)
		for s := 144; s < h.Steps; s++ {
			h.VirtualClusters[i].Groups[0].VMs[0].CPU[s] = &busy
		}
	}
	run := func(moves bool) *replay.Result {
		w, floors, _, err := pastOf(h, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		hosts, err := hostsOf(h, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		rightsizing, err := settingsNamed(state.Balanced, 300, floors)
		if err != nil {
			t.Fatal(err)
		}
		rightsizing.(*replay.Rightsizing).Foresight = &replay.Persist{}
		p := rightsizing
		if moves {
			p = withMoves(rightsizing, state.MoveSettings{})
		}
		r, err := replay.Run(w, hosts, p, replay.Options{Tick: 300, Until: 86400})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	still, moved := run(false), run(true)
	if still.Moves != 0 || moved.Moves != 1 || moved.BytesMoved != 5e8 {
		t.Errorf("%d and %d moves, %v bytes", still.Moves, moved.Moves, moved.BytesMoved)
	}
	if !(moved.MinYield > still.MinYield+0.05) || !(moved.UsedCPU > still.UsedCPU+0.05) {
		t.Errorf("least yield %v without moves and %v with, %v and %v of the CPU used", still.MinYield, moved.MinYield, still.UsedCPU, moved.UsedCPU)
	}
}

// A VM keeps its memoryMin, whatever little it uses.
func TestWhatifKeepsMemoryMin(t *testing.T) {
	slack := func(lowest float64) float64 {
		h := emptyPast(400)
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} { // of one alone its host keeps all that it may take back
			pastVM(&h, name, 0, 0.5, 2e9, 0.1, 0.5e9, lowest)
		}
		return whatifResults(t, h, "--settings", "balanced")[0].SlackMemory
	}
	low, high := slack(2.5e8), slack(1.5e9)
	if !(high > low+0.1) || high < 0.49 {
		t.Errorf("with a memoryMin of 0.25 GB %v of the memory is idle, with 1.5 GB %v", low, high)
	}
}

// watchedMoves looks whether a plan put more on a host than there is, and how much each sent.
type watchedMoves struct {
	*moving
	t      *rapid.T
	budget float64
}

func (w *watchedMoves) Rightsize(c *replay.Cluster) {
	on := map[int32]int32{}
	for s, app := range c.App {
		if app >= 0 {
			on[int32(s)] = c.On[s]
		}
	}
	w.moving.Rightsize(c)
	bytes := 0.0
	for s, h := range on {
		if c.App[s] >= 0 && c.On[s] != h {
			bytes += c.UsedMemory[s]
		}
	}
	// At most two plans a tick: one to balance, one for room.
	if bytes > 2*w.budget*(1+1e-9) {
		w.t.Fatalf("at %v %v bytes were moved, of %v allowed", c.Now, bytes, w.budget)
	}
	for h, host := range c.Hosts {
		if c.AllocatedMemory[h] > host.Memory*(1+1e-6) || c.AllocatedCPU[h] > host.CPU*(1+1e-6) {
			w.t.Fatalf("at %v host %d gives %v of %v cores and %v of %v bytes", c.Now, h, c.AllocatedCPU[h], host.CPU, c.AllocatedMemory[h], host.Memory)
		}
	}
}

func TestWhatifMovesKeepToHosts(t *testing.T) {
	moves := 0
	rapid.Check(t, func(t *rapid.T) {
		h := emptyPast(80)
		h.Hosts = append(h.Hosts, v1.HistoryHost{Name: "h3", CPU: 6, Memory: 12e9})
		for i := range rapid.IntRange(2, 9).Draw(t, "vms") {
			cpu, memory := rapid.Float64Range(0.5, 4).Draw(t, "cpu"), rapid.Float64Range(0.5e9, 8e9).Draw(t, "memory")
			pastVM(&h, string(rune('a'+i)), time.Duration(rapid.IntRange(0, 200).Draw(t, "minute"))*time.Minute, cpu, memory,
				cpu*rapid.Float64Range(0, 1).Draw(t, "used CPU"), memory*rapid.Float64Range(0.05, 1).Draw(t, "used memory"), memory*rapid.Float64Range(0, 1).Draw(t, "least"))
		}
		w, floors, _, err := pastOf(h, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		hosts, err := hostsOf(h, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		setting := rapid.SampledFrom([]string{"declared", state.Balanced}).Draw(t, "settings")
		p, err := settingsNamed(setting, 300, floors)
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := p.(*replay.Rightsizing); ok {
			s.Foresight = &replay.Persist{} // that of production trusts no forecast within these hours
		}
		m := &watchedMoves{moving: withMoves(p, state.MoveSettings{MaxBytes: 1 << 33}), t: t, budget: 1 << 33}
		r, err := replay.Run(w, hosts, m, replay.Options{Tick: 300, Until: float64(h.Steps * h.StepSeconds)})
		if err != nil {
			t.Skip(err)
		}
		if m.err != nil {
			t.Fatal(m.err)
		}
		moves += int(r.Moves)
		if math.IsNaN(r.QoS) || r.Failures > 0 && setting == "declared" {
			t.Fatalf("%+v", r)
		}
	})
	if moves == 0 {
		t.Error("nothing was moved in any of the histories: nothing was looked at")
	}
}

func TestWhatifRefuses(t *testing.T) {
	for _, args := range [][]string{{"--settings", "easy"}, {"--settings", "flex"}, {"--max-bytes", "12GB"}} {
		if err := whatifFails(t, args...); err == nil || strings.Contains(err.Error(), "no such file") {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func whatifFails(t *testing.T, args ...string) error {
	t.Helper()
	app := &cli.App{Name: "vcsim", Commands: []*cli.Command{whatifCommand()}, ExitErrHandler: func(*cli.Context, error) {}}
	return app.Run(append(append([]string{"vcsim", "whatif"}, args...), "nowhere.json"))
}
