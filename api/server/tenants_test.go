package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/api/v1"
	"evenkeel/test/site"
)

// tenancy is a cluster with two tenants and the default one. What each owns carries its name and a mark that occurs nowhere else.
type tenancy struct {
	*several
	token map[string]string // by "tenant role", or the role of the cluster
	vm    map[string]string // id of a VM, by tenant
	op    map[string]string // id of an operation
	key   map[string]string // id of a token
	role  map[string]string // id of a role binding
}

var roles = []string{"owner", "editor", "viewer"}

// principals that look for what is acme's.
var principals = []string{"film owner", "film editor", "film viewer", "default owner", "default editor", "default viewer"}

// mark is what a tenant's objects are called.
func mark(tenant string) string { return tenant + "xyzzy" }

func startTenants(t *testing.T, servers, hosts int) *tenancy {
	t.Helper()
	x := &tenancy{several: startSeveral(t, servers, hosts, site.Options{}), token: map[string]string{"admin": site.Token}, vm: map[string]string{}, op: map[string]string{}, key: map[string]string{"default": site.TokenID}, role: map[string]string{}}
	for _, role := range []string{"operator", "auditor", "metrics"} {
		x.makeToken(role, `{"name":"`+role+`","role":"`+role+`"}`, "")
	}
	for _, tenant := range []string{"film", "acme"} { // tokens of the tenant default come after them: it has a row then
		x.want(201, "POST", "/v1/tenants", `{"name":"`+tenant+`","displayName":"The `+tenant+`"}`, "admin")
		for _, role := range roles {
			x.makeToken(tenant+" "+role, `{"name":"`+tenant+`-`+role+`","role":"`+role+`","tenant":"`+tenant+`"}`, tenant)
		}
	}
	for _, role := range roles {
		x.makeToken("default "+role, `{"name":"default-`+role+`","role":"`+role+`","tenant":"default"}`, "default")
	}
	for _, tenant := range []string{"film", "acme", "default"} {
		m := mark(tenant)
		body := x.want(202, "POST", "/v1/virtual-clusters?tenant="+tenant, `{"name":"`+m+`","groups":[{"name":"core","count":2,"cpu":0.5,"memory":"1GiB",
			"labels":{"`+m+`":"`+m+`"},"cloudInit":{"userData":"#cloud-config\n# `+m+`"},"affinity":{"prefer":["`+m+`=`+m+`"]}}]}`, "admin")
		var r v1.Result
		must(t, json.Unmarshal([]byte(body), &r))
		x.op[tenant] = r.Operation.ID
		x.want(200, "GET", "/v1/operations/"+r.Operation.ID+"?wait=60s", "", "admin")
		var vm v1.VM
		must(t, json.Unmarshal([]byte(x.want(200, "GET", "/v1/vms/"+m+"-core-0?tenant="+tenant, "", "admin")), &vm))
		x.vm[tenant] = vm.ID
		var bound v1.RoleBinding
		must(t, json.Unmarshal([]byte(x.want(201, "POST", "/v1/role-bindings", `{"subject":{"kind":"token","name":"`+x.key[tenant]+`"},"role":"viewer","tenant":"`+tenant+`"}`, "admin")), &bound))
		x.role[tenant] = bound.ID
	}
	return x
}

func (x *tenancy) makeToken(name, body, tenant string) {
	x.t.Helper()
	var made v1.Token
	must(x.t, json.Unmarshal([]byte(x.want(201, "POST", "/v1/tokens", body, "admin")), &made))
	x.token[name] = made.Token
	if tenant != "" {
		x.key[tenant] = made.ID
	}
}

// as asks as a caller, again where its tenant asked for more dry runs than it may: that answer would hide any other.
func (x *tenancy) as(caller, method, path, body string, header ...string) (*http.Response, string) {
	x.t.Helper()
	for {
		resp, got := x.ask("h1", method, path, body, append([]string{"Authorization", "Bearer " + x.token[caller]}, header...)...)
		if resp.StatusCode != http.StatusTooManyRequests {
			return resp, got
		}
		time.Sleep(10 * time.Second) // sleep: until a burst is possible again, in the time of the bubble
	}
}

