package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/term"

	"evenkeel/forecast"
	"evenkeel/sim/score"
	"evenkeel/sim/trace"
)

// run scores the models on all series, o.jobs at a time, and gives the results in the order of the series.
func (o forecastOptions) run(ctx context.Context, say io.Writer, all []trace.Series) ([]score.Result, []*modelTime, error) {
	// Long series first, so that none is begun when the others are done.
	order := make([]int, len(all))
	values := 0
	for i, s := range all {
		order[i] = i
		values += len(s.Values)
	}
	slices.SortStableFunc(order, func(a, b int) int { return len(all[b].Values) - len(all[a].Values) })
	took := make([]*modelTime, len(o.models))
	for i, m := range o.models {
		took[i] = &modelTime{name: m.name}
	}
	var done atomic.Int64
	stop := showProgress(say, &done, int64(values), fmt.Sprintf("%d series", len(all)))
	defer stop()

	results := make([]score.Result, len(all))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(o.jobs, len(all)) {
		wg.Go(func() {
			for {
				n := int(next.Add(1) - 1)
				if n >= len(order) || ctx.Err() != nil {
					return
				}
				s := all[order[n]]
				models := make([]forecast.Model, len(o.models))
				for i, m := range o.models {
					models[i] = m.start(s)
					if o.times {
						models[i] = timed{models[i], took[i]}
					}
				}
				scoring := o.score
				scoring.Stop = func() bool {
					done.Add(1)
					return ctx.Err() != nil
				}
				var rows *predictionRows
				if o.predictions != nil {
					rows = &predictionRows{file: o.predictions, series: s, models: o.models}
					scoring.Each = rows.add
				}
				results[order[n]] = score.Run(s.Values, models, scoring)
				rows.write()
			}
		})
	}
	wg.Wait()
	if o.predictions != nil && o.predictions.err != nil {
		return nil, nil, fmt.Errorf("write the predictions: %w", o.predictions.err)
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("%d of %d values were scored: %w", done.Load(), values, err)
	}
	return results, took, nil
}

// modelTime is how long a model took on all series, in wall time.
type modelTime struct {
	name                             string
	observed, observing, predictions atomic.Int64 // values, ns, origins
	predicting                       atomic.Int64 // ns
}

// timed is a model under the clock.
type timed struct {
	forecast.Model
	took *modelTime
}

func (t timed) Observe(y float64) {
	begin := time.Now()
	t.Model.Observe(y)
	t.took.observing.Add(int64(time.Since(begin)))
	t.took.observed.Add(1)
}

func (t timed) Predict(out []forecast.Prediction) bool {
	begin := time.Now()
	ok := t.Model.Predict(out)
	t.took.predicting.Add(int64(time.Since(begin)))
	t.took.predictions.Add(1)
	return ok
}

func writeTimes(w io.Writer, took []*modelTime) {
	per := func(ns, n int64) string {
		if n == 0 {
			return "-"
		}
		return fmt.Sprintf("%.1f us", float64(ns)/float64(n)/1e3)
	}
	for _, t := range took {
		fmt.Fprintf(w, "time: %-10s observe %s, predict %s, in all %.1f s\n", t.name, per(t.observing.Load(), t.observed.Load()),
			per(t.predicting.Load(), t.predictions.Load()), float64(t.observing.Load()+t.predicting.Load())/1e9)
	}
}

// showProgress says how far a run is once it has taken 2 s: as a bar on a terminal, a line every 15 s elsewhere.
func showProgress(w io.Writer, done *atomic.Int64, all int64, what string) (stop func()) {
	f, ok := w.(*os.File)
	terminal := ok && term.IsTerminal(int(f.Fd()))
	ended, over := make(chan struct{}), make(chan struct{})
	begin := time.Now()
	go func() {
		defer close(over)
		every, shown := 15*time.Second, false
		if terminal {
			every = 500 * time.Millisecond
		}
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				if shown && terminal {
					fmt.Fprint(w, "\r\x1b[K")
				}
				return
			case now := <-tick.C:
				part := float64(done.Load()) / float64(max(all, 1))
				took := now.Sub(begin)
				if took < 2*time.Second || part <= 0 {
					continue
				}
				shown = true
				left := time.Duration(float64(took) * (1 - part) / part).Round(time.Second)
				if terminal {
					const width = 30
					full := min(int(part*width), width)
					fmt.Fprintf(w, "\r\x1b[K[%s%s] %3.0f%% of %s, %s left", strings.Repeat("#", full), strings.Repeat(".", width-full), 100*part, what, left)
				} else {
					fmt.Fprintf(w, "%.0f%% of %s, about %s left\n", 100*part, what, left)
				}
			}
		}
	}()
	return func() {
		close(ended)
		<-over
	}
}
