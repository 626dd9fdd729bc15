package leader

import "evenkeel/cluster/state"

// Call is what comes with every request that changes something.
type Call struct {
	IdempotencyKey string // "" = none; the same key with the same request gets the first answer again
	IfMatch        uint64 // ModifyIndex that the VC must have, 0 = any
	DryRun         bool   // plan and answer, change nothing
}

// Result is the result of a request.
type Result struct {
	Operation state.Operation // zero in a dry run
	VC        state.VC        // as it is after the change; in a dry run as it would be
	Decision  state.Decision  // admission's answer, where it was asked
	Changes   []Change        // what the plan does (a dry run: would do)
	VMs       []state.VM      // of a dry run: the VMs of VC as they would be
	Fields    []FieldChange   // of a change of the spec: what differs
	DryRun    bool
	Replayed  bool // the answer to an idempotency key used before

	rightsizing state.RightsizingSettings
}

// Change is one step of a plan, as a text and in figures.
type Change struct {
	Verb string // place, cap, balloon, start, stop, delete
	VM   string // name, "" where the change is to a group
	VC   string
	Text string // "place render-worker-0 on h1: 0.50 of 1.00 cores, 1024 MiB"
	Disk string // what becomes of the VM's own disk: "with its disk"; "" = nothing, or it has none
}

// Scale is a request to change the size or the needs of a VC's groups. A nil field stays as it is.
type Scale struct {
	Group  string // "" = the only group
	Count  *int
	CPU    *float64 // need of each VM, cores
	Memory *int64   // of each VM, bytes
}
