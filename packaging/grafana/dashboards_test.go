// Package grafana tests the dashboards of Grafana that are shipped beside it, as far as that needs no Grafana.
package grafana

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

type dashboard struct {
	UID    string `json:"uid"`
	Panels []struct {
		ID          int    `json:"id"`
		Title       string `json:"title"`
		Description string `json:"description"`
		GridPos     struct {
			H int `json:"h"`
			W int `json:"w"`
			X int `json:"x"`
			Y int `json:"y"`
		} `json:"gridPos"`
		Datasource struct {
			UID string `json:"uid"`
		} `json:"datasource"`
		Targets []struct {
			Expr string `json:"expr"`
		} `json:"targets"`
	} `json:"panels"`
}

var (
	metric = regexp.MustCompile(`\bevenkeel_\w+`)
	series = regexp.MustCompile(`_(bucket|count|sum)$`) // of a histogram
	row    = regexp.MustCompile("(?m)^\\| `(evenkeel_\\w+)` \\| ([^|]*) \\|")
	labels = regexp.MustCompile(`(?:by|without) \(([^)]*)\)`)
)

// TestDashboards: each panel reads metrics that the servers have, by labels that these have, says what it shows, and overlaps no other.
func TestDashboards(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		known[m[1]] = m[2]
	}
	names, err := filepath.Glob("*.json")
	if err != nil || len(names) < 2 || len(known) < 50 {
		t.Fatalf("%d dashboards, %d metrics, %v", len(names), len(known), err)
	}
	uids := map[string]bool{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.NewDecoder(bytes.NewReader(text)).Decode(&d); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d.UID == "" || uids[d.UID] {
			t.Errorf("%s: uid %q", name, d.UID)
		}
		uids[d.UID] = true
		taken, ids := map[[2]int]string{}, map[int]bool{}
		for _, p := range d.Panels {
			if p.Description == "" || ids[p.ID] || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
				t.Errorf("%s: %s: %+v", name, p.Title, p)
			}
			ids[p.ID] = true
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
						t.Fatalf("%s: %s lies over %q", name, p.Title, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
			for _, q := range p.Targets {
				checkQuery(t, name+": "+p.Title, q.Expr, known)
			}
		}
	}
}

func checkQuery(t *testing.T, where, query string, known map[string]string) {
	t.Helper()
	found := metric.FindAllString(query, -1)
	if len(found) == 0 {
		t.Errorf("%s reads no metric: %s", where, query)
	}
	has := ""
	for _, m := range found {
		of, is := known[m]
		if !is {
			of, is = known[series.ReplaceAllString(m, "")]
		}
		if !is {
			t.Errorf("%s reads %s, which no server has", where, m)
		}
		has += of
	}
	for _, group := range labels.FindAllStringSubmatch(query, -1) {
		for label := range strings.SplitSeq(group[1], ",") {
			if label = strings.TrimSpace(label); label != "le" && !strings.Contains(has, "`"+label+"`") {
				t.Errorf("%s: no metric in it has the label %s: %s", where, label, query)
			}
		}
	}
}
