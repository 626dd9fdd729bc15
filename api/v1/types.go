package v1

import "time"

// Resources are CPU in cores and memory in bytes.
type Resources struct {
	CPU    float64 `json:"cpu" doc:"Cores."`
	Memory Size    `json:"memory" doc:"Bytes."`
}

// List is how the API answers with several things.
type List[T any] struct {
	Items []T `json:"items" nullable:"false" doc:"What was found."`
}

// Part of a list, with how many items there are in all where the request limits them.
type Part[T any] struct {
	Items   []T `json:"items" nullable:"false" doc:"What was found."`
	Matches int `json:"matches,omitempty" doc:"With limit: how many items the search finds, in all parts."`
	Total   int `json:"total,omitempty" doc:"With limit: how many items there are without the search."`
}

// VirtualCluster is a virtual cluster as it stands.
type VirtualCluster struct {
	ID             string    `json:"id" doc:"Id of the virtual cluster; never used again."`
	Name           string    `json:"name" doc:"Name of the virtual cluster."`
	Tenant         string    `json:"tenant,omitempty" doc:"Tenant that it belongs to. Left out of a list where the request names it, and of one object where it is the tenant default."`
	State          string    `json:"state" enum:"queued,starting,running,stopping,stopped,degraded,failed,deleting" doc:"queued: not admitted yet. degraded: a VM ended by itself, its host is out of reach, or the yield is below minYield. failed: no VM runs and none will by itself."`
	Reason         string    `json:"reason,omitempty" doc:"Why it is queued, degraded or failed."`
	MinYield       float64   `json:"minYield" doc:"Least yield it was promised."`
	Yield          float64   `json:"yield" doc:"Its yield now: the least allocation / need of its VMs; 0 while none has an allocation."`
	OnFull         string    `json:"onFull" doc:"queue: it waits where there is no room. reject: it is refused."`
	OnHostLoss     string    `json:"onHostLoss" doc:"restart: VMs of a lost host start elsewhere once it is proved to run them no more. keep: they wait for their host."`
	Needs          string    `json:"needs" enum:"declared,estimated" doc:"What its VMs count as: what was declared, or what is estimated of their use."`
	Aggressiveness string    `json:"aggressiveness,omitempty" enum:"conservative,balanced,aggressive" doc:"Of its estimates; left out where its needs are declared."`
	Priority       int       `json:"priority" doc:"Orders the queue and evictions: the higher starts first and goes last. It never weights a yield."`
	Groups         []Group   `json:"groups" nullable:"false" doc:"Its groups, in the order of its file."`
	VMs            VMCount   `json:"vms" doc:"How many of its VMs are in which phase."`
	Decision       *Decision `json:"decision,omitempty" doc:"The last answer of admission."`
	CreatedAt      time.Time `json:"createdAt" doc:"When it was created."`
	QueuedAt       time.Time `json:"queuedAt,omitzero" doc:"When it was queued."`
	ModifyIndex    uint64    `json:"modifyIndex" doc:"Log index of its last change; its ETag, in quotes."`
}

// Group is a group of a virtual cluster with what its VMs are given.
type Group struct {
	Name       string            `json:"name" doc:"Name of the group."`
	Count      int               `json:"count" doc:"Number of VMs."`
	CPU        float64           `json:"cpu" doc:"Declared need of each VM, cores."`
	Need       float64           `json:"need" doc:"Need of each VM that counts, cores: estimated, or else declared."`
	VCPUs      int               `json:"vcpus" doc:"Virtual CPUs of each VM."`
	Memory     Size              `json:"memory" doc:"Of each VM, bytes."`
	MemoryMin  Size              `json:"memoryMin" doc:"Floor of each VM's balloon, bytes."`
	Role       string            `json:"role" doc:"core, or elastic: its VMs may be stopped where memory is short, and start again."`
	Image      string            `json:"image,omitempty" doc:"Image that its VMs start from."`
	Boot       *Boot             `json:"boot,omitempty" doc:"Kernel that its VMs boot, if not from a disk."`
	Disk       *Disk             `json:"disk,omitempty" doc:"Disk of each VM."`
	Network    string            `json:"network,omitempty" doc:"Network that its VMs are connected to."`
	CloudInit  bool              `json:"cloudInit,omitempty" doc:"Whether cloud-init data was given. The data itself is not shown: it may hold secrets."`
	Labels     map[string]string `json:"labels,omitempty" doc:"Labels of the tenant."`
	Affinity   *Affinity         `json:"affinity,omitempty" doc:"Which hosts its VMs are to share, to avoid or to use."`
	Allocation float64           `json:"allocation" doc:"Cores each VM is given; 0 while none runs or starts."`
	Yield      float64           `json:"yield" doc:"allocation / need."`
}

