package agent

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"evenkeel/cluster/history"
	"evenkeel/forecast"
	"evenkeel/hypervisor"
)

// Resources of VMs that are measured.
const (
	ResourceCPU    = "cpu"    // cores
	ResourceMemory = "memory" // bytes
)

// Notes that travel with a history: the state of the forecasts, by resource.
var forecastNotes = map[string]byte{ResourceCPU: 1, ResourceMemory: 2}

// VMForecast is the forecast of what a VM will use of a resource, as its host has it.
type VMForecast struct {
	Resource string
	Step     time.Duration
	Until    time.Time // the end of the last minute that it rests on; zero: none
	forecast.Forecast
}

// forecaster keeps a series for each VM and resource. They share their scratch memory, so one is used at a time.
type forecaster struct {
	step  time.Duration
	mu    sync.Mutex
	space *forecast.Workspace
	of    map[string]*vmSeries
}

type vmSeries struct {
	vcpus    int
	series   map[string]*forecast.Series
	estimate *Estimate // by what was learned last; nil: nothing was since the agent began
}

func newForecaster(step time.Duration) *forecaster {
	return &forecaster{step: step, space: forecast.NewWorkspace(), of: map[string]*vmSeries{}}
}

// minSamples is how many samples a step takes to count as measured.
func (f *forecaster) minSamples() int {
	if f.step < history.Minute.Step() { // one measurement may be all that it has
		return 1
	}
	return minSamples
}

// fresh returns new series for a VM. CPU has a bound. Memory has none: for a guest that reports nothing it includes what its
// emulator takes.
func (f *forecaster) fresh(vcpus int) *vmSeries {
	v := &vmSeries{vcpus: vcpus, series: map[string]*forecast.Series{}}
	for resource := range forecastNotes {
		o := forecast.Options{Positive: true, Workspace: f.space}
		if resource == ResourceCPU {
			o.Max = float64(vcpus)
		}
		v.series[resource] = forecast.New(o)
	}
	return v
}

// minutes is a VM's history in the form that forecasts take.
type minutes struct {
	vm    string
	vcpus int
	all   []history.Bucket
	since int64     // the step after which they begin; below 0: they are the whole history
	over  time.Time // minutes that end until then are over
}

func (f *forecaster) stepOf(at time.Time) int64 { return at.UnixNano() / int64(f.step) }

// endOf returns the end of a step.
func (f *forecaster) endOf(step int64) time.Time { return time.Unix(0, (step+1)*int64(f.step)).UTC() }

// learn takes in what is new in a VM's minutes.
func (f *forecaster) learn(m minutes) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.of[m.vm]
	changed := v != nil && m.vcpus > 0 && v.vcpus != m.vcpus // earlier values may exceed the new bound
	if v == nil || changed {
		v = f.fresh(m.vcpus)
		f.of[m.vm] = v
	}
	for resource, s := range v.series {
		last, any := s.Last()
		if !any && m.since >= 0 && !changed { // it was reset after the minutes were read: it learns all of them the next time
			continue
		}
		if any && last > f.stepOf(m.over)+1 { // the clock was ahead
			s = f.fresh(m.vcpus).series[resource]
			v.series[resource] = s
		}
		for _, b := range m.all {
			if last, any := s.Last(); b.At.Add(f.step).After(m.over) || any && f.stepOf(b.At) <= last {
				continue
			}
			y, n, censored := b.CPU, b.CPUSamples, b.Censored >= maxCensored
			if resource == ResourceMemory {
				y, n, censored = b.Memory, b.MemorySamples, false
			}
			if n < f.minSamples() {
				y, censored = math.NaN(), false
			}
			_ = s.Observe(f.stepOf(b.At), y, censored) // later than the last: it is not refused
		}
	}
	v.estimate = f.estimate(m.vm, v)
}

// due says whether a VM has minutes that are over and not learned, and after which step its series have to learn; below 0 = all.
func (f *forecaster) due(vm string, over time.Time) (since int64, due bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.of[vm]
	if v == nil {
		return -1, true
	}
	lowest, limit, all := int64(math.MaxInt64), int64(-1), true
	for _, s := range v.series {
		last, any := s.Last()
		all = all && any
		lowest, limit = min(lowest, last), max(limit, last)
	}
	switch {
	case !all && limit < f.stepOf(over)-1, limit > f.stepOf(over)+1: // a series is empty and there is news, or the clock was ahead
		return -1, true
	case !all: // nothing is measured of one of them
		return limit, false
	}
	return lowest, limit < f.stepOf(over)-1
}

