package main

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"

	"evenkeel/cmd/vcsim/chart"
	"evenkeel/sim/replay"
)

// outcome is one policy on one workload of one seed.
type outcome struct {
	Workload string `json:"workload"`
	Seed     uint64 `json:"seed"`
	*replay.Result
}

func seedsOf(texts []string) (seeds []uint64, err error) {
	for _, t := range texts {
		s, err := strconv.ParseUint(t, 10, 64)
		if err != nil || slices.Contains(seeds, s) {
			return nil, fmt.Errorf("--seed %s: must be whole numbers from 0 on, each once", t)
		}
		seeds = append(seeds, s)
	}
	if len(seeds) == 0 {
		return nil, errors.New("--seed: which one?")
	}
	return seeds, nil
}

// started of a result's applications.
func started(r *replay.Result) (n int) {
	for i := range r.PerApp {
		if r.PerApp[i].Start >= 0 {
			n++
		}
	}
	return n
}

func writeOutcomes(w io.Writer, format string, all []outcome) error {
	switch format {
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		if err := e.Encode(all); err != nil {
			return fmt.Errorf("write results: %w", err)
		}
		return nil
	case "csv":
		return outcomesCSV(w, all)
	case "series":
		return replay.WriteSeries(w, labelled(all))
	case "apps":
		return replay.WriteApps(w, labelled(all))
	}
	return outcomesTable(w, all)
}

// labelled are the results, each with its seed in its name if there are several.
func labelled(all []outcome) (out []*replay.Result) {
	for _, o := range all {
		r := *o.Result
		if o.Seed != all[0].Seed || all[len(all)-1].Seed != all[0].Seed {
			r.Policy = fmt.Sprintf("%s@%d", r.Policy, o.Seed)
		}
		out = append(out, &r)
	}
	return out
}

func outcomesCSV(w io.Writer, all []outcome) error {
	c := csv.NewWriter(w)
	row := []string{"workload", "seed", "policy", "hosts", "applications", "started"}
	for _, m := range replay.Metrics {
		row = append(row, m.Name)
	}
	c.Write(row)
	for _, o := range all {
		row = append(row[:0], o.Workload, strconv.FormatUint(o.Seed, 10), o.Policy, strconv.Itoa(o.Hosts), strconv.Itoa(o.Apps), strconv.Itoa(started(o.Result)))
		for _, m := range replay.Metrics {
			row = append(row, strconv.FormatFloat(m.Of(o.Result), 'g', 7, 64))
		}
		c.Write(row)
	}
	c.Flush()
	if err := c.Error(); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}

// column is one of the table: there says of which results there is such a figure.
type column struct {
	name  string
	of    func(*replay.Result) float64
	text  func(float64) string
	there func(*replay.Result) bool
}

func ended(r *replay.Result) bool { return r.Apps > r.Unfinished }
func begun(r *replay.Result) bool { return started(r) > 0 }
func count(x float64) string      { return strconv.FormatFloat(x, 'f', -1, 64) }

func digits(n int) func(float64) string {
	return func(x float64) string { return strconv.FormatFloat(x, 'f', n, 64) }
}

// columns are the metrics by which policies are compared.
var columns = []column{
	{"started", func(r *replay.Result) float64 { return float64(started(r)) }, digits(0), nil},
	{"ended", func(r *replay.Result) float64 { return float64(r.Apps - r.Unfinished) }, digits(0), nil},
	{"turnaround", func(r *replay.Result) float64 { return r.Turnaround.Mean }, span, ended},
	{"median", func(r *replay.Result) float64 { return r.Turnaround.Median }, span, ended},
	{"p95", func(r *replay.Result) float64 { return r.Turnaround.P95 }, span, ended},
	{"wait", func(r *replay.Result) float64 { return r.Wait.Mean }, span, begun},
	{"stretch", func(r *replay.Result) float64 { return r.Stretch.Median }, digits(2), ended},
	{"slack cpu", func(r *replay.Result) float64 { return r.SlackCPU }, percent, begun},
	{"memory", func(r *replay.Result) float64 { return r.SlackMemory }, percent, begun},
	{"failed", func(r *replay.Result) float64 { return r.Failed }, percent, begun},
	{"hurt", func(r *replay.Result) float64 { return r.Hurt }, percent, begun},
	{"requeued", func(r *replay.Result) float64 { return r.Requeued }, percent, begun},
	{"qos", func(r *replay.Result) float64 { return r.QoS }, func(x float64) string { return fmt.Sprintf("%.3f%%", 100*x) }, begun},
	{"used cpu", func(r *replay.Result) float64 { return r.UsedCPU }, percent, nil},
	{"memory", func(r *replay.Result) float64 { return r.UsedMemory }, percent, nil},
	{"yield", func(r *replay.Result) float64 { return r.MinYield }, digits(3), begun},
	{"mean", func(r *replay.Result) float64 { return r.MeanYield }, digits(4), begun},
	{"moved", func(r *replay.Result) float64 { return r.BytesMoved }, bytesText, nil},
	{"thrash", func(r *replay.Result) float64 { return r.Thrash }, percent, begun},
}

