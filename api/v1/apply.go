package v1

import "time"

// VirtualClusterFile is what a virtual cluster is asked to be, as its users wrote it.
type VirtualClusterFile struct {
	Spec    VirtualClusterSpec `json:"spec" doc:"The VC file. What its users left out is left out."`
	Version int                `json:"version,omitempty" doc:"Number of this version in the history; left out where none is kept."`
	Hidden  []string           `json:"hidden,omitempty" doc:"Fields that the role of the token may not read: cloud-init data may hold secrets."`
	Base    string             `json:"base,omitempty" doc:"Names this version for the parameter base of applyVirtualCluster; left out where no versions are kept."`
	ETag    string             `json:"etag" doc:"Version of the virtual cluster, for If-Match."`
}

// Effects of a change.
const (
	EffectNow     = "now"
	EffectRestart = "restart"
	EffectStart   = "start"
	EffectKept    = "kept"
)

// FieldChange is one field of a virtual cluster that differs from what is asked for.
type FieldChange struct {
	Field  string     `json:"field" doc:"As in groups[worker].cpu; groups[worker] is the group as a whole." example:"groups[worker].count"`
	From   string     `json:"from,omitempty" doc:"What it was; left out where it was not given."`
	To     string     `json:"to,omitempty" doc:"What it is to be; left out where it is not given any more."`
	Effect string     `json:"effect" enum:"now,restart,start,kept" doc:"now: it holds at once, VMs run on. restart: running VMs must restart for it. start: VMs take it when they start next. kept: it was changed since the last file, and this file did not change it; it stays."`
	VMs    []VMEffect `json:"vms,omitempty" doc:"VMs that must restart for it."`
}

// VMEffect is what a change takes of one VM.
type VMEffect struct {
	VM  string `json:"vm" doc:"Name of the VM."`
	Why string `json:"why" doc:"Why it must restart."`
}

// VCVersion is one version of what a virtual cluster was asked to be.
type VCVersion struct {
	Number  int           `json:"number" doc:"Number of the version, from 1."`
	At      time.Time     `json:"at" doc:"When it was made."`
	Verb    string        `json:"verb" doc:"The request that made it: create, apply, edit, scale or rollback."`
	By      string        `json:"by,omitempty" doc:"Who asked for it."`
	Changes []FieldChange `json:"changes,omitempty" doc:"What differs from the version before, where that is kept."`
	Hidden  []string      `json:"hidden,omitempty" doc:"Fields that the role of the token may not read."`

	Spec VirtualClusterSpec `json:"spec" doc:"The VC file of the version."`
}

// RollbackRequest makes a virtual cluster what one of its versions says.
type RollbackRequest struct {
	Version int  `json:"version,omitempty" minimum:"1" doc:"Number of the version. Left out: the one before the newest."`
	Restart bool `json:"restart,omitempty" doc:"Running VMs that must restart for it may."`
}
