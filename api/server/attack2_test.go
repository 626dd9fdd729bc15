package server_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"evenkeel/api/v1"
	"evenkeel/test/openid"
	"evenkeel/test/site"
)

// A viewer's forms that do not end are held without a bound, also after its token was revoked.
func TestAttackSlowForms(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 1, 2)
		const many = 100
		ended := make(chan error, many)
		var pipes []*io.PipeWriter
		for range many {
			out, in := io.Pipe()
			pipes = append(pipes, in)
			r, err := http.NewRequestWithContext(t.Context(), "POST", "https://"+x.Address("h1")+"/ui/new", out)
			must(t, err)
			r.ContentLength = 1_000_000
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Cookie", "__Host-evenkeel="+x.token["film viewer"])
			go func() {
				resp, err := x.http.Do(r)
				if err == nil {
					_ = resp.Body.Close()
				}
				ended <- err
			}()
			go func() { _, _ = in.Write([]byte("file=" + strings.Repeat("x", 900_000))) }()
		}
		time.Sleep(30 * time.Second) // sleep: simulated
		t.Logf("after 30 s %d of %d have ended", len(ended), many)
		var all v1.List[v1.Token]
		must(t, json.Unmarshal([]byte(x.want(200, "GET", "/v1/tokens?tenant=film", "", "admin")), &all))
		for _, tok := range all.Items {
			if tok.Name == "film-viewer" {
				x.want(200, "DELETE", "/v1/tokens/"+tok.ID, "", "admin")
			}
		}
		time.Sleep(30 * time.Minute) // sleep: simulated
		if n := len(ended); n < many {
			t.Errorf("30 min after its token was revoked %d forms of a viewer are held, 900 kB each", many-n)
		}
		for _, in := range pipes {
			_ = in.CloseWithError(io.ErrUnexpectedEOF)
		}
	})
}

// The owner of another tenant keeps an owner from its tokens and roles.
func TestAttackOwnerLockedOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := openid.InMemory(t, time.Hour, openid.Person{Subject: "7f3a", Name: "jane", Groups: []string{"film people"}})
		s := withoutRoles(t, p, 1, 2)
		for _, tenant := range []string{"film", "chem"} {
			if resp, body := s.ask("h1", "POST", "/v1/tenants", `{"name":"`+tenant+`"}`); resp.StatusCode != 201 {
				t.Fatal(body)
			}
		}
		_, body := s.ask("h1", "POST", "/v1/tokens", `{"name":"evil","role":"owner","tenant":"chem"}`)
		var made v1.Token
		must(t, json.Unmarshal([]byte(body), &made))
		jane := logIn(t, p, "7f3a")
		s.grant(site.Token, "h1", "user", "7f3a", "owner", "film")
		ask := func() {
			for _, q := range []string{"", "?tenant=film"} {
				resp, body := s.as(jane, "h1", "POST", "/v1/tokens"+q, `{"name":"a","role":"viewer","tenant":"film"}`)
				t.Log("token", q, resp.Status, body)
				resp, body = s.as(jane, "h1", "POST", "/v1/role-bindings"+q, `{"subject":{"kind":"user","name":"x"},"role":"viewer","tenant":"film"}`)
				t.Log("grant", q, resp.Status, body)
			}
		}
		ask()
		s.as(made.Token, "h1", "POST", "/v1/role-bindings", `{"subject":{"kind":"user","name":"7f3a"},"role":"viewer"}`)
		t.Log("--- bound in chem")
		ask()
		s.ask("h1", "PATCH", "/v1/tenants/chem", `{"state":"suspended"}`)
		resp, body := s.as(jane, "h1", "GET", "/v1/virtual-clusters", "")
		t.Log("chem suspended", resp.Status, body)
	})
}
