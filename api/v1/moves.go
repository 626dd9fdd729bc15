package v1

import "time"

// Plan is an ordered list of live migrations, and what they are for. Caps follow by themselves.
// Many fields: it is one JSON object of the API, whose fields are never removed.
type Plan struct {
	ID                 string    `json:"id" doc:"Empty in a dry run."`
	Kind               string    `json:"kind" enum:"rebalance,drain,room,memory,move" doc:"rebalance: for a greater minimum yield. drain: to empty a host. room: so that a virtual cluster fits. memory: so that a host has the memory that its VMs use. move: one VM that a user wants elsewhere."`
	State              string    `json:"state" enum:"proposed,running,done,failed,stopped,superseded" doc:"proposed: nothing moves until it is applied. stopped: no further move begins. superseded: the cluster moved on, and another plan took its place."`
	Host               string    `json:"host,omitempty" doc:"drain: the host to be emptied."`
	VirtualCluster     string    `json:"virtualCluster,omitempty" doc:"room: name of the virtual cluster that room is made for."`
	By                 string    `json:"by,omitempty" doc:"Who or what asked for it."`
	Text               string    `json:"text,omitempty" doc:"The asker's reason."`
	Reason             string    `json:"reason" doc:"Why this plan, or why no move is worth it, in words and figures."`
	Bytes              Size      `json:"bytes" doc:"Bytes that the moves are predicted to send."`
	BytesBudget        *Size     `json:"bytesBudget,omitempty" doc:"Most bytes that the moves may send together, aborted ones included; left out: no bound."`
	BytesMoved         Size      `json:"bytesMoved" doc:"Bytes that its migrations have sent, as the hypervisor counted them; those under way as last heard of."`
	Seconds            float64   `json:"seconds" doc:"Predicted time from the first move to the end of the last, seconds."`
	MinYieldBefore     float64   `json:"minYieldBefore" doc:"Least yield of the cluster before the plan."`
	MinYieldAfter      float64   `json:"minYieldAfter" doc:"Least yield of the cluster once it is carried out, as predicted."`
	AverageYieldBefore float64   `json:"averageYieldBefore" doc:"Mean yield of the virtual clusters before."`
	AverageYieldAfter  float64   `json:"averageYieldAfter" doc:"Mean yield of the virtual clusters after, as predicted."`
	UpperBound         float64   `json:"upperBound" doc:"No placement, whatever it moves, gives a greater least yield."`
	Moves              []Move    `json:"moves" nullable:"false" doc:"In order; empty: nothing is worth moving, or nothing has to."`
	CreatedAt          time.Time `json:"createdAt,omitzero" doc:"When it was made."`
	EndedAt            time.Time `json:"endedAt,omitzero" doc:"When it ended; left out while it goes on."`
	Effort             int64     `json:"effort" doc:"Deterministic steps that the planner was given."`
	Basis              uint64    `json:"basis" doc:"Log index of the state that it was made on."`
	ModifyIndex        uint64    `json:"modifyIndex" doc:"Log index of its last change; its ETag, in quotes."`
}

// Ended says whether nothing more will come of it.
func (p Plan) Ended() bool { return p.State != "proposed" && p.State != "running" }

// Move is one live migration of a plan.
type Move struct {
	VM             string  `json:"vm" doc:"Name of the VM."`
	VMID           string  `json:"vmID" doc:"Id of the VM."`
	VirtualCluster string  `json:"virtualCluster" doc:"Name of its virtual cluster."`
	Group          string  `json:"group" doc:"Group of its virtual cluster."`
	From           string  `json:"from" doc:"Name of the host that it leaves."`
	To             string  `json:"to" doc:"Name of the host that it goes to."`
	After          []int   `json:"after" nullable:"false" doc:"Positions in moves, from 0, of those that must have ended well before."`
	Bytes          Size    `json:"bytes" doc:"Bytes that it is predicted to send: memory, pages that are sent again, disks that no other host has."`
	BytesBudget    *Size   `json:"bytesBudget,omitempty" doc:"Most bytes that it may send: beyond them it is aborted, and the VM stays where it is. Left out: no bound."`
	Staging        bool    `json:"staging" doc:"The VM only waits at this host, and moves on in a later move."`
	Reason         string  `json:"reason" doc:"Why it moves, in words."`
	Begins         float64 `json:"begins" doc:"Predicted beginning, seconds after the plan's."`
	Seconds        float64 `json:"seconds" doc:"Predicted time that it takes, seconds."`
	State          string  `json:"state" enum:"waiting,preparing,moving,done,failed,skipped" doc:"preparing: caps on both hosts make room for it."`
	Migration      string  `json:"migration,omitempty" doc:"Id of the migration, once it began."`
	Text           string  `json:"text,omitempty" doc:"What became of it, in words."`
}

