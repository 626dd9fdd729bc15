package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"evenkeel/api/v1"
)

var forecastFlags = []cli.Flag{watchFlag,
	&cli.StringFlag{Name: "resource", Value: v1.ResourceCPU, Usage: "`cpu` or memory"},
	&cli.IntFlag{Name: "steps", Value: 10, Usage: "how many minutes ahead, 1 to 60: `N`"},
}

// maxForecast steps are shown one by one, the last too.
const maxForecast = 60

func vmForecast(c *call) (any, view, error) {
	resource, err := resourceOf(c.Context)
	if err != nil {
		return nil, nil, err
	}
	steps := c.Int("steps")
	if steps < 1 || steps > maxForecast {
		return nil, nil, usage("--steps %d: must be 1 to %d", steps, maxForecast)
	}
	f, err := c.api.Forecast(c.ctx, c.name, resource, steps)
	return f, func(wide bool) string { return forecastText(f, wide) }, err
}

func forecastText(f v1.Forecast, wide bool) string {
	unit := ""
	if f.Resource != v1.ResourceMemory {
		unit = " cores"
	}
	of := func(v float64) string { return amount(f.Resource, v) }
	trusted, need := "yes", of(f.Need)+unit+", by the forecast"
	if !f.Trusted {
		trusted, need = "no: "+f.Reason, of(f.Need)+unit+", as declared: the forecast does not count, and what the VM uses does once it was measured for 15 minutes"
	}
	buffer := ""
	if f.Buffer > 0 {
		buffer = of(f.Buffer) + unit
	}
	var b strings.Builder
	b.WriteString(fields("VM", f.VM, "Host", f.Host, "Resource", f.Resource, "Measured until", stamp(f.Until), "Trusted", trusted,
		"Declared", of(f.Declared)+unit, "Buffer", buffer, "Need", need))
	if len(f.Items) > 0 {
		b.WriteString("\n" + forecastTable(f, wide) + "\n" + modelTable(f, wide))
	}
	if len(f.Items) > 1 {
		b.WriteString("\n" + forecastPlot(f))
	}
	return b.String()
}

func forecastTable(f v1.Forecast, wide bool) string {
	heads := []string{"STEP", "BEGIN", "MEAN", "50%", "80%", "95%", "99%"}
	if wide {
		heads = append(heads, "SD")
	}
	tab := newTable(heads...)
	span := func(i [2]float64) string { return amount(f.Resource, i[0]) + " - " + amount(f.Resource, i[1]) }
	for i, x := range f.Items {
		row := []string{strconv.Itoa(i + 1), stamp(x.At), amount(f.Resource, x.Mean), span(x.Int50), span(x.Int80), span(x.Int95), span(x.Int99)}
		if wide {
			row = append(row, amount(f.Resource, x.Sd))
		}
		tab.row(row...)
	}
	return tab.String()
}

// modelTable is how good the forecasts have been, of the next step; wide of every horizon, and of models that have nothing to say.
func modelTable(f v1.Forecast, wide bool) string {
	tab := newTable("MODEL", "SHARE", "AHEAD", "CHECKED", "LOSS", "IN 50%", "IN 80%", "IN 95%", "IN 99%")
	for i, m := range f.Models {
		for k, h := range m.Horizons {
			if !wide && (i > 0 && k > 0 || m.Share == 0) {
				continue
			}
			name, part := m.Name, percent(m.Share)
			if k > 0 {
				part = ""
			}
			row := []string{name, part, strconv.Itoa(h.Steps), strconv.FormatFloat(h.Values, 'f', 0, 64), "-", "-", "-", "-", "-"}
			if h.Values > 0 {
				loss := fmt.Sprintf("%.4f", h.Pinball)
				if f.Resource == v1.ResourceMemory {
					loss = amount(f.Resource, h.Pinball)
				}
				row = append(row[:4], loss, percent(h.In50), percent(h.In80), percent(h.In95), percent(h.In99))
			}
			tab.row(row...)
		}
	}
	return tab.String()
}

// forecastPlot draws the mean between the ends of the interval of 95%.
func forecastPlot(f v1.Forecast) string {
	repeat := max(1, plotWidth/len(f.Items)) // else ten steps are ten characters
	var low, mean, high []float64
	for _, x := range f.Items {
		for range repeat {
			low, mean, high = append(low, x.Int95[0]), append(mean, x.Mean), append(high, x.Int95[1])
		}
	}
	what := "CPU in cores"
	if f.Resource == v1.ResourceMemory {
		what = "memory"
	}
	return plot(f.Resource, fmt.Sprintf("%s: mean, and the interval of 95%%, in the next %d minutes", what, len(f.Items)*f.StepSeconds/60), low, high, mean)
}
