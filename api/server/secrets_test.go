package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/api/v1"
)

// planted is a text that one tenant wrote, and that occurs nowhere else.
type planted struct {
	what string
	text string
	// shown are the roles of the cluster that may read it. Other tenants and callers without a token never may.
	shown []string
	log   bool // the log of vcd may have it
}

var (
	readers     = []string{"admin", "operator", "auditor"}            // they read what is called how
	withMetrics = []string{"admin", "operator", "auditor", "metrics"} // /metrics has it, too
)

// plant is what acme writes, wherever a tenant can write something. What it has to be is said beside it.
func plant() map[string]*planted {
	return map[string]*planted{
		"vc":      {"name of a virtual cluster", "qvc7h2m9x", withMetrics, true},
		"group":   {"name of a group, and so a part of the names of its VMs", "qgr4k8w1z", withMetrics, true},
		"label":   {"name of a label", "qlb5t3n6c", readers, false},
		"value":   {"value of a label", "qvl9p1d4s", readers, false},
		"rule":    {"rule of affinity", "qrl2f7j8b", readers, false},
		"user":    {"cloud-init user data", "qus6g5y3r", nil, false},
		"meta":    {"cloud-init meta data", "qme1v9k7t", nil, false},
		"net":     {"cloud-init network configuration", "qne8c4h2w", nil, false},
		"key":     {"idempotency key", "qid3z6b5m", nil, false},
		"token":   {"name of a token", "qto7x2q9f", readers, false},
		"display": {"display name of the tenant", "qdi4n8s1g", readers, false},
		"mark":    {"label of the tenant, which an operator gave it", "qla5j3w6p", readers, false},
	}
}

// hearing is what one principal got to read.
type hearing struct {
	mu   sync.Mutex
	text map[string]string // by what was asked
}

func (h *hearing) add(what, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text[what] += text
}

// A tenant's secrets: unique texts in all that it can write are found in no answer, stream, long poll, metric, plan, refusal or dry
// run of any principal that may not read them, and not in the log of vcd. Its own readers find what they wrote.
func TestSecretsOfTenants(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 2, 2)
		secrets := plant()
		s := func(key string) string { return secrets[key].text }
		x.token["stranger"] = ""
		x.want(200, "PATCH", "/v1/tenants/acme", fmt.Sprintf(`{"displayName":%q,"labels":{"owner":%q}}`, s("display"), s("mark")), "operator")
		others := []string{"film owner", "film editor", "film viewer", "default owner", "admin", "operator", "auditor", "metrics", "stranger"}
		heard := map[string]*hearing{}
		for _, caller := range append(others, "acme owner") {
			heard[caller] = &hearing{text: map[string]string{}}
		}
		var streams sync.WaitGroup
		stop := make(chan struct{})
		for caller, h := range heard {
			streams.Go(func() { x.listen(caller, h, stop) })
			if caller != "stranger" && caller != "metrics" {
				for _, at := range []string{"/v1/operations/" + x.op["acme"], "/v1/migrations", "/v1/plans"} {
					streams.Go(func() {
						_, body := x.do("h1", x.token[caller], "GET", at+"?wait=20s", "")
						h.add("long poll of "+at, body)
					})
				}
			}
		}
		time.Sleep(time.Second) // sleep: in the bubble, until all listen
		x.write(secrets)
		vm := x.vmOf("acme", s("vc")+"-"+s("group")+"-0")

		routes := x.routesWith()
		for _, caller := range append(others, "acme owner") {
			x.read(caller, heard[caller], routes, secrets, vm)
		}
		close(stop)
		streams.Wait()

		readBy := map[string][]string{} // of each secret, with where it was found
		for caller, h := range heard {
			for key, secret := range secrets {
				found := ""
				for what, text := range h.text {
					if strings.Contains(text, secret.text) && !strings.Contains(what, secret.text) { // what one asked for oneself is no news
						found = what
						if caller != "acme owner" && !slices.Contains(secret.shown, caller) {
							at := strings.Index(text, secret.text)
							t.Errorf("%s reads the %s of acme in %s: %s", caller, secret.what, what, text[max(0, at-100):min(len(text), at+50)])
						}
					}
				}
				if found != "" {
					readBy[key] = append(readBy[key], caller)
				}
				if caller == "acme owner" && found == "" && !slices.Contains([]string{"user", "meta", "net", "key"}, key) {
					t.Errorf("the %s is not shown to its own tenant: it proves nothing that it is not shown to others", secret.what)
				}
			}
		}
		for key, secret := range secrets { // a reader of the table finds no claim that is not so
			slices.Sort(readBy[key])
			if t.Logf("%s: %s", secret.what, readBy[key]); len(secret.shown) > 0 && !slices.Contains(readBy[key], "operator") {
				t.Errorf("no operator reads the %s, which they may", secret.what)
			}
		}
		log := x.log.String()
		for _, secret := range secrets {
			if strings.Contains(log, secret.text) && !secret.log {
				at := strings.Index(log, secret.text)
				t.Errorf("the log of vcd has the %s: %s", secret.what, log[max(0, at-200):min(len(log), at+50)])
			}
		}
		if n := len(heard["film owner"].text); n < 80 {
			t.Errorf("only %d answers were read", n)
		}
	})
}