func (x *tenancy) want(status int, method, path, body, caller string) string {
	x.t.Helper()
	resp, got := x.as(caller, method, path, body)
	if resp.StatusCode != status {
		x.t.Fatalf("%s %s as %s: %s %s, want %d", method, path, caller, resp.Status, got, status)
	}
	return got
}

// hostNames are those of the site's hosts, as words.
var hostNames = regexp.MustCompile(`\bh[1-9]\b`)

// leak is what an answer shows that is not the tenant's: "" if nothing.
func leak(resp *http.Response, body, tenant string) string {
	text := body
	for name, values := range resp.Header {
		if name != "Date" {
			text += "\n" + name + ": " + strings.Join(values, " ")
		}
	}
	for _, other := range []string{"film", "acme", "default"} {
		if other != tenant && strings.Contains(text, mark(other)) {
			return mark(other)
		}
	}
	for _, header := range []string{"Evenkeel-Index"} {
		if resp.Header.Get(header) != "" {
			return header
		}
	}
	return hostNames.FindString(text)
}

// filled are the paths that a route has with the objects of a tenant.
func (x *tenancy) filled(path, tenant string) []string {
	m := mark(tenant)
	names := map[string][]string{
		"/v1/virtual-clusters/": {m}, "/v1/vms/": {m + "-core-0", x.vm[tenant]}, "/v1/operations/": {x.op[tenant]}, "/v1/tokens/": {x.key[tenant]}, "/v1/role-bindings/": {x.role[tenant]},
		"/v1/tenants/": {tenant}, "/v1/quotas/": {tenant}, "/v1/hosts/": {"h1"},
	}
	for prefix, all := range names {
		if strings.HasPrefix(path, prefix+"{") {
			var out []string
			for _, name := range all {
				out = append(out, strings.NewReplacer("{name}", name, "{id}", name).Replace(path))
			}
			return out
		}
	}
	return []string{strings.NewReplacer("{name}", m, "{id}", m).Replace(path)}
}

// bodies are requests that name another object, by route; "%s" is its name.
var bodies = map[string][]string{
	"POST /v1/virtual-clusters": {`{"name":"probe","groups":[{"name":"a","cpu":1,"memory":"1GiB","affinity":{"avoid":["vc:acme/%s"]}}]}`, `{"name":"probe","groups":[{"name":"a","cpu":1,"memory":"1GiB","affinity":{"avoid":["vc:%s"]}}]}`,
		`{"name":"%s","groups":[{"name":"a","cpu":1000,"memory":"1GiB"}],"onFull":"reject"}`,
		`{"name":"probe","groups":[{"name":"a","cpu":1,"memory":"1GiB","affinity":{"require":["host:%s"]}}]}`,
		`{"name":"probe","groups":[{"name":"a","count":64,"cpu":8,"memory":"15GiB"}],"onFull":"reject"}`,
		`{"name":"large","minYield":0.1,"groups":[{"name":"a","count":2,"cpu":8,"memory":"1GiB"}]}`, // less for all others
		`{"name":"probe","groups":[{"name":"a","cpu":1,"memory":"1GiB","image":"%s"}]}`},
	"PUT /v1/virtual-clusters/{name}": {`{"name":"%s","groups":[{"name":"core","count":2,"cpu":0.5,"memory":"1GiB"}]}`,
		`{"name":"%s","groups":[{"name":"core","count":3,"cpu":4,"memory":"1GiB","labels":{"%s":"x"},"affinity":{"spread":"host","avoid":["%s=x"]}}]}`,
		`{"name":"%s","groups":[{"name":"a","count":64,"cpu":8,"memory":"15GiB"}]}`,
		`{"name":"%s","groups":[{"name":"core","cpu":1,"memory":"1GiB","affinity":{"require":["host:%s"]}}]}`,
		`{"name":"%s","groups":[{"name":"core","cpu":1,"memory":"1GiB","affinity":{"avoid":["vc:acme/%s"]}}]}`},
	"POST /v1/virtual-clusters/{name}/rollback": {`{"version":1}`, `{"version":1000}`},
	"PATCH /v1/virtual-clusters/{name}":         {`{"count":64}`, `{"group":"%s","count":3}`},
	"POST /v1/role-bindings": {`{"subject":{"kind":"token","name":"%s"},"role":"viewer"}`, `{"subject":{"kind":"token","name":"%s"},"role":"viewer","tenant":"%s"}`,
		`{"subject":{"kind":"user","name":"%s"},"role":"viewer"}`},
	"POST /v1/tokens": {`{"name":"x","role":"viewer","tenant":"%s"}`, `{"name":"x","role":"admin"}`, `{"name":"x","role":"viewer"}`},
}

