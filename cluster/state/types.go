package state

import (
	"time"

	"evenkeel/cluster/capacity"
)

// Resources are CPU in cores and memory in bytes.
type Resources = capacity.Resources

// Meta is the cluster's own row. There is one.
type Meta struct {
	ID        string    `json:"id"` // marks the cluster's VMs on their hosts, for ever
	CreatedAt time.Time `json:"createdAt"`
	Settings  Settings  `json:"settings"`
	// Epoch is raised when the cluster is recovered from a lost quorum or restored: agents refuse orders of an earlier epoch,
	// however high their index.
	Epoch uint64 `json:"epoch,omitempty"`
	// FencingDisabled: leases that run out stop no VM, and prove nothing.
	FencingDisabled       bool           `json:"fencingDisabled,omitempty"`
	FencingDisabledReason string         `json:"fencingDisabledReason,omitempty"` // why
	RecoveryFreeze        RecoveryFreeze `json:"recoveryFreeze,omitzero"`
	// SettingsIndex is the log index of the last change of the settings; 0 = none since the cluster was made.
	SettingsIndex uint64 `json:"settingsIndex,omitempty"`
}

// RecoveryFreeze keeps everything as it is after a restore or a recovery, until every known host has sent its inventory or was
// confirmed dead. The zero value is none.
type RecoveryFreeze struct {
	Reason  string   `json:"reason,omitempty"`
	Pending []string `json:"pending,omitempty"` // hosts that have not reported yet, by name
}

// On says whether there is a recovery freeze.
func (h RecoveryFreeze) On() bool { return h.Reason != "" }

// Host is a machine and the part of it that Evenkeel may use.
type Host struct {
	Name         string    `json:"name"`
	Capacity     Resources `json:"capacity"`
	Allowance    Resources `json:"allowance"`
	Foreign      Resources `json:"foreign"` // taken by VMs that are not ours
	ForeignVMs   int       `json:"foreignVMs"`
	VMOverhead   int64     `json:"vmOverhead"` // bytes each VM costs the host beyond its own memory
	KVM          bool      `json:"kvm"`
	Software     string    `json:"software"`
	Cordoned     bool      `json:"cordoned"`
	CordonReason string    `json:"cordonReason,omitempty"`
	MigrateURI   string    `json:"migrateURI,omitempty"` // where other hosts reach its hypervisor
	Fencing      Fencing   `json:"fencing,omitzero"`
	Lost         Loss      `json:"lost,omitzero"`
	Drain        Drain     `json:"drain,omitzero"`
	// Machine is the run of the machine whose agent last renewed the host's lease, after it had reported all that runs in it.
	Machine Machine `json:"machine,omitzero"`

	CreateIndex uint64 `json:"createIndex"`
	// Version is the log index of the last change that a placement depends on:
	// limits, cordon, and the VMs and allocations on the host.
	Version uint64 `json:"version"`
}

// Machine is one run of a machine, from its start to its end. The zero value stands for an unknown run.
type Machine struct {
	ID   string `json:"id,omitempty"`
	Boot string `json:"boot,omitempty"` // differs between any two runs of any machines
}

// Fencing is how the host enforces its lease, as its agent reported in a renewal. It is recorded before that renewal is
// answered.
type Fencing struct {
	Enforcing bool  `json:"enforcing,omitempty"`
	Watchdog  int64 `json:"watchdog,omitempty"` // time-out of the armed watchdog, milliseconds; 0 = none is armed
	// Lease is the longest lease that the host may have since its last renewal, milliseconds: servers may be configured with
	// different ones, and a host has what it was granted. 0 = that of the server that leads.
	Lease int64 `json:"lease,omitempty"`
}

// Loss says what a lost host is proved not to run any more, and how. The zero value is none; the host's next report ends it.
type Loss struct {
	At    time.Time `json:"at,omitzero"`
	Proof Proof     `json:"proof,omitempty"`
	Text  string    `json:"text,omitempty"`
}

// Proof is the kind of proof that a host does not run VMs.
type Proof string

// The proofs there are.
const (
	ProofLease    Proof = "lease"    // its lease and its watchdog ran out: of its restartable VMs only
	ProofFence    Proof = "fence"    // a fence device reports that its power is off
	ProofOperator Proof = "operator" // an operator confirms that it is dead
)

// Usable is what VMs of this cluster may use on the host: the allowance less what foreign VMs take, at least zero.
func (h Host) Usable() Resources {
	return Resources{CPU: max(0, h.Allowance.CPU-h.Foreign.CPU), Memory: max(0, h.Allowance.Memory-h.Foreign.Memory)}
}

