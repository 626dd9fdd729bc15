package server_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// crowd puts n VMs of 2 cores each on h1, which has 4 cores, and then uncordons h2.
func (c *cluster) crowd(t *testing.T, n int) *client.Client {
	t.Helper()
	api := c.client(t)
	_, err := api.Cordon(t.Context(), "h2", "")
	must(t, err)
	spec := small("a", n)
	spec.Groups[0].CPU = 2
	lowest := 0.1
	spec.MinYield = &lowest
	r, err := api.Create(t.Context(), spec)
	must(t, err)
	_, err = api.Wait(t.Context(), *r.Operation, nil)
	must(t, err)
	_, err = api.Uncordon(t.Context(), "h2")
	must(t, err)
	return api
}

func maxOf(v int64) *v1.Bound { b := v1.Bound(v); return &b }

// TestRebalance: the leader makes a plan, carries it out and reports it; the plan's figures are those of the contract.
func TestRebalance(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := start(t)
		api := c.crowd(t, 4)

		points, err := api.Curve(t.Context())
		must(t, err)
		if len(points) < 2 || points[0].Bytes != 0 || points[0].MinYield != 0.5 || points[len(points)-1].MinYield != 1 {
			t.Errorf("curve %+v", points)
		}

		// No move is worth it: an answer, with its reason, and nothing to wait for.
		r, err := api.Rebalance(t.Context(), v1.RebalanceRequest{MaxBytes: maxOf(0)}, client.DryRun())
		must(t, err)
		if len(r.Plan.Moves) != 0 || !strings.Contains(r.Plan.Reason, "no beneficial move") || !r.DryRun || r.Operation != nil || r.Plan.MinYieldBefore != 0.5 || r.Plan.MinYieldAfter != 0.5 {
			t.Errorf("%+v", r)
		}

		key := client.IdempotencyKey("once")
		r, err = api.Rebalance(t.Context(), v1.RebalanceRequest{MaxBytes: maxOf(2 << 30), Reason: "h2 is new"}, key)
		must(t, err)
		p := r.Plan
		if len(p.Moves) != 2 || p.State != "running" || p.BytesBudget == nil || *p.BytesBudget != 2<<30 || p.Bytes <= 0 || p.Bytes > 2<<30 || p.MinYieldBefore != 0.5 || p.MinYieldAfter != 1 ||
			p.Seconds <= 0 || p.Text != "h2 is new" || p.ID == "" || r.Operation == nil || r.Operation.Plan != p.ID || r.Operation.VirtualCluster != "" {
			t.Fatalf("%+v", r)
		}
		var allotted v1.Size
		for _, m := range p.Moves {
			if m.From != "h1" || m.To != "h2" || m.VirtualCluster != "a" || m.Reason == "" || m.BytesBudget == nil {
				t.Errorf("%+v", m)
			}
			allotted += *m.BytesBudget
		}
		if allotted > 2<<30 {
			t.Errorf("moves may send %d bytes together", allotted)
		}
		op, err := api.Wait(t.Context(), *r.Operation, nil)
		must(t, err)
		if op.State != v1.OperationDone {
			t.Errorf("%+v", op)
		}
		again, err := api.Rebalance(t.Context(), v1.RebalanceRequest{MaxBytes: maxOf(2 << 30), Reason: "h2 is new"}, key)
		must(t, err)
		if !again.Replayed || again.Plan.ID != p.ID {
			t.Errorf("the same key gives %+v", again)
		}
		if _, err = api.Rebalance(t.Context(), v1.RebalanceRequest{}, key); !client.IsProblem(err, v1.ProblemInvalid) {
			t.Errorf("the same key with another request: %v", err)
		}

		p, err = api.Plan(t.Context(), p.ID)
		must(t, err)
		if p.State != "done" || !p.Ended() || p.Moves[0].State != "done" || p.Moves[0].Migration == "" {
			t.Errorf("%+v", p)
		}
		all, err := api.Migrations(t.Context(), p.ID, "", "done", 0)
		must(t, err)
		if len(all) != 2 {
			t.Fatalf("%+v", all)
		}
		m, err := api.Migration(t.Context(), all[0].ID)
		must(t, err)
		if m.VM == "" || m.From != "h1" || m.To != "h2" || m.BytesBudget == nil || m.BytesMoved > *m.BytesBudget || m.Reason == "" || !m.Ended() || m.Progress != nil {
			t.Errorf("%+v", m)
		}
		vm, err := api.VM(t.Context(), m.VM)
		must(t, err)
		if vm.Host != "h2" || vm.MovingTo != "" || vm.Yield != 1 {
			t.Errorf("%+v", vm)
		}
		if of, err := api.Migrations(t.Context(), "", m.VM, "", 0); err != nil || len(of) != 1 {
			t.Errorf("%+v, %v", of, err)
		}

		// What has ended is neither applied, nor stopped, nor aborted.
		_, err = api.ApplyPlan(t.Context(), p.ID)
		conflict(t, err)
		_, err = api.StopPlan(t.Context(), p.ID)
		conflict(t, err)
		_, err = api.AbortMigration(t.Context(), m.ID)
		conflict(t, err)
		for _, err := range []error{second(api.Plan(t.Context(), "x")), second(api.ApplyPlan(t.Context(), "x")), second(api.StopPlan(t.Context(), "x")),
			second(api.Migration(t.Context(), "x")), second(api.AbortMigration(t.Context(), "x"))} {
			if !client.IsProblem(err, v1.ProblemNotFound) {
				t.Errorf("of what is not there: %v", err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

func conflict(t *testing.T, err error) {
	t.Helper()
	if !client.IsProblem(err, v1.ProblemConflict) {
		t.Errorf("%v, want a conflict", err)
	}
}

// TestPoll: a read with wait comes when something changed after the index, and not before.
func TestPoll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := start(t)
		api := c.crowd(t, 4)
		get := func(path string) (*http.Response, v1.List[v1.Plan]) {
			var out v1.List[v1.Plan]
			resp, body := c.request(t, "GET", path, "")
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("%s: %s", path, body)
			}
			must(t, json.Unmarshal([]byte(body), &out))
			return resp, out
		}
		if _, list := get("/v1/plans?wait=10ms"); len(list.Items) != 0 {
			t.Errorf("%+v", list)
		}
		type answer struct {
			list v1.List[v1.Plan]
			took time.Duration
		}
		came := make(chan answer, 1)
		begun := time.Now()
		go func() {
			_, list := get("/v1/plans?wait=1m&index=1")
			came <- answer{list, time.Since(begun)}
		}()
		r, err := api.Rebalance(t.Context(), v1.RebalanceRequest{})
		must(t, err)
		if a := <-came; len(a.list.Items) != 1 || a.list.Items[0].ID != r.Plan.ID || a.took >= time.Minute { // then its wait was over
			t.Errorf("after %s: %+v", a.took, a.list)
		}
		for p := r.Plan; !p.Ended(); {
			resp, body := c.request(t, "GET", "/v1/plans/"+p.ID+"?wait=30s&index="+strconv.FormatUint(p.ModifyIndex, 10), "")
			var next v1.Plan
			must(t, json.Unmarshal([]byte(body), &next))
			if next.ModifyIndex == p.ModifyIndex || resp.Header.Get("ETag") != `"`+strconv.FormatUint(next.ModifyIndex, 10)+`"` {
				t.Fatalf("%s, %s", resp.Header.Get("ETag"), body)
			}
			p = next
		}
		for _, q := range []string{"/v1/plans?wait=2m", "/v1/plans?wait=x", "/v1/plans?state=some", "/v1/migrations?limit=0", "/v1/plans?limit=1001", "/v1/hosts/h1/drain?wait=-1s"} {
			if resp, body := c.request(t, "GET", q, ""); resp.StatusCode != http.StatusUnprocessableEntity {
				t.Errorf("%s: %s", q, body)
			}
		}
	})
}

