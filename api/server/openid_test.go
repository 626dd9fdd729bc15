package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"evenkeel/api/oidc"
	"evenkeel/api/oidc/issuer"
	"evenkeel/api/server"
	"evenkeel/api/v1"
	"evenkeel/test/openid"
	"evenkeel/test/site"
)

// withIssuer starts servers of which each verifies tokens of the provider by itself.
func withIssuer(t *testing.T, p *openid.Provider, servers, hosts int) *several {
	t.Helper()
	return startSeveral(t, servers, hosts, site.Options{OpenID: verifiers(t, p)})
}

// verifiers of the tokens of a provider: one for each server.
func verifiers(t *testing.T, p *openid.Provider) func() server.OpenID {
	conf := oidc.Config{Issuer: p.Issuer, ClientID: openid.ClientID, Roles: []oidc.Mapping{{Group: "ops", Role: "operator"}, {Group: "root", Role: "admin"}, {Group: "audit", Role: "auditor"},
		{Group: "filmers", Role: "editor", Tenant: "film"}, {Group: "chemists", Role: "viewer", Tenant: "chem"}}}
	return func() server.OpenID {
		v, err := oidc.Start(conf, oidc.Options{Client: issuer.Bound(p), Log: slog.New(slog.DiscardHandler)})
		must(t, err)
		t.Cleanup(v.Close)
		return v
	}
}

// logIn a person by device flow, and return the ID token.
func logIn(t *testing.T, p *openid.Provider, subject string) string {
	t.Helper()
	return login(t, p, subject).ID
}

// login makes the tokens of a person by the device flow.
func login(t *testing.T, p *openid.Provider, subject string) issuer.Tokens {
	t.Helper()
	c := issuer.Bound(p)
	at, err := issuer.Discover(t.Context(), c, p.Issuer)
	must(t, err)
	l := issuer.Login{Client: c, At: at, ClientID: openid.ClientID, Scopes: at.Supported(issuer.DefaultScopes)}
	prompt, err := l.Begin(t.Context())
	must(t, err)
	if !p.Approve(prompt.Code, subject) {
		t.Fatalf("%+v", prompt)
	}
	tokens, err := l.Await(t.Context(), prompt)
	must(t, err)
	return tokens
}

// as asks a server with a token.
func (s *several) as(token, name, method, path, body string) (*http.Response, string) {
	s.t.Helper()
	return s.ask(name, method, path, body, "Authorization", "Bearer "+token)
}