// Every route of the OpenAPI document for every role of a tenant: nothing in an answer is another tenant's, or of hosts and of the
// log; and an object of another tenant is answered as one that does not exist. A new route is in it by itself: one that tenants may
// not use answers 403.
func TestNoTenantSeesAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 1, 2)
		var doc struct {
			Paths map[string]map[string]json.RawMessage
		}
		must(t, json.Unmarshal([]byte(x.want(200, "GET", "/openapi.json", "", "admin")), &doc))
		asked, open := 0, map[string]bool{}
		for path, item := range doc.Paths {
			for method := range item {
				method = strings.ToUpper(method)
				route := method + " " + path
				for _, caller := range principals {
					of, _, _ := strings.Cut(caller, " ")
					for _, own := range x.filled(path, of) {
						if route == "DELETE /v1/tokens/{id}" || method == "DELETE" {
							own = query(own, "dryRun=true")
						}
						for _, body := range append(bodies[route], "{}") {
							for _, dry := range []string{"", "dryRun=true"} {
								at := query(own, "follow=false", dry)
								if method != "GET" {
									at = query(own, "dryRun=true")
								}
								resp, got := x.as(caller, method, onlyKnown(at, path), strings.ReplaceAll(body, "%s", mark(of)))
								asked++
								if found := leak(resp, got, of); found != "" {
									t.Errorf("%s as %s: %s shows %q: %s", at, caller, resp.Status, found, got)
								}
								if resp.StatusCode < 300 {
									open[route] = true
								}
								if method == "GET" {
									break
								}
							}
							if method == "GET" {
								break
							}
						}
					}
				}
				x.othersAreUnknown(route, path, method, &asked)
			}
		}
		t.Logf("%d requests; %d routes answered a tenant: %v", asked, len(open), slices.Sorted(keysOf(open)))
		if len(open) < 20 {
			t.Errorf("only %d routes answered a tenant", len(open))
		}
	})
}

func keysOf(m map[string]bool) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// query adds parameters to a path.
func query(path string, parameters ...string) string {
	for _, p := range parameters {
		if p == "" {
			continue
		}
		sep := "?"
		if strings.Contains(path, "?") {
			sep = "&"
		}
		path += sep + p
	}
	return path
}

// onlyKnown drops follow from all but events, which alone know it.
func onlyKnown(at, route string) string {
	if route == "/v1/events" {
		return at
	}
	return strings.NewReplacer("?follow=false", "", "&follow=false", "").Replace(at)
}