// OnFull says what is done with a VC that does not fit now.
type OnFull string

// The two answers to a full cluster.
const (
	Queue  OnFull = "queue"
	Reject OnFull = "reject"
)

// Goal is the state in which the tenant wants a VC.
type Goal string

// A VC is to run, to be stopped (disks kept), or to be gone.
const (
	GoalRun    Goal = "run"
	GoalStop   Goal = "stop"
	GoalDelete Goal = "delete"
)

// VC is a virtual cluster.
type VC struct {
	ID         string  `json:"id"`
	Name       string  `json:"name"`
	MinYield   float64 `json:"minYield"`
	OnFull     OnFull  `json:"onFull"`
	OnHostLoss string  `json:"onHostLoss"`
	Needs      string  `json:"needs"` // declared or estimated; "" = as the cluster has it
	// Aggressiveness of its estimates; "" = that of the cluster.
	Aggressiveness string    `json:"aggressiveness,omitempty"`
	Priority       int       `json:"priority"`
	Goal           Goal      `json:"goal"`
	Admitted       bool      `json:"admitted"` // false while queued: it has VM rows only once admitted
	Groups         []Group   `json:"groups"`
	Decision       Decision  `json:"decision"` // the last answer of admission
	CreatedAt      time.Time `json:"createdAt"`
	QueuedAt       time.Time `json:"queuedAt,omitzero"`
	Periodic       Periodic  `json:"periodic,omitzero"`
	Duration       int64     `json:"duration,omitempty"` // seconds for which it is to run, as its owner declared it; 0: not known

	CreateIndex uint64 `json:"createIndex"`
	ModifyIndex uint64 `json:"modifyIndex"` // last change of this row: its ETag
}

// Group is a set of equal VMs of a VC.
type Group struct {
	Name      string            `json:"name"`
	Count     int               `json:"count"`
	CPU       float64           `json:"cpu"` // need of one VM, cores
	VCPUs     int               `json:"vcpus"`
	Memory    int64             `json:"memory"`    // of one VM, bytes
	MemoryMin int64             `json:"memoryMin"` // floor of its balloon, bytes
	Role      string            `json:"role"`
	Image     string            `json:"image,omitempty"`
	Boot      Boot              `json:"boot,omitzero"`
	Disk      Disk              `json:"disk,omitzero"`
	Network   string            `json:"network,omitempty"`
	CloudInit CloudInit         `json:"cloudInit,omitzero"`
	Labels    map[string]string `json:"labels,omitempty"`
	Affinity  Affinity          `json:"affinity,omitzero"`

	Allocation float64 `json:"allocation"`          // cores each VM of the group is given; 0 before admission
	Estimated  float64 `json:"estimated,omitempty"` // cores that one VM is found to need; 0 = what was declared: see Need
}

// Affinity of a group says on which hosts, and beside which other VMs, its VMs must, should and must not run. A term is
// host:NAME, vc:NAME or label=value. A name may come to match nothing; terms are kept as they were written.
type Affinity struct {
	Spread  string   `json:"spread,omitempty"`  // "host": no two VMs of the group on one host
	Require []string `json:"require,omitempty"` // one of the hosts; of every other term, another VM on the same host
	Prefer  []string `json:"prefer,omitempty"`
	Avoid   []string `json:"avoid,omitempty"` // none of the hosts; of no other term a VM on the same host
}

// Empty says that there is no rule.
func (a Affinity) Empty() bool {
	return a.Spread == "" && len(a.Require) == 0 && len(a.Prefer) == 0 && len(a.Avoid) == 0
}

// Boot names a kernel and an initrd of the image catalogue.
type Boot struct {
	Kernel  string `json:"kernel,omitempty"`
	Initrd  string `json:"initrd,omitempty"`
	Cmdline string `json:"cmdline,omitempty"`
}

// Disk is the disk of each VM of a group; the zero value is none beyond what the image asks for.
type Disk struct {
	Size      int64  `json:"size,omitempty"`
	Pool      string `json:"pool,omitempty"`
	Ephemeral bool   `json:"ephemeral,omitempty"`
}

// CloudInit is given to the guests of a group unchanged.
type CloudInit struct {
	UserData      string `json:"userData,omitempty"`
	MetaData      string `json:"metaData,omitempty"`
	NetworkConfig string `json:"networkConfig,omitempty"`
}

