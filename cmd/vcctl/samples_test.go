package main

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"evenkeel/api/v1"
)

// golden compares a text with its file below testdata/text (UPDATE_SCRIPTS=1 writes it again).
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", "text", name+".golden")
	if os.Getenv("UPDATE_SCRIPTS") != "" {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // a file of this repository
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s:\n%s\nwant:\n%s", name, text, want)
	}
}

func share(v float64) *float64 { return &v }

func TestSamplesText(t *testing.T) {
	cpu := v1.Samples{VM: "render-worker-0", Host: "h1", Resource: "cpu", Unit: "cores", Resolution: "1m", StepSeconds: 60}
	memory := v1.Samples{VM: "render-worker-0", Host: "h1", Resource: "memory", Unit: "bytes", Resolution: "1h", StepSeconds: 3600}
	for i := range 120 {
		x := 1 + math.Sin(float64(i)/9)
		if i >= 12 && i < 15 || i > 40 && i%2 == 1 {
			continue // nothing was measured
		}
		if i < 24 {
			cpu.Items = append(cpu.Items, v1.SampleStep{At: at.Add(time.Duration(i) * time.Minute), Mean: x, Max: 1.1 * x, Samples: 6, Cap: share(1.5), Throttled: share(max(0, x-1.5)), Censored: share(math.Round(x / 2))})
		}
		memory.Items = append(memory.Items, v1.SampleStep{At: at.Add(time.Duration(i) * time.Hour), Mean: x * (1 << 29), Max: x * (1 << 30), Samples: 360, Balloon: share(2 << 30)})
	}
	cpu.Items[0].Throttled, cpu.Items[1].Cap = nil, share(0)
	golden(t, "samples", samplesText(cpu, false))
	golden(t, "samples-wide", samplesText(cpu, true))
	golden(t, "samples-memory", samplesText(memory, false))
	golden(t, "samples-none", samplesText(v1.Samples{VM: "a-b-0", Host: "h2"}, false))
	one := cpu
	one.Items = cpu.Items[:1]
	golden(t, "samples-one", samplesText(one, false))
}

func TestForecastText(t *testing.T) {
	f := v1.Forecast{VM: "render-worker-0", Host: "h1", Resource: "cpu", Unit: "cores", StepSeconds: 60, Until: at, Trusted: true, Declared: 2, Need: 1.22, Buffer: 0.1}
	m := v1.Forecast{VM: "render-worker-0", Host: "h1", Resource: "memory", Unit: "bytes", StepSeconds: 60, Until: at, Reason: "only 12 values were measured, 60 are needed",
		Declared: 2 << 30, Need: 2 << 30, Buffer: 300 << 20}
	for i := range 10 {
		x, sd := 1+0.02*float64(i), 0.05*math.Sqrt(float64(i+1))
		span := func(z, unit float64) [2]float64 { return [2]float64{(x - z*sd) * unit, (x + z*sd) * unit} }
		f.Items = append(f.Items, v1.ForecastStep{At: at.Add(time.Duration(i) * time.Minute), Mean: x, Sd: sd, Int50: span(0.67, 1), Int80: span(1.28, 1), Int95: span(1.96, 1), Int99: span(2.58, 1)})
		m.Items = append(m.Items, v1.ForecastStep{At: at.Add(time.Duration(i) * time.Minute), Mean: x * (1 << 30), Sd: sd * (1 << 30), Int50: span(0.67, 1<<30), Int80: span(1.28, 1<<30),
			Int95: span(1.96, 1<<30), Int99: span(2.58, 1<<30)})
	}
	horizons := func(loss float64) []v1.ForecastCalibration {
		return []v1.ForecastCalibration{{Steps: 1, Values: 180, Pinball: loss, In50: 0.512, In80: 0.8, In95: 0.954, In99: 0.99, Above: 0.02},
			{Steps: 3, Values: 179, Pinball: 1.5 * loss, In50: 0.5, In80: 0.79, In95: 0.944, In99: 0.98}, {Steps: 10}}
	}
	f.Models = []v1.ForecastModel{{Name: "mixture", Share: 1, Horizons: horizons(0.0123)}, {Name: "ar", Share: 0.62, Horizons: horizons(0.0131)},
		{Name: "gp", Share: 0, Horizons: horizons(0.03)}, {Name: "walk", Share: 0.38, Horizons: horizons(0.014)}}
	m.Models = []v1.ForecastModel{{Name: "mixture", Share: 1, Horizons: horizons(1 << 20)}}
	golden(t, "forecast", forecastText(f, false))
	golden(t, "forecast-wide", forecastText(f, true))
	golden(t, "forecast-memory", forecastText(m, false))
	m.Items, m.Models, m.Until, m.Buffer, m.Reason = nil, nil, time.Time{}, 0, "nothing was measured of it yet"
	golden(t, "forecast-none", forecastText(m, false))
}
