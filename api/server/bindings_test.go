package server_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"evenkeel/api/oidc"
	"evenkeel/api/oidc/issuer"
	"evenkeel/api/server"
	"evenkeel/api/v1"
	"evenkeel/test/openid"
	"evenkeel/test/site"
)

// withoutRoles starts servers that take tokens of the provider and give no role by themselves.
func withoutRoles(t *testing.T, p *openid.Provider, servers, hosts int) *several {
	t.Helper()
	return startSeveral(t, servers, hosts, site.Options{OpenID: func() server.OpenID {
		v, err := oidc.Start(oidc.Config{Issuer: p.Issuer, ClientID: openid.ClientID}, oidc.Options{Client: issuer.Bound(p), Log: slog.New(slog.DiscardHandler)})
		must(t, err)
		t.Cleanup(v.Close)
		return v
	}})
}

// grant a role by a request of the holder of a token, and return the binding once all servers know it.
func (s *several) grant(token, at, kind, name, role, tenant string) v1.RoleBinding {
	s.t.Helper()
	resp, body := s.as(token, at, "POST", "/v1/role-bindings", fmt.Sprintf(`{"subject":{"kind":%q,"name":%q},"role":%q,"tenant":%q}`, kind, name, role, tenant))
	if resp.StatusCode != 201 {
		s.t.Fatalf("%s %s", resp.Status, body)
	}
	var b v1.RoleBinding
	must(s.t, json.Unmarshal([]byte(body), &b))
	s.everywhere(resp)
	return b
}

// everywhere waits until all servers have come to the index of an answer.
func (s *several) everywhere(resp *http.Response) {
	s.t.Helper()
	for _, name := range s.Up() {
		if r, body := s.ask(name, "GET", "/v1/tenants?consistency=stale&index="+resp.Header.Get("Evenkeel-Index"), ""); r.StatusCode != 200 {
			s.t.Fatalf("%s: %s %s", name, r.Status, body)
		}
	}
}

// cut waits for what must end within 5 s of begun, each saying why.
func (s *several) cut(begun time.Time, why string, all []openRequest) {
	s.t.Helper()
	for _, h := range all {
		select {
		case e := <-h.ended:
			after := e.at.Sub(begun)
			s.t.Logf("%s ended after %s", h.what, after.Round(time.Millisecond))
			if after > 5*time.Second || !strings.Contains(e.said, why) {
				s.t.Errorf("%s: after %s, %q, %v", h.what, after, e.said, e.err)
			}
		case <-time.After(5 * time.Minute): // of simulated time
			s.t.Errorf("%s runs on", h.what)
		}
	}
}

// runOn says of each that it has not ended.
func (s *several) runOn(all []openRequest) {
	s.t.Helper()
	for _, h := range all {
		select {
		case e := <-h.ended:
			s.t.Errorf("%s ended: %+v", h.what, e)
		default:
		}
	}
}