// Migration is one VM on its way from one host to another, or there.
// Many fields: it is one JSON object of the API, whose fields are never removed.
type Migration struct {
	ID             string        `json:"id" doc:"Id, for /v1/migrations/{id}."`
	VM             string        `json:"vm" doc:"Name of the VM."`
	VMID           string        `json:"vmID" doc:"Id of the VM."`
	VirtualCluster string        `json:"virtualCluster" doc:"Name of its virtual cluster."`
	Generation     uint64        `json:"generation" doc:"Which start of the VM it is that moves."`
	From           string        `json:"from" doc:"Name of the host that it leaves."`
	To             string        `json:"to" doc:"Name of the host that it goes to."`
	Plan           string        `json:"plan,omitempty" doc:"Id of the plan that it belongs to."`
	Move           int           `json:"move" doc:"Position among the plan's moves, from 0."`
	State          string        `json:"state" enum:"running,done,failed,aborted" doc:"failed and aborted: the VM runs where it was."`
	Reason         string        `json:"reason" doc:"Why it moves, in words."`
	Error          string        `json:"error,omitempty" doc:"Why it failed."`
	Abort          string        `json:"abort,omitempty" doc:"Why it was or is to be aborted."`
	Bytes          Size          `json:"bytes" doc:"Bytes that it was predicted to send."`
	BytesBudget    *Size         `json:"bytesBudget,omitempty" doc:"Most bytes that it may send: beyond them it is aborted. Left out: no bound."`
	BytesMoved     Size          `json:"bytesMoved" doc:"Bytes that it has sent, memory and disks, as the hypervisor counted them; while it runs, as last heard of."`
	DowntimeMs     int64         `json:"downtimeMs" doc:"How long the guest stood still at the hand-over, milliseconds; 0 until it is done, or where the hypervisor does not report it."`
	Options        MoveOptions   `json:"options" doc:"How the hypervisor is to move it."`
	OpenedAt       time.Time     `json:"openedAt" doc:"When it was decided."`
	EndedAt        time.Time     `json:"endedAt,omitzero" doc:"When it ended; left out while it goes on."`
	Progress       *MoveProgress `json:"progress,omitempty" doc:"How far it is, while it runs and its host reports it."`
	ModifyIndex    uint64        `json:"modifyIndex" doc:"Log index of its last change; its ETag, in quotes."`
}

// Ended says whether it is over.
func (m Migration) Ended() bool { return m.State != "running" }

// MoveOptions are how a migration is carried out.
type MoveOptions struct {
	Bandwidth    Size   `json:"bandwidth" doc:"Most bytes per second that it may send; 0: no limit."`
	AutoConverge bool   `json:"autoConverge" doc:"The guest is slowed down where it changes memory faster than it can be sent."`
	PostCopy     bool   `json:"postCopy" doc:"The guest may be handed over before all its memory is there, if what is left fits the budget."`
	CopyStorage  bool   `json:"copyStorage" doc:"Its disks are sent too, for they lie on no shared storage."`
	Deadline     string `json:"deadline,omitempty" doc:"Time after which it is aborted, as a Go duration; left out: none." example:"10m"`
}

// MoveProgress is what the source's hypervisor last said of a migration.
type MoveProgress struct {
	Bytes     Size    `json:"bytes" doc:"Bytes sent so far."`
	Remaining Size    `json:"remaining" doc:"Bytes left to send, as far as is known now."`
	Rate      float64 `json:"rate" doc:"Bytes sent per second."`
	Dirty     float64 `json:"dirty" doc:"Bytes per second that the guest changes and that have to be sent again."`
	Since     float64 `json:"since" doc:"Seconds since it began."`
	ETA       float64 `json:"eta" doc:"Seconds until it ends at these rates; below 0: not at these rates, or not known."`
	PostCopy  bool    `json:"postCopy" doc:"The guest runs on the target already, and its memory follows."`
	Text      string  `json:"text,omitempty" doc:"What goes on, in words."`
}

