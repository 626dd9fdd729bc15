package server_test

import (
	"net/http"
	"strings"
	"testing"

	"evenkeel/api/client"
	"evenkeel/api/v1"
)

// A VC whose needs are estimated is taken, says so, and is scaled as any other; the switch and what it does are seen.
func TestShaping(t *testing.T) {
	t.Parallel()
	c := start(t)
	api := c.client(t)
	spec, err := v1.ParseVCJSON([]byte(`{"name":"a","needs":"estimated","aggressiveness":"conservative","groups":[{"name":"w","cpu":1,"memory":"1GiB","memoryMin":"256MiB","role":"elastic"}]}`))
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
	now, err := api.Shaping(t.Context())
	must(t, err)
	if now.Mode != "shadow" || now.Needs != "declared" || now.Aggressiveness != "balanced" || now.VMs == nil || now.Hours == nil || now.Waiting == nil {
		t.Errorf("%+v", now)
	}
	on, needs, bold := "on", "estimated", "aggressive"
	set, err := api.SetSettings(t.Context(), v1.SettingsPatch{Shaping: &v1.ShapingPatch{Mode: &on, Needs: &needs, Aggressiveness: &bold}})
	must(t, err)
	if want := (v1.ShapingSettings{Mode: on, Needs: needs, Aggressiveness: bold}); set.Shaping != want {
		t.Errorf("%+v", set.Shaping)
	}
	r, err = api.Create(t.Context(), spec, client.DryRun())
	must(t, err)
	if r.VirtualCluster.Needs != "estimated" || r.VirtualCluster.Aggressiveness != bold {
		t.Errorf("%+v", r.VirtualCluster)
	}
	if text := explainText(t, api, "a"); !strings.Contains(text, "its needs are estimated, conservative") {
		t.Error(text)
	}
	if now, err = api.Shaping(t.Context()); err != nil || now.Mode != "on" {
		t.Errorf("%+v, %v", now, err)
	}
	for _, doc := range []string{`{"shaping":{}}`, `{"shaping":{"mode":"maybe"}}`, `{"shaping":{"needs":"guessed"}}`, `{"shaping":{"aggressiveness":"reckless"}}`, `{"shaping":{"aggressivness":"balanced"}}`} {
		if resp, body := c.request(t, "PATCH", "/v1/cluster/settings", doc); resp.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("%s: %s", doc, body)
		}
	}
	patch, err := v1.ParseSettingPairs([]string{"shaping.mode=off", "moves.mode=off", "minYield=0.3"})
	must(t, err)
	set, err = api.SetSettings(t.Context(), patch)
	must(t, err)
	if set.Shaping.Mode != "off" || set.Moves.Mode != "off" || set.MinYield != 0.3 {
		t.Errorf("%+v", set)
	}
}

func explainText(t *testing.T, api *client.Client, name string) string {
	t.Helper()
	e, err := api.Explain(t.Context(), name)
	must(t, err)
	return strings.Join(e.Lines, "\n")
}
