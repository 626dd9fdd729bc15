package server_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/test/patience"
	"evenkeel/test/site"
)

// measured waits until so much was measured of a VM.
func measured(t *testing.T, api *client.Client, vm, resource string, lowest int) v1.Samples {
	t.Helper()
	var s v1.Samples
	var err error
	what := fmt.Sprintf("%d steps of %s of VM %s are measured", lowest, resource, vm)
	patience.Eventually(t, 90*time.Second, what, func() any { return fmt.Sprintf("%+v, %v", s.Items, err) }, func() bool {
		s, err = api.Samples(t.Context(), vm, resource, "raw", "")
		return err == nil && len(s.Items) >= lowest
	})
	return s
}

// joinHosts adds members that are no servers, and waits until VMs can be placed on them.
func (s *several) joinHosts(names ...string) {
	s.t.Helper()
	for _, name := range names {
		must(s.t, s.Join(s.t.Context(), name, false, true))
	}
	api := s.client("h1")
	must(s.t, s.Await(s.t.Context(), "the hosts are there", func() bool {
		for _, name := range names {
			if h, err := api.Host(s.t.Context(), name); err != nil || h.State != "ready" {
				return false
			}
		}
		return true
	}))
}

func TestSamples(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := start(t)
		api := c.client(t)
		r, err := api.Create(t.Context(), small("a", 1))
		must(t, err)
		_, err = api.Wait(t.Context(), *r.Operation, nil)
		must(t, err)
		s := measured(t, api, "a-w-0", "cpu", 1)
		vm, err := api.VM(t.Context(), "a-w-0")
		must(t, err)
		if x := s.Items[len(s.Items)-1]; s.VM != "a-w-0" || s.Host != vm.Host || s.Unit != "cores" || s.StepSeconds != 10 || s.KeptSeconds != 3600 || x.Samples != 1 || x.Cap == nil ||
			*x.Cap <= 0 || x.Mean < 0 || x.Max < x.Mean || x.Throttled == nil || x.Balloon != nil || x.At.Second()%10 != 0 {
			t.Errorf("%+v", s)
		}
		m := measured(t, api, vm.ID, "memory", 1) // by its id, too
		if x := m.Items[0]; m.VM != "a-w-0" || m.Unit != "bytes" || x.Mean < float64(vm.Balloon) || x.Balloon == nil || *x.Balloon != float64(vm.Balloon) || x.Cap != nil {
			t.Errorf("%+v of %+v", m, vm)
		}
		if vm.MemoryUsed <= 0 {
			t.Errorf("%+v", vm)
		}
		hours, err := api.Samples(t.Context(), "a-w-0", "", "1h", "1h")
		if err != nil || len(hours.Items) == 0 || hours.Resolution != "1h" || hours.Resource != "cpu" {
			t.Errorf("%+v, %v", hours, err)
		}
		if later, err := api.Samples(t.Context(), "a-w-0", "", "raw", time.Now().Add(time.Hour).Format(time.RFC3339)); err != nil || len(later.Items) != 0 {
			t.Errorf("%+v, %v", later, err)
		}
		f, err := api.Forecast(t.Context(), "a-w-0", "memory", 3)
		if err != nil || f.VM != "a-w-0" || f.Host != vm.Host || f.Unit != "bytes" || f.StepSeconds != 60 || f.Trusted || f.Reason == "" || f.Declared != 64<<20 || f.Need != f.Declared ||
			f.Items == nil || f.Models == nil {
			t.Errorf("%+v, %v", f, err)
		}
		for path, want := range map[string]int{
			"/v1/vms/nowhere/forecast":                  http.StatusNotFound,
			"/v1/vms/a-w-0/forecast?steps=0":            http.StatusUnprocessableEntity,
			"/v1/vms/a-w-0/forecast?steps=61":           http.StatusUnprocessableEntity,
			"/v1/vms/a-w-0/forecast?steps=ten":          http.StatusUnprocessableEntity,
			"/v1/vms/a-w-0/forecast?resource=disk":      http.StatusUnprocessableEntity,
			"/v1/vms/a-w-0/forecast":                    http.StatusOK,
			"/v1/vms/nowhere/samples":                   http.StatusNotFound,
			"/v1/vms/a-w-0/samples?resource=disk":       http.StatusUnprocessableEntity,
			"/v1/vms/a-w-0/samples?resolution=1s":       http.StatusUnprocessableEntity,
			"/v1/vms/a-w-0/samples?since=yesterday":     http.StatusUnprocessableEntity,
			"/v1/vms/a-w-0/samples?since=-5m":           http.StatusUnprocessableEntity,
			"/v1/vms/a-w-0/samples?sinse=5m":            http.StatusUnprocessableEntity,
			"/v1/vms/a-w-0/samples?consistency=stale":   http.StatusOK,
			"/v1/vms/a-w-0/samples?since=90s":           http.StatusOK,
			"/v1/vms/a-w-0/samples?since=2026-03-01T0Z": http.StatusUnprocessableEntity,
		} {
			if resp, body := c.request(t, "GET", path, ""); resp.StatusCode != want {
				t.Errorf("%s: %d, want %d: %s", path, resp.StatusCode, want, body)
			}
		}
		_, body := c.request(t, "GET", "/metrics", "")
		for _, name := range []string{"evenkeel_vm_cpu_used_cores", "evenkeel_vm_cpu_cap_cores", "evenkeel_vm_memory_used_bytes"} {
			if n := strings.Count(string(body), "\n"+name+"{"); n != 1 || !strings.Contains(string(body), name+`{virtual_cluster="a",vm="a-w-0"} `) {
				t.Errorf("%s: %d series of one VM", name, n)
			}
		}
		// Of a VM that is on no host nothing is kept anywhere.
		spec := small("b", 2) // fits only when a has gone
		spec.Groups[0].Memory, spec.OnFull = 8140<<20, "queue"
		if _, err := api.Create(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		if resp, body := c.request(t, "GET", "/v1/vms/b-w-0/samples", ""); resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusConflict {
			t.Errorf("of a VM in the queue: %d %s", resp.StatusCode, body)
		}
	})
}

