package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

func problemIn(t *testing.T, resp *http.Response, body string) v1.Problem {
	t.Helper()
	var p v1.Problem
	if ct := resp.Header.Get("Content-Type"); ct != "application/problem+json" {
		t.Fatalf("%s: content type %q: %s", resp.Status, ct, body)
	}
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if p.Status != resp.StatusCode || p.Title == "" || p.Detail == "" {
		t.Errorf("%s: incomplete problem: %s", resp.Status, body)
	}
	if id := resp.Header.Get("X-Request-Id"); id == "" || p.Instance != "urn:evenkeel:request:"+id {
		t.Errorf("instance %q, request id %q", p.Instance, id)
	}
	return p
}

// TestRefusedRequests: each bad request is refused before anything changes,
// with a problem that names the field.
func TestRefusedRequests(t *testing.T) {
	c := start(t)
	c.create(t, small("taken", 1))
	c.create(t, small("split-name", 1))
	before, err := c.service.View(t.Context(), false)
	must(t, err)
	const vcs = "/v1/virtual-clusters"
	vc := func(group string) string {
		return `{"name":"a","groups":[{"name":"w","cpu":1,"memory":"1GiB"` + group + `}]}`
	}
	for _, q := range []struct {
		name, method, path, body string
		header                   []string
		status                   int
		kind, field              string
	}{
		{"unknown field", "POST", vcs, `{"name":"a","colour":"red"}`, nil, 422, v1.ProblemInvalid, "colour"},
		{"unknown field of a group", "POST", vcs, vc(`,"ram":1`), nil, 422, v1.ProblemInvalid, "groups[0].ram"},
		{"negative CPU", "POST", vcs, `{"name":"a","groups":[{"name":"w","cpu":-1,"memory":"1GiB"}]}`, nil, 422, v1.ProblemInvalid, "groups[0].cpu"},
		{"NaN CPU", "POST", vcs, `{"name":"a","groups":[{"name":"w","cpu":NaN,"memory":"1GiB"}]}`, nil, 400, v1.ProblemMalformed, "groups[0].cpu"},
		{"infinite CPU", "POST", vcs, `{"name":"a","groups":[{"name":"w","cpu":1e999,"memory":"1GiB"}]}`, nil, 422, v1.ProblemInvalid, "groups[0].cpu"},
		{"memory below the least", "POST", vcs, `{"name":"a","groups":[{"name":"w","cpu":1,"memory":"1KiB"}]}`, nil, 422, v1.ProblemInvalid, "groups[0].memory"},
		{"a thousand million VMs", "POST", vcs, vc(`,"count":1000000000`), nil, 422, v1.ProblemInvalid, "groups[0].count"},
		{"more VMs than allowed", "POST", vcs, vc(`,"count":5000`), nil, 422, v1.ProblemInvalid, "groups[0].count"},
		{"name with a slash", "POST", vcs, `{"name":"a/b","groups":[{"name":"w","cpu":1,"memory":"1GiB"}]}`, nil, 422, v1.ProblemInvalid, "name"},
		{"name taken", "POST", vcs, `{"name":"taken","groups":[{"name":"w","cpu":1,"memory":"1GiB"}]}`, nil, 409, v1.ProblemExists, "name"},
		{"cloud-init data of a byte too many", "POST", vcs, vc(`,"cloudInit":{"userData":"` + strings.Repeat("a", 64<<10+1) + `"}`), nil, 422, v1.ProblemInvalid, "groups[0].cloudInit.userData"},
		{"values without end", "POST", vcs, `{"groups":[` + strings.Repeat("1,", 100_000) + `1]}`, nil, 400, v1.ProblemMalformed, "groups[19998]"},
		{"a kernel's path", "POST", vcs, vc(`,"boot":{"kernel":"/boot/vmlinuz"}`), nil, 422, v1.ProblemInvalid, "groups[0].boot.kernel"},
		{"an image that is not there", "POST", vcs, vc(`,"image":"nothing"`), nil, 422, v1.ProblemInvalid, "groups[0].image"},
		{"half a JSON", "POST", vcs, `{"name":"a","groups":[{"name":`, nil, 400, v1.ProblemMalformed, "groups[0].name"},
		{"not JSON", "POST", vcs, "name: a\n", nil, 400, v1.ProblemMalformed, "body"},
		{"nothing", "POST", vcs, "", nil, 400, v1.ProblemMalformed, "body"},
		{"YAML", "POST", vcs, "name: a\n", []string{"Content-Type", "application/yaml"}, 415, v1.ProblemMediaType, "Content-Type"},
		{"plain text", "POST", vcs, vc(""), []string{"Content-Type", "text/plain"}, 415, v1.ProblemMediaType, "Content-Type"},
		{"a form", "POST", vcs, vc(""), []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, v1.ProblemMediaType, "Content-Type"},
		{"parts", "POST", vcs, vc(""), []string{"Content-Type", "multipart/form-data; boundary=x"}, 415, v1.ProblemMediaType, "Content-Type"},
		{"JSON by another name", "POST", vcs, vc(""), []string{"Content-Type", "text/json"}, 415, v1.ProblemMediaType, "Content-Type"},
		{"JSON in UTF-16", "POST", vcs, vc(""), []string{"Content-Type", "application/json;charset=utf-16"}, 415, v1.ProblemMediaType, "Content-Type"},
		{"no media type", "POST", vcs, vc(""), []string{"Content-Type", "json; ="}, 415, v1.ProblemMediaType, "Content-Type"},
		{"the name of another's VM", "POST", vcs, `{"name":"split","groups":[{"name":"name-w","cpu":1,"memory":"1GiB"}]}`, nil, 409, v1.ProblemExists, "groups[0].name"},
		{"wrong token", "POST", vcs, vc(""), []string{"Authorization", "Bearer ekt_wrong"}, 401, v1.ProblemUnauthorized, "Authorization"},
		{"no token", "GET", vcs, "", []string{"Authorization", ""}, 401, v1.ProblemUnauthorized, "Authorization"},
		{"token of another scheme", "GET", vcs, "", []string{"Authorization", "Basic " + c.token}, 401, v1.ProblemUnauthorized, "Authorization"},
		{"no token for what is not there", "GET", "/nothing", "", []string{"Authorization", ""}, 401, v1.ProblemUnauthorized, "Authorization"},
		{"no token for the API's description", "GET", "/openapi.json", "", []string{"Authorization", ""}, 401, v1.ProblemUnauthorized, "Authorization"},
		{"no token for metrics", "GET", "/metrics", "", []string{"Authorization", ""}, 401, v1.ProblemUnauthorized, "Authorization"},
		{"restart", "POST", vcs, `{"name":"a","onHostLoss":"restart","groups":[{"name":"w","cpu":1,"memory":"1GiB","disk":{"size":"1GiB"}}]}`, nil, 422, v1.ProblemInvalid, "groups[0].disk"},
		{"guessed needs", "POST", vcs, `{"name":"a","needs":"guessed","groups":[{"name":"w","cpu":1,"memory":"1GiB"}]}`, nil, 422, v1.ProblemInvalid, "needs"},
		{"spread over something else", "POST", vcs, vc(`,"affinity":{"spread":"rack"}`), nil, 422, v1.ProblemInvalid, "groups[0].affinity.spread"},
		{"a term of no form", "POST", vcs, vc(`,"affinity":{"avoid":["app=db","db"]}`), nil, 422, v1.ProblemInvalid, "groups[0].affinity.avoid[1]"},
		{"a host that is not there", "POST", vcs, vc(`,"affinity":{"require":["host:nothing"]}`), nil, 422, v1.ProblemInvalid, "groups[0].affinity.require[0]"},
		{"a virtual cluster that is not there", "POST", vcs, vc(`,"affinity":{"prefer":["vc:taken","vc:nothing"]}`), nil, 422, v1.ProblemInvalid, "groups[0].affinity.prefer[1]"},
		{"required and avoided", "POST", vcs, vc(`,"affinity":{"require":["app=x"],"avoid":["app=x"]}`), nil, 422, v1.ProblemInvalid, "groups[0].affinity.avoid[0]"},
		{"scale to nothing", "PATCH", vcs + "/taken", `{"count":0}`, nil, 422, v1.ProblemInvalid, "count"},
		{"scale nothing", "PATCH", vcs + "/taken", `{}`, nil, 422, v1.ProblemInvalid, "count"},
		{"scale another group", "PATCH", vcs + "/taken", `{"group":"x","count":2}`, nil, 422, v1.ProblemInvalid, "group"},
		{"scale what is not there", "PATCH", vcs + "/nothing", `{"count":2}`, nil, 404, v1.ProblemNotFound, ""},
		{"delete what is not there", "DELETE", vcs + "/nothing", "", nil, 404, v1.ProblemNotFound, ""},
		{"delete another version", "DELETE", vcs + "/taken", "", []string{"If-Match", `"1"`}, 412, v1.ProblemPrecondition, ""},
		{"no ETag", "DELETE", vcs + "/taken", "", []string{"If-Match", "1"}, 422, v1.ProblemInvalid, "If-Match"},
		{"weak ETag", "DELETE", vcs + "/taken", "", []string{"If-Match", `W/"1"`}, 422, v1.ProblemInvalid, "If-Match"},
		{"a long key", "DELETE", vcs + "/taken", "", []string{"Idempotency-Key", strings.Repeat("k", 129)}, 422, v1.ProblemInvalid, "Idempotency-Key"},
		{"dryRun that is no boolean", "DELETE", vcs + "/taken?dryRun=maybe", "", nil, 422, v1.ProblemInvalid, "dryRun"},
		{"a parameter misspelt", "DELETE", vcs + "/taken?dryrun=true", "", nil, 422, v1.ProblemInvalid, "dryrun"},
		{"dryRun without a value", "DELETE", vcs + "/taken?dryRun=", "", nil, 422, v1.ProblemInvalid, "dryRun"},
		{"dryRun without an equals sign", "DELETE", vcs + "/taken?dryRun", "", nil, 422, v1.ProblemInvalid, "dryRun"},
		{"dryRun twice", "DELETE", vcs + "/taken?dryRun=false&dryRun=true", "", nil, 422, v1.ProblemInvalid, "dryRun"},
		{"dryRun that cannot be read", "DELETE", vcs + "/taken?dryRun=%zz", "", nil, 422, v1.ProblemInvalid, "query"},
		{"dryRun after a semicolon", "DELETE", vcs + "/taken?x=1;dryRun=true", "", nil, 422, v1.ProblemInvalid, "query"},
		{"create over a version", "POST", vcs, vc(""), []string{"If-Match", `"7"`}, 412, v1.ProblemPrecondition, ""},
		{"consistency", "GET", vcs + "?consistency=some", "", nil, 422, v1.ProblemInvalid, "consistency"},
		{"wait too long", "GET", "/v1/operations/x?wait=2m", "", nil, 422, v1.ProblemInvalid, "wait"},
		{"operation", "GET", "/v1/operations/x", "", nil, 404, v1.ProblemNotFound, ""},
		{"VM", "GET", "/v1/vms/x", "", nil, 404, v1.ProblemNotFound, ""},
		{"host", "GET", "/v1/hosts/x", "", nil, 404, v1.ProblemNotFound, ""},
		{"image", "GET", "/v1/images/x", "", nil, 404, v1.ProblemNotFound, ""},
		{"cordon what is not there", "PUT", "/v1/hosts/x/cordon", `{"reason":"y"}`, nil, 404, v1.ProblemNotFound, ""},
		{"cordon with a word too many", "PUT", "/v1/hosts/h1/cordon", `{"why":"y"}`, nil, 422, v1.ProblemInvalid, "why"},
		{"image taken", "POST", "/v1/images", `{"name":"tiny","kind":"kernel","file":"/a"}`, nil, 409, v1.ProblemExists, "name"},
		{"image in use", "DELETE", "/v1/images/tiny", "", nil, 409, v1.ProblemConflict, ""},
		{"image in use, dry run", "DELETE", "/v1/images/tiny?dryRun=true", "", nil, 409, v1.ProblemConflict, ""},
		{"events after a word", "GET", "/v1/events?after=x", "", nil, 422, v1.ProblemInvalid, "after"},
		{"events after a word, again", "GET", "/v1/events", "", []string{"Last-Event-ID", "x"}, 422, v1.ProblemInvalid, "Last-Event-ID"},
		{"console without a WebSocket", "GET", "/v1/vms/taken-w-0/console", "", nil, 426, v1.ProblemUpgrade, ""},
		{"nothing there", "GET", "/v1/nothing", "", nil, 404, v1.ProblemNotFound, ""},
		{"a path that is not clean", "GET", "/v1//vms", "", nil, 404, v1.ProblemNotFound, ""},
		{"a path that climbs", "GET", "/v1/x/../vms", "", nil, 404, v1.ProblemNotFound, ""},
		{"no such method", "PUT", "/v1/vms", "", nil, 405, v1.ProblemMethod, ""},
		{"a body over the limit", "POST", vcs, strings.Repeat(" ", v1.MaxBytes+1), nil, 413, v1.ProblemTooLarge, "body"},
	} {
		t.Run(q.name, func(t *testing.T) {
			resp, body := c.request(t, q.method, q.path, q.body, q.header...)
			p := problemIn(t, resp, body)
			if resp.StatusCode != q.status || p.Type != q.kind {
				t.Fatalf("got %s, want %d %s: %s", resp.Status, q.status, q.kind, body)
			}
			found := q.field == ""
			for _, f := range p.Errors {
				found = found || f.Field == q.field && f.Message != "" && f.In != ""
			}
			if !found {
				t.Errorf("does not name %s: %s", q.field, body)
			}
			if strings.Contains(body, c.token) {
				t.Error("the token is in the answer")
			}
		})
	}
	after, err := c.service.View(t.Context(), false)
	must(t, err)
	if len(after.VCs()) != 2 || len(after.Operations()) != len(before.Operations()) || len(after.Images()) != 1 {
		t.Errorf("something was changed: %d VCs, %d operations", len(after.VCs()), len(after.Operations()))
	}
	must(t, c.stop())
	if log := c.log.String(); strings.Contains(log, c.token) || !strings.Contains(log, "path=/v1/vms/x status=404") {
		t.Errorf("the log holds the token, or no word of a request:\n%.2000s", log)
	}
}

