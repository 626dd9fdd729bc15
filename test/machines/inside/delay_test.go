package inside

import (
	"fmt"
	"slices"
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

// maxExcess is how much more CPU time than a lower cap allows a guest may get in the three seconds after it was set: what it had left of a
// period's old quota, and what caps may be off by.
const maxExcess = 250 * time.Millisecond

// delays lowers the cap of a busy guest several times. It prints how soon the kernel enforces it, and judges the CPU time that the guest gets
// beyond it: that does not grow while the machine stands still.
func delays(t *testing.T, h hypervisor.Host, s hypervisor.Spec, group string) {
	const low, length = 0.1, 3 * time.Second
	var waits, calls, excess []time.Duration
	times := 5
	if testing.Short() {
		times = 3
	}
	for range times {
		for _, c := range []float64{0.8, low} {
			began := time.Now()
			if err := h.SetCPU(t.Context(), s.VM, hypervisor.CPU{Cap: c, Weight: 1}); err != nil {
				t.Fatal(err)
			}
			call := time.Since(began)
			var all []reading
			for time.Since(began) < call+length {
				all = append(all, reading{time.Since(began), usage(t, group)})
				time.Sleep(20 * time.Millisecond) // sleep: the readings are what is measured
			}
			if c == low {
				first, last := all[0], all[len(all)-1]
				calls, waits = append(calls, call), append(waits, effectiveFrom(all, 500*time.Millisecond, low+0.05))
				excess = append(excess, last.used-first.used-time.Duration(low*float64(last.at-first.at)))
			}
		}
	}
	for _, all := range [][]time.Duration{waits, calls, excess} {
		slices.Sort(all)
	}
	fmt.Printf("CAPS delay of a cap from 0.8 to 0.1 cores, %d times: in force %s from the call, which took %s (negative: not within 3 s); beyond the cap the guest got %s of CPU time\n",
		times, ms(waits), ms(calls), ms(excess))
	if middle := excess[len(excess)/2]; middle > maxExcess {
		t.Errorf("after a cap is lowered the guest gets %s of CPU time beyond it in %s, want at most %s", middle, length, maxExcess)
	}
}

func ms(all []time.Duration) []time.Duration {
	var rounded []time.Duration
	for _, d := range all {
		rounded = append(rounded, d.Round(time.Millisecond))
	}
	return rounded
}
