package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"evenkeel/cmd/vcsim/pace"
	"evenkeel/sim/workload"
)

func TestPolicyNamed(t *testing.T) {
	for _, spec := range []string{"reservation", "optimistic", "pessimistic:persist", "pessimistic-hard:gp10:0.05:3", "evenkeel", "evenkeel:oracle", "pessimistic:last:0:0"} {
		p, err := policyNamed(spec)
		if err != nil || p.Name() != spec {
			t.Errorf("%s: %v", spec, err)
		}
	}
	for _, spec := range []string{"", "reserved", "reservation:gp", "pessimistic:tea", "pessimistic:gp:1", "pessimistic:gp:-1:0", "pessimistic:gp:0:NaN", "pessimistic:gp:0:0:0"} {
		if _, err := policyNamed(spec); err == nil {
			t.Errorf("%q was taken", spec)
		}
	}
}

// A run that was kept is not run again, and says the same as one that was not; another seed is another run.
func TestRunsAreKept(t *testing.T) {
	o := runOptions{pace: workload.PaceDefault.Scaled(1, 20, 0.05), policies: []string{"reservation", "pessimistic:persist"}, seed: 1, tick: 60, keep: t.TempDir()}
	bytesOf := func(o runOptions, format string) []byte {
		rs, err := o.run(context.Background(), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := writeRuns(&b, format, rs); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	for _, format := range []string{"json", "csv", "series", "apps", "table"} {
		fresh := o
		fresh.keep = ""
		if !bytes.Equal(bytesOf(o, format), bytesOf(fresh, format)) {
			t.Errorf("-o %s: a kept run differs from a fresh one", format)
		}
	}
	files, err := filepath.Glob(filepath.Join(o.keep, "run-*.json"))
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v: two runs should have been kept", files, err)
	}
	if err := os.WriteFile(o.place("reservation"), []byte(`{"policy":"kept"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(bytesOf(o, "csv"), []byte("kept,")) {
		t.Error("what was kept was not taken")
	}
	o.seed = 2
	if bytes.Contains(bytesOf(o, "csv"), []byte("kept,")) {
		t.Error("a run of another seed was taken")
	}
}

// The report of a small size has all its figures, and is the same twice.
func TestPaceReport(t *testing.T) {
	s := pace.SmallSize()
	s.Oracle = workload.PaceDefault.Scaled(1, 6, 0.02)
	s.Maps, s.Own, s.Long = s.Oracle, s.Oracle, s.Oracle
	s.AtLength = []string{"pessimistic-hard:gp10:0.05:3"}
	r, err := pace.Run(s, pacePlayer(t.Context(), io.Discard, ""))
	if err != nil {
		t.Fatal(err)
	}
	write := func(dir string) []byte {
		if err := r.Write(dir, "vcsim paper pace"); err != nil {
			t.Fatal(err)
		}
		stats, err := filepath.Glob(filepath.Join(dir, "pace", "*.svg"))
		if err != nil || len(stats) != 9 {
			t.Fatalf("%d figures (%v)", len(stats), err)
		}
		all, err := os.ReadFile(filepath.Join(dir, "pace.md"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(all, []byte("| `pessimistic-hard:gp10:0.05:3` | 10.6 times shorter")) {
			t.Error("what was played at length is not in the report")
		}
		for _, f := range stats {
			if !bytes.Contains(all, []byte("(pace/"+filepath.Base(f)+")")) {
				t.Errorf("%s is not in the report", f)
			}
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, b...)
		}
		return all
	}
	if !bytes.Equal(write(t.TempDir()), write(t.TempDir())) {
		t.Error("the report differs from one time to the next")
	}
}