func TestRefusal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := start(t)
		spec := small("big", 100)
		spec.OnFull = "reject"
		spec.MinYield = ptr(1.0)
		_, err := c.client(t).Create(t.Context(), spec)
		var e *client.Error
		if !errors.As(err, &e) || e.Problem.Type != v1.ProblemRefused || e.Problem.Status != 409 {
			t.Fatalf("got %v", err)
		}
		if len(e.Problem.Hosts) != 2 || e.Problem.Hosts[0].Host != "h1" || e.Problem.Hosts[0].CPUMissing <= 0 || e.Problem.Hosts[0].Text == "" || len(e.Problem.Advice) == 0 {
			t.Errorf("no reasons: %+v", e.Problem)
		}
		spec.OnFull = "queue"
		spec.Groups[0].Count = 16
		c.create(t, spec) // fills the cluster
		spec.Name = "later"
		r, err := c.client(t).Create(t.Context(), spec)
		must(t, err)
		if r.VirtualCluster.State != "queued" || r.Decision.Admitted || r.Operation.State != v1.OperationPending {
			t.Errorf("not queued: %+v", r)
		}
		x, err := c.client(t).Explain(t.Context(), "later")
		must(t, err)
		if x.State != "queued" || len(x.Lines) == 0 || len(x.Decision.Hosts) != 2 {
			t.Errorf("%+v", x)
		}
	})
}

