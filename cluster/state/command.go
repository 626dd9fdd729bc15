package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Kind names a command in the log. Kinds are append-only: a retired one stays
// here, marked so, and its name is never used again.
type Kind string

// Kinds of commands, by what they change.
const (
	KindInit       Kind = "cluster-init"
	KindHostReport Kind = "host-report"
	KindHostCordon Kind = "host-cordon"
	KindPlan       Kind = "plan"
	KindVMReport   Kind = "vm-report"
	KindImagePut   Kind = "image-put"
	KindImageDrop  Kind = "image-drop"

	KindMemberPut   Kind = "member-put"
	KindMemberDrop  Kind = "member-drop"
	KindTokenPut    Kind = "join-token-put"
	KindJoin        Kind = "join"
	KindCertificate Kind = "certificate"
	KindFencing     Kind = "host-fencing"
	KindHostLost    Kind = "host-lost"
	KindInventory   Kind = "host-inventory"
	KindSetFencing  Kind = "set-fencing"
	KindMove        Kind = "move"
	KindAudit       Kind = "audit"
	KindAdminToken  Kind = "admin-token" // a token of the API, of any role

	KindSettings        Kind = "settings"
	KindMovePlan        Kind = "move-plan"
	KindMigrationReport Kind = "migration-report"
	KindMigrationAbort  Kind = "migration-abort"
	KindDrain           Kind = "drain"
	KindRightsize       Kind = "rightsize"

	KindRightsizingReport Kind = "rightsizing-report"
	KindRestore           Kind = "restore"

	KindTokenDrop  Kind = "token-drop"
	KindTokensUsed Kind = "tokens-used"

	KindTenantPut  Kind = "tenant-put"
	KindTenantDrop Kind = "tenant-drop"

	KindVMReset       Kind = "vm-reset"
	KindRolePut       Kind = "role-put"
	KindRoleDrop      Kind = "role-drop"
	KindSubjectRevoke Kind = "subject-revoke"

	KindRunUsage Kind = "run-usage"
	KindPeriodic Kind = "periodic"
	KindAgenda   Kind = "agenda"

	KindReprovision Kind = "reprovision"
)

// FormatVersion is the version of the format of the log and of snapshots that this code writes. It reads all versions
// from 1 to this one. docs/decisions/0002 says how a version is added.
const FormatVersion = 2

// format is what programs of one version know of commands.
type format struct {
	newest int // version
	kinds  map[Kind]kind
}

// kind is what a program knows of one kind of commands.
type kind struct {
	since int        // the version that brought it; 0 is version 1
	new   func() any // an empty body
	apply func(w *writer, body any) error
}

// of is a kind of commands that came with version 1; apply applies the body of one.
func of[T any](apply func(*writer, *T) error) kind {
	return kind{new: func() any { return new(T) }, apply: func(w *writer, body any) error { return apply(w, body.(*T)) }}
}

// from is a kind that came with a later version.
func from[T any](version int, apply func(*writer, *T) error) kind {
	k := of(apply)
	k.since = version
	return k
}

// present is the format of this program.
var present = format{FormatVersion, map[Kind]kind{
	KindInit:              of((*writer).init),
	KindHostReport:        of((*writer).hostReport),
	KindHostCordon:        of((*writer).hostCordon),
	KindPlan:              of((*writer).plan),
	KindVMReport:          of((*writer).vmReport),
	KindImagePut:          of((*writer).imagePut),
	KindImageDrop:         of((*writer).imageDrop),
	KindMemberPut:         of((*writer).memberPut),
	KindMemberDrop:        of((*writer).memberDrop),
	KindTokenPut:          of((*writer).tokenPut),
	KindJoin:              of((*writer).join),
	KindCertificate:       of((*writer).certificate),
	KindFencing:           of((*writer).fencing),
	KindHostLost:          of((*writer).hostLost),
	KindInventory:         of((*writer).inventory),
	KindSetFencing:        of((*writer).setFencing),
	KindMove:              of((*writer).move),
	KindAudit:             of((*writer).audit),
	KindAdminToken:        of((*writer).apiTokenPut),
	KindSettings:          of((*writer).settings),
	KindMovePlan:          of((*writer).movePlanPut),
	KindMigrationReport:   of((*writer).migrationReport),
	KindMigrationAbort:    of((*writer).migrationAbort),
	KindDrain:             of((*writer).drain),
	KindRightsize:         of((*writer).rightsize),
	KindRightsizingReport: of((*writer).rightsizingReport),
	KindRestore:           of((*writer).restore),
	KindTokenDrop:         of((*writer).apiTokenDrop),
	KindTokensUsed:        of((*writer).tokensUsed),
	KindTenantPut:         from(tenantsSince, (*writer).tenantPut),
	KindTenantDrop:        from(tenantsSince, (*writer).tenantDrop),
	KindVMReset:           from(vmOrdersSince, (*writer).vmReset),
	KindRolePut:           from(tenantsSince, (*writer).rolePut),
	KindRoleDrop:          from(tenantsSince, (*writer).roleDrop),
	KindSubjectRevoke:     from(tenantsSince, (*writer).subjectRevoke),
	KindRunUsage:          from(periodicSince, (*writer).runUsage),
	KindPeriodic:          from(periodicSince, (*writer).periodicPut),
	KindAgenda:            from(periodicSince, (*writer).agenda),
	KindReprovision:       from(periodicSince, (*writer).reprovision),
}}

