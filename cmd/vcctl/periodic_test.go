package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"evenkeel/api/v1"
)

// periodicFit runs `vcctl periodic fit` as a user does.
func periodicFit(t *testing.T, stdin string, args ...string) (out, message string, status int) {
	t.Helper()
	return periodicRun(t, "fit", stdin, args...)
}

// periodicRun runs a subcommand of `vcctl periodic`.
func periodicRun(t *testing.T, verb, stdin string, args ...string) (out, message string, status int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	app := (&tool{in: strings.NewReader(stdin), out: &stdout, err: &stderr}).app()
	app.Reader = strings.NewReader(stdin)
	line, err := reorder(app, append([]string{"vcctl", "periodic", verb}, args...))
	if err == nil {
		err = app.Run(line)
	}
	if err != nil {
		message = err.Error()
	}
	return stdout.String(), message, statusOf(err)
}

const twoRuns = `{"run": "r1", "step": 5, "usage": [0, 2, 7.5]}
{"run": "r2", "step": 5, "usage": [0, 4, 6.5, 1]}
`

func TestPeriodicFit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "runs.jsonl")
	if err := os.WriteFile(file, []byte(twoRuns), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		stdin string
		args  []string
		want  string
	}{
		"standard input":    {twoRuns, nil, `{"skyline":[0,3,7.5,1],"step":5,"objective":0.015065217391304347,"over":1.5,"under":0,"eps":0.043478260869565216,"gap":0}`},
		"a hyphen":          {twoRuns, []string{"-"}, `{"skyline":[0,3,7.5,1],"step":5,"objective":0.015065217391304347,"over":1.5,"under":0,"eps":0.043478260869565216,"gap":0}`},
		"a file, any order": {"", []string{file, "--alpha", "0"}, `{"skyline":[0,4,7.5,1],"step":5,"objective":0,"over":2,"under":0,"eps":0,"gap":0}`},
		"alpha 1":           {twoRuns, []string{"--alpha", "1", "--beta", "0"}, `{"skyline":[0,2,6.5,0],"step":5,"objective":0,"over":0,"under":2,"eps":0.18306636155606407,"gap":0}`},
		"throttled steps":   {strings.Replace(twoRuns, "6.5, 1]", "6.5, 1], \"throttled\": [2]", 1), []string{"--alpha", "0.9", "--beta", "0"}, `{"skyline":[0,2,7.5,0],"step":5,"objective":0.09999999999999998,"over":0,"under":1,"eps":0.13043478260869565,"gap":0}`},
		"memory":            {twoRuns, []string{"--debts=false", "--alpha=0.25", "--beta=0"}, `{"skyline":[0,4,7.5,1],"step":5,"objective":0.5,"over":2,"under":0,"eps":0,"gap":0}`},
	} {
		t.Run(name, func(t *testing.T) {
			out, message, status := periodicFit(t, c.stdin, c.args...)
			if status != 0 || strings.TrimSpace(out) != c.want {
				t.Errorf("status %d, %s\n%s\nwant\n%s", status, message, out, c.want)
			}
		})
	}
}

func TestPeriodicFitRefuses(t *testing.T) {
	for _, c := range []struct {
		stdin string
		args  []string
		want  string
	}{
		{"", nil, "periodic fit: there is no run"},
		{twoRuns, []string{"--alpha", "2"}, `--alpha "2" is not`},
		{twoRuns, []string{"--alpha", "nan"}, `--alpha "nan" is not`},
		{twoRuns, []string{"--alpha", "1e-12"}, "alpha 1e-12 is above 0"},
		{twoRuns, []string{"--beta", "V"}, `--beta "V" is not`},
		{twoRuns, []string{"--beta", "-1"}, `--beta "-1" is not`},
		{twoRuns, []string{"--beta", "inf"}, `--beta "inf" is not`},
		{twoRuns, []string{"a", "b"}, "one FILE at most"},
		{twoRuns, []string{"no-such-file"}, "no such file"},
		{twoRuns, []string{"--gamma", "1"}, "gamma"},
		{`{"run":"r","step":5,"usage":[1],"unit":"GiB"}`, nil, `line 1: unknown field "unit"`},
	} {
		out, message, status := periodicFit(t, c.stdin, c.args...)
		if status != statusUsage || out != "" || !strings.Contains(message, c.want) {
			t.Errorf("%q: status %d, output %q, message %q, want %q", c.args, status, out, message, c.want)
		}
	}
}

