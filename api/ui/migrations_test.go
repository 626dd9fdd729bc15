package ui_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"evenkeel/api/ui"
	"evenkeel/api/v1"
	"evenkeel/test/site"
)

var migrationLink = regexp.MustCompile(`href="/ui/migrations/([0-9A-Z]+)"`)

// moves a VM, and waits for it.
func (v *visitor) moves(tenant, vm, to string) {
	v.t.Helper()
	var moved v1.PlanResult
	must(v.t, json.Unmarshal([]byte(v.ask("POST", "/v1/vms/"+vm+"/migrate?tenant="+tenant, `{"to":"`+to+`"}`, http.StatusAccepted)), &moved))
	v.ask("GET", "/v1/operations/"+moved.Operation.ID+"?wait=60s", "", http.StatusOK)
}

// TestMigrationPages: the list and a page of each migration, with hosts for the cluster's roles alone; one that is over is not aborted.
func TestMigrationPages(t *testing.T) {
	t.Parallel()
	v := visitHosts(t, 2)
	v.ask("POST", "/v1/tenants", `{"name":"film"}`, http.StatusCreated)
	v.runs("film", `{"name":"web","groups":[{"name":"vm","count":1,"cpu":0.5,"memory":"256MiB","image":"tiny"}]}`)
	to := "h2"
	if strings.Contains(v.ask("GET", "/v1/vms/web-vm-0?tenant=film", "", http.StatusOK), `"host":"h2"`) {
		to = "h1"
	}
	v.moves("film", "web-vm-0", to)
	v.post("/ui/login", url.Values{"token": {site.Token}})
	_, text := v.get("/ui/migrations?vm=film%2Fweb-vm-0&state=done")
	id := migrationLink.FindStringSubmatch(text)
	if id == nil || !strings.Contains(text, "film/web-vm-0") || !strings.Contains(text, `/ui/hosts/`+to) {
		t.Fatalf("the list: %s", text)
	}
	if _, text := v.get("/ui/migrations?state=failed"); migrationLink.MatchString(text) {
		t.Errorf("it did not fail: %s", text)
	}
	if resp, text := v.get("/ui/migrations?vm=web-vm-0"); resp.StatusCode != http.StatusNotFound || !strings.Contains(text, `value="web-vm-0"`) {
		t.Errorf("a VM that is not there: %s: %s", resp.Status, text)
	}
	at := "/ui/migrations/" + id[1]
	if resp, text := v.get(at); resp.StatusCode != http.StatusOK || !strings.Contains(text, `href="/ui/vms/film/web-vm-0"`) || !strings.Contains(text, `<span class="state ok">done</span>`) || strings.Contains(text, `value="abort"`) {
		t.Errorf("its page: %s: %s", resp.Status, text)
	}
	for _, c := range []struct {
		path, do string
		status   int
	}{{at, "abort", http.StatusConflict}, {at, "x", http.StatusBadRequest}, {"/ui/migrations/0123456789abcdef", "abort", http.StatusNotFound}} {
		if resp, text := v.post(c.path, url.Values{"form": {ui.FormToken(site.Token)}, "do": {c.do}}); resp.StatusCode != c.status || !strings.Contains(text, `id="problem"`) {
			t.Errorf("%s of %s: %s: %s", c.do, c.path, resp.Status, text)
		}
	}
	if resp, text := v.get("/ui/rightsizing"); resp.StatusCode != http.StatusOK || !strings.Contains(text, `<th scope="row">emergency</th>`) {
		t.Errorf("rightsizing: %s: %s", resp.Status, text)
	}
	for _, path := range []string{"/ui/operations", "/ui/operations?vc=film%2Fweb&state=done"} {
		if resp, text := v.get(path); resp.StatusCode != http.StatusOK || !strings.Contains(text, `<a href="/ui/virtual-clusters/film/web">film/web</a>`) || !strings.Contains(text, "1 of 1") {
			t.Errorf("%s: %s: %s", path, resp.Status, text)
		}
	}
	if _, text := v.get("/ui/operations?state=failed"); strings.Contains(text, "film/web") {
		t.Errorf("no operation failed: %s", text)
	}
	var owner v1.Token
	must(t, json.Unmarshal([]byte(v.ask("POST", "/v1/tokens", `{"name":"x","role":"owner","tenant":"film"}`, http.StatusCreated)), &owner))
	v.post("/ui/login", url.Values{"token": {owner.Token}})
	for _, path := range []string{"/ui/migrations", "/ui/migrations?vm=web-vm-0", at} {
		if resp, text := v.get(path); resp.StatusCode != http.StatusOK || !strings.Contains(text, "web-vm-0") || strings.Contains(text, "/ui/hosts/") || strings.Contains(text, "film/web") {
			t.Errorf("as a tenant, %s: %s: %s", path, resp.Status, text)
		}
	}
	if resp, text := v.get("/ui/rightsizing"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("rightsizing is the cluster's: %s: %s", resp.Status, text)
	}
}