// othersAreUnknown asks for what is another tenant's, and for the same that does not exist: the answers are equal but for the name.
func (x *tenancy) othersAreUnknown(route, path, method string, asked *int) {
	t := x.t
	t.Helper()
	probes := [][2]string{}
	if strings.Contains(path, "{") {
		for _, other := range []string{"acme"} {
			there := x.filled(path, other)
			for _, at := range there {
				id := at // what the parameter of the path is
				for i, part := range strings.Split(path, "/") {
					if strings.HasPrefix(part, "{") {
						id = strings.Split(at, "/")[i]
					}
				}
				probes = append(probes, [2]string{at, strings.Replace(at, id, absent(id), 1)})
				full := "acme%2F" + id // as operators see it
				probes = append(probes, [2]string{strings.Replace(at, id, full, 1), strings.Replace(at, id, absent(full), 1)})
			}
		}
	}
	if slices.Contains([]string{"/v1/virtual-clusters", "/v1/vms", "/v1/operations", "/v1/events", "/v1/tokens", "/v1/role-bindings", "/v1/auth/permissions"}, path) && method == "GET" {
		probes = append(probes, [2]string{path + "?tenant=acme", path + "?tenant=acm0"}, [2]string{path + "?tenant=*", path + "?tenant=nosuch"})
	}
	if path == "/v1/vms" {
		probes = append(probes, [2]string{path + "?virtualCluster=" + mark("acme"), path + "?virtualCluster=" + absent(mark("acme"))})
	}
	for _, caller := range principals {
		of, _, _ := strings.Cut(caller, " ")
		for _, probe := range probes {
			for _, body := range append(bodies[route], "{}") {
				var answers [2]string
				for i, at := range probe {
					name := mark("acme")
					if i == 1 {
						name = absent(name)
					}
					if method != "GET" {
						at = query(at, "dryRun=true")
					}
					resp, got := x.as(caller, method, at, strings.ReplaceAll(body, "%s", name), "X-Request-Id", "same")
					*asked++
					answers[i] = neutral(resp.Status+" "+got, probe[i], name)
				}
				if answers[0] != answers[1] {
					t.Errorf("%s %s as %s is not as for what does not exist:\n%s\n%s", method, probe[0], caller, answers[0], answers[1])
				}
				if method == "GET" {
					break
				}
			}
		}
		for _, body := range bodies[route] {
			var answers [2]string
			for i, name := range []string{mark("acme"), absent(mark("acme"))} {
				resp, got := x.as(caller, method, query(x.filled(path, of)[0], "dryRun=true"), strings.ReplaceAll(body, "%s", name), "X-Request-Id", "same")
				*asked++
				answers[i] = neutral(resp.Status+" "+got, "", name)
			}
			if answers[0] != answers[1] {
				t.Errorf("%s naming another tenant's object as %s is not as for what does not exist:\n%s\n%s", route, caller, answers[0], answers[1])
			}
		}
	}
}

// absent is a name of the same form that nothing has.
func absent(name string) string { return name[:len(name)-1] + "0" }

var (
	volatile  = regexp.MustCompile(`"(at|createdAt|queuedAt|id|madeAt)":"[^"]*"|urn:evenkeel:request:[^"]*`)
	quotedArg = regexp.MustCompile(`"value":"[^"]*"`)
)

// neutral is an answer without the name that was asked for, and without times and new ids.
func neutral(answer, path, name string) string {
	out := volatile.ReplaceAllString(answer, "")
	parts := append(strings.FieldsFunc(strings.ReplaceAll(path, "%2F", "/"), func(r rune) bool { return strings.ContainsRune("/?=&", r) }), name)
	slices.SortFunc(parts, func(a, b string) int { return len(b) - len(a) })
	for _, part := range parts {
		if len(part) > 2 || part == "*" {
			out = strings.ReplaceAll(out, part, "NAME")
		}
	}
	return quotedArg.ReplaceAllString(out, "")
}

