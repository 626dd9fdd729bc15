package oidc

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"evenkeel/test/openid"
)

// now of the tests of claims.
var now = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// with are the claims of a good token, changed; nil takes a claim out.
func with(changes map[string]any) map[string]any {
	out := map[string]any{"iss": good().Issuer, "sub": "7f3a", "aud": "vcctl", "exp": now.Add(time.Hour).Unix(), "iat": now.Add(-time.Minute).Unix(),
		"preferred_username": "jane", "groups": []string{"staff", "ops"}}
	for k, v := range changes {
		if out[k] = v; v == nil {
			delete(out, k)
		}
	}
	return out
}

func signed(t testing.TB, claims map[string]any) (token string, payload []byte) {
	t.Helper()
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return openid.Sign(t, jose.ES256, key, "k", payload, nil), payload
}

// What the claims of a token that the issuer signed come to.
func TestClaims(t *testing.T) {
	type changes = map[string]any
	at := func(d time.Duration) int64 { return now.Add(d).Unix() }
	conf := good().WithDefaults()
	api := conf // takes access tokens of any client
	api.Audience = "https://evenkeel.example.org"
	for _, c := range []struct {
		name    string
		conf    Config
		changes changes
		refused string // "": taken
	}{
		{"good", conf, nil, ""},
		{"issuer", conf, changes{"iss": "https://id.example.org/realms/b"}, "different provider"},
		{"no issuer", conf, changes{"iss": nil}, "different provider"},
		{"audience", conf, changes{"aud": "other"}, "expected audience"},
		{"no audience", conf, changes{"aud": nil}, "expected audience"},
		{"audience of an API", conf, changes{"aud": api.Audience}, "expected audience"},
		{"several audiences", conf, changes{"aud": []string{"other", "vcctl"}}, "azp"},
		{"several audiences, issued to vcctl", conf, changes{"aud": []string{"other", "vcctl"}, "azp": "vcctl"}, ""},
		{"issued to another client", conf, changes{"azp": "other"}, "another client"},
		{"access token of another client", api, changes{"aud": []string{api.Audience, "account"}, "azp": "pipeline"}, ""},
		{"ID token where access tokens are wanted", api, nil, "expected audience"},
		{"expired", conf, changes{"exp": at(-time.Second)}, "expired at 2026-11-26T11:59:59Z"},
		{"expires now", conf, changes{"exp": at(0)}, "expired"},
		{"expires soon", conf, changes{"exp": at(time.Second)}, ""},
		{"no exp", conf, changes{"exp": nil}, "expired"},
		{"exp of no number", conf, changes{"exp": "soon"}, "claims"},
		{"no iat", conf, changes{"iat": nil}, "iat"},
		{"issued by a clock a little ahead", conf, changes{"iat": at(20 * time.Second)}, ""},
		{"issued in the future", conf, changes{"iat": at(2 * time.Minute)}, "clock"},
		{"too old", conf, changes{"iat": at(-25 * time.Hour)}, "maxAge"},
		{"not yet valid", conf, changes{"nbf": at(2 * time.Minute)}, "not valid yet"},
		{"valid by a clock a little ahead", conf, changes{"nbf": at(20 * time.Second)}, ""},
		{"nbf of no number", conf, changes{"nbf": "soon"}, "claims"},
		{"no subject", conf, changes{"sub": nil}, "subject"},
		{"subject of two lines", conf, changes{"sub": "a\nb"}, "subject"},
		{"long subject", conf, changes{"sub": strings.Repeat("x", 256)}, "subject"},
		{"bound to a key", conf, changes{"cnf": changes{"jkt": "x"}}, "bound"},
		{"logout token", conf, changes{"events": changes{"http://schemas.openid.net/event/backchannel-logout": changes{}}}, "events"},
		{"groups of no list", conf, changes{"groups": 7}, "groups must be"},
		{"many groups", conf, changes{"groups": make([]string, 1001)}, "more than 1000"},
		{"no groups", conf, changes{"groups": nil}, ""},
		{"one group", conf, changes{"groups": "ops"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			token, payload := signed(t, with(c.changes))
			id, err := c.conf.identify(token, payload, now)
			if c.refused == "" && err != nil || c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)) {
				t.Errorf("%+v, %v, want %q", id, err, c.refused)
			}
		})
	}
}

// An identity is the same for the same subject of the same issuer, and its name and end are bounded.
func TestIdentity(t *testing.T) {
	identity := func(conf Config, changes map[string]any) Identity {
		t.Helper()
		token, payload := signed(t, with(changes))
		id, err := conf.WithDefaults().identify(token, payload, now)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	jane := identity(good(), nil)
	if jane.Role != "operator" || jane.Name != "jane" || jane.Subject != "7f3a" || !jane.Until.Equal(now.Add(time.Hour)) || len(jane.ID) != len(IDPrefix)+16 {
		t.Errorf("%+v", jane)
	}
	later := identity(good(), map[string]any{"exp": now.Add(2 * time.Hour).Unix(), "preferred_username": "jane2", "groups": nil})
	if later.ID != jane.ID || later.Role != "" {
		t.Errorf("%+v", later)
	}
	other := good()
	other.Issuer = "https://id.example.net"
	if got := identity(other, map[string]any{"iss": other.Issuer}); got.ID == jane.ID {
		t.Error("the same id for the same subject of another issuer")
	}
	if got := identity(good(), map[string]any{"sub": "8"}); got.ID == jane.ID {
		t.Error("the same id for another subject")
	}
	short := good()
	short.MaxAge = 5 * time.Minute
	if got := identity(short, nil).Until; !got.Equal(now.Add(4 * time.Minute)) { // issued a minute ago
		t.Errorf("it ends at %s", got)
	}
	for name, want := range map[string]string{"": "7f3a", "  ": "7f3a", "J\u00f6rg\x1b[31m": "J?rg?[31m", strings.Repeat("n", 100): strings.Repeat("n", 60) + "..."} {
		if got := identity(good(), map[string]any{"preferred_username": name}).Name; got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// No payload brings identify down, and what it takes is within the rules.
func FuzzClaims(f *testing.F) {
	token, payload := signed(f, with(nil))
	f.Add(payload)
	for _, changes := range []map[string]any{{"exp": 1e300}, {"iat": -1}, {"aud": []any{1}}, {"nbf": 1.5}, {"groups": nil}, {"_claim_names": map[string]any{"groups": "s"}}} {
		_, payload := signed(f, with(maps.Clone(changes)))
		f.Add(payload)
	}
	conf := good().WithDefaults()
	f.Fuzz(func(t *testing.T, payload []byte) {
		id, err := conf.identify(token, payload, now)
		if err != nil {
			if len(err.Error()) > 1000 || strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' }) {
				t.Errorf("%q", err)
			}
			return
		}
		if !id.Until.After(now) || id.Until.After(now.Add(conf.MaxAge+Leeway)) || id.Subject == "" || len(id.Name) > maxName || id.Name == "" {
			t.Errorf("%+v", id)
		}
	})
}