// VMCount adds up the phases of VMs.
type VMCount struct {
	Total    int `json:"total" doc:"All VMs."`
	Starting int `json:"starting" doc:"VMs that start."`
	Running  int `json:"running" doc:"VMs that run, by a host that reports."`
	Unknown  int `json:"unknown" doc:"VMs that ran when their host last reported; it cannot be asked now."`
	Stopping int `json:"stopping" doc:"VMs that stop."`
	Stopped  int `json:"stopped" doc:"VMs that are stopped."`
	Failed   int `json:"failed" doc:"VMs that failed."`
	Lost     int `json:"lost" doc:"Went with their host, and are to be started again."`
}

// VM is one instance of a group. Many fields: it is one JSON object of the API, whose fields are never removed.
type VM struct {
	ID             string  `json:"id" doc:"Id of the VM; never used again."`
	Name           string  `json:"name" doc:"VC-GROUP-TASK."`
	Tenant         string  `json:"tenant,omitempty" doc:"Tenant that it belongs to. Left out of a list where the request names it, and of one object where it is the tenant default."`
	Domain         string  `json:"domain" doc:"Name the hypervisor shows."`
	VirtualCluster string  `json:"virtualCluster" doc:"Name of its virtual cluster."`
	Group          string  `json:"group" doc:"Name of its group."`
	Task           int     `json:"task" doc:"Number within the group, from 0."`
	Host           string  `json:"host" doc:"Name of the host that it is placed on; empty while it is on none."`
	State          string  `json:"state" doc:"starting, running, paused, stopping, stopped, failed, lost (it went with its host and is to be started again), or unknown while its host cannot be asked."`
	MovingTo       string  `json:"movingTo,omitempty" doc:"The host that it is moving to; until it is there it counts on both."`
	Migration      string  `json:"migration,omitempty" doc:"Id of the migration that moves it."`
	Reason         string  `json:"reason,omitempty" doc:"Why it failed or stopped."`
	Need           float64 `json:"need" doc:"Cores it would use alone on a host."`
	Allocation     float64 `json:"allocation" doc:"Cores it is given."`
	Yield          float64 `json:"yield" doc:"allocation / need."`
	Cap            float64 `json:"cap" doc:"Cores its host holds it to now; 0: none seen."`
	Used           float64 `json:"used" doc:"Cores it used over the last interval, by the time of its virtual CPUs."`
	Memory         Size    `json:"memory" doc:"Bytes it is to have: the target of its balloon."`
	Balloon        Size    `json:"balloon" doc:"Bytes it has: the actual size of its balloon; 0: not seen."`
	Resident       Size    `json:"resident" doc:"Bytes of host memory in use for it."`
	MemoryUsed     Size    `json:"memoryUsed,omitempty" doc:"Bytes it uses of its memory: its balloon less what its guest reports as available; where the guest reports nothing, resident. Left out where neither is known."`
	VCPUs          int     `json:"vcpus" doc:"Number of its virtual CPUs."`
	Generation     uint64  `json:"generation" doc:"How many times it was started."`

	Addresses []string          `json:"addresses,omitempty" doc:"Addresses in its network, IPv4 first, as its guest agent, the DHCP leases or the neighbour table of its host have them; at most 8. For people: they prove nothing."`
	CreatedAt time.Time         `json:"createdAt,omitzero" doc:"When it became part of its virtual cluster."`
	StartedAt time.Time         `json:"startedAt,omitzero" doc:"When it was last started, by the clock of the host that did; a migration or a reboot of its guest does not count. Left out where it does not run, or that is not known."`
	MinYield  float64           `json:"minYield" doc:"Least yield that its virtual cluster was promised."`
	Image     string            `json:"image,omitempty" doc:"Image that it starts from."`
	Disk      *Disk             `json:"disk,omitempty" doc:"Its disk."`
	Network   string            `json:"network,omitempty" doc:"Network that it is connected to."`
	Labels    map[string]string `json:"labels,omitempty" doc:"Labels of its group."`

	SampledAt time.Time `json:"sampledAt,omitzero" doc:"When cap, used, balloon, resident and memoryUsed were measured."`
}

