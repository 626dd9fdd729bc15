package main

import (
	"testing"
	"time"

	"evenkeel/api/v1"
)

func shapingAt(mode string) v1.Shaping {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := v1.Shaping{Mode: mode, Needs: "declared", Aggressiveness: "balanced", LookedAt: at.Add(30 * time.Minute), Reclaimed: v1.Resources{CPU: 5.25, Memory: 13 << 30},
		Hours: []v1.ShapingHour{
			{From: at.Add(-time.Hour), Mode: "shadow", Minutes: 60, Reclaimed: v1.Resources{CPU: 4, Memory: 12 << 30}, VMMinutes: 180, ShortCPU: 4, ShortMemory: 1, WorstCPU: 0.4, WorstMemory: 300 << 20, WorstVM: "db-main-0"},
			{From: at, Mode: mode, Minutes: 30, Reclaimed: v1.Resources{CPU: 5, Memory: 13 << 30}, VMMinutes: 90, ShortCPU: 1, WorstCPU: 0.2, WorstVM: "web-front-0", Preempted: 1}},
		VMs: []v1.ShapedVM{
			{VM: "web-front-0", VirtualCluster: "web", Host: "h1", CPU: 2, Need: 0.41, Memory: 4 << 30, Balloon: 1300 << 20, Reason: "it is expected to need 1300 MiB"},
			{VM: "db-main-0", VirtualCluster: "db", Host: "h2", CPU: 4, Need: 3.5, Memory: 16 << 30, Balloon: 16 << 30, ShortMemory: 300 << 20, Pressed: true, Reason: "it swaps"},
			{VM: "old-0", VirtualCluster: "old", Host: "h2", CPU: 1, Need: 1, Memory: 2 << 30, Balloon: 2 << 30, LeftAlone: true, Reason: "its guest does not report what memory it uses"}}}
	if mode == "on" {
		s.Waiting = []string{"batch-worker-3"}
	}
	return s
}

func TestShapingTexts(t *testing.T) {
	many := shapingAt("on")
	for range 30 {
		many.VMs = append(many.VMs, many.VMs[0])
	}
	for name, text := range map[string]string{
		"shaping-shadow": shapingText(shapingAt("shadow"), false), "shaping-on": shapingText(shapingAt("on"), false), "shaping-wide": shapingText(shapingAt("on"), true),
		"shaping-many": shapingText(many, false), "shaping-none": shapingText(v1.Shaping{Mode: "shadow", Needs: "declared", Aggressiveness: "balanced"}, false),
	} {
		golden(t, name, text)
	}
}
