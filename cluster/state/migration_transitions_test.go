package state

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Reports of a migration from "from" to "to", by whom they are.
var moveReports = map[string]struct {
	host string
	st   VMStatus
	not  bool // the VM may not be handed over now
}{
	"room":             {host: "to", st: VMStatus{Room: true}},
	"room, resumes":    {host: "to", st: VMStatus{Room: true, Resumes: true}},
	"permit":           {host: "from", st: VMStatus{Permit: true}},
	"permit, not now":  {host: "from", st: VMStatus{Permit: true}, not: true},
	"lost at source":   {host: "from", st: VMStatus{Phase: Lost}},
	"left":             {host: "from", st: VMStatus{Phase: Lost, Left: true}},
	"lost at target":   {host: "to", st: VMStatus{Phase: Lost}},
	"runs at source":   {host: "from", st: VMStatus{Phase: Running}},
	"failed at source": {host: "from", st: VMStatus{Phase: Failed}},
	"failed at target": {host: "to", st: VMStatus{Phase: Failed}},
	"room at source":   {host: "from", st: VMStatus{Room: true}},
	"permit at target": {host: "to", st: VMStatus{Permit: true}},
	"left by target":   {host: "to", st: VMStatus{Phase: Lost, Left: true}},
}

// Where each report leads. What is not here changes nothing. "end": the VM is lost.
var byMoveReports = map[string]map[string]string{
	"open":                           {"room": "ready", "room, resumes": "ready paused", "lost at source": "lost", "left": "lost"},
	"ready":                          {"permit": "ready permit", "lost at source": "ready lost", "left": "ready lost"},
	"ready paused":                   {"permit": "ready paused permit", "lost at source": "ready paused lost", "left": "ready paused left lost"},
	"ready permit":                   {"permit": "ready permit", "lost at source": "ready permit lost", "left": "ready permit lost"},
	"ready paused permit":            {"permit": "ready paused permit", "lost at source": "ready paused permit lost", "left": "ready paused permit left lost"},
	"lost":                           {"room": "ready lost", "room, resumes": "ready paused lost", "lost at target": "end", "left by target": "end"},
	"ready lost":                     {"lost at target": "end", "left by target": "end"},
	"ready paused lost":              {"left": "ready paused left lost", "lost at target": "end", "left by target": "end"},
	"ready permit lost":              {"lost at target": "end", "left by target": "end"},
	"ready paused permit lost":       {"left": "ready paused permit left lost", "lost at target": "end", "left by target": "end"},
	"ready paused left lost":         {"lost at target": "end", "left by target": "end"},
	"ready paused permit left lost":  {"lost at target": "end", "left by target": "end"},
	"ready paused permit left lost.": {}, // ended
}

// migrationAs returns a migration in a state of the table.
func migrationAs(text string) Migration {
	m := Migration{ID: "mg", VM: "vm", VMName: "v", From: "from", To: "to", State: MigrationRunning, Open: 7, ModifyIndex: 9}
	text, ended := strings.CutSuffix(text, ".")
	if ended {
		m.State = MigrationDone
	}
	for _, part := range strings.Fields(text) {
		switch part {
		case "ready":
			m.Ready = true
		case "paused":
			m.Paused = true
		case "permit":
			m.Permit = 8
		case "left":
			m.Left = 9
		case "lost":
			m.SourceLost = 9
		}
	}
	return m
}

func (m Migration) text() string {
	var out []string
	for _, part := range []struct {
		text string
		is   bool
	}{{"ready", m.Ready}, {"paused", m.Paused}, {"permit", m.Permit > 0}, {"left", m.Left > 0}, {"lost", m.SourceLost > 0}} {
		if part.is {
			out = append(out, part.text)
		}
	}
	if len(out) == 0 {
		return "open"
	}
	return strings.Join(out, " ")
}

// takeIn does as the store does with a report of a VM that moves.
func (m Migration) takeIn(host string, st VMStatus, mayPermit bool, index uint64) (next Migration, end bool) {
	next, lost := m.reported(host, st, mayPermit, index)
	if lost {
		return next.lostAt(host, index)
	}
	return next, false
}

// Each report leads where the table says, from each state; what it changes has the index of its entry, and a report that knows of
// another migration, or comes from another host, changes nothing.
func TestMigrationReported(t *testing.T) {
	for from, to := range byMoveReports {
		for name, r := range moveReports {
			m := migrationAs(from)
			want := strings.TrimSuffix(from, ".")
			if next, listed := to[name]; listed {
				want = next
			}
			r.st.Move = 7
			next, end := m.takeIn(r.host, r.st, !r.not, 20)
			got := next.text()
			if end {
				got = "end"
			}
			if got != want {
				t.Errorf("%s, %s: %s, want %s", from, name, got, want)
			}
			if next.ModifyIndex != m.ModifyIndex && next.ModifyIndex != 20 || next != m != (next.ModifyIndex == 20) {
				t.Errorf("%s, %s: changed at index %d", from, name, next.ModifyIndex)
			}
			for _, stale := range []uint64{0, 6, 8} {
				r.st.Move = stale
				if next, end := m.takeIn(r.host, r.st, !r.not, 20); next != m || end {
					t.Errorf("%s, %s of move %d: %+v, %v", from, name, stale, next, end)
				}
			}
			r.st.Move = 7
			if next, end := m.takeIn("other", r.st, !r.not, 20); next != m || end {
				t.Errorf("%s, %s of another host: %+v, %v", from, name, next, end)
			}
		}
	}
	second, _ := migrationAs("ready permit").reported("from", VMStatus{Move: 7, Permit: true}, true, 20)
	if second.Permit != 20 {
		t.Errorf("a second permit is %d", second.Permit)
	}
	for _, c := range []struct {
		options MoveOptions
		paused  bool
	}{{MoveOptions{}, true}, {MoveOptions{PostCopy: true}, false}, {MoveOptions{PostCopy: true, CopyStorage: true}, true}} {
		m := migrationAs("open")
		m.Options = c.options
		if m = m.ready(true, 20); m.Paused != c.paused {
			t.Errorf("%+v: the guest arrives paused: %v", c.options, m.Paused)
		}
	}
}