// People of a real issuer get their roles from bindings alone. When a binding goes, and when a user is revoked, event streams and
// consoles end within 5 s, on the leader, on a follower and through one; what others opened goes on.
func TestRightsOfPeopleEndWhatRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := openid.InMemory(t, time.Hour, openid.Person{Subject: "7f3a", Name: "jane", Groups: []string{"staff", "film people"}},
			openid.Person{Subject: "8b1c", Name: "max", Groups: []string{"staff"}})
		s := withoutRoles(t, p, 3, 3)
		leader, follower := s.leads()
		if resp, body := s.ask(leader, "POST", "/v1/tenants", `{"name":"film"}`); resp.StatusCode != 201 {
			t.Fatalf("%s %s", resp.Status, body)
		}
		jane, max := logIn(t, p, "7f3a"), logIn(t, p, "8b1c")
		resp, body := s.as(jane, follower, "GET", "/v1/vms", "")
		if problem := problemIn(t, resp, body); resp.StatusCode != 403 || !strings.Contains(problem.Detail, "role binding") || !strings.Contains(problem.Detail, "7f3a") {
			t.Errorf("without a role: %+v", problem)
		}
		people := s.grant(site.Token, follower, "group", "film people", "editor", "film")
		s.grant(site.Token, leader, "user", "8b1c", "auditor", "")
		operator := s.grant(site.Token, leader, "group", "staff", "operator", "") // jane's role in the cluster comes first from now on
		if _, body := s.as(jane, follower, "GET", "/v1/auth/self?tenant=film", ""); !strings.Contains(body, `"role":"operator"`) || !strings.Contains(body, `"binding":"`+people.ID+`"`) {
			t.Errorf("jane: %s", body)
		}
		resp, body = s.ask(leader, "DELETE", "/v1/role-bindings/"+operator.ID, "")
		if resp.StatusCode != 200 {
			t.Fatalf("%s %s", resp.Status, body)
		}
		s.everywhere(resp)
		if _, body := s.as(jane, follower, "GET", "/v1/auth/self", ""); !strings.Contains(body, `"role":"editor","tenant":"film"`) {
			t.Errorf("jane: %s", body)
		}
		resp, body = s.as(jane, follower, "POST", "/v1/virtual-clusters", `{"name":"a","groups":[{"name":"w","count":4,"cpu":0.5,"memory":67108864}]}`)
		var r v1.Result
		if resp.StatusCode != 202 || json.Unmarshal([]byte(body), &r) != nil {
			t.Fatalf("%s %s", resp.Status, body)
		}
		s.as(jane, follower, "GET", "/v1/operations/"+r.Operation.ID+"?wait=60s", "")
		var hers, his []openRequest
		with, auditor := tokenStore{s, jane}, tokenStore{s, max}
		for i, name := range []string{leader, follower} {
			hers = append(hers, with.stream(name, ""), with.stream(name, "?consistency=stale"), with.console(name, fmt.Sprintf("a-w-%d", i)))
			his = append(his, auditor.stream(name, ""), auditor.stream(name, "?consistency=stale"))
		}
		time.Sleep(time.Minute) // sleep: simulated time, to see that nothing ends by itself
		s.runOn(append(hers, his...))

		begun := time.Now()
		if resp, body := s.ask(leader, "DELETE", "/v1/role-bindings/"+people.ID+"?dryRun=true", ""); resp.StatusCode != 200 {
			t.Fatalf("%s %s", resp.Status, body)
		}
		if resp, body := s.ask(follower, "DELETE", "/v1/role-bindings/"+people.ID, ""); resp.StatusCode != 200 || !strings.Contains(body, `"name":"film people"`) {
			t.Fatalf("%s %s", resp.Status, body)
		}
		s.cut(begun, "taken away", hers)
		s.runOn(his)
		for _, name := range []string{leader, follower} {
			if resp, body := s.as(jane, name, "GET", "/v1/vms?consistency=stale", ""); resp.StatusCode != 403 {
				t.Errorf("%s: the role is gone: %s %s", name, resp.Status, body)
			}
		}

		begun = time.Now()
		resp, body = s.ask(follower, "POST", "/v1/auth/revocations", `{"user":"oidc:8b1c"}`)
		var revoked v1.UserRevocation
		if resp.StatusCode != 200 || json.Unmarshal([]byte(body), &revoked) != nil || revoked.User != "8b1c" || !revoked.Until.After(revoked.Before.Add(24*time.Hour)) {
			t.Fatalf("%s %s", resp.Status, body)
		}
		s.cut(begun, "are revoked", his)
		for _, name := range []string{leader, follower} {
			if resp, body := s.as(max, name, "GET", "/v1/vms?consistency=stale", ""); resp.StatusCode != 401 || !strings.Contains(body, "log in again") {
				t.Errorf("%s: the user is revoked: %s %s", name, resp.Status, body)
			}
		}
		time.Sleep(time.Until(revoked.Before)) // sleep: simulated time, until log-ins are taken again
		if resp, body := s.as(logIn(t, p, "8b1c"), follower, "GET", "/v1/vms", ""); resp.StatusCode != 200 {
			t.Errorf("a later log-in: %s %s", resp.Status, body)
		}
		if resp, body := s.as(max, follower, "GET", "/v1/vms", ""); resp.StatusCode != 401 {
			t.Errorf("the token of before: %s %s", resp.Status, body)
		}
		_, records := s.ask(leader, "GET", "/v1/audit", "")
		for _, want := range []string{`"verb":"grantRole"`, `"verb":"revokeRole"`, `"verb":"revokeUser"`, `"name":"` + people.ID + `"`, `"name":"` + revoked.ID + `"`} {
			if !strings.Contains(records, want) {
				t.Errorf("the audit log lacks %s", want)
			}
		}
	})
}

