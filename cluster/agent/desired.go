package agent

import (
	"context"
	"net/netip"
	"time"

	"evenkeel/hypervisor"
)

// Want is the state in which the leader wants a VM.
type Want string

// A VM is to run, to be shut down (its disk kept, if it keeps one), or to be gone with all it has.
const (
	WantRun    Want = "run"
	WantStop   Want = "stop"
	WantAbsent Want = "gone"
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
	// EndKnown: the leader knows that it does not run, and why.
	EndKnown bool
	// Waits is why it does not start, as the host reported it to the leader last.
	Waits string `json:",omitempty"`
	// ChargedMemory is the memory the leader counts for it, bytes; at least Spec.Balloon.
	ChargedMemory int64
	// MinMemory is the size, bytes, below which the host never cuts the VM's balloon. Down to it the host cuts by itself where guests
	// take more memory than there is. 0: the host cuts nothing below the leader's target; the VM's needs are as declared.
	MinMemory int64 `json:",omitempty"`
	// Reset is the id of a reset that is to be made, once; "" = there is none. ResetPermitted: a permit to make it was given.
	Reset          string `json:",omitempty"`
	ResetPermitted bool   `json:",omitempty"`
	// FreezeCPU: its share stays as it is in force (it is on its way out).
	FreezeCPU bool
	// Move is open: nothing of the VM is changed or cleared away until it is closed.
	Move *Move
}

// Move is the leader's order to hand a running VM over by live migration. Only the reports of the two hypervisors end it.
type Move struct {
	// Open is the log index of the intent: which move this is. A report of a move names it.
	Open uint64 `json:",omitempty"`
	To   string // host
	URI  string // of its hypervisor
	// Incoming: this host is the target. It neither starts the VM nor clears it away.
	Incoming bool
	// SourceLost: the source is proved not to run it. If it does not run here, no host runs it.
	SourceLost bool
	// Wait: the target has not reported yet that it has room (PhaseRoom). Until then the source keeps the VM.
	Wait bool `json:",omitempty"`
	// Permit is the number of the last permit to hand the VM over. The source names it when it reports that the VM stayed.
	Permit uint64 `json:",omitempty"`

	// Paused: the guest arrives paused. Left: its source reported that it handed the VM over, and the target resumes it.
	Paused bool `json:",omitempty"`
	Left   bool `json:",omitempty"`

	// MaxBytes is the most that the move may send, Bandwidth the most per second; 0 = no limit.
	MaxBytes, Bandwidth int64 `json:",omitempty"`
	// Deadline is how long the move may take from its beginning on; 0 = no limit.
	Deadline time.Duration `json:",omitempty"`
	// AutoConverge: the guest is slowed down where its writes outrun the transfer. PostCopy: it may run on at the
	// target before all of its memory is there. CopyStorage: its disk moves with it. SharedDisk: its disk is
	// in a pool that the operator declared to be the same on all hosts.
	AutoConverge, PostCopy, CopyStorage, SharedDisk bool `json:",omitempty"`
	// Abort says why the move is to be given up; "" = it goes on.
	Abort string `json:",omitempty"`
}

// Desired is the desired state that the leader sends to one host.
type Desired struct {
	Cluster string // id; marks our VMs
	Epoch   uint64 // raised when the cluster was recovered from a lost quorum
	Index   uint64 // log index of the snapshot this was taken from
	// RequiredIndex is the log index of the last change that the leader may wait for. Later changes only repeat what this host
	// reported. 0: not known.
	RequiredIndex uint64 `json:",omitempty"`
	// Freeze says why nothing is to be started, stopped or changed here now: the cluster was restored and does not know yet
	// what runs where. "" = there is no recovery freeze.
	Freeze   string
	CPU      float64
	Memory   int64 // what our VMs may take together: cores, bytes
	Overhead int64 // bytes a VM costs beyond its own memory
	// Foreign is what foreign and unmanaged VMs take, as this host reported it. The leader has left it out of CPU and Memory: the agent
	// must not subtract it again.
	Foreign Limits
	// NoEmergencyGrants: guests under memory pressure get what the leader gives them, and no more from the host.
	NoEmergencyGrants bool `json:",omitempty"`
	VMs               []VM
}

