package ui

import (
	"fmt"
	"html/template"
	"io/fs"
	"math"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"evenkeel/api/v1"
)

// pages are read once for all servers of a process: many in tests.
var pages = sync.OnceValue(parsePages)

// parsePages reads the templates: each page together with what all pages have.
func parsePages() map[string]*template.Template {
	out := map[string]*template.Template{}
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	for _, name := range names {
		page := strings.TrimSuffix(path.Base(name), ".html")
		if page != "layout" {
			out[page] = template.Must(template.New(page).Funcs(functions).ParseFS(files, "templates/layout.html", name))
		}
	}
	return out
}

// functions of the templates.
var functions = template.FuncMap{
	"asset": assetAddress,
	"bar":   bar, "yieldBar": yieldBar, "curve": curve, "tone": tone, "ago": ago, "full": fullName, "vcPath": vcPath, "vmPath": vmPath, "consolePath": consolePath, "forecastPath": forecastPath, "hostPath": hostPath, "jobPath": jobPath, "filePath": filePath, "tenantPath": tenantPath, "migrationPath": migrationPath, "statesOfOperation": func() []string { return []string{"pending", "done", "failed", "superseded"} }, "statesOfMigration": func() []string { return []string{"running", "done", "failed", "aborted"} },
	"shell": shellCommand, "decision": func(form string, d jobData, do string) decisionForm { return decisionForm{form, do, d} },
	"times": func(a, b float64) float64 { return a * b }, "largest": func(list []float64) float64 {
		if len(list) == 0 {
			return 0
		}
		return slices.Max(list)
	},
	"cores": func(n float64) string { return strconv.FormatFloat(n, 'f', 2, 64) },
	"yield": func(n float64) string { return strconv.FormatFloat(n, 'f', 3, 64) },
	"time":  formatTime,
	"share": func(part, whole float64) float64 {
		if whole <= 0 {
			return 0
		}
		return part / whole
	},
	"size": size, "verbsOfVM": func() []vmVerb { return vmVerbs },
	"bytes": func(n v1.Size) float64 { return float64(n) },
	"level": level,
	"limit": limit, "amount": func(unit string, n float64) string { return limit(unit, &n) },
	"field": func(form url.Values, name string) string { return form.Get(name) },
	"percent": func(n float64) string {
		return strconv.FormatFloat(100*n, 'f', 0, 64) + "%"
	},
}

func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func vcPath(tenant, name string) string { return "/ui/virtual-clusters/" + escapedName(tenant, name) }

// escapedName is a full name as the end of a path.
func escapedName(tenant, name string) string {
	parts := strings.Split(fullName(tenant, name), "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return strings.Join(parts, "/")
}

func forecastPath(tenant, name string) string { return "/ui/forecast/" + escapedName(tenant, name) }

func hostPath(name string) string { return "/ui/hosts/" + url.PathEscape(name) }

// bar draws a share of 1. The figure stands beside it: the bar is for the eye only.
func bar(share float64) template.HTML {
	if math.IsNaN(share) {
		share = 0
	}
	level := "ok"
	switch {
	case share > 1.0005:
		level = "bad"
	case share > 0.9:
		level = "warn"
	}
	return draw(level, share, -1)
}

// level is the class of a share: 0 to 3.
func level(share float64) string {
	switch {
	case share < 0.5:
		return "l0"
	case share < 0.75:
		return "l1"
	case share < 0.9:
		return "l2"
	}
	return "l3"
}

// yieldBar draws a yield, and a line at the one that is promised.
func yieldBar(yield, promised float64) template.HTML {
	level := "ok"
	if yield < promised-1e-9 {
		level = "bad"
	}
	return draw(level, yield, promised)
}

func draw(level string, share, mark float64) template.HTML {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="bar %s" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true"><rect class="rest" width="100" height="10"/><rect class="part" width="%.1f" height="10"/>`,
		level, 100*min(max(share, 0), 1))
	if mark > 0 {
		fmt.Fprintf(&b, `<rect class="mark" x="%.1f" width="1" height="10"/>`, 100*min(mark, 0.99))
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // made of constants and numbers
}

// curve draws the greatest minimum yield over bytes, from 0 to the last bytes of the curve and from 0 to yield 1.
func curve(points []v1.CurvePoint) template.HTML {
	if len(points) < 2 {
		return ""
	}
	const width, height = 600.0, 160.0
	last := float64(max(points[len(points)-1].Bytes, 1))
	var line, dots strings.Builder
	for i, p := range points {
		x, y := width*float64(p.Bytes)/last, height*(1-min(max(p.MinYield, 0), 1))
		if i > 0 {
			fmt.Fprintf(&line, "H%.1f ", x) // the yield of a budget is that of the last point that it reaches
		} else {
			line.WriteString("M")
			fmt.Fprintf(&line, "%.1f ", x)
			fmt.Fprintf(&line, "%.1f ", y)
		}
		fmt.Fprintf(&line, "V%.1f ", y)
		fmt.Fprintf(&dots, `<circle cx="%.1f" cy="%.1f" r="4"/>`, x, y)
	}
	return template.HTML(fmt.Sprintf(`<svg class="curve" viewBox="-10 -10 %.0f %.0f" role="img" aria-label="Greatest minimum yield by bytes sent; the table has the figures"><path d="M0 0V%.0fH%.0f"/><path class="line" d="%s"/>%s</svg>`, //nolint:gosec // made of constants and numbers
		width+20, height+20, height, width, line.String(), dots.String()))
}

// tone of a state: what it looks like. The state itself is always written as well.
func tone(state string) string {
	switch state {
	case "running", "ready", "done", "active", "drained", "held", "valid", "accepted", "confirmed", "re-confirmed", "met":
		return "ok"
	case "failed", "lost", "dead", "down", "degraded", "blocked", "error", "suspended", "expired", "missed":
		return "bad"
	case "stopped", "none", "superseded", "skipped", "rejected", "found", "":
		return "plain"
	}
	return "warn"
}

// ago says how long something is past, as the page is made.
func ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	d := time.Since(t)
	switch {
	case d < 0:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	}
	return fmt.Sprintf("%d days ago", int(d.Hours()/24))
}

// size for people: as it is written in files where that is short, else rounded.
func size(n v1.Size) string {
	if n < 1<<20 || n%(1<<20) == 0 {
		return n.String()
	}
	if n < 1<<30 {
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

// limit of a quota in its unit.
func limit(unit string, n *float64) string {
	switch {
	case n == nil:
		return "unlimited"
	case unit == "bytes":
		return v1.Size(*n).String()
	}
	return strconv.FormatFloat(*n, 'f', -1, 64)
}
