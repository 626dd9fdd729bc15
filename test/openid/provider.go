// Package openid runs an OpenID Connect issuer for tests: a real one, of github.com/zitadel/oidc, on this machine, with
// log-ins by browser and by device flow, refresh tokens, and keys that can be replaced.
package openid

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// ClientID is the public client that the provider knows.
const ClientID = "vcctl"

// Person is a user of the provider.
type Person struct {
	Subject, Name string
	Groups        []string
}

// Provider is an issuer that runs until its test ends.
type Provider struct {
	Issuer string
	// API is the audience of access tokens; "": they have none.
	API string
	// Redirects are the redirect URIs that the client may have browsers sent back to.
	Redirects []string
	CAFile    string // of its certificate

	server *httptest.Server
	http   http.Handler

	mu       sync.Mutex
	life     time.Duration
	keys     []key // the last one signs
	people   map[string]Person
	devices  map[string]*op.DeviceAuthorizationState // by their codes
	codes    map[string]string                       // device codes by user codes
	refresh  map[string]*refreshRequest
	revoked  []string
	browsers map[string]*browserLogin // log-ins by a browser, by their ids
	requests map[string]int           // by path
	fault    http.HandlerFunc
	faultAt  string
}

// Start a provider on this machine, whose tokens live so long. It runs until the test ends.
func Start(t testing.TB, life time.Duration, people ...Person) *Provider {
	t.Helper()
	p := empty(life, people)
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(p.serve))
	p.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	p.server.StartTLS()
	t.Cleanup(p.server.Close)
	p.CAFile = filepath.Join(t.TempDir(), "issuer-ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	if err := os.WriteFile(p.CAFile, block, 0o644); err != nil {
		t.Fatal(err)
	}
	p.open(t, p.server.URL)
	return p
}

// InMemory makes a provider that is reached by its RoundTrip alone, for bubbles of testing/synctest.
func InMemory(t testing.TB, life time.Duration, people ...Person) *Provider {
	t.Helper()
	p := empty(life, people)
	p.open(t, "https://id.example.org")
	return p
}

func empty(life time.Duration, people []Person) *Provider {
	p := &Provider{life: life, people: map[string]Person{}, devices: map[string]*op.DeviceAuthorizationState{}, codes: map[string]string{},
		refresh: map[string]*refreshRequest{}, requests: map[string]int{}, browsers: map[string]*browserLogin{}}
	for _, one := range people {
		p.people[one.Subject] = one
	}
	return p
}

func (p *Provider) open(t testing.TB, issuer string) {
	t.Helper()
	p.Issuer = issuer
	p.Rotate(t, false)
	config := &op.Config{GrantTypeRefreshToken: true, CodeMethodS256: true, SupportedScopes: []string{"openid", "profile", "groups", "offline_access"},
		DeviceAuthorization: op.DeviceAuthorizationConfig{Lifetime: 5 * time.Minute, PollInterval: time.Second, UserFormPath: "/device", UserCode: op.UserCodeBase20}}
	if _, err := rand.Read(config.CryptoKey[:]); err != nil {
		t.Fatal(err)
	}
	handler, err := op.NewProvider(config, storage{p}, op.StaticIssuer(p.Issuer), op.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.http = handler
}

// RoundTrip implements http.RoundTripper: the provider answers without a network.
func (p *Provider) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	in := r.Clone(r.Context())
	in.RequestURI, in.Host = r.URL.RequestURI(), r.URL.Host
	if in.Body == nil {
		in.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	p.serve(w, in)
	out := w.Result()
	out.Request = r
	return out, nil
}

func (p *Provider) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.requests[r.URL.Path]++
	next := p.http
	if r.URL.Path == loginPath {
		next = http.HandlerFunc(p.loginPage)
	}
	if p.fault != nil && (p.faultAt == "" || p.faultAt == r.URL.Path) {
		next = p.fault
	}
	p.mu.Unlock()
	next.ServeHTTP(w, r)
}

// Fail answers requests for a path ("": for any) with a handler; nil: no longer.
func (p *Provider) Fail(path string, with http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.faultAt = with, path
}

// Down answers nothing but errors, until Fail is called.
func (p *Provider) Down() {
	p.Fail("", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
}

// Requests counts those for a path since the start.
func (p *Provider) Requests(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests[path]
}

// Rotate makes a new key, which signs from now on. keep: the earlier keys stay in the key set.
func (p *Provider) Rotate(t testing.TB, keep bool) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	if !keep {
		p.keys = nil
	}
	p.keys = append(p.keys, key{id: rand.Text(), alg: jose.RS256, private: private, public: &private.PublicKey})
}

// RotateToES256 makes a new key for ES256, beside the others.
func (p *Provider) RotateToES256(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p.keys = append(p.keys, key{id: rand.Text(), alg: jose.ES256, private: private, public: &private.PublicKey})
}