// Decision is an answer of admission, stored so that it can be explained later.
type Decision struct {
	At         time.Time    `json:"at,omitzero"`
	Admitted   bool         `json:"admitted"`
	Preempted  bool         `json:"preempted,omitempty"` // it was in, and is back in the queue: the summary says for whom
	Summary    string       `json:"summary"`
	Hosts      []HostReason `json:"hosts,omitempty"`  // why each host could not take it
	Advice     []string     `json:"advice,omitempty"` // what would make it fit
	MinYield   float64      `json:"minYield"`         // least yield of the cluster after it
	UpperBound float64      `json:"upperBound"`       // no placement could have given more
	Basis      uint64       `json:"basis"`            // log index of the snapshot it was made on
}

// HostReason is why a host did not take what was asked for.
type HostReason struct {
	Host          string  `json:"host"`
	Cordoned      bool    `json:"cordoned,omitempty"`
	CPUMissing    float64 `json:"cpuMissing"`     // cores
	MemoryMissing int64   `json:"memoryMissing"`  // bytes
	Rule          string  `json:"rule,omitempty"` // that keeps a VM from the host, as "avoid app=db"
	Text          string  `json:"text"`
}

// Phase is the phase of a VM's life. It moves forward within a generation.
type Phase string

// The phases of a VM. The report of its host moves it on.
const (
	Starting Phase = "starting" // permitted to start; not yet seen running
	Running  Phase = "running"  // its host saw it run
	Stopping Phase = "stopping" // to be stopped; still charged to its host
	Stopped  Phase = "stopped"  // its host reports that it does not run
	Failed   Phase = "failed"   // ended without being asked to, or could not start: see Reason
	Lost     Phase = "lost"     // proved not to run on any host; to be started again: see admission.Restart
)

// VM is one instance of a group.
// Many fields: it is one row of the replicated state, in JSON that old logs and snapshots have.
type VM struct {
	ID    string `json:"id"`
	VC    string `json:"vc"` // id of the VC
	Group string `json:"group"`
	Task  int    `json:"task"` // number within the group, from 0
	Name  string `json:"name"` // <vc>-<group>-<task>, a full name
	Host  string `json:"host"`
	// Generation counts the starts that were permitted. A host starts exactly
	// the generation that the leader permitted it, once.
	Generation uint64 `json:"generation"`
	Goal       Goal   `json:"goal"` // run, stop, delete
	Phase      Phase  `json:"phase"`
	Reason     string `json:"reason,omitempty"`
	VCPUs      int    `json:"vcpus"`      // as started
	BootMemory int64  `json:"bootMemory"` // as started: the most its balloon can give back, bytes
	// ChargedMemory is the memory that the VM is charged on its host, bytes: at least its balloon target, more until the host
	// reports that the guest has given it back.
	ChargedMemory int64 `json:"chargedMemory"`
	// Target of its balloon, bytes; 0 = the memory of its group: see Due.
	Target int64 `json:"target,omitempty"`
	// PreemptedAt is when it was stopped to make room for others, seconds since 1970; 0 = it was not. Once there is room it starts again.
	PreemptedAt int64 `json:"preemptedAt,omitempty"`
	// MovingTo is the target of the VM's running migration, which is from Host; "" = there is none. Until the migration ends the VM is
	// charged to both hosts and may be on either. Snapshot.MigrationOf has the rest.
	MovingTo string `json:"movingTo,omitempty"`
	// InventoryEpoch is the epoch in which a host last reported, during a recovery freeze, that it runs the VM.
	InventoryEpoch uint64 `json:"inventoryEpoch,omitempty"`
	// Frozen, cores, is the cap that a stopping VM keeps until it is gone, and the highest cap with which a moving VM arrives.
	Frozen float64 `json:"frozen,omitempty"`
	// Order is what a user asked of this VM alone.
	Order VMOrder `json:"order,omitzero"`

	CreateIndex uint64 `json:"createIndex"`
	ModifyIndex uint64 `json:"modifyIndex"`
}

// Domain is the name under which hypervisors start the VM. No other VM has it, now or later.
func (v VM) Domain() string { return "ek-" + v.ID }

// ConsumesResources says whether the VM takes CPU and memory of its host now.
func (v VM) ConsumesResources() bool {
	switch v.Phase {
	case Starting, Running, Stopping:
		return true
	}
	return false
}

// ImageKind says what an image is for.
type ImageKind string

// Kinds of images.
const (
	DiskImage   ImageKind = "disk"   // qcow2 base; VMs get overlays
	KernelImage ImageKind = "kernel" // may name an initrd and a command line, and then boots by itself
	InitrdImage ImageKind = "initrd"
)

