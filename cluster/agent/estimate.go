package agent

import (
	"cmp"
	"math"
	"slices"
	"time"

	"evenkeel/cluster/history"
	"evenkeel/forecast"
	"evenkeel/hypervisor"
)

// Estimate is what a host forecasts of one of its VMs.
type Estimate struct {
	VM          string
	Generation  uint64
	Until       time.Time // end of the last step that was measured
	CPU, Memory Ahead     // cores; bytes
}

// Ahead is the forecast of one resource of a VM for the next AheadSteps steps, one figure each; empty: there is no forecast.
type Ahead struct {
	Mean      []float64 `json:",omitempty"`
	Deviation []float64 `json:",omitempty"` // standard, of the value itself
	Trusted   bool      `json:",omitempty"`
	Reason    string    `json:",omitempty"` // why it is not trusted
	// Measured: the resource was measured in at least useSteps steps. Then its use counts where the forecast is not trusted.
	Measured bool `json:",omitempty"`
}

// Guest is what a guest reports of its memory, and how it follows its balloon.
type Guest struct {
	// Available is what the guest could take into use without swapping, Unused what holds nothing: bytes, hypervisor.Unknown
	// where the guest does not report it.
	Available, Unused int64
	SwapIn            float64 // bytes per second since the sample before
	MajorFaults       float64 // per second, likewise
	Pressure          string  `json:",omitempty"` // why the host counts it as short of memory now; "" = it does not
	Follows           bool    `json:",omitempty"` // it followed when its balloon was last set
}

// ahead is a forecast as it is reported: no more digits than it has.
func ahead(f forecast.Forecast, unit float64) Ahead {
	out := Ahead{Trusted: f.Trusted, Reason: f.Reason}
	for _, p := range f.Ahead {
		mean, deviation := p.Mean, math.Sqrt(max(0, p.Variance))
		if math.IsNaN(mean+deviation) || math.IsInf(mean+deviation, 0) {
			return Ahead{Reason: "what is forecast is no number"}
		}
		out.Mean = append(out.Mean, math.Round(mean/unit)*unit)
		out.Deviation = append(out.Deviation, math.Ceil(deviation/unit)*unit)
	}
	return out
}

// useSteps is how many steps a VM is measured before its use counts without a trusted forecast: a quarter of an hour.
const useSteps = 15

// Units to which figures are rounded.
const (
	cpuUnit    = 1e-4     // cores
	memoryUnit = 64 << 10 // bytes
)

// estimate returns the estimate of a VM from its series. f is locked.
func (f *forecaster) estimate(vm string, v *vmSeries) *Estimate {
	e := &Estimate{VM: vm}
	for resource, s := range v.series {
		if last, any := s.Last(); any && f.endOf(last).After(e.Until) {
			e.Until = f.endOf(last)
		}
		measured := s.Values() >= useSteps
		if resource == ResourceCPU {
			e.CPU = ahead(s.Forecast(AheadSteps), cpuUnit)
			e.CPU.Measured = measured
		} else {
			e.Memory = ahead(s.Forecast(AheadSteps), memoryUnit)
			e.Memory.Measured = measured
		}
	}
	return e
}

// stale says why no decision may rest on a forecast of what was measured until then; "" = one may.
func (f *forecaster) stale(until, now time.Time) string {
	if until.IsZero() || now.Sub(until) <= maxStale*f.step {
		return ""
	}
	return "nothing was measured since " + until.Format(time.RFC3339)
}

// distrusted is a forecast on which nothing may rest.
func (a Ahead) distrusted(why string) Ahead {
	a.Trusted, a.Measured, a.Reason = false, false, why
	return a
}

// estimates returns the estimates of the VMs that are kept, by id.
func (r *Recorder) estimates(now time.Time) []Estimate {
	if r == nil {
		return nil
	}
	r.forecasts.mu.Lock()
	var out []Estimate
	for _, v := range r.forecasts.of {
		if v.estimate == nil {
			continue
		}
		e := *v.estimate
		if why := r.forecasts.stale(e.Until, now); why != "" {
			e.CPU, e.Memory = e.CPU.distrusted(why), e.Memory.distrusted(why)
		}
		out = append(out, e)
	}
	r.forecasts.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range out {
		if v := r.vms[out[i].VM]; v != nil {
			out[i].Generation = v.generation
		}
	}
	slices.SortFunc(out, func(a, b Estimate) int { return cmp.Compare(a.VM, b.VM) })
	return out
}

// estimateDigest is the part of an estimate that decides whether it is news: one with the digest of the last is not sent.
type estimateDigest struct {
	generation  uint64
	until       time.Time
	cpu, memory bool // trusted
}

func (e Estimate) digest() estimateDigest {
	return estimateDigest{e.Generation, e.Until, e.CPU.Trusted, e.Memory.Trusted}
}

// fresh returns the estimates of VMs that run here and were not reported yet.
func (r *runner) fresh() []Estimate {
	var out []Estimate
	for _, e := range r.Recorder.estimates(time.Now()) {
		vm, listed := r.caps[e.VM]
		if !listed || vm.Standing || vm.State == hypervisor.Incoming || vm.Generation != e.Generation || r.acknowledged[e.VM] == e.digest() {
			continue
		}
		out = append(out, e)
	}
	return out
}

// acknowledge notes which estimates got through, and forgets VMs that do not run here.
func (r *runner) acknowledge(sent []Estimate) {
	for _, e := range sent {
		r.acknowledged[e.VM] = e.digest()
	}
	for id := range r.acknowledged {
		if _, listed := r.caps[id]; !listed {
			delete(r.acknowledged, id)
		}
	}
}

// fine says whether forecasts have shorter steps than histories.
func (r *Recorder) fine() bool { return r.forecasts.step < history.Minute.Step() }

// recordFine takes in a measurement for forecasts whose steps are less than a minute.
func (v *recorded) recordFine(s *hypervisor.Stats, vm hypervisor.VM, step time.Duration) {
	one := sampleOf(v.fineLast, s, vm)
	last := *s
	v.fineLast = &last
	b := history.Bucket{At: s.At.Truncate(step).UTC(), CPU: one.CPU, Memory: one.Memory}
	if b.CPU >= 0 {
		b.CPUSamples = 1
	}
	if b.Memory >= 0 {
		b.MemorySamples = 1
	}
	if one.Censored {
		b.Censored = 1
	}
	switch n := len(v.fine); {
	case n > 0 && !b.At.After(v.fine[n-1].At) && v.fine[n-1].At.Sub(b.At) < time.Minute: // a second measurement in a step adds nothing
		return
	case n > 0 && !b.At.After(v.fine[n-1].At): // the clock was set back
		v.fine = nil
	case n >= maxFine:
		v.fine = append(v.fine[:0], v.fine[n-maxFine/2:]...)
	}
	v.fine = append(v.fine, b)
}