// An owner binds roles in its tenant alone: not in another one, none of the cluster, and not to the tokens of others, which are
// answered as tokens that do not exist. Other roles than admin and owner bind none.
func TestOwnersBindInTheirTenant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 1, 2)
		const never = "0123456789abcdef"
		token := func(id, role, tenant string) string {
			return fmt.Sprintf(`{"subject":{"kind":"token","name":%q},"role":%q,"tenant":%q}`, id, role, tenant)
		}
		for _, q := range []struct {
			caller, body string
			status       int
		}{
			{"film owner", token(x.key["film"], "editor", ""), 200}, // there is one with the role viewer
			{"film owner", token(x.key["film"], "owner", "film"), 200},
			{"film owner", token(x.key["film"], "editor", "acme"), 404},
			{"film owner", token(x.key["film"], "editor", "nosuch"), 404},
			{"film owner", token(x.key["film"], "operator", ""), 422},
			{"film owner", token(x.key["acme"], "viewer", "film"), 404},
			{"film owner", token(never, "viewer", "film"), 404},
			{"film owner", token(site.TokenID, "viewer", "film"), 404},
			{"film owner", `{"subject":{"kind":"user","name":"7f3a"},"role":"viewer"}`, 403},
			{"film owner", `{"subject":{"kind":"group","name":"film"},"role":"viewer","tenant":"film"}`, 403},
			{"admin", `{"subject":{"kind":"user","name":"7f3a"},"role":"viewer","tenant":"film"}`, 409}, // no issuer
			{"film editor", token(x.key["film"], "viewer", ""), 403},
			{"operator", token(x.key["film"], "viewer", "film"), 403},
			{"admin", token(never, "viewer", "film"), 404},
			{"admin", token(x.key["acme"], "viewer", "film"), 201},
			{"admin", token(x.key["acme"], "viewer", ""), 422},
			{"admin", token(x.key["acme"], "admin", "film"), 422},
			{"admin", `{"subject":{"kind":"host","name":"h1"},"role":"admin"}`, 422},
			{"admin", `{"subject":{"kind":"token","name":" "},"role":"admin"}`, 422},
		} {
			if resp, body := x.as(q.caller, "POST", "/v1/role-bindings", q.body); resp.StatusCode != q.status {
				t.Errorf("%s binds %s: %s %s, want %d", q.caller, q.body, resp.Status, body, q.status)
			}
		}
		same := func(id string) string {
			resp, body := x.as("film owner", "POST", "/v1/role-bindings", token(id, "viewer", ""), "X-Request-Id", "same")
			return neutral(resp.Status+" "+body, "", id)
		}
		if a, b := same(x.key["acme"]), same(never); a != b {
			t.Errorf("another's token is not as none:\n%s\n%s", a, b)
		}
		// acme's viewer reads in film, too, where it names that tenant.
		if body := x.want(200, "GET", "/v1/vms?tenant=film", "", "acme viewer"); !strings.Contains(body, mark("film")) || strings.Contains(body, mark("acme")) {
			t.Errorf("by its binding: %s", body)
		}
		if body := x.want(200, "GET", "/v1/vms", "", "acme viewer"); !strings.Contains(body, mark("acme")) || strings.Contains(body, mark("film")) {
			t.Errorf("in its own: %s", body)
		}
		x.want(403, "DELETE", "/v1/virtual-clusters/"+mark("film")+"?tenant=film&dryRun=true", "", "acme viewer")
		x.want(404, "GET", "/v1/vms?tenant=default", "", "acme viewer")
		var list v1.List[v1.RoleBinding]
		must(t, json.Unmarshal([]byte(x.want(200, "GET", "/v1/role-bindings", "", "film owner")), &list))
		makers := map[string]string{}
		for _, b := range list.Items {
			makers[b.Subject.Name] = b.MadeBy
		}
		if own := makers[x.key["film"]]; len(list.Items) != 2 || list.Items[0].Tenant != "film" || !strings.HasPrefix(own, "film-owner (token:") || makers[x.key["acme"]] != "" {
			t.Errorf("what film's owner sees: %+v", list)
		}
		must(t, json.Unmarshal([]byte(x.want(200, "GET", "/v1/role-bindings?tenant=acme", "", "auditor")), &list))
		if len(list.Items) != 1 || list.Items[0].MadeBy == "" {
			t.Errorf("what an auditor sees of acme: %+v", list)
		}
		x.want(404, "DELETE", "/v1/role-bindings/"+list.Items[0].ID, "", "film owner")
		x.want(403, "DELETE", "/v1/role-bindings/"+list.Items[0].ID, "", "acme editor")
		x.want(200, "DELETE", "/v1/role-bindings/"+list.Items[0].ID, "", "acme owner")
		x.want(404, "DELETE", "/v1/role-bindings/"+list.Items[0].ID, "", "admin")
	})
}

