package ui_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"evenkeel/api/ui"
	"evenkeel/api/v1"
	"evenkeel/test/site"
)

// ask the API as an admin.
func (v *visitor) ask(method, path, body string, status int) string {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), method, v.base+path, strings.NewReader(body))
	must(v.t, err)
	r.Header.Set("Authorization", "Bearer "+site.Token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, text := v.do(r, nil)
	if resp.StatusCode != status {
		v.t.Fatalf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	return text
}

// runs creates a virtual cluster, and waits for it.
func (v *visitor) runs(tenant, spec string) {
	v.t.Helper()
	var made v1.Result
	must(v.t, json.Unmarshal([]byte(v.ask("POST", "/v1/virtual-clusters?tenant="+tenant, spec, http.StatusAccepted)), &made))
	v.ask("GET", "/v1/operations/"+made.Operation.ID+"?wait=60s", "", http.StatusOK)
}

// Names of another tenant, and of its things, which no page of film may have.
const other = "zebra"

var (
	hostOfSite = regexp.MustCompile(`\bh1\b`)
	headings   = regexp.MustCompile(`</?h1>`)
	versions   = regexp.MustCompile(` data-version="[^"]*"`) // follow from the rest of the page
)

// TestRoutesOfRoles: for every page and every role of a tenant, what is another tenant's is as what is not there, no page names it or a
// host, and no form changes it. Forms of those that may only read change nothing at all.
func TestRoutesOfRoles(t *testing.T) {
	t.Parallel()
	v := visit(t)
	for _, tenant := range []string{"film", other} {
		v.ask("POST", "/v1/tenants", `{"name":"`+tenant+`","displayName":"`+tenant+` company"}`, http.StatusCreated)
		v.runs(tenant, `{"name":"`+tenant+`-web","periodic":{"name":"`+tenant+`-nightly"},"groups":[{"name":"vm","count":1,"cpu":0.5,"memory":"256MiB","image":"tiny"}]}`)
		v.runs(tenant, `{"name":"`+tenant+`-old","periodic":{"name":"`+tenant+`-nightly"},"groups":[{"name":"vm","count":1,"cpu":0.5,"memory":"256MiB","image":"tiny"}]}`)
		v.ask("DELETE", "/v1/virtual-clusters/"+tenant+"-old?tenant="+tenant, "", http.StatusAccepted)
		v.ask("POST", "/v1/images?tenant="+tenant, `{"name":"`+tenant+`-disk","kind":"initrd","file":"/images/`+tenant+`"}`, http.StatusCreated)
	}
	plan := "0123456789abcdef"
	var tokenOfOther v1.Token
	must(t, json.Unmarshal([]byte(v.ask("POST", "/v1/tokens", `{"name":"of zebra","role":"viewer","tenant":"zebra"}`, http.StatusCreated)), &tokenOfOther))
	var bindingOfOther v1.RoleBinding
	must(t, json.Unmarshal([]byte(v.ask("POST", "/v1/role-bindings", `{"subject":{"kind":"token","name":"`+tokenOfOther.ID+`"},"role":"editor","tenant":"zebra"}`, http.StatusCreated)), &bindingOfOther))
	// state is what no form of a tenant's viewer, and of zebra no form of film's may change.
	state := func(paths ...string) (out []string) {
		for _, path := range paths {
			out = append(out, v.ask("GET", path, "", http.StatusOK))
		}
		return out
	}
	ofOther := []string{"/v1/virtual-clusters/zebra-web/spec?tenant=zebra", "/v1/virtual-clusters/zebra-web/versions?tenant=zebra", "/v1/images?tenant=zebra", "/v1/cluster/settings", "/v1/tenants/zebra", "/v1/quotas/zebra", "/v1/tokens?tenant=zebra", "/v1/role-bindings?tenant=zebra"}
	ofFilm := []string{"/v1/virtual-clusters/film-web/spec?tenant=film", "/v1/virtual-clusters/film-web/versions?tenant=film", "/v1/images?tenant=film", "/v1/tenants/film", "/v1/quotas/film"}

	kinds := map[string]string{"/ui/virtual-clusters/": "web", "/ui/file/": "web", "/ui/periodic/": "nightly", "/ui/console/": "web-vm-0", "/ui/vms/": "web-vm-0", "/ui/forecast/": "web-vm-0"}
	forms := map[string][]url.Values{
		"/ui/virtual-clusters/":  {{"do": {"scale"}, "group": {"vm"}, "count": {"2"}}, {"do": {"stop"}}, {"do": {"start"}}, {"do": {"delete"}}},
		"/ui/vms/":               {{"do": {"stop"}}, {"do": {"start"}}, {"do": {"restart"}}, {"do": {"reset"}}, {"do": {"migrate"}}},
		"/ui/file/":              {{"do": {"rollback"}, "version": {"1"}}, {"do": {"apply"}, "file": {"name: NAME\ngroups:\n  - {name: vm, count: 3, cpu: 0.5, memory: 256MiB, image: tiny}\n"}, "force": {"1"}, "restart": {"1"}}},
		"/ui/periodic/":          {{"do": {"accept"}, "rule": {"FREQ=HOURLY"}, "length": {"10m"}}, {"do": {"override"}, "deadline": {"30m"}}, {"do": {"reject"}}},
		"/ui/hosts/h1":           {{"do": {"drain"}}, {"do": {"cordon"}}, {"do": {"undrain"}}, {"do": {"uncordon"}}},
		"/ui/plans":              {{"budget": {"1GiB"}}},
		"/ui/plans/" + plan:      {{"do": {"apply"}}, {"do": {"stop"}}},
		"/ui/migrations/" + plan: {{"do": {"abort"}}},
		"/ui/settings":           {{"key": {"maxVMs"}, "value": {"17"}}},
		"/ui/images":             {{"do": {"add"}, "tenant": {other}, "name": {"more"}, "kind": {"disk"}, "file": {"/x"}}, {"do": {"delete"}, "tenant": {other}, "name": {other + "-disk"}}},
		"/ui/tokens":             {{"do": {"create"}, "name": {"x"}, "role": {"viewer"}, "tenant": {other}}, {"do": {"create"}, "name": {"x"}, "role": {"operator"}}, {"do": {"revoke"}, "id": {tokenOfOther.ID}}, {"do": {"revoke"}, "id": {tokenOfOther.ID}, "dry": {"1"}}},
		"/ui/roles":              {{"do": {"grant"}, "kind": {"token"}, "name": {tokenOfOther.ID}, "role": {"viewer"}}, {"do": {"grant"}, "kind": {"token"}, "name": {tokenOfOther.ID}, "role": {"viewer"}, "tenant": {other}}, {"do": {"revoke"}, "id": {bindingOfOther.ID}}, {"do": {"revoke"}, "id": {bindingOfOther.ID}, "dry": {"1"}}, {"do": {"revoke-user"}, "user": {"7f3a"}}},
		"/ui/tenants":            {{"name": {"more"}}},
		"/ui/tenants/film":       {{"do": {"suspend"}}, {"do": {"resume"}}, {"do": {"name"}, "displayName": {"x"}}, {"do": {"delete"}}, {"do": {"quota"}, "key": {"vms"}, "limit": {"unlimited"}}},
		"/ui/new":                {{"tenant": {other}, "file": {"name: more\ngroups:\n  - {name: vm, count: 1, cpu: 0.1, memory: 256MiB, image: tiny}\n"}}},
		"/ui/simulate":           {{"hosts": {"1"}, "cpu": {"1"}, "memory": {"1GiB"}}},
	}
	pages, posts := 0, 0
	for _, role := range []string{"viewer", "editor", "owner"} {
		var made v1.Token
		must(t, json.Unmarshal([]byte(v.ask("POST", "/v1/tokens", `{"name":"x","role":"`+role+`","tenant":"film"}`, http.StatusCreated)), &made))
		v.post("/ui/login", url.Values{"token": {made.Token}})
		clean := func(path, text string) {
			t.Helper()
			if shown := headings.ReplaceAllString(text, ""); path != "/ui/hosts/h1" && hostOfSite.MatchString(shown) {
				t.Errorf("%s, %s names a host: %s", role, path, shown)
			}
			if strings.Contains(text, other) {
				t.Errorf("%s, %s names another tenant: %s", role, path, text)
			}
		}
		// asOther is what is answered for a thing of zebra; the same must be answered for a thing that is not there.
		same := func(what string, at func(name string) (*http.Response, string), own string) {
			t.Helper()
			for _, prefix := range []string{"", other + "/"} {
				there, text := at(prefix + other + "-" + own)
				gone, without := at(prefix + other + "-nothing")
				text = versions.ReplaceAllString(text, "")
				without = versions.ReplaceAllString(strings.ReplaceAll(without, other+"-nothing", other+"-"+own), "")
				if there.StatusCode != gone.StatusCode || there.StatusCode < 400 || text != without {
					t.Errorf("%s, %s of %s: %s %s\nand of what is not there: %s %s", role, what, prefix+own, there.Status, text, gone.Status, without)
				}
			}
		}
		if resp, text := v.get("/ui/settings"); resp.StatusCode != http.StatusOK || !strings.Contains(text, "<code>maxVMs</code>") || strings.Contains(text, "<code>moves.") || strings.Contains(text, "<code>rightsizing.") || strings.Contains(text, "<code>placement") {
			t.Errorf("%s, settings that the tenant was not sent, or not those that it was: %s %s", role, resp.Status, text)
		}
		field := ui.FormToken(made.Token)
		before, beforeFilm := state(ofOther...), state(ofFilm...)
		for _, pattern := range ui.Routes() {
			method, path, _ := strings.Cut(pattern, " ")
			path = strings.NewReplacer("{$}", "", "{id}", plan, "{tenant}", "film").Replace(path)
			if folder, found := strings.CutSuffix(path, "{name...}"); found {
				own, known := kinds[folder]
				if !known {
					t.Fatalf("%s has no names of this test", pattern)
				}
				if method == http.MethodGet {
					pages++
					same("GET "+folder, func(name string) (*http.Response, string) { return v.get(folder + name) }, own)
					resp, text := v.get(folder + "film-" + own)
					if resp.StatusCode != http.StatusOK && !strings.Contains(pattern, "console") && !strings.Contains(pattern, "forecast") {
						t.Errorf("%s, %s: %s", role, folder, resp.Status)
					}
					clean(folder+"film-"+own, text)
					continue
				}
				for _, form := range forms[folder] {
					posts++
					same("POST "+folder+" "+form.Get("do"), func(name string) (*http.Response, string) {
						return v.post(folder+name, sent(form, field, strings.TrimPrefix(name, other+"/")))
					}, own)
				}
				if role == "viewer" {
					for _, form := range forms[folder] {
						resp, text := v.post(folder+"film-"+own, sent(form, field, "film-"+own))
						if resp.StatusCode < 400 {
							t.Errorf("a viewer, %s %v: %s %s", pattern, form, resp.Status, text)
						}
					}
				}
				continue
			}
			path = strings.ReplaceAll(path, "{name}", "h1")
			if method == http.MethodGet {
				pages++
				_, text := v.get(path)
				clean(path, text)
				continue
			}
			if len(forms[path]) == 0 {
				t.Fatalf("%s has no forms of this test", pattern)
			}
			for _, form := range forms[path] {
				posts++
				resp, text := v.post(path, sent(form, field, ""))
				if resp.StatusCode < 400 {
					t.Errorf("%s, %s %v: %s %s", role, pattern, form, resp.Status, text)
				}
				if hostOfSite.MatchString(headings.ReplaceAllString(text, "")) && path != "/ui/hosts/h1" {
					t.Errorf("%s, %s %v names a host: %s", role, pattern, form, text)
				}
			}
		}
		if after := state(ofOther...); !slices.Equal(before, after) {
			t.Errorf("%s changed what is not its own:\n%q\n%q", role, before, after)
		}
		if after := state(ofFilm...); role == "viewer" && !slices.Equal(beforeFilm, after) {
			t.Errorf("a viewer changed:\n%q\n%q", beforeFilm, after)
		}
	}
	t.Logf("%d pages and %d forms of 3 roles", pages, posts)
}

// sent is a form with the session's field.
func sent(form url.Values, field, name string) url.Values {
	out := url.Values{}
	for key, values := range form {
		out.Set(key, strings.ReplaceAll(values[0], "NAME", name))
	}
	out.Set("form", field)
	return out
}