// People of an OpenID Connect issuer act by the roles of their groups on every server, directly and through one that does not lead; the
// audit log names them, and nothing keeps their tokens.
func TestOpenIDRoles(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := openid.InMemory(t, time.Hour, openid.Person{Subject: "7f3a", Name: "jane", Groups: []string{"staff", "ops"}},
			openid.Person{Subject: "8b1c", Name: "max", Groups: []string{"staff", "guests"}}, openid.Person{Subject: "root-1", Name: "root", Groups: []string{"root"}},
			openid.Person{Subject: "none", Name: "none"})
		s := withIssuer(t, p, 3, 3)
		leader, follower := s.leads()
		jane, max, root, none := logIn(t, p, "7f3a"), logIn(t, p, "8b1c"), logIn(t, p, "root-1"), logIn(t, p, "none")

		for _, name := range []string{leader, follower} {
			resp, body := s.as(jane, name, "GET", "/v1/auth/self", "")
			var self v1.Self
			if resp.StatusCode != 200 || json.Unmarshal([]byte(body), &self) != nil || self.Name != "jane" || self.Role != "operator" || self.Actor != "oidc:7f3a" ||
				!strings.HasPrefix(self.ID, "oidc:") || self.Until == nil || len(self.Groups) != 2 {
				t.Errorf("%s: %s %s", name, resp.Status, body)
			}
			for _, path := range []string{"/v1/vms", "/v1/vms?consistency=stale"} {
				if resp, body := s.as(jane, name, "GET", path, ""); resp.StatusCode != 200 {
					t.Errorf("%s: %s %s", name, resp.Status, body)
				}
				resp, body = s.as(max, name, "GET", path, "")
				if problem := problemIn(t, resp, body); resp.StatusCode != 403 || problem.Type != v1.ProblemForbidden || !strings.Contains(problem.Detail, `"staff", "guests"`) || !strings.Contains(problem.Detail, "max") {
					t.Errorf("%s: %+v", name, problem)
				}
				resp, body = s.as(none, name, "GET", path, "")
				if problem := problemIn(t, resp, body); resp.StatusCode != 403 || !strings.Contains(problem.Detail, "names no groups") {
					t.Errorf("%s: %+v", name, problem)
				}
				resp, body = s.as(jane+"x", name, "GET", path, "")
				if problem := problemIn(t, resp, body); resp.StatusCode != 401 || !strings.Contains(problem.Detail, "vcctl login") {
					t.Errorf("%s: %+v", name, problem)
				}
			}
			if resp, body := s.as(jane, name, "POST", "/v1/tokens", `{"name":"mine","role":"operator"}`); resp.StatusCode != 403 {
				t.Errorf("an operator makes a token: %s %s", resp.Status, body)
			}
			if resp, body := s.as("", name, "GET", "/v1/auth", ""); resp.StatusCode != 200 || !strings.Contains(body, `"issuer":"`+p.Issuer+`"`) || !strings.Contains(body, `"clientID":"vcctl"`) {
				t.Errorf("how to log in: %s %s", resp.Status, body)
			}
			resp, body = s.as("", name, "GET", "/v1/auth/self", "")
			if resp.StatusCode != 401 {
				t.Errorf("a stranger: %s %s", resp.Status, body)
			}
		}
		if resp, body := s.as(jane, follower, "POST", "/v1/virtual-clusters", `{"name":"web","groups":[{"name":"w","count":1,"cpu":0.5,"memory":67108864}]}`); resp.StatusCode != 202 {
			t.Fatalf("%s %s", resp.Status, body)
		}
		if resp, body := s.as(root, follower, "POST", "/v1/tokens", `{"name":"made by a person","role":"metrics"}`); resp.StatusCode != 201 || !strings.Contains(body, "root (oidc:root-1)") {
			t.Fatalf("%s %s", resp.Status, body)
		}
		_, records := s.as(root, leader, "GET", "/v1/audit", "")
		for _, want := range []string{`"id":"oidc:7f3a","name":"jane"`, `"id":"oidc:8b1c"`, `"id":"oidc:root-1"`} {
			if !strings.Contains(records, want) {
				t.Errorf("the audit log lacks %s", want)
			}
		}
		_, events := s.as(root, leader, "GET", "/v1/events?follow=false", "")
		_, metrics := s.as(root, leader, "GET", "/metrics", "")
		for _, want := range []string{`evenkeel_oidc_tokens_total{result="accepted"} `, `evenkeel_oidc_tokens_total{result="refused"} `, "evenkeel_oidc_fetch_errors_total 0", "evenkeel_oidc_keys_timestamp_seconds "} {
			if !strings.Contains(metrics, want) {
				t.Errorf("the metrics lack %s", want)
			}
		}
		for _, token := range []string{jane, max, root, none} {
			for _, part := range strings.Split(token, ".")[1:] {
				for where, text := range map[string]string{"audit log": records, "log": s.log.String(), "events": events, "metrics": metrics} {
					if strings.Contains(text, part) {
						t.Errorf("the %s has a part of a token", where)
					}
				}
			}
		}
	})
}

