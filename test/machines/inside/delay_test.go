package inside

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/hypervisor"
)

// reading is the CPU time that a group had used at a time.
type reading struct {
	at, used time.Duration
}

// effectiveFrom is the first time from which on no window of at least that length used more than limit cores; negative if there is none.
func effectiveFrom(all []reading, window time.Duration, limit float64) time.Duration {
	for i, from := range all {
		calm, whole := true, false
		for _, to := range all[i+1:] {
			if d := to.at - from.at; d >= window {
				whole = true
				calm = calm && float64(to.used-from.used) <= limit*float64(d)
			}
		}
		if !whole {
			break
		}
		if calm {
			return from.at
		}
	}
	return -1
}

func TestEffectiveFrom(t *testing.T) {
	const ms = time.Millisecond
	busy := func(until time.Duration) (all []reading) {
		used := time.Duration(0)
		for at := time.Duration(0); at <= 1000*ms; at += 100 * ms {
			all = append(all, reading{at, used})
			if at < until {
				used += 80 * ms
			} else {
				used += 10 * ms
			}
		}
		return all
	}
	for _, tt := range []struct{ until, want time.Duration }{{0, 0}, {300 * ms, 300 * ms}, {600 * ms, 600 * ms}, {900 * ms, -1}} {
		if got := effectiveFrom(busy(tt.until), 400*ms, 0.15); got != tt.want {
			t.Errorf("busy for %s: effective after %s, want %s", tt.until, got, tt.want)
		}
	}
}

// TestDelay lowers the cap of a busy guest, and prints how soon the kernel enforces it.
func TestDelay(t *testing.T) {
	h := kvmHost(t)
	s := busy(spec("ek-delay"), 1)
	s.CPU = hypervisor.CPU{Cap: 0.8, Weight: 1}
	run(t, h, s)
	awaitBusy(t, h, s.VM)
	group := filepath.Join(groupOf(t, s.Name), "libvirt/vcpu0")
	var delays, calls []time.Duration
	for range 5 {
		for _, c := range []float64{0.8, 0.1} {
			began := time.Now()
			if err := h.SetCPU(t.Context(), s.VM, hypervisor.CPU{Cap: c, Weight: 1}); err != nil {
				t.Fatal(err)
			}
			calls = append(calls, time.Since(began))
			var all []reading
			for time.Since(began) < 3*time.Second {
				all = append(all, reading{time.Since(began), usage(t, group)})
				time.Sleep(20 * time.Millisecond) // sleep: the readings are what is measured
			}
			if c == 0.1 {
				delays = append(delays, effectiveFrom(all, 500*time.Millisecond, c+0.05))
			}
		}
	}
	slices.Sort(delays)
	slices.Sort(calls)
	fmt.Printf("DELAY of a cap from 0.8 to 0.1 cores, five times: %s from the call (negative: not within 3 s); the calls took %s to %s\n", delays, calls[0], calls[len(calls)-1])
}

// usage is the CPU time that a group has used.
func usage(t *testing.T, group string) time.Duration {
	t.Helper()
	for line := range strings.Lines(read(t, group, "cpu.stat")) {
		var us int64
		if _, err := fmt.Sscanf(line, "usage_usec %d", &us); err == nil {
			return time.Duration(us) * time.Microsecond
		}
	}
	t.Fatalf("no usage_usec in cpu.stat of %s", group)
	return 0
}
