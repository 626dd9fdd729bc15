package main

import (
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-metrics"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"evenkeel/api/client"
	"evenkeel/api/v1"
	"evenkeel/internal/docpage"
	"evenkeel/test/patience"
)

// TestMetricsPage: docs/reference/metrics.md lists what is shown of the libraries' metrics.
func TestMetricsPage(t *testing.T) {
	var rows []string
	for _, m := range libraryMetrics {
		labels := "-"
		if names := m.labels(); len(names) > 0 {
			labels = "`" + strings.Join(names, "`, `") + "`"
		}
		rows = append(rows, docpage.Row("`"+m.name+"`", labels, m.help))
	}
	slices.Sort(rows)
	table := "| metric | labels | meaning |\n|---|---|---|\n" + strings.Join(rows, "")
	if err := docpage.Part("../../docs/reference/metrics.md", "metrics of Raft and gossip", table, os.Getenv("EVENKEEL_DOCS") == "write"); err != nil {
		t.Error(err)
	}
}

// A value is recorded under our name, in seconds, with the labels that are listed; what is not listed is left out.
func TestLibrarySink(t *testing.T) {
	r := prometheus.NewRegistry()
	s, err := newLibrarySink(r)
	if err != nil {
		t.Fatal(err)
	}
	s.IncrCounter([]string{"raft", "apply"}, 2)
	s.IncrCounter([]string{"raft", "state", "leader"}, 1)
	s.IncrCounter([]string{"raft", "barrier"}, 1)
	s.IncrCounterWithLabels([]string{"raft", "replication", "appendEntries", "logs"}, 3, []metrics.Label{{Name: "peer_id", Value: "h2"}})
	s.IncrCounter([]string{"raft", "replication", "appendEntries", "logs", "h2"}, 3)
	s.SetGaugeWithLabels([]string{"memberlist", "node", "instances"}, 4, []metrics.Label{{Name: "network", Value: "x"}, {Name: "node_state", Value: "alive"}})
	s.AddSample([]string{"raft", "commitTime"}, 1500)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += " " + l.GetName() + "=" + l.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetHistogram().GetSampleSum()
		}
	}
	for name, want := range map[string]float64{
		"evenkeel_raft_commands_total": 2, "evenkeel_raft_state_changes_total state=leader": 1, "evenkeel_raft_state_changes_total state=follower": 0,
		"evenkeel_raft_replicated_entries_total peer=h2": 3, "evenkeel_gossip_members state=alive": 4, "evenkeel_raft_commit_seconds": 1.5,
	} {
		if v, shown := got[name]; !shown || v != want {
			t.Errorf("%s is %v (shown: %v), want %v", name, v, shown, want)
		}
	}
	for name := range got {
		if strings.Contains(name, "barrier") {
			t.Errorf("%s is shown and not listed", name)
		}
	}
}

// TestMetricNames: what two servers show after they did something passes the check that `promtool check metrics` makes.
func TestMetricNames(t *testing.T) {
	h1, h2 := newHost(t, "h1"), newHost(t, "h2")
	h1.start()
	made, err := client.NewLocal(h1.socket).Init(t.Context(), v1.SetupInit{})
	if err != nil {
		t.Fatal(err)
	}
	api := admin(t, made, client.Config{Address: h1.advertise})
	k, err := api.MakeJoinToken(t.Context(), v1.JoinTokenRequest{Server: true, Agent: true})
	if err != nil {
		t.Fatal(err)
	}
	h2.start()
	if _, err := client.NewLocal(h2.socket).Join(t.Context(), v1.SetupJoin{Token: k.Token, Addresses: []string{h1.advertise}}); err != nil {
		t.Fatal(err)
	}
	h1.await("both hosts are ready", func() bool {
		s, err := api.Status(t.Context())
		return err == nil && s.Hosts["ready"] == 2
	})
	if _, err := api.Cordon(t.Context(), "h2", "to see its metrics"); err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Timeout: patience.Within(patience.Stall), Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer browser.CloseIdleConnections()
	for _, at := range []string{h1.advertise, h2.advertise} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+at+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+made.AdminToken)
		resp, err := browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", at, resp.Status, err)
		}
		text := string(body)
		for _, name := range []string{"evenkeel_raft_commands_total ", "evenkeel_raft_commit_seconds_count ", "evenkeel_raft_log_write_seconds_count ",
			`evenkeel_raft_replication_seconds_count{peer="h2",rpc="append_entries"} `, "evenkeel_host_cordoned{", "evenkeel_voters "} {
			if _, after, found := strings.Cut(text, "\n"+name); !found || strings.HasPrefix(after, "0\n") {
				t.Errorf("%s shows no %s", at, name)
			}
		}
		problems, err := promlint.New(strings.NewReader(text)).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s: %s", at, p.Metric, p.Text)
		}
	}
}
