package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"evenkeel/api/v1"
)

// Both ends of each reference are authorised: who may use the route, and what the request names. What another tenant may name is
// refused as what does not exist: network and pool by the settings, virtual clusters in rules, a VM behind a console, a migration.
// Saved states and simulations, which hold everything, are not for tenants.
func TestReferencesOfTenants(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 1, 1)
		x.want(200, "PATCH", "/v1/cluster/settings", `{"networks":["lab=acme","public"],"pools":["fast=acme"]}`, "operator")
		group := func(more string) string {
			return `{"name":"probe","groups":[{"name":"a","cpu":0.1,"memory":"256MiB",` + more + `}]}`
		}
		for _, c := range []struct{ what, format, others, none string }{
			{"network", group(`"network":%q`), "lab", "la0"},
			{"pool", group(`"disk":{"size":"1GiB","pool":%q}`), "fast", "fas0"},
			{"virtual cluster of a rule", group(`"affinity":{"require":["vc:%s"]}`), mark("acme"), absent(mark("acme"))},
			{"image", group(`"image":%q`), mark("acme"), absent(mark("acme"))},
		} {
			for _, dry := range []string{"", "?dryRun=true"} {
				var answers [2]string
				for i, name := range []string{c.others, c.none} {
					resp, body := x.as("film editor", "POST", "/v1/virtual-clusters"+dry, fmt.Sprintf(c.format, name), "X-Request-Id", "same")
					if resp.StatusCode < 300 {
						t.Errorf("film names the %s %s: %s %s", c.what, name, resp.Status, body)
					}
					answers[i] = strings.ReplaceAll(neutral(resp.Status+" "+body, "", name), name, "NAME")
				}
				if answers[0] != answers[1] {
					t.Errorf("a %s of acme is not refused as one that does not exist:\n%s\n%s", c.what, answers[0], answers[1])
				}
			}
		}
		// The right holders may: the same requests are good at the other end.
		x.want(200, "POST", "/v1/virtual-clusters?dryRun=true", group(`"network":"lab"`), "acme editor")
		x.want(200, "POST", "/v1/virtual-clusters?dryRun=true", group(`"network":"public"`), "film editor")
		for _, c := range []struct{ tenant, networks, pools string }{{"acme", "default lab public", "default fast"}, {"film", "default public", "default"}} {
			for _, caller := range []string{c.tenant + " viewer", "operator"} {
				var row v1.Tenant
				must(t, json.Unmarshal([]byte(x.want(200, "GET", "/v1/tenants/"+c.tenant, "", caller)), &row))
				if strings.Join(row.Networks, " ") != c.networks || strings.Join(row.Pools, " ") != c.pools {
					t.Errorf("%s as %s: networks %q, pools %q", c.tenant, caller, row.Networks, row.Pools)
				}
			}
		}
		for _, route := range []string{"GET /v1/cluster/snapshot", "POST /v1/cluster/snapshot", "POST /v1/simulate", "GET /v1/audit", "PATCH /v1/cluster/settings", "GET /v1/cluster/rightsizing", "GET /v1/failover-capacity", "GET /v1/cluster/members", "GET /v1/plans", "POST /v1/images"} {
			method, path, _ := strings.Cut(route, " ")
			body := ""
			if method != "GET" {
				body = "{}"
			}
			for _, caller := range principals {
				x.want(403, method, path, body, caller)
			}
		}
		// TestConsolesOfTenants opens consoles; without a WebSocket the answer does not depend on the VM.
		resp, _ := x.as("film editor", "GET", "/v1/vms/"+x.vm["acme"]+"/console", "")
		if none, _ := x.as("film editor", "GET", "/v1/vms/"+absent(x.vm["acme"])+"/console", ""); resp.StatusCode != none.StatusCode {
			t.Errorf("the console of another tenant's VM: %s, of none: %s", resp.Status, none.Status)
		}
	})
}
