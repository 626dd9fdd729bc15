package state

import (
	"fmt"
	"time"
)

// Millis is a duration in milliseconds.
type Millis int64

// Duration returns it as a time.Duration.
func (m Millis) Duration() time.Duration { return time.Duration(m) * time.Millisecond }

// MovePlanKind says what a move plan is for.
type MovePlanKind string

// Kinds of move plans.
const (
	MovesRebalance MovePlanKind = "rebalance" // a greater minimum yield
	MovesDrain     MovePlanKind = "drain"     // an empty host
	MovesRoom      MovePlanKind = "room"      // room for a VC that waits
	MovesMemory    MovePlanKind = "memory"    // memory for what the VMs of a host use
	MovesOne       MovePlanKind = "move"      // one VM that a user wants elsewhere
)

// MovePlanState says how far a move plan is.
type MovePlanState string

// States of a move plan. The last four are ends.
const (
	MovesProposed   MovePlanState = "proposed"   // to be looked at; nothing moves before it is applied
	MovesRunning    MovePlanState = "running"    // carried out
	MovesDone       MovePlanState = "done"       // every step ended well, or made no sense any more
	MovesFailed     MovePlanState = "failed"     // moves failed, and planning again did not help
	MovesStopped    MovePlanState = "stopped"    // an operator or the leader stopped it: see Reason
	MovesSuperseded MovePlanState = "superseded" // another plan took its place
)

// Ended says whether a plan in this state is over.
func (s MovePlanState) Ended() bool {
	switch s {
	case MovesDone, MovesFailed, MovesStopped, MovesSuperseded:
		return true
	}
	return false
}

// StepState says how far a step of a move plan is.
type StepState string

// States of a step. The last three are ends.
const (
	StepWaiting   StepState = "waiting"
	StepPreparing StepState = "preparing" // counted on both hosts already, so that shares shrink where they must
	StepMoving    StepState = "moving"
	StepDone      StepState = "done"
	StepFailed    StepState = "failed"
	StepSkipped   StepState = "skipped" // it made no sense any more, or its plan ended before
)

// Ended says whether a step in this state is over.
func (s StepState) Ended() bool { return s == StepDone || s == StepFailed || s == StepSkipped }

func (s StepState) known() bool {
	return s == StepWaiting || s == StepPreparing || s == StepMoving || s.Ended()
}

// MovePlan is an ordered list of live migrations. It is recorded before the first of them begins.
// Many fields: it is one row of the replicated state, in JSON that old logs and snapshots have.
type MovePlan struct {
	ID    string        `json:"id"`
	Kind  MovePlanKind  `json:"kind"`
	State MovePlanState `json:"state"`
	Host  string        `json:"host,omitempty"` // drain: the host to be emptied; memory: the host that is short of it
	VC    string        `json:"vc,omitempty"`   // room: id of the VC that it is made for
	// Occurrence is, of one for room, the id of the occurrence of a job that it is made for, before there is a VC.
	Occurrence string `json:"occurrence,omitempty"`

	By        string    `json:"by,omitempty"`   // the caller, or the part of the leader, that asked
	Text      string    `json:"text,omitempty"` // their reason
	Basis     uint64    `json:"basis"`          // log index of the snapshot it was made on
	CreatedAt time.Time `json:"createdAt"`
	EndedAt   time.Time `json:"endedAt,omitzero"`

	Budget     int64   `json:"budget"`     // most bytes that may be moved; -1 = no bound
	Bytes      int64   `json:"bytes"`      // predicted
	BytesMoved int64   `json:"bytesMoved"` // of migrations that ended, aborted ones included, as the hypervisor counted
	Seconds    float64 `json:"seconds"`    // predicted

	MinYieldBefore     float64 `json:"minYieldBefore"`
	MinYieldAfter      float64 `json:"minYieldAfter"`
	AverageYieldBefore float64 `json:"averageYieldBefore"`
	AverageYieldAfter  float64 `json:"averageYieldAfter"`
	UpperBound         float64 `json:"upperBound"` // no placement gives a greater minimum yield

	Effort int64 `json:"effort"` // deterministic steps given to the planner
	Tries  int   `json:"tries"`  // how often what was left was planned again
	// Failures are the moves that failed and were planned again for.
	Failures int        `json:"failures,omitempty"`
	Reason   string     `json:"reason"` // a text: why this plan, or why none; of one that ended early: why
	Steps    []MoveStep `json:"steps,omitempty"`

	CreateIndex uint64 `json:"createIndex"`
	ModifyIndex uint64 `json:"modifyIndex"`
}

