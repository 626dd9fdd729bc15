package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
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

	// Since version 2.
	KindMemberPut   Kind = "member-put"
	KindMemberDrop  Kind = "member-drop"
	KindTokenPut    Kind = "join-token-put"
	KindJoin        Kind = "join"
	KindCertificate Kind = "certificate"
	KindFencing     Kind = "host-fencing"
	KindHostLost    Kind = "host-lost"
	KindAccount     Kind = "host-account"
	KindArm         Kind = "arm"
	KindMove        Kind = "move"
	KindAudit       Kind = "audit"
	KindAdminToken  Kind = "admin-token" // a token of the API, of any role since version 5

	// Since version 3, which also told moves more of themselves.
	KindSettings       Kind = "settings"
	KindMovePlan       Kind = "move-plan"
	KindMigrationTold  Kind = "migration-told"
	KindMigrationAbort Kind = "migration-abort"
	KindDrain          Kind = "drain"
	KindShape          Kind = "shape"

	// Since version 4.
	KindShapingTold Kind = "shaping-told"
	KindRestore     Kind = "restore"

	// Since version 5, which also gave tokens names, roles and ends.
	KindTokenDrop  Kind = "token-drop"
	KindTokensUsed Kind = "tokens-used"
)

// kinds of commands: what their body is, and the version of the format that brought them.
var kinds = map[Kind]struct {
	since int
	body  func() any
}{
	KindInit:        {1, func() any { return new(Init) }},
	KindHostReport:  {1, func() any { return new(HostReport) }},
	KindHostCordon:  {1, func() any { return new(HostCordon) }},
	KindPlan:        {1, func() any { return new(Plan) }},
	KindVMReport:    {1, func() any { return new(VMReport) }},
	KindImagePut:    {1, func() any { return new(ImagePut) }},
	KindImageDrop:   {1, func() any { return new(ImageDrop) }},
	KindMemberPut:   {2, func() any { return new(Member) }},
	KindMemberDrop:  {2, func() any { return new(MemberDrop) }},
	KindTokenPut:    {2, func() any { return new(JoinToken) }},
	KindJoin:        {2, func() any { return new(Join) }},
	KindCertificate: {2, func() any { return new(Certificate) }},
	KindFencing:     {2, func() any { return new(HostFencing) }},
	KindHostLost:    {2, func() any { return new(HostLost) }},
	KindAccount:     {2, func() any { return new(Account) }},
	KindArm:         {2, func() any { return new(Arm) }},
	KindMove:        {2, func() any { return new(Move) }},
	KindAudit:       {2, func() any { return new(Audit) }},
	KindAdminToken:  {2, func() any { return new(Token) }},

	KindSettings:       {3, func() any { return new(SettingsPut) }},
	KindMovePlan:       {3, func() any { return new(MovePlanPut) }},
	KindMigrationTold:  {3, func() any { return new(MigrationTold) }},
	KindMigrationAbort: {3, func() any { return new(MigrationAbort) }},
	KindDrain:          {3, func() any { return new(HostDrain) }},
	KindShape:          {3, func() any { return new(Shape) }},

	KindShapingTold: {4, func() any { return new(ShapingTold) }},
	KindRestore:     {4, func() any { return new(Restore) }},

	KindTokenDrop:  {5, func() any { return new(TokenDrop) }},
	KindTokensUsed: {5, func() any { return new(TokensUsed) }},
}

// Kinds that a version of the format knows, in order of their names.
func Kinds(version int) []Kind {
	var out []Kind
	for kind, k := range kinds {
		if k.since <= version {
			out = append(out, kind)
		}
	}
	slices.Sort(out)
	return out
}

// FormatVersion is the version of the command format that this code writes. Version 3 numbers moves; 4 keeps what
// shaping did, and restores by the log; 5 gives tokens of the API roles and ends, and revokes them.
// It reads every version from 1 on, for ever: testdata/log-v1.jsonl is a log of version 1.
const FormatVersion = 5

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

// HostReport is what a host's agent says the machine is. It creates the host
// or changes its limits.
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
	// Touched are the hosts whose Version must not be newer than Basis.
	Touched    []string    `json:"touched,omitempty"`
	Operation  *Operation  `json:"operation,omitempty"`
	Remembered *Remembered `json:"remembered,omitempty"`
	Text       string      `json:"text,omitempty"` // for the event
}

// Allocation gives each VM of a group so many cores.
type Allocation struct {
	VC    string  `json:"vc"` // id
	Group string  `json:"group"`
	CPU   float64 `json:"cpu"`
}

// VMReport is what a host says has become of its VMs.
type VMReport struct {
	Host string     `json:"host"`
	VMs  []VMStatus `json:"vms"`
}

