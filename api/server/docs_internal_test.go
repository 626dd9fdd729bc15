package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"evenkeel/api/v1"
	"evenkeel/cluster/state"
	"evenkeel/internal/docpage"
)

const reference = "../../docs/reference/"

var writeDocs = os.Getenv("EVENKEEL_DOCS") == "write"

// TestMetricsPage: docs/reference/metrics.md lists every metric of our own that a server has.
func TestMetricsPage(t *testing.T) {
	s := &Server{}
	m := newMetrics(s)
	describe := func(cs ...prometheus.Collector) (rows []string) {
		ch := make(chan *prometheus.Desc)
		go func() {
			for _, c := range cs {
				c.Describe(ch)
			}
			close(ch)
		}()
		form := regexp.MustCompile(`fqName: "([^"]*)", help: "(.*?)", (?:unit: "[^"]*", )?constLabels: \{\}, variableLabels: \{([^}]*)\}`)
		for d := range ch {
			f := form.FindStringSubmatch(d.String())
			if f == nil {
				t.Fatalf("a description of another form: %s", d)
			}
			labels := "-"
			if f[3] != "" {
				labels = "`" + strings.ReplaceAll(f[3], ",", "`, `") + "`"
			}
			rows = append(rows, docpage.Row("`"+f[1]+"`", labels, f[2]))
		}
		slices.Sort(rows)
		return rows
	}
	for _, part := range []struct {
		name string
		of   []prometheus.Collector
	}{
		{"metrics of every server", []prometheus.Collector{clusterCollector{s}, auditCollector{s}, m.requests, m.admissions}},
		{"metrics of OpenID Connect", []prometheus.Collector{openIDCollector{s}}},
		{"metrics of members", []prometheus.Collector{memberCollector{s}}},
	} {
		table := "| metric | labels | meaning |\n|---|---|---|\n" + strings.Join(describe(part.of...), "")
		if err := docpage.Part(reference+"metrics.md", part.name, table, writeDocs); err != nil {
			t.Error(err)
		}
	}
}

// TestSettingsPage: docs/reference/settings.md lists every setting with its default, its range and its meaning.
func TestSettingsPage(t *testing.T) {
	var table strings.Builder
	table.WriteString("| setting | default | values | meaning |\n|---|---|---|---|\n")
	listed := []string{}
	for _, row := range settings(state.DefaultSettings()).Rows() {
		listed = append(listed, row.Name)
		value, values := "`"+row.Value+"`", row.Range
		if row.Value == "" {
			value = "none"
		}
		if row.OneOf != nil {
			values = "`" + strings.Join(row.OneOf, "`, `") + "`"
		}
		if row.OneOf != nil && row.IsList {
			values = "any of " + values + ", with commas between"
		}
		table.WriteString(docpage.Row("`"+row.Name+"`", value, values, row.Doc))
	}
	slices.Sort(listed)
	if keys := v1.SettingKeys(); !slices.Equal(listed, keys) {
		t.Errorf("the page would list %q, and there are %q", listed, keys)
	}
	if err := docpage.Part(reference+"settings.md", "settings", table.String(), writeDocs); err != nil {
		t.Error(err)
	}
}

// TestOperationsOnPage: docs/reference/api.md lists every operation of the OpenAPI document.
func TestOperationsOnPage(t *testing.T) {
	of := func(o Options) map[string]string {
		answer := httptest.NewRecorder()
		New(noCluster{}, o).mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/openapi.json", nil))
		var doc struct {
			Paths map[string]map[string]struct{ Summary string }
		}
		if err := json.Unmarshal(answer.Body.Bytes(), &doc); err != nil {
			t.Fatalf("%v: %s", err, answer.Body)
		}
		rows := map[string]string{}
		for path, methods := range doc.Paths {
			for method, operation := range methods {
				name := strings.ToUpper(method) + " " + path
				rows[path+" "+method] = docpage.Row("`"+name+"`", operation.Summary)
			}
		}
		return rows
	}
	table := func(rows map[string]string) string {
		var b strings.Builder
		b.WriteString("| operation | what it does |\n|---|---|\n")
		names := make([]string, 0, len(rows))
		for n := range rows {
			names = append(names, n)
		}
		slices.Sort(names)
		for _, n := range names {
			b.WriteString(rows[n])
		}
		return b.String()
	}
	every := of(Options{})
	members := of(Options{Members: noMembers{}})
	for n := range every {
		delete(members, n)
	}
	if len(every) < 40 || len(members) < 8 {
		t.Fatalf("%d operations of every server, %d of members: too few to be all", len(every), len(members))
	}
	if err := docpage.Part(reference+"api.md", "operations of every server", table(every), writeDocs); err != nil {
		t.Error(err)
	}
	if err := docpage.Part(reference+"api.md", "operations of members", table(members), writeDocs); err != nil {
		t.Error(err)
	}
}

// noCluster and noMembers are never asked.
type (
	noCluster struct{ Cluster }
	noMembers struct{ Members }
)
