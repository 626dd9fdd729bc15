package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"evenkeel/cluster/history"
	"evenkeel/forecast"
	"evenkeel/hypervisor"
)

// RecorderOptions are what a Recorder needs.
type RecorderOptions struct {
	Dir string // where histories outlast a restart; "" = nowhere
	// Fetch gets the history of a VM that came from another host, from that host. ErrNoHistory: there is none, and none will
	// come. nil: no host is asked.
	Fetch func(ctx context.Context, vm string) ([]byte, error)
	// Step of forecasts; default a minute, at least a second. Shorter ones are for trying out: they rest on what was measured
	// since the agent began, not on histories, and the host must be measured as often.
	Step time.Duration
	Log  *slog.Logger
}

// ErrNoHistory says that the VM did not come from a host that could have its history.
var ErrNoHistory = errors.New("no host has a history of the VM")

// Recorder keeps the histories of a host's VMs: an agent gives it its measurements, servers ask it for histories. It is safe
// for concurrent use. Callers wait for neither files nor other hosts: it writes and asks in its own goroutine (run).
type Recorder struct {
	o    RecorderOptions
	log  *slog.Logger
	wake chan struct{} // holds one when there is a new VM to ask for

	mu  sync.Mutex
	vms map[string]*recorded

	forecasts *forecaster

	disk diskHealth // of run alone
}

// recorded is one VM.
type recorded struct {
	history    *history.History
	generation uint64
	vcpus      int
	last       *hypervisor.Stats // measured last for the history; nil: not since this agent began
	seen       time.Time         // when it was last measured at all
	fine       []history.Bucket  // the latest, where forecasts go by less than a minute
	fineLast   *hypervisor.Stats // measured last for these
	left       time.Time         // when it was handed over, or deleted; zero: it was not
	started    uint64            // the generation that this agent started here: no other host has its history

	ask *asking // for the history that it has elsewhere; nil: there is no need

	whole   time.Time // when the whole history was last written down
	written time.Time // the time up to which the 10 s samples were written then
}

// asking is the state of the request for a VM's history to the host from which it came.
type asking struct {
	since, next time.Time
	wait        time.Duration
}

// OpenRecorder returns a Recorder with the histories in the directory. It leaves out, and logs, what cannot be read: the loss
// of a history must not stop an agent.
func OpenRecorder(o RecorderOptions) *Recorder {
	if o.Step == 0 {
		o.Step = forecastStep
	}
	o.Step = max(o.Step, time.Second)
	r := &Recorder{o: o, log: o.Log, vms: map[string]*recorded{}, wake: make(chan struct{}, 1), forecasts: newForecaster(o.Step)}
	r.load(time.Now())
	return r
}

// record takes in the measurements of all VMs of the host at once. vms is what the hypervisor listed last.
func (r *Recorder) record(stats []hypervisor.Stats, vms map[string]hypervisor.VM) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range stats {
		s := &stats[i]
		vm, listed := vms[s.VM]
		if !listed || vm.Standing || vm.State == hypervisor.Incoming { // it does not run here yet
			continue
		}
		v := r.vms[s.VM]
		if v == nil {
			v = &recorded{history: &history.History{}, seen: s.At}
			r.vms[s.VM] = v
			r.askFor(v, s)
		} else if !v.left.IsZero() || s.At.Sub(v.seen) > longestStep {
			v.left = time.Time{}
			r.askFor(v, s)
		}
		v.seen, v.generation, v.vcpus = s.At, s.Generation, vm.VCPUs
		if r.fine() {
			v.recordFine(s, vm, r.forecasts.step)
		}
		if v.last != nil && slot(v.last.At) == slot(s.At) && v.last.Generation == s.Generation {
			continue
		}
		v.history.Add(sampleOf(v.last, s, vm))
		last := *s
		v.last = &last
	}
}

// slot is the number of the ten seconds in which a time is.
func slot(t time.Time) int64 { return t.UnixNano() / int64(history.RawStep) }