// listen to the events from now on, if the principal may.
func (x *tenancy) listen(caller string, h *hearing, stop chan struct{}) {
	r, err := http.NewRequestWithContext(x.t.Context(), http.MethodGet, "https://"+x.Address("h2")+"/v1/events?after=0", nil)
	must(x.t, err)
	r.Header.Set("Authorization", "Bearer "+x.token[caller])
	resp, err := x.http.Do(r)
	must(x.t, err)
	closed := make(chan struct{})
	go func() {
		<-stop
		_ = resp.Body.Close()
		close(closed)
	}()
	for in := bufio.NewScanner(resp.Body); in.Scan(); {
		h.add("the stream of events", in.Text()+"\n")
	}
	<-closed
}

// write what is planted, and let the cluster do all that it does with it: start, scale, move, refuse.
func (x *tenancy) write(secrets map[string]*planted) {
	x.t.Helper()
	s := func(key string) string { return secrets[key].text }
	spec := fmt.Sprintf(`{"name":%q,"groups":[{"name":%q,"count":2,"cpu":0.5,"memory":"512MiB","labels":{%q:%q},"affinity":{"prefer":["%s=%s"]},
		"cloudInit":{"userData":"#cloud-config\n# %s","metaData":"local-hostname: %s","networkConfig":"version: 2 # %s"}}]}`,
		s("vc"), s("group"), s("label"), s("value"), s("rule"), s("rule"), s("user"), s("meta"), s("net"))
	resp, body := x.as("acme editor", "POST", "/v1/virtual-clusters", spec, "Idempotency-Key", s("key"))
	if resp.StatusCode != 202 {
		x.t.Fatalf("create: %s %s", resp.Status, body)
	}
	var made v1.Result
	must(x.t, json.Unmarshal([]byte(body), &made))
	x.want(200, "GET", "/v1/operations/"+made.Operation.ID+"?wait=60s", "", "admin")
	x.op["acme"] = made.Operation.ID
	x.want(201, "POST", "/v1/tokens", fmt.Sprintf(`{"name":%q,"role":"viewer"}`, s("token")), "acme owner")
	x.want(202, "PATCH", "/v1/virtual-clusters/"+s("vc"), `{"count":3}`, "acme editor")
	at := "/v1/virtual-clusters/" + s("vc")
	for _, wrong := range []string{`{"count":100000}`, `{"group":"none"}`, `{"cpu":7.5,"memory":"512MiB"}`} {
		x.as("acme editor", "PATCH", at, wrong)
	}
	x.as("acme editor", "POST", "/v1/virtual-clusters", strings.ReplaceAll(spec, `"count":2,"cpu":0.5`, `"count":64,"cpu":8,"image":"none"`))
	time.Sleep(10 * time.Second) // sleep: in the bubble, until all run
	x.as("operator", "POST", "/v1/hosts/h1/drain", `{"onBlocked":"skip"}`)
	time.Sleep(30 * time.Second) // sleep: in the bubble, until they have moved
	x.as("operator", "DELETE", "/v1/hosts/h1/drain", "")
	var moved v1.List[v1.Migration]
	must(x.t, json.Unmarshal([]byte(x.want(200, "GET", "/v1/migrations", "", "operator")), &moved))
	if len(moved.Items) == 0 {
		x.t.Fatal("nothing was moved")
	}
}

func (x *tenancy) vmOf(tenant, name string) string {
	x.t.Helper()
	var vm v1.VM
	must(x.t, json.Unmarshal([]byte(x.want(200, "GET", "/v1/vms/"+name+"?tenant="+tenant, "", "admin")), &vm))
	return vm.ID
}

// routeOf the API, with the parameters that it knows.
type routeOf struct {
	method, path string
	knows        map[string]bool
}

