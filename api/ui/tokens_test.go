package ui_test

import (
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"evenkeel/api/ui"
	"evenkeel/api/v1"
	"evenkeel/test/site"
)

var secretOf = regexp.MustCompile(`data-copy="(ekt_[0-9a-f]{16}\.[A-Za-z0-9_-]{43})"`)

// TestTokenShownOnce: the secret of a new token is in the answer to the form alone. No cache keeps that, and no other page, list, event
// or record has the secret. The token is good until the page revokes it.
func TestTokenShownOnce(t *testing.T) {
	t.Parallel()
	v := visit(t)
	v.ask("POST", "/v1/tenants", `{"name":"film"}`, http.StatusCreated)
	var owner v1.Token
	must(t, json.Unmarshal([]byte(v.ask("POST", "/v1/tokens", `{"name":"owner","role":"owner","tenant":"film"}`, http.StatusCreated)), &owner))
	v.post("/ui/login", url.Values{"token": {owner.Token}})
	form := url.Values{"form": {ui.FormToken(owner.Token)}, "do": {"create"}, "name": {"it's <b>"}, "role": {"editor"}, "expires": {"720h"}, "from": {"127.0.0.0/8, ::1"}}
	tokens := func() int { return strings.Count(v.ask("GET", "/v1/tokens?tenant=film", "", http.StatusOK), `"id":`) }

	form.Set("dry", "1")
	before := tokens()
	resp, text := v.post("/ui/tokens", form)
	if command := `vcctl token create 'it'\''s <b>' --role editor --expires 720h --from 127.0.0.0/8,::1`; resp.StatusCode != http.StatusOK || !strings.Contains(text, "Nothing was changed") || !strings.Contains(html.UnescapeString(text), command) || secretOf.MatchString(text) {
		t.Errorf("a check: %s: %s", resp.Status, text)
	}
	form.Del("dry")
	if after := tokens(); after != before {
		t.Fatalf("a check made a token: %d", after)
	}
	resp, text = v.post("/ui/tokens", form)
	found := secretOf.FindStringSubmatch(text)
	if resp.StatusCode != http.StatusOK || found == nil {
		t.Fatalf("%s: %s", resp.Status, text)
	}
	secret := found[1]
	if resp.Header.Get("Cache-Control") != "no-store" || resp.Request.URL.RequestURI() != "/ui/tokens" || strings.Contains(text, "data-live") || strings.Contains(text, "<b>") {
		t.Errorf("the answer with the secret: %s %q: %s", resp.Request.URL, resp.Header, text)
	}
	id := secret[len("ekt_"):strings.IndexByte(secret, '.')]
	_, hidden, _ := strings.Cut(secret, ".")
	for _, path := range []string{"/ui/tokens", "/ui/tokens?q=" + id, "/ui/events", "/ui/virtual-clusters"} {
		if _, text := v.get(path); strings.Contains(text, hidden) {
			t.Errorf("%s has the secret", path)
		}
	}
	for _, path := range []string{"/v1/tokens", "/v1/events?follow=false", "/v1/audit"} {
		if text := v.ask("GET", path, "", http.StatusOK); strings.Contains(text, hidden) || !strings.Contains(text, id) {
			t.Errorf("%s has the secret, or not the token: %s", path, text)
		}
	}
	if _, text := v.get("/ui/tokens"); !strings.Contains(text, "<code>"+id+"</code>") || !strings.Contains(text, "127.0.0.0/8, ::1/128") || !strings.Contains(text, "it&#39;s &lt;b&gt;") {
		t.Errorf("the list: %s", text)
	}
	self := func(status int) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, v.base+"/v1/auth/self", nil)
		must(t, err)
		r.Header.Set("Authorization", "Bearer "+secret)
		if resp, text := v.do(r, nil); resp.StatusCode != status {
			t.Errorf("the new token: %s: %s", resp.Status, text)
		}
	}
	self(http.StatusOK)
	revoke := url.Values{"form": form["form"], "do": {"revoke"}, "id": {id}, "dry": {"1"}}
	if resp, text := v.post("/ui/tokens", revoke); resp.StatusCode != http.StatusOK || !strings.Contains(text, "would be revoked") || !strings.Contains(text, "vcctl token revoke "+id) {
		t.Errorf("a check: %s: %s", resp.Status, text)
	}
	self(http.StatusOK)
	revoke.Del("dry")
	if resp, text := v.post("/ui/tokens", revoke); resp.Request.Method != http.MethodGet || strings.Contains(text, id) {
		t.Errorf("it is revoked: %s: %s", resp.Status, text)
	}
	self(http.StatusUnauthorized)
}

