package conformance

import (
	"fmt"
	"testing"
	"time"

	"evenkeel/hypervisor"
)

const (
	slack    = 16 << 20 // of a guest's memory: what its kernel takes and gives back meanwhile, bytes
	headroom = 12 << 20 // bytes of available memory that a first squeeze leaves: more than the 7 MiB that a guest keeps back for its kernel
)

// guestMemory takes a guest that holds memory through a squeeze: it says what it has left, follows its balloon as far as it
// can, and lives when it is asked for more than that.
func guestMemory(t *testing.T, s Setup) {
	if s.Occupies == nil {
		lacking(t, "Holds")
	}
	spec := s.Spec("ek-conf-memory-0")
	throttled := spec.Memory / 4
	spec = s.Occupies(spec, throttled)
	g := &tested{Setup: s, spec: spec, events: watch(t, t.Context(), s.Host)}
	s.boot(t, spec)
	if s.Occupied != nil {
		console, err := s.Host.Console(t.Context(), spec.VM)
		if err != nil {
			t.Fatalf("Console: %v", err)
		}
		g.says(t, reads(console), s.Occupied(throttled))
		if err := console.Close(); err != nil {
			t.Errorf("close the console: %v", err)
		}
	}
	var used int64
	var reported time.Time
	g.eventually(t, "the guest reports what it uses, the same in two reports", func() (bool, string) {
		x, ok := stat(t, s.Host, spec.VM)
		if !ok || x.Available < 0 || x.Reported.IsZero() || x.Reported.After(x.At) || x.Reported.Equal(reported) {
			return false, fmt.Sprintf("%+v", x)
		}
		before := used
		used, reported = x.Balloon-x.Available, x.Reported
		return used >= throttled && before > 0 && max(used-before, before-used) <= 1<<20, fmt.Sprintf("%+v", x)
	})
	set := func(bytes int64) {
		t.Helper()
		if err := s.Host.SetBalloon(t.Context(), spec.VM, bytes); err != nil {
			t.Fatalf("SetBalloon %d: %v", bytes, err)
		}
	}
	lives := func(when string) {
		t.Helper()
		if vm := must(t, s.Host, spec.VM); vm.State != hypervisor.Running {
			t.Fatalf("%s: %+v", when, vm)
		}
	}

	low := min(spec.Memory-8<<20, used+headroom)
	set(low)
	g.balloonReaches(t, low)
	g.eventually(t, "it has so much less left", func() (bool, string) {
		x, _ := stat(t, s.Host, spec.VM)
		return x.Available >= 0 && x.Available <= low-used+slack && x.Available <= x.Balloon, fmt.Sprintf("%+v, used %d", x, used)
	})
	lives("squeezed to what it uses")

	set(throttled / 2)
	g.eventually(t, "it goes as far as it can", func() (bool, string) {
		x, _ := stat(t, s.Host, spec.VM)
		return x.Balloon < low-1<<20, fmt.Sprintf("%+v", x)
	})
	if x, _ := stat(t, s.Host, spec.VM); x.Balloon < throttled {
		t.Errorf("a guest that holds %d bytes has %d", throttled, x.Balloon)
	}
	lives("squeezed below what it uses")

	set(spec.Memory)
	g.balloonReaches(t, spec.Memory)
	lives("given everything back")
}
