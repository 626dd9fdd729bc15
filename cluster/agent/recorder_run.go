package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"evenkeel/cluster/history"
)

// run works until ctx ends: it writes histories, asks for those of VMs that came from elsewhere, and forgets VMs that are gone.
func (r *Recorder) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { r.forecasting(ctx) })
	wg.Go(func() { r.fetching(ctx) })
	write := time.NewTicker(writeEvery)
	defer write.Stop()
	for {
		select {
		case <-ctx.Done():
			r.write(time.Now())
			return
		case now := <-write.C:
			r.forget(now)
			r.write(now)
		}
	}
}

// fetching asks for histories until ctx ends. No other work waits for the host that is asked.
func (r *Recorder) fetching(ctx context.Context) {
	for {
		timer := time.NewTimer(r.untilAsk(time.Now()))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-r.wake:
		case <-timer.C:
			r.fetchDue(ctx)
		}
		timer.Stop()
	}
}

// untilAsk is how long it is until the next history is to be asked for.
func (r *Recorder) untilAsk(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := writeEvery
	for _, v := range r.vms {
		if v.ask != nil {
			wait = min(wait, v.ask.next.Sub(now))
		}
	}
	return max(0, wait)
}

// fetchDue gets the histories that are due, one after the other.
func (r *Recorder) fetchDue(ctx context.Context) {
	now := time.Now()
	var due []string
	r.mu.Lock()
	for id, v := range r.vms {
		if v.ask != nil && !v.ask.next.After(now) {
			due = append(due, id)
		}
	}
	r.mu.Unlock()
	for _, id := range due {
		if ctx.Err() != nil {
			return
		}
		bounded, cancel := context.WithTimeout(ctx, askTime)
		data, err := r.o.Fetch(bounded, id)
		cancel()
		var h *history.History
		var notes history.Notes
		if err == nil {
			h, notes, err = history.Decode(data)
			if err != nil {
				err = fmt.Errorf("%w: %w", ErrNoHistory, err) // asked again it would be the same
			}
		}
		if ctx.Err() == nil && r.fetched(id, h, err) {
			r.takeForecasts(id, notes)
		}
	}
}

// takeForecasts goes on with the forecasts of a VM where the host from which it came left them, if that host had seen more.
// What was measured here since is learned again; everything is, where that host had no forecasts.
func (r *Recorder) takeForecasts(id string, notes history.Notes) {
	r.mu.Lock()
	v := r.vms[id]
	vcpus := 0
	if v != nil {
		vcpus = v.vcpus
	}
	r.mu.Unlock()
	if v == nil {
		return
	}
	if err := r.forecasts.restore(id, vcpus, notes); err != nil {
		r.log.Info("forecasts of a VM begin again", "vm", id, "error", err)
	}
}

// fetched takes in the answer to a request for a VM's history; false if there was nothing to take in, or it is needed no more.
func (r *Recorder) fetched(id string, h *history.History, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.vms[id]
	if v == nil || v.ask == nil {
		return false // it left meanwhile
	}
	now := time.Now()
	switch {
	case err == nil:
		v.history = history.Merge(h, v.history)
		v.ask, v.whole = nil, time.Time{} // to be written down at once
		last, _ := h.Last()
		r.log.Info("history of a VM that came from another host", "vm", id, "until", last)
		return true
	case errors.Is(err, ErrNoHistory):
		v.ask = nil
		r.log.Debug("no history of a VM that is new here", "vm", id, "why", err)
	case now.Sub(v.ask.since) > keptAfterMove:
		v.ask = nil
		r.log.Warn("the history of a VM could not be had from the host that it came from: it begins again", "vm", id, "error", err)
	default:
		v.ask.wait = min(2*v.ask.wait, lastAsk)
		v.ask.next = now.Add(v.ask.wait)
		r.log.Debug("the history of a VM cannot be had yet", "vm", id, "error", err, "retry", v.ask.wait)
	}
	return false
}

// forget drops VMs that left, or have not run, for long.
func (r *Recorder) forget(now time.Time) {
	var absent []string
	r.mu.Lock()
	for id, v := range r.vms {
		away := now.Sub(v.seen)
		if !v.left.IsZero() && now.Sub(v.left) > keptAfterMove || away > keptStopped || away > keptAfterMove && v.history.Empty() {
			absent = append(absent, id)
			delete(r.vms, id)
		}
	}
	for len(r.vms) > maxHistories {
		oldest := ""
		for id, v := range r.vms {
			if oldest == "" || v.seen.Before(r.vms[oldest].seen) {
				oldest = id
			}
		}
		absent = append(absent, oldest)
		delete(r.vms, oldest)
	}
	r.mu.Unlock()
	for _, id := range absent { // without the lock: a disk that hangs must not keep anything from being measured
		r.remove(id)
	}
}
