package ui_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"evenkeel/api/ui"
	"evenkeel/api/v1"
	"evenkeel/test/site"
)

// TestTenantForms: each form of a tenant changes what it says, its check says so before and changes nothing, and what the API refuses
// stands on the page with what was written.
func TestTenantForms(t *testing.T) {
	t.Parallel()
	v := visit(t)
	v.post("/ui/login", url.Values{"token": {site.Token}})
	post := func(path string, form url.Values, dry bool) (*http.Response, string) {
		t.Helper()
		form.Set("form", ui.FormToken(site.Token))
		if form.Del("dry"); dry {
			form.Set("dry", "1")
		}
		return v.post(path, form)
	}
	state := func() string {
		return v.ask("GET", "/v1/tenants", "", http.StatusOK) + v.ask("GET", "/v1/quotas", "", http.StatusOK)
	}
	film := "/ui/tenants/film"
	for _, c := range []struct {
		path   string
		form   url.Values
		would  string // what the check says
		at     string // where the change leads
		says   string // what that page has
		status int    // of a refusal; 0: there is none
	}{
		{"/ui/tenants", url.Values{"name": {"Film school"}, "displayName": {"kept"}}, "", "", `value="kept"`, http.StatusUnprocessableEntity},
		{"/ui/tenants", url.Values{"name": {"film"}, "displayName": {"Film <school>"}}, "Tenant film (Film &lt;school&gt;) would be created", film, "Film &lt;school&gt;", 0},
		{"/ui/tenants", url.Values{"name": {"film"}}, "", "", "film", http.StatusConflict},
		{film, url.Values{"do": {"name"}, "displayName": {"Cinema"}}, `active, with the display name &#34;Cinema&#34;`, film, "</span> Cinema", 0},
		{film, url.Values{"do": {"quota"}, "key": {"memory"}, "limit": {"3GiB"}}, "memory: the limit would be 3GiB", film, `<td class="n">3GiB</td><td>this tenant's quota</td>`, 0},
		{film, url.Values{"do": {"quota"}, "key": {"vms"}, "limit": {"many"}}, "", "", `value="many"`, http.StatusUnprocessableEntity},
		{film, url.Values{"do": {"quota"}, "key": {"ghosts"}, "limit": {"1"}}, "", "", "ghosts", http.StatusUnprocessableEntity},
		{film, url.Values{"do": {"suspend"}}, "would be suspended", film, `value="resume"`, 0},
		{film, url.Values{"do": {"resume"}}, "would be active", film, `value="suspend"`, 0},
		{film, url.Values{"do": {"rename"}}, "", "", "", http.StatusBadRequest},
		{"/ui/tenants/none", url.Values{"do": {"suspend"}}, "", "", "", http.StatusNotFound},
		{film, url.Values{"do": {"delete"}}, "would be deleted", "/ui/tenants", "Tenants", 0},
	} {
		before := state()
		resp, text := post(c.path, c.form, true)
		if after := state(); after != before {
			t.Errorf("%s %v: a check changes %s to %s", c.path, c.form, before, after)
		}
		if c.status != 0 {
			if resp, text = post(c.path, c.form, false); resp.StatusCode != c.status || !strings.Contains(text, c.says) || state() != before {
				t.Errorf("%s %v: %s: %s", c.path, c.form, resp.Status, text)
			}
			continue
		}
		if resp.StatusCode != http.StatusOK || !strings.Contains(text, "Nothing was changed") || !strings.Contains(text, c.would) {
			t.Errorf("a check of %s %v: %s: %s", c.path, c.form, resp.Status, text)
		}
		if resp, text = post(c.path, c.form, false); resp.StatusCode != http.StatusOK || resp.Request.URL.Path != c.at || !strings.Contains(text, c.says) || state() == before {
			t.Errorf("%s %v: %s at %s: %s", c.path, c.form, resp.Status, resp.Request.URL, text)
		}
	}
}

