package state

import (
	"encoding/binary"
	"fmt"
	"sync"

	memdb "github.com/hashicorp/go-memdb"
)

// Tables of the store. Rows are pointers to the structs of types.go.
const (
	tMeta   = "meta"
	tHosts  = "hosts"
	tVCs    = "vcs"
	tVMs    = "vms"
	tImages = "images"
	tOps    = "operations"
	tEvents = "events"
	tIdem   = "remembered"
	tIndex  = "index"

	tMembers = "members"
	tTokens  = "join-tokens"
	tRevoked = "revoked"
	tAdmins  = "admin-tokens"

	tMovePlans  = "move-plans"
	tMigrations = "migrations"

	tRightsizingHours = "rightsizing-hours"
	tRestore          = "restore"

	tTenants = "tenants"

	tVersions     = "vc-versions"
	tRoleBindings = "role-bindings"
	tRevocations  = "revocations"

	tRuns        = "runs"
	tJobs        = "periodic-jobs"
	tOccurrences = "occurrences"
)

// position is how far the log has been applied, and where the events stand.
type position struct {
	Key   string `json:"key"`
	Index uint64 `json:"index"`
	Seq   uint64 `json:"seq"`
	// Placement is the log index at which a host was last removed from the cluster.
	Placement uint64 `json:"placement,omitempty"`
}

func schema() *memdb.DBSchema {
	str := func(field string) memdb.Indexer { return &memdb.StringFieldIndex{Field: field} }
	table := func(name, key string, more ...*memdb.IndexSchema) *memdb.TableSchema {
		t := &memdb.TableSchema{Name: name, Indexes: map[string]*memdb.IndexSchema{
			"id": {Name: "id", Unique: true, Indexer: str(key)},
		}}
		for _, i := range more {
			t.Indexes[i.Name] = i
		}
		return t
	}
	by := func(name, field string, unique, missing bool) *memdb.IndexSchema {
		return &memdb.IndexSchema{Name: name, Unique: unique, AllowMissing: missing, Indexer: str(field)}
	}
	events := &memdb.TableSchema{Name: tEvents, Indexes: map[string]*memdb.IndexSchema{
		"id":    {Name: "id", Unique: true, Indexer: numberIndex[Event]{func(e *Event) (uint64, bool) { return e.Seq, true }}},
		"owner": {Name: "owner", Indexer: nameIndex[Event]{func(e *Event) (string, bool) { return ownKind(e.OwnerOf(), e.Kind), true }}},
	}}
	s := &memdb.DBSchema{Tables: map[string]*memdb.TableSchema{tEvents: events}}
	for _, t := range []*memdb.TableSchema{
		table(tMeta, "ID"),
		table(tHosts, "Name", &memdb.IndexSchema{Name: "version", Indexer: numberIndex[Host]{func(h *Host) (uint64, bool) { return h.Version, true }}}),
		table(tVCs, "ID", by("name", "Name", true, false),
			&memdb.IndexSchema{Name: "modified", Indexer: numberIndex[VC]{func(vc *VC) (uint64, bool) { return vc.ModifyIndex, true }}},
			&memdb.IndexSchema{Name: "waiting", AllowMissing: true, Indexer: numberIndex[VC]{func(vc *VC) (uint64, bool) {
				return vc.CreateIndex, vc.Goal == GoalRun && !vc.Admitted
			}}}),
		table(tVMs, "ID", by("name", "Name", true, false), by("vc", "VC", false, false), by("host", "Host", false, true), by("movingTo", "MovingTo", false, true)),
		table(tImages, "Name"),
		table(tOps, "ID", by("vc", "VC", false, true), &memdb.IndexSchema{Name: "age", Indexer: numberIndex[Operation]{func(op *Operation) (uint64, bool) { return op.Index, true }}}),
		table(tIdem, "Key"),
		table(tIndex, "Key"),
		table(tMembers, "Name", &memdb.IndexSchema{Name: "format", AllowMissing: true, Indexer: numberIndex[Member]{func(m *Member) (uint64, bool) {
			return uint64(m.Format), m.Server && m.Format > 0
		}}}),
		table(tTokens, "ID"),
		table(tRevoked, "Number"),
		table(tAdmins, "ID"),
		table(tMovePlans, "ID"),
		table(tRightsizingHours, "ID"),
		table(tRestore, "Key"),
		table(tTenants, "Name"),
		table(tVersions, "ID", by("vc", "VC", false, false)),
		table(tRoleBindings, "ID",
			&memdb.IndexSchema{Name: "subject", Indexer: nameIndex[RoleBinding]{func(b *RoleBinding) (string, bool) { return b.Subject.key(), true }}},
			&memdb.IndexSchema{Name: "tenant", Indexer: nameIndex[RoleBinding]{func(b *RoleBinding) (string, bool) { return b.Tenant, true }}}),
		table(tRevocations, "ID"),
		table(tRuns, "ID", by("job", "Job", false, false),
			&memdb.IndexSchema{Name: "open", AllowMissing: true, Indexer: nameIndex[Run]{func(r *Run) (string, bool) { return r.VC, r.Ended.IsZero() }}}),
		table(tJobs, "Name"),
		table(tOccurrences, "ID", by("job", "Job", false, false),
			&memdb.IndexSchema{Name: "ahead", AllowMissing: true, Indexer: nameIndex[Occurrence]{func(o *Occurrence) (string, bool) { return "ahead", !o.State.Over() }}}),
		table(tMigrations, "ID", by("plan", "Plan", false, true), by("vm", "VM", false, false),
			&memdb.IndexSchema{Name: "running", Unique: true, AllowMissing: true, Indexer: nameIndex[Migration]{func(m *Migration) (string, bool) {
				return m.VM, m.State == MigrationRunning
			}}}),
	} {
		s.Tables[t.Name] = t
	}
	return s
}

