package server_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"testing"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/cluster/audit"
	"evenkeel/cluster/pki"
	"evenkeel/test/site"
)

// recorded are the records of a request, by its id, in the logs of all servers.
func (s *several) recorded(id string) (out []audit.Record) {
	s.t.Helper()
	a, err := s.Member(s.Up()[0]).Trail().Query(s.t.Context(), audit.Filter{Limit: audit.MaxLimit})
	must(s.t, err)
	if len(a.Missing) > 0 {
		s.t.Errorf("missing: %v", a.Missing)
	}
	for _, r := range a.Items {
		if r.Actor.Request == id {
			out = append(out, r)
		}
	}
	return out
}

// TestEveryRouteIsAudited: each operation that changes something leaves one record, whatever it is answered, and so do the reads
// that matter. Other reads leave none.
func TestEveryRouteIsAudited(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := startSeveral(t, 1, 1, site.Options{})
		_, body := s.ask("h1", "GET", "/openapi.json", "")
		var doc struct {
			Paths map[string]map[string]struct {
				OperationID string `json:"operationId"`
			}
		}
		must(t, json.Unmarshal([]byte(body), &doc))
		reads := []string{"saveSnapshot", "openConsole", "getVMSamples", "getVMForecast", "listAudit"}
		changes, matter, others := 0, 0, 0
		for path, item := range doc.Paths {
			for method, op := range item {
				method = strings.ToUpper(method)
				at := strings.NewReplacer("{name}", "nothing", "{id}", "nothing").Replace(path)
				if op.OperationID == "streamEvents" || path == "/v1/events" {
					at += "?follow=false"
				}
				if strings.ContainsAny(at, "{}") {
					t.Fatalf("path %s", path)
				}
				id := "r-" + op.OperationID
				resp, _ := s.ask("h1", method, at, "", "X-Request-Id", id)
				got := s.recorded(id)
				want := 0
				switch {
				case method != "GET":
					changes++
					want = 1
				case slices.Contains(reads, op.OperationID):
					matter++
					want = 1
				default:
					others++
				}
				if len(got) != want {
					t.Errorf("%s %s (%s): %d records, want %d", method, path, op.OperationID, len(got), want)
					continue
				}
				if want == 0 {
					continue
				}
				r := got[0]
				if r.Verb != op.OperationID || r.Status != resp.StatusCode || r.Outcome != audit.OutcomeOf(resp.StatusCode) || r.Actor.ID != "token:"+site.TokenID || r.Server != "h1" || r.Object.Kind == "" {
					t.Errorf("%s %s answered %s: %+v", method, path, resp.Status, r)
				}
				if strings.Contains(path, "{") && r.Object.Name != "nothing" {
					t.Errorf("%s %s: object %s", method, path, r.Object)
				}
			}
		}
		if changes < 20 || matter != len(reads) || others < 20 {
			t.Errorf("%d changes, %d reads that matter, %d others", changes, matter, others)
		}
		t.Logf("%d changes and %d reads that matter left a record each, %d other reads none", changes, matter, others)
		if resp, _ := s.ask("h1", "POST", "/v1/nothing", "", "X-Request-Id", "r-nothing"); resp.StatusCode != 404 || len(s.recorded("r-nothing")) != 1 || s.recorded("r-nothing")[0].Verb != "unknown-route" {
			t.Errorf("%s: %+v", resp.Status, s.recorded("r-nothing"))
		}
		if _, metrics := s.ask("h1", "GET", "/metrics", ""); !strings.Contains(metrics, "\nevenkeel_audit_records_total ") || !strings.Contains(metrics, "\nevenkeel_audit_write_errors_total 0") ||
			!strings.Contains(metrics, `evenkeel_refused_total{kind="unauthenticated"} 0`) {
			t.Errorf("metrics: %s", metrics)
		}
	})
}

