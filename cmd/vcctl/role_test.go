package main

import (
	"strings"
	"testing"
)

// Each command of roles and rights: what it asks, what it prints, and its exit status.
func TestRoleCommands(t *testing.T) {
	bound := `{"id":"01","subject":{"kind":"group","name":"film people"},"issuer":"https://id.example.org","role":"editor","tenant":"film","madeAt":"2026-11-01T10:00:00Z","madeBy":"ann (token:1)"}`
	may := `"role":"editor","tenant":"film","kind":"virtual-cluster","verb":"create","roles":["admin","editor"],"operations":["POST /v1/virtual-clusters"]`
	revoked := `{"id":"oidc:0f","user":"7f3a","before":"2026-11-01T10:00:30Z","until":"2026-11-08T10:00:30Z","madeAt":"2026-11-01T10:00:00Z","madeBy":"ann"}`
	r := newRecorder(t, map[string]string{
		"GET /v1/role-bindings": `{"items":[` + bound + `]}`, "POST /v1/role-bindings": bound, "DELETE /v1/role-bindings/01": bound,
		"GET /v1/auth/permissions":  `{"role":"editor","tenant":"film","items":[{"kind":"vm","verb":"get","roles":["admin","editor"],"operations":["GET /v1/vms"]}]}`,
		"GET /v1/auth/can-i":        `{"allowed":true,"text":"the role editor of tenant film may create virtual-cluster",` + may + `}`,
		"GET /v1/auth/revocations":  `{"items":[` + revoked + `]}`,
		"POST /v1/auth/revocations": revoked,
	})
	no := newRecorder(t, map[string]string{"GET /v1/auth/can-i": `{"allowed":false,"text":"the role viewer of tenant film may not create virtual-cluster; it needs admin or editor",` + may + `}`})
	type line struct {
		tenant, line string
		status       int
		asked        string // the first request
		says         string // on either output
	}
	try := func(r *recorder, c line) {
		t.Helper()
		atHome(t, "")
		t.Setenv("EVENKEEL_TENANT", c.tenant)
		status, asked, out, errs := r.vcctl(strings.Split(c.line, " ")...)
		first := ""
		if len(asked) > 0 {
			first = asked[0]
		}
		if status != c.status || first != c.asked || !strings.Contains(out+errs, c.says) {
			t.Errorf("%s: status %d, want %d; asked %q, want %q; printed\n%s%s, want\n%s", c.line, status, c.status, first, c.asked, out, errs, c.says)
		}
	}
	const ofGroup = `POST /v1/role-bindings?tenant=film {"subject":{"kind":"group","name":"film-people"},"role":"editor","tenant":"film"}`
	for _, c := range []line{
		{"", "role list", 0, "GET /v1/role-bindings", "ID   KIND    SUBJECT       ROLE     TENANT\n01   group   film people   editor   film\n"},
		{"film", "role list -o wide", 0, "GET /v1/role-bindings?tenant=film", "https://id.example.org"},
		{"", "role grant editor --group film-people --tenant film", 0, ofGroup, "Group film people has role editor in tenant film (binding 01).\n"},
		{"film", "role grant editor --group film-people", 0, ofGroup, ""},
		{"film", "role grant auditor --user 7f3a", 0, `POST /v1/role-bindings?tenant=film {"subject":{"kind":"user","name":"7f3a"},"role":"auditor"}`, ""},
		{"", "role grant viewer --of-token 0123", 0, `POST /v1/role-bindings {"subject":{"kind":"token","name":"0123"},"role":"viewer"}`, ""},
		{"film", "role grant editor --group film-people --dry-run", 0, strings.Replace(ofGroup, "?", "?dryRun=true&", 1), "Dry run: nothing was changed.\n"},
		{"film", "--dry-run role grant editor --group film-people", 0, strings.Replace(ofGroup, "?", "?dryRun=true&", 1), "Dry run"},
		{"", "role grant editor", 2, "", "say who gets the role"},
		{"", "role grant editor --user a --group b", 2, "", "one of --user, --group and --of-token"},
		{"", "role grant admin --user a --tenant film", 2, "", "role admin is of the cluster"},
		{"", "role grant editor --user a --tenant *", 2, "", "name one tenant"},
		{"", "role grant --user a", 2, "", "ROLE is missing"},
		{"", "role revoke 01", 0, "DELETE /v1/role-bindings/01", "Role binding 01 is gone: group film people has by it no longer role editor in tenant film.\n"},
		{"", "role revoke 01 --dry-run", 0, "DELETE /v1/role-bindings/01?dryRun=true", "Dry run"},
		{"", "--dry-run role revoke 01", 0, "DELETE /v1/role-bindings/01?dryRun=true", "Dry run"},
		{"", "role revoke 02", 4, "DELETE /v1/role-bindings/02", "there is no such thing"},

		{"", "__complete -- role grant ow", 0, "", "owner\n"},
		{"", "__complete -- role revoke ", 0, "GET /v1/role-bindings?consistency=stale", "01\n"},
		{"film", "auth can-i create vc", 0, "GET /v1/auth/can-i?kind=vc&tenant=film&verb=create", "yes\n"},
		{"", "auth can-i create", 2, "", "KIND is missing"},
		{"", "auth permissions", 0, "GET /v1/auth/permissions", "KIND   VERB\nvm     get\n"},
		{"film", "auth permissions -o wide", 0, "GET /v1/auth/permissions?tenant=film", "GET /v1/vms"},
		{"", "auth revoke oidc:7f3a", 0, `POST /v1/auth/revocations {"user":"oidc:7f3a"}`, "Tokens that were issued to user 7f3a before 2026-11-01 10:00:30Z are refused"},
		{"", "auth revoke 7f3a --dry-run", 0, `POST /v1/auth/revocations?dryRun=true {"user":"7f3a"}`, "Dry run"},
		{"", "--dry-run auth revoke 7f3a", 0, `POST /v1/auth/revocations?dryRun=true {"user":"7f3a"}`, "Dry run"},
		{"", "auth revocations", 0, "GET /v1/auth/revocations", "USER   BEFORE                 ENDS\n7f3a   2026-11-01 10:00:30Z   2026-11-08 10:00:30Z\n"},
	} {
		try(r, c)
	}
	try(no, line{"film", "auth can-i create vc", 1, "GET /v1/auth/can-i?kind=vc&tenant=film&verb=create", "no: the role viewer of tenant film may not create virtual-cluster; it needs admin or editor\n"})
	try(no, line{"film", "auth can-i create vc -o json", 1, "GET /v1/auth/can-i?kind=vc&tenant=film&verb=create", `"allowed": false`})
}