// deadlineColumns are further ones where applications have deadlines.
var deadlineColumns = []column{
	{"missed", func(r *replay.Result) float64 { return part(r.Deadlines.Missed, r.Deadlines.Runs) }, percent, hasDeadlines},
	{"others started", func(r *replay.Result) float64 { return float64(r.Deadlines.Others.Started) }, digits(0), hasDeadlines},
	{"ended", func(r *replay.Result) float64 { return float64(r.Deadlines.Others.Ended) }, digits(0), hasDeadlines},
	{"core-h", func(r *replay.Result) float64 { return r.Deadlines.Others.EndedHours }, digits(0), hasDeadlines},
	{"wait", func(r *replay.Result) float64 { return r.Deadlines.Others.Wait.Mean }, span, hasDeadlines},
	{"pressed", func(r *replay.Result) float64 { return float64(r.MemoryExceeded) }, digits(1), hasDeadlines},
}

func hasDeadlines(r *replay.Result) bool { return r.Deadlines != nil }

func part(n, of int) float64 { return float64(n) / float64(max(1, of)) }

// bytesText is a number of bytes in the unit that suits it.
func bytesText(x float64) string {
	for _, u := range []struct {
		name string
		of   float64
	}{{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}} {
		if x >= u.of {
			return fmt.Sprintf("%.1f %s", x/u.of, u.name)
		}
	}
	return count(x)
}

func outcomesTable(w io.Writer, all []outcome) error {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	head, columns := table.Row{"policy"}, columns
	if slices.ContainsFunc(all, func(o outcome) bool { return hasDeadlines(o.Result) }) {
		columns = slices.Concat(columns, deadlineColumns)
	}
	for _, c := range columns {
		head = append(head, c.name)
	}
	t.AppendHeader(head)
	for _, policy := range policiesOf(all) {
		row := table.Row{policy}
		for _, c := range columns {
			sum, n := 0.0, 0
			for _, o := range all {
				if o.Policy == policy && (c.there == nil || c.there(o.Result)) {
					sum, n = sum+c.of(o.Result), n+1
				}
			}
			if n == 0 {
				row = append(row, "-")
				continue
			}
			row = append(row, c.text(sum/float64(n)))
		}
		t.AppendRow(row)
	}
	_, err := fmt.Fprintln(w, t.Render())
	return err
}

// policiesOf are the policies in the order in which they were asked for.
func policiesOf(all []outcome) (names []string) {
	for _, o := range all {
		if !slices.Contains(names, o.Policy) {
			names = append(names, o.Policy)
		}
	}
	return names
}