// numberIndex orders rows by a number; rows without one are not in it.
type numberIndex[T any] struct{ of func(*T) (uint64, bool) }

// FromObject implements memdb.SingleIndexer.
func (x numberIndex[T]) FromObject(obj any) (bool, []byte, error) {
	row, ok := obj.(*T)
	if !ok {
		return false, nil, fmt.Errorf("not a %T: %T", row, obj)
	}
	n, ok := x.of(row)
	if !ok {
		return false, nil, nil
	}
	return true, binary.BigEndian.AppendUint64(nil, n), nil
}

// FromArgs implements memdb.Indexer.
func (numberIndex[T]) FromArgs(args ...any) ([]byte, error) {
	n, ok := args[0].(uint64)
	if len(args) != 1 || !ok {
		return nil, fmt.Errorf("a row is found by its number, not by %v", args)
	}
	return binary.BigEndian.AppendUint64(nil, n), nil
}

// nameIndex finds rows by a name; rows without one are not in it.
type nameIndex[T any] struct{ of func(*T) (string, bool) }

// FromObject implements memdb.SingleIndexer.
func (x nameIndex[T]) FromObject(obj any) (bool, []byte, error) {
	row, ok := obj.(*T)
	if !ok {
		return false, nil, fmt.Errorf("not a %T: %T", row, obj)
	}
	name, ok := x.of(row)
	if !ok {
		return false, nil, nil
	}
	return true, []byte(name + "\x00"), nil
}

// FromArgs implements memdb.Indexer.
func (nameIndex[T]) FromArgs(args ...any) ([]byte, error) {
	name, ok := args[0].(string)
	if len(args) != 1 || !ok {
		return nil, fmt.Errorf("a row is found by its name, not by %v", args)
	}
	return []byte(name + "\x00"), nil
}

// Store holds the state. One goroutine applies entries, any number read.
type Store struct {
	applying sync.Mutex   // held while entries are applied and while the database is replaced
	mu       sync.RWMutex // guards the pointer, not the data: replace swaps it
	db       *memdb.MemDB

	watches hostWatches

	cache applyCache // of the goroutine that applies
}

// New makes an empty store.
func New() *Store {
	db, err := memdb.NewMemDB(schema())
	if err != nil {
		panic("state: schema: " + err.Error()) // a programmer's error, met by the first test
	}
	return &Store{db: db, watches: hostWatches{by: map[string]chan struct{}{}}}
}

func (s *Store) current() *memdb.MemDB {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.db
}

// Snapshot returns the state as it is now. It costs a pointer copy and does not change.
func (s *Store) Snapshot() *Snapshot {
	s.mu.RLock() // or replace could swap and wake in between, and a watch would sleep for ever
	defer s.mu.RUnlock()
	return &Snapshot{txn: s.db.Txn(false)}
}

// Watch returns a channel that is closed at the next change of the state after
// the given snapshot was taken.
func (s *Snapshot) Watch() <-chan struct{} {
	ch, _, err := s.txn.FirstWatch(tIndex, "id", "log")
	if err != nil {
		panic("state: watch: " + err.Error())
	}
	return ch
}