func ptr[T any](v T) *T { return &v }

func TestChanges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := start(t)
		api, ctx := c.client(t), t.Context()

		dry, err := api.Create(ctx, small("a", 2), client.DryRun())
		must(t, err)
		if !dry.DryRun || dry.Operation != nil || len(dry.Changes) == 0 || !dry.Decision.Admitted {
			t.Errorf("dry run: %+v", dry)
		}
		if vc := dry.VirtualCluster; vc == nil || vc.State != "starting" || vc.Yield != 1 || vc.Groups[0].Allocation != 0.5 || vc.VMs.Starting != 2 || vc.CreatedAt.IsZero() {
			t.Errorf("the virtual cluster of a dry run, as it would be: %+v", vc)
		}
		if _, err := api.VirtualCluster(ctx, "a"); !client.IsProblem(err, v1.ProblemNotFound) {
			t.Fatalf("a dry run created it: %v", err)
		}

		first, err := api.Create(ctx, small("a", 2), client.IdempotencyKey("k1"))
		must(t, err)
		again, err := api.Create(ctx, small("a", 2), client.IdempotencyKey("k1"))
		must(t, err)
		if !again.Replayed || first.Replayed || again.Operation.ID != first.Operation.ID {
			t.Errorf("the same key twice: %+v, %+v", first, again)
		}
		if _, err := api.Create(ctx, small("b", 2), client.IdempotencyKey("k1")); !client.IsProblem(err, v1.ProblemInvalid) {
			t.Errorf("another request with the same key: %v", err)
		}
		var steps []string
		op, err := api.Wait(ctx, *first.Operation, func(op v1.Operation) { steps = append(steps, op.Text) })
		must(t, err)
		if op.State != v1.OperationDone || op.Done != 2 || op.Total != 2 || len(steps) < 2 {
			t.Fatalf("%+v after %q", op, steps)
		}

		vc, err := api.VirtualCluster(ctx, "a")
		must(t, err)
		if vc.State != "running" || vc.Yield != 1 || vc.MinYield != 0.5 || vc.VMs.Running != 2 || vc.Groups[0].VCPUs != 1 || vc.Groups[0].MemoryMin != 64<<20 {
			t.Errorf("%+v", vc)
		}
		if _, err := api.Scale(ctx, "a", v1.ScaleRequest{Count: ptr(3)}, client.IfMatch(vc.ModifyIndex+1)); !client.IsProblem(err, v1.ProblemPrecondition) {
			t.Errorf("scaled another version: %v", err)
		}
		scaled, err := api.Scale(ctx, "a", v1.ScaleRequest{Count: ptr(3), Memory: ptr(v1.Size(64 << 20))}, client.IfMatch(vc.ModifyIndex))
		must(t, err)
		op, err = api.Wait(ctx, *scaled.Operation, nil)
		must(t, err)
		if op.State != v1.OperationDone || op.Total != 3 {
			t.Errorf("%+v", op)
		}

		vms, err := api.VMs(ctx, "a", "")
		must(t, err)
		if len(vms) != 3 || vms[0].Name != "a-w-0" || vms[0].Domain != "ek-"+vms[0].ID || vms[0].Need != 0.5 || vms[0].Allocation != 0.5 || vms[0].Memory != 64<<20 {
			t.Errorf("%+v", vms)
		}
		for _, q := range [][2]string{{"other", ""}, {"", "h9"}} {
			_, err := api.VMs(ctx, q[0], q[1])
			if p := new(client.Error); !errors.As(err, &p) || p.Problem.Type != v1.ProblemNotFound {
				t.Errorf("VMs of %q, which is not there: %v", q, err)
			}
		}
		if none, err := api.VMs(ctx, "a", "h9"); err == nil {
			t.Errorf("VMs of a on a host that is not there: %v", none)
		}
		byID, err := api.VM(ctx, vms[1].ID)
		must(t, err)
		if byID.Name != "a-w-1" {
			t.Errorf("%+v", byID)
		}
		c.eventually(t, "the VM's cap and use are seen", func() bool {
			vm, err := api.VM(ctx, "a-w-0")
			return err == nil && vm.Cap == 0.5 && vm.Balloon == 64<<20 && !vm.SampledAt.IsZero()
		})

		for _, verb := range []func(context.Context, string, ...client.Option) (v1.Result, error){api.Stop, api.Start, api.Delete} {
			dry, err := verb(ctx, "a", client.DryRun())
			must(t, err)
			if dry.Operation != nil || !dry.DryRun {
				t.Errorf("dry run: %+v", dry)
			}
			r, err := verb(ctx, "a")
			must(t, err)
			op, err := api.Wait(ctx, *r.Operation, nil)
			must(t, err)
			if op.State != v1.OperationDone {
				t.Errorf("%+v", op)
			}
			if vc, err := api.VirtualCluster(ctx, "a"); err == nil && vc.State == "stopped" && (vc.Groups[0].Allocation != 0 || vc.Yield != 0) {
				t.Errorf("stopped, and still given CPU: %+v", vc)
			}
		}
		_, body := c.request(t, "GET", "/v1/operations?limit=2&virtualCluster=a", "")
		var ops v1.List[v1.Operation]
		must(t, json.Unmarshal([]byte(body), &ops))
		if len(ops.Items) != 2 || ops.Items[0].Kind != "start" || ops.Items[1].Kind != "delete" || ops.Items[1].State != v1.OperationDone {
			t.Errorf("the last two operations: %s", body)
		}
		for q, want := range map[client.OperationQuery]int{{Kind: "delete"}: 1, {Kind: "start", State: v1.OperationDone}: 0, {VirtualCluster: "nope"}: 0, {VM: "a-w-0"}: 0, {Host: "h1"}: 0} {
			q.Limit = 10
			if got, err := api.Operations(ctx, q); err != nil || len(got) != want {
				t.Errorf("operations %+v: %+v, %v", q, got, err)
			}
		}
		if left, err := api.VMs(ctx, "", ""); err != nil || len(left) != 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
}

