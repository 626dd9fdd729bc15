package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"evenkeel/hypervisor/hostcheck"
)

// Where libvirt does not answer, the check says so in both forms, and its status is 1.
func TestCheckWithoutLibvirt(t *testing.T) {
	nowhere := "qemu:///system?socket=" + t.TempDir() + "/none"
	var out, errs bytes.Buffer
	if status := run(t.Context(), []string{"vcd", "check", "--hypervisor", nowhere}, &out, &errs); status != 1 {
		t.Errorf("status %d: %s", status, errs.String())
	}
	if text := out.String(); !strings.Contains(text, "problem  libvirt      libvirt does not answer") || !strings.Contains(text, "-> apt-get install libvirt") {
		t.Errorf("printed\n%s", text)
	}
	out.Reset()
	if status := run(t.Context(), []string{"vcd", "check", "-o", "json", "--hypervisor", nowhere}, &out, &errs); status != 1 {
		t.Errorf("status %d: %s", status, errs.String())
	}
	var report struct {
		Worst    hostcheck.Level
		Findings []hostcheck.Finding
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil || report.Worst != hostcheck.Problem || len(report.Findings) != len(hostcheck.Findings(hostcheck.Facts{})) {
		t.Errorf("%v, %+v", err, report)
	}
}

func TestCheckUsage(t *testing.T) {
	for _, args := range [][]string{{"more"}, {"--output", "yaml"}, {"--config", "/none/vcd.yaml"}} {
		var out, errs bytes.Buffer
		if status := run(t.Context(), append([]string{"vcd", "check"}, args...), &out, &errs); status != 2 || out.Len() > 0 {
			t.Errorf("%q: status %d, %s", args, status, out.String())
		}
	}
}