// MaxCommandBytes bounds one command in the log.
const MaxCommandBytes = 16 << 20

// Command is one entry of the log.
type Command struct {
	Version int             `json:"v"`
	Kind    Kind            `json:"kind"`
	At      time.Time       `json:"at"` // the proposer's clock; orders nothing
	Body    json.RawMessage `json:"body"`
}

// Init makes the cluster. The second one is ignored.
type Init struct {
	ID       string   `json:"id"`
	Settings Settings `json:"settings"`
}

// HostReport is a machine as its host's agent reports it. It creates the host or changes its limits.
type HostReport struct {
	Name       string    `json:"name"`
	Capacity   Resources `json:"capacity"`
	Allowance  Resources `json:"allowance"`
	Foreign    Resources `json:"foreign"`
	ForeignVMs int       `json:"foreignVMs"`
	VMOverhead int64     `json:"vmOverhead"`
	KVM        bool      `json:"kvm"`
	Software   string    `json:"software"`
	MigrateURI string    `json:"migrateURI,omitempty"`
}

// HostCordon opens or closes a host for new VMs.
type HostCordon struct {
	Host     string `json:"host"`
	Cordoned bool   `json:"cordoned"`
	Reason   string `json:"reason,omitempty"`
}

// Plan is a change to one VC and to the allocations around it, made on a
// snapshot and checked again when applied.
type Plan struct {
	Basis uint64 `json:"basis"` // log index of the snapshot it was made on
	Verb  string `json:"verb"`  // create, admit, scale, start, stop, delete, reallocate, refuse
	// VC is the new row, nil if only allocations change. VCVersion is the
	// ModifyIndex it must still have, 0 for a VC that must not exist yet.
	VC        *VC    `json:"vc,omitempty"`
	VCVersion uint64 `json:"vcVersion,omitempty"`
	// VMs are rows to insert or replace, whole.
	VMs         []VM         `json:"vms,omitempty"`
	Allocations []Allocation `json:"allocations,omitempty"`
	// AffectedHosts are the hosts whose Version must not be newer than Basis.
	AffectedHosts []string    `json:"affectedHosts,omitempty"`
	Operation     *Operation  `json:"operation,omitempty"`
	Remembered    *Remembered `json:"remembered,omitempty"`
	Text          string      `json:"text,omitempty"` // for the event
	// Version is what users ask of the VC from now on, as they wrote it; nil if that does not change.
	Version *VersionPut `json:"version,omitempty"`
	// Job is the full name of the job that the VC is a run of if it starts to run; "": no run is recorded. Occurrence is the one
	// of the agenda that it is.
	Job        string `json:"job,omitempty"`
	Occurrence string `json:"occurrence,omitempty"`
}

// Allocation gives each VM of a group that many cores.
type Allocation struct {
	VC    string  `json:"vc"` // id
	Group string  `json:"group"`
	CPU   float64 `json:"cpu"`
}

// VMReport is what a host reports of its VMs.
type VMReport struct {
	Host string     `json:"host"`
	VMs  []VMStatus `json:"vms"`
}

// VMStatus is a step of one VM, as its host reports it. SourceLost: the host has nothing of the VM left, disks included. ChargedMemory
// 0 leaves the charged memory as it is.
type VMStatus struct {
	VM         string `json:"vm"`
	Generation uint64 `json:"generation"`
	// Move is Migration.Open of the open move of which the host knew when it listed its VMs; 0: it knew of none. Room: the host is the
	// target and has room for the VM. Permit: the host is the source and asks to hand the VM over. Phase is not set with Room or
	// Permit.
	Move   uint64 `json:"move,omitempty"`
	Room   bool   `json:"room,omitempty"`
	Permit bool   `json:"permit,omitempty"`
	// Resumes, with Room: the agents of both hosts know guests that arrive paused. The target resumes one once its source has reported
	// that it left. Left, by the source with the phase lost: it handed the VM over and has not run it since.
	Resumes       bool   `json:"resumes,omitempty"`
	Left          bool   `json:"left,omitempty"`
	Phase         Phase  `json:"phase"`
	SourceLost    bool   `json:"sourceLost,omitempty"`
	ChargedMemory int64  `json:"chargedMemory,omitempty"` // bytes
	Reason        string `json:"reason,omitempty"`
}