func TestHostsAndImages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := start(t)
		api, ctx := c.client(t), t.Context()
		hosts, err := api.Hosts(ctx)
		must(t, err)
		if len(hosts) != 2 || hosts[0].Name != "h1" || hosts[0].Allowance != (v1.Resources{CPU: 4, Memory: 8 << 30}) || hosts[0].Capacity.CPU != 5 || hosts[0].State != "ready" {
			t.Errorf("%+v", hosts)
		}
		if h, err := api.Cordon(ctx, "h1", "disk", client.DryRun()); err != nil || h.Cordoned {
			t.Errorf("dry run: %+v, %v", h, err)
		}
		if h, err := api.Cordon(ctx, "h1", "disk"); err != nil || h.State != "cordoned" || h.CordonReason != "disk" {
			t.Errorf("%+v, %v", h, err)
		}
		for _, method := range []string{"PUT", "POST"} {
			if resp, body := c.request(t, method, "/v1/hosts/h1/cordon", ""); resp.StatusCode != 200 || !strings.Contains(body, `"state":"cordoned"`) {
				t.Errorf("%s of a cordon without a reason: %s %s", method, resp.Status, body)
			}
		}
		if h, err := api.Uncordon(ctx, "h1"); err != nil || h.State != "ready" || h.CordonReason != "" {
			t.Errorf("%+v, %v", h, err)
		}
		img := v1.ImageSpec{Name: "debian-12", Kind: "disk", File: "/images/debian.qcow2"}
		if _, err := api.AddImage(ctx, img, client.DryRun()); err != nil {
			t.Error(err)
		}
		if list, err := api.Images(ctx); err != nil || len(list) != 1 {
			t.Errorf("a dry run added an image: %+v, %v", list, err)
		}
		if got, err := api.AddImage(ctx, img); err != nil || got.File != img.File || got.AddedAt.IsZero() {
			t.Errorf("%+v, %v", got, err)
		}
		must(t, api.DeleteImage(ctx, "debian-12", client.DryRun()))
		for range 2 {
			must(t, api.DeleteImage(ctx, "debian-12", client.IdempotencyKey("gone")))
		}
		if err := api.DeleteImage(ctx, "debian-12"); !client.IsProblem(err, v1.ProblemNotFound) {
			t.Errorf("deleted twice: %v", err)
		}
		s, err := api.Status(ctx)
		must(t, err)
		if !s.Ready || s.Hosts["ready"] != 2 || s.MinYield != 1 || s.Settings.MaxVMs != 4096 || s.Version != "test" || s.Allowance.CPU != 8 {
			t.Errorf("%+v", s)
		}
	})
}