// tillSlot is how long it is until the next ten seconds have begun, and a moment more.
func tillSlot(now time.Time) time.Duration {
	return history.RawStep - time.Duration(now.UnixNano()%int64(history.RawStep)) + 20*time.Millisecond
}

// sampleOf returns what a VM used between two measurements. last is nil before the first.
func sampleOf(last, s *hypervisor.Stats, vm hypervisor.VM) history.Sample {
	nan := math.NaN()
	out := history.Sample{At: s.At.Add(-history.RawStep / 2), CPU: nan, Throttled: nan, Memory: MemoryUsed(*s), Balloon: float64(s.Balloon)}
	if last == nil || last.Generation != s.Generation || s.VCPUTime < last.VCPUTime {
		return out
	}
	took := s.At.Sub(last.At)
	if took <= 0 || took > longestStep {
		return out
	}
	out.At = s.At.Add(-took / 2)
	out.CPU, out.Cap = float64(s.VCPUTime-last.VCPUTime)/float64(took), vm.CPU.Cap
	if s.Throttled >= last.Throttled && last.Throttled >= 0 {
		out.Throttled = min(1, float64(s.Throttled-last.Throttled)/float64(took)/float64(max(1, vm.VCPUs)))
	}
	use := forecast.CappedUse{Used: out.CPU, Cap: out.Cap, Throttled: out.Throttled}
	out.Censored = use.Censored() && out.Cap < float64(vm.VCPUs) // a cap of all its vCPUs limits nothing
	return out
}

// MemoryUsed is what a VM uses of its memory, in bytes: its balloon less what the guest reports that it could take into use
// without swapping; for a guest that reports nothing, the host's memory that the VM takes.
func MemoryUsed(s hypervisor.Stats) float64 {
	if s.Available >= 0 && s.Balloon > 0 {
		return float64(max(0, s.Balloon-s.Available))
	}
	if s.Resident > 0 {
		return float64(s.Resident)
	}
	return math.NaN()
}

// askFor notes that the history of a VM is to be asked for: the VM is new here, or was away for a while, and this agent did not
// start it. r is locked.
func (r *Recorder) askFor(v *recorded, s *hypervisor.Stats) {
	if r.o.Fetch == nil || v.started == s.Generation && v.started != 0 {
		return
	}
	now := time.Now()
	v.ask = &asking{since: now, next: now.Add(firstAsk), wait: firstAsk}
	r.wakeUp()
}

func (r *Recorder) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// starts notes a generation that this agent is about to start.
func (r *Recorder) starts(vm string, generation uint64) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.vms[vm]
	if v == nil {
		v = &recorded{history: &history.History{}, seen: time.Now()}
		r.vms[vm] = v
	}
	v.started, v.left = generation, time.Time{}
}

// leaves notes a VM that was handed over, or deleted.
func (r *Recorder) leaves(vm string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if v := r.vms[vm]; v != nil && v.left.IsZero() {
		v.left, v.last, v.ask = time.Now(), nil, nil
	}
}

// History returns the history of a VM that runs here, or ran here until a while ago, as history.Encode makes it, with the state
// of its forecasts. The error is hypervisor.ErrNotFound if there is none.
func (r *Recorder) History(vm string) ([]byte, error) {
	notes := r.forecasts.notes(vm)
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.vms[vm]
	if v == nil || v.history.Empty() {
		return nil, fmt.Errorf("VM %s: nothing was measured of it here: %w", vm, hypervisor.ErrNotFound)
	}
	return history.Encode(v.history, notes), nil
}

// fiveMinutes returns what was measured of a VM in each five minutes since a time.
func (r *Recorder) fiveMinutes(vm string, since time.Time) []history.Bucket {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if v := r.vms[vm]; v != nil {
		return v.history.Buckets(history.FiveMinutes, since)
	}
	return nil
}
