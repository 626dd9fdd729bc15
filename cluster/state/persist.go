package state

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"

	memdb "github.com/hashicorp/go-memdb"
)

// snapshotFormat names the file format of Save: a header line, a line per row, and a last line that seals all before it, so
// that a file that was cut off is not taken for a whole one.
const snapshotFormat = "evenkeel-state"

// tSeal is the table name on the last line.
const tSeal = "end"

// seal is the last line: SHA-256 of all bytes before it, in hexadecimal.
type seal struct {
	SHA256 string `json:"sha256"`
}

type header struct {
	Format  string `json:"format"`
	Version int    `json:"v"`
}

type line struct {
	Table string          `json:"t"`
	Row   json.RawMessage `json:"r"`
}

func saveTable[T any](enc *json.Encoder, s *Snapshot, table string) (err error) {
	one := struct { // a line with its row as it is
		Table string `json:"t"`
		Row   *T     `json:"r"`
	}{Table: table}
	each(s, func(row *T) bool {
		one.Row = row
		err = enc.Encode(&one)
		return err == nil
	}, table, "id")
	if err != nil {
		return fmt.Errorf("save %s: %w", table, err)
	}
	return nil
}

// Save writes the snapshot as lines of JSON, for all servers to read: see Format.
func (s *Snapshot) Save(to io.Writer) error { return s.save(to, s.Format()) }

func (s *Snapshot) save(to io.Writer, version int) error {
	out := bufio.NewWriterSize(to, 1<<16)
	sum := sha256.New()
	enc := json.NewEncoder(io.MultiWriter(out, sum))
	if err := enc.Encode(header{Format: snapshotFormat, Version: version}); err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	for _, save := range []func() error{
		func() error { return saveTable[Meta](enc, s, tMeta) },
		func() error { return saveTable[Host](enc, s, tHosts) },
		func() error { return saveTable[VC](enc, s, tVCs) },
		func() error { return saveTable[VM](enc, s, tVMs) },
		func() error { return saveTable[Image](enc, s, tImages) },
		func() error { return saveTable[Operation](enc, s, tOps) },
		func() error { return saveTable[Event](enc, s, tEvents) },
		func() error { return saveTable[Remembered](enc, s, tIdem) },
		func() error { return saveTable[Member](enc, s, tMembers) },
		func() error { return saveTable[JoinToken](enc, s, tTokens) },
		func() error { return saveTable[Revoked](enc, s, tRevoked) },
		func() error { return saveTable[Token](enc, s, tAdmins) },
		func() error { return saveTable[MovePlan](enc, s, tMovePlans) },
		func() error { return saveTable[Migration](enc, s, tMigrations) },
		func() error { return saveTable[RightsizingHour](enc, s, tRightsizingHours) },
		func() error { return saveTable[restorePart](enc, s, tRestore) },
		func() error { return saveTable[Tenant](enc, s, tTenants) },
		func() error { return saveTable[VCVersion](enc, s, tVersions) },
		func() error { return saveTable[RoleBinding](enc, s, tRoleBindings) },
		func() error { return saveTable[Revocation](enc, s, tRevocations) },
		func() error { return saveTable[Run](enc, s, tRuns) },
		func() error { return saveTable[PeriodicJob](enc, s, tJobs) },
		func() error { return saveTable[Occurrence](enc, s, tOccurrences) },
		func() error { return saveTable[position](enc, s, tIndex) },
	} {
		if err := save(); err != nil {
			return err
		}
	}
	raw, err := json.Marshal(seal{SHA256: hex.EncodeToString(sum.Sum(nil))})
	if err == nil {
		err = enc.Encode(line{Table: tSeal, Row: raw})
	}
	if err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	return nil
}

// Restore replaces the state by a saved one, or changes nothing.
func (s *Store) Restore(from io.Reader) error { return s.restore(from, FormatVersion) }

// restore reads what programs wrote that know the format up to that version.
func (s *Store) restore(from io.Reader, newest int) error {
	db, err := load(from, newest)
	if err != nil {
		return err
	}
	s.applying.Lock()
	defer s.applying.Unlock()
	s.replace(db)
	return nil
}

