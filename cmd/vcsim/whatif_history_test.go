package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"evenkeel/api/v1"
)

func history() v1.ClusterHistory {
	v := 0.5
	return v1.ClusterHistory{Version: 1, From: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), StepSeconds: 300, Steps: 2, Hosts: []v1.HistoryHost{{Name: "h1", CPU: 4, Memory: 8e9}},
		VirtualClusters: []v1.HistoryVirtualCluster{{Name: "a", Groups: []v1.HistoryGroup{{Name: "g", CPU: 1, Memory: 1e9, MemoryMin: 5e8,
			VMs: []v1.HistoryVM{{Name: "a-g-0", CPU: []*float64{&v, nil}, Memory: []*float64{nil, &v}}}}}}}}
}

func TestReadClusterHistory(t *testing.T) {
	text := func(change func(*v1.ClusterHistory)) string {
		h := history()
		change(&h)
		b, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	good := text(func(*v1.ClusterHistory) {})
	if h, err := decodeHistory(strings.NewReader(good)); err != nil || *h.VirtualClusters[0].Groups[0].VMs[0].Memory[1] != 0.5 || h.VirtualClusters[0].Groups[0].VMs[0].CPU[1] != nil {
		t.Fatalf("%+v, %v", h, err)
	}
	negative := -1.0
	for what, bad := range map[string]string{
		"more behind it":  good + "{}",
		"unknown field":   strings.Replace(good, `"hosts"`, `"host":1,"hosts"`, 1),
		"another version": text(func(h *v1.ClusterHistory) { h.Version = 2 }),
		"no hosts":        text(func(h *v1.ClusterHistory) { h.Hosts = nil }),
		"negative host":   text(func(h *v1.ClusterHistory) { h.Hosts[0].CPU = -1 }),
		"no steps":        text(func(h *v1.ClusterHistory) { h.Steps = 0 }),
		"many steps":      text(func(h *v1.ClusterHistory) { h.Steps = 1e9 }),
		"another length":  text(func(h *v1.ClusterHistory) { h.Steps = 3 }),
		"negative value":  text(func(h *v1.ClusterHistory) { h.VirtualClusters[0].Groups[0].VMs[0].CPU[0] = &negative }),
		"held for ever":   text(func(h *v1.ClusterHistory) { h.VirtualClusters[0].Groups[0].VMs[0].Throttled = 2 }),
		"floor too high":  text(func(h *v1.ClusterHistory) { h.VirtualClusters[0].Groups[0].MemoryMin = 2e9 }),
		"nothing":         "",
	} {
		if _, err := decodeHistory(strings.NewReader(bad)); err == nil {
			t.Errorf("%s: taken", what)
		}
	}
}

func FuzzReadClusterHistory(f *testing.F) {
	b, err := json.Marshal(history())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(b))
	f.Add(`{"version":1}`)
	f.Fuzz(func(t *testing.T, text string) {
		h, err := decodeHistory(strings.NewReader(text))
		if err != nil {
			return
		}
		b, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeHistory(strings.NewReader(string(b))); err != nil {
			t.Fatalf("what was read is refused when it is written: %v", err)
		}
	})
}