func TestEventsResume(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := start(t)
		api := c.client(t)
		c.create(t, small("a", 1))
		all, err := api.ListEvents(t.Context(), client.EventQuery{After: ptr(uint64(0)), Limit: 1000})
		must(t, err)
		for i, e := range all.Items {
			if e.Seq != uint64(i+1) {
				t.Fatalf("event %d has number %d", i, e.Seq)
			}
		}
		page, err := api.ListEvents(t.Context(), client.EventQuery{Limit: 2})
		must(t, err)
		newest := page.Items
		if len(newest) != 2 || newest[1].Seq != page.Last {
			t.Errorf("the newest two: %+v", newest)
		}

		// One connection by hand, cut after three events, taken up by header.
		stream := func(header ...string) *bufio.Scanner {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.address+"/v1/events?after=0", nil)
			must(t, err)
			r.Header.Set("Authorization", "Bearer "+c.token)
			for i := 0; i < len(header); i += 2 {
				r.Header.Set(header[i], header[i+1])
			}
			resp, err := c.raw(t).Do(r)
			must(t, err)
			t.Cleanup(func() { _ = resp.Body.Close() })
			if ct := resp.Header.Get("Content-Type"); ct != "text/event-stream" {
				t.Fatalf("content type %q", ct)
			}
			return bufio.NewScanner(resp.Body)
		}
		ids := func(s *bufio.Scanner, n int) (out []string) {
			for len(out) < n && s.Scan() {
				if id, ok := strings.CutPrefix(s.Text(), "id: "); ok {
					out = append(out, id)
				}
			}
			return out
		}
		if got := ids(stream(), 3); fmt.Sprint(got) != "[1 2 3]" {
			t.Errorf("got %v", got)
		}
		if got := ids(stream("Last-Event-ID", "3"), 2); fmt.Sprint(got) != "[4 5]" {
			t.Errorf("after the third: %v", got)
		}
		if s := stream("Last-Event-ID", "999999"); !s.Scan() || s.Text() != "event: gap" {
			t.Errorf("a number from the future: %q", s.Text())
		}

		// The client's follower sees what happens, and the end of the server ends its streams.
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		seen := make(chan v1.Event, 100)
		ended := make(chan error, 1)
		go func() {
			ended <- api.Follow(ctx, client.EventQuery{After: &newest[1].Seq}, func(m client.Message) error { seen <- m.Event; return nil })
		}()
		_, err = api.Cordon(t.Context(), "h2", "for a look")
		must(t, err)
		if e := <-seen; e.Kind != "host-cordoned" || e.Name != "h2" || e.Seq != newest[1].Seq+1 {
			t.Errorf("%+v", e)
		}
		must(t, c.stop()) // does not wait for the stream
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("follow: %v", err)
		}
	})
}

