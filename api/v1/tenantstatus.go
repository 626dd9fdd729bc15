package v1

import "encoding/json"

// tenantStatus is what a token of a tenant gets of ClusterStatus: the other fields are left out, as they would say that there are none.
type tenantStatus struct {
	Version         string          `json:"version"`
	Ready           bool            `json:"ready"`
	NotReady        string          `json:"notReady,omitempty"`
	MinYield        float64         `json:"minYield"`
	Allocated       Resources       `json:"allocated"`
	Used            Resources       `json:"used"`
	VirtualClusters map[string]int  `json:"virtualClusters"`
	VMs             VMCount         `json:"vms"`
	Settings        ClusterSettings `json:"settings"`
	Quota           *Quota          `json:"quota"`
	Epoch           uint64          `json:"epoch"`
	RecoveryFreeze  string          `json:"recoveryFreeze,omitempty"`
	Conditions      []Condition     `json:"conditions"`
}

// MarshalJSON leaves out what is not a tenant's where Quota says that it is for one.
func (s ClusterStatus) MarshalJSON() ([]byte, error) {
	type whole ClusterStatus
	if s.Quota == nil {
		return json.Marshal(whole(s))
	}
	return json.Marshal(tenantStatus{s.Version, s.Ready, s.NotReady, s.MinYield, s.Allocated, s.Used, s.VirtualClusters, s.VMs, s.Settings, s.Quota, s.Epoch, s.RecoveryFreeze, s.Conditions})
}