// A person acts in the first tenant in which it has a role. So the owner of a tenant binds no people, whose requests would come to its
// own; admins bind them.
func TestOwnersBindNoPeople(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := openid.InMemory(t, time.Hour, openid.Person{Subject: "7f3a", Name: "jane", Groups: []string{"film people"}})
		s := withoutRoles(t, p, 1, 2)
		for _, tenant := range []string{"film", "chem"} {
			if resp, body := s.ask("h1", "POST", "/v1/tenants", `{"name":"`+tenant+`"}`); resp.StatusCode != 201 {
				t.Fatal(body)
			}
		}
		var owner v1.Token
		_, body := s.ask("h1", "POST", "/v1/tokens", `{"name":"chem-owner","role":"owner","tenant":"chem"}`)
		must(t, json.Unmarshal([]byte(body), &owner))
		jane := logIn(t, p, "7f3a")
		s.grant(site.Token, "h1", "user", "7f3a", "owner", "film")
		for caller, of := range map[string]string{owner.Token: "chem", jane: "film"} {
			for _, subject := range []string{`"kind":"user","name":"7f3a"`, `"kind":"user","name":"8b1c"`, `"kind":"group","name":"film people"`} {
				resp, body := s.as(caller, "h1", "POST", "/v1/role-bindings", `{"subject":{`+subject+`},"role":"viewer"}`)
				if got := problemIn(t, resp, body); resp.StatusCode != 403 || !strings.Contains(got.Detail, "ask an admin") {
					t.Errorf("the owner of %s binds %s: %s %s", of, subject, resp.Status, body)
				}
			}
		}
		if _, body := s.as(jane, "h1", "GET", "/v1/auth/self", ""); !strings.Contains(body, `"role":"owner","tenant":"film"`) {
			t.Errorf("jane acts elsewhere: %s", body)
		}
		if resp, body := s.as(jane, "h1", "POST", "/v1/virtual-clusters", `{"name":"secret","groups":[{"name":"w","cpu":0.1,"memory":67108864}]}`); resp.StatusCode != 202 {
			t.Fatalf("%s %s", resp.Status, body)
		}
		if resp, body := s.as(owner.Token, "h1", "GET", "/v1/virtual-clusters/secret/spec", ""); resp.StatusCode != 404 {
			t.Errorf("the owner of chem reads what jane of film made: %s %s", resp.Status, body)
		}
	})
}