// TestStopPlan: a plan under way shows how far it is, keeps to its limits, and once stopped moves nothing more.
func TestStopPlan(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := start(t)
		api := c.crowd(t, 8)
		one, slow := 1, v1.Size(8<<20)
		_, err := api.SetSettings(t.Context(), v1.SettingsPatch{Moves: &v1.MovePatch{PerHost: &one, Total: &one, Bandwidth: &slow}})
		must(t, err)
		r, err := api.Rebalance(t.Context(), v1.RebalanceRequest{MaxBytes: maxOf(-1)})
		must(t, err)
		if r.Plan.BytesBudget != nil || len(r.Plan.Moves) < 3 {
			t.Fatalf("%+v", r.Plan)
		}
		var moving v1.Migration
		c.eventually(t, "a VM moves", func() bool {
			all, err := api.Migrations(t.Context(), r.Plan.ID, "", "running", 0)
			must(t, err)
			if len(all) > 1 {
				t.Errorf("%d migrations at a time", len(all))
			}
			if len(all) > 0 && all[0].Progress != nil && all[0].Progress.Rate > 0 {
				moving = all[0]
			}
			return moving.Progress != nil
		})
		if moving.Options.Bandwidth != slow || moving.BytesMoved <= 0 {
			t.Errorf("%+v", moving)
		}
		vm, err := api.VM(t.Context(), moving.VM)
		must(t, err)
		if vm.State != "running" || vm.Host != "h1" || vm.MovingTo != "h2" || vm.Migration != moving.ID {
			t.Errorf("%+v", vm)
		}
		p, err := api.StopPlan(t.Context(), r.Plan.ID, client.DryRun())
		must(t, err)
		if p.State != "running" {
			t.Errorf("a dry run stopped it: %s", p.State)
		}
		p, err = api.StopPlan(t.Context(), r.Plan.ID)
		must(t, err)
		if p.State != "stopped" {
			t.Errorf("%s", p.State)
		}
		m, err := api.AbortMigration(t.Context(), moving.ID)
		if err != nil && !client.IsProblem(err, v1.ProblemConflict) { // it may have ended by itself
			t.Fatal(err)
		}
		if err == nil && m.Abort == "" {
			t.Errorf("%+v", m)
		}
		c.eventually(t, "nothing moves", func() bool {
			all, err := api.Migrations(t.Context(), "", "", "running", 0)
			must(t, err)
			return len(all) == 0
		})
		if op, err := api.Wait(t.Context(), *r.Operation, nil); err != nil || op.State == v1.OperationDone || op.State == v1.OperationPending {
			t.Errorf("%+v, %v", op, err)
		}
		all, err := api.Migrations(t.Context(), r.Plan.ID, "", "", 0)
		must(t, err)
		if len(all) >= len(r.Plan.Moves) {
			t.Errorf("%d of %d moves were begun", len(all), len(r.Plan.Moves))
		}
	})
}