// The runs that Hadoop's estimator is tested with, through the command.
func TestPeriodicFitOfHadoop(t *testing.T) {
	data, err := os.ReadFile("../../forecast/skyline/testdata/tpch-q12/runs.txt")
	if err != nil {
		t.Fatal(err)
	}
	var in bytes.Buffer
	for line := range strings.Lines(string(data)) {
		name, points, _ := strings.Cut(strings.TrimSpace(line), " ")
		var use []float64
		for point := range strings.SplitSeq(strings.Trim(points, "|"), "|") {
			mb, _, _ := strings.Cut(point, ":")
			var v float64
			if err := json.Unmarshal([]byte(mb), &v); err != nil {
				t.Fatal(err)
			}
			use = append(use, v/8192)
		}
		if err := json.NewEncoder(&in).Encode(map[string]any{"run": name, "step": 5, "usage": use[:7]}); err != nil {
			t.Fatal(err)
		}
	}
	out, message, status := periodicFit(t, in.String(), "--alpha", "0.1", "--beta", "0.1")
	var f fitted
	if err := json.Unmarshal([]byte(out), &f); err != nil || status != 0 {
		t.Fatal(status, message, err)
	}
	if math.Abs(f.Objective-50.20019024) > 1e-6 || len(f.Skyline) != 7 || f.Step != 5 || f.Gap > 1e-9 {
		t.Errorf("%+v", f)
	}
}

// A contract names the days that have no run, the first five of many.
func TestContractOfSkips(t *testing.T) {
	for skips, want := range map[int]string{0: "2.00 cores\n", 1: "2.00 cores; no run on 2026-12-01\n", 7: "; no run on 2026-12-01, 2026-12-02, 2026-12-03, 2026-12-04, 2026-12-05 and 2 more days\n"} {
		k := &v1.PeriodicContract{Cores: []float64{1, 2}}
		for day := range skips {
			k.Skips = append(k.Skips, fmt.Sprintf("2026-12-%02d", day+1))
		}
		var b strings.Builder
		if writeContract(&b, "Contract", k); !strings.HasSuffix(b.String(), want) {
			t.Errorf("%q, want %q at its end", b.String(), want)
		}
	}
}

// TestSkylineText: runs with steps and lengths of their own on top of each other, beside what is reserved.
func TestSkylineText(t *testing.T) {
	runs := []v1.PeriodicRun{{Step: "1m", Cores: []float64{1, 2, 3, 4, 5}}, {Step: "5m", Cores: []float64{2, 1}}, {Step: "1m", Cores: []float64{0, 0, 0, 0, 0, 0, 9}}, {}}
	for _, c := range []struct {
		what string
		job  v1.PeriodicJob
		want string
	}{
		{"nothing is known", v1.PeriodicJob{History: []v1.PeriodicRun{{}}}, ""},
		{"signed off", v1.PeriodicJob{History: runs, Contract: &v1.PeriodicContract{Step: "5m", Cores: []float64{4, 6}}, Proposal: &v1.PeriodicContract{Step: "1m", Cores: []float64{1}}}, `
Cores from the start of a run on, each row the highest of 5m: reserved, what runs of known use took (3), and how many took more than is reserved
FROM   RESERVED   LOWEST   MEDIAN   HIGHEST   ABOVE
0s     4.00       0.00     2.00     5.00      1
5m     6.00       0.00     1.00     9.00      1
`},
		{"no proposal", v1.PeriodicJob{History: runs[1:2]}, `
Cores from the start of a run on, each row the highest of 5m: reserved, what runs of known use took (1), and how many took more than is reserved
FROM   RESERVED   LOWEST   MEDIAN   HIGHEST   ABOVE
0s     -          2.00     2.00     2.00      -
5m     -          1.00     1.00     1.00      -
`},
		{"given", v1.PeriodicJob{Proposal: &v1.PeriodicContract{Step: "5m", Cores: []float64{4}}}, `
Cores from the start of a run on, each row the highest of 5m: reserved, what runs of known use took (0), and how many took more than is reserved
FROM   RESERVED   LOWEST   MEDIAN   HIGHEST   ABOVE
0s     4.00       -        -        -         -
`},
	} {
		if got := skylineText(c.job); got != strings.TrimPrefix(c.want, "\n") {
			t.Errorf("%s:\n%s\nwant\n%s", c.what, got, c.want)
		}
	}
	long := v1.PeriodicJob{Contract: &v1.PeriodicContract{Step: "5m", Cores: make([]float64, 480)}}
	if text := skylineText(long); strings.Count(text, "\n") != 2+skylineRows || !strings.Contains(text, "\n38h20m ") {
		t.Errorf("40 hours:\n%s", text)
	}
}
