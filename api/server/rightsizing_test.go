package server_test

import (
	"crypto/sha256"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"evenkeel/api/client"
	"evenkeel/api/server"
	"evenkeel/api/v1"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/scheduler/rightsizing"
	"evenkeel/cluster/state"
)

// A VC whose needs are estimated is taken, says so, and is scaled as any other; the switch and what it does are seen.
func TestRightsizing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := start(t)
		api := c.client(t)
		spec, err := v1.ParseVCFile([]byte(`{"name":"a","needs":"estimated","aggressiveness":"conservative","groups":[{"name":"w","cpu":1,"memory":"1GiB","memoryMin":"256MiB","role":"elastic"}]}`))
		must(t, err)
		r, err := api.Create(t.Context(), spec)
		must(t, err)
		if r.VirtualCluster.Needs != "estimated" || r.VirtualCluster.Aggressiveness != "conservative" || r.VirtualCluster.Groups[0].Need != 1 {
			t.Errorf("%+v", r.VirtualCluster)
		}
		spec.Name, spec.Needs, spec.Aggressiveness = "b", "", ""
		r, err = api.Create(t.Context(), spec, client.DryRun())
		must(t, err)
		if r.VirtualCluster.Needs != "declared" || r.VirtualCluster.Aggressiveness != "" {
			t.Errorf("%+v", r.VirtualCluster)
		}
		now, err := api.Rightsizing(t.Context())
		must(t, err)
		if now.Mode != "shadow" || now.Needs != "declared" || now.Aggressiveness != "balanced" || now.VMs == nil || now.Hours == nil || now.Waiting == nil ||
			now.Admission.InForce || now.Admission.Quality != nil || now.Admission.Target != 0.99 || len(now.Admission.Margins) != 3 || len(now.Admission.Hosts) == 0 {
			t.Errorf("%+v", now)
		}
		on, needs, aggressiveness := "on", "estimated", "aggressive"
		set, err := api.SetSettings(t.Context(), v1.SettingsPatch{Rightsizing: &v1.RightsizingPatch{Mode: &on, Needs: &needs, Aggressiveness: &aggressiveness}})
		must(t, err)
		if want := (v1.RightsizingSettings{Mode: on, Needs: needs, Aggressiveness: aggressiveness, DisabledStages: []string{}}); !cmp.Equal(set.Rightsizing, want) {
			t.Errorf("%+v", set.Rightsizing)
		}
		r, err = api.Create(t.Context(), spec, client.DryRun())
		must(t, err)
		if r.VirtualCluster.Needs != "estimated" || r.VirtualCluster.Aggressiveness != aggressiveness {
			t.Errorf("%+v", r.VirtualCluster)
		}
		if text := explainText(t, api, "a"); !strings.Contains(text, "its needs are estimated, conservative") {
			t.Error(text)
		}
		if now, err = api.Rightsizing(t.Context()); err != nil || now.Mode != "on" || !now.Admission.InForce {
			t.Errorf("%+v, %v", now, err)
		}
		if p := now.Admission.Margins[1]; p != (v1.Margin{Aggressiveness: "balanced", Factor: 1.5, Start: 1.5, Min: 1.01, Max: 2, K1: 0.05, K2: 3}) {
			t.Errorf("%+v", p)
		}
		if h := now.Admission.Hosts[0]; h.Headroom.CPU <= 0 || h.Headroom.Memory <= 0 || h.Headroom != h.Estimated || h.Ignored == "" && h.Available == nil {
			t.Errorf("%+v", h)
		}
		for _, doc := range []string{`{"rightsizing":{}}`, `{"rightsizing":{"mode":"maybe"}}`, `{"rightsizing":{"needs":"guessed"}}`, `{"rightsizing":{"aggressiveness":"reckless"}}`, `{"rightsizing":{"aggressivness":"balanced"}}`, `{"rightsizing":{"disabledStages":["reserve","buffer"]}}`, `{"rightsizing":{"disabledStages":"reserve"}}`} {
			if resp, body := c.request(t, "PATCH", "/v1/cluster/settings", doc); resp.StatusCode != http.StatusUnprocessableEntity {
				t.Errorf("%s: %s", doc, body)
			}
		}
		off, err := v1.ParseSettingPairs([]string{"rightsizing.disabledStages=margin,availability"})
		must(t, err)
		_, err = api.SetSettings(t.Context(), off)
		must(t, err)
		if now, err = api.Rightsizing(t.Context()); err != nil || len(now.Stages) != 5 || !now.Stages[0].On || now.Stages[1].On || now.Stages[2].On || !now.Stages[3].On || !now.Stages[4].On || now.Admission.Margins[1].Factor != 1 || !strings.Contains(now.Admission.Hosts[0].Ignored, "switched off") {
			t.Errorf("stages that are off: %+v, %v", now, err)
		}
		if text := explainText(t, api, "a"); !strings.Contains(text, "switched off: margin, availability") {
			t.Error(text)
		}
		patch, err := v1.ParseSettingPairs([]string{"rightsizing.disabledStages=", "rightsizing.mode=off", "moves.mode=off", "minYield=0.3"})
		must(t, err)
		set, err = api.SetSettings(t.Context(), patch)
		must(t, err)
		if set.Rightsizing.Mode != "off" || len(set.Rightsizing.DisabledStages) > 0 || set.Moves.Mode != "off" || set.MinYield != 0.3 {
			t.Errorf("%+v", set)
		}
	})
}