// Whatever is reported in whichever order, the invariants at the head of migration_transitions.go hold.
func TestMigrationInvariants(t *testing.T) {
	var names []string
	for name := range moveReports {
		names = append(names, name)
	}
	slices.Sort(names)
	rapid.Check(t, func(t *rapid.T) {
		m := migrationAs("open")
		for i := range rapid.IntRange(1, 12).Draw(t, "reports") {
			r := moveReports[rapid.SampledFrom(names).Draw(t, "report")]
			index := uint64(20 + i)
			r.st.Move = 7
			old := m
			var end bool
			if m, end = m.takeIn(r.host, r.st, !r.not, index); end {
				if m.SourceLost == 0 || m.SourceLost == index {
					t.Fatalf("lost, and its source was not proved before: %+v", m)
				}
				m = m.ended(outcome{text: "lost"}, time.Time{}, index)
			}
			switch {
			case old.Ready && !m.Ready, old.Paused != m.Paused && old.Ready, m.Permit < old.Permit, old.Left > 0 && m.Left != old.Left, old.SourceLost > 0 && m.SourceLost != old.SourceLost:
				t.Fatalf("went back: %+v, then %+v", old, m)
			case m.Permit > old.Permit && (!m.Ready || old.SourceLost > 0), m.Left > 0 && (!m.Paused || m.SourceLost == 0), m.Paused && !m.Ready:
				t.Fatalf("%+v, then %+v", old, m)
			case max(m.Permit, m.Left, m.SourceLost) > m.ModifyIndex:
				t.Fatalf("a part is newer than the whole: %+v", m)
			case old.State != MigrationRunning && m != old:
				t.Fatalf("it had ended: %+v, then %+v", old, m)
			case m.SourceLostSince() > 0 != (m.SourceLost > 0) || m.SourceLost > 0 && m.SourceLostSince() < m.Left:
				t.Fatalf("lost at its source since %d: %+v", m.SourceLostSince(), m)
			}
		}
	})
}

// The ends of a migration, and what does not end it.
func TestMigrationEnds(t *testing.T) {
	for _, c := range []struct {
		from string
		move Move
		may  bool
	}{
		{"ready permit", Move{Move: 7, Permit: 8}, true},
		{"ready permit", Move{Move: 7}, false}, // of before the permit
		{"ready permit", Move{Move: 6, Permit: 8}, false},
		{"ready permit", Move{Move: 7, Arrived: true}, true},
		{"ready permit", Move{Move: 6, Arrived: true}, false},
		{"ready paused permit", Move{Move: 7, Arrived: true}, false}, // its source may run it
		{"ready paused permit lost", Move{Move: 7, Arrived: true}, true},
		{"ready paused permit left lost", Move{Move: 7, Arrived: true}, true},
		{"ready paused permit", Move{Move: 7, Permit: 8}, true},
		{"open", Move{Move: 7}, true},
		{"open", Move{}, false},
	} {
		err := migrationAs(c.from).mayEnd(&c.move)
		if (err == nil) != c.may || err != nil && !errors.Is(err, ErrConflict) {
			t.Errorf("%s, %+v: %v, want that it may end: %v", c.from, c.move, err, c.may)
		}
	}
	at := time.Unix(99, 0)
	for _, c := range []struct {
		abort string
		end   outcome
		state MigrationState
		text  string
	}{
		{"", outcome{arrived: true, text: "said"}, MigrationDone, ""},
		{"ann", outcome{arrived: true}, MigrationDone, ""},
		{"", outcome{text: "cut", reported: true, bytes: 5, downtimeMs: 2}, MigrationFailed, "cut"},
		{"ann", outcome{text: "given up"}, MigrationAborted, "given up"},
	} {
		m := migrationAs("ready")
		m.Abort, m.BytesMoved = c.abort, 3
		m = m.ended(c.end, at, 20)
		if m.State != c.state || m.Error != c.text || m.EndedAt != at || m.ModifyIndex != 20 || m.Reported != c.end.reported || m.BytesMoved != max(3, c.end.bytes) || m.DowntimeMs != c.end.downtimeMs {
			t.Errorf("%+v: %+v", c, m)
		}
		if _, err := m.aborting("late", 30); !errors.Is(err, ErrConflict) {
			t.Errorf("aborted after its end: %v", err)
		}
		if again := m.sent(m.BytesMoved+4, 1, 31); again.BytesMoved != m.BytesMoved+4 || !again.Reported || again.DowntimeMs != max(1, m.DowntimeMs) || again.State != m.State {
			t.Errorf("sent after its end: %+v", again)
		}
	}
	m := migrationAs("ready")
	first, err := m.aborting("ann", 20)
	second, err2 := first.aborting("bob", 21)
	if err != nil || err2 != nil || first.Abort != "ann" || second != first || first.State != MigrationRunning {
		t.Errorf("%+v, %v, then %+v, %v", first, err, second, err2)
	}
	if sent := m.sent(0, 0, 20); !sent.Reported || sent.sent(0, 0, 21) != sent {
		t.Errorf("sent: %+v", sent)
	}
}
