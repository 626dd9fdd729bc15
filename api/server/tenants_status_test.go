package server_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"evenkeel/api/v1"
)

// TestStatusOfTenants: a tenant reads whether the cluster serves requests, what bounds its requests, and what it has itself. No other
// field is there, and what others have changes none.
func TestStatusOfTenants(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 1, 2)
		x.want(200, "PATCH", "/v1/cluster/settings", `{"networks":["lab=acme","public"],"pools":["fast=acme"],"sharedPools":["fast","default"],"minYield":0.25}`, "operator")
		x.want(200, "PATCH", "/v1/quotas/film", `{"limits":{"vms":"7"}}`, "operator")
		keys := func(text string) string {
			var doc map[string]json.RawMessage
			must(t, json.Unmarshal([]byte(text), &doc))
			return strings.Join(slices.Sorted(maps.Keys(doc)), " ")
		}
		for _, caller := range []string{"film viewer", "acme viewer"} {
			tenant, _, _ := strings.Cut(caller, " ")
			text := x.want(200, "GET", "/v1/cluster/status", "", caller)
			if got := keys(text); got != "allocated conditions epoch minYield quota ready settings used version virtualClusters vms" {
				t.Errorf("%s: fields %s", caller, got)
			}
			var s v1.ClusterStatus
			must(t, json.Unmarshal([]byte(text), &s))
			if !s.Ready || s.VMs.Running != 2 || s.VirtualClusters["running"] != 1 || len(s.VirtualClusters) != 1 || s.MinYield != 1 || s.Allocated != (v1.Resources{CPU: 1, Memory: 2 << 30}) ||
				s.Quota == nil || s.Quota.Tenant != tenant || len(s.Conditions) != 0 {
				t.Errorf("%s: %s", caller, text)
			}
			shown := x.want(200, "GET", "/v1/cluster/settings", "", caller)
			want := map[string]string{"film": `"sharedPools":["default"],"networks":["default","public"],"pools":["default"]`,
				"acme": `"sharedPools":["fast","default"],"networks":["default","lab","public"],"pools":["default","fast"]`}[tenant]
			if got := keys(shown); got != "image maxVMs minMemory minYield networks onFull periodic pool pools sharedPools" || !strings.Contains(shown, want) || !strings.Contains(shown, `"minYield":0.25`) {
				t.Errorf("%s: settings %s", caller, shown)
			}
			if resp, _ := x.as(caller, "GET", "/v1/cluster/settings", ""); resp.Header.Get("ETag") != "" {
				t.Errorf("%s: the settings have the ETag %s", caller, resp.Header.Get("ETag"))
			}
		}
		before := x.want(200, "GET", "/v1/cluster/status", "", "film viewer")
		x.want(202, "POST", "/v1/virtual-clusters", `{"name":"more","groups":[{"name":"a","count":2,"cpu":0.5,"memory":"1GiB"}]}`, "acme editor")
		x.want(200, "PUT", "/v1/hosts/h1/cordon", `{"reason":"maintenance"}`, "operator")
		if after := x.want(200, "GET", "/v1/cluster/status", "", "film viewer"); after != before {
			t.Errorf("what others did shows:\n%s\n%s", before, after)
		}
		if text := x.want(200, "GET", "/v1/cluster/status", "", "operator"); !strings.Contains(text, `"hosts":{"cordoned":1}`) || !strings.Contains(text, `"tolerance":0`) ||
			!strings.Contains(text, `"fencingDisabled":false`) || strings.Contains(text, `"quota"`) {
			t.Errorf("to an operator: %s", text)
		}
	})
}