// VMStatus is a step of one VM, by the word of its host. Gone: nothing of it
// is left there, disks included. Held 0 leaves the memory held as it is.
type VMStatus struct {
	VM         string `json:"vm"`
	Generation uint64 `json:"generation"`
	// Since version 3: Move is VM.Move of the open move as the host knew of it when it looked, 0 if it knew of none.
	// Room: the host is its target, and has room for the VM. Permit: it is its source, and asks to hand the VM over.
	// Phase is not set with either.
	Move   uint64 `json:"move,omitempty"`
	Room   bool   `json:"room,omitempty"`
	Permit bool   `json:"permit,omitempty"`
	// Since version 5: Resumes, with Room: the host has a guest that arrives paused go on once its source has said that it left.
	// Left, with the phase lost, by the source: it handed the VM over, and did not run it since.
	Resumes bool   `json:"resumes,omitempty"`
	Left    bool   `json:"left,omitempty"`
	Phase   Phase  `json:"phase"`
	Gone    bool   `json:"gone,omitempty"`
	Held    int64  `json:"held,omitempty"` // bytes
	Reason  string `json:"reason,omitempty"`
}

func (b VMReport) since() int {
	if slices.ContainsFunc(b.VMs, func(st VMStatus) bool { return st.Resumes || st.Left }) {
		return 5
	}
	return 0
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

// ErrTooNew: not every member can read such a command yet.
var ErrTooNew = errors.New("not all members run a version that knows this yet: upgrade them first")

// Encode makes a log entry of a command body, in the newest version of the format.
func Encode(kind Kind, at time.Time, body any) ([]byte, error) {
	return EncodeAs(FormatVersion, kind, at, body)
}

// EncodeAs makes a log entry that programs which know that version of the format can read,
// for a cluster whose members are upgraded one after the other: see Snapshot.Format.
func EncodeAs(version int, kind Kind, at time.Time, body any) ([]byte, error) {
	if k, known := kinds[kind]; !known || k.since > version {
		return nil, fmt.Errorf("encode %s command as version %d: %w", kind, version, ErrTooNew)
	}
	if newer(body, version) {
		return nil, fmt.Errorf("encode %s command as version %d: %w", kind, version, ErrTooNew)
	}
	if version < 3 {
		body = unnumbered(body)
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

// unnumbered is a command without what version 3 brought.
func unnumbered(body any) any {
	switch b := body.(type) {
	case Move:
		b.Move, b.Permit = 0, 0
		return b
	case *Move:
		return unnumbered(*b)
	case *VMReport:
		return unnumbered(*b)
	case VMReport:
		b.VMs = slices.DeleteFunc(slices.Clone(b.VMs), func(st VMStatus) bool { return st.Room || st.Permit })
		for i := range b.VMs {
			b.VMs[i].Move = 0
		}
		return b
	}
	return body
}

// Decode reads a log entry. It refuses what this code cannot apply in full: a newer
// format, an unknown kind, an unknown field, trailing bytes.
func Decode(b []byte) (Command, any, error) {
	var c Command
	if len(b) > MaxCommandBytes {
		return c, nil, fmt.Errorf("decode command: %d bytes, more than %d", len(b), MaxCommandBytes)
	}
	if c, body, ok := decodeEncoded(b); ok {
		return c, body, nil
	}
	return decodeAny(b)
}

// decodeAny reads an entry however it is written.
func decodeAny(b []byte) (c Command, body any, err error) {
	if err := strict(b, &c); err != nil {
		return c, nil, fmt.Errorf("decode command: %w", err)
	}
	if c.Version < 1 || c.Version > FormatVersion {
		return c, nil, fmt.Errorf("decode command: format version %d, this program knows 1 to %d", c.Version, FormatVersion)
	}
	k, known := kinds[c.Kind]
	if !known || k.since > c.Version {
		return c, nil, fmt.Errorf("decode command: unknown kind %q in version %d", c.Kind, c.Version)
	}
	body = k.body()
	if err := strict(c.Body, body); err != nil {
		return c, nil, fmt.Errorf("decode %s command: %w", c.Kind, err)
	}
	if newer(body, c.Version) {
		return c, nil, fmt.Errorf("decode %s command: it has what version %d does not know", c.Kind, c.Version)
	}
	return c, body, nil
}

// newer says whether a body has fields that came after that version of the format.
func newer(body any, version int) bool {
	b, ok := body.(interface{ since() int })
	return ok && b.since() > version
}

// decodeEncoded reads an entry that is written as Encode writes it: its frame is taken off by hand, so that the
// body is read once and not once more as a part of the whole. false: look at it closer.
func decodeEncoded(b []byte) (c Command, body any, ok bool) {
	rest, ok1 := bytes.CutPrefix(b, []byte(`{"v":`))
	version, rest, ok2 := bytes.Cut(rest, []byte(`,"kind":"`))
	kind, rest, ok3 := bytes.Cut(rest, []byte(`","at":`))
	at, rest, ok4 := bytes.Cut(rest, []byte(`,"body":`))
	rest, ok5 := bytes.CutSuffix(rest, []byte(`}`))
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || len(version) != 1 || version[0] < '1' || version[0] > '9' {
		return c, nil, false
	}
	c.Version, c.Kind, c.Body = int(version[0]-'0'), Kind(kind), rest
	k, known := kinds[c.Kind]
	if !known || c.Version > FormatVersion || k.since > c.Version || json.Unmarshal(at, &c.At) != nil {
		return c, nil, false
	}
	body = k.body()
	return c, body, strict(rest, body) == nil
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
