package openid

import (
	"context"
	"crypto/rand"
	"errors"
	"html/template"
	"net/http"
	"time"

	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// loginPath is the page on which a person says who they are.
const loginPath = "/login"

// browserLogin is a log-in by authorization code.
type browserLogin struct {
	oidc.AuthRequest
	id, subject, code string
	audience          []string
	at                time.Time
}

func (b *browserLogin) GetID() string          { return b.id }
func (b *browserLogin) GetACR() string         { return "" }
func (b *browserLogin) GetAMR() []string       { return nil }
func (b *browserLogin) GetAudience() []string  { return b.audience }
func (b *browserLogin) GetAuthTime() time.Time { return b.at }
func (b *browserLogin) GetClientID() string    { return b.ClientID }
func (b *browserLogin) GetNonce() string       { return b.Nonce }
func (b *browserLogin) GetRedirectURI() string { return b.RedirectURI }
func (b *browserLogin) GetScopes() []string    { return b.Scopes }
func (b *browserLogin) GetState() string       { return b.State }
func (b *browserLogin) GetSubject() string     { return b.subject }
func (b *browserLogin) Done() bool             { return b.subject != "" }
func (b *browserLogin) GetCodeChallenge() *oidc.CodeChallenge {
	if b.CodeChallenge == "" {
		return nil
	}
	return &oidc.CodeChallenge{Challenge: b.CodeChallenge, Method: b.CodeChallengeMethod}
}

var loginForm = template.Must(template.New("").Parse(`<!doctype html><html lang="en"><title>Provider</title><main><h1>Provider of the test</h1>
<form method="post"><label>Subject <input name="subject"></label> <button>Sign in</button></form></main></html>`))

// loginPage asks a person who they are, and sends the browser back with a code.
func (p *Provider) loginPage(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		_ = loginForm.Execute(w, nil) // an error means that the browser is gone
		return
	}
	id := r.URL.Query().Get("id")
	p.mu.Lock()
	b := p.browsers[id]
	if b != nil {
		b.subject, b.at = r.PostFormValue("subject"), time.Now()
	}
	p.mu.Unlock()
	http.Redirect(w, r, "/authorize/callback?id="+id, http.StatusSeeOther)
}

var errNoLogin = errors.New("no such log-in")

// find a log-in by a browser. The caller does not hold the lock.
func (p *Provider) find(is func(*browserLogin) bool) (op.AuthRequest, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.browsers {
		if is(b) {
			out := *b
			return &out, nil
		}
	}
	return nil, errNoLogin
}

func (s storage) CreateAuthRequest(_ context.Context, q *oidc.AuthRequest, _ string) (op.AuthRequest, error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	b := &browserLogin{AuthRequest: *q, id: rand.Text(), audience: []string{q.ClientID}}
	if s.p.API != "" {
		b.audience = append(b.audience, s.p.API)
	}
	s.p.browsers[b.id] = b
	out := *b
	return &out, nil
}

func (s storage) AuthRequestByID(_ context.Context, id string) (op.AuthRequest, error) {
	return s.p.find(func(b *browserLogin) bool { return b.id == id })
}

func (s storage) AuthRequestByCode(_ context.Context, code string) (op.AuthRequest, error) {
	return s.p.find(func(b *browserLogin) bool { return b.code != "" && b.code == code })
}

func (s storage) SaveAuthCode(_ context.Context, id, code string) error {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if b := s.p.browsers[id]; b != nil {
		b.code = code
		return nil
	}
	return errNoLogin
}

// DeleteAuthRequest forgets a log-in once its code was used.
func (s storage) DeleteAuthRequest(_ context.Context, id string) error {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	delete(s.p.browsers, id)
	return nil
}
