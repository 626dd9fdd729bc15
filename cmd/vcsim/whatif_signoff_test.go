package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"evenkeel/api/v1"
	"evenkeel/sim/signoff"
)

// madeJob is a job whose runs a test makes.
type madeJob struct {
	name        string
	runs        int
	every       time.Duration
	begin       time.Duration // after midnight
	extra       string        // fields of each run
	count       int
	cpu, memory float64 // declared, of each VM
	cores       []float64
	gib         float64
	waited      time.Duration // in the queue, every third run
}

// madeRuns are the runs of jobs: in each fifth a run uses a tenth more, and the last takes a step longer.
func madeRuns(jobs ...madeJob) string {
	var b strings.Builder
	for _, j := range jobs {
		for i := range j.runs {
			at := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC).Add(j.begin + time.Duration(i)*j.every)
			started := at
			if i%3 == 0 {
				started = at.Add(j.waited)
			}
			var use, memory []float64
			for _, c := range j.cores {
				if i%5 == 4 {
					c *= 1.1
				}
				use, memory = append(use, math.Round(100*c)/100), append(memory, j.gib*(1<<30))
			}
			if i == j.runs-1 {
				use, memory = append(use, 1), append(memory, memory[0])
			}
			u, _ := json.Marshal(use)
			m, _ := json.Marshal(memory)
			end := started.Add(time.Duration(len(use)) * 5 * time.Minute)
			fmt.Fprintf(&b, `{"name":"%s-%d","begin":%q,"started":%q,"end":%q%s,"count":%d,"cpu":%g,"memory":%.0f,"step":300,"usage":%s,"memoryUsage":%s}`+"\n", j.name, i,
				at.Format(time.RFC3339), started.Format(time.RFC3339), end.Format(time.RFC3339), j.extra, j.count, j.cpu, j.memory*(1<<30), u, m)
		}
	}
	return b.String()
}

const aDay = 24 * time.Hour

// signOffJobs are jobs of every fate: nightly ones that fit, one that waited too long in the queue, one that is too large, one whose deadline is too
// early, one without a deadline, and one of too few runs.
func signOffJobs() string {
	long := make([]float64, 24)
	for k := range long {
		long[k] = 4
	}
	return madeRuns(
		madeJob{name: "render", runs: 20, every: aDay, begin: 2 * time.Hour, extra: `,"deadline":"3h"`, count: 4, cpu: 4, memory: 8, cores: []float64{2, 6, 8, 8, 6, 6, 4, 4, 4, 4, 2, 1}, gib: 12, waited: 150 * time.Minute},
		madeJob{name: "etl", runs: 60, every: 2 * time.Hour, begin: 10 * time.Minute, extra: `,"deadline":"40m"`, count: 1, cpu: 4, memory: 8, cores: []float64{1, 2, 2, 1}, gib: 3},
		madeJob{name: "train", runs: 12, every: aDay, begin: 3 * time.Hour, extra: `,"deadline":"2h"`, count: 2, cpu: 16, memory: 8, cores: []float64{20, 24, 24, 24}, gib: 8},
		madeJob{name: "index", runs: 14, every: aDay, begin: 5 * time.Hour, extra: `,"deadline":"1h"`, count: 1, cpu: 4, memory: 4, cores: long, gib: 2},
		madeJob{name: "report", runs: 16, every: aDay, begin: 8 * time.Hour, count: 1, cpu: 2, memory: 4, cores: []float64{1, 1}, gib: 1},
		madeJob{name: "audit", runs: 6, every: aDay, begin: 7 * time.Hour, count: 1, cpu: 2, memory: 4, cores: []float64{1, 1}, gib: 1},
	)
}

// signOffHistory has three hosts of 10 cores and 32 GiB, on which four VMs run all the time, and a run whose VM has ended.
func signOffHistory() v1.ClusterHistory {
	h := pastCluster(5)
	h.Hosts = nil
	for i := range 3 {
		h.Hosts = append(h.Hosts, v1.HistoryHost{Name: fmt.Sprintf("h%d", i+1), CPU: 10, Memory: 32 << 30})
	}
	vm := &h.VirtualClusters[4].Groups[0].VMs[0]
	for k := 100; k < h.Steps; k++ {
		vm.CPU[k], vm.Memory[k] = nil, nil
	}
	return h
}