// MoveStep is one move of a plan.
type MoveStep struct {
	VM     string `json:"vm"` // id
	VMName string `json:"vmName"`
	VC     string `json:"vc"` // id
	Group  string `json:"group"`
	From   string `json:"from"`
	To     string `json:"to"`
	After  []int  `json:"after,omitempty"` // steps, by their places in the plan, that must have ended well

	Bytes     int64 `json:"bytes"`     // predicted
	Allotment int64 `json:"allotment"` // most bytes the move may send; -1 = no bound. All of a plan sum to its budget at most
	// CopyStorage: its disks are copied as well; Bytes counts them.
	CopyStorage bool    `json:"copyStorage,omitempty"`
	Staging     bool    `json:"staging,omitempty"` // it waits there, to move on
	Reason      string  `json:"reason"`            // a text
	Begins      float64 `json:"begins"`            // predicted, seconds after the plan began
	Seconds     float64 `json:"seconds"`           // predicted

	State     StepState `json:"state"`
	Since     uint64    `json:"since,omitempty"`     // log index at which it came to its state
	At        time.Time `json:"at,omitzero"`         // and when
	Migration string    `json:"migration,omitempty"` // id, once there is one
	Text      string    `json:"text,omitempty"`      // a text: its outcome
}

// MigrationState says how far a migration is.
type MigrationState string

// States of a migration. All but the first are ends.
const (
	MigrationRunning MigrationState = "running"
	MigrationDone    MigrationState = "done"
	MigrationFailed  MigrationState = "failed"
	MigrationAborted MigrationState = "aborted"
)

// Migration is one move, from its intent on. Its progress is not stored: the source's agent reports it.
// Many fields: it is one row of the replicated state, in JSON that old logs and snapshots have.
type Migration struct {
	ID         string         `json:"id"`
	VM         string         `json:"vm"` // id
	VMName     string         `json:"vmName"`
	VC         string         `json:"vc"` // id
	Generation uint64         `json:"generation"`
	From       string         `json:"from"`
	To         string         `json:"to"`
	Plan       string         `json:"plan,omitempty"`
	Step       int            `json:"step"` // of that plan
	State      MigrationState `json:"state"`

	Bytes      int64 `json:"bytes"`      // predicted
	MaxBytes   int64 `json:"maxBytes"`   // its allotment; -1 = no bound
	BytesMoved int64 `json:"bytesMoved"` // by the source's last report
	DowntimeMs int64 `json:"downtimeMs"`
	// Reported: the source reported how many bytes it sent in all. Until then the move may have sent its whole allotment.
	Reported bool `json:"reported,omitempty"`

	// Ready: the target has room for the VM and keeps it. Only then the source hands over.
	Ready bool `json:"ready,omitempty"`
	// Permit is the log index of the last permit to hand the VM over that the source was given. The source's report that the VM
	// stayed counts only if it names this permit: an attempt begins with one.
	Permit uint64 `json:"permit,omitempty"`
	// Paused: the guest arrives paused, as its target reports (VMStatus.Resumes).
	Paused bool `json:"paused,omitempty"`
	// Left is the log index at which the source reported that it handed the VM over and that it did not run there since; 0: it did
	// not. Only then the target resumes a guest that arrives paused.
	Left uint64 `json:"left,omitempty"`
	// SourceLost is the log index at which the source was proved to run the VM no more; 0: it was not. Only then the target can be.
	SourceLost uint64 `json:"sourceLost,omitempty"`

	Reason  string      `json:"reason,omitempty"` // why it moves
	Error   string      `json:"error,omitempty"`  // why it failed
	Abort   string      `json:"abort,omitempty"`  // why it is to be aborted; "" = it is not
	Options MoveOptions `json:"options,omitzero"`

	OpenedAt    time.Time `json:"openedAt"`
	EndedAt     time.Time `json:"endedAt,omitzero"`
	Open        uint64    `json:"open"` // log index of the intent: the move's identity towards agents
	ModifyIndex uint64    `json:"modifyIndex"`
}

