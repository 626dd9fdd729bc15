package main

import (
	"testing"

	"evenkeel/api/v1"
)

func TestWordsOfHosts(t *testing.T) {
	if got := leaseState("over"); got != "expired" {
		t.Error(got)
	}
	if got := leaseState("held"); got != "held" {
		t.Error(got)
	}
	cpu, disks := 0.98, 0.03
	if got, want := pressureText(&v1.Pressure{CPU: &cpu, IO: &disks}), "CPU 98%, disks 3% of the last 10 s, in which work waited"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := pressureText(nil); got != "" {
		t.Error(got)
	}
}
