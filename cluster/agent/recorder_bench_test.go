package agent

import (
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"evenkeel/cluster/history"
	"evenkeel/forecast"
	"evenkeel/hypervisor"
)

// BenchmarkRecord100 is what a look at 100 VMs costs that is written into their histories.
func BenchmarkRecord100(b *testing.B) {
	r := OpenRecorder(RecorderOptions{Log: slog.New(slog.DiscardHandler)})
	at := time.Now()
	stats, vms := make([]hypervisor.Stats, 100), map[string]hypervisor.VM{}
	for i := range stats {
		id := hypervisor.Identity{VM: fmt.Sprintf("vm-%d", i), Generation: 1}
		stats[i] = hypervisor.Stats{Identity: id, Balloon: 1 << 30, Available: 1 << 29}
		vms[id.VM] = hypervisor.VM{Identity: id, VCPUs: 2, CPU: hypervisor.CPU{Cap: 1}, State: hypervisor.Running}
	}
	b.ReportAllocs()
	for b.Loop() {
		at = at.Add(history.RawStep)
		for i := range stats {
			stats[i].At, stats[i].VCPUTime = at, stats[i].VCPUTime+5*time.Second
		}
		r.record(stats, vms)
	}
}

// BenchmarkLearnMinute is what the forecasts of one VM cost in a minute, both resources, after four hours.
func BenchmarkLearnMinute(b *testing.B) {
	f := newForecaster(forecastStep)
	h := &history.History{}
	at := time.Now().Truncate(time.Minute)
	rng := rand.New(rand.NewPCG(1, 2))
	minute := func() minutes {
		for range 6 {
			at = at.Add(history.RawStep)
			h.Add(history.Sample{At: at, CPU: 1 + 0.5*math.Sin(float64(at.Unix())/900) + 0.2*rng.Float64(), Memory: 1e9 + 1e8*rng.Float64()})
		}
		return minutes{vm: "a", vcpus: 2, all: h.Buckets(history.Minute, time.Time{}), over: at}
	}
	for range 240 {
		f.learn(minute())
	}
	b.ResetTimer()
	b.ReportAllocs()
	for b.Loop() {
		f.learn(minute())
	}
	n := f.notes("a")
	b.ReportMetric(float64(len(n[1])+len(n[2])), "B/state")
	b.ReportMetric(float64(len(f.of["a"].series[ResourceCPU].Forecast(forecast.Horizon).Ahead)), "steps")
}