// Sign claims with the key that signs now, as the provider would. header: of the token, beside alg and kid.
func (p *Provider) Sign(t testing.TB, claims []byte, header map[string]any) string {
	t.Helper()
	p.mu.Lock()
	k := p.keys[len(p.keys)-1]
	p.mu.Unlock()
	return Sign(t, k.alg, k.private, k.id, claims, header)
}

// Sign claims with any key.
func Sign(t testing.TB, alg jose.SignatureAlgorithm, private any, id string, claims []byte, header map[string]any) string {
	t.Helper()
	o := &jose.SignerOptions{}
	for name, value := range header {
		o.WithHeader(jose.HeaderKey(name), value)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: private, KeyID: id}}, o)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(claims)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// PublicKey that verifies what the provider signs now, and its id.
func (p *Provider) PublicKey() (*rsa.PublicKey, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.keys[len(p.keys)-1]
	public, _ := k.public.(*rsa.PublicKey)
	return public, k.id
}

// Live is how long tokens live that are made from now on.
func (p *Provider) Live(life time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.life = life
}

// Change a person, such as the groups of one.
func (p *Provider) Change(one Person) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.people[one.Subject] = one
}

// Approve a log-in at the device page, as the person would in a browser. It says whether the code is known.
func (p *Provider) Approve(userCode, subject string) bool { return p.decide(userCode, subject, true) }

// Deny a log-in.
func (p *Provider) Deny(userCode string) bool { return p.decide(userCode, "", false) }

func (p *Provider) decide(userCode, subject string, yes bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.devices[p.codes[userCode]]
	if d == nil {
		return false
	}
	d.Done, d.Denied, d.Subject, d.AuthTime = yes, !yes, subject, time.Now()
	return true
}

// Forget all refresh tokens, as an administrator does who ends the sessions of all.
func (p *Provider) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refresh = map[string]*refreshRequest{}
}

// Revoked counts the refresh tokens that clients revoked.
func (p *Provider) Revoked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.revoked)
}

// Endless answers with a JSON text that has no end, until the client leaves.
func Endless(w http.ResponseWriter, _ *http.Request) {
	if _, err := io.WriteString(w, `{"keys":[`); err != nil {
		return
	}
	for {
		if _, err := io.WriteString(w, `{"kty":"RSA","n":"AQAB","e":"AQAB"},`); err != nil {
			return
		}
	}
}

type key struct {
	id              string
	alg             jose.SignatureAlgorithm
	private, public any
}

func (k key) ID() string                                  { return k.id }
func (k key) Algorithm() jose.SignatureAlgorithm          { return k.alg }
func (k key) SignatureAlgorithm() jose.SignatureAlgorithm { return k.alg }
func (k key) Use() string                                 { return "sig" }

// publicKey is a key in the key set, signingKey the one that signs.
type (
	publicKey  struct{ key }
	signingKey struct{ key }
)

func (k publicKey) Key() any  { return k.public }
func (k signingKey) Key() any { return k.private }

// refreshRequest is what a refresh token is good for.
type refreshRequest struct {
	subject  string
	audience []string
	scopes   []string
	at       time.Time
}

func (r *refreshRequest) GetAMR() []string            { return nil }
func (r *refreshRequest) GetAudience() []string       { return r.audience }
func (r *refreshRequest) GetAuthTime() time.Time      { return r.at }
func (r *refreshRequest) GetClientID() string         { return ClientID }
func (r *refreshRequest) GetScopes() []string         { return r.scopes }
func (r *refreshRequest) GetSubject() string          { return r.subject }
func (r *refreshRequest) SetCurrentScopes(s []string) { r.scopes = s }

// errNotHere: what these tests do not use.
var errNotHere = errors.New("this provider does not have that")

// storage implements op.Storage.
type storage struct{ p *Provider }

func (s storage) CreateAccessToken(context.Context, op.TokenRequest) (string, time.Time, error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return rand.Text(), time.Now().Add(s.p.life), nil
}

func (s storage) CreateAccessAndRefreshTokens(_ context.Context, r op.TokenRequest, current string) (string, string, time.Time, error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if current != "" && s.p.refresh[current] == nil {
		return "", "", time.Time{}, op.ErrInvalidRefreshToken
	}
	delete(s.p.refresh, current) // each serves once
	token := rand.Text()
	s.p.refresh[token] = &refreshRequest{r.GetSubject(), r.GetAudience(), r.GetScopes(), time.Now()}
	return rand.Text(), token, time.Now().Add(s.p.life), nil
}

func (s storage) TokenRequestByRefreshToken(_ context.Context, token string) (op.RefreshTokenRequest, error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if r := s.p.refresh[token]; r != nil {
		return r, nil
	}
	return nil, op.ErrInvalidRefreshToken
}

func (s storage) RevokeToken(_ context.Context, token, _, _ string) *oidc.Error {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if s.p.refresh[token] != nil {
		s.p.revoked = append(s.p.revoked, token)
		delete(s.p.refresh, token)
	}
	return nil
}

