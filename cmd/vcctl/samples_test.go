package main

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"evenkeel/api/v1"
)

// golden compares a text with its file below testdata/text (UPDATE_SCRIPTS=1 writes it anew).
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