// Names belong to their tenant: the same one serves many, for virtual clusters, VMs and idempotency keys. Domains differ.
func TestNamesOfTenants(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 1, 2)
		const spec = `{"name":"web","groups":[{"name":"core","cpu":0.25,"memory":"512MiB","labels":{"app":"db"},"affinity":{"avoid":["app=db","vc:web"]}}]}`
		domains := map[string]bool{}
		for _, caller := range []string{"film editor", "acme editor", "operator"} {
			resp, body := x.as(caller, "POST", "/v1/virtual-clusters", spec, "Idempotency-Key", "one")
			if resp.StatusCode != 202 {
				t.Fatalf("%s: %s %s", caller, resp.Status, body)
			}
			if resp, body := x.as(caller, "POST", "/v1/virtual-clusters", spec, "Idempotency-Key", "one"); resp.StatusCode != 200 || !strings.Contains(body, `"replayed":true`) {
				t.Errorf("%s again: %s %s", caller, resp.Status, body)
			}
			var vc v1.VirtualCluster
			must(t, json.Unmarshal([]byte(x.want(200, "GET", "/v1/virtual-clusters/web", "", caller)), &vc))
			if g := vc.Groups[0]; g.Labels["app"] != "db" || !slices.Equal(g.Affinity.Avoid, []string{"app=db", "vc:web"}) || vc.Name != "web" {
				t.Errorf("%s: %+v", caller, vc)
			}
		}
		var all v1.List[v1.VM]
		must(t, json.Unmarshal([]byte(x.want(200, "GET", "/v1/vms?tenant=*", "", "operator")), &all))
		web := 0
		for _, vm := range all.Items {
			if vm.Name == "web-core-0" {
				web++
				domains[vm.Domain] = true
				if vm.Tenant == "" || vm.Host == "" {
					t.Errorf("an operator sees %+v", vm)
				}
			}
		}
		if web != 3 || len(domains) != 3 {
			t.Errorf("%d VMs web-core-0 in domains %v", web, domains)
		}
		// On one of two hosts there are two of them: rules of one tenant do not match what is another's.
		for _, caller := range []string{"film editor", "acme editor"} {
			x.want(202, "DELETE", "/v1/virtual-clusters/web", "", caller)
			x.want(404, "GET", "/v1/virtual-clusters/"+mark("default"), "", caller)
		}
		x.want(200, "GET", "/v1/virtual-clusters/web", "", "operator")
	})
}

