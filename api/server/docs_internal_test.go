package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
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
	var walk func(prefix string, shown reflect.Value, patch reflect.Type)
	walk = func(prefix string, shown reflect.Value, patch reflect.Type) {
		byName := map[string]reflect.StructField{}
		for f := range fields(patch) {
			byName[jsonName(f)] = f
		}
		for f := range fields(shown.Type()) {
			name, v := jsonName(f), shown.FieldByIndex(f.Index)
			change, may := byName[name]
			if !may {
				continue // read only
			}
			if v.Kind() == reflect.Struct {
				walk(name+".", v, change.Type.Elem())
				continue
			}
			listed = append(listed, prefix+name)
			value := fmt.Sprintf("`%v`", v.Interface())
			if size, is := v.Interface().(v1.Size); is {
				value = "`" + size.Short() + "`"
			}
			if v.IsZero() && v.Kind() != reflect.Bool && v.Kind() != reflect.Float64 && v.Kind() != reflect.Int && v.Kind() != reflect.Int64 || v.Kind() == reflect.Slice {
				value = "none"
			}
			values := map[reflect.Kind]string{reflect.Bool: "`true`, `false`", reflect.Slice: "names, with commas between", reflect.String: "text", reflect.Float64: "number", reflect.Int: "number"}[v.Kind()]
			if _, is := v.Interface().(v1.Size); is {
				values = "bytes, or a size such as `2GiB`"
			}
			if strings.Contains(f.Tag.Get("doc"), "Go duration") {
				values = "a time such as `10m`"
			}
			if e := change.Tag.Get("enum"); e != "" {
				values = "`" + strings.ReplaceAll(e, ",", "`, `") + "`"
				if v.Kind() == reflect.Slice {
					values = "any of " + values + ", with commas between"
				}
			}
			if lo := change.Tag.Get("minimum"); lo != "" {
				values = lo + " or more"
				if hi := change.Tag.Get("maximum"); hi != "" {
					values = lo + " to " + hi
				}
			}
			table.WriteString(docpage.Row("`"+prefix+name+"`", value, values, strings.ReplaceAll(f.Tag.Get("doc"), ", as a Go duration", "")))
		}
	}
	walk("", reflect.ValueOf(settings(state.DefaultSettings())), reflect.TypeFor[v1.SettingsPatch]())
	slices.Sort(listed)
	if keys := v1.SettingKeys(); !slices.Equal(listed, keys) {
		t.Errorf("the page would list %q, and there are %q", listed, keys)
	}
	if err := docpage.Part(reference+"settings.md", "settings", table.String(), writeDocs); err != nil {
		t.Error(err)
	}
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func fields(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if !yield(t.Field(i)) {
				return
			}
		}
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