// load reads a saved state.
func load(from io.Reader, newest int) (*memdb.MemDB, error) {
	in := bufio.NewReaderSize(from, 1<<16)
	sum := sha256.New()
	head, err := in.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("restore state: header: %w", err)
	}
	sum.Write(head)
	var h header
	if err := strict(head, &h); err != nil {
		return nil, fmt.Errorf("restore state: header: %w", err)
	}
	if h.Format != snapshotFormat || h.Version < 1 || h.Version > newest {
		return nil, fmt.Errorf("restore state: format %q version %d, known are %q 1 to %d", h.Format, h.Version, snapshotFormat, newest)
	}
	db := New().db
	txn := db.Txn(true)
	defer txn.Abort()
	for n := 2; ; n++ {
		b, err := in.ReadBytes('\n')
		if err == io.EOF {
			return nil, fmt.Errorf("restore state: it ends at line %d, before its end: %w", n, io.ErrUnexpectedEOF)
		}
		if err != nil {
			return nil, fmt.Errorf("restore state: line %d: %w", n, err)
		}
		var l line
		if err := strict(b, &l); err != nil {
			return nil, fmt.Errorf("restore state: line %d: %w", n, err)
		}
		if l.Table == tSeal {
			if err := checkSeal(l, sum.Sum(nil), in); err != nil {
				return nil, fmt.Errorf("restore state: line %d: %w", n, err)
			}
			break
		}
		sum.Write(b)
		row, err := newRow(l.Table)
		if err != nil {
			return nil, fmt.Errorf("restore state: line %d: %w", n, err)
		}
		if err := strict(l.Row, row); err != nil {
			return nil, fmt.Errorf("restore state: line %d, %s: %w", n, l.Table, err)
		}
		if err := txn.Insert(l.Table, row); err != nil {
			return nil, fmt.Errorf("restore state: line %d, %s: %w", n, l.Table, err)
		}
	}
	txn.Commit()
	return db, nil
}

// replace puts another database in the place of the store's, and wakes all who watch. The caller holds applying.
func (s *Store) replace(db *memdb.MemDB) {
	s.mu.Lock()
	old := s.db
	s.db = db
	s.mu.Unlock()
	s.cache = applyCache{} // it keeps the old one in memory
	wake(old)
	s.watches.fire(nil, true)
}

// checkSeal compares the last line with what was read before it, and refuses bytes after it.
func checkSeal(l line, sum []byte, rest *bufio.Reader) error {
	var got seal
	if err := strict(l.Row, &got); err != nil {
		return err
	}
	if want := hex.EncodeToString(sum); got.SHA256 != want {
		return fmt.Errorf("the file was changed since it was saved: SHA-256 %s, not %s", want, got.SHA256)
	}
	if _, err := rest.ReadByte(); err != io.EOF {
		return fmt.Errorf("bytes left after the end")
	}
	return nil
}

// wake closes the watches of a store's old data.
func wake(db *memdb.MemDB) {
	txn := db.Txn(true)
	p := position{Key: "log"}
	if old, ok := first[position](&Snapshot{txn: txn}, tIndex, "id", "log"); ok {
		p = old
	}
	if err := txn.Insert(tIndex, &p); err != nil {
		panic("state: wake: " + err.Error())
	}
	txn.Commit()
}

func newRow(table string) (any, error) {
	switch table {
	case tMeta:
		return new(Meta), nil
	case tHosts:
		return new(Host), nil
	case tVCs:
		return new(VC), nil
	case tVMs:
		return new(VM), nil
	case tImages:
		return new(Image), nil
	case tOps:
		return new(Operation), nil
	case tEvents:
		return new(Event), nil
	case tIdem:
		return new(Remembered), nil
	case tIndex:
		return new(position), nil
	case tMembers:
		return new(Member), nil
	case tTokens:
		return new(JoinToken), nil
	case tRevoked:
		return new(Revoked), nil
	case tAdmins:
		return new(Token), nil
	case tMovePlans:
		return new(MovePlan), nil
	case tMigrations:
		return new(Migration), nil
	case tRightsizingHours:
		return new(RightsizingHour), nil
	case tRestore:
		return new(restorePart), nil
	case tTenants:
		return new(Tenant), nil
	case tVersions:
		return new(VCVersion), nil
	case tRoleBindings:
		return new(RoleBinding), nil
	case tRevocations:
		return new(Revocation), nil
	case tRuns:
		return new(Run), nil
	case tJobs:
		return new(PeriodicJob), nil
	case tOccurrences:
		return new(Occurrence), nil
	}
	return nil, fmt.Errorf("unknown table %q", table)
}
