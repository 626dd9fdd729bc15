package state_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster/state"
)

// token is a row of that name; its id and hash follow from it.
func token(name string, role state.Role) state.Token {
	sum := sha256.Sum256([]byte(name))
	text := hex.EncodeToString(sum[:])
	return state.Token{ID: text[:16], Hash: text, Name: name, Role: role, MadeBy: "test (token:0)"}
}

// administered says whether there is a token that can administer the cluster for ever.
func administered(s *state.Snapshot) bool {
	for _, t := range s.Tokens() {
		if t.Role == state.RoleAdmin && t.Until.IsZero() {
			return true
		}
	}
	return false
}

// withTokens adds every kind of command about tokens, with every field.
func withTokens(t *testing.T, k *cluster) {
	admin, metrics := token("root", state.RoleAdmin), token("scraper", state.RoleMetrics)
	metrics.Until, metrics.From = start.Add(time.Hour), []string{"10.0.0.0/24", "2001:db8::/48"}
	k.must(t, state.KindAdminToken, admin)
	k.must(t, state.KindAdminToken, metrics)
	k.must(t, state.KindAdminToken, token("deploy", state.RoleOperator))
	k.must(t, state.KindAdminToken, token("leaked", state.RoleAuditor))
	k.must(t, state.KindTokensUsed, state.TokensUsed{Used: []state.TokenUse{{ID: metrics.ID, At: start.Add(time.Minute)}}})
	k.must(t, state.KindTokenDrop, state.TokenDrop{ID: token("leaked", "").ID, By: "root (token:" + admin.ID + ")"})
	if err := k.apply(t, state.KindTokenDrop, state.TokenDrop{ID: admin.ID}); !errors.Is(err, state.ErrInUse) {
		t.Fatalf("the last admin token was revoked: %v", err)
	}
}

func TestTokenRows(t *testing.T) {
	with := func(change func(*state.Token)) state.Token {
		row := token("new", state.RoleOperator)
		change(&row)
		return row
	}
	for _, c := range []struct {
		what string
		row  state.Token
		err  error
		text string // of the error
	}{
		{"a good one", with(func(*state.Token) {}), nil, ""},
		{"with an end", with(func(r *state.Token) { r.Until = start.Add(time.Hour) }), nil, ""},
		{"of 63 characters", with(func(r *state.Token) { r.Name = strings.Repeat("n", 63) }), nil, ""},
		{"of the same name as another", with(func(r *state.Token) { r.Name = "root" }), nil, ""},
		{"without a name", with(func(r *state.Token) { r.Name = "" }), state.ErrInvalid, "1 to 63 printable"},
		{"a long name", with(func(r *state.Token) { r.Name = strings.Repeat("n", 64) }), state.ErrInvalid, "1 to 63 printable"},
		{"a line in the name", with(func(r *state.Token) { r.Name = "a\nb" }), state.ErrInvalid, "1 to 63 printable"},
		{"a space at the end", with(func(r *state.Token) { r.Name = "a " }), state.ErrInvalid, "1 to 63 printable"},
		{"beyond ASCII", with(func(r *state.Token) { r.Name = "tést" }), state.ErrInvalid, "1 to 63 printable"},
		{"without a role", with(func(r *state.Token) { r.Role = "" }), state.ErrInvalid, "role"},
		{"with id and hash alone", state.Token{ID: token("new", "").ID, Hash: token("new", "").Hash}, state.ErrInvalid, "1 to 63 printable"},
		{"another role", with(func(r *state.Token) { r.Role = "root" }), state.ErrInvalid, `"root" is not known`},
		{"ranges", with(func(r *state.Token) { r.From = []string{"10.0.0.0/24", "192.0.2.1/32"} }), nil, ""},
		{"ranges in another order", with(func(r *state.Token) { r.From = []string{"192.0.2.1/32", "10.0.0.0/24"} }), state.ErrInvalid, "from"},
		{"a range twice", with(func(r *state.Token) { r.From = []string{"10.0.0.0/24", "10.0.0.0/24"} }), state.ErrInvalid, "from"},
		{"an address without a prefix", with(func(r *state.Token) { r.From = []string{"10.0.0.1"} }), state.ErrInvalid, "from"},
		{"no range", with(func(r *state.Token) { r.From = []string{"anywhere"} }), state.ErrInvalid, "from"},
		{"a tenant", with(func(r *state.Token) { r.Tenant = "t" }), state.ErrInvalid, "tenant"},
		{"another id", with(func(r *state.Token) { r.ID = "ABCDEF0123456789" }), state.ErrInvalid, "16 hex digits"},
		{"another hash", with(func(r *state.Token) { r.Hash = "beef" }), state.ErrInvalid, "64 hex digits"},
		{"a long maker", with(func(r *state.Token) { r.MadeBy = strings.Repeat("n", 201) }), state.ErrInvalid, "madeBy"},
		{"an id that is taken", with(func(r *state.Token) { r.ID = token("root", "").ID }), state.ErrConflict, "exists already"},
	} {
		t.Run(c.what, func(t *testing.T) {
			k := small(t, 1)
			k.must(t, state.KindAdminToken, token("root", state.RoleAdmin))
			before := rows(t, k.Snapshot())
			err := k.apply(t, state.KindAdminToken, c.row)
			if !errors.Is(err, c.err) || err != nil && !strings.Contains(err.Error(), c.text) {
				t.Fatalf("%v, want %v with %q", err, c.err, c.text)
			}
			got, there := k.Snapshot().Token(c.row.ID)
			if err != nil {
				if rows(t, k.Snapshot()) != before {
					t.Error("refused, and the state changed")
				}
				return
			}
			if !there || got.MadeAt.IsZero() || got.Name != c.row.Name || got.Role != c.row.Role || !got.Until.Equal(c.row.Until) {
				t.Errorf("row %+v", got)
			}
			events := k.Snapshot().EventsAfter(0, 0)
			last := events[len(events)-1]
			for _, want := range []string{c.row.ID, c.row.Name, string(c.row.Role), c.row.MadeBy} {
				if last.Kind != "token-made" || last.Name != c.row.ID || !strings.Contains(last.Text, want) {
					t.Errorf("event %+v, want %q in it", last, want)
				}
			}
			if strings.Contains(last.Text, c.row.Hash) {
				t.Error("the event has the hash")
			}
		})
	}
}

