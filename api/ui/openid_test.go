package ui_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/api/oidc"
	"evenkeel/api/oidc/issuer"
	"evenkeel/api/server"
	"evenkeel/api/ui"
	"evenkeel/test/openid"
	"evenkeel/test/patience"
	"evenkeel/test/scratch"
	"evenkeel/test/site"
)

// people of the issuer: an operator, and one without a role.
var people = []openid.Person{{Subject: "7f3a", Name: "jane", Groups: []string{"ops"}}, {Subject: "9c01", Name: "mallory", Groups: []string{"visitors"}}}

// atIssuer is a server whose browsers can log in at an issuer, and a way to make browsers.
func atIssuer(t *testing.T) (p *openid.Provider, browser func() *visitor) {
	t.Helper()
	p = openid.Start(t, time.Hour, people...)
	var s *site.Site
	s, err := site.New(site.Options{Dir: scratch.Dir(t), Hosts: 1, OpenID: func() server.OpenID {
		at := "https://" + s.Address("h1") + issuer.CallbackPath
		p.Redirects = []string{at}
		v, err := oidc.Start(oidc.Config{Issuer: p.Issuer, CAFile: p.CAFile, ClientID: openid.ClientID, RedirectURIs: []string{at},
			Roles: []oidc.Mapping{{Group: "ops", Role: "operator"}}}, oidc.Options{})
		must(t, err)
		t.Cleanup(v.Close)
		return v
	}})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	must(t, s.Servers(t.Context(), 1))
	browser = func() *visitor {
		jar, err := cookiejar.New(nil)
		must(t, err)
		tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the server of the test
		t.Cleanup(tr.CloseIdleConnections)
		return &visitor{t: t, base: "https://" + s.Address("h1"), http: &http.Client{Jar: jar, Transport: tr}}
	}
	first := browser()
	patience.Eventually(t, patience.Stall, "the server knows the issuer", func() any { return p.Requests("/keys") }, func() bool {
		resp, _ := first.post("/ui/login/issuer", nil)
		return resp.StatusCode == http.StatusOK
	})
	return p, browser
}

// begin a log-in, and return the address at the issuer.
func (v *visitor) begin(next string) *url.URL {
	v.t.Helper()
	resp, text := v.post("/ui/login/issuer", url.Values{"next": {next}})
	if resp.StatusCode != http.StatusOK {
		v.t.Fatalf("%s: %s", resp.Status, text)
	}
	_, rest, _ := strings.Cut(text, `<a class="main" href="`)
	to, _, _ := strings.Cut(rest, `"`)
	u, err := url.Parse(html.UnescapeString(to))
	must(v.t, err)
	return u
}

// signIn at the issuer, and return the address to which it sends the browser back.
func (v *visitor) signIn(at *url.URL, subject string) *url.URL {
	v.t.Helper()
	before := v.http.CheckRedirect
	defer func() { v.http.CheckRedirect = before }()
	var back *url.URL
	v.http.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if r.URL.Path == issuer.CallbackPath {
			back = r.URL
			return http.ErrUseLastResponse
		}
		return nil
	}
	resp, _ := v.do(http.NewRequestWithContext(v.t.Context(), http.MethodGet, at.String(), nil))
	if back != nil {
		return back
	}
	form := strings.NewReader(url.Values{"subject": {subject}}.Encode())
	r, err := http.NewRequestWithContext(v.t.Context(), http.MethodPost, resp.Request.URL.String(), form)
	must(v.t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if resp, text := v.do(r, nil); back == nil {
		v.t.Fatalf("%s: %s", resp.Status, text)
	}
	return back
}

func (v *visitor) loggedIn() bool {
	v.t.Helper()
	resp, _ := v.get("/ui/hosts")
	return resp.Request.URL.Path == "/ui/hosts"
}

