package issuer

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"golang.org/x/oauth2"
)

// CallbackPath is where a redirect URI ends: the page of the dashboard to which an issuer returns a browser.
const CallbackPath = "/ui/login/callback"

// CheckRedirect says why a text is no redirect URI of the dashboard; nil if it is one.
func CheckRedirect(text string) error {
	if err := CheckURL(text); err != nil {
		return err
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Path != CallbackPath || strings.Contains(text, "?") {
		return fmt.Errorf("%q must be https://HOST[:PORT]%s, as the issuer has it", text, CallbackPath)
	}
	return nil
}

// BrowserLogin is a log-in of a browser that is under way: authorization code with PKCE (RFC 6749, section 4.1; RFC 7636). All that is
// secret in it follows from Secret, which the browser alone keeps meanwhile.
type BrowserLogin struct {
	Secret   string // random, 16 bytes at least
	Redirect string // the redirect URI of this log-in
}

// derive one value of the log-in: 43 characters, as a verifier of PKCE must have at least.
func (b BrowserLogin) derive(use string) string {
	h := hmac.New(sha256.New, []byte(b.Secret))
	h.Write([]byte(use))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// Nonce that the ID token of this log-in must have.
func (b BrowserLogin) Nonce() string { return b.derive("nonce") }

// Authorize is the address at the issuer to which the browser goes.
func (l Login) Authorize(b BrowserLogin) (string, error) {
	if l.At.Authorization == "" || l.At.Token == "" {
		return "", fmt.Errorf("the issuer %s has no log-in by authorization code", l.At.Issuer)
	}
	if err := CheckURL(l.At.Authorization); err != nil {
		return "", fmt.Errorf("authorization endpoint of %s: %w", l.At.Issuer, err)
	}
	more := []oauth2.AuthCodeOption{oauth2.SetAuthURLParam("nonce", b.Nonce()), oauth2.S256ChallengeOption(b.derive("verifier"))}
	if l.Audience != "" {
		more = append(more, oauth2.SetAuthURLParam("audience", l.Audience))
	}
	config := l.config()
	config.Endpoint.AuthURL, config.RedirectURL = l.At.Authorization, b.Redirect
	return config.AuthCodeURL(b.derive("state"), more...), nil
}

// ErrNotAsked: an answer that is of no log-in of this browser.
var ErrNotAsked = errors.New("this is the answer to no log-in that this browser began, or to an earlier one")

// ErrBusy: others log in.
var ErrBusy = errors.New("too many log-ins are under way")

// Check what came back with the browser, and return the code in it. Nothing of an answer to another log-in, or by another issuer
// (RFC 9207), is looked at.
func (l Login) Check(b BrowserLogin, answer url.Values) (code string, err error) {
	for _, name := range []string{"state", "code", "error", "iss"} {
		if len(answer[name]) > 1 { // RFC 6749, section 3.1
			return "", ErrNotAsked
		}
	}
	if b.Secret == "" || subtle.ConstantTimeCompare([]byte(answer.Get("state")), []byte(b.derive("state"))) != 1 {
		return "", ErrNotAsked
	}
	if iss := answer.Get("iss"); iss != l.At.Issuer && (iss != "" || l.At.NamesItself) {
		return "", fmt.Errorf("the answer is not of the issuer %s", l.At.Issuer)
	}
	if fault := answer.Get("error"); fault != "" {
		return "", Refusal(&oauth2.RetrieveError{ErrorCode: fault, ErrorDescription: answer.Get("error_description")})
	}
	if code = answer.Get("code"); code == "" || len(code) > maxURL {
		return "", errors.New("the answer of the issuer has no code")
	}
	return code, nil
}

// Exchange a code for tokens at the issuer. The issuer takes each code once.
func (l Login) Exchange(ctx context.Context, b BrowserLogin, code string) (Tokens, error) {
	config := l.config()
	config.RedirectURL = b.Redirect
	t, err := config.Exchange(l.context(ctx), code, oauth2.VerifierOption(b.derive("verifier")))
	if err != nil {
		return Tokens{}, fmt.Errorf("log in at %s: %w", l.At.Issuer, Refusal(err))
	}
	return tokensOf(t), nil
}