// A person whose groups have roles in tenants acts in one of them in each request, and what runs ends once that tenant is suspended.
func TestOpenIDInTenants(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := openid.InMemory(t, time.Hour, openid.Person{Subject: "7f3a", Name: "jane", Groups: []string{"chemists", "filmers"}})
		s := withIssuer(t, p, 3, 3)
		_, follower := s.leads()
		for _, tenant := range []string{"film", "chem", "law"} {
			if resp, body := s.ask(follower, "POST", "/v1/tenants", `{"name":"`+tenant+`"}`); resp.StatusCode != 201 {
				t.Fatalf("%s %s", resp.Status, body)
			}
		}
		jane := logIn(t, p, "7f3a")
		const spec = `{"name":"web","groups":[{"name":"w","cpu":0.5,"memory":67108864}]}`
		for _, q := range []struct {
			method, path, body string
			status             int
		}{
			{"POST", "/v1/virtual-clusters", spec, 202}, // the first entry: film
			{"GET", "/v1/virtual-clusters/web?tenant=film", "", 200},
			{"GET", "/v1/virtual-clusters/web?tenant=chem", "", 404},
			{"POST", "/v1/virtual-clusters?tenant=chem", spec, 403},
			{"GET", "/v1/virtual-clusters?tenant=law", "", 404},
			{"GET", "/v1/virtual-clusters?tenant=default", "", 404},
			{"GET", "/v1/virtual-clusters?tenant=*", "", 404},
			{"GET", "/v1/hosts", "", 403},
		} {
			if resp, body := s.as(jane, follower, q.method, q.path, q.body); resp.StatusCode != q.status || hostNames.MatchString(body) {
				t.Errorf("%s %s: %s %s, want %d", q.method, q.path, resp.Status, body, q.status)
			}
		}
		if _, body := s.as(jane, follower, "GET", "/v1/auth/self", ""); !strings.Contains(body, `"role":"editor","tenant":"film"`) {
			t.Errorf("self: %s", body)
		}
		r, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+s.Address(follower)+"/v1/events", nil)
		must(t, err)
		r.Header.Set("Authorization", "Bearer "+jane)
		resp, err := s.http.Do(r)
		must(t, err)
		defer resp.Body.Close() //nolint:errcheck // read to its end
		s.ask(follower, "PATCH", "/v1/tenants/film", `{"state":"suspended"}`)
		begun := time.Now()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || time.Since(begun) > 5*time.Second {
			t.Errorf("the stream of a suspended tenant ended after %s: %v", time.Since(begun), err)
		}
		if resp, body := s.as(jane, follower, "GET", "/v1/vms", ""); resp.StatusCode != 403 || !strings.Contains(body, v1.ProblemSuspended) {
			t.Errorf("a suspended tenant: %s %s", resp.Status, body)
		}
	})
}

// A person without a role is a stranger to the limits on connections: the connection ends after 15 s, that of others stays.
func TestOpenIDWithoutRoleIsAStranger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := openid.InMemory(t, time.Hour, openid.Person{Subject: "7f3a", Name: "jane", Groups: []string{"ops"}}, openid.Person{Subject: "8b1c", Name: "max", Groups: []string{"staff"}})
		s := withIssuer(t, p, 1, 1)
		for subject, want := range map[string]bool{"7f3a": true, "8b1c": false} {
			token, reused := logIn(t, p, subject), false
			tr := s.http.Transport.(*http.Transport).Clone()
			t.Cleanup(tr.CloseIdleConnections)
			for range 2 {
				ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.Address(s.Leader())+"/v1/vms", nil)
				must(t, err)
				r.Header.Set("Authorization", "Bearer "+token)
				resp, err := tr.RoundTrip(r)
				must(t, err)
				_, err = io.Copy(io.Discard, resp.Body)
				must(t, err)
				must(t, resp.Body.Close())
				time.Sleep(20 * time.Second) // sleep: simulated time, longer than a stranger's connection lives
			}
			if reused != want {
				t.Errorf("%s: the connection is there after 20 s: %v, want %v", subject, reused, want)
			}
		}
	})
}

