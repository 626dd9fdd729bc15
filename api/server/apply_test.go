package server_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"evenkeel/api/v1"
)

// drawFile is a random VC file. Its VMs are small; where they do not fit they wait, and what is asked of them is kept all the same.
func drawFile(r *rand.Rand, name string) v1.VirtualClusterSpec {
	some := func(of ...string) string { return of[r.IntN(len(of))] }
	spec := v1.VirtualClusterSpec{Name: name, OnFull: some("", "queue"), OnHostLoss: some("", "keep", "restart"), Priority: r.IntN(5), Needs: some("", "declared", "estimated"), Aggressiveness: some("", "balanced")}
	if r.IntN(2) == 0 {
		y := r.Float64()
		spec.MinYield = &y
	}
	for i := range 1 + r.IntN(3) {
		g := v1.GroupSpec{Name: fmt.Sprintf("g%d", i), Count: 1 + r.IntN(3), CPU: 0.001 + r.Float64()/100, Memory: v1.Size(64<<20 + r.Int64N(1<<20)), Role: some("", "core", "elastic"), Network: some("", "default")}
		if r.IntN(2) == 0 {
			g.VCPUs, g.MemoryMin = 1+r.IntN(2), g.Memory
		}
		if r.IntN(2) == 0 {
			g.Disk = &v1.Disk{Size: v1.Size(1 + r.Int64N(1<<30)), Ephemeral: true}
		}
		if r.IntN(2) == 0 {
			g.CloudInit = &v1.CloudInit{UserData: "#cloud-config\nusers:\n  - name: \"x\"\n" + some("", "\n", "# ends\n")}
		}
		if r.IntN(2) == 0 {
			g.Labels = map[string]string{"app": some("x", "1", "yes"), "b/c": ""}
		}
		if r.IntN(2) == 0 {
			g.Affinity = &v1.Affinity{Prefer: []string{"vc:" + name, "host:h1", "app=1"}, Avoid: []string{"app=nothing"}}
		}
		spec.Groups = append(spec.Groups, g)
	}
	return spec
}

// What `vc get -o yaml` prints is what was written, and applying it changes nothing: of 200 random virtual clusters.
func TestAppliedUnchanged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 1, 2)
		r := rand.New(rand.NewPCG(1, 2))
		for n := range 200 {
			spec := drawFile(r, fmt.Sprintf("v%d", n))
			body, err := json.Marshal(spec)
			must(t, err)
			at := "/v1/virtual-clusters/" + spec.Name
			x.want(http.StatusAccepted, "PUT", at, string(body), "operator")
			var file v1.VirtualClusterFile
			must(t, json.Unmarshal([]byte(x.want(200, "GET", at+"/spec", "", "operator")), &file))
			if diff := cmp.Diff(spec, file.Spec); diff != "" {
				t.Fatalf("%d: (-written +got)\n%s", n, diff)
			}
			before := x.want(200, "GET", at+"/versions", "", "operator")
			doc, err := v1.VCFile(file.Spec)
			must(t, err)
			again, err := v1.ParseVCFile(doc)
			must(t, err)
			body, err = json.Marshal(again)
			must(t, err)
			var res v1.Result
			must(t, json.Unmarshal([]byte(x.want(200, "PUT", at, string(body), "operator")), &res))
			if res.Operation != nil || len(res.Fields)+len(res.Changes) > 0 {
				t.Fatalf("%d: applied what was got: %+v", n, res)
			}
			if after := x.want(200, "GET", at+"/versions", "", "operator"); after != before {
				t.Fatalf("%d: versions %s, were %s", n, after, before)
			}
		}
	})
}