// Status is a step of one VM that the agent reports to the leader.
type Status struct {
	VM            string
	Generation    uint64
	Phase         Phase
	SourceLost    bool
	ChargedMemory int64 // bytes, 0 = as before
	Reason        string
	// Of a move: which one (Move.Open), and the last permit as it was known (Move.Permit); of one that ended what was
	// sent, and how long the guest stood still.
	Move     uint64        `json:",omitempty"`
	Permit   uint64        `json:",omitempty"`
	Bytes    int64         `json:",omitempty"`
	Downtime time.Duration `json:",omitempty"`
	// Resumes, with PhaseRoom: this host has guests that arrive paused go on. Left, with PhaseLost, by the source of the move: it handed the VM
	// over, and did not run it since.
	Resumes bool `json:",omitempty"`
	Left    bool `json:",omitempty"`
	// Reset, with PhaseReset: which one has ended. Reason is why it failed, "" = it was made.
	Reset string `json:",omitempty"`
}

// Phase is what the host observed of a VM.
type Phase string

// Phases that a host can report of a VM.
const (
	PhaseRunning  Phase = "running"
	PhaseStopped  Phase = "stopped"
	PhaseFailed   Phase = "failed"
	PhaseLost     Phase = "lost"     // it does not run here, by no fault of its own: to be started again
	PhaseStarting Phase = "starting" // it is to start, and does not yet: see Reason
	PhaseStayed   Phase = "stayed"   // its move ended, and it runs here
	PhaseRoom     Phase = "room"     // it is to come here, and has room until it does
	PhaseArrived  Phase = "arrived"
	PhaseReset    Phase = "reset" // a reset that was permitted has ended: see Reset and Reason
	PhaseLeft     Phase = "left"  // the source's side of its move ended well; only the target reports that it arrived
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
	Memory     int64 // bytes it uses of its memory, see MemoryUsed; 0 = not known
	// Guest is nil where the guest reports nothing (it has no balloon driver, or fell silent): its memory is left alone.
	Guest *Guest `json:",omitempty"`
	// Started and Addresses as the hypervisor has them.
	Started   time.Time    `json:",omitzero"`
	Addresses []netip.Addr `json:",omitempty"`
}

// Report is what an agent sends to the leader after each round.
// Many fields: it is one message, and each field is what one step of the round found.
type Report struct {
	Host       string
	Capacity   hypervisor.Capacity
	Allowance  Limits // what Evenkeel may use of the machine
	Foreign    Limits // what VMs take that are not ours, or that the leader does not know here
	ForeignVMs int
	Overhead   int64
	MigrateURI string // where other hosts reach this one's hypervisor
	// Booted is when the machine was, by its own clock; zero: not known.
	Booted time.Time `json:",omitzero"`
	Reach  bool      // the hypervisor answers
	Error  string    // what went wrong in the last round, "" = nothing
	Index  uint64    // of the desired state that is in force now, but for starts that hang; 0 = not in force
	// Quiet: no caller waits for the Index. If nothing else is new, the report may wait for the next samples.
	Quiet bool `json:"-"`
	// Lacking are VMs, by id, that do not have the additional CPU or memory that they are to have. Index is in force but for these.
	Lacking  []string `json:",omitempty"`
	Statuses []Status
	Samples  []Sample
	// Estimates that changed since the last report that got through.
	Estimates []Estimate           `json:",omitempty"`
	Pressure  *hypervisor.Pressure `json:",omitempty"` // measured with the samples; nil = it was not
	Available *Available           `json:",omitempty"` // the host's availability, sent with the samples; nil: the last report of it holds, or the host does not report it
	Unmanaged []string             // VMs with our mark that the leader does not know here
	// Epoch is the epoch in which the leader named this host's cluster, before the agent listed what runs. Running are VMs of that
	// cluster. The agent may have got a later epoch since, with a grant.
	Epoch uint64
	// Running are all VMs with our mark that the hypervisor lists; nil if it was not asked.
	Running []Instance
	// Moves are the migrations that go on from here.
	Moves []MoveProgress `json:",omitempty"`
	// Resumes: this agent resumes VMs that a migration left paused.
	Resumes bool `json:",omitempty"`
	// Migrates is what the host has to be a partner of moves.
	Migrates Migrates
	// MissingRoutes are hosts that this one found it cannot send VMs to.
	MissingRoutes []MissingRoute `json:",omitempty"`
	// Hangs are calls of the hypervisor that had their time and have no answer, the one made first at first.
	Hangs []Hang `json:",omitempty"`
}