// MoveOptions say how a VM is moved.
type MoveOptions struct {
	Bandwidth    int64  `json:"bandwidth,omitempty"`    // most bytes per second; 0 = no limit
	AutoConverge bool   `json:"autoConverge,omitempty"` // slow the guest down where it changes memory faster than it is sent
	PostCopy     bool   `json:"postCopy,omitempty"`     // let it run on the target before all memory is there
	CopyStorage  bool   `json:"copyStorage,omitempty"`
	Deadline     Millis `json:"deadline,omitempty"` // the source gives up after that; 0 = never
}

// DrainState says how far the drain of a host is.
type DrainState string

// States of a drain.
const (
	DrainRunning DrainState = "draining"
	DrainDone    DrainState = "drained" // its hypervisor lists none of this cluster's VMs
	DrainBlocked DrainState = "blocked" // some VMs cannot leave: see Text
	DrainStopped DrainState = "stopped"
)

// Drain is the drain of a host. The zero value is none. A host with a drain takes no new VMs.
type Drain struct {
	State     DrainState `json:"state,omitempty"`
	Since     time.Time  `json:"since,omitzero"`
	Deadline  time.Time  `json:"deadline,omitzero"`   // zero: none
	MaxBytes  int64      `json:"maxBytes,omitempty"`  // -1 = no bound
	OnBlocked string     `json:"onBlocked,omitempty"` // stop, skip, shutdown: what to do about VMs that cannot leave
	By        string     `json:"by,omitempty"`
	Reason    string     `json:"reason,omitempty"`
	Text      string     `json:"text,omitempty"`  // a text: its progress
	Plan      string     `json:"plan,omitempty"`  // its move plan
	Moved     int64      `json:"moved,omitempty"` // bytes, of plans before that one
	Index     uint64     `json:"index,omitempty"` // log index of its last change
	Begun     uint64     `json:"begun,omitempty"` // log index of its beginning: plans made since are of it
	// KeepsCordon: an operator has cordoned the host, too. It stays cordoned when the drain is taken back.
	KeepsCordon bool `json:"keepsCordon,omitempty"`
}

// keepsCordonSince is the version of the format that brought Drain.KeepsCordon, and slotMovesSince the one that brought
// MovePlan.Occurrence, and hosts of occurrences to which their room comes by moves.
const (
	keepsCordonSince = 2
	slotMovesSince   = 2
)

// MovesForSlots says whether all servers know plans that make room for occurrences.
func (s *Snapshot) MovesForSlots() bool { return s.readable(FormatVersion) >= slotMovesSince }

func (b *MovePlanPut) since() int {
	if b.Plan.Occurrence != "" {
		return slotMovesSince
	}
	return 0
}

func (b *HostDrain) since() int {
	if b.Drain.KeepsCordon {
		return keepsCordonSince
	}
	return 0
}

// MoveMode says who decides on moves that no operator asked for.
type MoveMode string

// Modes of re-balancing.
const (
	MovesAuto    MoveMode = "auto"    // plans that are worth it are carried out
	MovesPropose MoveMode = "propose" // they are put forward, and wait to be applied
	MovesOff     MoveMode = "off"
)

