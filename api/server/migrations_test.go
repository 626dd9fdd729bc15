package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"evenkeel/api/v1"
)

// A tenant sees the migrations of its own VMs, without hosts, plans and reasons; another's is as one that does not exist.
func TestMigrationsOfTenants(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 2, 2)
		polled := make(chan string, 1)
		go func() {
			_, body := x.do("h2", x.token["film viewer"], "GET", "/v1/migrations?wait=60s", "")
			polled <- body
		}()
		time.Sleep(time.Second) // sleep: in the bubble, until it waits
		begun := time.Now()
		for _, host := range []string{"h1", "h2"} { // all VMs move at least once
			x.want(202, "POST", "/v1/hosts/"+host+"/drain", `{"onBlocked":"skip"}`, "operator")
			time.Sleep(20 * time.Second) // sleep: in the bubble, until they have moved
			x.want(200, "DELETE", "/v1/hosts/"+host+"/drain", "", "operator")
		}
		select {
		case body := <-polled:
			if !strings.Contains(body, mark("film")) || time.Since(begun) > 59*time.Second {
				t.Errorf("a long poll: %s", body)
			}
		default:
			t.Error("a long poll did not end with the first migration")
		}
		ids := map[string]string{}
		for _, tenant := range []string{"film", "acme", "default"} {
			resp, body := x.as(tenant+" viewer", "GET", "/v1/migrations", "")
			var own v1.List[v1.Migration]
			must(t, json.Unmarshal([]byte(body), &own))
			if resp.StatusCode != 200 || len(own.Items) == 0 {
				t.Fatalf("%s: %s %s", tenant, resp.Status, body)
			}
			if found := leak(resp, body, tenant); found != "" {
				t.Errorf("%s reads %q: %s", tenant, found, body)
			}
			for _, m := range own.Items {
				if !strings.HasPrefix(m.VM, mark(tenant)) || m.VirtualCluster != mark(tenant) || m.From+m.To+m.Plan != "" || m.ModifyIndex != 0 || m.Bytes != 0 || m.Progress != nil {
					t.Errorf("%s reads %+v", tenant, m)
				}
			}
			ids[tenant] = own.Items[0].ID
			resp, body = x.as(tenant+" viewer", "GET", "/v1/migrations/"+ids[tenant]+"?wait=10s", "")
			if found := leak(resp, body, tenant); resp.StatusCode != http.StatusOK || found != "" {
				t.Errorf("one of %s: %s %q %s", tenant, resp.Status, found, body)
			}
			vm := own.Items[0].VM
			if got := x.want(200, "GET", "/v1/migrations?vm="+vm, "", tenant+" viewer"); strings.Count(got, `"id"`) != strings.Count(got, `"vm":"`+vm+`"`) || !strings.Contains(got, vm) {
				t.Errorf("of the VM %s: %s", vm, got)
			}
		}
		for _, probe := range [][2]string{
			{"/v1/migrations/" + ids["acme"], "/v1/migrations/" + absent(ids["acme"])},
			{"/v1/migrations?vm=" + x.vm["acme"], "/v1/migrations?vm=" + absent(x.vm["acme"])},
			{"/v1/migrations?vm=" + mark("acme") + "-core-0", "/v1/migrations?vm=" + absent(mark("acme")+"-core-0")},
			{"/v1/migrations?plan=" + x.anyPlan(), "/v1/migrations?plan=" + absent(x.anyPlan())},
		} {
			var answers [2]string
			for i, at := range probe {
				resp, body := x.as("film owner", "GET", at, "", "X-Request-Id", "same")
				answers[i] = neutral(resp.Status+" "+body, at, "")
			}
			if answers[0] != answers[1] || !strings.HasPrefix(answers[0], "404") {
				t.Errorf("%s is not as what does not exist:\n%s\n%s", probe[0], answers[0], answers[1])
			}
		}
		x.want(403, "POST", "/v1/migrations/"+ids["film"]+"/abort", `{}`, "film owner")
		x.want(403, "GET", "/v1/plans", "", "film owner")
	})
}

// anyPlan is the id of a plan of moves.
func (x *tenancy) anyPlan() string {
	x.t.Helper()
	var plans v1.List[v1.Plan]
	must(x.t, json.Unmarshal([]byte(x.want(200, "GET", "/v1/plans", "", "operator")), &plans))
	return plans.Items[0].ID
}
