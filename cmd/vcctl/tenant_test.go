package main

import (
	"slices"
	"strings"
	"testing"
)

// Each command of tenants, quotas and their tokens: what it asks, what it prints, and its exit status.
func TestTenantCommands(t *testing.T) {
	film := `{"name":"film","displayName":"Film school","state":"active","maxPriority":5,"labels":{"site":"north","a":"b"},"createdAt":"2026-11-01T10:00:00Z"}`
	quota := `{"tenant":"film","overQuota":["vms"],"items":[{"key":"cpu","unit":"cores","limit":64,"from":"tenant","used":1.5},{"key":"memory","unit":"bytes","from":"unset","used":3221225472},` +
		`{"key":"vms","unit":"items","limit":2,"from":"defaults","used":3},{"key":"disk","unit":"bytes","limit":0,"from":"tenant","used":0},{"key":"tokens","unit":"items","from":"unset","used":0}]}`
	r := newRecorder(t, map[string]string{
		"GET /v1/tenants": `{"items":[` + film + `]}`, "POST /v1/tenants": film, "GET /v1/tenants/film": film, "PATCH /v1/tenants/film": film, "DELETE /v1/tenants/film": "204",
		"GET /v1/quotas": `{"items":[` + quota + `]}`, "GET /v1/quotas/film": quota, "PATCH /v1/quotas/film": quota,
		"GET /v1/quotas/%2A": `{"tenant":"*","overQuota":[],"items":[{"key":"vms","unit":"items","limit":20,"from":"tenant","used":0}]}`, "PATCH /v1/quotas/%2A": `{"tenant":"*","items":[],"overQuota":[]}`,
		"POST /v1/tokens": `{"id":"0123456789abcdef","token":"ekt_x","name":"anna","role":"editor","tenant":"film"}`, "GET /v1/tokens": `{"items":[{"id":"01","name":"anna","role":"editor","tenant":"film"},{"id":"02","name":"ops","role":"admin"}]}`,
		"DELETE /v1/tokens/01": `{"text":"token 01 is revoked"}`,
	})
	for _, c := range []struct {
		tenant, line string
		status       int
		asked        string // the first request
		says         string // on either output
	}{
		{"", "tenant create film", 0, `POST /v1/tenants {"name":"film"}`, "Tenant film is created. Give its people a token with `vcctl token create NAME --tenant film --role owner`.\n"},
		{"", "tenant create film --display-name Film --label site=north --label a=b --max-priority 5", 0, `POST /v1/tenants {"name":"film","displayName":"Film","labels":{"a":"b","site":"north"},"maxPriority":5}`, ""},
		{"", "tenant create film --max-priority 0", 0, `POST /v1/tenants {"name":"film","maxPriority":0}`, ""},
		{"", "tenant create film --dry-run", 0, `POST /v1/tenants?dryRun=true {"name":"film"}`, "Dry run: nothing was changed; tenant film could be created.\n"},
		{"", "--dry-run tenant create film", 0, `POST /v1/tenants?dryRun=true {"name":"film"}`, "Dry run"},
		{"", "tenant create film -o json", 0, `POST /v1/tenants {"name":"film"}`, "{\n  \"name\": \"film\",\n"},
		{"", "tenant create film --label site", 2, "", "write KEY=VALUE"},
		{"", "tenant create film --label a=b --label a=c", 2, "", "each key once"},
		{"", "tenant create", 2, "", "NAME is missing"},
		{"", "tenant create a b", 2, "", "one argument too many"},
		{"", "tenant list", 0, "GET /v1/tenants", "NAME   STATE    DISPLAY NAME   MAX PRIORITY   CREATED\nfilm   active   Film school    5              2026-11-01 10:00:00Z\n"},
		{"", "tenant list -o wide", 0, "GET /v1/tenants", "a=b, site=north"},
		{"", "tenant get film", 0, "GET /v1/tenants/film", "Display name:  Film school\nState:         active\nLabels:        a=b, site=north\n"},
		{"", "tenant get none", 4, "GET /v1/tenants/none", "getting tenant none: there is no such thing"},
		{"", "tenant set film --display-name= --max-priority 5", 0, `PATCH /v1/tenants/film {"displayName":"","maxPriority":5}`, "Max priority:  5"},
		{"", "tenant set film --label a=b --dry-run", 0, `PATCH /v1/tenants/film?dryRun=true {"labels":{"a":"b"}}`, "Dry run: nothing was changed. It would be:\nName:"},
		{"", "tenant set film --label=", 0, `PATCH /v1/tenants/film {"labels":{}}`, "Name:"},
		{"", "tenant set film --label= --label a=b", 2, "", "write KEY=VALUE"},
		{"", "tenant set film", 2, "", "nothing to change"},
		{"", "tenant suspend film", 0, `PATCH /v1/tenants/film {"state":"suspended"}`, "Tenant film is suspended: its tokens are refused, and what runs goes on.\n"},
		{"", "tenant --dry-run suspend film", 0, `PATCH /v1/tenants/film?dryRun=true {"state":"suspended"}`, "Dry run: nothing was changed; tenant film would be suspended.\n"},
		{"", "tenant resume film", 0, `PATCH /v1/tenants/film {"state":"active"}`, "Tenant film is active again.\n"},
		{"", "tenant delete film", 0, "DELETE /v1/tenants/film", "Tenant film is deleted.\n"},
		{"", "tenant delete film --dry-run", 0, "DELETE /v1/tenants/film?dryRun=true", "Dry run"},

		{"", "quota get film", 0, "GET /v1/quotas/film", "KEY      LIMIT       USED            FROM\ncpu      64.00       1.50            tenant\nmemory   unlimited   3GiB            unset\nvms      2           3, over quota   defaults\ndisk     0B          0B              tenant\n"},
		{"", "quota get", 0, "GET /v1/quotas", "TENANT   KEY      LIMIT       USED            FROM\nfilm     cpu      64.00       1.50            tenant\nfilm     memory   unlimited   3GiB            unset\nfilm     vms      2           3, over quota   defaults\nfilm     disk     0B          0B              tenant\n"},
		{"", "quota get -o wide", 0, "GET /v1/quotas", "film     tokens   unlimited   0 "},
		{"", "quota get *", 0, "GET /v1/quotas/%2A", "vms   20      -      tenant\n"},
		{"", "quota get a b", 2, "", "one argument too many"},
		{"", "quota get film -o json", 0, "GET /v1/quotas/film", `"overQuota": [`},
		{"", "quota set film cpu=64 memory=256GiB vms=unlimited disk=unset", 0, `PATCH /v1/quotas/film {"limits":{"cpu":"64","disk":"unset","memory":"256GiB","vms":"unlimited"}}`, "KEY"},
		{"", "quota set * vms=20", 0, `PATCH /v1/quotas/%2A {"limits":{"vms":"20"}}`, ""},
		{"", "quota set film vms=1 --dry-run", 0, `PATCH /v1/quotas/film?dryRun=true {"limits":{"vms":"1"}}`, "Dry run: nothing was changed. It would be:\nKEY"},
		{"", "--dry-run quota set film vms=1", 0, `PATCH /v1/quotas/film?dryRun=true {"limits":{"vms":"1"}}`, "Dry run"},
		{"", "quota set film", 2, "", "name a tenant, and at least one limit"},
		{"", "quota set vms=1 cpu=2", 2, "", "is no tenant"},
		{"", "quota set film vms", 2, "", "is no limit"},
		{"", "quota set film vms=1 vms=2", 2, "", "each key once"},
		{"", "quota set film gpus=1", 2, "", "gpus: is no key of a quota"},
		{"", "quota set film vms=1.5", 2, "", "must be a whole number"},
		{"", "quota set film vms=-1", 2, "", "must be a whole number"},

		{"", "token create anna --tenant film --role editor", 0, `POST /v1/tokens?tenant=film {"name":"anna","role":"editor","tenant":"film"}`, "ekt_x\nToken 0123456789abcdef (anna, editor of tenant film) is shown this once."},
		{"film", "token create anna --role viewer", 0, `POST /v1/tokens?tenant=film {"name":"anna","role":"viewer","tenant":"film"}`, "ekt_x"},
		{"", "token create anna --role viewer", 0, `POST /v1/tokens {"name":"anna","role":"viewer"}`, "ekt_x"}, // the tenant of the token that asks
		{"film", "token create ops --role operator", 0, `POST /v1/tokens?tenant=film {"name":"ops","role":"operator"}`, "ekt_x"},
		{"", "token create ops --role operator --tenant film", 2, "", "role operator is of the cluster, and --tenant names a tenant"},
		{"", "token create anna --role owner --tenant *", 2, "", "name one tenant with --tenant, not all"},
		{"", "token list", 0, "GET /v1/tokens", "ID   NAME   ROLE     TENANT   FROM   EXPIRES   LAST USED\n01   anna   editor   film     -      never     -\n02   ops    admin    -        -      never     -\n"},
		{"", "token list --tenant film", 0, "GET /v1/tokens?tenant=film", "anna"},
		{"film", "token revoke 01", 0, "DELETE /v1/tokens/01?tenant=film", "Token 01 is revoked."},

		{"", "__complete -- tenant ge", 0, "", "get\n"},
		{"", "__complete -- tenant get ", 0, "GET /v1/tenants?consistency=stale", "film\n"},
		{"", "__complete -- vc list --tenant ", 0, "GET /v1/tenants?consistency=stale", "film\n"},
		{"", "__complete -- quota get ", 0, "GET /v1/tenants?consistency=stale", "film\n"},
		{"", "__complete -- quota set ", 0, "GET /v1/tenants?consistency=stale", "film\n"},
		{"", "__complete -- quota set film c", 0, "", "cloudInitBytes=\ncpu=\n"},
		{"", "__complete -- quota set film cpu=1 v", 0, "", "vcs=\nvms=\n"},
		{"", "__complete -- cluster settings set placement=pack moves.mo", 0, "", "moves.mode=\n"},
		{"", "__complete -- token create x --role e", 0, "", "editor\n"},
	} {
		atHome(t, "")
		t.Setenv("EVENKEEL_TENANT", c.tenant)
		status, asked, out, errs := r.vcctl(strings.Split(c.line, " ")...)
		first := ""
		if len(asked) > 0 {
			first = asked[0]
		}
		if status != c.status || first != c.asked || !strings.Contains(out+errs, c.says) {
			t.Errorf("%s (EVENKEEL_TENANT=%s): status %d, want %d; asked %q, want %q; printed\n%s%s, want\n%s", c.line, c.tenant, status, c.status, asked, c.asked, out, errs, c.says)
		}
	}
	if status, asked, out, _ := r.vcctl("__complete", "--", "tenant", "create", ""); status != 0 || len(asked) > 0 || out != "" {
		t.Errorf("a new tenant's name is completed: asked %q, %q", asked, out)
	}
	if _, asked, _, _ := r.vcctl("__complete", "--", "quota", "get", "film", ""); slices.Contains(asked, "GET /v1/tenants?consistency=stale") {
		t.Errorf("a second name is completed: asked %q", asked)
	}
}
