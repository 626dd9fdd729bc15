package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/guptarohit/asciigraph"
	"github.com/urfave/cli/v2"

	"evenkeel/api/v1"
)

var historyFlags = []cli.Flag{
	&cli.BoolFlag{Name: "history", Usage: "show what it used"},
	&cli.StringFlag{Name: "resource", Value: v1.ResourceCPU, Usage: "with --history: `cpu` or memory"},
	&cli.StringFlag{Name: "resolution", Value: "1m", Usage: "with --history: steps of `raw` (10 s, kept for 1 h), 1m (6 h), 5m (2 days) or 1h (30 days)"},
	&cli.DurationFlag{Name: "since", Usage: "with --history: only what is not older than `TIME`; default 30 steps"},
}

// resolution of what is kept of VMs: how long a step is, and how far back there are any.
type resolution struct{ step, kept time.Duration }

var resolutions = map[string]resolution{"raw": {10 * time.Second, time.Hour}, "1m": {time.Minute, 6 * time.Hour},
	"5m": {5 * time.Minute, 48 * time.Hour}, "1h": {time.Hour, 30 * 24 * time.Hour}}

// historySteps is how many steps are shown where the user states no number.
const historySteps = 30

// plotWidth and plotHeight are of the plots below tables, in characters: for a terminal of 80 columns.
const (
	plotWidth  = 66
	plotHeight = 8
)

// vmGet shows a VM, or with --history what it used.
func (t *tool) vmGet(c *cli.Context) error {
	if c.Bool("history") {
		return t.ask("getting what was used by VM %s", vmHistory)(c)
	}
	for _, f := range []string{"resource", "resolution", "since"} {
		if c.IsSet(f) {
			return usage("--%s goes with --history", f)
		}
	}
	return t.ask("getting VM %s", func(c *call) (any, view, error) {
		vm, err := c.api.VM(c.ctx, c.name)
		return vm, func(bool) string { return vmText(vm) }, err
	})(c)
}

func vmHistory(c *call) (any, view, error) {
	resource, err := resourceOf(c.Context)
	if err != nil {
		return nil, nil, err
	}
	res, known := resolutions[c.String("resolution")]
	if !known {
		return nil, nil, usage("--resolution %s: must be raw, 1m, 5m or 1h", c.String("resolution"))
	}
	since := c.Duration("since")
	switch {
	case !c.IsSet("since"):
		since = historySteps * res.step
	case since <= 0:
		return nil, nil, usage("--since %s: must be more than nothing", since)
	}
	s, err := c.api.Samples(c.ctx, c.name, resource, c.String("resolution"), since.String())
	return s, func(wide bool) string { return samplesText(s, wide) }, err
}

func resourceOf(c *cli.Context) (string, error) {
	r := c.String("resource")
	if r != v1.ResourceCPU && r != v1.ResourceMemory {
		return "", usage("--resource %s: must be cpu or memory", r)
	}
	return r, nil
}

func samplesText(s v1.Samples, wide bool) string {
	if len(s.Items) == 0 {
		return fmt.Sprintf("Nothing was measured of VM %s on host %s in that time.\n", s.VM, s.Host)
	}
	unit := func(v float64) string { return amount(s.Resource, v) }
	text := tableOf("BEGIN,USED,MOST,CAP,THROTTLED,CENSORED", "SAMPLES", func(x v1.SampleStep) []string {
		limit := maybe(x.Cap, cores)
		if x.Cap != nil && *x.Cap == 0 {
			limit = "none"
		}
		return []string{stamp(x.At), unit(x.Mean), unit(x.Max), limit, maybe(x.Throttled, percent), maybe(x.Censored, percent), strconv.Itoa(x.Samples)}
	})
	if s.Resource == v1.ResourceMemory {
		text = tableOf("BEGIN,USED,MOST,BALLOON", "SAMPLES", func(x v1.SampleStep) []string {
			return []string{stamp(x.At), unit(x.Mean), unit(x.Max), maybe(x.Balloon, unit), strconv.Itoa(x.Samples)}
		})
	}
	if len(s.Items) < 2 {
		return text.text(s.Items, wide)
	}
	return text.text(s.Items, wide) + "\n" + samplesPlot(s)
}

// amount of a resource with its unit left out for cores.
func amount(resource string, v float64) string {
	if resource == v1.ResourceMemory {
		return v1.Size(v).Short()
	}
	return cores(v)
}

func percent(v float64) string { return strconv.FormatFloat(100*v, 'f', 0, 64) + "%" }

func maybe(v *float64, text func(float64) string) string {
	if v == nil {
		return "-"
	}
	return text(*v)
}

// samplesPlot draws the means over time, with gaps where nothing was measured.
func samplesPlot(s v1.Samples) string {
	step := time.Duration(max(1, s.StepSeconds)) * time.Second
	first, last := s.Items[0].At, s.Items[len(s.Items)-1].At
	n := int(last.Sub(first)/step) + 1
	columns := min(n, plotWidth)
	sums, counts := make([]float64, columns), make([]int, columns)
	for _, x := range s.Items {
		if at := int(int64(x.At.Sub(first)/step) * int64(columns) / int64(n)); at >= 0 && at < columns {
			sums[at] += x.Mean
			counts[at]++
		}
	}
	for i := range sums {
		sums[i] /= float64(counts[i]) // none: not a number, a gap
	}
	what := "CPU used, cores"
	if s.Resource == v1.ResourceMemory {
		what = "memory used"
	}
	return plot(s.Resource, fmt.Sprintf("%s, %s to %s", what, stamp(first), stamp(last.Add(step))), sums)
}

// plot of series of one resource, of one length, the first drawn last; NaN is a gap.
func plot(resource, caption string, series ...[]float64) string {
	lowest, highest := math.Inf(1), math.Inf(-1)
	for _, v := range slices.Concat(series...) {
		if !math.IsNaN(v) {
			lowest, highest = min(lowest, v), max(highest, v)
		}
	}
	if lowest > highest {
		return ""
	}
	if lowest == highest { // a line at half height, else it has none
		highest += max(1e-3, math.Abs(highest)/10)
	}
	text := asciigraph.PlotMany(series, asciigraph.Height(plotHeight), asciigraph.LowerBound(max(0, lowest-(highest-lowest)/10)), asciigraph.UpperBound(highest),
		asciigraph.Caption(caption), asciigraph.YAxisValueFormatter(func(v float64) string { return amount(resource, max(0, v)) }))
	var b strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}