// Streams, consoles and long polls end within 5 s of the end of their token, on the leader, on a follower and through one; those
// of a later token of the same person go on.
func TestOpenIDTokensEndWhatRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := openid.InMemory(t, 40*time.Second, openid.Person{Subject: "7f3a", Name: "jane", Groups: []string{"ops"}})
		s := withIssuer(t, p, 3, 3)
		leader, follower := s.leads()
		api := s.client(leader)
		r, err := api.Create(t.Context(), small("a", 4))
		must(t, err)
		_, err = api.Wait(t.Context(), *r.Operation, nil)
		must(t, err)
		v, err := api.Status(t.Context())
		must(t, err)
		poll := fmt.Sprintf("/v1/plans?wait=60s&index=%d", v.Index)
		ends := time.Now().Add(40 * time.Second) // or later: the log-in takes a second
		brief := tokenStore{s, logIn(t, p, "7f3a")}
		p.Live(time.Hour)
		lasting := tokenStore{s, logIn(t, p, "7f3a")}
		var all, stay []openRequest
		for i, name := range []string{leader, follower} {
			all = append(all, brief.stream(name, ""), brief.stream(name, "?consistency=stale"), brief.console(name, []string{"a-w-0", "a-w-1"}[i]), brief.poll(name, poll))
			stay = append(stay, lasting.stream(name, ""), lasting.stream(name, "?consistency=stale"), lasting.console(name, []string{"a-w-2", "a-w-3"}[i]))
		}
		for _, h := range all {
			select {
			case e := <-h.ended:
				after := e.at.Sub(ends)
				t.Logf("%s ended %s after the first moment in which its token may have", h.what, after.Round(time.Millisecond))
				if after < 0 || after > 7*time.Second || !strings.Contains(e.said, "expired") {
					t.Errorf("%s: after %s, %q, %v", h.what, after, e.said, e.err)
				}
			case <-time.After(5 * time.Minute): // of simulated time
				t.Errorf("%s runs on", h.what)
			}
		}
		for _, h := range stay {
			select {
			case e := <-h.ended:
				t.Errorf("%s of a later token ended: %+v", h.what, e)
			default:
			}
		}
		if resp, body := s.as(brief.token, follower, "GET", "/v1/vms", ""); resp.StatusCode != 401 || !strings.Contains(body, "expired") {
			t.Errorf("%s %s", resp.Status, body)
		}
	})
}

// A server without the issuer says so, and one that knows no keys says why.
func TestOpenIDUnavailable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := openid.InMemory(t, time.Hour, openid.Person{Subject: "7f3a", Name: "jane", Groups: []string{"ops"}})
		token := logIn(t, p, "7f3a")
		plain := startSeveral(t, 1, 1, site.Options{})
		one := plain.Leader()
		resp, body := plain.as(token, one, "GET", "/v1/vms", "")
		if problem := problemIn(t, resp, body); resp.StatusCode != 401 || !strings.Contains(problem.Detail, "no tokens of OpenID Connect") {
			t.Errorf("%+v", problem)
		}
		if _, body := plain.as("", one, "GET", "/v1/auth", ""); strings.Contains(body, "oidc") {
			t.Error(body)
		}
		p.Fail("", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
		s := withIssuer(t, p, 1, 1)
		name := s.Leader()
		resp, body = s.as(token, name, "GET", "/v1/vms", "")
		if problem := problemIn(t, resp, body); resp.StatusCode != 503 || problem.Type != v1.ProblemUnavailable || !strings.Contains(problem.Detail, "502") || resp.Header.Get("Retry-After") == "" {
			t.Errorf("%+v", problem)
		}
		if resp, body := s.ask(name, "GET", "/v1/vms", ""); resp.StatusCode != 200 {
			t.Errorf("tokens of the API: %s %s", resp.Status, body)
		}
		p.Fail("", nil)
		time.Sleep(time.Minute) // sleep: simulated time, for the keys to be fetched again
		if resp, body := s.as(token, name, "GET", "/v1/vms", ""); resp.StatusCode != 200 {
			t.Errorf("the issuer is back: %s %s", resp.Status, body)
		}
	})
}
