package main

import (
	"log/slog"

	"github.com/hashicorp/go-metrics"
	metricsprom "github.com/hashicorp/go-metrics/prometheus"
)

// metricsToPrometheus sends Raft's own metrics to the registry that /metrics shows.
func metricsToPrometheus(log *slog.Logger) {
	sink, err := metricsprom.NewPrometheusSink()
	if err == nil {
		conf := metrics.DefaultConfig("evenkeel")
		conf.EnableHostname, conf.EnableRuntimeMetrics = false, false
		_, err = metrics.NewGlobal(conf, sink)
	}
	if err != nil {
		log.Warn("raft metrics are not shown", "error", err)
	}
}
