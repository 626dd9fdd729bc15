package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"evenkeel/api/v1"
)

// Limits of a history that is read.
const (
	maxHistoryBytes = 1 << 30
	maxHistorySteps = 100_000
	maxHistoryVMs   = 1_000_000
)

// decodeHistory reads the history of a cluster, and refuses what is not: unknown fields, numbers that are none, series of another length.
func decodeHistory(r io.Reader) (v1.ClusterHistory, error) {
	var h v1.ClusterHistory
	limited := &io.LimitedReader{R: r, N: maxHistoryBytes}
	d := json.NewDecoder(limited)
	d.DisallowUnknownFields()
	if err := d.Decode(&h); err != nil {
		if limited.N <= 0 {
			err = fmt.Errorf("it is larger than %d MiB", maxHistoryBytes>>20)
		}
		return v1.ClusterHistory{}, fmt.Errorf("read a history: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return v1.ClusterHistory{}, errors.New("read a history: something follows it")
	}
	if err := validHistory(&h); err != nil {
		return v1.ClusterHistory{}, fmt.Errorf("read a history: %w", err)
	}
	return h, nil
}

func validHistory(h *v1.ClusterHistory) error {
	switch {
	case h.Version != 1:
		return fmt.Errorf("version %d, this program knows 1", h.Version)
	case h.StepSeconds < 1 || h.StepSeconds > 86400 || h.Steps < 1 || h.Steps > maxHistorySteps:
		return fmt.Errorf("%d steps of %d s", h.Steps, h.StepSeconds)
	case len(h.Hosts) == 0:
		return errors.New("no hosts")
	}
	for _, x := range h.Hosts {
		if x.Name == "" || !amount(x.CPU) || !amount(x.Memory) {
			return fmt.Errorf("host %q: %v cores, %v bytes", x.Name, x.CPU, x.Memory)
		}
	}
	vms := 0
	for _, vc := range h.VirtualClusters {
		for _, g := range vc.Groups {
			if !amount(g.CPU) || !amount(g.Memory) || !amount(g.MemoryMin) || g.MemoryMin > g.Memory {
				return fmt.Errorf("virtual cluster %q, group %q: %v cores, %v bytes, at least %v", vc.Name, g.Name, g.CPU, g.Memory, g.MemoryMin)
			}
			if vms += len(g.VMs); vms > maxHistoryVMs {
				return fmt.Errorf("more than %d VMs", maxHistoryVMs)
			}
			for _, vm := range g.VMs {
				if err := validSeries(&vm, h.Steps); err != nil {
					return fmt.Errorf("VM %q: %w", vm.Name, err)
				}
			}
		}
	}
	return nil
}

func validSeries(vm *v1.HistoryVM, steps int) error {
	if !(vm.Throttled >= 0 && vm.Throttled <= 1) {
		return fmt.Errorf("held back for %v of the time", vm.Throttled)
	}
	for what, series := range map[string][]*float64{"CPU": vm.CPU, "memory": vm.Memory} {
		if len(series) != steps {
			return fmt.Errorf("%d values of %s for %d steps", len(series), what, steps)
		}
		for i, v := range series {
			if v != nil && !amount(*v) {
				return fmt.Errorf("value %d of %s: %v", i, what, *v)
			}
		}
	}
	return nil
}

func amount(v float64) bool { return v >= 0 && v <= 1e18 && !math.IsNaN(v) }
