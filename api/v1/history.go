package v1

import "time"

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
