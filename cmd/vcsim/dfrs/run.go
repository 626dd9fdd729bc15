package dfrs

import (
	"context"
	"fmt"
	"sync"

	"evenkeel/sim/batch"
)

// Entry is a policy under the name that the report gives it.
type Entry struct {
	Name   string
	Policy batch.Policy
}

// Outcome of a policy on an instance.
type Outcome struct {
	batch.Result         // without its jobs
	Bound        float64 // of the greatest stretch
	Degradation  float64 // greatest stretch over its bound
	Seconds      float64 // of a processor that the replay took; 0: not known
	Jobs         int
}

// Results of all policies on all instances.
type Results struct {
	Instances []Instance
	Bounds    []float64
	Entries   []Entry
	Outcomes  [][]Outcome // [instance][entry]
}

// Run replays every instance under every policy, except the replays whose results the state has. It calls progress with the number
// of replays that are done; nil: no calls.
func Run(ctx context.Context, instances []Instance, entries []Entry, workers int, state *State, progress func(done, all int)) (*Results, error) {
	r := &Results{Instances: instances, Entries: entries, Bounds: make([]float64, len(instances)), Outcomes: make([][]Outcome, len(instances))}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	done, all := 0, len(instances)*len(entries)
	step := func() {
		mu.Lock()
		defer mu.Unlock()
		if done++; progress != nil {
			progress(done, all)
		}
	}
	for i := range instances {
		r.Outcomes[i] = make([]Outcome, len(entries))
	}
	type pair struct{ instance, entry int }
	todo := make(chan pair)
	var crew sync.WaitGroup
	for range max(1, workers) {
		crew.Go(func() {
			for p := range todo {
				if ctx.Err() != nil {
					continue
				}
				if err := r.one(p.instance, p.entry, state); err != nil {
					cancel(err)
					continue
				}
				step()
			}
		})
	}
	for i := range instances {
		for e := range entries {
			select {
			case todo <- pair{i, e}:
			case <-ctx.Done():
			}
		}
	}
	close(todo)
	crew.Wait()
	for i := range instances {
		if ctx.Err() == nil && len(entries) > 0 {
			r.Bounds[i] = r.Outcomes[i][0].Bound
		}
	}
	return r, context.Cause(ctx)
}

// one replays an instance under a policy, unless that is remembered.
func (r *Results) one(i, e int, state *State) (err error) {
	in, entry, o := &r.Instances[i], &r.Entries[e], &r.Outcomes[i][e]
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s instance %d: %w", in.Set, i, err)
		}
	}()
	known := false
	if *o, known = state.get(key(in, entry)); known {
		return nil
	}
	if o.Bound, err = batch.Bound(in.Cluster, in.Jobs); err != nil {
		return err
	}
	o.Seconds = processorTime(func() { o.Result, err = batch.Run(in.Cluster, in.Jobs, entry.Policy) })
	if err != nil {
		return err
	}
	o.Result.Jobs, o.Jobs, o.Degradation = nil, len(in.Jobs), o.MaxStretch/o.Bound
	return state.put(key(in, entry), *o)
}

// Mean of a figure over the instances that are kept; n is how many these are.
func (r *Results) Mean(entry int, keep func(*Instance) bool, figure func(*Outcome) float64) (mean, highest float64, n int) {
	for i := range r.Instances {
		if keep(&r.Instances[i]) {
			v := figure(&r.Outcomes[i][entry])
			mean, highest, n = mean+v, max(highest, v), n+1
		}
	}
	return mean / float64(max(1, n)), highest, n
}

func ofSet(set string) func(*Instance) bool { return func(i *Instance) bool { return i.Set == set } }

// degradation and the functions after it are figures of an outcome.
func degradation(o *Outcome) float64 { return o.Degradation }
func average(o *Outcome) float64     { return o.AvgStretch }
func idle(o *Outcome) float64        { return 100 * o.Idle }
func pausedRate(o *Outcome) float64  { return o.PausedBytes / o.Makespan / 1e9 }
func movedRate(o *Outcome) float64   { return o.MovedBytes / o.Makespan / 1e9 }
func bothRates(o *Outcome) float64   { return o.BytesPerSecond() / 1e9 }
func pausesHour(o *Outcome) float64  { return float64(o.Pauses) / o.Makespan * 3600 }
func movesHour(o *Outcome) float64   { return float64(o.Moves) / o.Makespan * 3600 }
func pausesJob(o *Outcome) float64   { return float64(o.Pauses) / float64(o.Jobs) }
func movesJob(o *Outcome) float64    { return float64(o.Moves) / float64(o.Jobs) }
func decision(o *Outcome) float64    { return 1000 * o.Seconds / float64(max(1, o.Decisions)) }
