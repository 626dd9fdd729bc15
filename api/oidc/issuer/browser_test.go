package issuer_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"evenkeel/api/oidc/issuer"
)

func TestCheckRedirect(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{
		"https://h1:7480/ui/login/callback":        true,
		"https://h1.example.org/ui/login/callback": true,
		"http://127.0.0.1:1/ui/login/callback":     false,
		"https://h1/ui/login/callback?x=1":         false,
		"https://h1/ui/login/callback?":            false,
		"https://h1/ui/login/callback#x":           false,
		"https://h1/ui/":                           false,
		"https://u@h1/ui/login/callback":           false,
		"/ui/login/callback":                       false,
		"":                                         false,
	} {
		if err := issuer.CheckRedirect(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestCheckAnswers: an answer counts for the log-in that began in this browser alone, and of the issuer alone.
func TestCheckAnswers(t *testing.T) {
	t.Parallel()
	at := issuer.Endpoints{Issuer: "https://id.example.org", Authorization: "https://id.example.org/auth", Token: "https://id.example.org/token"}
	l := issuer.Login{At: at, ClientID: "c", Scopes: []string{"openid"}}
	mine := issuer.BrowserLogin{Secret: strings.Repeat("a", 26), Redirect: "https://h1/ui/login/callback"}
	other := issuer.BrowserLogin{Secret: strings.Repeat("b", 26), Redirect: mine.Redirect}
	stateOf := func(b issuer.BrowserLogin) string {
		to, err := l.Authorize(b)
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(to)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		if q.Get("code_challenge_method") != "S256" || len(q.Get("code_challenge")) != 43 || q.Get("nonce") != b.Nonce() || q.Get("redirect_uri") != b.Redirect ||
			q.Get("response_type") != "code" || b.Secret != "" && strings.Contains(to, b.Secret) {
			t.Fatal(to)
		}
		for _, pair := range [][2]string{{"state", "nonce"}, {"state", "code_challenge"}, {"nonce", "code_challenge"}} {
			if q.Get(pair[0]) == q.Get(pair[1]) {
				t.Fatalf("%v are the same in %s", pair, to)
			}
		}
		return q.Get("state")
	}
	state := stateOf(mine)
	for _, c := range []struct {
		what   string
		of     issuer.BrowserLogin
		names  bool
		answer url.Values
		code   string
		asked  bool // the error is not that no log-in asked for it
	}{
		{"good", mine, false, url.Values{"state": {state}, "code": {"x"}}, "x", true},
		{"good, with its issuer", mine, true, url.Values{"state": {state}, "code": {"x"}, "iss": {at.Issuer}}, "x", true},
		{"of another browser", other, false, url.Values{"state": {state}, "code": {"x"}}, "", false},
		{"no state", mine, false, url.Values{"code": {"x"}}, "", false},
		{"no log-in", issuer.BrowserLogin{}, false, url.Values{"state": {stateOf(issuer.BrowserLogin{Redirect: mine.Redirect})}, "code": {"x"}}, "", false},
		{"two states", mine, false, url.Values{"state": {state, "x"}, "code": {"x"}}, "", false},
		{"two codes", mine, false, url.Values{"state": {state}, "code": {"x", "y"}}, "", false},
		{"of another issuer", mine, false, url.Values{"state": {state}, "code": {"x"}, "iss": {"https://evil.example"}}, "", true},
		{"without the issuer that it always names", mine, true, url.Values{"state": {state}, "code": {"x"}}, "", true},
		{"refused", mine, false, url.Values{"state": {state}, "error": {"access_denied"}, "code": {"x"}}, "", true},
		{"no code", mine, false, url.Values{"state": {state}}, "", true},
		{"a long code", mine, false, url.Values{"state": {state}, "code": {strings.Repeat("x", 1<<20)}}, "", true},
		{"an error of another browser", other, false, url.Values{"state": {state}, "error": {"access_denied"}}, "", false},
	} {
		l := l
		l.At.NamesItself = c.names
		code, err := l.Check(c.of, c.answer)
		if code != c.code || (err == nil) != (c.code != "") || errors.Is(err, issuer.ErrNotAsked) == c.asked {
			t.Errorf("%s: %q, %v", c.what, code, err)
		}
	}
}