// Tenants apply their own; viewers see no cloud-init data; an operator's rule on hosts stays, unseen, when the tenant applies.
func TestApplyOfTenants(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 1, 2)
		at := "/v1/virtual-clusters/" + mark("film")
		if body := x.want(200, "GET", at+"/spec", "", "film viewer"); strings.Contains(body, "#cloud-config") || !strings.Contains(body, `"hidden":["groups[core].cloudInit"]`) {
			t.Errorf("a viewer gets %s", body)
		}
		for path, status := range map[string]int{at: http.StatusForbidden, "/v1/virtual-clusters/" + mark("acme"): http.StatusForbidden} {
			x.want(status, "PUT", path, `{}`, "film viewer")
		}
		var file v1.VirtualClusterFile
		must(t, json.Unmarshal([]byte(x.want(200, "GET", at+"/spec?tenant=film", "", "operator")), &file))
		file.Spec.Groups[0].Affinity.Prefer = append(file.Spec.Groups[0].Affinity.Prefer, "host:h1")
		body, err := json.Marshal(file.Spec)
		must(t, err)
		resp, got := x.as("operator", "PUT", at+"?tenant=film&edit=true", string(body), "If-Match", file.ETag)
		if resp.StatusCode != http.StatusAccepted {
			t.Fatalf("%s %s", resp.Status, got)
		}
		if resp, _ := x.as("operator", "PUT", at+"?tenant=film&edit=true", string(body), "If-Match", file.ETag); resp.StatusCode != http.StatusPreconditionFailed {
			t.Errorf("an edit of an earlier version: %s", resp.Status)
		}
		seen := x.want(200, "GET", at+"/spec", "", "film editor")
		must(t, json.Unmarshal([]byte(seen), &file))
		if strings.Contains(seen, "host:") || file.Spec.Groups[0].CloudInit == nil {
			t.Errorf("an editor gets %s", seen)
		}
		file.Spec.Groups[0].Count = 3
		body, err = json.Marshal(file.Spec)
		must(t, err)
		if got := x.want(http.StatusAccepted, "PUT", at, string(body), "film editor"); strings.Contains(got, "host:") || !strings.Contains(got, `"groups[core].count"`) {
			t.Errorf("applied: %s", got)
		}
		if spec := x.want(200, "GET", at+"/spec?tenant=film", "", "operator"); !strings.Contains(spec, "host:h1") {
			t.Errorf("the operator's rule is gone: %s", spec)
		}
		x.want(200, "PATCH", "/v1/quotas/film", `{"limits":{"vms":"4"}}`, "operator")
		file.Spec.Groups[0].Count = 9
		body, err = json.Marshal(file.Spec)
		must(t, err)
		if got := x.want(http.StatusForbidden, "PUT", at, string(body), "film editor"); !strings.Contains(got, v1.ProblemQuota) {
			t.Errorf("over quota: %s", got)
		}
		x.want(http.StatusAccepted, "POST", at+"/rollback", `{}`, "film editor")
		x.want(http.StatusUnprocessableEntity, "PUT", at, `{"name":"other","groups":[{"name":"a","cpu":1,"memory":"1GiB"}]}`, "film editor")
	})
}

// smallVC is a VC file of one small group, with the terms that its affinity prefers, and a priority.
func smallVC(name, prefer, priority string) string {
	if prefer != "" {
		prefer = `,"affinity":{"prefer":[` + prefer + `]}`
	}
	if priority != "" {
		priority = `,"priority":` + priority
	}
	return `{"name":"` + name + `"` + priority + `,"groups":[{"name":"core","count":1,"cpu":0.1,"memory":"256MiB"` + prefer + `}]}`
}

// A rollback that is sent again with its key gets the first answer, also once the version before the newest is another one. A key is for
// one version.
func TestRollbackIsReplayed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 1, 2)
		at := "/v1/virtual-clusters/again"
		x.want(202, "PUT", at, smallVC("again", "", ""), "film editor")
		x.want(202, "PUT", at, strings.ReplaceAll(smallVC("again", "", ""), `0.1`, `0.2`), "film editor")
		for _, want := range []struct {
			body   string
			status int
		}{{`{}`, 202}, {`{}`, 200}, {`{"version":2}`, 422}, {`{}`, 200}} {
			if resp, got := x.as("film editor", "POST", at+"/rollback", want.body, "Idempotency-Key", "k1"); resp.StatusCode != want.status {
				t.Errorf("%s: %s %s, want %d", want.body, resp.Status, got, want.status)
			}
		}
		if spec := x.want(200, "GET", at+"/spec", "", "film editor"); !strings.Contains(spec, `"cpu":0.1`) || !strings.Contains(spec, `"version":3`) {
			t.Errorf("it is %s", spec)
		}
	})
}

// A tenant's rollback gives no priority above that which the tenant may give, and no rule on hosts to a group that is not there now. What
// is in force stays.
func TestRollbackGivesNoMoreThanTheTenantMay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 2, 2)
		at := "/v1/virtual-clusters/back"
		x.want(202, "PUT", at+"?tenant=film", smallVC("back", `"host:h1"`, "50"), "operator")
		x.want(202, "PUT", at+"?tenant=film&force=true", smallVC("back", `"host:h2"`, "50"), "operator")
		x.want(202, "PUT", at+"?tenant=film&force=true", smallVC("back", `"app=a","host:h2"`, "50"), "operator")
		x.want(202, "POST", at+"/rollback", `{"version":1}`, "film editor")
		if spec := x.want(200, "GET", at+"/spec?tenant=film", "", "operator"); !strings.Contains(spec, "host:h2") || strings.Contains(spec, "host:h1") || !strings.Contains(spec, `"priority":50`) {
			t.Errorf("what is in force did not stay: %s", spec)
		}
		x.want(200, "PUT", at, smallVC("back", "", "50"), "film editor")
		x.want(202, "PUT", at+"?tenant=film&force=true", smallVC("back", "", ""), "operator")
		if got := x.want(422, "POST", at+"/rollback", `{"version":1}`, "film editor"); !strings.Contains(got, `"field":"priority"`) {
			t.Errorf("a priority of 50: %s", got)
		}
		x.want(202, "PUT", at+"?tenant=film&force=true", smallVC("back", `"host:h1"`, ""), "operator") // version 6
		x.want(202, "PUT", at+"?force=true", strings.ReplaceAll(smallVC("back", "", ""), `"core"`, `"other"`), "film editor")
		status := 0
		for range 30 {
			resp, _ := x.as("film editor", "POST", at+"/rollback", `{"version":6}`)
			if status = resp.StatusCode; status == http.StatusAccepted {
				break
			}
			x.want(200, "GET", "/v1/migrations?wait=2s", "", "film editor")
		}
		if spec := x.want(200, "GET", at+"/spec?tenant=film", "", "operator"); status != 202 || !strings.Contains(spec, `"core"`) || strings.Contains(spec, "host:") {
			t.Errorf("%d: the rule on hosts is back: %s", status, spec)
		}
	})
}

