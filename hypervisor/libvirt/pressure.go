package libvirt

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"evenkeel/hypervisor"
)

// Pressure is that of this machine, where libvirt runs on it. Libvirt itself reports none.
func (h *Host) Pressure(ctx context.Context) (hypervisor.Pressure, error) {
	if err := ctx.Err(); err != nil {
		return hypervisor.Pressure{}, err
	}
	if !h.local {
		return pressureIn(""), nil
	}
	p := pressureIn("/proc/pressure")
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		p.Available = availableIn(text)
	}
	return p, nil
}

// availableIn reads the line "MemAvailable:   12345 kB" of /proc/meminfo.
func availableIn(text []byte) int64 {
	for line := range bytes.Lines(text) {
		fields := strings.Fields(string(line))
		if len(fields) != 3 || fields[0] != "MemAvailable:" || fields[2] != "kB" {
			continue
		}
		if kib, err := strconv.ParseInt(fields[1], 10, 64); err == nil && kib >= 0 && kib < 1<<50 {
			return kib << 10
		}
	}
	return hypervisor.Unknown
}

func pressureIn(dir string) hypervisor.Pressure {
	of := func(resource string) float64 {
		if dir == "" {
			return hypervisor.Unknown
		}
		text, err := os.ReadFile(filepath.Join(dir, resource))
		if err != nil { // a kernel without, or one that was asked to have none
			return hypervisor.Unknown
		}
		share, err := pressureOf(text)
		if err != nil {
			return hypervisor.Unknown
		}
		return share
	}
	return hypervisor.Pressure{CPU: of("cpu"), Memory: of("memory"), IO: of("io"), Available: hypervisor.Unknown}
}

// pressureOf reads the line "some avg10=1.53 avg60=..." of a file of /proc/pressure.
func pressureOf(text []byte) (float64, error) {
	for line := range bytes.Lines(text) {
		fields := strings.Fields(string(line))
		if len(fields) < 2 || fields[0] != "some" {
			continue
		}
		value, ok := strings.CutPrefix(fields[1], "avg10=")
		percent, err := strconv.ParseFloat(value, 64)
		if !ok || err != nil || !(percent >= 0 && percent <= 100) {
			return 0, fmt.Errorf("pressure %q", fields[1])
		}
		return percent / 100, nil
	}
	return 0, fmt.Errorf("no line of what waits")
}