func TestRevokedTokens(t *testing.T) {
	k := small(t, 1)
	root, second, short := token("root", state.RoleAdmin), token("second", state.RoleAdmin), token("short", state.RoleAdmin)
	short.Until = start.Add(time.Hour)
	k.must(t, state.KindAdminToken, root)
	k.must(t, state.KindAdminToken, short)
	drop := func(row state.Token) error {
		return k.apply(t, state.KindTokenDrop, state.TokenDrop{ID: row.ID, By: "ann (token:1)"})
	}
	if err := drop(root); !errors.Is(err, state.ErrInUse) || !strings.Contains(err.Error(), "vcctl token create") {
		t.Errorf("the last admin token that does not expire: %v", err)
	}
	if err := drop(second); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("one that is not there: %v", err)
	}
	k.must(t, state.KindAdminToken, second)
	if err := drop(root); err != nil {
		t.Errorf("there is another admin token: %v", err)
	}
	if err := drop(short); err != nil {
		t.Errorf("one that expires: %v", err)
	}
	if err := k.apply(t, state.KindTokenDrop, state.TokenDrop{ID: second.ID, AdminElsewhere: true}); err != nil {
		t.Errorf("the last one, and there is another outside: %v", err)
	}
	if n := len(k.Snapshot().Tokens()); n != 0 {
		t.Errorf("%d tokens are left", n)
	}
	events := k.Snapshot().EventsAfter(0, 0)
	if e := events[len(events)-2]; e.Kind != "token-revoked" || e.Object != "token" || e.Name != short.ID || !strings.Contains(e.Text, "short") || !strings.Contains(e.Text, "ann (token:1)") {
		t.Errorf("event %+v", e)
	}
}

// Tokens are bounded, and those that ended some time ago make room.
func TestMaxTokens(t *testing.T) {
	k := newCluster()
	k.must(t, state.KindInit, state.Init{ID: "cluster-1", Settings: state.DefaultSettings()})
	for i := range state.MaxTokens {
		row := token(fmt.Sprint(i), state.RoleOperator)
		if i%2 == 1 {
			row.Until = start.Add(time.Hour)
		}
		k.must(t, state.KindAdminToken, row)
	}
	if err := k.apply(t, state.KindAdminToken, token("more", state.RoleAdmin)); !errors.Is(err, state.ErrConflict) {
		t.Fatalf("one more: %v", err)
	}
	late := start.Add(9 * 24 * time.Hour)
	for range 256 { // old rows are looked for now and then
		entry, err := state.Encode(state.KindAudit, late, state.Audit{Kind: "k", Object: "o", Name: "n"})
		if err != nil {
			t.Fatal(err)
		}
		k.log = append(k.log, entry)
		if err := k.Apply(uint64(len(k.log)), entry); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(k.Snapshot().Tokens()); n != state.MaxTokens/2 {
		t.Errorf("%d tokens are left", n)
	}
}

func TestTokensUsed(t *testing.T) {
	k := small(t, 1)
	row := token("root", state.RoleAdmin)
	k.must(t, state.KindAdminToken, row)
	use := func(at time.Duration) {
		k.must(t, state.KindTokensUsed, state.TokensUsed{Used: []state.TokenUse{{ID: row.ID, At: start.Add(at)}, {ID: "missing", At: start}}})
	}
	use(time.Hour)
	use(time.Minute) // of a server that was slow to report
	if got, _ := k.Snapshot().Token(row.ID); !got.LastUsed.Equal(start.Add(time.Hour)) {
		t.Errorf("last used %s", got.LastUsed)
	}
	if n := len(k.Snapshot().Tokens()); n != 1 {
		t.Errorf("%d rows", n)
	}
	if err := k.apply(t, state.KindTokensUsed, state.TokensUsed{Used: make([]state.TokenUse, state.MaxTokens+1)}); !errors.Is(err, state.ErrInvalid) {
		t.Errorf("too many: %v", err)
	}
}