// MoveProgress is how far a migration is, by the hypervisor's count.
type MoveProgress struct {
	Move             uint64 // Move.Open
	VM               string
	Bytes, Remaining int64
	Rate, Dirty      float64       // bytes per second that are sent, and that the guest writes again
	Since            time.Duration // how long it goes on
	PostCopy         bool          `json:",omitempty"` // the guest runs at the target already
	Text             string        `json:",omitempty"`
}

// Migrates is what a host needs to take VMs over from another, and to hand them over.
type Migrates = hypervisor.Partner

// Instance is a VM that runs on a host, as the hypervisor lists it.
type Instance struct {
	VM         string
	Name       string
	Generation uint64
	Incoming   bool // the target side of a live migration, also one that stands paused until it is resumed: not a second instance
	Leftover   bool `json:",omitempty"` // Incoming, and no migration of it goes on: it is to be resumed or destroyed
	Leaving    bool `json:",omitempty"` // being handed over: it may run elsewhere by now
}

// instanceOf returns the instance that the hypervisor lists, without its state.
func instanceOf(vm hypervisor.VM) Instance {
	return Instance{VM: vm.Identity.VM, Generation: vm.Generation}
}

// Limits are CPU in cores and memory in bytes.
type Limits struct {
	CPU    float64
	Memory int64
}

// Leader gives an agent its orders and takes its reports.
type Leader interface {
	// Desired returns the desired state of a host, and a channel that closes when it may have changed. With an error the
	// channel, if there is one, closes when the leader is heard again.
	Desired(ctx context.Context, host string) (Desired, <-chan struct{}, error)
	// Report what the host did and saw. It returns once statuses are recorded.
	Report(ctx context.Context, r Report) error
	// Permit asks for the right to start a generation or to hand a VM over, right before that is done. The agent takes no answer later
	// than permitWithin after it asked.
	Permit(ctx context.Context, q PermitRequest) (Permit, error)
	// Renew renews the host's lease. The leader answers after a check of its leadership that began after the request arrived,
	// and after the log has what the renewal says of the host.
	Renew(ctx context.Context, r Renewal) (Grant, error)
}

// PermitRequest asks whether generations may be started, and running VMs handed over.
type PermitRequest struct {
	Host   string
	Starts []Instance // VM and Generation
	Moves  []Handover `json:",omitempty"`
	// Leftovers are to be destroyed: see hypervisor.VM.
	Leftovers []Instance `json:",omitempty"`
	// Resumes are VMs that stand here paused by their open move, and are to go on.
	Resumes []Handover `json:",omitempty"`
	// Resets are to be made right after. A permit is given for each once, and never again.
	Resets []ResetAsk `json:",omitempty"`
}

// ResetAsk asks to reset one generation of a VM.
type ResetAsk struct {
	VM         string
	Generation uint64
	ID         string // VM.Reset
}

// Handover asks to hand a VM over to the target of its open move.
type Handover struct {
	VM               string
	Generation, Move uint64 // Move.Open
}

// Permit answers a PermitRequest.
type Permit struct {
	Epoch, Term, Index uint64
	Granted            []Instance // of those asked for
	Moves              []Handover `json:",omitempty"`
	Leftovers          []Instance `json:",omitempty"`
	Resumes            []Handover `json:",omitempty"`
	Resets             []ResetAsk `json:",omitempty"`
	Refused            string     // why not the others, for people
}

// Renewal asks for another lease.
type Renewal struct {
	Host string
	// Enforcing: the agent stops restartable VMs when the lease runs out.
	Enforcing bool
	// Watchdog is armed, and turns the host off this long after the agent last petted it; 0 = there is none, or it is not
	// armed.
	Watchdog time.Duration
	// Left is how much of the host's lease was left when it asked.
	Left time.Duration
	// Boot differs from one run of the machine to the next.
	Boot string
	// Machine differs from one machine to another. The agent sends it once the leader took a whole report of this run of the
	// machine: the leader then knows that what ran here in the run before is gone. "" = not yet, or not known.
	Machine string `json:",omitempty"`
	// Watched: the host's configuration names a watchdog, armed or not. At is the host's CLOCK_BOOTTIME when the renewal was
	// sent. Nothing is decided by these two: they are for monitoring.
	Watched bool
	At      time.Duration
}

// Grant is a lease.
type Grant struct {
	Epoch, Term, Index uint64
	Lease              time.Duration // from the sending of the renewal
	// Enforce says whether restartable VMs are to be stopped when the lease runs out, and the watchdog to be armed while there
	// are any; false while fencing is disabled.
	Enforce bool
	// Servers of the cluster, where a later question may be asked: host:port.
	Servers []string
}