// TestDrain: blockers are a refusal with what to do; a drain ends in an empty host; undrain moves nothing back.
func TestDrain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := start(t)
		api := c.crowd(t, 2)
		d, err := api.HostDrain(t.Context(), "h1")
		must(t, err)
		if d.State != "none" || !d.Ended() {
			t.Errorf("%+v", d)
		}
		if e, err := api.HostEmpty(t.Context(), "h1"); err != nil || e.Empty || len(e.VMs) != 2 {
			t.Errorf("%+v, %v", e, err)
		}

		dry, err := api.Drain(t.Context(), "h1", v1.DrainRequest{}, client.DryRun())
		must(t, err)
		if !dry.DryRun || dry.Plan == nil || len(dry.Plan.Moves) != 2 || dry.Plan.Host != "h1" || dry.Plan.Kind != "drain" || dry.Operation != nil || len(dry.Blockers) != 0 {
			t.Errorf("%+v", dry)
		}
		if h, err := api.Host(t.Context(), "h1"); err != nil || h.State != "ready" || h.Drain != nil {
			t.Errorf("a dry run changed the host: %+v, %v", h, err)
		}

		// A VM with a disk of its own cannot move.
		spec := small("d", 1)
		spec.Groups[0].Disk = &v1.Disk{Size: 1 << 30}
		spec.Groups[0].Affinity = &v1.Affinity{Require: []string{"host:h1"}}
		r, err := api.Create(t.Context(), spec)
		must(t, err)
		_, err = api.Wait(t.Context(), *r.Operation, nil)
		must(t, err)
		_, err = api.Drain(t.Context(), "h1", v1.DrainRequest{})
		var refused *client.Error
		if !errors.As(err, &refused) || refused.Problem.Type != v1.ProblemBlocked || refused.Problem.Status != http.StatusConflict {
			t.Fatalf("%v", err)
		}
		if b := refused.Problem.Blockers; len(b) != 1 || b[0].VM != "d-w-0" || b[0].VirtualCluster != "d" || b[0].Why == "" || len(b[0].Advice) == 0 {
			t.Errorf("%+v", b)
		}
		if h, err := api.Host(t.Context(), "h1"); err != nil || h.State != "ready" {
			t.Errorf("a refusal changed the host: %+v, %v", h, err)
		}
		r, err = api.Delete(t.Context(), "d")
		must(t, err)
		_, err = api.Wait(t.Context(), *r.Operation, nil)
		must(t, err)

		begun, err := api.Drain(t.Context(), "h1", v1.DrainRequest{Deadline: "1h", MaxBytes: maxOf(4 << 30), Reason: "new memory"})
		must(t, err)
		if begun.Operation == nil || begun.Operation.Kind != "drain" || begun.Operation.Host != "h1" || begun.Plan == nil {
			t.Fatalf("%+v", begun)
		}
		op, err := api.Wait(t.Context(), *begun.Operation, nil)
		must(t, err)
		if op.State != v1.OperationDone {
			t.Errorf("%+v", op)
		}
		d, err = api.HostDrain(t.Context(), "h1")
		must(t, err)
		if d.State != "drained" || d.Reason != "new memory" || d.Deadline.IsZero() || d.BytesBudget == nil || *d.BytesBudget != 4<<30 || len(d.VMs) != 2 || d.VMs[0].State != "done" || d.VMs[0].To != "h2" {
			t.Errorf("%+v", d)
		}
		e, err := api.HostEmpty(t.Context(), "h1")
		must(t, err)
		if !e.Empty || e.VMs == nil || len(e.VMs) != 0 || e.At.IsZero() {
			t.Errorf("%+v", e)
		}
		h, err := api.Host(t.Context(), "h1")
		must(t, err)
		if h.State != "drained" || h.Drain == nil || h.VMs != 0 {
			t.Errorf("%+v", h)
		}
		groups, err := api.DrainGroups(t.Context())
		must(t, err)
		for _, g := range groups.Items {
			for _, name := range g.Hosts {
				if name == "h1" {
					t.Errorf("a host that is drained has its turn: %+v", groups)
				}
			}
		}

		h, err = api.Undrain(t.Context(), "h1")
		must(t, err)
		if h.State != "ready" || h.Drain != nil || h.VMs != 0 {
			t.Errorf("%+v", h)
		}
		for _, err := range []error{second(api.Drain(t.Context(), "x", v1.DrainRequest{})), second(api.Undrain(t.Context(), "x")), second(api.HostDrain(t.Context(), "x")), second(api.HostEmpty(t.Context(), "x"))} {
			if !client.IsProblem(err, v1.ProblemNotFound) {
				t.Errorf("of a host that is not there: %v", err)
			}
		}
	})
}

