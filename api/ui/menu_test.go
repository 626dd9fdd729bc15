package ui_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"evenkeel/api/v1"
	"evenkeel/test/site"
)

// TestAuditInMenu: the menu has the audit log for the roles that may read it.
func TestAuditInMenu(t *testing.T) {
	t.Parallel()
	v := visit(t)
	ask := func(path, body string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, v.base+path, strings.NewReader(body))
		must(t, err)
		r.Header.Set("Authorization", "Bearer "+site.Token)
		r.Header.Set("Content-Type", "application/json")
		resp, text := v.do(r, nil)
		if resp.StatusCode != http.StatusCreated {
			t.Fatalf("%s: %s: %s", path, resp.Status, text)
		}
		return text
	}
	ask("/v1/tenants", `{"name":"film"}`)
	for _, role := range []string{`"admin"`, `"auditor"`, `"operator"`, `"owner","tenant":"film"`, `"viewer","tenant":"film"`} {
		var made v1.Token
		must(t, json.Unmarshal([]byte(ask("/v1/tokens", `{"name":"x","role":`+role+`}`)), &made))
		v.post("/ui/login", url.Values{"token": {made.Token}})
		_, text := v.get("/ui/")
		if !strings.Contains(text, `action="/ui/logout"`) {
			t.Fatalf("%s is not logged in: %s", role, text)
		}
		resp, _ := v.get("/ui/audit")
		if shown := strings.Contains(text, `href="/ui/audit"`); shown != (resp.StatusCode == http.StatusOK) {
			t.Errorf("%s: the menu has the audit log: %v; it answers %s", role, shown, resp.Status)
		}
	}
}
