package browser

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"evenkeel/api/oidc"
	"evenkeel/api/oidc/issuer"
	"evenkeel/api/server"
	"evenkeel/api/v1"
	"evenkeel/test/openid"
	"evenkeel/test/scratch"
	"evenkeel/test/site"
)

// TestIssuerLogin walks as a person of the issuer does: logs in there from a server that does not lead, and is logged out when an admin
// revokes the tokens of that person, when the token ends, and by the button. To the browser the issuer is another site: it is
// 127.0.0.1, and the servers are localhost.
func TestIssuerLogin(t *testing.T) {
	t.Parallel()
	b := Start(t, required)
	p := openid.Start(t, time.Hour, openid.Person{Subject: "7f3a", Name: "jane", Groups: []string{"ops"}}, openid.Person{Subject: "9c01", Name: "joe", Groups: []string{"ops"}})
	var s *site.Site
	localhost := func(name string) string {
		_, port, err := net.SplitHostPort(s.Address(name))
		must(t, err)
		return "https://localhost:" + port
	}
	s, err := site.New(site.Options{Dir: scratch.Dir(t), Hosts: 3, CPU: 4, Memory: 8 << 30, OpenID: func() server.OpenID {
		p.Redirects = nil
		for i := 1; i <= 3; i++ {
			if name := fmt.Sprintf("h%d", i); s.Address(name) != "" {
				p.Redirects = append(p.Redirects, localhost(name)+issuer.CallbackPath)
			}
		}
		v, err := oidc.Start(oidc.Config{Issuer: p.Issuer, CAFile: p.CAFile, ClientID: openid.ClientID, RedirectURIs: p.Redirects,
			Roles: []oidc.Mapping{{Group: "ops", Role: "operator"}}}, oidc.Options{})
		must(t, err)
		t.Cleanup(v.Close)
		return v
	}})
	must(t, err)
	c := run(t, s, 3)
	base := localhost(c.Follower())
	tab := b.Open(t, base+"/ui/hosts")
	login := func(subject string) {
		t.Helper()
		tab.Press("Log in with OpenID Connect")
		tab.Until("the provider", func() bool { return tab.At() == "/login" && strings.Contains(tab.Text(), "Provider of the test") })
		tab.Fill(`input[name=subject]`, subject)
		tab.Press("Sign in")
	}
	accessible(tab, "the log-in")
	login("7f3a")
	tab.Until("the page that was asked for", func() bool {
		return tab.At() == "/ui/hosts" && strings.Contains(tab.Text(), "jane · operator") && strings.Contains(tab.Text(), "h3")
	})
	tab.Clean()
	if readable := Eval[string](tab, `document.cookie`); readable != "" {
		t.Errorf("scripts can read %q", readable)
	}

	_, err = c.api.RevokeUser(t.Context(), v1.UserRevocationRequest{User: "oidc:7f3a"})
	must(t, err)
	ended := func() bool {
		return tab.At() == "/ui/login" && strings.Contains(tab.Text(), "The session ended")
	}
	tab.Until("the log-in, without a reload", ended)

	p.Live(5 * time.Second) // of the next token
	login("9c01")
	tab.Until("logged in", func() bool { return tab.At() == "/ui/hosts" && strings.Contains(tab.Text(), "joe · operator") })
	tab.Until("the log-in, when the token ended", ended)

	p.Live(time.Hour)
	login("9c01")
	tab.Until("logged in", func() bool { return tab.At() == "/ui/hosts" })
	tab.Clean()
	Eval[bool](tab, `document.querySelector("form.self button").click() || true`)
	tab.Until("the log-in", func() bool { return tab.At() == "/ui/login" })
	tab.Go(base + "/ui/hosts")
	if tab.At() != "/ui/login" {
		t.Errorf("logged in after the log-out: %s", tab.At())
	}
}
