package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// nights are runs of a job in Berlin, each night at two over the change of the clock, and of one that comes at no steady time.
func nights(t *testing.T) string {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for i := range 20 {
		at := time.Date(2026, 3, 20+i, 2, 0, i, 0, zone)
		if at.Day() == 29 && at.Month() == time.March { // there is no two o'clock
			at = time.Date(2026, 3, 29, 3, 0, 0, 0, zone)
		}
		fmt.Fprintf(&b, "{\"owner\":\"ann\",\"name\":\"render-%s\",\"begin\":%q}\n", at.Format("2006-01-02"), at.Format(time.RFC3339))
		fmt.Fprintf(&b, "{\"name\":\"test-%d\",\"begin\":%q,\"end\":%q}\n", i, at.Add(time.Duration(i*i%17)*time.Hour).Format(time.RFC3339), at.Add(20*time.Hour).Format(time.RFC3339))
	}
	return b.String()
}

func TestPeriodicFind(t *testing.T) {
	out, message, status := periodicRun(t, "find", nights(t), "--zone", "Europe/Berlin")
	want := "NAME       PERIOD    RUNS       RULE         NEXT\nrender-#   24h0m0s   20 of 20   FREQ=DAILY   2026-04-09T02:00:00+02:00\n"
	if status != 0 || out != want {
		t.Errorf("status %d, %s\n%s\nwant\n%s", status, message, out, want)
	}
	out, message, status = periodicRun(t, "find", nights(t), "-", "--zone=Europe/Berlin", "-o", "json")
	var jobs []foundJob
	if err := json.Unmarshal([]byte(out), &jobs); err != nil || status != 0 || len(jobs) != 1 || jobs[0].Owner != "ann" || jobs[0].Period != 86400 ||
		jobs[0].Recurrence != "DTSTART;TZID=Europe/Berlin:20260320T020000\nRRULE:FREQ=DAILY" || !jobs[0].Next.Equal(time.Date(2026, 4, 9, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("status %d, %s, %v\n%s", status, message, err, out)
	}
	if out, message, status = periodicRun(t, "find", ""); status != 0 || out != "NAME   PERIOD   RUNS   RULE   NEXT\n" {
		t.Errorf("of no runs: status %d, %s, %q", status, message, out)
	}
}

func TestPeriodicFindRefuses(t *testing.T) {
	for _, c := range []struct {
		in   string
		args []string
		says string
	}{
		{"", []string{"a", "b"}, "one FILE"},
		{"", []string{"/none"}, "no such file"},
		{"", []string{"--zone", "Mars/Base"}, "Mars/Base"},
		{"", []string{"--zone", "Local"}, "Local"},
		{"x\n", nil, "line 1"},
		{"\n{}\n", nil, "line 2: name is missing"},
		{`{"name":"a"}`, nil, "begin is missing"},
		{`{"name":"a","begin":"now"}`, nil, "line 1"},
		{`{"name":"a","begin":"0001-01-01T00:00:00Z"}`, nil, "1970"},
		{`{"name":"a","begin":"2026-01-01T00:00:00Z","x":1}`, nil, "known are"},
		{`{"name":"a","begin":"2026-01-01T00:00:00Z"} 7`, nil, "text after"},
		{`{"name":"` + strings.Repeat("a", 254) + `","begin":"2026-01-01T00:00:00Z"}`, nil, "254 bytes"},
	} {
		if out, message, status := periodicRun(t, "find", c.in, c.args...); status != statusUsage || !strings.Contains(message, c.says) || out != "" {
			t.Errorf("%.60q %q: status %d, %q, want %q", c.in, c.args, status, message, c.says)
		}
	}
}

func TestPeriodicFitForAChance(t *testing.T) {
	var in bytes.Buffer
	for i := range 20 {
		fmt.Fprintf(&in, "{\"run\":\"r%d\",\"step\":60,\"usage\":[%d,10,%d]}\n", i, 2+i%3, 5+i%4)
	}
	out, message, status := periodicRun(t, "fit", in.String(), "--miss", "0.1")
	var m promised
	if err := json.Unmarshal([]byte(out), &m); err != nil || status != 0 || m.Runs != 20 || m.Miss > 0.1 || len(m.Skyline) != 3 || m.Factor < 0.9 || m.Factor > 1.3 {
		t.Errorf("status %d, %s, %v\n%s", status, message, err, out)
	}
	// A chance that 20 runs do not support; with another job's runs, twice as heavy later on, more is reserved and no more promised.
	var other bytes.Buffer
	for i := range 200 {
		fmt.Fprintf(&other, "{\"run\":\"r%d\",\"step\":60,\"usage\":[%d,10,%d]}\n", i, (2+i%3)*(1+i/100), (15+i%4)*(1+i/100))
	}
	file := filepath.Join(t.TempDir(), "other.jsonl")
	if err := os.WriteFile(file, other.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := map[bool]float64{}
	for _, borrows := range []bool{false, true} {
		args := []string{"--miss", "0.01"}
		if borrows {
			args = append(args, "--peer", file)
		}
		out, message, status := periodicRun(t, "fit", in.String(), args...)
		var m promised
		if err := json.Unmarshal([]byte(out), &m); err != nil || status != 0 || m.Borrowed != borrows || m.Support != "asked 1%, 20 runs support 4.8%: 79 more runs would support it" {
			t.Errorf("status %d, %s, %v\n%s", status, message, err, out)
		}
		for _, v := range m.Skyline {
			sum[borrows] += v
		}
	}
	if sum[true] < 1.2*sum[false] {
		t.Errorf("reserved %v", sum)
	}
	for _, c := range []struct {
		in   string
		args []string
		says string
	}{
		{in.String(), []string{"--peer", file}, "--peer goes with --miss"},
		{in.String(), []string{"--miss", "0.1", "--peer", file + "x"}, "no such file"},
		{in.String(), []string{"--miss", "0.1", "--alpha", "0.5"}, "--alpha and --beta"},
		{in.String(), []string{"--miss", "1"}, "between 0 and 1"},
		{twoRuns, []string{"--miss", "0.1"}, "too few runs"},
	} {
		if _, message, status := periodicRun(t, "fit", c.in, c.args...); status != statusUsage || !strings.Contains(message, c.says) {
			t.Errorf("%q: status %d, %q, want %q", c.args, status, message, c.says)
		}
	}
}