// Quotas over the API: a refusal names key, limit, used and asked; the tenant sees its own.
func TestQuotasOfTenants(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 1, 2)
		x.want(200, "PATCH", "/v1/quotas/film", `{"limits":{"vms":"3","memory":"4GiB"}}`, "operator")
		x.want(403, "PATCH", "/v1/quotas/film", `{"limits":{"vms":"30"}}`, "film owner")
		for _, q := range []struct{ body, says string }{
			{`{"name":"more","groups":[{"name":"a","count":2,"cpu":0.1,"memory":"512MiB"}]}`, "quota vms: limit 3, used 2, asked for 2 more"},
			{`{"name":"more","groups":[{"name":"a","count":1,"cpu":0.1,"memory":"3GiB"}]}`, "quota memory: limit 4096 MiB, used 2048 MiB, asked for 3072 MiB more"},
		} {
			for _, dry := range []string{"", "?dryRun=true"} {
				resp, body := x.as("film editor", "POST", "/v1/virtual-clusters"+dry, q.body)
				if p := problemIn(t, resp, body); p.Type != v1.ProblemQuota || resp.StatusCode != 403 || !strings.Contains(p.Detail, q.says) {
					t.Errorf("%s: %s %s", q.body, resp.Status, body)
				}
			}
		}
		x.want(403, "PATCH", "/v1/virtual-clusters/"+mark("film"), `{"count":4}`, "film editor")
		x.want(202, "PATCH", "/v1/virtual-clusters/"+mark("film"), `{"count":3}`, "film editor")
		x.want(200, "PATCH", "/v1/quotas/film", `{"limits":{"vms":"1"}}`, "operator")
		var quota v1.Quota
		must(t, json.Unmarshal([]byte(x.want(200, "GET", "/v1/quotas/film", "", "film viewer")), &quota))
		if !slices.Equal(quota.OverQuota, []string{"vms"}) {
			t.Errorf("over quota: %v", quota.OverQuota)
		}
		x.want(202, "PATCH", "/v1/virtual-clusters/"+mark("film"), `{"count":2}`, "film editor")
		metrics := x.want(200, "GET", "/metrics", "", "metrics")
		for _, line := range []string{`evenkeel_tenant_quota_used{key="vms",tenant="film"} 2`, `evenkeel_tenant_quota_limit{key="vms",tenant="film"} 1`} {
			if !strings.Contains(metrics, line+"\n") {
				t.Errorf("no %s in /metrics", line)
			}
		}
		if strings.Contains(metrics, `evenkeel_tenant_quota_limit{key="cpu",tenant="film"}`) {
			t.Error("a limit that was not set is a metric")
		}
		x.want(422, "PATCH", "/v1/quotas/film", `{"limits":{"gpus":"1"}}`, "operator")
		x.want(422, "PATCH", "/v1/quotas/film", `{"limits":{"memory":"-1"}}`, "operator")
		// A tenant whose virtual clusters may not wait starts what fits.
		x.want(200, "PATCH", "/v1/quotas/acme", `{"limits":{"queued":"0"}}`, "operator")
		x.want(202, "POST", "/v1/virtual-clusters/"+mark("acme")+"/stop", "", "acme editor")
		time.Sleep(10 * time.Second) // sleep: in the bubble, until it is stopped
		x.want(200, "POST", "/v1/virtual-clusters/"+mark("acme")+"/start?dryRun=true", "", "acme editor")
		x.want(202, "POST", "/v1/virtual-clusters/"+mark("acme")+"/start", "", "acme editor")
		x.want(200, "PATCH", "/v1/quotas/acme", `{"limits":{"queued":"0"}}`, "operator")
		for _, dry := range []string{"?dryRun=true", ""} { // one that would wait
			resp, body := x.as("acme editor", "POST", "/v1/virtual-clusters"+dry, `{"name":"wide","groups":[{"name":"a","count":2,"cpu":0.1,"memory":"7GiB"}]}`)
			if p := problemIn(t, resp, body); p.Type != v1.ProblemQuota || !strings.Contains(p.Detail, "quota queued: limit 0, used 0, asked for 1 more") {
				t.Errorf("to wait: %s %s", resp.Status, body)
			}
		}
		x.want(200, "PATCH", "/v1/quotas/*", `{"limits":{"vcs":"1"}}`, "operator")
		x.want(403, "POST", "/v1/virtual-clusters", `{"name":"more","groups":[{"name":"a","cpu":0.1,"memory":"512MiB"}]}`, "acme editor")
	})
}