// TestTenantOfOthers: a tenant sees the page of itself, without forms; that of another is as that of none.
func TestTenantOfOthers(t *testing.T) {
	t.Parallel()
	v := visit(t)
	for _, name := range []string{"film", other} {
		v.ask("POST", "/v1/tenants", `{"name":"`+name+`"}`, http.StatusCreated)
	}
	var made v1.Token
	must(t, json.Unmarshal([]byte(v.ask("POST", "/v1/tokens", `{"name":"x","role":"owner","tenant":"film"}`, http.StatusCreated)), &made))
	v.post("/ui/login", url.Values{"token": {made.Token}})
	if resp, text := v.get("/ui/tenants/film"); resp.StatusCode != http.StatusOK || !strings.Contains(text, `<th scope="row">memory</th>`) || strings.Contains(text, `name="do"`) {
		t.Errorf("its own page: %s: %s", resp.Status, text)
	}
	there, text := v.get("/ui/tenants/" + other)
	gone, without := v.get("/ui/tenants/missing")
	if there.StatusCode != http.StatusNotFound || gone.StatusCode != http.StatusNotFound || versions.ReplaceAllString(text, "") != versions.ReplaceAllString(strings.ReplaceAll(without, "missing", other), "") {
		t.Errorf("another's: %s %s\nof none: %s %s", there.Status, text, gone.Status, without)
	}
}

// TestRoleForms: the owner of a tenant grants a role in it to a token and revokes it, each with a check that changes nothing; what the
// API refuses stands on the page with what was written.
func TestRoleForms(t *testing.T) {
	t.Parallel()
	v := visit(t)
	v.ask("POST", "/v1/tenants", `{"name":"film"}`, http.StatusCreated)
	token := func(role string) (made v1.Token) {
		must(t, json.Unmarshal([]byte(v.ask("POST", "/v1/tokens", `{"name":"x","role":"`+role+`","tenant":"film"}`, http.StatusCreated)), &made))
		return made
	}
	owner, viewer := token("owner"), token("viewer")
	v.post("/ui/login", url.Values{"token": {owner.Token}})
	bindings := func() (list v1.List[v1.RoleBinding]) {
		must(t, json.Unmarshal([]byte(v.ask("GET", "/v1/role-bindings", "", http.StatusOK)), &list))
		return list
	}
	post := func(status, count int, says string, form url.Values) {
		t.Helper()
		form.Set("form", ui.FormToken(owner.Token))
		resp, text := v.post("/ui/roles", form)
		if got := len(bindings().Items); resp.StatusCode != status || !strings.Contains(text, says) || got != count {
			t.Errorf("%v: %d bindings, %s: %s", form, got, resp.Status, text)
		}
	}
	grant := func(of ...string) url.Values {
		form := url.Values{"do": {"grant"}, "kind": {"token"}, "name": {viewer.ID}, "role": {"editor"}}
		for i := 0; i < len(of); i += 2 {
			form.Set(of[i], of[i+1])
		}
		return form
	}
	post(http.StatusNotFound, 0, `value="0123456789abcdef"`, grant("name", "0123456789abcdef"))
	post(http.StatusForbidden, 0, "", grant("kind", "user", "name", "anna"))
	post(http.StatusOK, 0, "It would make token "+viewer.ID+" editor in tenant film.", grant("dry", "1"))
	post(http.StatusOK, 1, "Revoke editor of "+viewer.ID, grant())
	made := bindings().Items[0]
	post(http.StatusOK, 1, "It would end this: token "+viewer.ID+" editor in tenant film.", url.Values{"do": {"revoke"}, "id": {made.ID}, "dry": {"1"}})
	post(http.StatusOK, 0, "None.", url.Values{"do": {"revoke"}, "id": {made.ID}})
	post(http.StatusNotFound, 0, `id="problem"`, url.Values{"do": {"revoke"}, "id": {made.ID}})
	post(http.StatusBadRequest, 0, `id="problem"`, url.Values{"do": {"x"}})
}