// PlanResult is the answer to what makes a plan or puts it in force.
type PlanResult struct {
	Plan      Plan        `json:"plan" doc:"The plan."`
	Operation *Operation  `json:"operation,omitempty" doc:"What to wait on; left out in a dry run, and where nothing moves."`
	DryRun    bool        `json:"dryRun" doc:"Nothing was changed."`
	Replayed  bool        `json:"replayed" doc:"The answer to an idempotency key that was used before."`
	Hosts     []HostYield `json:"hosts,omitempty" doc:"Of the move of one VM: its source, then its target."`
}

// HostYield is the least yield of the VMs of a host before and after a move.
type HostYield struct {
	Host        string  `json:"host" doc:"Name of the host."`
	YieldBefore float64 `json:"yieldBefore" doc:"Least yield of the VMs there before; 1 where there are none."`
	YieldAfter  float64 `json:"yieldAfter" doc:"Least yield of the VMs there afterwards, as predicted."`
}

// MigrateRequest asks for the move of one VM that runs.
type MigrateRequest struct {
	To       string `json:"to,omitempty" maxLength:"63" doc:"Name of the host that it is to go to. Left out: the one with which the minimum yield is greatest; of equal ones that of the setting placement."`
	MaxBytes *Bound `json:"maxBytes,omitempty" doc:"Most bytes that the move may send: bytes, a size with a unit, or \"unlimited\". Left out: unlimited."`
	Reason   string `json:"reason,omitempty" maxLength:"500" doc:"Why, shown with the plan."`
}

// CurvePoint is the best that some bytes can buy.
type CurvePoint struct {
	Bytes    Size    `json:"bytes" doc:"Bytes that moves send."`
	MinYield float64 `json:"minYield" doc:"Greatest least yield of the cluster that so many bytes reach."`
}

// Blocker is a VM that blocks the drain of a host.
type Blocker struct {
	VM             string   `json:"vm" doc:"Name of the VM."`
	VirtualCluster string   `json:"virtualCluster" doc:"Name of its virtual cluster."`
	Why            string   `json:"why" doc:"What keeps it on its host."`
	Advice         []string `json:"advice" nullable:"false" doc:"What to do about it."`
	Proved         bool     `json:"proved" doc:"No order of moves lets it leave beside those that do: that is proved. If not, none was found."`
}

// Drain is how far the drain of a host is.
type Drain struct {
	Host        string    `json:"host" doc:"Name of the host."`
	State       string    `json:"state" enum:"none,draining,drained,blocked,stopped" doc:"none: no drain was requested. draining: VMs leave it. drained: its hypervisor says that none of ours is left. blocked: the VMs that are left cannot leave. stopped: nothing leaves it any more, though it is not empty."`
	Reason      string    `json:"reason,omitempty" doc:"The operator's reason."`
	By          string    `json:"by,omitempty" doc:"Who asked for it."`
	Text        string    `json:"text,omitempty" doc:"How far it is, in words; where it ended, why."`
	Since       time.Time `json:"since,omitzero" doc:"When it began."`
	Deadline    time.Time `json:"deadline,omitzero" doc:"When no further move begins; left out: never."`
	OnBlocked   string    `json:"onBlocked,omitempty" enum:"stop,skip,shutdown" doc:"What becomes of VMs that cannot move: the drain is refused, they stay, or they are shut down."`
	BytesBudget *Size     `json:"bytesBudget,omitempty" doc:"Most bytes that its moves may send; left out: no bound."`
	BytesMoved  Size      `json:"bytesMoved" doc:"Bytes that its moves have sent."`
	Plan        string    `json:"plan,omitempty" doc:"Id of the plan that empties it."`
	VMs         []DrainVM `json:"vms,omitempty" doc:"Of a drain that is under way or ended: each of its VMs."`
}

// Ended says whether nothing more leaves the host.
func (d Drain) Ended() bool { return d.State != "draining" }

// DrainVM is a VM of a host that is drained.
type DrainVM struct {
	VM             string  `json:"vm" doc:"Name of the VM."`
	VirtualCluster string  `json:"virtualCluster" doc:"Name of its virtual cluster."`
	State          string  `json:"state" doc:"waiting, preparing, moving, done, failed, skipped, stays (no move of it is planned), stopping, starting, or comes (on its way to this host)."`
	To             string  `json:"to,omitempty" doc:"Name of the host that it goes to."`
	Migration      string  `json:"migration,omitempty" doc:"Id of its migration, once it began."`
	Bytes          Size    `json:"bytes" doc:"Bytes that its move is predicted to send."`
	BytesMoved     Size    `json:"bytesMoved" doc:"Bytes that it has sent."`
	Rate           float64 `json:"rate" doc:"Bytes sent per second, while it moves."`
	ETA            float64 `json:"eta" doc:"Seconds until its move ends; below 0: not known."`
	Text           string  `json:"text,omitempty" doc:"What it waits for, or what became of it."`
}