// TestTokenRefused: what the API refuses stands on the page with what was written; a field that is no value is named.
func TestTokenRefused(t *testing.T) {
	t.Parallel()
	v := visit(t)
	v.post("/ui/login", url.Values{"token": {site.Token}})
	for _, c := range []struct {
		what   string
		form   url.Values
		status int
		says   []string
	}{
		{"no duration", url.Values{"do": {"create"}, "name": {"kept"}, "role": {"admin"}, "expires": {"30 days"}}, http.StatusUnprocessableEntity, []string{"<code>expires</code>", `value="kept"`, `value="30 days"`}},
		{"too short", url.Values{"do": {"create"}, "name": {"kept"}, "role": {"admin"}, "expires": {"1s"}}, http.StatusUnprocessableEntity, []string{"seconds", `value="kept"`}},
		{"no range", url.Values{"do": {"create"}, "name": {"kept"}, "role": {"auditor"}, "from": {"10.0.0.0/99"}}, http.StatusUnprocessableEntity, []string{"10.0.0.0/99", "<option selected>auditor</option>"}},
		{"no tenant", url.Values{"do": {"create"}, "name": {"kept"}, "role": {"owner"}}, http.StatusUnprocessableEntity, []string{"tenant"}},
		{"nothing there", url.Values{"do": {"revoke"}, "id": {"0123456789abcdef"}}, http.StatusNotFound, []string{"0123456789abcdef"}},
		{"an id that is a path", url.Values{"do": {"revoke"}, "id": {"../tenants/film"}}, http.StatusNotFound, nil},
		{"no id", url.Values{"do": {"revoke"}}, 0, nil},
		{"nothing known", url.Values{"do": {"x"}}, http.StatusBadRequest, nil},
	} {
		c.form.Set("form", ui.FormToken(site.Token))
		resp, text := v.post("/ui/tokens", c.form)
		if resp.StatusCode < 400 || c.status != 0 && resp.StatusCode != c.status || !strings.Contains(text, `id="problem"`) {
			t.Errorf("%s: %s: %s", c.what, resp.Status, text)
		}
		for _, says := range c.says {
			if !strings.Contains(text, says) {
				t.Errorf("%s: %q is not in %s", c.what, says, text)
			}
		}
	}
}

// TestTokensInMenu: the page is in the menu, and has forms, for the roles that may use it alone.
func TestTokensInMenu(t *testing.T) {
	t.Parallel()
	v := visit(t)
	v.ask("POST", "/v1/tenants", `{"name":"film"}`, http.StatusCreated)
	for role, want := range map[string]struct{ see, change bool }{
		`"admin"`: {true, true}, `"auditor"`: {true, false}, `"operator"`: {}, `"owner","tenant":"film"`: {true, true}, `"editor","tenant":"film"`: {}, `"viewer","tenant":"film"`: {},
	} {
		var made v1.Token
		must(t, json.Unmarshal([]byte(v.ask("POST", "/v1/tokens", `{"name":"x","role":`+role+`}`, http.StatusCreated)), &made))
		v.post("/ui/login", url.Values{"token": {made.Token}})
		_, text := v.get("/ui/events")
		resp, page := v.get("/ui/tokens")
		if shown := strings.Contains(text, `href="/ui/tokens"`); shown != want.see || (resp.StatusCode == http.StatusOK) != want.see {
			t.Errorf("%s: the menu has the tokens: %v; the page answers %s", role, shown, resp.Status)
		}
		if forms := strings.Contains(page, `name="do" value="create"`); forms != want.change {
			t.Errorf("%s: the page has forms: %v", role, forms)
		}
		if !want.change {
			resp, text := v.post("/ui/tokens", url.Values{"form": {ui.FormToken(made.Token)}, "do": {"create"}, "name": {"y"}, "role": {"viewer"}, "tenant": {"film"}})
			if resp.StatusCode != http.StatusForbidden || secretOf.MatchString(text) {
				t.Errorf("%s makes a token: %s: %s", role, resp.Status, text)
			}
		}
	}
}

// TestRolesOfForms: the forms offer the roles that the API takes, and no other.
func TestRolesOfForms(t *testing.T) {
	t.Parallel()
	for _, request := range []any{v1.TokenRequest{}, v1.RoleBindingRequest{}} {
		field, _ := reflect.TypeOf(request).FieldByName("Role")
		if want := strings.Split(field.Tag.Get("enum"), ","); !slices.Equal(ui.Roles(), want) {
			t.Errorf("%T takes %q, forms offer %q", request, want, ui.Roles())
		}
	}
}
