package oidc

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"evenkeel/api/oidc/issuer"
	"evenkeel/test/openid"
	"evenkeel/test/patience"
)

var jane = openid.Person{Subject: "7f3a", Name: "jane", Groups: []string{"staff", "ops"}}

// of a provider: the configuration of a server that trusts it.
func of(p *openid.Provider) Config {
	return Config{Issuer: p.Issuer, ClientID: openid.ClientID, CAFile: p.CAFile, Roles: []Mapping{{Group: "ops", Role: "operator"}}}
}

// start a verifier, and wait for its first fetch.
func start(t *testing.T, c Config) *Verifier {
	t.Helper()
	v, err := Start(c, Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	fetches(t, v, 1)
	return v
}

// fetches waits until the verifier has fetched the keys so often, or tried to.
func fetches(t *testing.T, v *Verifier, n uint64) {
	t.Helper()
	patience.Eventually(t, patience.Stall, "the keys are fetched", func() any { return v.tries.Load() }, func() bool { return v.tries.Load() >= n })
}

// claimsOf a good token of a provider.
func claimsOf(t testing.TB, p *openid.Provider) []byte {
	t.Helper()
	b, err := json.Marshal(map[string]any{"iss": p.Issuer, "sub": "7f3a", "aud": openid.ClientID, "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(), "groups": []string{"ops"}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// login by device flow, as vcctl does.
func login(t *testing.T, p *openid.Provider, scopes ...string) (issuer.Login, issuer.Tokens) {
	t.Helper()
	client, err := issuer.NewClient(p.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	at, err := issuer.Discover(t.Context(), client, p.Issuer)
	if err != nil {
		t.Fatal(err)
	}
	l := issuer.Login{Client: client, At: at, ClientID: openid.ClientID, Scopes: scopes}
	prompt, err := l.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(prompt.URL, p.Issuer) || !p.Approve(prompt.Code, "7f3a") {
		t.Fatalf("%+v", prompt)
	}
	tokens, err := l.Await(t.Context(), prompt)
	if err != nil {
		t.Fatal(err)
	}
	return l, tokens
}

// A real issuer's tokens, of a log-in by device flow and refreshed, are taken; after its key was replaced as well.
func TestRealIssuer(t *testing.T) {
	p := openid.Start(t, time.Hour, jane)
	v := start(t, of(p))
	l, tokens := login(t, p, "openid", "profile", "groups", "offline_access")
	id, err := v.Verify(t.Context(), tokens.ID)
	if err != nil || id.Subject != "7f3a" || id.Name != "jane" || id.Role != "operator" || len(id.Groups) != 2 {
		t.Fatalf("%+v, %v", id, err)
	}
	if left := time.Until(id.Until); left <= 0 || left > time.Hour {
		t.Errorf("it ends in %s", left)
	}
	access, err := v.Verify(t.Context(), tokens.Access)
	if err != nil || access.ID != id.ID || access.Role != "" { // this issuer's access tokens have no groups
		t.Errorf("%+v, %v", access, err)
	}
	if _, err := v.Verify(t.Context(), tokens.Refresh); !errors.Is(err, ErrRefused) {
		t.Errorf("a refresh token: %v", err)
	}
	p.Change(openid.Person{Subject: "7f3a", Name: "jane", Groups: []string{"staff"}})
	p.Rotate(t, true)
	again, err := l.Refreshed(t.Context(), tokens.Refresh)
	if err != nil || again.Refresh == tokens.Refresh || again.ID == "" {
		t.Fatal(again, err)
	}
	if id, err := v.Verify(t.Context(), again.ID); err != nil || id.Role != "" {
		t.Errorf("%+v, %v", id, err)
	}
	if _, err := l.Refreshed(t.Context(), tokens.Refresh); !errors.Is(err, issuer.ErrRefused) {
		t.Errorf("a refresh token was used twice: %v", err)
	}
	if revoked, err := l.Revoke(t.Context(), again.Refresh); err != nil || !revoked || p.Revoked() != 1 {
		t.Errorf("%v, %v", revoked, err)
	}
	if _, err := l.Refreshed(t.Context(), again.Refresh); !errors.Is(err, issuer.ErrRefused) {
		t.Errorf("a refresh token that was revoked: %v", err)
	}
	p.RotateToES256(t)
	if _, err := v.Verify(t.Context(), p.Sign(t, claimsOf(t, p), nil)); !errors.Is(err, ErrRefused) {
		t.Errorf("a second unknown key within a minute: %v", err)
	}
	v.mu.Lock()
	v.asked = time.Time{}
	v.mu.Unlock()
	if _, err := v.Verify(t.Context(), p.Sign(t, claimsOf(t, p), nil)); err != nil {
		t.Errorf("a key of another kind: %v", err)
	}
}

// Forged and misused tokens are refused, and no error shows what they hold.
func TestAttacks(t *testing.T) {
	p := openid.Start(t, time.Hour, jane)
	v := start(t, of(p))
	claims := claimsOf(t, p)
	good := p.Sign(t, claims, map[string]any{"typ": "JWT"})
	if id, err := v.Verify(t.Context(), good); err != nil || id.Role != "operator" {
		t.Fatal(id, err)
	}
	if _, err := v.Verify(t.Context(), p.Sign(t, claims, map[string]any{"typ": "at+jwt"})); err != nil {
		t.Fatal(err)
	}
	public, kid := p.PublicKey()
	own, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	part := strings.Split(good, ".")
	encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	admin := encode(strings.Replace(string(claims), `"ops"`, `"root"`, 1))
	other := openid.Start(t, time.Hour, jane)
	jwk, err := json.Marshal(jose.JSONWebKey{Key: &own.PublicKey, KeyID: kid, Algorithm: "RS256"})
	if err != nil {
		t.Fatal(err)
	}
	full := `{"payload":"` + part[1] + `","protected":"` + part[0] + `","signature":"` + part[2] + `"}`
	for name, token := range map[string]string{
		"alg none":                      encode(`{"alg":"none"}`) + "." + part[1] + ".",
		"alg None with the signature":   encode(`{"alg":"None","kid":"`+kid+`"}`) + "." + part[1] + "." + part[2],
		"no alg":                        encode(`{"kid":"`+kid+`"}`) + "." + part[1] + "." + part[2],
		"HS256 with the public key":     openid.Sign(t, jose.HS256, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), kid, claims, nil),
		"HS256 with the DER of the key": openid.Sign(t, jose.HS256, der, kid, claims, nil),
		"RS512 with a key for RS256":    openid.Sign(t, jose.RS512, own, kid, claims, nil),
		"the kid of another key":        openid.Sign(t, jose.RS256, own, kid, claims, nil),
		"an own key":                    openid.Sign(t, jose.RS256, own, "mine", claims, nil),
		"an own key, no kid":            openid.Sign(t, jose.RS256, own, "", claims, nil),
		"an own key in the header":      openid.Sign(t, jose.RS256, own, kid, claims, map[string]any{"jwk": json.RawMessage(jwk)}),
		"the address of a key":          openid.Sign(t, jose.RS256, own, kid, claims, map[string]any{"jku": other.Issuer + "/keys"}),
		"another issuer's":              other.Sign(t, claimsOf(t, other), nil),
		"other claims":                  part[0] + "." + admin + "." + part[2],
		"no signature":                  part[0] + "." + part[1] + ".",
		"a logout token":                p.Sign(t, claims, map[string]any{"typ": "logout+jwt"}),
		"a proof of possession":         p.Sign(t, claims, map[string]any{"typ": "dpop+jwt"}),
		"a typ that is no text":         p.Sign(t, claims, map[string]any{"typ": 7}),
		"a critical header":             p.Sign(t, claims, map[string]any{"crit": []string{"x"}, "x": 1}),
		"the full form of a signature":  full,
		"huge":                          p.Sign(t, []byte(`{"a":"`+strings.Repeat("x", MaxToken)+`",`+string(claims[1:])), nil),
		"four parts":                    good + ".x",
		"nothing":                       "",
	} {
		t.Run(name, func(t *testing.T) {
			id, err := v.Verify(t.Context(), token)
			if !errors.Is(err, ErrRefused) {
				t.Fatalf("%+v, %v", id, err)
			}
			for _, secret := range strings.Split(token, ".") {
				if len(secret) > 8 && strings.Contains(err.Error(), secret) {
					t.Errorf("%v", err)
				}
			}
		})
	}
}

// However many tokens of unknown keys come, the keys are fetched once a minute for them.
func TestUnknownKeysFetchOnce(t *testing.T) {
	p := openid.Start(t, time.Hour, jane)
	v := start(t, of(p))
	before := p.Requests("/keys")
	own, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	token := openid.Sign(t, jose.RS256, own, "mine", claimsOf(t, p), nil)
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			if _, err := v.Verify(t.Context(), token); !errors.Is(err, ErrRefused) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := p.Requests("/keys") - before; got != 1 {
		t.Errorf("the keys were fetched %d times", got)
	}
	if n := v.Stats(); n.Refused != 200 || n.Accepted != 0 {
		t.Errorf("%+v", n)
	}
}

// Bad answers of the issuer end in bounds, say what is wrong, and leave the keys that are known.
func TestBadAnswers(t *testing.T) {
	elsewhere := openid.Start(t, time.Hour)
	document := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
	}
	for _, c := range []struct {
		name, path string
		answer     http.HandlerFunc
		want       string
	}{
		{"endless keys", "/keys", openid.Endless, "more than 262144 bytes"},
		{"endless discovery", wellKnown, openid.Endless, "more than 262144 bytes"},
		{"a redirect of the keys", "/keys", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.Issuer+"/keys", http.StatusFound)
		}, "redirects are not followed"},
		{"a redirect of the discovery", wellKnown, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.Issuer+wellKnown, http.StatusFound)
		}, "redirects are not followed"},
		{"an error", "/keys", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }, "418"},
		{"another issuer", wellKnown, document(`{"issuer":"` + elsewhere.Issuer + `","jwks_uri":"` + elsewhere.Issuer + `/keys"}`), "that of the issuer"},
		{"keys without TLS", wellKnown, nil, "this machine alone"}, // the answer names the issuer: below
		{"no JSON", "/keys", document("<html>"), "cannot be read"},
		{"no keys", "/keys", document(`{"keys":[]}`), "none of 0 keys"},
		{"symmetric key", "/keys", document(`{"keys":[{"kty":"oct","k":"AAAA","kid":"a","alg":"HS256"}]}`), "none of 1 keys"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := openid.Start(t, time.Hour, jane)
			v := start(t, of(p))
			if c.answer == nil {
				c.answer = document(`{"issuer":"` + p.Issuer + `","jwks_uri":"http://id.example.org/keys"}`)
			}
			p.Fail(c.path, c.answer)
			err := v.fetch(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if _, err := v.Verify(t.Context(), p.Sign(t, claimsOf(t, p), nil)); err != nil {
				t.Errorf("a key that is known: %v", err)
			}
		})
	}
}

