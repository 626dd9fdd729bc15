package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/api/oidc"
	"evenkeel/api/oidc/issuer"
	"evenkeel/api/server"
	"evenkeel/test/openid"
	"evenkeel/test/patience"
	"evenkeel/test/scratch"
	"evenkeel/test/site"
)

// shared is a buffer that one goroutine writes and another reads.
type shared struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *shared) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// loginSite is a server that trusts a provider, and a person with an empty configuration.
type loginSite struct {
	t      *testing.T
	p      *openid.Provider
	config string // the folder
}

func startLogin(t *testing.T, life time.Duration, change func(*oidc.Config)) loginSite {
	t.Helper()
	p := openid.Start(t, life, openid.Person{Subject: "7f3a", Name: "jane", Groups: []string{"staff", "ops"}}, openid.Person{Subject: "8b1c", Name: "max", Groups: []string{"staff"}})
	conf := oidc.Config{Issuer: p.Issuer, ClientID: openid.ClientID, CAFile: p.CAFile, Roles: []oidc.Mapping{{Group: "ops", Role: "operator"}}}
	if change != nil {
		change(&conf)
	}
	v, err := oidc.Start(conf, oidc.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	s, err := site.New(site.Options{Dir: scratch.Dir(t), Hosts: 1, OpenID: func() server.OpenID { return v }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Servers(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	t.Setenv("EVENKEEL_ADDRESS", "https://"+s.Address("h1"))
	t.Setenv("EVENKEEL_CACERT", s.CAFile())
	for _, name := range []string{"EVENKEEL_TOKEN", "EVENKEEL_TOKEN_FILE"} {
		t.Setenv(name, "")
	}
	return loginSite{t, p, filepath.Join(home, "evenkeel")}
}

// run vcctl, and return status and output.
func (s loginSite) run(args ...string) (status int, out, errs string) {
	s.t.Helper()
	var o, e shared
	status = (&tool{in: strings.NewReader(""), out: &o, err: &e}).run(s.t.Context(), append([]string{"vcctl"}, args...))
	return status, o.String(), e.String()
}

var shownCode = regexp.MustCompile(`(?m)^    (\S+)$`)

// login runs `vcctl login` and has the code approved for a subject; "": denied.
func (s loginSite) login(subject string, args ...string) (status int, out, errs string) {
	s.t.Helper()
	var o, e shared
	ended := make(chan int, 1)
	go func() {
		ended <- (&tool{in: strings.NewReader(""), out: &o, err: &e}).run(s.t.Context(), append([]string{"vcctl", "login", "--issuer-ca", s.p.CAFile}, args...))
	}()
	patience.Eventually(s.t, patience.Stall, "the code is shown", func() any { return e.String() }, func() bool { return shownCode.MatchString(e.String()) || len(ended) > 0 })
	if code := shownCode.FindStringSubmatch(e.String()); code != nil {
		if !strings.Contains(e.String(), "Open "+s.p.Issuer+"/device and type the code") {
			s.t.Errorf("%s", e.String())
		}
		if subject == "" {
			s.p.Deny(code[1])
		} else {
			s.p.Approve(code[1], subject)
		}
	}
	status = patience.Receive(s.t, patience.Stall, "vcctl login ends", ended)
	return status, o.String(), e.String()
}

func (s loginSite) kept() sessions {
	s.t.Helper()
	all, err := readSessions()
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

// A person logs in, acts with the role of the groups, and logs out; the tokens are in one file of mode 0600, and nowhere else.
func TestLogin(t *testing.T) {
	s := startLogin(t, time.Hour, nil)
	status, out, errs := s.login("7f3a")
	if status != 0 || out != "Logged in as jane (operator).\n" {
		t.Fatalf("status %d: %s%s", status, out, errs)
	}
	path := filepath.Join(s.config, "login.json")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	all := s.kept()
	if len(all.Sessions) != 1 || all.Sessions[0].Refresh == "" || all.Sessions[0].Access || !strings.Contains(strings.Join(all.Sessions[0].Scopes, " "), "offline_access") {
		t.Errorf("%+v", all)
	}
	for _, secret := range []string{all.Sessions[0].Token, all.Sessions[0].Refresh} {
		if strings.Contains(out+errs, secret) {
			t.Errorf("a token is shown: %s%s", out, errs)
		}
	}
	if status, out, errs := s.run("auth", "whoami"); status != 0 || !strings.Contains(out, "jane") || !strings.Contains(out, "operator") || !strings.Contains(out, "staff, ops") {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	if status, out, errs := s.run("auth", "whoami", "-o", "json"); status != 0 || !strings.Contains(out, `"actor": "oidc:7f3a"`) {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	if status, _, errs := s.run("token", "list"); status != 1 || !strings.Contains(errs, "operator") {
		t.Errorf("status %d: %s", status, errs)
	}
	// A token of flag or environment comes first, one of the configuration does not.
	if status, _, errs := s.run("host", "list", "--token", "ekt_wrong"); status != 1 || !strings.Contains(errs, "not one of this cluster") {
		t.Errorf("status %d: %s", status, errs)
	}
	if err := os.WriteFile(filepath.Join(s.config, "config.yaml"), []byte("token: ekt_wrong\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := s.run("host", "list"); status != 0 || errs != "" {
		t.Errorf("status %d: %s", status, errs)
	}
	// The token goes to the servers of the log-in alone.
	if status, _, errs := s.run("host", "list", "--address", "https://127.0.0.1:1"); status != 7 {
		t.Errorf("status %d: %s", status, errs)
	}
	if _, ok := all.of([]string{"https://127.0.0.1:1"}); ok {
		t.Error("a log-in for another server")
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := s.run("host", "list"); status != 2 || !strings.Contains(errs, "chmod 600") {
		t.Errorf("a file that others can read: status %d: %s", status, errs)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if status, out, errs := s.run("logout"); status != 0 || !strings.HasPrefix(out, "Logged out; the last token is good until ") || s.p.Revoked() != 1 {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	if len(s.kept().Sessions) != 0 {
		t.Error("it is kept")
	}
	if status, out, _ := s.run("logout"); status != 0 || out != "You were not logged in here.\n" {
		t.Errorf("status %d: %s", status, out)
	}
	if status, _, errs := s.run("host", "list"); status != 1 || !strings.Contains(errs, "not one of this cluster") { // that of the configuration
		t.Errorf("status %d: %s", status, errs)
	}
}

// A person that the issuer or the cluster refuses is not logged in.
func TestLoginRefused(t *testing.T) {
	s := startLogin(t, time.Hour, nil)
	status, _, errs := s.login("")
	if status != 1 || !strings.Contains(errs, "access_denied") {
		t.Errorf("denied: status %d: %s", status, errs)
	}
	status, _, errs = s.login("8b1c")
	if status != 1 || !strings.Contains(errs, `"staff"`) || s.p.Revoked() != 1 {
		t.Errorf("no role: status %d, %d revoked: %s", status, s.p.Revoked(), errs)
	}
	if status, _, errs := s.run("login"); status != 1 || !strings.Contains(errs, "certificate") {
		t.Errorf("without the issuer's CA: status %d: %s", status, errs)
	}
	if status, _, errs := s.run("login", "--issuer", "http://id.example.org"); status != 2 || !strings.Contains(errs, "https://") {
		t.Errorf("an issuer without TLS: status %d: %s", status, errs)
	}
	if status, _, errs := s.run("login", "more"); status != 2 || !strings.Contains(errs, "too many") {
		t.Errorf("status %d: %s", status, errs)
	}
	s.p.Fail("/device_authorization", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"device_code":"a","user_code":"\u001b[2J","verification_uri":"https://id.example.org","expires_in":60,"interval":-5}`))
	})
	if status, _, errs := s.run("login", "--issuer-ca", s.p.CAFile); status != 1 || strings.Contains(errs, "\x1b") || !strings.Contains(errs, "no code that can be shown") {
		t.Errorf("a code that a terminal obeys: status %d: %q", status, errs)
	}
	if len(s.kept().Sessions) != 0 {
		t.Error("a log-in is kept")
	}
	if _, err := os.Stat(filepath.Join(s.config, "login.json")); !os.IsNotExist(err) {
		t.Errorf("%v", err)
	}
}

// expire the token that is kept.
func (s loginSite) expire() {
	s.t.Helper()
	if err := changeSessions(func(all *sessions) (bool, error) {
		all.Sessions[0].Until = time.Now().Add(-time.Second)
		return true, nil
	}); err != nil {
		s.t.Fatal(err)
	}
}

// A token is refreshed before its end, once, however many vcctl run. What the issuer says of the groups then counts.
func TestLoginIsRefreshed(t *testing.T) {
	s := startLogin(t, time.Hour, nil)
	if status, _, errs := s.login("7f3a"); status != 0 {
		t.Fatal(errs)
	}
	first := s.kept().Sessions[0]
	if status, _, errs := s.run("host", "list"); status != 0 || s.kept().Sessions[0].Token != first.Token {
		t.Errorf("a token that is good was refreshed: %s", errs)
	}
	s.expire()
	before := s.p.Requests("/oauth/token")
	var all sync.WaitGroup
	for range 8 { // as programs do: the command line's own variables are one for all of a process
		all.Go(func() {
			if token, err := bearer(t.Context(), first.Addresses); err != nil || token == first.Token {
				t.Errorf("%q, %v", token, err)
			}
		})
	}
	all.Wait()
	second := s.kept().Sessions[0]
	if n := s.p.Requests("/oauth/token") - before; n != 1 || second.Refresh == first.Refresh || second.Token == first.Token {
		t.Errorf("%d refreshes", n)
	}
	s.p.Change(openid.Person{Subject: "7f3a", Name: "jane", Groups: []string{"staff"}})
	s.expire()
	if status, _, errs := s.run("host", "list"); status != 1 || !strings.Contains(errs, "has no role") {
		t.Errorf("a member that left the group: status %d: %s", status, errs)
	}
	s.expire()
	s.p.Down()
	if status, _, errs := s.run("host", "list"); status != 1 || !strings.Contains(errs, "cannot be refreshed") || !strings.Contains(errs, "502") {
		t.Errorf("the issuer is down: status %d: %s", status, errs)
	}
	s.p.Fail("", nil)
	s.p.Forget()
	if status, _, errs := s.run("host", "list"); status != 1 || !strings.Contains(errs, "log in again with `vcctl login`") {
		t.Errorf("the session was ended at the issuer: status %d: %s", status, errs)
	}
	if status, out, errs := s.run("logout"); status != 0 || out != "Logged out.\n" {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
}

// Where tokens are for an API of its own, access tokens are sent; and the cluster's maximal age makes vcctl refresh earlier.
func TestLoginByAccessToken(t *testing.T) {
	s := startLogin(t, time.Hour, func(c *oidc.Config) { c.ClientID, c.Audience, c.MaxAge = "other", openid.ClientID, 10*time.Minute })
	status, _, errs := s.login("7f3a", "--client-id", openid.ClientID)
	if status != 1 || !strings.Contains(errs, "names no groups") { // this provider puts groups into ID tokens alone
		t.Errorf("status %d: %s", status, errs)
	}
	one := session{Access: true, MaxAge: 600}
	claims, err := json.Marshal(map[string]any{"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()})
	if err != nil {
		t.Fatal(err)
	}
	token := s.p.Sign(t, claims, nil)
	if err := one.take(issuer.Tokens{Access: "opaque", ID: token}); err == nil {
		t.Error("an access token that is no JSON Web Token")
	}
	if err := one.take(issuer.Tokens{Access: token}); err != nil || one.Token != token || time.Until(one.Until) > 10*time.Minute {
		t.Errorf("%+v, %v", one, err)
	}
}

// A log-in serves for the servers that it was made at, in any number and order, and for no list that has another one.
func TestSessionOfServers(t *testing.T) {
	all := sessions{[]session{{Addresses: []string{"https://a:1"}, Issuer: "1"}, {Addresses: []string{"https://b:1", "https://b:2"}, Issuer: "2"}}}
	for _, c := range []struct{ addresses, want string }{{"https://a:1", "1"}, {"https://b:1", "2"}, {"https://b:2 https://b:1", "2"},
		{"https://b:1 https://a:1", ""}, {"https://b:3", ""}, {"https://b:1 https://evil:1", ""}, {"http://b:1", ""}} {
		got := ""
		if i, ok := all.of(strings.Fields(c.addresses)); ok {
			got = all.Sessions[i].Issuer
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.addresses, got, c.want)
		}
	}
	all.put(session{Addresses: []string{"https://b:2", "https://b:3"}, Issuer: "3"})
	if len(all.Sessions) != 2 || all.Sessions[1].Issuer != "3" {
		t.Errorf("%+v", all)
	}
	for range maxSessions + 5 {
		all.put(session{Addresses: []string{"https://" + rand.Text()}})
	}
	if len(all.Sessions) != maxSessions {
		t.Errorf("%d are kept", len(all.Sessions))
	}
}

// A file that is damaged is never overwritten, and its content never shown.
func TestDamagedLogin(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	path := filepath.Join(home, "evenkeel", "login.json")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(`{"sessions":[{"token":"secret`), fs.FileMode(0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := readSessions(); err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
	if err := changeSessions(func(*sessions) (bool, error) { t.Error("changed"); return true, nil }); err == nil {
		t.Error("written")
	}
}
