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

// maxExchanges is how many log-ins of browsers may ask the issuer for tokens at a time.
const maxExchanges = 8

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

// FinishLogin takes what the issuer sent back with a browser, and returns the token for the API.
func (v *Verifier) FinishLogin(ctx context.Context, b issuer.BrowserLogin, answer url.Values) (string, error) {
	l, err := v.login()
	if err != nil {
		return "", err
	}
	code, err := l.Check(b, answer)
	if err != nil {
		return "", err
	}
	select {
	case v.exchanges <- struct{}{}:
		defer func() { <-v.exchanges }()
	default:
		return "", fmt.Errorf("%w: too many log-ins are under way; try again", ErrUnavailable)
	}
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
