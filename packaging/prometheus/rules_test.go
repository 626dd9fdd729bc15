// Package prometheus tests the alerts that are shipped beside it as far as that
// needs no Prometheus: what promtool has to say is in make test-alerts.
package prometheus

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// load reads the rules, and the metrics that the comment above them lists.
func load(t *testing.T) (rules []rule, listed map[string]string) {
	t.Helper()
	text, err := os.ReadFile("evenkeel.rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string `yaml:"name"`
			Rules []rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.UnmarshalWithOptions(text, &file, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		rules = append(rules, g.Rules...)
	}
	listed = map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^#   (evenkeel_\w+) +(each|all|leader) +\S`).FindAllStringSubmatch(string(text), -1) {
		listed[m[1]] = m[2]
	}
	if len(rules) == 0 || len(listed) == 0 {
		t.Fatalf("%d rules, %d metrics", len(rules), len(listed))
	}
	return rules, listed
}

// sections are the texts of a Markdown file below its headings, by the names that links have for these.
func sections(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out, current := map[string]string{}, ""
	for line := range strings.Lines(string(text)) {
		if heading, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			name := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			current = strings.ReplaceAll(name, " ", "-")
		}
		out[current] += line
	}
	return out
}

// TestRules: every alert says what it is, how bad, and where to read on; and
// reads metrics that the list above it has.
func TestRules(t *testing.T) {
	rules, listed := load(t)
	sections := sections(t, "../../docs/reference/alerts.md")
	used := map[string]bool{}
	names := map[string]bool{}
	for _, r := range rules {
		if names[r.Alert] || !strings.HasPrefix(r.Alert, "Evenkeel") {
			t.Errorf("alert %q: the name is taken, or does not begin with Evenkeel", r.Alert)
		}
		names[r.Alert] = true
		if !slices.Contains([]string{"info", "warning", "critical"}, r.Labels["severity"]) {
			t.Errorf("%s: severity %q", r.Alert, r.Labels["severity"])
		}
		if r.For != "" {
			if _, err := time.ParseDuration(r.For); err != nil {
				t.Errorf("%s: for: %v", r.Alert, err)
			}
		}
		if len(r.Annotations["summary"]) < 10 || len(r.Annotations["description"]) < 30 {
			t.Errorf("%s: say in summary and description what is wrong", r.Alert)
		}
		anchor, ok := strings.CutPrefix(r.Annotations["runbook_url"], "docs/reference/alerts.md#")
		if text, is := sections[anchor]; !ok || !is {
			t.Errorf("%s: runbook_url %q is no heading of docs/reference/alerts.md", r.Alert, r.Annotations["runbook_url"])
		} else if !strings.Contains(text, "`"+r.Alert+"`") {
			t.Errorf("%s: section %s of docs/reference/alerts.md does not name it", r.Alert, anchor)
		}
		found := regexp.MustCompile(`\bevenkeel_\w+`).FindAllString(r.Expr, -1)
		if len(found) == 0 && !strings.HasPrefix(r.Expr, "up{") {
			t.Errorf("%s reads no metric", r.Alert)
		}
		for _, m := range found {
			used[m] = true
			if listed[m] == "" {
				t.Errorf("%s reads %s, which the list above the rules does not have", r.Alert, m)
			}
		}
	}
	for m := range listed {
		if !used[m] {
			t.Errorf("no alert reads %s: take it off the list", m)
		}
	}
}

// TestTested: promtool's tests set every alert off.
func TestTested(t *testing.T) {
	text, err := os.ReadFile("evenkeel.rules.test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rules, _ := load(t)
	for _, r := range rules {
		if !strings.Contains(string(text), `alertname="`+r.Alert+`"`) {
			t.Errorf("evenkeel.rules.test.yaml never sets %s off", r.Alert)
		}
	}
}