const wellKnown = "/.well-known/openid-configuration"

// A certificate of a CA that is not trusted is refused, and a server starts without the issuer and says why.
func TestUntrustedIssuer(t *testing.T) {
	p := openid.Start(t, time.Hour, jane)
	c := of(p)
	c.CAFile = ""
	v := start(t, c)
	_, err := v.Verify(t.Context(), p.Sign(t, claimsOf(t, p), nil))
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("%v", err)
	}
	c.CAFile = "/nonexistent/ca.pem"
	if _, err := Start(c, Options{}); err == nil || !strings.Contains(err.Error(), "oidc.caFile") {
		t.Errorf("%v", err)
	}
}

// issuerOf answers for the issuer within a bubble of fake time.
type issuerOf struct {
	keys  atomic.Pointer[string]
	down  atomic.Bool
	hangs atomic.Bool
	asked atomic.Int32
}

// RoundTrip implements http.RoundTripper.
func (i *issuerOf) RoundTrip(r *http.Request) (*http.Response, error) {
	i.asked.Add(1)
	if i.hangs.Load() {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if i.down.Load() {
		return nil, errors.New("connection refused")
	}
	text := *i.keys.Load()
	if strings.HasSuffix(r.URL.Path, wellKnown) {
		text = `{"issuer":"` + good().Issuer + `","jwks_uri":"` + good().Issuer + `/keys"}`
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
}

func (i *issuerOf) list(t *testing.T, id string, key *rsa.PrivateKey) {
	b, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: id, Algorithm: "RS256", Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	i.keys.Store(&text)
}

// fresh is a good token of the issuer in the bubble.
func fresh(t *testing.T, id string, key *rsa.PrivateKey) string {
	b, err := json.Marshal(with(map[string]any{"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}))
	if err != nil {
		t.Fatal(err)
	}
	return openid.Sign(t, jose.RS256, key, id, b, nil)
}

// While the issuer is down, the keys serve for 24 hours, and then the reason is said. Once it is back they are fetched within 30 s.
func TestIssuerDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := &issuerOf{}
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		at.list(t, "1", key)
		at.down.Store(true)
		v, err := Start(good(), Options{Client: issuer.Bound(at), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		verify := func() error {
			_, err := v.Verify(t.Context(), fresh(t, "1", key))
			return err
		}
		time.Sleep(time.Second)
		if err := verify(); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("it was never up: %v", err)
		}
		at.down.Store(false)
		time.Sleep(retryEvery)
		if err := verify(); err != nil {
			t.Errorf("it is up: %v", err)
		}
		at.down.Store(true)
		time.Sleep(KeysServe - time.Hour)
		if err := verify(); err != nil {
			t.Errorf("it is down for some hours: %v", err)
		}
		time.Sleep(2 * time.Hour)
		if err := verify(); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "connection refused") || !strings.Contains(err.Error(), "24h") {
			t.Errorf("it is down for more than a day: %v", err)
		}
		at.down.Store(false)
		time.Sleep(retryEvery)
		if err := verify(); err != nil {
			t.Errorf("it is back: %v", err)
		}
	})
}

// A token of a new key waits a second at most while the issuer hangs, a token of a known key not at all.
func TestIssuerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := &issuerOf{}
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		at.list(t, "1", key)
		v, err := Start(good(), Options{Client: issuer.Bound(at), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		synctest.Wait()
		at.hangs.Store(true)
		at.list(t, "2", key)
		begin := time.Now()
		_, err = v.Verify(t.Context(), fresh(t, "2", key))
		if took := time.Since(begin); !errors.Is(err, ErrRefused) || took != keyWait {
			t.Errorf("%v after %s", err, took)
		}
		begin = time.Now()
		if _, err := v.Verify(t.Context(), fresh(t, "1", key)); err != nil || time.Since(begin) != 0 {
			t.Errorf("a key that is known: %v after %s", err, time.Since(begin))
		}
		time.Sleep(time.Minute) // the fetch that hangs ended after 10 s
		at.hangs.Store(false)
		asked := at.asked.Load()
		if _, err := v.Verify(t.Context(), fresh(t, "2", key)); err != nil {
			t.Errorf("the new key: %v", err)
		}
		if asked == at.asked.Load() && v.Stats().Fetched.IsZero() {
			t.Error("it was not asked")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := v.Verify(ctx, fresh(t, "3", key)); err == nil {
			t.Error("a request that was given up")
		}
	})
}

// BenchmarkVerify verifies a token of RS256 by a key that is known.
func BenchmarkVerify(b *testing.B) {
	p := openid.InMemory(b, time.Hour, jane)
	c := of(p)
	c.CAFile = ""
	v, err := Start(c, Options{Client: issuer.Bound(p), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer v.Close()
	patience.Eventually(b, patience.Stall, "the keys are fetched", func() any { return v.tries.Load() }, func() bool { return v.tries.Load() > 0 })
	token := p.Sign(b, claimsOf(b, p), nil)
	b.ResetTimer()
	for b.Loop() {
		if _, err := v.Verify(b.Context(), token); err != nil {
			b.Fatal(err)
		}
	}
}
