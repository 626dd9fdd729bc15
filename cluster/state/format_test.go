package state

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"
)

// A made-up next version of the format brings a kind of command, and a field of one that there is.
const nextVersion = FormatVersion + 1

type nextCordon struct {
	HostCordon
	Until time.Time `json:"until,omitzero"`
}

func (b nextCordon) since() int {
	if !b.Until.IsZero() {
		return nextVersion
	}
	return 0
}

func nextFormat() format {
	next := format{nextVersion, maps.Clone(present.kinds)}
	next.kinds["made-up"] = kind{since: nextVersion, new: func() any { return new(SetFencing) }}
	next.kinds[KindHostCordon] = kind{new: func() any { return new(nextCordon) }}
	return next
}

// While a server runs an older version nothing is proposed that it cannot read; what it can read is written as of its version.
func TestOldestServerSetsTheFormat(t *testing.T) {
	s := New()
	at := time.Unix(1_000_000, 0).UTC()
	index := uint64(0)
	put := func(name string, m Member) {
		t.Helper()
		m.Name = name
		entry, err := Encode(KindMemberPut, at, m)
		if err != nil {
			t.Fatal(err)
		}
		index++
		if err := s.Apply(index, entry); err != nil {
			t.Fatal(err)
		}
	}
	next := nextFormat()
	arm, cordon := SetFencing{FencingDisabled: true}, HostCordon{Host: "h1"}
	check := func(what string, want int) {
		t.Helper()
		version := s.Snapshot().readable(nextVersion)
		if version != want {
			t.Errorf("%s: version %d, want %d", what, version, want)
		}
		for name, c := range map[string]struct {
			kind  Kind
			body  any
			since int
		}{
			"what all know":           {KindHostCordon, nextCordon{HostCordon: cordon}, 0},
			"a new field":             {KindHostCordon, nextCordon{cordon, at}, nextVersion},
			"a new field, by pointer": {KindHostCordon, &nextCordon{cordon, at}, nextVersion},
			"a new kind":              {"made-up", arm, nextVersion},
			"an unknown kind":         {"unheard-of", arm, nextVersion + 1},
		} {
			entry, err := next.encode(version, c.kind, at, c.body)
			if c.since > version {
				if !errors.Is(err, ErrTooNew) {
					t.Errorf("%s, %s: %v", what, name, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s, %s: %v", what, name, err)
			}
			if cmd, _, err := next.decode(entry); err != nil || cmd.Version != version {
				t.Errorf("%s, %s: read by the next version: %+v, %v", what, name, cmd, err)
			}
			switch _, _, err := Decode(entry); {
			case version == FormatVersion && err != nil:
				t.Errorf("%s, %s: %v", what, name, err)
			case version > FormatVersion && (err == nil || !strings.Contains(err.Error(), fmt.Sprintf("format version %d, this program knows 1 to %d", nextVersion, FormatVersion))):
				t.Errorf("%s, %s: an entry of a later version: %v", what, name, err)
			}
		}
	}
	check("no members", nextVersion)
	put("h1", Member{Server: true, Format: nextVersion})
	check("one server", nextVersion)
	put("h2", Member{Server: true, Format: FormatVersion})
	put("h3", Member{Agent: true, Format: 0})
	check("one of the servers is older", FormatVersion)
	if v := s.Snapshot().Format(); v != FormatVersion {
		t.Errorf("this program writes version %d", v)
	}
	put("h2", Member{Server: true, Format: nextVersion})
	check("it is upgraded", nextVersion)
	if v := s.Snapshot().Format(); v != FormatVersion {
		t.Errorf("this program writes version %d", v)
	}
	if entry, err := s.Snapshot().Encode(KindHostCordon, at, cordon); err != nil || !bytes.HasPrefix(entry, fmt.Appendf(nil, `{"v":%d,`, FormatVersion)) {
		t.Errorf("%s, %v", entry, err)
	}
}

// An entry has nothing that is newer than the version that it names, however it is written.
func TestEntryOfItsVersion(t *testing.T) {
	next := nextFormat()
	for entry, good := range map[string]bool{
		`{"v":%d,"kind":"host-cordon","at":"2026-01-01T00:00:00Z","body":{"host":"x","cordoned":true}}`:                                 true,
		`{"v":%d,"kind":"host-cordon","at":"2026-01-01T00:00:00Z","body":{"host":"x","cordoned":true,"until":"2026-01-01T00:00:00Z"}}`:  false,
		`{"v":%d, "kind":"host-cordon","at":"2026-01-01T00:00:00Z","body":{"host":"x","cordoned":true,"until":"2026-01-01T00:00:00Z"}}`: false,
		`{"v":%d,"kind":"made-up","at":"2026-01-01T00:00:00Z","body":{"fencingDisabled":true}}`:                                         false,
	} {
		for _, version := range []int{FormatVersion, nextVersion} {
			if _, _, err := next.decode(fmt.Appendf(nil, entry, version)); (err == nil) != (good || version == nextVersion) {
				t.Errorf("version %d: %s: %v", version, entry, err)
			}
		}
	}
}

// A saved state of a later version is refused by a program that does not know that version, and by an entry of an earlier
// version.
func TestSavedStateOfALaterVersion(t *testing.T) {
	s := New()
	entry, err := Encode(KindInit, time.Unix(1, 0), Init{ID: "c"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(1, entry); err != nil {
		t.Fatal(err)
	}
	later := func(version int) []byte { // saved by a program of that version: only the header says so
		var b bytes.Buffer
		if err := s.Snapshot().save(&b, version); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	if err := New().restore(bytes.NewReader(later(nextVersion)), nextVersion); err != nil {
		t.Errorf("by the next version: %v", err)
	}
	want := fmt.Sprintf("version %d, known are %q 1 to %d", nextVersion, snapshotFormat, FormatVersion)
	if err := New().Restore(bytes.NewReader(later(nextVersion))); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("by this one: %v, want %q", err, want)
	}
	for version, bad := range map[int]bool{FormatVersion: false, nextVersion: true} {
		w := newWriter(New().db.Txn(true), 7, time.Unix(2, 0))
		w.version = FormatVersion
		if err := w.restore(&Restore{ID: "r", Of: 1, Data: later(version)}); errors.Is(err, ErrInvalid) != bad {
			t.Errorf("by an entry of version %d, of version %d: %v", FormatVersion, version, err)
		}
		w.txn.Abort()
	}
}