// Host is a machine and what it gives. Many fields: it is one JSON object of the API, whose fields are never removed.
type Host struct {
	Name         string            `json:"name" doc:"Name of the host."`
	State        string            `json:"state" doc:"ready, cordoned, draining (VMs leave it), drained (its hypervisor says that none of ours is left), unreachable (its agent or its hypervisor does not answer), lost (proved to run nothing), or unknown (not heard of yet)."`
	Lease        string            `json:"lease" doc:"held, over (not renewed in time), lost (proved to be over), or unknown (not renewed since this leader leads)."`
	Heard        float64           `json:"heard" doc:"Seconds since its agent last renewed its lease; below 0: not since this leader leads."`
	Watchdog     float64           `json:"watchdog" doc:"Seconds after which its armed watchdog turns it off; 0: none is armed."`
	Capacity     Resources         `json:"capacity" doc:"What the machine has."`
	Allowance    Resources         `json:"allowance" doc:"What Evenkeel may use of it."`
	Allocated    Resources         `json:"allocated" doc:"What its VMs are given."`
	Used         Resources         `json:"used" doc:"What its VMs were last seen to use."`
	Pressure     *Pressure         `json:"pressure,omitempty" doc:"How much work on the machine waits; left out where its kernel does not measure it."`
	Available    *HostAvailability `json:"available,omitempty" doc:"What the host itself holds to be available for new VMs; left out where it reported none since this leader leads."`
	Foreign      Resources         `json:"foreign" doc:"What VMs take that are not Evenkeel's: counted, never touched."`
	ForeignVMs   int               `json:"foreignVMs" doc:"VMs on it that are not Evenkeel's."`
	VMs          int               `json:"vms" doc:"VMs of Evenkeel on it."`
	Cordoned     bool              `json:"cordoned" doc:"Whether it takes no new VMs."`
	CordonReason string            `json:"cordonReason,omitempty" doc:"Why it is cordoned, as the operator said."`
	Drain        *Drain            `json:"drain,omitempty" doc:"Of a host that is to be emptied: how far it is."`
	KVM          bool              `json:"kvm" doc:"Hardware virtualization is used; else software emulation."`
	Software     string            `json:"software" doc:"Its hypervisor and the version."`
	Version      string            `json:"version,omitempty" doc:"Version of its vcd, as it states it; left out where that is not known."`
	Roles        []string          `json:"roles,omitempty" doc:"What its vcd is in the cluster: server, agent. Left out where the server that answers runs alone."`
	BootedAt     time.Time         `json:"bootedAt,omitzero" doc:"When the machine was started, by its own clock; left out where that is not known."`
	Error        string            `json:"error,omitempty" doc:"Why what is wanted is not in force on it."`
	Unmanaged    []string          `json:"unmanaged,omitempty" doc:"VMs that carry this cluster's mark and are unknown to it: reported, never touched."`
	Synced       uint64            `json:"synced" doc:"Log index up to which what is wanted is in force on it."`
}

// Pressure is the share of the last ten seconds in which at least one task of the machine waited for the resource, 0 to 1, as its kernel
// measures it (PSI).
type Pressure struct {
	CPU    *float64 `json:"cpu,omitempty" doc:"Share in which a task waited for a CPU."`
	Memory *float64 `json:"memory,omitempty" doc:"Share in which a task waited for memory."`
	IO     *float64 `json:"io,omitempty" doc:"Share in which a task waited for a disk."`
}

// States of an operation.
const (
	OperationPending    = "pending"
	OperationDone       = "done"
	OperationFailed     = "failed"
	OperationSuperseded = "superseded"
)

// Operation is a change that a user asked for, and how far it is.
type Operation struct {
	ID             string    `json:"id" doc:"Id of the operation."`
	Tenant         string    `json:"tenant,omitempty" doc:"Tenant that it belongs to; left out where that follows from the request."`
	Kind           string    `json:"kind" doc:"create, scale, start, stop or delete; of one VM start, stop, restart or reset; of moves, rebalance, drain or move."`
	VirtualCluster string    `json:"virtualCluster" doc:"Name of the virtual cluster; empty where it is about a plan or a host."`
	VM             string    `json:"vm,omitempty" doc:"Name of the VM, where it is about one VM alone."`
	Plan           string    `json:"plan,omitempty" doc:"Id of the plan of moves."`
	Host           string    `json:"host,omitempty" doc:"Name of the host that is emptied."`
	State          string    `json:"state" enum:"pending,done,failed,superseded" doc:"superseded: a later request wants something else."`
	Done           int       `json:"done" doc:"Steps (VMs, moves) done."`
	Total          int       `json:"total" doc:"Steps in all."`
	Text           string    `json:"text" doc:"How far it is, in words."`
	At             time.Time `json:"at" doc:"When it was asked for."`
	Index          uint64    `json:"index" doc:"Log index of the change."`
}