// What an apply refuses names no host to a tenant, and no label but as it wrote it. A rule that names hosts is in no conflict.
func TestRefusedApplyNamesNoHosts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 2, 2)
		at := "/v1/virtual-clusters/conf"
		x.want(202, "PUT", at, smallVC("conf", `"app=a"`, ""), "film editor")
		x.want(202, "PUT", at+"?tenant=film&edit=true", smallVC("conf", `"app=a","host:h1"`, ""), "operator")
		x.want(202, "PUT", at, smallVC("conf", `"app=b"`, ""), "film editor")
		if spec := x.want(200, "GET", at+"/spec?tenant=film", "", "operator"); !strings.Contains(spec, `["app=b","host:h1"]`) {
			t.Errorf("the operator's rule is gone: %s", spec)
		}
		x.want(202, "PUT", at+"?tenant=film&edit=true", smallVC("conf", `"app=c","host:h1"`, ""), "operator")
		got := x.want(409, "PUT", at, smallVC("conf", `"app=d"`, ""), "film editor")
		if strings.Contains(got, "host:") || strings.Contains(got, "@film") || !strings.Contains(got, "was app=b in the last file, is app=c now, and app=d in this one") {
			t.Errorf("a conflict: %s", got)
		}

		at = "/v1/virtual-clusters/disky"
		file := func(avoid string) string {
			return `{"name":"disky","groups":[{"name":"core","count":1,"cpu":0.1,"memory":"256MiB","labels":{"app":"db"},"disk":{"size":"1GiB"},"affinity":{"avoid":[` + avoid + `]}},` +
				`{"name":"db","count":2,"cpu":0.1,"memory":"256MiB","labels":{"app":"db"}}]}`
		}
		var r v1.Result
		must(t, json.Unmarshal([]byte(x.want(202, "PUT", at, file(`"app=x"`), "film editor")), &r))
		x.want(200, "GET", "/v1/operations/"+r.Operation.ID+"?wait=60s", "", "film editor")
		var vm v1.VM
		must(t, json.Unmarshal([]byte(x.want(200, "GET", "/v1/vms/disky-core-0?tenant=film", "", "operator")), &vm))
		other := map[string]string{"h1": "h2", "h2": "h1"}[vm.Host]
		x.want(202, "PUT", at+"?tenant=film&edit=true", file(`"app=x","host:`+other+`"`), "operator")
		if got := x.want(422, "PUT", at+"?edit=true", file(`"app=x","app=db"`), "film editor"); strings.Contains(got, "host:") || strings.Contains(got, "@film") {
			t.Errorf("a disk that stays: %s", got)
		}
	})
}

// A tenant sees who of its own made a version, and of others that an operator did. Operators see who it was.
func TestVersionsNameTheTenantsOwn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 1, 2)
		at := "/v1/virtual-clusters/made"
		x.want(202, "PUT", at, smallVC("made", "", ""), "film editor")
		x.want(202, "PUT", at+"?tenant=film", smallVC("made", `"app=a"`, ""), "operator")
		for _, c := range []struct{ query, caller, first, second string }{{"", "film viewer", "film-editor (token:", "an operator"}, {"?tenant=film", "auditor", "film-editor (token:", "operator (token:"}} {
			var got v1.List[v1.VCVersion]
			must(t, json.Unmarshal([]byte(x.want(200, "GET", at+"/versions"+c.query, "", c.caller)), &got))
			if len(got.Items) != 2 || !strings.HasPrefix(got.Items[0].By, c.first) || !strings.HasPrefix(got.Items[1].By, c.second) {
				t.Errorf("%s: %+v", c.caller, got.Items)
			}
		}
	})
}
