package issuer

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"
)

// Bounds of what the issuer says of a log-in by device flow.
const (
	maxInterval = time.Minute      // between two polls
	maxWait     = 30 * time.Minute // for the person at the browser
	maxCode     = 64               // bytes of the code that a person types
)

// Login is what a log-in asks for.
type Login struct {
	Client *http.Client
	At     Endpoints
	// ClientID is that of a public client, which has no secret.
	ClientID string
	// Audience is asked for beside the scopes if it is not "". Issuers that do not know the parameter ignore it.
	Audience string
	Scopes   []string
}

// Tokens are what an issuer gave. Refresh is "" if it gave none.
type Tokens struct {
	Access, ID, Refresh string
}

// Prompt is what a person has to do to finish a log-in.
type Prompt struct {
	URL, Code string
	// Complete is the URL with the code in it; "" if the issuer gave none.
	Complete string
	Until    time.Time
	device   *oauth2.DeviceAuthResponse
}

// DefaultScopes are asked for where none are configured, as far as the issuer lists them.
var DefaultScopes = []string{"openid", "profile", "groups", "offline_access"}

// Supported are the scopes of want that the issuer lists; all of want if it lists none.
func (e Endpoints) Supported(want []string) []string {
	if len(e.Scopes) == 0 {
		return want
	}
	var out []string
	for _, s := range want {
		if s == "openid" || slices.Contains(e.Scopes, s) {
			out = append(out, s)
		}
	}
	return out
}

func (l Login) config() *oauth2.Config {
	return &oauth2.Config{ClientID: l.ClientID, Scopes: l.Scopes,
		Endpoint: oauth2.Endpoint{TokenURL: l.At.Token, DeviceAuthURL: l.At.Device, AuthStyle: oauth2.AuthStyleInParams}}
}

func (l Login) context(ctx context.Context) context.Context {
	return context.WithValue(ctx, oauth2.HTTPClient, l.Client)
}

// Begin a log-in by device flow (RFC 8628, section 3.1).
func (l Login) Begin(ctx context.Context) (*Prompt, error) {
	if l.At.Device == "" || l.At.Token == "" {
		return nil, fmt.Errorf("the issuer %s has no log-in by device flow (RFC 8628): allow it there, or use a token of `vcctl token create`", l.At.Issuer)
	}
	var more []oauth2.AuthCodeOption
	if l.Audience != "" {
		more = append(more, oauth2.SetAuthURLParam("audience", l.Audience))
	}
	d, err := l.config().DeviceAuth(l.context(ctx), more...)
	if err != nil {
		return nil, fmt.Errorf("begin a log-in at %s: %w", l.At.Issuer, Refusal(err))
	}
	p := &Prompt{URL: d.VerificationURI, Code: d.UserCode, Complete: d.VerificationURIComplete, Until: d.Expiry, device: d}
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("begin a log-in at %s: %w", l.At.Issuer, err)
	}
	return p, nil
}

// check that what the issuer says can be shown on a terminal, and bound its times.
func (p *Prompt) check() error {
	if p.device.DeviceCode == "" || p.Code == "" || len(p.Code) > maxCode || !Printable(p.Code) {
		return errors.New("the issuer gave no code that can be shown")
	}
	if err := CheckURL(p.URL); err != nil || !Printable(p.URL) {
		return errors.New("the issuer gave no address of a page that can be shown")
	}
	if CheckURL(p.Complete) != nil || !Printable(p.Complete) {
		p.Complete = ""
	}
	p.device.Interval = max(0, min(p.device.Interval, int64(maxInterval/time.Second))) // 0: 5 s
	now := time.Now()
	if limit := now.Add(maxWait); !p.Until.After(now) || p.Until.After(limit) { // not given, or so many seconds that the library's count overflowed
		p.Until, p.device.Expiry = limit, limit
	}
	return nil
}