// Image is an entry of the catalogue. File is a path on the hosts.
type Image struct {
	Name        string    `json:"name"`
	Kind        ImageKind `json:"kind"`
	File        string    `json:"file"`
	Size        int64     `json:"size"`               // of the file, bytes
	DiskSize    int64     `json:"diskSize,omitempty"` // disk: as guests see it, bytes; 0 = not known
	Initrd      string    `json:"initrd,omitempty"`   // kernel: name of the initrd to boot with
	Cmdline     string    `json:"cmdline,omitempty"`  // kernel: default command line
	AddedAt     time.Time `json:"addedAt"`
	CreateIndex uint64    `json:"createIndex"`
}

// Operation is a change that a user asked for and can wait for. Its progress is not stored: see Snapshot.ProgressOf.
type Operation struct {
	ID    string    `json:"id"`
	Kind  string    `json:"kind"` // create, scale, start, stop, delete; of a VM stop, start, restart, reset; rebalance, drain, move
	VC    string    `json:"vc"`   // id
	Name  string    `json:"name"` // name of the VC, or of the host to be drained, at that time
	At    time.Time `json:"at"`
	Index uint64    `json:"index"` // the log index that made it
	// MovePlan and Host are what its progress is that of: a plan of moves, a host that is emptied.
	MovePlan string `json:"movePlan,omitempty"`
	Host     string `json:"host,omitempty"`
	// VM is the id of the one VM that it is about, VMName its name; "" = the whole VC. Generation is the one that is to run once a
	// start or a restart is done.
	VM         string `json:"vm,omitempty"`
	VMName     string `json:"vmName,omitempty"`
	Generation uint64 `json:"generation,omitempty"`
}

// Member is a vcd of the cluster.
type Member struct {
	Name      string    `json:"name"` // of its host
	Server    bool      `json:"server,omitempty"`
	Agent     bool      `json:"agent,omitempty"`
	NoVote    bool      `json:"noVote,omitempty"` // a server that follows the log and never votes
	Address   string    `json:"address"`          // of its port, host:port
	Gossip    string    `json:"gossip,omitempty"` // of its gossip, host:port
	Version   string    `json:"version,omitempty"`
	Format    int       `json:"format,omitempty"` // of the log, that it can read
	JoinedAt  time.Time `json:"joinedAt"`
	Serials   []Serial  `json:"serials,omitempty"` // of the certificates it was given that are not over
	JoinIndex uint64    `json:"joinIndex"`
}

// Serial is the number of a certificate, and when that expires.
type Serial struct {
	Number string    `json:"number"` // hexadecimal
	Until  time.Time `json:"until"`
}

// Revoked is a revoked certificate.
type Revoked struct {
	Number string    `json:"number"`
	Name   string    `json:"name"` // of the member that had it
	Until  time.Time `json:"until"`
}

// JoinToken lets one member in. The state has only the SHA-256 of its secret.
type JoinToken struct {
	ID      string    `json:"id"`
	Hash    string    `json:"hash"`
	Server  bool      `json:"server,omitempty"`
	Agent   bool      `json:"agent,omitempty"`
	NoVote  bool      `json:"noVote,omitempty"`
	For     string    `json:"for,omitempty"` // lets in the member of that name only, also one that was in before
	Until   time.Time `json:"until"`
	UsedBy  string    `json:"usedBy,omitempty"`
	UsedAt  time.Time `json:"usedAt,omitzero"`
	MadeAt  time.Time `json:"madeAt"`
	Comment string    `json:"comment,omitempty"`
}

// Event is one thing that happened in the cluster.
type Event struct {
	Seq    uint64    `json:"seq"` // resumable position, increasing
	Index  uint64    `json:"index"`
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"`   // vc-admitted, vm-running, host-cordoned, ...
	Object string    `json:"object"` // vc, vm, host, image, token, cluster
	Name   string    `json:"name"`
	Text   string    `json:"text"`
	// TenantSeq is its number among those of the tenant that it belongs to; 0: it belongs to none, or is older than its tenant.
	TenantSeq uint64 `json:"tenantSeq,omitempty"`
}

// Remembered is the answer stored for an idempotency key.
type Remembered struct {
	Key         string    `json:"key"`
	Fingerprint string    `json:"fingerprint"` // of the request it was first used with
	Operation   string    `json:"operation"`   // id; "" = it was carried out at once, as changes of the catalogue of images are
	At          time.Time `json:"at"`
	Index       uint64    `json:"index"`
}