// Who has roles in several tenants names the one to act in where tokens and bindings change, and where migrations are read. Another
// one is answered as none.
func TestChangesOfRightsInANamedTenant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 1, 2)
		var both v1.Token
		must(t, json.Unmarshal([]byte(x.want(201, "POST", "/v1/tokens", `{"name":"both","role":"owner","tenant":"acme"}`, "admin")), &both))
		x.token["both"] = both.Token
		x.want(201, "POST", "/v1/role-bindings", `{"subject":{"kind":"token","name":"`+both.ID+`"},"role":"owner","tenant":"film"}`, "admin")
		for _, tenant := range []string{"film", "acme"} {
			in := "?tenant=" + tenant
			var made v1.Token
			must(t, json.Unmarshal([]byte(x.want(201, "POST", "/v1/tokens"+in, `{"name":"made","role":"viewer"}`, "both")), &made))
			var bound v1.RoleBinding
			must(t, json.Unmarshal([]byte(x.want(201, "POST", "/v1/role-bindings"+in, `{"subject":{"kind":"token","name":"`+made.ID+`"},"role":"editor","tenant":"`+tenant+`"}`, "both")), &bound))
			if made.Tenant != tenant || bound.Tenant != tenant {
				t.Errorf("in %s: %+v, %+v", tenant, made, bound)
			}
			x.want(200, "GET", "/v1/migrations"+in, "", "both")
			x.want(404, "GET", "/v1/migrations/none"+in, "", "both")
			other := map[string]string{"film": "?tenant=acme", "acme": "?tenant=film"}[tenant]
			x.want(404, "POST", "/v1/tokens"+in, `{"name":"x","role":"viewer","tenant":"`+other[len("?tenant="):]+`"}`, "both")
			x.want(404, "DELETE", "/v1/role-bindings/"+bound.ID+other, "", "both")
			x.want(404, "DELETE", "/v1/tokens/"+made.ID+other, "", "both")
			x.want(200, "DELETE", "/v1/role-bindings/"+bound.ID+in, "", "both")
			x.want(200, "DELETE", "/v1/tokens/"+made.ID+in, "", "both")
		}
		for _, tenant := range []string{"default", "nosuch", "*"} {
			x.want(404, "POST", "/v1/tokens?tenant="+tenant, `{"name":"x","role":"viewer"}`, "both")
		}
		x.want(404, "GET", "/v1/migrations?tenant=default", "", "both")
	})
}

// No token grants a role that outlives it. People, whose log-ins end, may grant roles.
func TestBindingsDoNotOutliveTheirMaker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 1, 2)
		x.makeToken("owner for a minute", `{"name":"short","role":"owner","tenant":"film","seconds":60}`, "")
		x.makeToken("admin for a minute", `{"name":"short","role":"admin","seconds":60}`, "")
		to := `{"subject":{"kind":"token","name":"` + x.key["film"] + `"},"role":"owner","tenant":"film"}`
		for _, caller := range []string{"owner for a minute", "admin for a minute"} {
			for _, at := range []string{"/v1/role-bindings?dryRun=true", "/v1/role-bindings"} {
				if resp, body := x.as(caller, "POST", at, to); resp.StatusCode != 403 || !strings.Contains(problemIn(t, resp, body).Detail, "outlive") {
					t.Errorf("%s: %s %s", caller, resp.Status, body)
				}
			}
		}
		time.Sleep(5 * time.Minute) // sleep: simulated time, until their makers have ended
		x.want(401, "GET", "/v1/virtual-clusters", "", "owner for a minute")
		x.want(403, "POST", "/v1/tokens", `{"name":"more","role":"owner"}`, "film viewer")
		x.want(200, "POST", "/v1/role-bindings", to, "film owner") // which does not end
		x.want(201, "POST", "/v1/tokens", `{"name":"more","role":"owner"}`, "film viewer")
	})
}