// forget drops VMs that are not kept.
func (f *forecaster) forget(kept func(vm string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id := range f.of {
		if !kept(id) {
			delete(f.of, id)
		}
	}
}

// notes returns the state of a VM's forecasts.
func (f *forecaster) notes(vm string) history.Notes {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := history.Notes{}
	if v := f.of[vm]; v != nil {
		for resource, n := range forecastNotes {
			if state, err := v.series[resource].MarshalBinary(); err == nil {
				out[n] = state
			}
		}
	}
	return out
}

// restore takes in what notes say of a VM that has that many vCPUs. Where this host has a series already, the one that has seen
// more stays. A series that is missing, of another version, damaged, or was bounded by another number of vCPUs is learned again
// from the minutes.
func (f *forecaster) restore(vm string, vcpus int, notes history.Notes) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, here := f.fresh(vcpus), f.of[vm]
	delete(f.of, vm)
	for resource, n := range forecastNotes {
		state, is := notes[n]
		if !is {
			continue
		}
		s, err := forecast.Restore(state, f.space)
		if err != nil {
			return fmt.Errorf("forecast of %s of VM %s: %w", resource, vm, err)
		}
		highest := v.series[resource].Max()
		if s.Max() != highest || s.Values() == 0 {
			continue
		}
		v.series[resource] = s
		if here == nil {
			continue
		}
		if own := here.series[resource]; own.Max() == highest && own.Values() > s.Values() {
			v.series[resource] = own
		}
	}
	f.of[vm] = v
	return nil
}

// state returns the forecast of a VM; false if nothing is known of it.
func (f *forecaster) state(vm, resource string, steps int) (VMForecast, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.of[vm]
	if v == nil {
		return VMForecast{}, false
	}
	out := VMForecast{Resource: resource, Step: f.step, Forecast: v.series[resource].Forecast(steps)}
	if last, any := v.series[resource].Last(); any {
		out.Until = f.endOf(last)
	}
	return out, true
}

// Forecast returns the forecast of what a VM that runs here will use of a resource in the next minutes, at most MaxSteps. The
// error is hypervisor.ErrNotFound if nothing was measured of it.
func (r *Recorder) Forecast(vm, resource string, steps int) (VMForecast, error) {
	if _, is := forecastNotes[resource]; !is || steps < 1 || steps > MaxSteps {
		return VMForecast{}, fmt.Errorf("forecast of %.40q, %d steps: %w", resource, steps, hypervisor.ErrInvalid)
	}
	out, ok := r.forecasts.state(vm, resource, steps)
	if !ok {
		return VMForecast{}, fmt.Errorf("VM %s: nothing was measured of it here: %w", vm, hypervisor.ErrNotFound)
	}
	if why := r.forecasts.stale(out.Until, time.Now()); why != "" {
		out.Trusted, out.Reason = false, why
	}
	return out, nil
}

// forecasting brings the forecasts up to date until ctx ends.
func (r *Recorder) forecasting(ctx context.Context) {
	tick := time.NewTicker(min(forecastEvery, r.forecasts.step))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.forecastDue(ctx)
		}
	}
}

// forecastDue learns the minutes that are over, VM by VM, as far as the time of a round allows.
func (r *Recorder) forecastDue(ctx context.Context) {
	type waiting struct {
		vm    string
		since int64
	}
	var due []waiting
	kept := map[string]bool{}
	for id, over := range r.measuredUntil() {
		kept[id] = true
		if since, is := r.forecasts.due(id, over); is {
			due = append(due, waiting{id, since})
		}
	}
	r.forecasts.forget(func(vm string) bool { return kept[vm] })
	slices.SortFunc(due, func(a, b waiting) int {
		if a.since != b.since {
			if a.since < b.since {
				return -1
			}
			return 1
		}
		return slices.Compare([]byte(a.vm), []byte(b.vm))
	})
	begun := time.Now()
	for i, w := range due {
		if ctx.Err() != nil {
			return
		}
		if time.Since(begun) > forecastRound {
			r.log.Debug("forecasts wait for the next round", "vms", len(due)-i)
			return
		}
		if m, ok := r.minutesOf(w.vm, w.since); ok {
			r.forecasts.learn(m)
		}
	}
}

// measuredUntil returns, for each VM with a history, until when it was measured.
func (r *Recorder) measuredUntil() map[string]time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string]time.Time, len(r.vms))
	for id, v := range r.vms {
		if last, any := v.history.Last(); any {
			out[id] = last.Add(history.RawStep)
		}
		if n := len(v.fine); r.fine() && n > 0 {
			out[id] = v.fine[n-1].At // the step that it is of may not be over
		}
	}
	return out
}

// minutesOf returns the minutes of a VM that are later than a step.
func (r *Recorder) minutesOf(vm string, step int64) (minutes, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.vms[vm]
	if v == nil {
		return minutes{}, false
	}
	var since time.Time
	if step >= 0 {
		since = r.forecasts.endOf(step)
	}
	if n := len(v.fine); r.fine() && n > 0 {
		return minutes{vm: vm, vcpus: v.vcpus, since: step, all: slices.Clone(v.fine), over: v.fine[n-1].At}, true
	}
	last, _ := v.history.Last()
	return minutes{vm: vm, vcpus: v.vcpus, since: step, all: v.history.Buckets(history.Minute, since), over: last.Add(history.RawStep)}, true
}