// A request that a follower hands on leaves one record, with the client's address and token; the list merges all servers' logs
// and names those that do not answer.
func TestAuditOfSeveralServers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := startSeveral(t, 3, 4, site.Options{})
		leader, follower := s.leads()
		var local string
		ask := func(name, method, path, id, token string) *http.Response {
			trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { local = c.Conn.LocalAddr().String() }}
			r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), method, "https://"+s.Address(name)+path, nil)
			must(t, err)
			r.Header.Set("X-Request-Id", id)
			r.Header.Set("Authorization", "Bearer "+token)
			resp, err := s.http.Do(r)
			must(t, err)
			_, _ = io.Copy(io.Discard, resp.Body)
			must(t, resp.Body.Close())
			return resp
		}
		for i, name := range []string{follower, leader} {
			id := fmt.Sprint("cordon-", i)
			if resp := ask(name, "PUT", "/v1/hosts/h3/cordon", id, site.Token); resp.StatusCode != 200 {
				t.Fatal(resp.Status)
			}
			got := s.recorded(id)
			want := audit.Actor{ID: "token:" + site.TokenID, Name: got[0].Actor.Name, Client: local, Request: id}
			if len(got) != 1 || got[0].Server != leader || got[0].Actor != want || got[0].Verb != "cordonHost" || got[0].Object.String() != "host/h3" {
				t.Errorf("through %s: %+v, want one by %+v at %s", name, got, want, leader)
			}
		}
		// A stranger at each server: counted once, where it was or at the leader, with its own address.
		for _, name := range s.Up() {
			if resp := ask(name, "DELETE", "/v1/virtual-clusters/web", "x", "ekt_guess"); resp.StatusCode != 401 {
				t.Fatal(resp.Status)
			}
		}
		a, err := s.Member("h1").Trail().Query(t.Context(), audit.Filter{Outcome: audit.Refused})
		must(t, err)
		refused := uint64(0)
		for _, r := range a.Items {
			refused += r.Count
			if r.Actor.Client != "127.0.0.1" || r.Verb != audit.Unauthenticated || r.Actor.ID != "" {
				t.Errorf("%+v", r)
			}
		}
		if refused == 0 {
			t.Error("no refusal is recorded")
		}
		// Any server merges all.
		for _, name := range s.Up() {
			list, err := s.client(name).Audit(t.Context(), client.AuditQuery{Verb: "cordonHost"})
			must(t, err)
			if len(list.Items) != 2 || len(list.Missing) != 0 || list.Items[0].At.After(list.Items[1].At) {
				t.Errorf("%s: %+v", name, list)
			}
		}
		merged, err := s.client(follower).Audit(t.Context(), client.AuditQuery{Limit: 1000})
		must(t, err)
		servers := map[string]bool{}
		for i, r := range merged.Items {
			servers[r.Server] = true
			if i > 0 && r.At.Before(merged.Items[i-1].At) {
				t.Errorf("%v after %v", r, merged.Items[i-1])
			}
		}
		if len(servers) < 2 {
			t.Errorf("records of %v", servers)
		}
		for name, want := range map[string]int{"": 401} {
			if resp := ask(follower, "GET", "/v1/audit", "x", name); resp.StatusCode != want {
				t.Errorf("without a token: %s", resp.Status)
			}
		}
		// A member's certificate, and a member that joins.
		key, err := pki.GenerateKey(rand.Reader)
		must(t, err)
		request, err := pki.NewRequest(key)
		must(t, err)
		_, err = s.Member(follower).Client().RenewCertificate(t.Context(), s.Address(leader), request)
		must(t, err)
		must(t, s.Join(t.Context(), "h4", false, true))
		for verb, object := range map[string]string{"renewCertificate": "member/" + follower, "joinMember": "member/h4"} {
			list, err := s.client(leader).Audit(t.Context(), client.AuditQuery{Verb: verb})
			must(t, err)
			if len(list.Items) == 0 {
				t.Errorf("no record of %s", verb)
				continue
			}
			r := list.Items[len(list.Items)-1]
			if r.Object.Kind+"/"+r.Object.Name != object || r.Outcome != audit.Ok || (verb == "joinMember") != (r.Actor.ID == "") || verb == "renewCertificate" && !strings.Contains(r.Detail, "serial ") {
				t.Errorf("%+v", r)
			}
		}
		if _, err := s.Member("h4").Client().Audit(t.Context(), s.Address(leader), audit.Filter{}); err == nil || !strings.Contains(err.Error(), "may not read the audit log") {
			t.Errorf("an agent reads the audit log: %v", err)
		}
		must(t, s.Stop(follower))
		s.http.CloseIdleConnections()
		list, err := s.client(leader).Audit(t.Context(), client.AuditQuery{Verb: "cordonHost"})
		must(t, err)
		if len(list.Items) != 2 || len(list.Missing) != 1 || !strings.HasPrefix(list.Missing[0], follower+": ") {
			t.Errorf("without %s: %+v", follower, list)
		}
	})
}