// signOffRun runs vcsim whatif --sign-off on these runs and a history.
func signOffRun(t *testing.T, h v1.ClusterHistory, runs string, args ...string) (out string, err error) {
	t.Helper()
	dir := t.TempDir()
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"h.json": text, "runs.jsonl": []byte(runs)} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var o bytes.Buffer
	app := &cli.App{Name: "vcsim", Writer: &o, ErrWriter: io.Discard, Commands: []*cli.Command{whatifCommand()}, ExitErrHandler: func(*cli.Context, error) {}}
	err = app.Run(append(append([]string{"vcsim", "whatif", "--sign-off", "--runs", filepath.Join(dir, "runs.jsonl")}, args...), filepath.Join(dir, "h.json")))
	return o.String(), err
}

// What it prints; -rewrite writes it again.
func TestSignOffGolden(t *testing.T) {
	for name, args := range map[string][]string{"signoff": nil, "signoff-stretched": {"--min-yield", "0.5", "--miss", "0.1", "--deadline", "report-#=2h", "--add", "1"}} {
		got, err := signOffRun(t, signOffHistory(), signOffJobs(), args...)
		if err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", "whatif", name+".txt")
		if *rewrite {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil || got != string(want) {
			t.Errorf("%v: got\n%s\nwant\n%s", err, got, want)
		}
	}
}

// Each job has its fate, and JSON has the numbers of it.
func TestSignOffJSON(t *testing.T) {
	out, err := signOffRun(t, signOffHistory(), signOffJobs(), "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var r signoff.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	jobs := map[string]signoff.Job{}
	for _, j := range r.Jobs {
		jobs[j.Name] = j
	}
	if j := jobs["render-#"]; j.Slot == nil || j.Played != 6 || j.MissedBefore != 2 || j.MissedAfter != 0 || !(j.After.CoreHours < 0.6*j.Before.CoreHours) || len(j.Slot.Hosts) != 4 {
		t.Errorf("render waited in the queue: %+v", j)
	}
	for name, reason := range map[string]string{"train-#": "cores", "index-#": "take up to 2h", "report-#": "no deadline"} {
		j := jobs[name]
		if j.Refusal == nil || !strings.Contains(j.Refusal.Reason, reason) || len(j.Refusal.Changes) == 0 || j.MissedAfter != j.MissedBefore || j.After != j.Before {
			t.Errorf("%s: %+v, %+v", name, j, j.Refusal)
		}
	}
	// What would fit does.
	if out, err = signOffRun(t, signOffHistory(), signOffJobs(), "--deadline", "index-#=2h", "--min-yield", "0.66", "-o", "json"); err != nil {
		t.Fatal(err)
	}
	var again signoff.Report
	if err := json.Unmarshal([]byte(out), &again); err != nil {
		t.Fatal(err)
	}
	for _, j := range again.Jobs {
		if (j.Name == "index-#" || j.Name == "train-#") && j.Slot == nil {
			t.Errorf("%+v", j.Refusal)
		}
	}
	if _, found := jobs["audit-#"]; found || r.HostsReserved > r.HostsDeclared || r.HostsReserved == 0 {
		t.Errorf("%+v", r)
	}
}

func TestSignOffRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"plays slots":          {"--settings", "declared"},
		"must be JOB=DURATION": {"--deadline", "render"},
		"no such job":          {"--deadline", "renderer=2h"},
		"time zone":            {"--zone", "Mars"},
		"between 0 and 1":      {"--miss", "1"},
		"above 0":              {"--min-yield", "0"},
		"table or json":        {"-o", "csv"},
		"no host is left":      {"--without", "h1,h2,h3"},
	} {
		if _, err := signOffRun(t, signOffHistory(), signOffJobs(), args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
	if _, err := signOffRun(t, signOffHistory(), `{"name":"a","begin":"2026-01-01T00:00:00Z","usage":[1]}`); err == nil || !strings.Contains(err.Error(), "line 1: step") {
		t.Error(err)
	}
	app := &cli.App{Name: "vcsim", Writer: io.Discard, ErrWriter: io.Discard, Commands: []*cli.Command{whatifCommand()}, ExitErrHandler: func(*cli.Context, error) {}}
	if err := app.Run([]string{"vcsim", "whatif", "--miss", "0.1", "h.json"}); err == nil || !strings.Contains(err.Error(), "is for --sign-off") {
		t.Error(err)
	}
}