// TestSettings: what is named changes, the rest stays; a version that is over is refused.
func TestSettings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := start(t)
		api := c.client(t)
		before, err := api.Settings(t.Context())
		must(t, err)
		if before.Moves.Mode != "auto" || before.Moves.Period != "10m" || before.Moves.MinGain != 0.1 || before.Moves.Budget <= 0 || before.SharedPools == nil {
			t.Errorf("%+v", before)
		}
		mode, period, yield := "propose", "5m", 0.4
		patch := v1.SettingsPatch{MinYield: &yield, SharedPools: &[]string{"nfs"}, Moves: &v1.MovePatch{Mode: &mode, Period: &period}}
		after, err := api.SetSettings(t.Context(), patch, client.DryRun())
		must(t, err)
		if after.MinYield != 0.4 || after.Moves.Mode != "propose" {
			t.Errorf("%+v", after)
		}
		if now, err := api.Settings(t.Context()); err != nil || now.MinYield != before.MinYield || now.Moves != before.Moves {
			t.Errorf("a dry run changed %+v, %v", now, err)
		}
		after, err = api.SetSettings(t.Context(), patch)
		must(t, err)
		want := before
		want.MinYield, want.SharedPools, want.Moves.Mode, want.Moves.Period, want.Moves.Budget = 0.4, []string{"nfs"}, "propose", "5m", before.Moves.Budget/2
		if got, _ := json.Marshal(after); string(got) != string(first(json.Marshal(want))) {
			t.Errorf("%s", got)
		}
		status, err := api.Status(t.Context())
		must(t, err)
		if status.Settings.Moves.Mode != "propose" || status.Settings.MinYield != 0.4 {
			t.Errorf("%+v", status.Settings)
		}

		resp, _ := c.request(t, "GET", "/v1/cluster/settings", "")
		tag := resp.Header.Get("ETag")
		const path = "/v1/cluster/settings"
		if resp, body := c.request(t, "PATCH", path, `{"maxVMs":100}`, "If-Match", `"1"`); resp.StatusCode != http.StatusPreconditionFailed {
			t.Errorf("%s", body)
		}
		if resp, body := c.request(t, "PATCH", path, `{"maxVMs":100}`, "If-Match", tag); resp.StatusCode != http.StatusOK {
			t.Errorf("%s", body)
		}
		for _, doc := range []string{`{}`, `{"minYield":2}`, `{"moves":{"mode":"x"}}`, `{"moves":{"period":"1"}}`, `{"minyield":0.5}`, `{"moves":{"bandwidth":"x"}}`} {
			if resp, body := c.request(t, "PATCH", path, doc); resp.StatusCode != http.StatusUnprocessableEntity {
				t.Errorf("%s: %s", doc, body)
			}
		}
	})
}

