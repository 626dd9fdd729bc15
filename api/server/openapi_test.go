package server_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// TestOpenAPI: the description is OpenAPI 3.1, names every route, and says what it does.
func TestOpenAPI(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := start(t)
		resp, body := c.request(t, "GET", "/openapi.json", "")
		if resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
		var doc struct {
			OpenAPI string
			Paths   map[string]map[string]struct {
				OperationID, Summary string
				Responses            map[string]struct{ Content map[string]any }
				RequestBody          struct {
					Content map[string]struct {
						Schema struct {
							Ref string `json:"$ref"`
						}
					}
				}
			}
			Components struct{ Schemas map[string]json.RawMessage }
		}
		must(t, json.Unmarshal([]byte(body), &doc))
		if !strings.HasPrefix(doc.OpenAPI, "3.1") {
			t.Errorf("OpenAPI %q", doc.OpenAPI)
		}
		for _, path := range []string{"/v1/virtual-clusters", "/v1/virtual-clusters/{name}", "/v1/virtual-clusters/{name}/explain", "/v1/virtual-clusters/{name}/start",
			"/v1/virtual-clusters/{name}/stop", "/v1/vms", "/v1/vms/{name}", "/v1/vms/{name}/console", "/v1/hosts", "/v1/hosts/{name}", "/v1/hosts/{name}/cordon",
			"/v1/operations", "/v1/operations/{id}", "/v1/events", "/v1/images", "/v1/images/{name}", "/v1/cluster/status", "/metrics",
			"/v1/rebalance", "/v1/rebalance/curve", "/v1/plans", "/v1/plans/{id}", "/v1/plans/{id}/apply", "/v1/plans/{id}/stop", "/v1/simulate", "/v1/failover-capacity",
			"/v1/migrations", "/v1/migrations/{id}", "/v1/migrations/{id}/abort", "/v1/hosts/{name}/drain", "/v1/hosts/{name}/empty", "/v1/drain-batches", "/v1/cluster/settings", "/v1/cluster/rightsizing", "/livez", "/readyz"} {
			if len(doc.Paths[path]) == 0 {
				t.Errorf("%s is not described", path)
			}
		}
		for path, methods := range doc.Paths {
			for method, op := range methods {
				if op.OperationID == "" || op.Summary == "" {
					t.Errorf("%s %s says nothing", method, path)
				}
				for status, r := range op.Responses {
					if _, ok := r.Content["application/json"]; ok && status >= "400" {
						t.Errorf("%s %s: %s is not a problem document", method, path, status)
					}
				}
			}
		}
		if ref := doc.Paths["/v1/virtual-clusters"]["post"].RequestBody.Content["application/json"].Schema.Ref; ref != "#/components/schemas/VirtualClusterSpec" {
			t.Errorf("the body of a create is %q", ref)
		}
		if !strings.Contains(string(doc.Components.Schemas["GroupSpec"]), "[KMGT]iB") {
			t.Error("sizes are not described")
		}
		if strings.Contains(body, `"$schema"`) {
			t.Error("$schema in the description")
		}
		for name, raw := range doc.Components.Schemas {
			if !slices.Contains([]string{"Plan", "Move", "Migration", "MoveOptions", "MoveProgress", "PlanResult", "CurvePoint", "Blocker", "Drain", "DrainVM", "DrainResult", "HostEmpty",
				"DrainBatches", "DrainBatch", "BlockedHost", "SimulateResult", "SimulateRequest", "SimulatedHost", "SimulatedNeed", "Unplaced", "FailoverRow", "RebalanceRequest", "DrainRequest", "SettingsPatch", "MovePatch", "MoveSettings"}, name) {
				continue
			}
			var schema struct {
				Properties map[string]struct {
					Description string
					Format      string
					Ref         string `json:"$ref"`
				}
			}
			must(t, json.Unmarshal(raw, &schema))
			for field, p := range schema.Properties {
				if p.Description == "" && p.Ref == "" && p.Format != "date-time" {
					t.Errorf("%s.%s is not described", name, field)
				}
			}
		}
		for _, name := range []string{"RebalanceRequest", "DrainRequest", "SimulateRequest"} {
			if !strings.Contains(string(doc.Components.Schemas[name]), "unlimited)") {
				t.Errorf("%s: what bounds may be written is not described", name)
			}
		}
	})
}