// Until a JSON Web Token is good by what it says, and for maxAge after it was issued. It is not verified: this is for its holder.
func Until(token string, maxAge time.Duration) (time.Time, error) {
	var claims struct {
		Expires float64 `json:"exp"`
		Issued  float64 `json:"iat"`
	}
	part := strings.Split(token, ".")
	if len(part) != 3 {
		return time.Time{}, errors.New("it is no JSON Web Token")
	}
	payload, err := base64.RawURLEncoding.DecodeString(part[1])
	if err == nil {
		err = json.Unmarshal(payload, &claims)
	}
	if err != nil || !(claims.Expires > 0 && claims.Expires < 1<<40 && claims.Issued > 0 && claims.Issued < 1<<40) {
		return time.Time{}, errors.New("it is no JSON Web Token that says until when it is good")
	}
	until, aged := time.Unix(int64(claims.Expires), 0), time.Unix(int64(claims.Issued), 0).Add(maxAge)
	if maxAge > 0 && aged.Before(until) {
		return aged, nil
	}
	return until, nil
}

// Printable says whether a text is of printable ASCII characters alone.
func Printable(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

// ErrExpired: the person did not finish the log-in in time.
var ErrExpired = errors.New("the code expired before the log-in was finished")

// Await the end of a log-in: the person at the browser. It polls as RFC 8628, section 3.5, says.
func (l Login) Await(ctx context.Context, p *Prompt) (Tokens, error) {
	t, err := l.config().DeviceAccessToken(l.context(ctx), p.device)
	var refused *oauth2.RetrieveError
	switch {
	case err == nil:
		return tokensOf(t), nil
	case ctx.Err() != nil:
		return Tokens{}, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &refused) && refused.ErrorCode == "expired_token":
		return Tokens{}, ErrExpired
	}
	return Tokens{}, fmt.Errorf("log in at %s: %w", l.At.Issuer, Refusal(err))
}

// ErrRefused: the issuer gives no further token for this log-in.
var ErrRefused = errors.New("the issuer refused")

// Refreshed tokens for a refresh token. The answer has the refresh token to keep: a new one, or the same. Where the issuer refuses, the
// error is ErrRefused: another log-in is needed.
func (l Login) Refreshed(ctx context.Context, refresh string) (Tokens, error) {
	if l.At.Token == "" {
		return Tokens{}, fmt.Errorf("refresh the log-in at %s: it has no token endpoint", l.At.Issuer)
	}
	t, err := l.config().TokenSource(l.context(ctx), &oauth2.Token{RefreshToken: refresh}).Token()
	if err != nil {
		return Tokens{}, fmt.Errorf("refresh the log-in at %s: %w", l.At.Issuer, Refusal(err))
	}
	return tokensOf(t), nil
}

// Revoke a refresh token (RFC 7009). false: the issuer cannot.
func (l Login) Revoke(ctx context.Context, refresh string) (bool, error) {
	if l.At.Revocation == "" || refresh == "" {
		return false, nil
	}
	form := url.Values{"token": {refresh}, "token_type_hint": {"refresh_token"}, "client_id": {l.ClientID}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, l.At.Revocation, strings.NewReader(form.Encode()))
	if err != nil {
		return false, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := l.Client.Do(r)
	if err != nil {
		return false, fmt.Errorf("revoke the log-in: %w", withoutURL(err))
	}
	defer resp.Body.Close()               //nolint:errcheck // read to its end or given up
	_, _ = io.Copy(io.Discard, resp.Body) // the status counts
	if resp.StatusCode != http.StatusOK {
		return false, fmt.Errorf("revoke the log-in: POST %s: %s", l.At.Revocation, resp.Status)
	}
	return true, nil
}

func tokensOf(t *oauth2.Token) Tokens {
	id, _ := t.Extra("id_token").(string)
	return Tokens{Access: t.AccessToken, ID: id, Refresh: t.RefreshToken}
}

// Refusal is the error of a request for tokens, without what the issuer answered beyond an error's code and description: that may hold
// secrets, or characters that a terminal obeys.
func Refusal(err error) error {
	var refused *oauth2.RetrieveError
	if !errors.As(err, &refused) {
		return withoutURL(err)
	}
	text := "no answer that can be read"
	if refused.Response != nil {
		text = refused.Response.Status
	}
	if refused.ErrorCode == "" || !Printable(refused.ErrorCode) {
		return errors.New(text)
	}
	text = refused.ErrorCode
	if d := refused.ErrorDescription; d != "" && len(d) <= 300 && Printable(d) {
		text += ": " + d
	}
	if refused.ErrorCode == "server_error" || refused.ErrorCode == "temporarily_unavailable" { // it may serve later
		return errors.New(text)
	}
	return fmt.Errorf("%w: %s", ErrRefused, text)
}
