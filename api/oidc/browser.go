package oidc

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"evenkeel/api/oidc/issuer"
)

// RedirectAt is the redirect URI of the dashboard for browsers that name a server so (host, or host:port); "": none is configured, and
// they cannot log in by the issuer.
func (v *Verifier) RedirectAt(host string) string {
	for _, text := range v.config.RedirectURIs {
		if u, err := url.Parse(text); err == nil && u.Host == host {
			return text
		}
	}
	return ""
}

// login is what a browser's log-in asks the issuer for. There is no refresh token: the session ends with its token.
func (v *Verifier) login() (issuer.Login, error) {
	at := v.endpoints.Load()
	if at == nil {
		return issuer.Login{}, fmt.Errorf("%w: the discovery document of %s was not read yet", ErrUnavailable, v.config.Issuer)
	}
	want := v.config.Scopes
	if len(want) == 0 {
		want = at.Supported(issuer.DefaultScopes)
	}
	want = slices.DeleteFunc(slices.Clone(want), func(s string) bool { return s == "offline_access" })
	l := issuer.Login{Client: v.client, At: *at, ClientID: v.config.ClientID, Scopes: want}
	if v.config.Audience != v.config.ClientID {
		l.Audience = v.config.Audience
	}
	return l, nil
}

// BeginLogin returns the address at the issuer to which a browser goes to log in.
func (v *Verifier) BeginLogin(b issuer.BrowserLogin) (string, error) {
	l, err := v.login()
	if err != nil {
		return "", err
	}
	return l.Authorize(b)
}

// CheckLogin returns the code in what the issuer sent back with the browser of a log-in.
func (v *Verifier) CheckLogin(b issuer.BrowserLogin, answer url.Values) (code string, err error) {
	l, err := v.login()
	if err != nil {
		return "", err
	}
	return l.Check(b, answer)
}

// FinishLogin asks the issuer for the token for the API, with the code that a browser at a client address (host:port) brought. The error is
// issuer.ErrBusy if too many log-ins are under way.
func (v *Verifier) FinishLogin(ctx context.Context, b issuer.BrowserLogin, code, from string) (string, error) {
	l, err := v.login()
	if err != nil {
		return "", err
	}
	end, err := v.exchanges.take(ctx, sourceOf(from))
	if err != nil {
		return "", err
	}
	defer end()
	t, err := l.Exchange(ctx, b, code)
	if err != nil {
		return "", err
	}
	if err := v.ofLogin(ctx, t.ID, b.Nonce()); err != nil {
		return "", fmt.Errorf("%w: the ID token of this log-in: %w", ErrRefused, err)
	}
	if v.config.Audience != v.config.ClientID {
		return t.Access, nil
	}
	return t.ID, nil
}

// ofLogin checks that an ID token is good, was made for our client, and for the log-in that has the nonce
// (OpenID Connect Core 1.0, section 3.1.3.7).
func (v *Verifier) ofLogin(ctx context.Context, token, nonce string) error {
	c := v.config
	c.Audience = c.ClientID
	payload, err := v.signed(ctx, token)
	if err != nil {
		return err
	}
	if _, err := c.identify(token, payload, time.Now()); err != nil {
		return err
	}
	var q struct {
		Nonce string `json:"nonce"`
	}
	if json.Unmarshal(payload, &q) != nil || subtle.ConstantTimeCompare([]byte(q.Nonce), []byte(nonce)) != 1 {
		return errors.New("it was made for another log-in (nonce)")
	}
	return nil
}
