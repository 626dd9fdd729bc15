package ui

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"strings"
	"time"

	"evenkeel/api/v1"
)

type forecastData struct {
	Full     string
	Resource string
	Forecast v1.Forecast
	Measured []v1.SampleStep // of the last hour
}

// aheadShown is how many minutes a forecast's page shows.
const aheadShown = 20

func vmForecast(v *visit) error {
	name, of := named(v)
	ctx := v.r.Context()
	d := forecastData{Resource: cmp.Or(v.r.URL.Query().Get("resource"), v1.ResourceCPU)}
	vm, err := v.api.VM(ctx, name, of...)
	if err != nil {
		return err
	}
	d.Full = fullName(vm.Tenant, vm.Name)
	if d.Forecast, err = v.api.Forecast(ctx, name, d.Resource, aheadShown, of...); err != nil {
		return err
	}
	samples, err := v.api.Samples(ctx, name, d.Resource, "1m", "1h", of...)
	if err != nil {
		return err
	}
	d.Measured = samples.Items
	v.Title, v.Data = "Forecast of "+d.Full, d
	return v.show("forecast")
}

// Value in the unit of the forecast, for a table.
func (d forecastData) Value(x float64) string {
	if d.Forecast.Unit == "bytes" {
		return v1.Size(math.Round(x)).Short()
	}
	return fmt.Sprintf("%.3f", x)
}

// Reclaimed is what others may use of what the tenant declared.
func (d forecastData) Reclaimed() float64 { return max(0, d.Forecast.Declared-d.Forecast.Need) }

// Chart of what was measured, what is expected, and the intervals of 50% and 95%. The tables have the figures.
func (d forecastData) Chart() template.HTML {
	const width, height = 600.0, 180.0
	f := d.Forecast
	if len(f.Items) == 0 && len(d.Measured) == 0 {
		return ""
	}
	var from, to time.Time
	top := f.Declared
	for _, s := range d.Measured {
		top = max(top, s.Mean)
	}
	for _, s := range f.Items {
		top = max(top, s.Int95[1])
	}
	switch {
	case len(d.Measured) > 0:
		from = d.Measured[0].At
	default:
		from = f.Items[0].At
	}
	to = from.Add(time.Minute)
	if n := len(d.Measured); n > 0 {
		to = d.Measured[n-1].At
	}
	if n := len(f.Items); n > 0 {
		to = f.Items[n-1].At
	}
	if top <= 0 || math.IsNaN(top) || math.IsInf(top, 0) {
		top = 1
	}
	span := max(to.Sub(from).Seconds(), 1)
	point := func(at time.Time, value float64) string {
		return fmt.Sprintf("%.1f %.1f", width*at.Sub(from).Seconds()/span, height*(1-min(max(value/top, 0), 1)))
	}
	line := func(n int, at func(int) (time.Time, float64)) string {
		var parts []string
		for i := range n {
			parts = append(parts, point(at(i)))
		}
		if len(parts) < 2 {
			return ""
		}
		return "M" + strings.Join(parts, "L")
	}
	band := func(of func(v1.ForecastStep) [2]float64) string {
		n := len(f.Items)
		return line(2*n, func(i int) (time.Time, float64) {
			if i < n {
				return f.Items[i].At, of(f.Items[i])[1]
			}
			return f.Items[2*n-1-i].At, of(f.Items[2*n-1-i])[0]
		})
	}
	declared := height * (1 - min(f.Declared/top, 1))
	return template.HTML(fmt.Sprintf(`<svg class="curve forecast" viewBox="-10 -10 %.0f %.0f" role="img" aria-label="Measured, expected, and intervals of 50%% and 95%%; the tables have the figures"><path d="M0 0V%.0fH%.0f"/><path class="declared" d="M0 %.1fH%.0f"/><path class="wide" d="%s"/><path class="narrow" d="%s"/><path class="line" d="%s"/><path class="mean" d="%s"/></svg>`, //nolint:gosec // made of constants and numbers
		width+20, height+20, height, width, declared, width,
		band(func(s v1.ForecastStep) [2]float64 { return s.Int95 }), band(func(s v1.ForecastStep) [2]float64 { return s.Int50 }),
		line(len(d.Measured), func(i int) (time.Time, float64) { return d.Measured[i].At, d.Measured[i].Mean }),
		line(len(f.Items), func(i int) (time.Time, float64) { return f.Items[i].At, f.Items[i].Mean })))
}