func TestLongPoll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := start(t)
		api := c.client(t)
		r, err := api.Create(t.Context(), small("a", 1))
		must(t, err)
		_, body := c.request(t, "GET", "/v1/operations/"+r.Operation.ID+"?wait=30s", "")
		var op v1.Operation
		must(t, json.Unmarshal([]byte(body), &op))
		if op.State != v1.OperationDone {
			t.Errorf("%+v", op)
		}
		full := small("full", 16)
		full.MinYield = ptr(1.0)
		c.create(t, small("b", 4))
		r, err = api.Create(t.Context(), full)
		must(t, err)
		if _, body := c.request(t, "GET", "/v1/operations/"+r.Operation.ID+"?wait=50ms", ""); !strings.Contains(body, `"pending"`) {
			t.Errorf("a wait that is over: %s", body)
		}
		answered := make(chan string, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			op, err := api.Wait(ctx, *r.Operation, nil)
			answered <- fmt.Sprint(op.State, err)
		}()
		_, err = api.Delete(t.Context(), "full")
		must(t, err)
		if got := <-answered; !strings.HasPrefix(got, v1.OperationSuperseded) {
			t.Errorf("the wait for what was deleted: %s", got)
		}
		for _, long := range []int{4000, 5000} { // a text that names many hosts
			op.State, op.Text = v1.OperationPending, strings.Repeat("h", long)
			if ended, err := api.Wait(t.Context(), op, nil); err != nil || ended.State != v1.OperationDone {
				t.Errorf("a wait with %d bytes of text seen: %+v, %v", long, ended, err)
			}
		}
	})
}

