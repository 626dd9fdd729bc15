package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// morpheusRun runs vcsim paper morpheus with these arguments.
func morpheusRun(args ...string) (string, error) {
	var out bytes.Buffer
	a := &cli.App{Name: "vcsim", Commands: []*cli.Command{paperCommand()}, Writer: &out, ErrWriter: io.Discard, ExitErrHandler: func(*cli.Context, error) {}}
	err := a.Run(append([]string{"vcsim", "paper", "morpheus"}, args...))
	return out.String(), err
}

// What it prints of few jobs, of one seed and over two (figure 12 is the slowest: sim/morpheus tests it); -rewrite writes it again.
func TestMorpheusGolden(t *testing.T) {
	var got string
	for _, args := range [][]string{{"--help"}, {"--seed", "101", "--seeds", "1", "--figure", "9a,9b,9d,10a"}, {"--seed", "101", "--seeds", "2", "--figure", "9c,10b"}} {
		if args[0] != "--help" {
			args = append(args, "--jobs", "6", "--days", "14")
		}
		out, err := morpheusRun(args...)
		if err != nil {
			t.Fatal(err)
		}
		got += strings.Join(args, " ") + "\n" + out
	}
	golden := filepath.Join("testdata", "paper", "morpheus.golden")
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

// JSON has null where there is no value, and shares that are no percent.
func TestMorpheusJSON(t *testing.T) {
	out, err := morpheusRun("--seed", "101", "--seeds", "2", "--jobs", "5", "--days", "14", "--figure", "10b", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Seed   uint64
		Seeds  int
		Tables []struct {
			Figure string
			Rows   []struct {
				Name   string
				Values []struct {
					Column          string
					Mean, Low, High *float64
					Seeds           int
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if got.Seed != 101 || got.Seeds != 2 || len(got.Tables) != 1 || got.Tables[0].Figure != "10b" {
		t.Fatalf("%+v", got)
	}
	users := got.Tables[0].Rows[0]
	if v := users.Values[0]; users.Name != "users" || v.Column != "cluster" || v.Mean == nil || *v.Mean != 1 || v.Seeds != 2 {
		t.Errorf("the users' cluster is the unit: %+v", users)
	}
}

// Recorded days are played as the runs of daily jobs.
func TestMorpheusOnRecords(t *testing.T) {
	days := records(t)["recurring"][1]
	out, err := morpheusRun("--trace", days, "--seeds", "1", "--jobs", "3", "--figure", "9b")
	if err != nil || !strings.Contains(out, "3 recorded jobs") || !strings.Contains(out, "alpha 50%") {
		t.Errorf("%v: %s", err, out)
	}
	for want, args := range map[string][]string{"a record has its own": {"--trace", days, "--days", "20"}, "no figure \"12\"": {"--trace", days, "--figure", "12"}} {
		if _, err := morpheusRun(args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}

// Queries of the runs of TPC-H Q12.
func TestMorpheusOnRuns(t *testing.T) {
	const runs = "../../forecast/skyline/testdata/tpch-q12/runs.txt"
	out, err := morpheusRun("--runs", runs, "--seeds", "1", "--jobs", "3", "--figure", "causes")
	if err != nil || !strings.Contains(out, "3 hourly queries") || !strings.Contains(out, "borrowed") {
		t.Errorf("%v: %s", err, out)
	}
	for want, args := range map[string][]string{"not both": {"--runs", runs, "--trace", runs}, "no figure \"12\"": {"--runs", runs, "--figure", "12"}, "megabytes:second": {"--runs", "paper_morpheus_test.go", "--seeds", "1"}} {
		if _, err := morpheusRun(args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}

func TestMorpheusRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"there is no figure":  {"--figure", "11"},
		"1 to 1000 seeds":     {"--seeds", "0"},
		"no arguments":        {"9c"},
		"text or json":        {"-o", "table"},
		"0 jobs of 30 days":   {"--jobs", "0"},
		"100 jobs of 13 days": {"--days", "13"},
		"not between -1 and":  {"--correlation", "1.5"},
	} {
		if _, err := morpheusRun(args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}