// A token is refused while the tenant that it is of is suspended, wherever it acts, and what runs with it ends within 5 s.
func TestSuspendedTenantsTokensActNowhere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 1, 2)
		x.want(201, "POST", "/v1/role-bindings", `{"subject":{"kind":"token","name":"`+x.key["film"]+`"},"role":"editor","tenant":"acme"}`, "admin")
		x.want(200, "GET", "/v1/vms?tenant=acme", "", "film viewer")
		runs := []openRequest{tokenStore{x.several, x.token["film viewer"]}.stream("h1", "?tenant=acme")}
		time.Sleep(time.Minute) // sleep: simulated time, to see that nothing ends by itself
		x.runOn(runs)
		begun := time.Now()
		x.want(200, "PATCH", "/v1/tenants/film", `{"state":"suspended"}`, "admin")
		x.cut(begun, "tenant film is suspended", runs)
		for _, at := range []string{"/v1/vms?tenant=acme", "/v1/vms?tenant=film", "/v1/vms"} {
			if resp, body := x.as("film viewer", "GET", at, ""); resp.StatusCode != 403 || !strings.Contains(body, "tenant film is suspended") {
				t.Errorf("%s: %s %s", at, resp.Status, body)
			}
		}
		x.want(200, "GET", "/v1/vms", "", "acme viewer")
		x.want(200, "PATCH", "/v1/tenants/film", `{"state":"active"}`, "admin")
		x.want(200, "GET", "/v1/vms?tenant=acme", "", "film viewer")
	})
}

// What the table says of a route is what its handler answers, for every route of the OpenAPI document and every role; and `can-i` and
// the list of permissions say the same.
func TestPermissionsAreWhatHandlersAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := startTenants(t, 1, 2)
		var doc struct {
			Paths map[string]map[string]struct {
				Security   []map[string][]string
				Parameters []struct{ Name, In string }
			}
		}
		must(t, json.Unmarshal([]byte(x.want(200, "GET", "/openapi.json", "", "admin")), &doc))
		callers := []string{"admin", "operator", "auditor", "metrics", "film owner", "film editor", "film viewer"}
		asked, listed := 0, map[string]bool{}
		for _, caller := range callers {
			var mine, all v1.Permissions
			must(t, json.Unmarshal([]byte(x.want(200, "GET", "/v1/auth/permissions", "", caller)), &mine))
			must(t, json.Unmarshal([]byte(x.want(200, "GET", "/v1/auth/permissions", "", "admin")), &all))
			may := map[string]bool{}
			for _, p := range mine.Items {
				for _, op := range p.Operations {
					may[op] = true
				}
			}
			for _, p := range all.Items { // an admin may do everything
				var can v1.MayI
				must(t, json.Unmarshal([]byte(x.want(200, "GET", "/v1/auth/can-i?verb="+p.Verb+"&kind="+p.Kind+"s", "", caller)), &can))
				for _, op := range p.Operations {
					listed[op] = true
					if can.Allowed != may[op] || can.Role != mine.Role {
						t.Errorf("%s: can-i %s %s: %+v; among the permissions: %v", caller, p.Verb, p.Kind, can, may[op])
					}
				}
			}
			for path, item := range doc.Paths {
				for method, op := range item {
					method = strings.ToUpper(method)
					if len(op.Security) == 0 || path == "/v1/cluster/snapshot" && method == "GET" && caller == "admin" { // which is a file
						continue
					}
					route := method + " " + path
					at := strings.NewReplacer("{name}", "absent0", "{id}", "absent0").Replace(path)
					for _, p := range op.Parameters {
						if p.In == "query" && (p.Name == "dryRun" || p.Name == "follow") {
							at = query(at, p.Name+"="+map[string]string{"dryRun": "true", "follow": "false"}[p.Name])
						}
					}
					resp, body := x.as(caller, method, at, "nonsense") // refused by every handler that reads it, but not with 403
					asked++
					if got := resp.StatusCode != http.StatusForbidden; got != may[route] || resp.StatusCode == http.StatusUnauthorized {
						t.Errorf("%s as %s: %s %s; the table says %v", route, caller, resp.Status, body, may[route])
					}
					if !listed[route] {
						t.Errorf("%s is not among the permissions of admins", route)
					}
				}
			}
		}
		t.Logf("%d requests", asked)
		for at, status := range map[string]int{"verb=get&kind=vcs": 200, "verb=Delete&kind=VC": 200, "verb=fly&kind=vm": 422, "verb=get&kind=moon": 422, "verb=get": 422, "kind=vm": 422, "verb=get&kind=vm&tenant=nosuch": 404} {
			x.want(status, "GET", "/v1/auth/can-i?"+at, "", "admin")
		}
		x.want(404, "GET", "/v1/auth/can-i?verb=get&kind=vm&tenant=acme", "", "film owner")
	})
}

