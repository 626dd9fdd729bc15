package agent

import (
	"context"
	"time"

	"evenkeel/hypervisor"
)

// Want is what is to become of a VM.
type Want string

// A VM is to run, to be shut down (its disk kept, if it keeps one), or to be gone with all it has.
const (
	WantRun  Want = "run"
	WantStop Want = "stop"
	WantGone Want = "gone"
)

// VM is one VM as the leader wants it on this host.
type VM struct {
	Spec hypervisor.Spec // as it is to be, with the generation that is permitted
	Want Want
	// MayStart is the leader's permit to start Spec.Generation. It is withdrawn once the
	// VM was seen running: a VM that ended by itself is not started again.
	MayStart bool
	// Seen: the leader knows that this generation ran or runs.
	Seen bool
	// Settled: the leader knows that it does not run, and why.
	Settled bool
	// Held is the memory the leader counts for it, bytes; at least Spec.Balloon.
	Held int64
	// FreezeCPU: its share stays as it is in force (it is on its way out).
	FreezeCPU bool
}

// Desired is the leader's word to one host.
type Desired struct {
	Cluster  string // id; marks our VMs
	Index    uint64 // log index of the snapshot this was taken from
	CPU      float64
	Memory   int64 // what our VMs may take together: cores, bytes
	Overhead int64 // bytes a VM costs beyond its own memory
	VMs      []VM
}

// Status is a step of one VM to be told to the leader.
type Status struct {
	VM         string
	Generation uint64
	Phase      Phase
	Gone       bool
	Held       int64 // bytes, 0 = as before
	Reason     string
}

// Phase is what the host saw of a VM.
type Phase string

// What a host can say of a VM.
const (
	SeenRunning Phase = "running"
	SeenStopped Phase = "stopped"
	SeenFailed  Phase = "failed"
)

// Sample is the last measurement of one VM.
type Sample struct {
	VM         string
	Generation uint64
	At         time.Time
	State      string
	Cap        float64 // cores in force
	Used       float64 // cores since the sample before
	VCPUTime   time.Duration
	Balloon    int64
	Resident   int64
	Unused     int64
}

// Report is what an agent tells the leader after each round.
type Report struct {
	Host       string
	Capacity   hypervisor.Capacity
	Allowance  Limits // what Evenkeel may use of the machine
	Foreign    Limits // what VMs that are not ours take
	ForeignVMs int
	Overhead   int64
	Reach      bool   // the hypervisor answers
	Error      string // what went wrong in the last round, "" = nothing
	Index      uint64 // of the desired state that is in force now; 0 = not in force
	Statuses   []Status
	Samples    []Sample
	Unknown    []string // VMs with our mark that the leader does not know here
}

// Limits are CPU in cores and memory in bytes.
type Limits struct {
	CPU    float64
	Memory int64
}

// Leader is where an agent gets its orders and leaves its reports.
type Leader interface {
	// Desired state of a host, and a channel that closes when it may have changed.
	Desired(ctx context.Context, host string) (Desired, <-chan struct{}, error)
	// Report what the host did and saw. It returns once statuses are recorded.
	Report(ctx context.Context, r Report) error
}