func (x *tenancy) routesWith() (out []routeOf) {
	x.t.Helper()
	var doc struct {
		Paths map[string]map[string]struct{ Parameters []struct{ Name string } }
	}
	must(x.t, json.Unmarshal([]byte(x.want(200, "GET", "/openapi.json", "", "admin")), &doc))
	for path, methods := range doc.Paths {
		for method, op := range methods {
			r := routeOf{strings.ToUpper(method), path, map[string]bool{}}
			for _, p := range op.Parameters {
				r.knows[p.Name] = true
			}
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b routeOf) int { return strings.Compare(a.path+a.method, b.path+b.method) })
	return out
}

// read all routes as a principal: its own objects, what does not exist, acme's objects by their ids, and for roles of the cluster by
// their names. What changes something is a dry run; a route without one is asked of tenants alone, who may not use it.
func (x *tenancy) read(caller string, h *hearing, routes []routeOf, secrets map[string]*planted, vm string) {
	x.t.Helper()
	of, _, ofTenant := strings.Cut(caller, " ")
	requests := map[string][]string{ // that name what there is, beside those of the table of bodies
		"POST /v1/virtual-clusters":        append(bodies["POST /v1/virtual-clusters"], `{"name":"neighbour","groups":[{"name":"a","count":2,"cpu":0.1,"memory":"256MiB"}]}`),
		"POST /v1/simulate":                {`{"removeHosts":["h1"]}`, `{"removeHosts":["h1","h2"]}`},
		"POST /v1/rebalance":               {`{}`},
		"POST /v1/hosts/{name}/drain":      {`{"onBlocked":"skip"}`, `{}`},
		"POST /v1/tokens":                  {`{"name":"x","role":"viewer"}`},
		"DELETE /v1/images/{name}":         {""},
		"DELETE /v1/virtual-clusters/{id}": {""},
	}
	for _, route := range routes {
		if route.path == "/v1/cluster/snapshot" { // the whole state: of admins alone
			resp, state := x.as(caller, "GET", route.path, "")
			if got, want := resp.StatusCode == 200 && strings.Contains(state, secrets["user"].text), caller == "admin"; got != want {
				x.t.Errorf("%s reads cloud-init data in the whole state: %v, want %v", caller, got, want)
			}
			continue
		}
		if route.path == "/v1/audit" && !ofTenant { // says who asked for what: names
			_, body := x.as(caller, "GET", route.path, "")
			h.add("GET "+route.path, body)
			continue
		}
		tried := requests[route.method+" "+route.path]
		if route.method != "GET" && !route.knows["dryRun"] && tried == nil && !ofTenant && caller != "stranger" {
			continue
		}
		paths := []string{strings.NewReplacer("{name}", "none", "{id}", "none").Replace(route.path)}
		if ofTenant {
			paths = append(paths, x.filled(route.path, of)...)
		}
		for _, id := range []string{vm, x.op["acme"], x.key["acme"], "tiny", "h1"} {
			paths = append(paths, strings.NewReplacer("{name}", id, "{id}", id).Replace(route.path))
		}
		if !ofTenant {
			for _, name := range []string{secrets["vc"].text, secrets["vc"].text + "-" + secrets["group"].text + "-0", "acme"} {
				paths = append(paths, strings.NewReplacer("{name}", name, "{id}", name).Replace(route.path))
			}
		}
		slices.Sort(paths)
		for _, at := range slices.Compact(paths) {
			if strings.HasSuffix(at, "/console") || route.path == "/v1/cluster/join" {
				continue
			}
			if route.method != "GET" && route.knows["dryRun"] {
				at = query(at, "dryRun=true")
			}
			if route.path == "/v1/events" {
				at = query(at, "follow=false", "after=0")
			}
			if route.knows["tenant"] && !ofTenant && caller != "stranger" {
				at = query(at, "tenant=acme")
			}
			asked := tried
			if asked == nil {
				asked = []string{map[bool]string{true: "{}"}[route.method != "GET" && route.method != "DELETE"]}
			}
			for _, body := range asked {
				body = strings.ReplaceAll(body, "%s", "probe")
				resp, got := x.as(caller, route.method, at, body)
				text := got
				for name, values := range resp.Header {
					text += "\n" + name + ": " + strings.Join(values, " ")
				}
				h.add(route.method+" "+at+" "+body, text)
				if caller == "operator" && (route.path == "/v1/simulate" || route.path == "/v1/rebalance") && resp.StatusCode >= 300 {
					x.t.Errorf("%s %s: %s %s", route.path, body, resp.Status, got)
				}
			}
		}
	}
	if !ofTenant && caller != "stranger" {
		for _, at := range []string{"/metrics", "/v1/plans", "/v1/migrations", "/v1/vms?tenant=*", "/v1/virtual-clusters?tenant=*", "/v1/operations?tenant=*"} {
			_, body := x.as(caller, "GET", at, "")
			h.add("GET "+at, body)
		}
	}
}