// drawRuns writes the figures of the first seed into a folder: over time, how applications are distributed, and what is one number for each policy.
func drawRuns(dir string, all []outcome) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--svg: %w", err)
	}
	write := func(name string, svg []byte) error {
		if err := os.WriteFile(filepath.Join(dir, name+".svg"), svg, 0o644); err != nil {
			return fmt.Errorf("--svg: %w", err)
		}
		return nil
	}
	first := slices.DeleteFunc(slices.Clone(all), func(o outcome) bool { return o.Seed != all[0].Seed })
	for _, f := range []struct {
		name, title, label string
		of                 func(p *replay.Point) float64
		sum                bool
	}{
		{"used-cpu", "CPU in use", "% of all hosts'", func(p *replay.Point) float64 { return 100 * p.UsedCPU }, false},
		{"used-memory", "Memory in use", "% of all hosts'", func(p *replay.Point) float64 { return 100 * p.UsedMemory }, false},
		{"waiting", "Applications that wait", "applications", func(p *replay.Point) float64 { return p.Waiting }, false},
		{"least-yield", "Least yield of all applications", "yield", func(p *replay.Point) float64 { return p.MinYield }, false},
		{"mean-yield", "Mean yield of applications", "yield", func(p *replay.Point) float64 { return p.MeanYield }, false},
		{"failures", "Components that ended for want of memory, so far", "components", func(p *replay.Point) float64 { return float64(p.Kills) }, true},
	} {
		c := chart.Chart{Title: f.title, X: chart.Axis{Label: "days"}, Y: chart.Axis{Label: f.label}}
		for i, o := range first {
			s := chart.Series{Name: o.Policy, Style: i}
			sum := 0.0
			every := max(1, len(o.Series)/200)
			for k := range o.Series {
				v := f.of(&o.Series[k])
				if sum += v; f.sum {
					v = sum
				}
				if k%every == 0 || k == len(o.Series)-1 {
					s.Points = append(s.Points, chart.Point{X: o.Series[k].Time / 86400, Y: v})
				}
			}
			c.Series = append(c.Series, s)
		}
		if err := write(f.name, c.SVG()); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		name, title, label string
		log                bool
		of                 func(a *replay.AppOutcome) (float64, bool)
	}{
		{"turnaround", "Turnaround", "minutes", true, func(a *replay.AppOutcome) (float64, bool) { return max(1, a.Turnaround) / 60, a.End >= 0 }},
		{"wait", "Wait until the first start", "minutes", true, func(a *replay.AppOutcome) (float64, bool) { return max(1, a.Start-a.Arrival) / 60, a.Start >= 0 }},
		{"stretch", "Bounded stretch", "turnaround over time alone", true, func(a *replay.AppOutcome) (float64, bool) { return max(1, a.Stretch), a.End >= 0 }},
		{"slack-cpu", "CPU slack", "% of the request", false, func(a *replay.AppOutcome) (float64, bool) { return 100 * a.SlackCPU, a.Start >= 0 }},
		{"slack-memory", "Memory slack", "% of the request", false, func(a *replay.AppOutcome) (float64, bool) { return 100 * a.SlackMemory, a.Start >= 0 }},
	} {
		c := chart.Chart{Title: f.title + ": share of applications with at most that", X: chart.Axis{Label: f.label, Log: f.log}, Y: chart.Axis{Label: "% of applications", Min: 0, Max: 100}}
		for i, o := range first {
			s := chart.Series{Name: o.Policy, Style: i}
			var v []float64
			for k := range o.PerApp {
				if x, ok := f.of(&o.PerApp[k]); ok {
					v = append(v, x)
				}
			}
			slices.Sort(v)
			for q := 0; q <= 100 && len(v) > 0; q++ {
				// Of all applications: those that never got there are missing at the top.
				s.Points = append(s.Points, chart.Point{X: v[min(len(v)-1, q*len(v)/100)], Y: float64(q) * float64(len(v)) / float64(len(o.PerApp))})
			}
			c.Series = append(c.Series, s)
		}
		if err := write(f.name, c.SVG()); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		name, title, label string
		of                 func(*replay.Result) float64
	}{
		{"qos", "Component-minutes with less CPU than wanted or asked for", "%", func(r *replay.Result) float64 { return 100 * (1 - r.QoS) }},
		{"moved", "Memory sent by live migration", "GB", func(r *replay.Result) float64 { return r.BytesMoved / 1e9 }},
		{"thrash", "Work thrown away, of all that was done", "%", func(r *replay.Result) float64 { return 100 * r.Thrash }},
		{"failed", "Applications that failed for want of memory", "%", func(r *replay.Result) float64 { return 100 * r.Failed }},
	} {
		var bars []chart.Bar
		for _, o := range first {
			bars = append(bars, chart.Bar{Name: o.Policy, Value: f.of(o.Result)})
		}
		if err := write(f.name, chart.Bars(f.title, f.label, bars)); err != nil {
			return err
		}
	}
	return nil
}

// writeRuns writes results in a format other than a table.
func writeRuns(w io.Writer, format string, results []*replay.Result) error {
	switch format {
	case "json":
		return replay.WriteJSON(w, results)
	case "csv":
		return replay.WriteCSV(w, results)
	case "series":
		return replay.WriteSeries(w, results)
	case "apps":
		return replay.WriteApps(w, results)
	}
	var all []outcome
	for _, r := range results {
		all = append(all, outcome{Result: r})
	}
	return outcomesTable(w, all)
}

func percent(x float64) string { return fmt.Sprintf("%.1f%%", 100*x) }

// span is a time in the unit that suits it.
func span(seconds float64) string {
	switch {
	case seconds >= 2*86400:
		return fmt.Sprintf("%.1f d", seconds/86400)
	case seconds >= 2*3600:
		return fmt.Sprintf("%.1f h", seconds/3600)
	case seconds >= 120:
		return fmt.Sprintf("%.1f min", seconds/60)
	}
	return fmt.Sprintf("%.0f s", seconds)
}