// A download of the snapshot and a console leave records, the console two.
func TestAuditOfReads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := startSeveral(t, 1, 1, site.Options{})
		if resp, _ := s.ask("h1", "GET", "/v1/cluster/snapshot", "", "X-Request-Id", "snap"); resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
		if got := s.recorded("snap"); len(got) != 1 || got[0].Verb != "saveSnapshot" || got[0].Object.Kind != "cluster" || got[0].Outcome != audit.Ok {
			t.Errorf("%+v", got)
		}
		api := s.client("h1")
		r, err := api.Create(t.Context(), v1.VirtualClusterSpec{Name: "web", Groups: []v1.GroupSpec{{Name: "w", Count: 1, CPU: 0.5, Memory: 64 << 20}}})
		must(t, err)
		if op, err := api.Wait(t.Context(), *r.Operation, nil); err != nil || op.State != v1.OperationDone {
			t.Fatalf("%+v, %v", op, err)
		}
		if e := s.event("vc-created", "; asked for by "); !strings.Contains(e.Text, "token:"+site.TokenID) {
			t.Errorf("%+v", e)
		}
		tty, err := api.Console(t.Context(), "web-w-0")
		must(t, err)
		console := func() (out []audit.Record) {
			a, err := s.Member("h1").Trail().Query(t.Context(), audit.Filter{Object: "vm/web-w-0"})
			must(t, err)
			return a.Items
		}
		if got := console(); len(got) != 1 || got[0].Verb != "openConsole" || got[0].Status != 101 || got[0].Actor.ID != "token:"+site.TokenID {
			t.Errorf("%+v", got)
		}
		must(t, tty.Close())
		must(t, s.Await(t.Context(), "the console's end is recorded", func() bool { return len(console()) == 2 }))
		if got := console()[1]; got.Verb != "closeConsole" || !strings.HasPrefix(got.Detail, "after ") || got.Actor.ID != "token:"+site.TokenID {
			t.Errorf("%+v", got)
		}
		// The same samples again and again are one record.
		for range 5 {
			if _, err := api.Samples(t.Context(), "web-w-0", "", "", ""); err != nil {
				t.Fatal(err)
			}
		}
		n := 0
		for _, r := range console() {
			if r.Verb == "getVMSamples" {
				n++
			}
		}
		if n < 1 || n > 2 { // two if a minute ended meanwhile
			t.Errorf("%d records of samples", n)
		}
	})
}

// What a token's role does not allow is recorded once a minute for the same object, with the token; it changes nothing.
func TestAuditOfForbidden(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := startSeveral(t, 1, 1, site.Options{})
		k, err := s.client("h1").MakeToken(t.Context(), v1.TokenRequest{Name: "scrape", Role: "metrics"})
		must(t, err)
		const each = 50
		for range each {
			for _, name := range []string{"a", "b"} {
				if resp, _ := s.ask("h1", "DELETE", "/v1/virtual-clusters/"+name, "", "Authorization", "Bearer "+k.Token); resp.StatusCode != 403 {
					t.Fatal(resp.Status)
				}
			}
		}
		a, err := s.Member("h1").Trail().Query(t.Context(), audit.Filter{Actor: "scrape"})
		must(t, err)
		if len(a.Items) < 2 || len(a.Items) > 5 { // four and a summary if a minute ended meanwhile
			t.Errorf("%d records: %+v", len(a.Items), a.Items)
		}
		for _, r := range a.Items {
			if r.Verb == "failed-requests" {
				continue
			}
			if r.Actor.ID != "token:"+k.ID || r.Outcome != audit.Refused || r.Status != 403 || r.Verb != "deleteVirtualCluster" || r.Object.Kind != "virtual-cluster" {
				t.Errorf("%+v", r)
			}
		}
		if resp, _ := s.ask("h1", "GET", "/v1/audit", "", "Authorization", "Bearer "+k.Token); resp.StatusCode != 403 {
			t.Errorf("a token for metrics reads the audit log: %s", resp.Status)
		}
	})
}
