package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"evenkeel/api/v1"
)

func attVC(name, avoid, priority string) string {
	a := ""
	if avoid != "" {
		a = `,"affinity":{"prefer":[` + avoid + `]}`
	}
	p := ""
	if priority != "" {
		p = `,"priority":` + priority
	}
	return `{"name":"` + name + `"` + p + `,"groups":[{"name":"core","count":1,"cpu":0.1,"memory":"256MiB"` + a + `}]}`
}

// An operator's rule on a host must not be told to the tenant in a conflict.
func TestAttackConflictNamesHost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 1, 2)
		at := "/v1/virtual-clusters/conf"
		x.want(202, "PUT", at, attVC("conf", `"app=a"`, ""), "film editor")
		x.want(202, "PUT", at+"?tenant=film&edit=true", attVC("conf", `"app=a","host:h1"`, ""), "operator")
		resp, got := x.as("film editor", "PUT", at, attVC("conf", `"app=b"`, ""))
		t.Logf("%s %s", resp.Status, got)
		if strings.Contains(got, "host:") || strings.Contains(got, "@film") {
			t.Errorf("LEAK conflict")
		}
		resp, got = x.as("film editor", "GET", at+"/versions", "")
		t.Logf("%s %s", resp.Status, got)
		if strings.Contains(got, "operator") {
			t.Errorf("LEAK who of the cluster works")
		}
	})
}

// A rule that another list breaks: refused with the value of the field.
func TestAttackStayingDiskNamesHost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 2, 2)
		at := "/v1/virtual-clusters/disky"
		file := func(avoid string) string {
			return `{"name":"disky","groups":[{"name":"core","count":1,"cpu":0.1,"memory":"256MiB","labels":{"app":"db"},"disk":{"size":"1GiB"},"affinity":{"avoid":[` + avoid + `]}},` +
				`{"name":"db","count":2,"cpu":0.1,"memory":"256MiB","labels":{"app":"db"}}]}`
		}
		body := x.want(202, "PUT", at, file(`"app=x"`), "film editor")
		var r v1.Result
		must(t, json.Unmarshal([]byte(body), &r))
		x.want(200, "GET", "/v1/operations/"+r.Operation.ID+"?wait=60s", "", "film editor")
		var vm v1.VM
		must(t, json.Unmarshal([]byte(x.want(200, "GET", "/v1/vms/disky-core-0?tenant=film", "", "operator")), &vm))
		other := map[string]string{"h1": "h2", "h2": "h1"}[vm.Host]
		resp, got := x.as("operator", "PUT", at+"?tenant=film&edit=true", file(`"app=x","host:`+other+`"`))
		t.Logf("%s %s", resp.Status, got)
		for _, q := range []string{"?force=true", "?edit=true"} {
			resp, got = x.as("film editor", "PUT", at+q, file(`"app=x","app=db"`))
			t.Logf("%s %s", resp.Status, got)
			if strings.Contains(got, "host:") {
				t.Errorf("LEAK in value")
			}
		}
	})
}

// A tenant goes back to a priority that it may not give.
func TestAttackRollbackPriority(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 1, 2)
		at := "/v1/virtual-clusters/prio"
		x.want(202, "PUT", at+"?tenant=film", attVC("prio", `"host:h1"`, "50"), "operator")
		x.want(202, "PUT", at+"?tenant=film", attVC("prio", "", "0"), "operator")
		x.want(422, "PUT", at, attVC("prio", "", "50"), "film editor")
		resp, got := x.as("film editor", "POST", at+"/rollback", `{"version":1}`, "Idempotency-Key", "k1")
		t.Logf("%s %s", resp.Status, got)
		spec := x.want(200, "GET", at+"/spec?tenant=film", "", "operator")
		t.Log(spec)
		if strings.Contains(spec, `"priority":50`) {
			t.Errorf("ESCALATION: a tenant's editor has priority 50")
		}
	})
}

// A group that is removed and comes back by a rollback has the operator's old rule on hosts.
func TestAttackRollbackHostTerms(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 1, 2)
		at := "/v1/virtual-clusters/back"
		x.want(202, "PUT", at+"?tenant=film", attVC("back", `"host:h1"`, ""), "operator")
		x.want(202, "PUT", at+"?tenant=film", attVC("back", "", ""), "operator")
		resp, got := x.as("film editor", "PUT", at+"?force=true", strings.ReplaceAll(attVC("back", "", ""), `"core"`, `"other"`))
		t.Logf("%s %s", resp.Status, got)
		for range 30 {
			resp, got = x.as("film editor", "POST", at+"/rollback", `{"version":1}`)
			if resp.StatusCode == http.StatusAccepted {
				break
			}
			x.want(200, "GET", "/v1/migrations?wait=2s", "", "film editor")
		}
		t.Logf("%s %s", resp.Status, got)
		spec := x.want(200, "GET", at+"/spec?tenant=film", "", "operator")
		if strings.Contains(spec, "host:h1") {
			t.Errorf("ESCALATION: the rule on hosts is back: %s", spec)
		}
	})
}

func TestAttackRollbackRetried(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 1, 2)
		at := "/v1/virtual-clusters/idem"
		x.want(202, "PUT", at, attVC("idem", "", ""), "film editor")
		x.want(202, "PUT", at, strings.ReplaceAll(attVC("idem", "", ""), `0.1`, `0.2`), "film editor")
		_, _ = x.as("film editor", "POST", at+"/rollback", `{}`, "Idempotency-Key", "k1")
		resp, got := x.as("film editor", "POST", at+"/rollback", `{}`, "Idempotency-Key", "k1")
		if resp.StatusCode != 200 {
			t.Errorf("a retry of a rollback: %s %s", resp.Status, got)
		}
	})
}

// Groups that are removed count nothing while their VMs still stop.
func TestAttackQuotaByRenaming(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 1, 2)
		at := "/v1/virtual-clusters/ren"
		x.want(200, "PATCH", "/v1/quotas/film", `{"limits":{"vms":"3","vcs":"2","cloudInitBytes":"2000"}}`, "operator")
		file := func(g, data string) string {
			return `{"name":"ren","groups":[{"name":"` + g + `","count":1,"cpu":0.05,"memory":"64MiB","cloudInit":{"userData":"` + data + `"}}]}`
		}
		x.want(202, "PUT", at, file("a", "#cloud-config\\n"), "film editor")
		most := 0
		for i, g := range []string{"b", "c", "d", "e", "f", "g", "h"} {
			resp, got := x.as("film editor", "PUT", at+"?force=true", file(g, "#cloud-config\\n#"+strings.Repeat(g, 1000)))
			var vms v1.List[v1.VM]
			must(t, json.Unmarshal([]byte(x.want(200, "GET", "/v1/vms", "", "film viewer")), &vms))
			most = max(most, len(vms.Items))
			t.Log(i, resp.Status, len(vms.Items), got[:min(len(got), 200)])
		}
		t.Logf("VMs at once: %d with a quota of 3", most)
		if most > 3 {
			t.Errorf("OVER QUOTA %d", most)
		}
		versions := x.want(200, "GET", at+"/versions", "", "film editor")
		t.Logf("versions have %d bytes with a quota of 2000 bytes of cloud-init data", len(versions))
		if spec := x.want(200, "GET", at+"/versions?tenant=film", "", "operator"); strings.Contains(spec, "#cloud") {
			t.Error("LEAK to operator")
		}
	})
}