// TestIssuerLogin: a browser that began a log-in is logged in by the answer to it, once.
func TestIssuerLogin(t *testing.T) {
	t.Parallel()
	p, browser := atIssuer(t)
	v := browser()
	at := v.begin("/ui/vms?q=a")
	if q := at.Query(); q.Get("code_challenge_method") != "S256" || q.Get("nonce") == "" || strings.Contains(q.Get("scope"), "offline_access") {
		t.Errorf("asked for %s", at)
	}
	back := v.signIn(at, "7f3a")
	resp, text := v.get(back.RequestURI())
	if resp.StatusCode != http.StatusOK || !strings.Contains(text, `content="0;url=/ui/vms?q=a"`) || !v.loggedIn() {
		t.Fatalf("%s: %s", resp.Status, text)
	}
	if resp, text := v.get(back.RequestURI()); resp.StatusCode != http.StatusForbidden || !strings.Contains(text, "no log-in that this browser began") {
		t.Errorf("the answer once more: %s: %s", resp.Status, text)
	}

	none := browser()
	resp, text = none.get(none.signIn(none.begin(""), "9c01").RequestURI())
	if resp.StatusCode != http.StatusForbidden || !strings.Contains(text, "has no role in this cluster") || none.loggedIn() {
		t.Errorf("a person without a role: %s: %s", resp.Status, text)
	}
	p.Fail("/oauth/token", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	down := browser()
	if resp, text := down.get(down.signIn(down.begin(""), "7f3a").RequestURI()); resp.StatusCode != http.StatusForbidden || down.loggedIn() {
		t.Errorf("an issuer that is down: %s: %s", resp.Status, text)
	}
}

// TestIssuerAttacks: what others send a browser logs it in nowhere.
func TestIssuerAttacks(t *testing.T) {
	t.Parallel()
	p, browser := atIssuer(t)
	victim, attacker := browser(), browser()

	// Log-in CSRF: the answer to the attacker's log-in, in the victim's browser, which has none or another one under way.
	answer := attacker.signIn(attacker.begin(""), "7f3a")
	for _, began := range []bool{false, true} {
		if began {
			victim.begin("")
		}
		if resp, text := victim.get(answer.RequestURI()); resp.StatusCode != http.StatusForbidden || victim.loggedIn() {
			t.Errorf("an answer to another (under way: %v): %s: %s", began, resp.Status, text)
		}
	}

	// A code of the attacker beside the victim's state, and the other way round: PKCE and nonce bind the code to the browser.
	own := victim.signIn(victim.begin(""), "7f3a")
	mixed := own.Query()
	mixed.Set("code", answer.Query().Get("code"))
	if resp, text := victim.get(issuer.CallbackPath + "?" + mixed.Encode()); resp.StatusCode != http.StatusForbidden || victim.loggedIn() {
		t.Errorf("a code of another: %s: %s", resp.Status, text)
	}
	stolen := attacker.signIn(attacker.begin(""), "9c01").Query()
	stolen.Set("code", own.Query().Get("code"))
	if resp, text := attacker.get(issuer.CallbackPath + "?" + stolen.Encode()); resp.StatusCode != http.StatusForbidden || attacker.loggedIn() {
		t.Errorf("a stolen code: %s: %s", resp.Status, text)
	}

	// Mix-up: an answer that names another issuer is not passed on to ours.
	own = victim.signIn(victim.begin(""), "7f3a")
	mixed = own.Query()
	mixed.Set("iss", "https://evil.example")
	before := p.Requests("/oauth/token")
	if resp, text := victim.get(issuer.CallbackPath + "?" + mixed.Encode()); resp.StatusCode != http.StatusForbidden || victim.loggedIn() || p.Requests("/oauth/token") != before {
		t.Errorf("of another issuer: %s: %s", resp.Status, text)
	}

	// A log-in that another site begins, and one that returns elsewhere.
	if resp, _ := victim.post("/ui/login/issuer", nil, "Sec-Fetch-Site", "cross-site"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("begun by another site: %s", resp.Status)
	}
	for _, next := range []string{"https://evil.example/ui/", "//evil.example/ui/", "javascript:alert(1)", "/ui/../v1/hosts", "/ui/" + strings.Repeat("x", 5000), `/ui/"><script>`, "/ui/\r\nx", "0;url=https://evil.example"} {
		v := browser()
		resp, text := v.get(v.signIn(v.begin(next), "7f3a").RequestURI())
		if resp.StatusCode != http.StatusOK || !strings.Contains(text, `content="0;url=/ui/`) || strings.Contains(text, "evil") || strings.Contains(text, "<script>") {
			t.Errorf("%q: %s: %s", next, resp.Status, text)
		}
	}

	// A name of the server that is not configured gets no redirect URI.
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, victim.base+"/ui/login/issuer", nil)
	must(t, err)
	r.Host = "evil.example"
	if resp, text := victim.do(r, nil); resp.StatusCode != http.StatusNotFound || strings.Contains(text, "redirect_uri") {
		t.Errorf("another name: %s: %s", resp.Status, text)
	}

	// A secret that another server of the host name has set, too short to be one of ours.
	base, err := url.Parse(victim.base)
	must(t, err)
	fixed := issuer.BrowserLogin{Secret: "x", Redirect: victim.base + issuer.CallbackPath}
	l := issuer.Login{At: issuer.Endpoints{Issuer: p.Issuer, Authorization: p.Issuer + "/authorize", Token: p.Issuer + "/oauth/token"}, ClientID: openid.ClientID, Scopes: []string{"openid", "groups"}}
	to, err := l.Authorize(fixed)
	must(t, err)
	begun, err := url.Parse(to)
	must(t, err)
	back := attacker.signIn(begun, "7f3a")
	v := browser()
	v.http.Jar.SetCookies(base, []*http.Cookie{{Name: "__Host-evenkeel-login", Value: "x.", Path: "/", Secure: true}})
	if resp, text := v.get(back.RequestURI()); resp.StatusCode != http.StatusForbidden || v.loggedIn() {
		t.Errorf("a secret of another: %s: %s", resp.Status, text)
	}
}