// Ended says whether nothing more will come of it.
func (o Operation) Ended() bool { return o.State != OperationPending }

// Decision is an answer of admission.
type Decision struct {
	At         time.Time    `json:"at,omitzero" doc:"When it was made."`
	Admitted   bool         `json:"admitted" doc:"Whether the request was admitted."`
	Summary    string       `json:"summary" doc:"The answer in a sentence."`
	Hosts      []HostReason `json:"hosts,omitempty" doc:"What each host lacked."`
	Advice     []string     `json:"advice,omitempty" doc:"What would make it fit."`
	MinYield   float64      `json:"minYield" doc:"Least yield of the cluster after it."`
	UpperBound float64      `json:"upperBound" doc:"No placement could have given more."`
	Basis      uint64       `json:"basis" doc:"Log index of the state it was made on."`
}

// Change is one step of a plan.
type Change struct {
	Verb           string `json:"verb" doc:"place, cap, balloon, start, stop or delete."`
	VM             string `json:"vm,omitempty" doc:"Name of the VM; left out where the change is to a group."`
	VirtualCluster string `json:"virtualCluster" doc:"Name of the virtual cluster that it is about."`
	Text           string `json:"text" doc:"The step in words and figures."`
}

// Result is the answer to a request that changes something.
type Result struct {
	Operation      *Operation      `json:"operation,omitempty" doc:"What to wait on; left out in a dry run."`
	VirtualCluster *VirtualCluster `json:"virtualCluster,omitempty" doc:"As it is after the change; in a dry run, as it would be."`
	Decision       *Decision       `json:"decision,omitempty" doc:"What admission said, where it was asked."`
	Changes        []Change        `json:"changes" nullable:"false" doc:"What the plan does; in a dry run, what it would do."`
	Fields         []FieldChange   `json:"fields,omitempty" doc:"Of a change to another VC file: what differs from what the virtual cluster was before."`
	DryRun         bool            `json:"dryRun" doc:"Nothing was changed."`
	Replayed       bool            `json:"replayed" doc:"The answer to an idempotency key that was used before."`
}

// Event is one thing that happened.
type Event struct {
	Seq      uint64    `json:"seq" doc:"Its number, one more than that of the event before."`
	Index    uint64    `json:"index" doc:"Log index of the change it belongs to."`
	At       time.Time `json:"at" doc:"When it happened, by the clock of the leader."`
	Kind     string    `json:"kind" doc:"vc-created, vm-running, host-cordoned and so on: a code that is never renamed."`
	Severity string    `json:"severity,omitempty" enum:"info,warning,critical" doc:"How much it matters, by its kind. Left out by servers that do not know it."`
	Object   string    `json:"object" enum:"vc,vm,host,image,cluster,member,plan,token,tenant" doc:"What kind of thing it happened to."`
	Tenant   string    `json:"tenant,omitempty" doc:"Tenant that the object belongs to; left out for what is the cluster's or the default tenant's, and where it follows from the request."`
	Name     string    `json:"name" doc:"Name of the object."`
	Text     string    `json:"text" doc:"What happened, in words."`
}

// EventList is a list of events.
type EventList struct {
	Items []Event `json:"items" nullable:"false" doc:"Events in the order of their numbers."`
	Last  uint64  `json:"last" doc:"Number of the newest event that there was then, whether it is in the list or not: follow from it."`
}

// Gap is sent in a stream of events in place of some that are no longer kept.
type Gap struct {
	After uint64 `json:"after" doc:"The last event that the reader has."`
	Next  uint64 `json:"next" doc:"The next event that there is."`
}

// Image is an entry of the image catalogue.
type Image struct {
	Name     string    `json:"name" doc:"Name by which VC files refer to it."`
	Tenant   string    `json:"tenant,omitempty" doc:"Tenant that it belongs to; left out: it is open to all tenants."`
	Kind     string    `json:"kind" enum:"disk,kernel,initrd" doc:"What it is."`
	File     string    `json:"file" doc:"Path of the file on every host."`
	Size     Size      `json:"size" doc:"Of the file."`
	DiskSize Size      `json:"diskSize,omitempty" doc:"disk only: the disk as guests see it; no disk made over it is smaller."`
	Initrd   string    `json:"initrd,omitempty" doc:"kernel only: the image that is its initial RAM disk."`
	Cmdline  string    `json:"cmdline,omitempty" doc:"kernel only: the command line that it is booted with."`
	AddedAt  time.Time `json:"addedAt,omitzero" doc:"When it was added to the catalogue."`
}