// MoveSettings say when VMs move and how. A zero field stands for its default: see WithDefaults.
type MoveSettings struct {
	Mode                MoveMode `json:"mode,omitempty"`
	Period              Millis   `json:"period,omitempty"`              // between two looks
	MinResidency        Millis   `json:"minResidency,omitempty"`        // for this long a VM that moved is not moved again
	CoolDown            Millis   `json:"coolDown,omitempty"`            // after a plan ended, until the next
	StabilizationWindow Millis   `json:"stabilizationWindow,omitempty"` // for this long a gain must have been there
	MinGain             float64  `json:"minGain,omitempty"`             // of the minimum yield, relative
	IdleBelow           float64  `json:"idleBelow,omitempty"`           // need of CPU over what hosts have, 0 to 1, below which no re-balance is planned; 0 = any
	MaxBytes            int64    `json:"maxBytes,omitempty"`            // of one plan; 0 = bandwidth x period
	PerHost             int      `json:"perHost,omitempty"`             // most moves at once that one host takes part in
	Total               int      `json:"total,omitempty"`               // most moves at once; 0 = see Concurrent
	Bandwidth           int64    `json:"bandwidth,omitempty"`           // bytes per second of one move; 0 = no limit, see Link

	AutoConverge bool   `json:"autoConverge,omitempty"`
	PostCopy     bool   `json:"postCopy,omitempty"`
	CopyStorage  bool   `json:"copyStorage,omitempty"` // VMs whose disks lie on one host move with them
	Deadline     Millis `json:"deadline,omitempty"`    // of one move
	OnJoin       bool   `json:"onJoin,omitempty"`      // look also when a host joins or returns
}

// Defaults of MoveSettings.
const (
	defaultPeriod              = Millis(10 * 60_000)
	defaultMinResidency        = Millis(10 * 60_000)
	defaultCoolDown            = Millis(30 * 60_000)
	defaultStabilizationWindow = Millis(60_000)
	defaultDeadline            = Millis(30 * 60_000)
	defaultMinGain             = 0.1
	defaultPerHost             = 2
	defaultTotal               = 8
	defaultLink                = 125_000_000 // 1 Gbit/s, bytes per second
)

// WithDefaults fills in what is not set, except Total, Bandwidth and MaxBytes (see Concurrent, Link and Budget), and IdleBelow.
func (m MoveSettings) WithDefaults() MoveSettings {
	set(&m.Mode, MovesAuto)
	set(&m.Period, defaultPeriod)
	set(&m.MinResidency, defaultMinResidency)
	set(&m.CoolDown, defaultCoolDown)
	set(&m.StabilizationWindow, defaultStabilizationWindow)
	set(&m.MinGain, defaultMinGain)
	set(&m.PerHost, defaultPerHost)
	set(&m.Deadline, defaultDeadline)
	return m
}

func set[T comparable](field *T, to T) {
	var zero T
	if *field == zero {
		*field = to
	}
}

// Concurrent returns how many moves may run at once in a cluster of that many hosts: Total if it is set, else the larger of 8
// and a move per four hosts.
func (m MoveSettings) Concurrent(hosts int) int {
	if m.Total > 0 {
		return m.Total
	}
	return max(defaultTotal, hosts/4)
}

// Link is the speed of one move on which predictions rest, bytes per second.
func (m MoveSettings) Link() int64 {
	if m.Bandwidth > 0 {
		return m.Bandwidth
	}
	return defaultLink
}

// Budget is the most bytes of a plan for which no bound was given: MaxBytes, or what one move could send in a period.
func (m MoveSettings) Budget() int64 {
	if m.MaxBytes > 0 {
		return m.MaxBytes
	}
	set(&m.Period, defaultPeriod)
	return m.Link() / 1000 * int64(m.Period)
}

// MovePlans returns the move plans in order of their ids, that is of their age.
func (s *Snapshot) MovePlans() []MovePlan { return all[MovePlan](s, tMovePlans, "id") }

// MovePlan returns the move plan of that id.
func (s *Snapshot) MovePlan(id string) (MovePlan, bool) {
	return first[MovePlan](s, tMovePlans, "id", id)
}

// RunningMovePlans returns the running move plans in order of their ids.
func (s *Snapshot) RunningMovePlans() []MovePlan {
	var out []MovePlan
	each(s, func(p *MovePlan) bool {
		if p.State == MovesRunning {
			out = append(out, *p)
		}
		return true
	}, tMovePlans, "id")
	return out
}

// Migrations returns the migrations in order of their ids, that is of their age.
func (s *Snapshot) Migrations() []Migration { return all[Migration](s, tMigrations, "id") }

// Migration returns the migration of that id.
func (s *Snapshot) Migration(id string) (Migration, bool) {
	return first[Migration](s, tMigrations, "id", id)
}

// VMsMovingTo returns the VMs that an open move takes to that host.
func (s *Snapshot) VMsMovingTo(host string) []VM { return all[VM](s, tVMs, "movingTo", host) }

