package v1

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"
)

// ClusterHistory is what a cluster was asked for and what its VMs used: a file that `vcctl cluster history` writes and
// `vcsim whatif` plays under other settings. It holds no secret: neither images nor cloud-init data.
type ClusterHistory struct {
	Version         int                     `json:"version"` // 1
	From            time.Time               `json:"from"`    // when the first step begins
	StepSeconds     int                     `json:"stepSeconds"`
	Steps           int                     `json:"steps"`
	Hosts           []HistoryHost           `json:"hosts"`
	VirtualClusters []HistoryVirtualCluster `json:"virtualClusters"`
}

// HistoryHost is a host and what VMs of the cluster may use of it: its allowance less what foreign VMs take.
type HistoryHost struct {
	Name   string  `json:"name"`
	CPU    float64 `json:"cpu"`    // cores
	Memory float64 `json:"memory"` // bytes
}

// HistoryVirtualCluster is one that was admitted when the history was written. Those that were deleted before are not in it.
type HistoryVirtualCluster struct {
	Name      string         `json:"name"`
	Priority  int            `json:"priority,omitempty"`
	CreatedAt time.Time      `json:"createdAt"`
	Groups    []HistoryGroup `json:"groups"`
}

// HistoryGroup is a group and its VMs.
type HistoryGroup struct {
	Name      string      `json:"name"`
	Elastic   bool        `json:"elastic,omitempty"`
	CPU       float64     `json:"cpu"`       // declared, of each VM: cores
	Memory    float64     `json:"memory"`    // bytes
	MemoryMin float64     `json:"memoryMin"` // bytes
	VMs       []HistoryVM `json:"vms"`
}

// HistoryVM is what a VM used: a mean for each step, null where nothing was measured.
type HistoryVM struct {
	Name   string     `json:"name"`
	CPU    []*float64 `json:"cpu"`    // cores
	Memory []*float64 `json:"memory"` // bytes
	// Throttled is the share of its CPU measurements in which its cap held it back: it would have used more than CPU says.
	Throttled float64 `json:"throttled,omitempty"`
}

// Limits of a history that is read.
const (
	maxHistoryBytes = 1 << 30
	maxHistorySteps = 100_000
	maxHistoryVMs   = 1_000_000
)

// ReadClusterHistory reads one, and refuses what is not: unknown fields, numbers that are none, series of another length.
func ReadClusterHistory(r io.Reader) (ClusterHistory, error) {
	var h ClusterHistory
	limited := &io.LimitedReader{R: r, N: maxHistoryBytes}
	d := json.NewDecoder(limited)
	d.DisallowUnknownFields()
	if err := d.Decode(&h); err != nil {
		if limited.N <= 0 {
			err = fmt.Errorf("it is larger than %d MiB", maxHistoryBytes>>20)
		}
		return ClusterHistory{}, fmt.Errorf("read a history: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return ClusterHistory{}, errors.New("read a history: something follows it")
	}
	if err := h.valid(); err != nil {
		return ClusterHistory{}, fmt.Errorf("read a history: %w", err)
	}
	return h, nil
}

func (h *ClusterHistory) valid() error {
	switch {
	case h.Version != 1:
		return fmt.Errorf("version %d, this program knows 1", h.Version)
	case h.StepSeconds < 1 || h.StepSeconds > 86400 || h.Steps < 1 || h.Steps > maxHistorySteps:
		return fmt.Errorf("%d steps of %d s", h.Steps, h.StepSeconds)
	case len(h.Hosts) == 0:
		return errors.New("no hosts")
	}
	for _, x := range h.Hosts {
		if x.Name == "" || !measure(x.CPU) || !measure(x.Memory) {
			return fmt.Errorf("host %q: %v cores, %v bytes", x.Name, x.CPU, x.Memory)
		}
	}
	vms := 0
	for _, vc := range h.VirtualClusters {
		for _, g := range vc.Groups {
			if !measure(g.CPU) || !measure(g.Memory) || !measure(g.MemoryMin) || g.MemoryMin > g.Memory {
				return fmt.Errorf("virtual cluster %q, group %q: %v cores, %v bytes, at least %v", vc.Name, g.Name, g.CPU, g.Memory, g.MemoryMin)
			}
			if vms += len(g.VMs); vms > maxHistoryVMs {
				return fmt.Errorf("more than %d VMs", maxHistoryVMs)
			}
			for _, vm := range g.VMs {
				if err := vm.valid(h.Steps); err != nil {
					return fmt.Errorf("VM %q: %w", vm.Name, err)
				}
			}
		}
	}
	return nil
}

func (vm *HistoryVM) valid(steps int) error {
	if !(vm.Throttled >= 0 && vm.Throttled <= 1) {
		return fmt.Errorf("held back for %v of the time", vm.Throttled)
	}
	for what, series := range map[string][]*float64{"CPU": vm.CPU, "memory": vm.Memory} {
		if len(series) != steps {
			return fmt.Errorf("%d values of %s for %d steps", len(series), what, steps)
		}
		for i, v := range series {
			if v != nil && !measure(*v) {
				return fmt.Errorf("value %d of %s: %v", i, what, *v)
			}
		}
	}
	return nil
}

func measure(v float64) bool { return v >= 0 && v <= 1e18 && !math.IsNaN(v) }