func TestConsole(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := start(t)
		c.create(t, small("a", 1))
		api := c.client(t)
		if _, err := api.Console(t.Context(), "a-w-1"); !client.IsProblem(err, v1.ProblemNotFound) {
			t.Errorf("a VM that is not there: %v", err)
		}
		open := func() io.ReadWriteCloser {
			tty, err := api.Console(t.Context(), "a-w-0")
			must(t, err)
			t.Cleanup(func() { _ = tty.Close() })
			return tty
		}
		tty := open()
		_, err := tty.Write([]byte("status\n"))
		must(t, err)
		var got bytes.Buffer
		buf := make([]byte, 512)
		for !strings.Contains(got.String(), "BEAT") {
			n, err := tty.Read(buf)
			got.Write(buf[:n])
			must(t, err)
		}
		must(t, c.stop()) // ends consoles
		if _, err := io.Copy(io.Discard, tty); err != nil {
			t.Errorf("the console did not end in order: %v", err)
		}
	})
}

func TestHealthAndMetrics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := start(t)
		c.create(t, small("a", 2))
		for _, path := range []string{"/livez", "/readyz"} {
			if resp, body := c.request(t, "GET", path, "", "Authorization", ""); resp.StatusCode != 200 || body != "ok\n" {
				t.Errorf("%s: %s %s", path, resp.Status, body)
			}
		}
		c.request(t, "GET", "/v1/made/up/path", "")
		_, body := c.request(t, "GET", "/metrics", "")
		for _, want := range []string{
			"evenkeel_min_yield 1\n", `evenkeel_virtual_cluster_yield{virtual_cluster="a"} 1`, `evenkeel_virtual_clusters{state="running"} 1`,
			`evenkeel_vms{phase="running"} 2`, `evenkeel_host_up{host="h1"} 1`, `evenkeel_host_cpu_cores{host="h2",of="allowance"} 4`,
			`evenkeel_host_memory_bytes{host="h1",of="capacity"} 9.663676416e+09`, `evenkeel_admissions_total{answer="admitted",verb="create"} 1`,
			`evenkeel_request_duration_seconds_count{method="POST",route="/v1/virtual-clusters",status="202"} 1`,
			`evenkeel_request_duration_seconds_count{method="other",route="none",status="404"} 1`, "evenkeel_ready 1\n",
		} {
			if !strings.Contains(body, want) {
				t.Errorf("no %q in /metrics", want)
			}
		}
		if strings.Contains(body, "made/up") {
			t.Error("an invented path is a metric")
		}
	})
}
