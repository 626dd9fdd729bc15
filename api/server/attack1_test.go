package server_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"evenkeel/api/v1"
	"evenkeel/test/openid"
	"evenkeel/test/site"
)

func TestAttackSuspendedTenantsToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 1, 2)
		var all v1.List[v1.Token]
		must(t, json.Unmarshal([]byte(x.want(200, "GET", "/v1/tokens?tenant=film", "", "admin")), &all))
		for _, tok := range all.Items {
			if tok.Name == "film-editor" {
				x.want(201, "POST", "/v1/role-bindings", `{"subject":{"kind":"token","name":"`+tok.ID+`"},"role":"editor","tenant":"acme"}`, "admin")
			}
		}
		x.want(200, "PATCH", "/v1/tenants/film", `{"state":"suspended"}`, "admin")
		resp, got := x.as("film editor", "GET", "/v1/virtual-clusters?tenant=acme", "")
		if resp.StatusCode != 403 {
			t.Errorf("a token of a suspended tenant: %s %.200s", resp.Status, got)
		}
	})
}

// The holder of a token for a minute gives its rights to one without an end.
func TestAttackBindingOutlivesToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 1, 2)
		x.makeToken("short", `{"name":"short","role":"owner","tenant":"film","seconds":60}`, "film")
		var all v1.List[v1.Token]
		must(t, json.Unmarshal([]byte(x.want(200, "GET", "/v1/tokens?tenant=film", "", "admin")), &all))
		for _, tok := range all.Items {
			if tok.Name == "film-viewer" {
				x.as("short", "POST", "/v1/role-bindings", `{"subject":{"kind":"token","name":"`+tok.ID+`"},"role":"owner"}`)
			}
		}
		time.Sleep(5 * time.Minute) // sleep: simulated
		x.want(401, "GET", "/v1/virtual-clusters", "", "short")
		resp, got := x.as("film viewer", "POST", "/v1/tokens", `{"name":"more","role":"owner"}`)
		if resp.StatusCode == 201 {
			t.Errorf("OUTLIVES: %s %.200s", resp.Status, got)
		}
	})
}

// The owner of another tenant becomes the place where a person's requests go.
func TestAttackOwnerDrawsPerson(t *testing.T) {
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
		s.grant(site.Token, "h1", "user", "7f3a", "editor", "film")
		_, body = s.as(jane, "h1", "GET", "/v1/auth/self", "")
		t.Log(body)
		_, body = s.as(made.Token, "h1", "POST", "/v1/role-bindings", `{"subject":{"kind":"user","name":"7f3a"},"role":"editor"}`)
		t.Log(body)
		_, body = s.as(jane, "h1", "GET", "/v1/auth/self", "")
		t.Log(body)
		resp, body := s.as(jane, "h1", "POST", "/v1/virtual-clusters", `{"name":"secret","groups":[{"name":"w","count":1,"cpu":0.1,"memory":67108864,"cloudInit":{"userData":"#cloud-config\n# PASSWORD"}}]}`)
		t.Log(resp.Status)
		_, body = s.as(made.Token, "h1", "GET", "/v1/virtual-clusters/secret/spec", "")
		if strings.Contains(body, "PASSWORD") {
			t.Errorf("DRAWN: the owner of chem reads what jane of film made: %s", body)
		}
	})
}