// MigrationsOf returns the migrations of a move plan.
func (s *Snapshot) MigrationsOf(plan string) []Migration {
	return all[Migration](s, tMigrations, "plan", plan)
}

// MigrationOf returns the running migration of a VM. There is one exactly while VM.MovingTo is set.
func (s *Snapshot) MigrationOf(vm string) (Migration, bool) {
	return first[Migration](s, tMigrations, "running", vm)
}

// SourceLost says whether a VM that moves is proved not to run on its host any more. Of a VM without a running migration nothing
// is proved.
func (s *Snapshot) SourceLost(vm *VM) bool {
	if vm.MovingTo == "" {
		return false
	}
	m, _ := s.MigrationOf(vm.ID)
	return m.SourceLost > 0
}

// MigrationOpened returns a VM's migration that was opened at that log index.
func (s *Snapshot) MigrationOpened(vm string, open uint64) (Migration, bool) {
	for _, m := range all[Migration](s, tMigrations, "vm", vm) {
		if m.Open == open {
			return m, true
		}
	}
	return Migration{}, false
}

// Preparing returns the steps of running plans that are charged to both hosts although they have not begun: VM ids to targets.
func (s *Snapshot) Preparing() map[string]string {
	var out map[string]string
	each(s, func(p *MovePlan) bool {
		if p.State != MovesRunning {
			return true
		}
		for i := range p.Steps {
			if p.Steps[i].State == StepPreparing {
				if out == nil {
					out = map[string]string{}
				}
				out[p.Steps[i].VM] = p.Steps[i].To
			}
		}
		return true
	}, tMovePlans, "id")
	return out
}

// moveProgress is the progress of an operation that moves VMs: the drain of a host, or a plan of its own.
func (s *Snapshot) moveProgress(op Operation) Progress {
	if op.Host != "" {
		return s.drainProgress(op)
	}
	p, ok := s.MovePlan(op.MovePlan)
	if !ok {
		return Progress{State: OpSuperseded, Text: "nothing is known of its plan any more"}
	}
	return p.Progress()
}

// Progress returns the progress of a plan: the steps that are over of all its steps.
func (p MovePlan) Progress() Progress {
	done, failed := 0, 0
	for i := range p.Steps {
		switch p.Steps[i].State {
		case StepDone:
			done++
		case StepFailed:
			failed++
		}
	}
	out := Progress{State: OpPending, Done: done, Total: len(p.Steps), Text: fmt.Sprintf("%d of %d moves done", done, len(p.Steps))}
	if failed > 0 {
		out.Text += fmt.Sprintf(", %d failed", failed)
	}
	switch p.State {
	case MovesDone:
		out.State = OpDone
		if len(p.Steps) == 0 {
			out.Text = p.Reason
		}
	case MovesFailed, MovesStopped:
		out.State, out.Text = OpFailed, out.Text+": "+p.Reason
	case MovesSuperseded:
		out.State, out.Text = OpSuperseded, out.Text+": "+p.Reason
	}
	return out
}

// drainProgress counts the VMs that have left the host since the drain began; those that are still there are what is left.
func (s *Snapshot) drainProgress(op Operation) Progress {
	h, ok := s.Host(op.Host)
	if !ok {
		return Progress{State: OpSuperseded, Text: "the host left the cluster"}
	}
	left := 0
	s.eachVM("host", h.Name, func(vm *VM) bool {
		if vm.ConsumesResources() {
			left++
		}
		return true
	})
	out := Progress{State: OpPending, Total: left, Text: VMs(left) + " left"}
	if p, ok := s.MovePlan(h.Drain.Plan); ok && h.Drain.Plan != "" {
		out.Done = p.Progress().Done
		out.Total += out.Done
	}
	switch h.Drain.State {
	case "":
		out.State, out.Text = OpSuperseded, "the drain was taken back"
	case DrainDone:
		out.State, out.Text = OpDone, "the host is empty"
	case DrainBlocked, DrainStopped:
		out.State, out.Text = OpFailed, fmt.Sprintf("%s with %s left: %s", h.Drain.State, VMs(left), h.Drain.Text)
	}
	return out
}