// A VM's history moves with it. Any server answers requests for it. It is not available while the VM's host is unreachable.
func TestSamplesOfMembers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := startSeveral(t, 3, 4, site.Options{CPU: 4, Memory: 8 << 30})
		s.joinHosts("h4")
		_, follower := s.leads()
		api := s.client(follower)
		spec := small("a", 1)
		spec.Groups[0].Affinity = &v1.Affinity{Require: []string{"host:h4"}}
		r, err := api.Create(t.Context(), spec)
		must(t, err)
		_, err = api.Wait(t.Context(), *r.Operation, nil)
		must(t, err)
		before := measured(t, api, "a-w-0", "memory", 2)
		if before.Host != "h4" {
			t.Fatalf("%+v", before)
		}
		t.Logf("before: %d steps", len(before.Items))

		// Only the host knows.
		must(t, s.Stop("h4"))
		var p *client.Error
		if _, err := api.Samples(t.Context(), "a-w-0", "", "", ""); !errors.As(err, &p) || p.Problem.Status != http.StatusServiceUnavailable || p.Problem.Type != v1.ProblemUnavailable ||
			!strings.Contains(p.Problem.Detail, "h4") || !strings.Contains(p.Problem.Detail, "again") {
			t.Errorf("while its host is away: %v", err)
		}
		if _, err := api.Forecast(t.Context(), "a-w-0", "", 10); !errors.As(err, &p) || p.Problem.Status != http.StatusServiceUnavailable || !strings.Contains(p.Problem.Detail, "h4") {
			t.Errorf("a forecast while its host is away: %v", err)
		}
		must(t, s.Start("h4"))
		must(t, s.Await(t.Context(), "its host has a forecast again", func() bool {
			f, err := api.Forecast(t.Context(), "a-w-0", "", 10)
			return err == nil && f.Host == "h4" && !f.Trusted
		}))
		again := measured(t, api, "a-w-0", "memory", len(before.Items))
		if !again.Items[0].At.Equal(before.Items[0].At) {
			t.Errorf("a restart of the host lost what was measured before %v: it begins at %v", before.Items[0].At, again.Items[0].At)
		}
	})
}

// TestHistoryMoves: the target of a move gets what its source measured, and what both measured is one history.
func TestHistoryMoves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := startSeveral(t, 1, 3, site.Options{CPU: 4, Memory: 8 << 30})
		s.joinHosts("h2", "h3")
		api := s.client("h1")
		spec := small("a", 1)
		spec.Groups[0].Affinity = &v1.Affinity{Prefer: []string{"host:h2"}}
		r, err := api.Create(t.Context(), spec)
		must(t, err)
		_, err = api.Wait(t.Context(), *r.Operation, nil)
		must(t, err)
		before := measured(t, api, "a-w-0", "memory", 2)
		if before.Host != "h2" {
			t.Fatalf("%+v", before)
		}
		begun, err := api.Drain(t.Context(), "h2", v1.DrainRequest{Reason: "away"})
		must(t, err)
		_, err = api.Wait(t.Context(), *begun.Operation, nil)
		must(t, err)
		var after v1.Samples
		must(t, s.Await(t.Context(), "the target has what the source measured", func() bool {
			after, err = api.Samples(t.Context(), "a-w-0", "memory", "raw", "")
			return err == nil && after.Host != "h2" && len(after.Items) > 0 && after.Items[0].At.Equal(before.Items[0].At)
		}))
		t.Logf("%d steps at the source, %d at the target", len(before.Items), len(after.Items))
		vm, err := api.VM(t.Context(), "a-w-0")
		must(t, err)
		// The source keeps it for a while, for its target only.
		m := s.Member("h1")
		if _, err := m.HistoryFor(t.Context(), vm.Host, vm.ID); err != nil {
			t.Errorf("for the target: %v", err)
		}
		for _, other := range []string{"h2", "h1", "nowhere"} {
			if other != vm.Host {
				if _, err := m.HistoryFor(t.Context(), other, vm.ID); err == nil {
					t.Errorf("host %s was given the history of a VM on %s", other, vm.Host)
				}
			}
		}
	})
}
