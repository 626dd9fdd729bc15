package main

import (
	"testing"
	"time"

	"evenkeel/api/v1"
)

func rightsizingAt(mode string) v1.Rightsizing {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := v1.Rightsizing{Mode: mode, Needs: "declared", Aggressiveness: "balanced", EvaluatedAt: at.Add(30 * time.Minute), Reclaimed: v1.Resources{CPU: 5.25, Memory: 13 << 30},
		Stages: []v1.RightsizingStage{{Stage: "forecast", On: true, Effect: v1.Resources{CPU: 5.25, Memory: 13 << 30}}, {Stage: "margin", On: true, Effect: v1.Resources{CPU: 1.5, Memory: 2 << 30}},
			{Stage: "availability", On: true}, {Stage: "reserve", On: true, Effect: v1.Resources{Memory: 512 << 20}}, {Stage: "emergency"}},
		Hours: []v1.RightsizingHour{
			{From: at.Add(-time.Hour), Mode: "shadow", Minutes: 60, Reclaimed: v1.Resources{CPU: 4, Memory: 12 << 30}, VMMinutes: 180, ShortCPU: 4, ShortMemory: 1, WorstCPU: 0.4, WorstMemory: 300 << 20, WorstVM: "db-main-0"},
			{From: at, Mode: mode, Minutes: 30, Reclaimed: v1.Resources{CPU: 5, Memory: 13 << 30}, VMMinutes: 90, ShortCPU: 1, WorstCPU: 0.2, WorstVM: "web-front-0", Preempted: 1}},
		VMs: []v1.RightsizedVM{
			{VM: "web-front-0", VirtualCluster: "web", Host: "h1", CPU: 2, Need: 0.41, Memory: 4 << 30, Balloon: 1300 << 20, Reason: "it is expected to need 1300 MiB"},
			{VM: "db-main-0", VirtualCluster: "db", Host: "h2", CPU: 4, Need: 3.5, Memory: 16 << 30, Balloon: 16 << 30, ShortMemory: 300 << 20, UnderPressure: true, Reason: "it swaps"},
			{VM: "old-0", VirtualCluster: "old", Host: "h2", CPU: 1, Need: 1, Memory: 2 << 30, Balloon: 2 << 30, Excluded: true, Reason: "its guest does not report what memory it uses"}}}
	quality := 0.984
	s.Admission = v1.Admission{InForce: mode == "on", Quality: &quality, Target: 0.99,
		Margins: []v1.Margin{{Aggressiveness: "conservative", Factor: 1.73, Start: 2, Min: 1.2, Max: 2, K1: 0.2, K2: 4}, {Aggressiveness: "balanced", Factor: 1.2345, Start: 1.5, Min: 1.01, Max: 2, K1: 0.05, K2: 3},
			{Aggressiveness: "aggressive", Factor: 1.01, Start: 1.1, Min: 1.01, Max: 2, K1: 0.05, K2: 1.64}},
		Hosts: []v1.HostHeadroom{
			{Host: "h1", Needs: v1.Resources{CPU: 0.41, Memory: 1300 << 20}, CountAs: v1.Resources{CPU: 0.51, Memory: 1605 << 20}, Estimated: v1.Resources{CPU: 3.8, Memory: 9 << 30}, Headroom: v1.Resources{CPU: 3.75, Memory: 8 << 30},
				Available: &v1.HostAvailability{CPU: 3.9, Memory: 8 << 30, HeardAt: at}},
			{Host: "h2", Estimated: v1.Resources{CPU: 1, Memory: 1 << 30}, Headroom: v1.Resources{CPU: 1, Memory: 1 << 30}, Ignored: "the host reported none"}}}
	if mode == "on" {
		s.Waiting = []string{"batch-worker-3"}
	}
	return s
}

func TestRightsizingTexts(t *testing.T) {
	many := rightsizingAt("on")
	for range 30 {
		many.VMs = append(many.VMs, many.VMs[0])
	}
	for name, text := range map[string]string{
		"rightsizing-shadow": rightsizingText(rightsizingAt("shadow"), false), "rightsizing-on": rightsizingText(rightsizingAt("on"), false), "rightsizing-wide": rightsizingText(rightsizingAt("on"), true),
		"rightsizing-many": rightsizingText(many, false), "rightsizing-none": rightsizingText(v1.Rightsizing{Mode: "shadow", Needs: "declared", Aggressiveness: "balanced"}, false),
	} {
		golden(t, name, text)
	}
}

func TestAvailabilityText(t *testing.T) {
	w := v1.HostAvailability{CPU: 1.25, Memory: 3 << 30}
	for _, c := range []struct {
		availability *v1.HostAvailability
		text         string
	}{{nil, ""}, {&w, "1.25 cores, 3GiB for new VMs, by its own estimate"},
		{&v1.HostAvailability{Ignored: "it is of 12:00:00"}, "0.00 cores, 0B for new VMs, by its own estimate, which counts for nothing: it is of 12:00:00"}} {
		if got := availabilityText(c.availability); got != c.text {
			t.Errorf("%q, want %q", got, c.text)
		}
	}
}
