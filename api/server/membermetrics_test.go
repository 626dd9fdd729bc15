package server_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/test/openid"
	"evenkeel/test/site"
)

// scrape the metrics of a server: by name and labels as they are written.
func (s *several) scrape(name string) map[string]string {
	s.t.Helper()
	resp, body := s.ask(name, "GET", "/metrics", "")
	if resp.StatusCode != 200 {
		s.t.Fatalf("%s: %s", resp.Status, body)
	}
	out := map[string]string{}
	for line := range strings.Lines(body) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && !strings.HasPrefix(line, "#") {
			out[name] = value
		}
	}
	return out
}

// Every metric that an alert reads is there, and where the list above the alerts says.
func TestAlertsMetrics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := startSeveral(t, 3, 3, site.Options{Backups: time.Hour, OpenID: verifiers(t, openid.InMemory(t, time.Hour))})
		leader, follower := s.leads()
		c := s.client(leader)
		spec := small("a", 3)
		spec.OnHostLoss = "restart"
		spec.Groups[0].Disk = &v1.Disk{Size: 1 << 30, Ephemeral: true}
		r, err := c.Create(t.Context(), spec)
		must(t, err)
		_, err = c.Wait(t.Context(), *r.Operation, nil)
		must(t, err)
		s.device.fail(errNoAnswer)
		if _, err := c.Fence(t.Context(), "h2", false); !client.IsProblem(err, v1.ProblemUnavailable) {
			t.Errorf("%v", err)
		}
		if err := s.Await(t.Context(), "a snapshot is saved", func() bool {
			return s.scrape(leader)["evenkeel_snapshot_last_success_timestamp_seconds"] != "0"
		}); err != nil {
			t.Fatalf("%v: %s", err, s.log)
		}

		rules, err := os.ReadFile("../../packaging/prometheus/evenkeel.rules.yaml")
		must(t, err)
		listed := regexp.MustCompile(`(?m)^#   (evenkeel_\w+) +(each|all|leader) `).FindAllStringSubmatch(string(rules), -1)
		if len(listed) < 20 {
			t.Fatalf("%d metrics are listed", len(listed))
		}
		has := func(metrics map[string]string, name string) bool {
			for m := range metrics {
				if base, _, _ := strings.Cut(m, "{"); base == name {
					return true
				}
			}
			return false
		}
		// A clock's rate is known after minutes only; control tests it with a clock of its own.
		late := []string{"evenkeel_host_clock_rate_error_ratio"}
		onLeader, onFollower := s.scrape(leader), s.scrape(follower)
		for _, m := range listed {
			if slices.Contains(late, m[1]) {
				continue
			}
			if !has(onLeader, m[1]) {
				t.Errorf("the leader does not have %s", m[1])
			}
			if want := m[2] != "leader"; has(onFollower, m[1]) != want {
				t.Errorf("a follower has %s: %v, and the rules say %q", m[1], !want, m[2])
			}
		}
		for name, want := range map[string]string{
			"evenkeel_server_leader": "1", "evenkeel_server_last_contact_seconds": "0", "evenkeel_ready": "1", "evenkeel_snapshot_interval_seconds": "3600",
			"evenkeel_voters": "3", "evenkeel_failure_tolerance": "1", "evenkeel_fencing_enabled": "1", "evenkeel_recovery_freeze_hosts": "0", "evenkeel_duplicate_vms": "0",
			"evenkeel_queue_oldest_seconds": "0", `evenkeel_host_up{host="h1"}`: "1", `evenkeel_host_lease_enforced{host="h1"}`: "1",
			`evenkeel_host_watchdog_armed{host="h1"}`: "0", `evenkeel_host_watchdog_configured{host="h1"}`: "0", `evenkeel_host_unproved_vms{host="h1"}`: "0",
			`evenkeel_host_unmanaged_vms{host="h1"}`: "0", `evenkeel_fence_attempts_total{host="h2",result="failed"}`: "1", `evenkeel_fence_attempts_total{host="h1",result="failed"}`: "0",
			`evenkeel_certificate_lifetime_seconds{kind="member",member="` + follower + `"}`: "2.592e+06", `evenkeel_virtual_cluster_yield{virtual_cluster="a"}`: "1",
		} {
			if got := onLeader[name]; got != want {
				t.Errorf("%s is %q, want %s", name, got, want)
			}
		}
		if onFollower["evenkeel_server_leader"] != "0" || onFollower["evenkeel_voters"] != "3" {
			t.Errorf("the follower says that it leads: %s, and that %s vote", onFollower["evenkeel_server_leader"], onFollower["evenkeel_voters"])
		}
		restartable := 0
		for name, v := range onFollower {
			if strings.HasPrefix(name, "evenkeel_host_restartable_vms") && v != "0" {
				restartable++
			}
		}
		if restartable == 0 {
			t.Error("no host has restartable VMs")
		}

		_, err = c.SetFencing(t.Context(), false, "")
		must(t, err)
		if got := s.scrape(leader)["evenkeel_fencing_enabled"]; got != "0" {
			t.Errorf("fencing is disabled, and fencing_enabled is %s", got)
		}
	})
}

// VMs of a host that nothing proves dead are counted as what waits for a person.
func TestUnprovedMetric(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := startSeveral(t, 1, 3, site.Options{Lease: 4 * time.Second})
		c := s.client("h1")
		must(t, s.Join(t.Context(), "h3", false, true))
		_, err := c.Cordon(t.Context(), "h1", "")
		must(t, err)
		must(t, s.Await(t.Context(), "h3 is ready", func() bool { h, err := c.Host(t.Context(), "h3"); return err == nil && h.State == "ready" }))
		spec := small("a", 2)
		spec.OnHostLoss = "restart"
		spec.Groups[0].Disk = &v1.Disk{Size: 1 << 30, Ephemeral: true}
		r, err := c.Create(t.Context(), spec)
		must(t, err)
		_, err = c.Wait(t.Context(), *r.Operation, nil)
		must(t, err)
		must(t, s.Stop("h3"))
		must(t, s.Await(t.Context(), "two VMs are unproved", func() bool { return s.scrape("h1")[`evenkeel_host_unproved_vms{host="h3"}`] == "2" }))
		if got := s.scrape("h1")[`evenkeel_host_up{host="h3"}`]; got != "0" {
			t.Errorf("the host is up: %s", got)
		}
		status, err := c.Status(t.Context())
		must(t, err)
		if !mentions(status.Conditions, "2 restartable VMs") || status.Conditions[0].Severity != "critical" {
			t.Errorf("%+v", status.Conditions)
		}
	})
}
