package replay

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
)

// WriteJSON writes results as JSON, an array. Equal results give equal bytes.
func WriteJSON(w io.Writer, results []*Result) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(results); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}

// Metric is one figure of a result.
type Metric struct {
	Name string // as in JSON
	Of   func(*Result) float64
}

// Metrics are the figures by which policies are compared.
var Metrics = []Metric{
	{"turnaroundMean", func(r *Result) float64 { return r.Turnaround.Mean }},
	{"turnaroundMedian", func(r *Result) float64 { return r.Turnaround.Median }},
	{"turnaroundP95", func(r *Result) float64 { return r.Turnaround.P95 }},
	{"turnaroundP99", func(r *Result) float64 { return r.Turnaround.P99 }},
	{"waitMean", func(r *Result) float64 { return r.Wait.Mean }},
	{"stretchMean", func(r *Result) float64 { return r.Stretch.Mean }},
	{"stretchMedian", func(r *Result) float64 { return r.Stretch.Median }},
	{"stretchMost", func(r *Result) float64 { return r.Stretch.Max }},
	{"slackCPU", func(r *Result) float64 { return r.SlackCPU }},
	{"slackMemory", func(r *Result) float64 { return r.SlackMemory }},
	{"slackCPUOfAllocation", func(r *Result) float64 { return r.SlackCPUOfAllocation }},
	{"slackMemoryOfAllocation", func(r *Result) float64 { return r.SlackMemoryOfAllocation }},
	{"failed", func(r *Result) float64 { return r.Failed }},
	{"hurt", func(r *Result) float64 { return r.Hurt }},
	{"requeued", func(r *Result) float64 { return r.Requeued }},
	{"failures", func(r *Result) float64 { return float64(r.Failures) }},
	{"requeues", func(r *Result) float64 { return float64(r.Requeues) }},
	{"kills", func(r *Result) float64 { return float64(r.Kills) }},
	{"preempted", func(r *Result) float64 { return float64(r.Preempted) }},
	{"qos", func(r *Result) float64 { return r.QoS }},
	{"usedCPU", func(r *Result) float64 { return r.UsedCPU }},
	{"usedMemory", func(r *Result) float64 { return r.UsedMemory }},
	{"allocatedCPU", func(r *Result) float64 { return r.AllocatedCPU }},
	{"allocatedMemory", func(r *Result) float64 { return r.AllocatedMemory }},
	{"minYield", func(r *Result) float64 { return r.MinYield }},
	{"meanYield", func(r *Result) float64 { return r.MeanYield }},
	{"bytesMoved", func(r *Result) float64 { return r.BytesMoved }},
	{"thrash", func(r *Result) float64 { return r.Thrash }},
	{"unfinished", func(r *Result) float64 { return float64(r.Unfinished) }},
}

// WriteCSV writes one row per result, with a column for each of Metrics.
func WriteCSV(w io.Writer, results []*Result) error {
	c := csv.NewWriter(w)
	row := []string{"policy", "hosts", "applications"}
	for _, m := range Metrics {
		row = append(row, m.Name)
	}
	c.Write(row)
	for _, r := range results {
		row = append(row[:0], r.Policy, strconv.Itoa(r.Hosts), strconv.Itoa(r.Apps))
		for _, m := range Metrics {
			row = append(row, number(m.Of(r)))
		}
		c.Write(row)
	}
	return flush(c)
}

// WriteSeries writes what was over time: one row per result and entry of its series.
func WriteSeries(w io.Writer, results []*Result) error {
	c := csv.NewWriter(w)
	c.Write([]string{"policy", "time", "allocatedCPU", "allocatedMemory", "usedCPU", "usedMemory", "running", "waiting", "components", "minYield", "meanYield", "kills", "preempted"})
	for _, r := range results {
		for _, p := range r.Series {
			c.Write([]string{r.Policy, number(p.Time), number(p.AllocatedCPU), number(p.AllocatedMemory), number(p.UsedCPU), number(p.UsedMemory), number(p.Running),
				number(p.Waiting), number(p.Components), number(p.MinYield), number(p.MeanYield), strconv.FormatInt(p.Kills, 10), strconv.FormatInt(p.Preempted, 10)})
		}
	}
	return flush(c)
}

// WriteApps writes what came of each application: one row per result and application.
func WriteApps(w io.Writer, results []*Result) error {
	c := csv.NewWriter(w)
	c.Write([]string{"policy", "application", "arrival", "start", "end", "turnaround", "stretch", "failures", "preemptions", "slackCPU", "slackMemory"})
	for _, r := range results {
		for i, a := range r.PerApp {
			c.Write([]string{r.Policy, strconv.Itoa(i), number(a.Arrival), number(a.Start), number(a.End), number(a.Turnaround), number(a.Stretch),
				strconv.Itoa(int(a.Failures)), strconv.Itoa(int(a.Preemptions)), number(a.SlackCPU), number(a.SlackMemory)})
		}
	}
	return flush(c)
}

func flush(c *csv.Writer) error {
	c.Flush()
	if err := c.Error(); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}

// number has as many digits as distinguish values, and no more than six behind the first.
func number(x float64) string { return strconv.FormatFloat(x, 'g', 7, 64) }