// stats stands in for what a leader counted.
type stats struct {
	*leader.Service
	f leader.RightsizingStats
}

func (x stats) RightsizingStats() leader.RightsizingStats { return x.f }

// What a leader counted is in /metrics, under the names and with the help that dashboards know; of one that has not looked yet nothing is.
func TestRightsizingMetrics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := start(t)
		metrics := func(f leader.RightsizingStats) string {
			t.Helper()
			raw := sha256.Sum256([]byte(c.token))
			api := server.New(stats{c.service, f}, server.Options{Tokens: []server.TokenHash{raw}, Version: "test", Logger: slog.New(slog.DiscardHandler)})
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil)
			r.Header.Set("Authorization", "Bearer "+c.token)
			w := httptest.NewRecorder()
			api.ServeHTTP(w, r)
			if w.Code != http.StatusOK {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			var lines []string
			for line := range strings.Lines(w.Body.String()) {
				if strings.Contains(line, "evenkeel_rightsizing_") {
					lines = append(lines, line)
				}
			}
			return strings.Join(lines, "")
		}
		if text := metrics(leader.RightsizingStats{}); text != "" {
			t.Errorf("before the first look:\n%s", text)
		}
		got := metrics(leader.RightsizingStats{Stats: rightsizing.Stats{Mode: state.RightsizingOn, Reclaimed: state.Resources{CPU: 2.5, Memory: 3 << 30}, VMs: 7, UnderPressure: 2, Excluded: 3, Preempted: 4, ShortCPU: 1.5, ShortMemory: 0.25},
			Quality: 0.97, Margins: [3]leader.MarginStatus{{Aggressiveness: "conservative", Factor: 1.75}, {Aggressiveness: "balanced", Factor: 1.25}, {Aggressiveness: "aggressive", Factor: 1.01}}})
		want := `# HELP evenkeel_rightsizing_margin_factor By how much larger estimated needs count where new VMs are placed, in the shadow would count; of the leader only.
# TYPE evenkeel_rightsizing_margin_factor gauge
evenkeel_rightsizing_margin_factor{aggressiveness="aggressive"} 1.01
evenkeel_rightsizing_margin_factor{aggressiveness="balanced"} 1.25
evenkeel_rightsizing_margin_factor{aggressiveness="conservative"} 1.75
# HELP evenkeel_rightsizing_mode 1 for the mode of rightsizing that is set: off, shadow or on; of the leader only.
# TYPE evenkeel_rightsizing_mode gauge
evenkeel_rightsizing_mode{mode="off"} 0
evenkeel_rightsizing_mode{mode="on"} 1
evenkeel_rightsizing_mode{mode="shadow"} 0
# HELP evenkeel_rightsizing_preempted_vms_total VMs that were stopped to make room in memory for others; since the server began to lead.
# TYPE evenkeel_rightsizing_preempted_vms_total counter
evenkeel_rightsizing_preempted_vms_total 4
# HELP evenkeel_rightsizing_quality_ratio Share of the looks at VMs in the last period at which a VM had what it could use, in the shadow would have; of the leader only.
# TYPE evenkeel_rightsizing_quality_ratio gauge
evenkeel_rightsizing_quality_ratio 0.97
# HELP evenkeel_rightsizing_reclaimed_bytes Memory that was declared and is given to others; in the shadow what would be; of the leader only.
# TYPE evenkeel_rightsizing_reclaimed_bytes gauge
evenkeel_rightsizing_reclaimed_bytes 3.221225472e+09
# HELP evenkeel_rightsizing_reclaimed_cores CPU that was declared and is not needed by estimate; in the shadow what would be reclaimed; of the leader only.
# TYPE evenkeel_rightsizing_reclaimed_cores gauge
evenkeel_rightsizing_reclaimed_cores 2.5
# HELP evenkeel_rightsizing_short_vm_minutes_total VM-minutes in which a VM was short of what it would have used, or in the shadow would have been; since the server began to lead.
# TYPE evenkeel_rightsizing_short_vm_minutes_total counter
evenkeel_rightsizing_short_vm_minutes_total{resource="cpu"} 1.5
evenkeel_rightsizing_short_vm_minutes_total{resource="memory"} 0.25
# HELP evenkeel_rightsizing_vms VMs whose needs are estimated: all, those under memory pressure, those excluded, whose memory is not touched; of the leader only.
# TYPE evenkeel_rightsizing_vms gauge
evenkeel_rightsizing_vms{which="all"} 7
evenkeel_rightsizing_vms{which="excluded"} 3
evenkeel_rightsizing_vms{which="under-pressure"} 2
`
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func explainText(t *testing.T, api *client.Client, name string) string {
	t.Helper()
	e, err := api.Explain(t.Context(), name)
	must(t, err)
	return strings.Join(e.Lines, "\n")
}
