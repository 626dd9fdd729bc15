package periodic

import (
	"fmt"
	"math"
	"slices"
	"time"
)

const (
	arrivalAt    = 0.95 // percentile of the arrivals of inputs that a run waits for (sec. 4)
	dueAt        = 0.5  // percentile of the reads of outputs that is the deadline (sec. 4)
	maxSpread    = 0.05 // MAD of the reads of outputs, in periods, up to which they are steady
	minSlack     = 0.1  // slack in durations of the run from which on it is of use
	followed     = 8    // of lastRuns that another job must have followed steadily
	lastRuns     = 10
	maxLag       = 0.25 // in periods: what comes later follows something else
	lagSpread    = 0.02 // in periods: how far lags of a job that follows are from their median
	minLagSpread = time.Minute
)

// Dataflow is when the data of a run came and went. Zero times are not known.
type Dataflow struct {
	Period     time.Time // the begin of its period, by its recurrence
	Begin, End time.Time
	Inputs     time.Time // last write to any of its inputs
	Read       time.Time // first read of any of its outputs
}

// Deadline is when a job may begin and must have ended, after the begin of its period.
type Deadline struct {
	Source  string        // data, follower
	Arrival time.Duration // of its inputs
	Due     time.Duration
	Slack   float64 // median time from the end of a run to its deadline, in durations of the run
	Runs    int     // that it follows from
}

// DeadlineOfData finds the deadline of a job from events of its data. It returns none, and why, where outputs are read at
// unsteady times, or as soon as they are there: then the reader waits for the run, and any end is in time.
func DeadlineOfData(runs []Dataflow, period time.Duration) (Deadline, string) {
	var reads, inputs, slack []float64
	for _, r := range runs {
		if r.Read.IsZero() || r.End.IsZero() || !r.End.After(r.Begin) {
			continue
		}
		reads = append(reads, r.Read.Sub(r.Period).Seconds())
		slack = append(slack, r.Read.Sub(r.End).Seconds()/r.End.Sub(r.Begin).Seconds())
		if !r.Inputs.IsZero() {
			inputs = append(inputs, r.Inputs.Sub(r.Period).Seconds())
		}
	}
	if len(reads) < MinRuns {
		return Deadline{}, fmt.Sprintf("the first read of its outputs is known of %d runs, and %d are needed", len(reads), MinRuns)
	}
	if spread := deviation(reads) / period.Seconds(); spread > maxSpread {
		return Deadline{}, fmt.Sprintf("its outputs are read at unsteady times: MAD %.1f%% of the period, at most %g%% is steady", 100*spread, 100*maxSpread)
	}
	d := Deadline{Source: "data", Due: span(percentile(reads, dueAt)), Slack: percentile(slack, 0.5), Runs: len(reads)}
	if len(inputs) >= MinRuns {
		d.Arrival = span(percentile(inputs, arrivalAt))
	}
	if d.Slack < minSlack {
		return Deadline{}, fmt.Sprintf("its outputs are read %.2f of its duration after its end: whatever reads them waits for the run", d.Slack)
	}
	return d, ""
}

// DeadlineOfFollower finds the deadline of a job from the begins of another that follows it: in 8 of the last 10 runs, and at
// a steady lag. It returns none, and why, where the other follows at once: then it waits for the run.
func DeadlineOfFollower(runs []Dataflow, begins []time.Time, period time.Duration) (Deadline, string) {
	runs = runs[max(0, len(runs)-lastRuns):]
	var lags, dues []float64
	var durations []float64
	for _, r := range runs {
		if r.End.IsZero() {
			continue
		}
		next := math.Inf(1)
		for _, b := range begins {
			if !b.Before(r.End) {
				next = min(next, b.Sub(r.End).Seconds())
			}
		}
		if next <= maxLag*period.Seconds() {
			lags, dues = append(lags, next), append(dues, r.End.Sub(r.Period).Seconds()+next)
			durations = append(durations, r.End.Sub(r.Begin).Seconds())
		}
	}
	near := max(lagSpread*period.Seconds(), minLagSpread.Seconds())
	middle, due := percentile(lags, 0.5), percentile(dues, 0.5)
	byLag, byClock := 0, 0
	for i := range lags {
		if math.Abs(lags[i]-middle) <= near {
			byLag++
		}
		if math.Abs(dues[i]-due) <= near {
			byClock++
		}
	}
	if max(byLag, byClock) < followed {
		return Deadline{}, fmt.Sprintf("it followed at a steady time in %d of the last %d runs, and %d are needed", max(byLag, byClock), len(runs), followed)
	}
	if byClock < followed || deviation(lags) < deviation(dues) {
		return Deadline{}, fmt.Sprintf("it follows the end of each run by %v, whenever that is: it waits for the run", span(middle))
	}
	d := Deadline{Source: "follower", Due: span(due), Slack: middle / percentile(durations, 0.5), Runs: byClock}
	if d.Slack < minSlack {
		return Deadline{}, fmt.Sprintf("it follows %.2f of a run's duration after its end", d.Slack)
	}
	return d, ""
}

func span(seconds float64) time.Duration {
	return time.Duration(math.Round(seconds)) * time.Second
}

// percentile of values at a share: the smallest that at least that share of them does not exceed; 0 without values.
func percentile(v []float64, share float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return v[min(len(v)-1, max(0, int(math.Ceil(share*float64(len(v))))-1))]
}

// deviation is the median absolute deviation from the median.
func deviation(v []float64) float64 {
	v = slices.Clone(v)
	m := median(v)
	for i := range v {
		v[i] = math.Abs(v[i] - m)
	}
	return median(v)
}
