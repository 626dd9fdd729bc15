package leader

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"evenkeel/cluster/state"
)

// A use is recorded if it is later than the recorded one by more than ten minutes, and once.
func TestUsesToRecord(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	rows := []state.Token{{ID: "fresh"}, {ID: "moved", LastUsed: at}, {ID: "near", LastUsed: at}, {ID: "never"}, {ID: "back", LastUsed: at}}
	seen := map[string]time.Time{"fresh": at, "moved": at.Add(tokenUsesEvery + 1), "near": at.Add(tokenUsesEvery), "back": at.Add(-time.Hour), "gone": at}
	want := []state.TokenUse{{ID: "fresh", At: at}, {ID: "moved", At: at.Add(tokenUsesEvery + 1)}}
	if diff := cmp.Diff(want, usesToRecord(rows, seen, tokenUsesEvery)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Only the last use counts, in whatever order servers report, and tokens that are gone are forgotten.
func TestTokenUses(t *testing.T) {
	var u tokenUses
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	u.note("a", at)
	u.note("a", at.Add(-time.Hour))
	u.note("gone", at)
	s := state.New()
	entry, err := state.Encode(state.KindAdminToken, at, state.Token{ID: "00000000000000aa", Hash: strings.Repeat("a", 64), Name: "a", Role: state.RoleAdmin})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(1, entry); err != nil {
		t.Fatal(err)
	}
	u.note("00000000000000aa", at)
	u.note("00000000000000aa", at.Add(-time.Second))
	if diff := cmp.Diff(map[string]time.Time{"00000000000000aa": at}, u.all(s.Snapshot())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// directLog applies what it is given, at once.
type directLog struct {
	store *state.Store
	n     uint64
}

func (l *directLog) Apply(_ context.Context, entry []byte) (uint64, error, error) {
	l.n++
	return l.n, l.store.Apply(l.n, entry), nil
}

func (*directLog) Linearize(context.Context) error { return nil }
func (*directLog) Leads() bool                     { return true }
func (*directLog) Leader() string                  { return "h1" }

// What this server learned of uses goes to the log in one batch, and again only once it moved on.
func TestTokenUsesAreRecorded(t *testing.T) {
	store := state.New()
	c := New(Options{State: store, Log: &directLog{store: store}, Logger: slog.New(slog.DiscardHandler)})
	row := state.Token{ID: "00000000000000aa", Hash: strings.Repeat("a", 64), Name: "a", Role: state.RoleOperator}
	if _, err := c.MakeToken(t.Context(), row, true); err != nil {
		t.Fatal(err)
	}
	if _, there := c.Token(row.ID); there {
		t.Fatal("a dry run made a token")
	}
	if _, err := c.MakeToken(t.Context(), row, false); err != nil {
		t.Fatal(err)
	}
	at := time.Now().UTC()
	c.UseToken(row.ID, at)
	if err := c.recordTokenUses(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, _ := c.Token(row.ID); !got.LastUsed.Equal(at) {
		t.Errorf("last used %s, want %s", got.LastUsed, at)
	}
	index := c.Index()
	c.UseToken(row.ID, at.Add(time.Minute))
	if err := c.recordTokenUses(t.Context()); err != nil || c.Index() != index {
		t.Errorf("a minute later: %v, an entry more: %v", err, c.Index() != index)
	}
	var invalid *Invalid
	if _, err := c.MakeToken(t.Context(), state.Token{Name: "", Role: state.RoleAdmin}, false); !errors.As(err, &invalid) || invalid.Fields[0].Field != "name" {
		t.Errorf("without a name: %v", err)
	}
	if _, err := c.MakeToken(t.Context(), state.Token{Name: "a", Role: "root"}, false); !errors.As(err, &invalid) || invalid.Fields[0].Field != "role" {
		t.Errorf("another role: %v", err)
	}
	if _, err := c.RevokeToken(t.Context(), state.TokenDrop{ID: row.ID}, true); err != nil {
		t.Errorf("dry run: %v", err)
	}
	if _, err := c.RevokeToken(t.Context(), state.TokenDrop{ID: row.ID}, false); err != nil {
		t.Errorf("revoke: %v", err)
	}
	if _, err := c.RevokeToken(t.Context(), state.TokenDrop{ID: row.ID}, false); !errors.Is(err, ErrNotFound) {
		t.Errorf("again: %v", err)
	}
}