// ClusterStatus is the cluster at a glance. To a token of a tenant it has Quota, and only the fields of tenantStatus.
// Many fields: it is one JSON object of the API, whose fields are never removed.
type ClusterStatus struct {
	ID              string          `json:"id" required:"false" doc:"Id of the cluster; stands in the mark of every VM."`
	Version         string          `json:"version" doc:"Of the server that answers."`
	Leader          string          `json:"leader" required:"false" doc:"Name of the server that decides."`
	Index           uint64          `json:"index" required:"false" doc:"Log index of this answer."`
	Ready           bool            `json:"ready" doc:"Whether the server that answers can serve requests."`
	NotReady        string          `json:"notReady,omitempty" doc:"Why it is not ready."`
	CreatedAt       time.Time       `json:"createdAt" required:"false" doc:"When the cluster was made."`
	MinYield        float64         `json:"minYield" doc:"Least yield of the virtual clusters that run; 1 if none does."`
	Capacity        Resources       `json:"capacity" required:"false" doc:"What all machines have."`
	Allowance       Resources       `json:"allowance" required:"false" doc:"What Evenkeel may use of all hosts."`
	Allocated       Resources       `json:"allocated" doc:"What VMs are given."`
	Used            Resources       `json:"used" doc:"What VMs were last seen to use."`
	Hosts           map[string]int  `json:"hosts" required:"false" doc:"Number of hosts by state."`
	VirtualClusters map[string]int  `json:"virtualClusters" doc:"Number of virtual clusters by state."`
	VMs             VMCount         `json:"vms" doc:"How many VMs are in which phase."`
	Settings        ClusterSettings `json:"settings" doc:"Settings of the cluster in force."`
	Quota           *Quota          `json:"quota,omitempty" doc:"To a token of a tenant: what the tenant may use, and what it uses."`

	Epoch               uint64      `json:"epoch" doc:"Raised by every restore and recovery."`
	FencingDisabled     bool        `json:"fencingDisabled" required:"false" doc:"Leases that run out stop no VM, and prove nothing."`
	RecoveryFreeze      string      `json:"recoveryFreeze,omitempty" doc:"restore or recovery, after which nothing is started or stopped until every host has said what it runs."`
	RecoveryFreezeHosts []string    `json:"recoveryFreezeHosts,omitempty" doc:"Hosts that have not said so yet."`
	Members             []Member    `json:"members,omitempty" doc:"Servers and agents."`
	Voters              int         `json:"voters,omitempty" doc:"Servers that vote."`
	Tolerance           int         `json:"tolerance" required:"false" doc:"How many of them may fail before the majority is lost."`
	Format              int         `json:"format,omitempty" doc:"Of the log: the newest that all servers can read."`
	Advice              string      `json:"advice,omitempty" doc:"What would make the cluster survive more."`
	Conditions          []Condition `json:"conditions" nullable:"false" doc:"What an operator should look at."`
	BackupAt            time.Time   `json:"backupAt,omitzero" doc:"When the server that answers last saved the state by itself."`
}

// Condition is a problem that an operator should look at.
type Condition struct {
	Severity string `json:"severity" enum:"warning,critical" doc:"critical: something stands still or may be lost. warning: something will need a hand."`
	Object   string `json:"object" doc:"cluster, member, host."`
	Name     string `json:"name" doc:"Name of the object."`
	Text     string `json:"text" doc:"What is wrong, and the way out."`
	Command  string `json:"command,omitempty" doc:"Command that mends it, or else that shows more; left out where neither is known."`
}

// Explanation says why a virtual cluster has the yield it has, or why it has none.
type Explanation struct {
	VirtualCluster string    `json:"virtualCluster" doc:"Name of the virtual cluster."`
	State          string    `json:"state" doc:"Its state."`
	Yield          float64   `json:"yield" doc:"Its yield now: the least of its VMs."`
	MinYield       float64   `json:"minYield" doc:"Least yield it was promised."`
	Bottleneck     string    `json:"bottleneck,omitempty" doc:"The host that binds its yield."`
	Lines          []string  `json:"lines" nullable:"false" doc:"The explanation, line by line."`
	Decision       *Decision `json:"decision,omitempty" doc:"The last answer of admission."`
}