// A suspended tenant's tokens are refused, what runs goes on, and it can be resumed. One that owns something is not deleted.
func TestSuspendedTenant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 1, 1)
		x.want(200, "PATCH", "/v1/tenants/film", `{"state":"suspended"}`, "operator")
		resp, body := x.as("film owner", "GET", "/v1/vms", "")
		if p := problemIn(t, resp, body); p.Type != v1.ProblemSuspended {
			t.Errorf("a suspended tenant: %s", body)
		}
		x.want(403, "POST", "/v1/virtual-clusters?tenant=film", `{"name":"more","groups":[{"name":"a","cpu":0.1,"memory":"512MiB"}]}`, "operator")
		if got := x.want(200, "GET", "/v1/vms?tenant=film", "", "operator"); strings.Count(got, `"state":"running"`) != 2 {
			t.Errorf("its VMs: %s", got)
		}
		x.want(409, "DELETE", "/v1/tenants/film", "", "operator")
		x.want(200, "PATCH", "/v1/tenants/film", `{"state":"active"}`, "operator")
		// What waits when its tenant is suspended does not start until the tenant is active again, while that of others does.
		x.want(202, "POST", "/v1/virtual-clusters", `{"name":"all","groups":[{"name":"a","cpu":0.1,"memory":"7GiB"}]}`, "operator")
		for _, tenant := range []string{"film", "acme"} {
			x.want(202, "POST", "/v1/virtual-clusters?tenant="+tenant, `{"name":"waits","onFull":"queue","groups":[{"name":"a","cpu":0.1,"memory":"4GiB"}]}`, "operator")
		}
		x.want(200, "PATCH", "/v1/tenants/film", `{"state":"suspended"}`, "operator")
		x.want(202, "DELETE", "/v1/virtual-clusters/all", "", "operator")
		states := func() (out [2]string) {
			time.Sleep(time.Minute) // sleep: in the bubble, until the queue is tried
			for i, tenant := range []string{"film", "acme"} {
				var vc v1.VirtualCluster
				must(t, json.Unmarshal([]byte(x.want(200, "GET", "/v1/virtual-clusters/waits?tenant="+tenant, "", "operator")), &vc))
				out[i] = vc.State
			}
			return out
		}
		if got := states(); got != [2]string{"queued", "running"} {
			t.Errorf("what waits of the suspended and of the active tenant: %v", got)
		}
		x.want(200, "PATCH", "/v1/tenants/film", `{"state":"active"}`, "operator")
		if got := states(); got != [2]string{"running", "running"} {
			t.Errorf("once it is active: %v", got)
		}
		x.want(200, "GET", "/v1/vms", "", "film owner")
		x.want(404, "PATCH", "/v1/tenants/none", `{"state":"active"}`, "operator")
		x.want(404, "GET", "/v1/tenants/*", "", "operator")
		x.want(201, "POST", "/v1/tenants", `{"name":"short"}`, "operator")
		x.want(204, "DELETE", "/v1/tenants/short", "", "operator")
		x.want(409, "DELETE", "/v1/tenants/default", "", "operator")
	})
}

// A token's owner makes and revokes tokens of its tenant alone.
func TestTokensOfTenants(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 1, 1)
		var made v1.Token
		must(t, json.Unmarshal([]byte(x.want(201, "POST", "/v1/tokens", `{"name":"ci","role":"editor"}`, "film owner")), &made))
		if made.Tenant != "film" || made.Token == "" {
			t.Errorf("made %+v", made)
		}
		for _, role := range []string{"admin", "operator", "auditor", "metrics"} {
			if resp, body := x.as("film owner", "POST", "/v1/tokens", fmt.Sprintf(`{"name":"ci","role":%q}`, role)); resp.StatusCode != 422 && resp.StatusCode != 403 {
				t.Errorf("an owner makes a token of role %s: %s %s", role, resp.Status, body)
			}
		}
		x.want(404, "DELETE", "/v1/tokens/"+x.key["acme"], "", "film owner")
		x.want(404, "DELETE", "/v1/tokens/"+site.TokenID, "", "film owner")
		if got := x.want(200, "GET", "/v1/tokens", "", "film owner"); strings.Contains(got, "acme") || strings.Contains(got, site.TokenID) || strings.Count(got, `"id"`) != 4 {
			t.Errorf("tokens: %s", got)
		}
		x.want(200, "DELETE", "/v1/tokens/"+made.ID, "", "film owner")
		x.want(403, "POST", "/v1/tokens", `{"name":"ci","role":"viewer"}`, "film editor")
		x.want(422, "POST", "/v1/tokens", `{"name":"ci","role":"viewer"}`, "admin")
		x.want(404, "POST", "/v1/tokens", `{"name":"ci","role":"viewer","tenant":"none"}`, "admin")
	})
}