// Groups that the issuer takes away at its own end: what a person opened on a follower ends within 5 s, and so it does once the issuer takes the
// token no longer. While the issuer is down what it said last holds.
func TestGroupsAtTheIssuer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		jane := openid.Person{Subject: "7f3a", Name: "jane", Groups: []string{"staff", "ops"}}
		p := openid.InMemory(t, time.Hour, jane, openid.Person{Subject: "8b1c", Name: "max", Groups: []string{"ops"}})
		p.API = "https://evenkeel.example"
		s := startSeveral(t, 3, 3, site.Options{OpenID: func() server.OpenID {
			v, err := oidc.Start(oidc.Config{Issuer: p.Issuer, ClientID: openid.ClientID, Audience: p.API, UserInfo: true, Roles: []oidc.Mapping{{Group: "ops", Role: "operator"}, {Group: "staff", Role: "auditor"}}},
				oidc.Options{Client: issuer.Bound(p), Log: slog.New(slog.DiscardHandler)})
			must(t, err)
			t.Cleanup(v.Close)
			return v
		}})
		leader, follower := s.leads()
		hers, his := access(t, p, "7f3a"), access(t, p, "8b1c")
		spec := small("a", 2)
		r, err := s.client(leader).Create(t.Context(), spec)
		must(t, err)
		_, err = s.client(leader).Wait(t.Context(), *r.Operation, nil)
		must(t, err)
		streams := func(token string) (all []openRequest) {
			for _, name := range []string{leader, follower} {
				all = append(all, tokenStore{s, token}.stream(name, ""), tokenStore{s, token}.stream(name, "?consistency=stale"))
			}
			return all
		}
		all, others := append(streams(hers), tokenStore{s, hers}.console(follower, "a-"+spec.Groups[0].Name+"-0")), streams(his)
		time.Sleep(time.Minute) // sleep: simulated time, to see that nothing ends by itself
		s.runOn(append(all, others...))

		jane.Groups = []string{"staff"}
		p.Change(jane)
		s.cut(time.Now(), "was taken away", all)
		s.runOn(others)
		for _, name := range []string{leader, follower} {
			if _, body := s.as(hers, name, "GET", "/v1/auth/self", ""); !strings.Contains(body, `"role":"auditor"`) {
				t.Errorf("%s: %s", name, body)
			}
			if resp, body := s.as(hers, name, "POST", "/v1/rebalance?dryRun=true", "{}"); resp.StatusCode != 403 {
				t.Errorf("%s: %s %s", name, resp.Status, body)
			}
		}

		down := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }
		p.Fail("/userinfo", down)
		time.Sleep(time.Minute) // sleep: simulated time, for what is known to serve on
		s.runOn(others)
		p.Fail("/userinfo", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
		s.cut(time.Now(), "does not take it any more", others)
	})
}

// access is the access token of a log-in.
func access(t *testing.T, p *openid.Provider, subject string) string {
	t.Helper()
	return login(t, p, subject).Access
}