func (s storage) GetRefreshTokenInfo(_ context.Context, _, token string) (string, string, error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if r := s.p.refresh[token]; r != nil {
		return r.subject, token, nil
	}
	return "", "", op.ErrInvalidRefreshToken
}

func (s storage) SigningKey(context.Context) (op.SigningKey, error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return signingKey{s.p.keys[len(s.p.keys)-1]}, nil
}

func (s storage) SignatureAlgorithms(context.Context) ([]jose.SignatureAlgorithm, error) {
	return []jose.SignatureAlgorithm{jose.RS256, jose.ES256}, nil
}

func (s storage) KeySet(context.Context) ([]op.Key, error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	var out []op.Key
	for _, k := range s.p.keys {
		out = append(out, publicKey{k})
	}
	return out, nil
}

func (s storage) StoreDeviceAuthorization(_ context.Context, clientID, deviceCode, userCode string, expires time.Time, scopes []string) error {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.p.devices[deviceCode] = &op.DeviceAuthorizationState{ClientID: clientID, Expires: expires, Scopes: scopes}
	if s.p.API != "" {
		s.p.devices[deviceCode].Audience = []string{s.p.API}
	}
	s.p.codes[userCode] = deviceCode
	return nil
}

func (s storage) GetDeviceAuthorizatonState(_ context.Context, clientID, deviceCode string) (*op.DeviceAuthorizationState, error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	d := s.p.devices[deviceCode]
	if d == nil || d.ClientID != clientID {
		return nil, errors.New("no such code")
	}
	if d.Done {
		delete(s.p.devices, deviceCode)
	}
	out := *d
	return &out, nil
}

func (s storage) SetUserinfoFromScopes(_ context.Context, u *oidc.UserInfo, subject, _ string, scopes []string) error {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	one, ok := s.p.people[subject]
	if !ok {
		return fmt.Errorf("no user %s", subject)
	}
	u.Subject, u.PreferredUsername = subject, one.Name
	if slices.Contains(scopes, "groups") {
		u.AppendClaims("groups", one.Groups)
	}
	return nil
}

func (s storage) GetPrivateClaimsFromScopes(context.Context, string, string, []string) (map[string]any, error) {
	return nil, nil
}

func (s storage) GetClientByClientID(_ context.Context, id string) (op.Client, error) {
	if id != ClientID {
		return nil, errors.New("no such client")
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return public{s.p.life, slices.Clone(s.p.Redirects)}, nil
}

func (s storage) Health(context.Context) error                                  { return nil }
func (s storage) TerminateSession(context.Context, string, string) error        { return errNotHere }
func (s storage) AuthorizeClientIDSecret(context.Context, string, string) error { return errNotHere }
func (s storage) SetUserinfoFromToken(ctx context.Context, u *oidc.UserInfo, _, subject, _ string) error {
	return s.SetUserinfoFromScopes(ctx, u, subject, ClientID, []string{"groups"})
}
func (s storage) SetIntrospectionFromToken(context.Context, *oidc.IntrospectionResponse, string, string, string) error {
	return errNotHere
}
func (s storage) GetKeyByIDAndClientID(context.Context, string, string) (*jose.JSONWebKey, error) {
	return nil, errNotHere
}
func (s storage) ValidateJWTProfileScopes(context.Context, string, []string) ([]string, error) {
	return nil, errNotHere
}

// public is the one client: vcctl, without a secret.
type public struct {
	life      time.Duration
	redirects []string
}

func (public) GetID() string                        { return ClientID }
func (c public) RedirectURIs() []string             { return c.redirects }
func (public) PostLogoutRedirectURIs() []string     { return nil }
func (public) ApplicationType() op.ApplicationType  { return op.ApplicationTypeNative }
func (public) AuthMethod() oidc.AuthMethod          { return oidc.AuthMethodNone }
func (public) ResponseTypes() []oidc.ResponseType   { return []oidc.ResponseType{oidc.ResponseTypeCode} }
func (public) LoginURL(id string) string            { return loginPath + "?id=" + id }
func (public) AccessTokenType() op.AccessTokenType  { return op.AccessTokenTypeJWT }
func (c public) IDTokenLifetime() time.Duration     { return c.life }
func (public) DevMode() bool                        { return false }
func (public) IsScopeAllowed(scope string) bool     { return scope == "groups" }
func (public) IDTokenUserinfoClaimsAssertion() bool { return true }
func (public) ClockSkew() time.Duration             { return 0 }
func (public) GrantTypes() []oidc.GrantType {
	return []oidc.GrantType{oidc.GrantTypeCode, oidc.GrantTypeDeviceCode, oidc.GrantTypeRefreshToken}
}
func (public) RestrictAdditionalIdTokenScopes() func([]string) []string {
	return func(scopes []string) []string { return scopes }
}
func (public) RestrictAdditionalAccessTokenScopes() func([]string) []string {
	return func(scopes []string) []string { return scopes }
}