// ImagePut puts an image into the catalogue.
type ImagePut struct {
	Image
	Remembered *Remembered `json:"remembered,omitempty"`
}

// ImageDrop takes an image out of the catalogue.
type ImageDrop struct {
	Name       string      `json:"name"`
	Remembered *Remembered `json:"remembered,omitempty"`
}

// ErrTooNew says that not every member can read such a command yet.
var ErrTooNew = errors.New("not all members run a version that knows this yet: upgrade them first")

// Encode makes a log entry of a command body, in the newest version of the format.
func Encode(kind Kind, at time.Time, body any) ([]byte, error) {
	return present.encode(FormatVersion, kind, at, body)
}

// Encode makes a log entry that every server can read: see Format. The error wraps ErrTooNew if there is no such form.
func (s *Snapshot) Encode(kind Kind, at time.Time, body any) ([]byte, error) {
	return present.encode(s.Format(), kind, at, body)
}

// encode makes a log entry that programs which know that version of the format can read.
func (f format) encode(version int, kind Kind, at time.Time, body any) ([]byte, error) {
	if k, known := f.kinds[kind]; !known || k.since > version || since(body) > version {
		return nil, fmt.Errorf("encode %s command as version %d: %w", kind, version, ErrTooNew)
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode %s command: %w", kind, err)
	}
	when, err := at.UTC().MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encode %s command: %w", kind, err)
	}
	// As json.Marshal writes a Command, without a look at each byte of the body.
	b := make([]byte, 0, len(raw)+len(kind)+len(when)+64)
	b = fmt.Appendf(b, `{"v":%d,"kind":"%s","at":%s,"body":`, version, kind, when)
	b = append(append(b, raw...), '}')
	if len(b) > MaxCommandBytes {
		return nil, fmt.Errorf("encode %s command: %d bytes, more than %d", kind, len(b), MaxCommandBytes)
	}
	return b, nil
}

// Decode reads a log entry. It refuses what this code cannot apply in full: a newer
// format, an unknown kind, an unknown field, trailing bytes.
func Decode(b []byte) (Command, any, error) { return present.decode(b) }

func (f format) decode(b []byte) (Command, any, error) {
	var c Command
	if len(b) > MaxCommandBytes {
		return c, nil, fmt.Errorf("decode command: %d bytes, more than %d", len(b), MaxCommandBytes)
	}
	if c, body, ok := f.decodeEncoded(b); ok {
		return c, body, nil
	}
	return f.decodeAny(b)
}

// decodeAny reads an entry however it is written.
func (f format) decodeAny(b []byte) (c Command, body any, err error) {
	if err := strict(b, &c); err != nil {
		return c, nil, fmt.Errorf("decode command: %w", err)
	}
	if c.Version < 1 || c.Version > f.newest {
		return c, nil, fmt.Errorf("decode command: format version %d, this program knows 1 to %d", c.Version, f.newest)
	}
	k, known := f.kinds[c.Kind]
	if !known || k.since > c.Version {
		return c, nil, fmt.Errorf("decode command: unknown kind %q in version %d", c.Kind, c.Version)
	}
	body = k.new()
	if err := strict(c.Body, body); err != nil {
		return c, nil, fmt.Errorf("decode %s command: %w", c.Kind, err)
	}
	if since(body) > c.Version {
		return c, nil, fmt.Errorf("decode %s command: it has what version %d does not know", c.Kind, c.Version)
	}
	return c, body, nil
}

// since is the version of the format that brought the newest field that is set in a body; 0 is version 1. A body type that got
// fields since then has a method for it.
func since(body any) int {
	if b, ok := body.(interface{ since() int }); ok {
		return b.since()
	}
	return 0
}

// decodeEncoded reads an entry that is written as Encode writes it. It cuts the frame off by hand, so that the body is read
// once and not once more as a part of the whole. false: decodeAny must read the entry.
func (f format) decodeEncoded(b []byte) (c Command, body any, ok bool) {
	rest, ok1 := bytes.CutPrefix(b, []byte(`{"v":`))
	version, rest, ok2 := bytes.Cut(rest, []byte(`,"kind":"`))
	kind, rest, ok3 := bytes.Cut(rest, []byte(`","at":`))
	at, rest, ok4 := bytes.Cut(rest, []byte(`,"body":`))
	rest, ok5 := bytes.CutSuffix(rest, []byte(`}`))
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || len(version) != 1 || version[0] < '1' || version[0] > '9' {
		return c, nil, false
	}
	c.Version, c.Kind, c.Body = int(version[0]-'0'), Kind(kind), rest
	k, known := f.kinds[c.Kind]
	if !known || c.Version > f.newest || k.since > c.Version || json.Unmarshal(at, &c.At) != nil {
		return c, nil, false
	}
	body = k.new()
	return c, body, strict(rest, body) == nil && since(body) <= c.Version
}

func strict(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("bytes left after the end")
	}
	return nil
}
