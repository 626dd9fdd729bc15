package simulated

import (
	"math"
	"sort"
	"strconv"
	"strings"
	"time"

	"evenkeel/hypervisor"
)

// Workload is the CPU that a guest wants over time, in steps. It must give the
// same answer each time it is asked, and be safe to ask from many goroutines.
type Workload interface {
	// Demand is what the guest wants at time t since it has booted, in cores,
	// and until when it wants that (since it has booted). An until that is not after
	// t means for ever.
	Demand(t time.Duration) (cores float64, until time.Duration)
}

// Constant wants the same at all times, in cores.
type Constant float64

// Demand is the constant, for ever.
func (c Constant) Demand(time.Duration) (float64, time.Duration) { return float64(c), 0 }

// Step is a change of demand: Cores from At (since boot) on.
type Step struct {
	At    time.Duration
	Cores float64
}

// Steps are changes in order of time. Before the first the guest is idle, after
// the last it stays as it is.
type Steps []Step

// Demand is that of the last step at or before t.
func (s Steps) Demand(t time.Duration) (float64, time.Duration) {
	last, until := lastStep(len(s), func(i int) time.Duration { return s[i].At }, t)
	if last < 0 {
		return 0, until
	}
	return s[last].Cores, until
}

// lastStep is the last of n steps, in order of time, at or before t, -1 if there is none; and when the one after it is, 0 if there is
// none.
func lastStep(n int, at func(i int) time.Duration, t time.Duration) (last int, next time.Duration) {
	i := sort.Search(n, func(i int) bool { return at(i) > t })
	if i < n {
		next = at(i)
	}
	return i - 1, next
}

// Trace is a recorded demand: one figure in cores per interval, over and over again.
type Trace struct {
	Interval time.Duration
	Cores    []float64
}

// Demand is the figure whose interval t falls in.
func (r Trace) Demand(t time.Duration) (float64, time.Duration) {
	if len(r.Cores) == 0 || r.Interval <= 0 || t < 0 {
		return 0, 0
	}
	i := int64(t / r.Interval)
	return r.Cores[i%int64(len(r.Cores))], time.Duration(i+1) * r.Interval
}

// FromCmdline is the default workload of a VM: all its vCPUs compute, unless
// its kernel command line says otherwise in the words of the test guest:
// ek.burn=N (N busy threads; "all" for one per vCPU) and ek.duty=P (each busy
// P percent of the time, 1 to 100). Values it cannot read count as not there.
func FromCmdline(spec hypervisor.Spec) Workload {
	threads, duty := float64(spec.VCPUs), 1.0
	for _, text := range strings.Fields(spec.Boot.Cmdline) {
		key, value, _ := strings.Cut(text, "=")
		n, err := strconv.ParseUint(value, 10, 31)
		switch {
		case err != nil:
		case key == "ek.burn":
			threads = float64(n)
		case key == "ek.duty" && n >= 1 && n <= 100:
			duty = float64(n) / 100
		}
	}
	return Constant(min(threads, float64(spec.VCPUs)) * duty)
}

// wants is a workload's demand made safe to compute with.
func wants(w Workload, t time.Duration) (cores float64, until time.Duration) {
	cores, until = w.Demand(t)
	if !(cores > 0) { // also if not a number
		cores = 0
	}
	if math.IsInf(cores, 1) {
		cores = math.MaxFloat64
	}
	if until <= t {
		until = math.MaxInt64
	}
	return cores, until
}