func first[T any](v T, _ error) T { return v }

// TestProposed: with moves.mode propose nothing moves by itself. A plan waits until a user applies the version that the user has read.
func TestProposed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := start(t)
		mode, freeze, period, bound := "propose", "10ms", "1s", v1.Size(4<<30)
		_, err := c.client(t).SetSettings(t.Context(), v1.SettingsPatch{Moves: &v1.MovePatch{Mode: &mode, StabilizationWindow: &freeze, Period: &period, MaxBytes: &bound}})
		must(t, err)
		api := c.crowd(t, 4)
		var p v1.Plan
		c.eventually(t, "a plan is proposed", func() bool {
			all, err := api.Plans(t.Context(), "proposed", 0)
			must(t, err)
			if len(all) > 0 {
				p = all[len(all)-1]
			}
			return len(all) > 0
		})
		if len(p.Moves) == 0 || p.BytesBudget == nil || *p.BytesBudget != bound || p.Text == "" || p.Reason == "" || p.Ended() {
			t.Errorf("%+v", p)
		}
		if all, err := api.Migrations(t.Context(), "", "", "", 0); err != nil || len(all) != 0 {
			t.Errorf("something moves: %+v, %v", all, err)
		}
		if _, err := api.ApplyPlan(t.Context(), p.ID, client.IfMatch(p.ModifyIndex+1)); !client.IsProblem(err, v1.ProblemPrecondition) {
			t.Errorf("another version: %v", err)
		}
		dry, err := api.ApplyPlan(t.Context(), p.ID, client.DryRun())
		must(t, err)
		if !dry.DryRun || dry.Operation != nil || dry.Plan.State != "proposed" {
			t.Errorf("%+v", dry)
		}
		r, err := api.ApplyPlan(t.Context(), p.ID, client.IfMatch(p.ModifyIndex))
		must(t, err)
		if r.Operation == nil || r.Plan.State != "running" || r.Plan.ID != p.ID {
			t.Fatalf("%+v", r)
		}
		op, err := api.Wait(t.Context(), *r.Operation, nil)
		must(t, err)
		if op.State != v1.OperationDone {
			t.Errorf("%+v", op)
		}
		// Nothing has a version where a plan is made: If-Match is refused, and not passed over.
		for _, q := range [][2]string{{"POST", "/v1/rebalance"}, {"POST", "/v1/hosts/h1/drain"}, {"DELETE", "/v1/hosts/h1/drain"}} {
			if resp, body := c.request(t, q[0], q[1], "", "If-Match", `"7"`); resp.StatusCode != http.StatusUnprocessableEntity {
				t.Errorf("%s: %s", q[1], body)
			}
		}
	})
}
