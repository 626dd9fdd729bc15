package main

import (
	"testing"
	"time"

	"evenkeel/api/v1"
)

func TestProgressText(t *testing.T) {
	for _, c := range []struct {
		done, total float64
		elapsed     time.Duration
		want        string
	}{
		{0, 10, 3 * time.Second, "[....................] x, 3s"},
		{5, 10, time.Minute, "[##########..........] x, 1m, about 1m left"},
		{9, 10, 90 * time.Second, "[##################..] x, 1m30s, about 10s left"},
		{10, 10, time.Minute, "[####################] x, 1m"},
		{12, 10, time.Minute, "[####################] x, 1m"},
		{3, 0, time.Minute, "[....................] x, 1m"},
	} {
		if got := progressText("x", c.done, c.total, c.elapsed); got != c.want {
			t.Errorf("%v of %v: %s, want %s", c.done, c.total, got, c.want)
		}
	}
}

func TestDrainProgress(t *testing.T) {
	d := []v1.Drain{
		{Host: "h1", Since: at, VMs: []v1.DrainVM{{VM: "a", State: "done", Bytes: 4 << 30, BytesMoved: 3 << 30}, {VM: "b", State: "moving", Bytes: 4 << 30, BytesMoved: 1 << 30}}},
		{Host: "h2", Since: at.Add(time.Minute), VMs: []v1.DrainVM{{VM: "c", State: "waiting", Bytes: 2 << 30}}},
	}
	if got, want := drainProgress(d, at.Add(2*time.Minute)), "[##########..........] 1 of 3 VMs gone, 5GiB of 10GiB, 2m, about 2m left"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got := drainProgress([]v1.Drain{{Host: "h1"}}, at); got != "" {
		t.Errorf("progress of a drain without VMs: %s", got)
	}
}
