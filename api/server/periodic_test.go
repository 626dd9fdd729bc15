package server_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/api/v1"
	"evenkeel/test/patience"
)

// The owner or an editor of a tenant signs its job off; nothing is in force before. A viewer only looks, no tenant sees hosts, and another
// tenant's job is not there.
func TestPeriodicWorkOfTenants(t *testing.T) {
	x := startTenants(t, 1, 2)
	const spec = `{"name":"render-1","periodic":{"name":"nightly","deadline":"2h"},"duration":"1h","groups":[{"name":"w","cpu":0.5,"memory":"1GiB"}]}`
	created := x.want(202, "POST", "/v1/virtual-clusters?tenant=acme", spec, "acme editor")
	var r v1.Result
	must(t, json.Unmarshal([]byte(created), &r))
	x.want(200, "GET", "/v1/operations/"+r.Operation.ID+"?wait=60s", "", "admin")
	var file v1.VirtualClusterSpec
	got := x.want(200, "GET", "/v1/virtual-clusters/render-1/spec", "", "acme owner")
	var wrapped struct{ Spec v1.VirtualClusterSpec }
	must(t, json.Unmarshal([]byte(got), &wrapped))
	if file = wrapped.Spec; file.Periodic == nil || file.Periodic.Name != "nightly" || file.Periodic.Deadline != "2h" || file.Duration != "1h" {
		t.Errorf("its spec is %s", got)
	}
	// A job is there from its first run on, and is decided about once that has ended.
	if list := x.want(200, "GET", "/v1/periodic", "", "acme viewer"); !strings.Contains(list, `"name":"nightly","state":"found","declared":true,"runs":0`) {
		t.Errorf("jobs while the first run lives: %s", list)
	}
	if text := x.want(200, "GET", "/v1/periodic/nightly", "", "acme viewer"); !strings.Contains(text, "its first run has not ended") {
		t.Errorf("the job while its first run lives: %s", text)
	}
	if list := x.want(200, "GET", "/v1/periodic", "", "film owner"); strings.Contains(list, "nightly") {
		t.Errorf("another tenant sees %s", list)
	}
	for _, verb := range []string{"accept", "override", "reject"} {
		if text := x.want(422, "POST", "/v1/periodic/nightly/"+verb, `{}`, "acme owner"); !strings.Contains(text, "its first run has not ended") {
			t.Errorf("%s while the first run lives: %s", verb, text)
		}
	}
	deleted := x.want(202, "DELETE", "/v1/virtual-clusters/render-1", "", "acme editor")
	must(t, json.Unmarshal([]byte(deleted), &r))
	x.want(200, "GET", "/v1/operations/"+r.Operation.ID+"?wait=60s", "", "admin")

	job := func(caller, query string) (out v1.PeriodicJob) {
		t.Helper()
		must(t, json.Unmarshal([]byte(x.want(200, "GET", "/v1/periodic/nightly"+query, "", caller)), &out))
		return out
	}
	if j := job("acme viewer", ""); j.State != "found" || j.Runs != 1 || len(j.History) != 1 || j.History[0].Outcome != "deleted" || j.Proposal != nil || !strings.Contains(j.Reason, "no period was found") {
		t.Errorf("%+v", j)
	}
	for _, caller := range principals {
		x.want(404, "GET", "/v1/periodic/nightly", "", caller)
		if list := x.want(200, "GET", "/v1/periodic", "", caller); strings.Contains(list, "nightly") {
			t.Errorf("%s sees the job of acme: %s", caller, list)
		}
	}
	const contract = `{"rule":"FREQ=HOURLY","length":"10m","deadline":"30m","zone":"Europe/Berlin"}`
	x.want(403, "POST", "/v1/periodic/nightly/accept", contract, "acme viewer")
	x.want(404, "POST", "/v1/periodic/nightly/accept", contract, "film owner")
	x.want(404, "POST", "/v1/periodic/none/accept", contract, "acme owner")
	for _, bad := range []string{`{"zone":"Mars/Olympus"}`, `{"skip":["tomorrow"]}`, `{"length":"soon"}`, `{"miss":2}`, `{"start":"now"}`, `{"unknown":1}`, `{}`, `{"rule":"FREQ=SECONDLY"}`, `{"rule":"FREQ=HOURLY","length":"10m","deadline":"5m"}`} {
		x.want(422, "POST", "/v1/periodic/nightly/accept", bad, "acme owner")
	}
	for _, bad := range []string{
		`{"rule":"FREQ=MINUTELY","length":"24h"}`,                                                     // slots that overlap reserve many times the quota
		`{"rule":"FREQ=MINUTELY","length":"1m"}`,                                                      // one that arrives 30 s late does, too
		`{"rule":"FREQ=HOURLY","length":"59m"}`,                                                       // one that arrives late runs into the next
		`{"rule":"FREQ=DAILY;UNTIL=20200101T000000Z","length":"10m"}`,                                 // it never comes again
		`{"rule":"FREQ=MINUTELY;INTERVAL=30;COUNT=5000000","start":"20000101T000000","length":"10m"}`, // it is searched for too long
		`{"rule":"FREQ=MONTHLY","length":"10m","deadline":"800h"}`,                                    // what only the log refuses
	} {
		for _, dryRun := range []string{"", "?dryRun=true"} {
			x.want(422, "POST", "/v1/periodic/nightly/accept"+dryRun, bad, "acme owner")
		}
	}
	if text := x.want(422, "POST", "/v1/periodic/nightly/override", `{"skip":["2026-12-24"]}`, "acme owner"); !strings.Contains(text, "accept it first") {
		t.Errorf("override of a job that is not signed off: %s", text)
	}
	x.want(200, "POST", "/v1/periodic/nightly/accept?dryRun=true", contract, "acme owner")
	if j := job("acme viewer", ""); j.State != "found" || len(j.Occurrences) != 0 {
		t.Errorf("after a dry run: %+v", j)
	}
	x.want(403, "PATCH", "/v1/quotas/acme", `{"limits":{"vms":"2"}}`, "acme owner")
	for range 2 { // the second time it is answered again
		if resp, body := x.as("acme owner", "POST", "/v1/periodic/nightly/accept", contract, "Idempotency-Key", "once"); resp.StatusCode != 200 {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
	}
	if resp, _ := x.as("acme owner", "POST", "/v1/periodic/nightly/accept", `{"rule":"FREQ=DAILY","length":"10m"}`, "Idempotency-Key", "once"); resp.StatusCode != 422 {
		t.Errorf("another request under the key: %d", resp.StatusCode)
	}
	j := job("acme viewer", "")
	if j.State != "accepted" || j.By != "acme-owner" || j.Contract == nil || j.Contract.Zone != "Europe/Berlin" || j.Contract.Deadline != "30m" || j.Contract.VMs != 1 {
		t.Errorf("%+v", j)
	}
	if len(j.Occurrences) == 0 { // the leader plans beside requests
		patience.Eventually(t, patience.Stall, "the runs of a day are in the agenda", nil, func() bool { return len(job("acme viewer", "").Occurrences) == 24 })
	}
	for _, line := range []string{`occurrences{state="confirmed"} 24`, `occurrences{state="degraded"} 0`, `occurrences{state="running"} 0`, `deadlines{result="met"} 0`, `deadlines{result="missed"} 0`,
		`runs{which="all"} 0`, `granted_cores 0`, `grants_total 0`} {
		if got := x.want(200, "GET", "/metrics", "", "admin"); !strings.Contains(got, "\nevenkeel_periodic_"+line+"\n") {
			t.Errorf("evenkeel_periodic_%s is not in the metrics: %s", line, regexp.MustCompile("(?m)^evenkeel_periodic_.*$").FindAllString(got, -1))
		}
	}
	x.want(422, "POST", "/v1/periodic/nightly/override", `{"start":"20260101T000000"}`, "acme editor")
	x.want(422, "POST", "/v1/periodic/nightly/override?dryRun=true", `{"rule":"FREQ=MINUTELY"}`, "acme editor")
	if text := x.want(422, "POST", "/v1/periodic/nightly/override", `{"skip":["2020-12-24"]}`, "acme editor"); !strings.Contains(text, `"skip"`) || !strings.Contains(text, "2020-12-24 is over") {
		t.Errorf("a date that is over: %s", text)
	}
	day := time.Now().AddDate(0, 1, 0).Format(time.DateOnly)
	x.want(200, "POST", "/v1/periodic/nightly/override", fmt.Sprintf(`{"skip":[%q]}`, day), "acme editor")
	x.want(200, "POST", "/v1/periodic/nightly/override?tenant=acme", `{"deadline":"45m"}`, "operator")
	if j = job("acme owner", ""); !slices.Equal(j.Contract.Skips, []string{day}) || j.Contract.Deadline != "45m" || j.Contract.Rule != "FREQ=HOURLY" || j.By != "an operator" {
		t.Errorf("%+v %+v", j, j.Contract)
	}
	if text := x.want(200, "GET", "/v1/periodic/nightly", "", "acme owner"); strings.Contains(text, `"hosts"`) || strings.Contains(text, `"h1"`) {
		t.Errorf("a tenant sees hosts: %s", text)
	}
	x.want(200, "POST", "/v1/periodic/nightly/reject", `{}`, "acme editor")
	if j = job("operator", "?tenant=acme"); j.State != "rejected" || j.Contract != nil {
		t.Errorf("%+v", j)
	}
}