// A tenant that is made again under the name of a deleted one is another tenant: it sees no operation and no event of the old one, and
// an idempotency key that the old one used is new.
func TestTenantMadeAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 1, 2)
		m := mark("film")
		spec := `{"name":"` + m + `","groups":[{"name":"a","cpu":0.1,"memory":"512MiB"}]}`
		x.want(202, "DELETE", "/v1/virtual-clusters/"+m, "", "film owner")
		x.gone("film", m)
		if resp, body := x.as("film owner", "POST", "/v1/virtual-clusters", spec, "Idempotency-Key", "one"); resp.StatusCode != 202 {
			t.Fatalf("create: %s %s", resp.Status, body)
		}
		x.want(202, "DELETE", "/v1/virtual-clusters/"+m, "", "film owner")
		x.gone("film", m)
		var tokens v1.List[v1.Token]
		must(t, json.Unmarshal([]byte(x.want(200, "GET", "/v1/tokens?tenant=film", "", "admin")), &tokens))
		for _, token := range tokens.Items {
			x.want(200, "DELETE", "/v1/tokens/"+token.ID, "", "admin")
		}
		x.want(204, "DELETE", "/v1/tenants/film", "", "operator")
		x.want(201, "POST", "/v1/tenants", `{"name":"film"}`, "operator")
		x.makeToken("film owner", `{"name":"new","role":"owner","tenant":"film"}`, "film")
		for _, at := range []string{"/v1/operations", "/v1/events?follow=false&after=0", "/v1/events?follow=false"} {
			if got := x.want(200, "GET", at, "", "film owner"); strings.Contains(got, m) {
				t.Errorf("%s shows what was the old tenant's: %s", at, got)
			}
		}
		x.want(404, "GET", "/v1/operations/"+x.op["film"], "", "film owner")
		resp, body := x.as("film owner", "POST", "/v1/virtual-clusters", spec, "Idempotency-Key", "one")
		if resp.StatusCode != 202 || strings.Contains(body, `"replayed":true`) {
			t.Errorf("a key that the old tenant used: %s %s", resp.Status, body)
		}
		if got := x.want(200, "GET", "/v1/events?follow=false&after=0", "", "film owner"); !strings.Contains(got, `"seq":1,`) || !strings.Contains(got, "vc-created") {
			t.Errorf("events of the new tenant: %s", got)
		}
		if resp, body := x.as("operator", "POST", "/v1/virtual-clusters?tenant=film", spec, "Idempotency-Key", "one"); resp.StatusCode != 200 {
			t.Errorf("its key, sent again by an operator: %s %s", resp.Status, body)
		}
	})
}

// gone waits until nothing is left of a virtual cluster.
func (x *tenancy) gone(tenant, name string) {
	x.t.Helper()
	for range 60 {
		if resp, _ := x.as("admin", "GET", "/v1/virtual-clusters/"+name+"?tenant="+tenant, ""); resp.StatusCode == 404 {
			return
		}
		time.Sleep(time.Second) // sleep: in the bubble
	}
	x.t.Fatalf("%s of %s is still there", name, tenant)
}

// An audit record says which tenant its caller is of: names of objects are names in it, and names of tokens are its choice.
func TestAuditNamesTenant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 1, 1)
		var made v1.Token
		must(t, json.Unmarshal([]byte(x.want(201, "POST", "/v1/tokens", `{"name":"operator","role":"editor"}`, "film owner")), &made))
		x.token["impostor"] = made.Token
		spec := `{"name":"web","groups":[{"name":"a","cpu":0.1,"memory":"256MiB"}]}`
		x.want(202, "POST", "/v1/virtual-clusters", spec, "operator")
		x.want(202, "POST", "/v1/virtual-clusters", spec, "impostor")
		x.want(202, "DELETE", "/v1/virtual-clusters/web", "", "impostor")
		var log v1.AuditList
		must(t, json.Unmarshal([]byte(x.want(200, "GET", "/v1/audit?object=web", "", "auditor")), &log))
		var tenants []string
		for _, r := range log.Items {
			tenants = append(tenants, r.Verb+" "+r.Actor.Tenant)
		}
		if want := []string{"createVirtualCluster ", "createVirtualCluster film", "deleteVirtualCluster film"}; !slices.Equal(tenants, want) {
			t.Errorf("records of web: %q, want %q", tenants, want)
		}
	})
}