// DrainResult is the answer to a request to empty a host.
type DrainResult struct {
	Host      string     `json:"host" doc:"Name of the host."`
	Plan      *Plan      `json:"plan,omitempty" doc:"The moves that empty it; left out where it is empty."`
	Blockers  []Blocker  `json:"blockers" nullable:"false" doc:"VMs that cannot move, and what to do about each."`
	Operation *Operation `json:"operation,omitempty" doc:"What to wait on; left out in a dry run."`
	DryRun    bool       `json:"dryRun" doc:"Nothing was changed."`
	Replayed  bool       `json:"replayed" doc:"The answer to an idempotency key that was used before."`
}

// HostEmpty is whether a host runs any VM of this cluster, as its hypervisor reports.
type HostEmpty struct {
	Host      string    `json:"host" doc:"Name of the host."`
	Empty     bool      `json:"empty" doc:"The hypervisor said that it runs no VM of this cluster, and none is on its way there."`
	VMs       []string  `json:"vms" nullable:"false" doc:"Names of those that it runs, or may run."`
	Unmanaged []string  `json:"unmanaged" nullable:"false" doc:"VMs that carry this cluster's mark and are unknown to it."`
	At        time.Time `json:"at,omitzero" doc:"When the hypervisor said so; left out: it has not said."`
}

// DrainBatches are all hosts without a drain, in batches that can be empty at the same time.
type DrainBatches struct {
	Items   []DrainBatch  `json:"items" nullable:"false" doc:"In turn: once a group's hosts have VMs again, the next one can be emptied."`
	Blocked []BlockedHost `json:"blocked" nullable:"false" doc:"Hosts that cannot be emptied as things are."`
}

// DrainBatch is a set of hosts that can be empty at the same time.
type DrainBatch struct {
	Hosts    []string `json:"hosts" nullable:"false" doc:"By name."`
	Bytes    Size     `json:"bytes" doc:"Bytes that it is predicted to take."`
	MinYield float64  `json:"minYield" doc:"Least yield of the cluster while they are empty."`
}

// BlockedHost is a host that cannot be drained at present.
type BlockedHost struct {
	Host     string    `json:"host" doc:"Name of the host."`
	Why      string    `json:"why" doc:"What is in the way."`
	Blockers []Blocker `json:"blockers" nullable:"false" doc:"Its VMs that cannot leave it, where it is they that are in the way."`
}

// SimulateResult is what the simulated cluster would be like.
type SimulateResult struct {
	MinYieldBefore     float64    `json:"minYieldBefore" doc:"Least yield of the cluster as it is."`
	MinYieldAfter      float64    `json:"minYieldAfter" doc:"Least yield as it would be, after the best moves within the bytes."`
	AverageYieldBefore float64    `json:"averageYieldBefore" doc:"Mean yield of the virtual clusters before."`
	AverageYieldAfter  float64    `json:"averageYieldAfter" doc:"Mean yield of the virtual clusters after, as predicted."`
	Bytes              Size       `json:"bytes" doc:"Bytes that the moves would send."`
	Refused            []string   `json:"refused" nullable:"false" doc:"Virtual clusters that would not be admitted, or not get what they were promised, each with why."`
	Unplaced           []Unplaced `json:"unplaced" nullable:"false" doc:"VMs that would have no host."`
	Plan               Plan       `json:"plan" doc:"The moves that would lead there. It is not kept and cannot be applied."`
}

// Unplaced is a VM without a host.
type Unplaced struct {
	VM             string `json:"vm" doc:"Name of the VM."`
	VirtualCluster string `json:"virtualCluster" doc:"Name of its virtual cluster."`
	Why            string `json:"why,omitempty" doc:"What is in the way."`
}

// FailoverRow says whether all VMs still fit without one host.
type FailoverRow struct {
	Host     string   `json:"host" doc:"The host that is thought away."`
	Fits     bool     `json:"fits" doc:"All its VMs find another host."`
	MinYield float64  `json:"minYield" doc:"Least yield of the cluster then; 0 where not everything fits."`
	Unplaced []string `json:"unplaced" nullable:"false" doc:"VMs without a host then, by name."`
	Text     string   `json:"text" doc:"The same in words."`
}