// TestIssuerAnswers: the ID token must be of this log-in (nonce), for our client, and signed by the issuer.
func TestIssuerAnswers(t *testing.T) {
	t.Parallel()
	p, browser := atIssuer(t)
	for _, c := range []struct {
		what, audience, nonce string // nonce "": that of the log-in
		good                  bool
	}{{"good", openid.ClientID, "", true}, {"of another log-in", openid.ClientID, "x", false}, {"of another client", "other", "", false}, {"none", "", "", false}} {
		v := browser()
		at := v.begin("")
		nonce := cmp.Or(c.nonce, at.Query().Get("nonce"))
		token := "none"
		if c.audience != "" {
			now := time.Now().Unix()
			token = p.Sign(t, fmt.Appendf(nil, `{"iss":%q,"sub":"7f3a","aud":%q,"nonce":%q,"iat":%d,"exp":%d,"groups":["ops"]}`, p.Issuer, c.audience, nonce, now, now+600), nil)
		}
		back := v.signIn(at, "7f3a")
		p.Fail("/oauth/token", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"access_token":"x","token_type":"Bearer","id_token":%q}`, token)
		})
		resp, text := v.get(back.RequestURI())
		if (resp.StatusCode == http.StatusOK) != c.good || v.loggedIn() != c.good {
			t.Errorf("%s: %s: %s", c.what, resp.Status, text)
		}
		p.Fail("", nil)
	}
}

// TestLongTokens: a session's token may be longer than a cookie.
func TestLongTokens(t *testing.T) {
	t.Parallel()
	p, browser := atIssuer(t)
	groups := []string{"ops"}
	for len(groups) < 150 {
		groups = append(groups, strings.Repeat("g", 36))
	}
	p.Change(openid.Person{Subject: "7f3a", Name: "jane", Groups: groups})
	v := browser()
	resp, text := v.get(v.signIn(v.begin(""), "7f3a").RequestURI())
	for _, c := range resp.Cookies() {
		if size := len(c.Name) + len(c.Value); size > 4096 {
			t.Errorf("cookie %s has %d bytes", c.Name, size)
		}
	}
	if resp.StatusCode != http.StatusOK || !v.loggedIn() {
		t.Fatalf("%s: %s", resp.Status, text)
	}
	p.Change(people[0]) // a shorter token takes the place of the longer one
	if v.get(v.signIn(v.begin(""), "7f3a").RequestURI()); !v.loggedIn() {
		t.Error("not logged in again")
	}
	if v.post("/ui/logout", nil); v.loggedIn() {
		t.Error("logged in after the log-out")
	}
}

// busyIssuer is an issuer at which too many log in.
type busyIssuer struct{ from []string }

func (*busyIssuer) RedirectAt(host string) string                  { return "https://" + host + issuer.CallbackPath }
func (*busyIssuer) BeginLogin(issuer.BrowserLogin) (string, error) { return "", nil }
func (*busyIssuer) CheckLogin(_ issuer.BrowserLogin, answer url.Values) (string, error) {
	if answer.Get("state") != "good" {
		return "", issuer.ErrNotAsked
	}
	return "code", nil
}

func (i *busyIssuer) FinishLogin(ctx context.Context, _ issuer.BrowserLogin, _, from string) (string, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		return "", errors.New("it may take for ever")
	}
	i.from = append(i.from, from)
	return "", issuer.ErrBusy
}

// deadlines is a writer that notes the last deadline.
type deadlines struct {
	*httptest.ResponseRecorder
	last time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.last = t
	return nil
}

// TestBusyIssuer: a log-in whose state is good has time to wait for its turn, which goes by client address; others fill no log.
func TestBusyIssuer(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	at := &busyIssuer{}
	pages := ui.New(http.NotFoundHandler(), at, slog.New(slog.NewTextHandler(&logged, nil)))
	for _, c := range []struct {
		state, remote string
		status        int
		time          bool
		from          []string
	}{
		{"bad", "192.0.2.1:400", http.StatusForbidden, false, nil},
		{"good", "192.0.2.1:400", http.StatusServiceUnavailable, true, []string{"192.0.2.1:400"}},
	} {
		at.from = nil
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, issuer.CallbackPath+"?state="+c.state, nil)
		r.RemoteAddr = c.remote
		r.AddCookie(&http.Cookie{Name: "__Host-evenkeel-login", Value: strings.Repeat("x", 26) + "."})
		pages.ServeHTTP(w, r)
		if w.Code != c.status || (time.Until(w.last) > 10*time.Second) != c.time || !slices.Equal(at.from, c.from) {
			t.Errorf("%s from %s: %d, deadline %v, turns of %q: %s", c.state, c.remote, w.Code, w.last, at.from, w.Body)
		}
	}
	if logged.Len() > 0 {
		t.Errorf("strangers fill the log: %s", logged.String())
	}
}

// TestRevokeUser: the page of roles ends the session of a person of the issuer, and says so before.
func TestRevokeUser(t *testing.T) {
	t.Parallel()
	_, browser := atIssuer(t)
	jane, admin := browser(), browser()
	jane.do(http.NewRequestWithContext(t.Context(), http.MethodGet, jane.signIn(jane.begin(""), "7f3a").String(), nil))
	if !jane.loggedIn() {
		t.Fatal("jane is not logged in")
	}
	admin.post("/ui/login", url.Values{"token": {site.Token}})
	form := url.Values{"form": {ui.FormToken(site.Token)}, "do": {"revoke-user"}, "user": {"7f3a"}, "dry": {"1"}}
	if resp, text := admin.post("/ui/roles", form); resp.StatusCode != http.StatusOK || !strings.Contains(text, "It would refuse the tokens that were issued to user 7f3a before ") || !jane.loggedIn() {
		t.Errorf("a check: %s: %s", resp.Status, text)
	}
	form.Del("dry")
	if resp, text := admin.post("/ui/roles", form); resp.StatusCode != http.StatusOK || !strings.Contains(text, `<th scope="row">7f3a</th>`) || jane.loggedIn() {
		t.Errorf("it is revoked: %s: %s", resp.Status, text)
	}
	form.Set("user", " ")
	if resp, text := admin.post("/ui/roles", form); resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(text, "<code>user</code>") {
		t.Errorf("no user: %s: %s", resp.Status, text)
	}
}
