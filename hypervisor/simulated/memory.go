package simulated

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"evenkeel/hypervisor"
)

// Guest is how a guest deals with memory. The zero value is one that takes whatever it is given and reports nothing, but follows
// its balloon.
type Guest struct {
	// Memory that the guest wants to hold; nil: not modelled, and the guest reports nothing.
	Memory Memory
	// Swap it has, in bytes: what does not fit into its memory goes there first, and is read back again and again.
	Swap int64
	// Deflates: when both are full it takes memory back from its balloon before it kills anything.
	Deflates bool
	// Deaf: it has no balloon driver. It follows no balloon, takes nothing back, and reports nothing.
	Deaf bool
}

// Memory is what a guest wants to hold over time, in steps. As a Workload, it must give the same answer each time.
type Memory interface {
	// Wants is what the guest wants to hold at time t since it has booted, in bytes, and until when. An until that is not
	// after t means for ever.
	Wants(t time.Duration) (bytes int64, until time.Duration)
}

// Bytes are wanted at all times.
type Bytes int64

// Wants is the constant, for ever.
func (b Bytes) Wants(time.Duration) (int64, time.Duration) { return int64(b), 0 }

// MemoryStep is a change: Bytes from At (since boot) on.
type MemoryStep struct {
	At    time.Duration
	Bytes int64
}

// MemorySteps are changes in order of time. Before the first nothing is wanted, after the last it stays as it is.
type MemorySteps []MemoryStep

// Wants is that of the last step at or before t.
func (s MemorySteps) Wants(t time.Duration) (int64, time.Duration) {
	last, until := lastStep(len(s), func(i int) time.Duration { return s[i].At }, t)
	if last < 0 {
		return 0, until
	}
	return s[last].Bytes, until
}

// Spike is idle until At, and has taken all of To when Took has passed, in twenty steps; it stays so.
type Spike struct {
	From, To int64 // bytes
	At, Took time.Duration
}

const spikeSteps = 20

// Wants is From, To, or what lies between.
func (s Spike) Wants(t time.Duration) (int64, time.Duration) {
	step := max(s.Took/spikeSteps, 1)
	switch n := int64(0); {
	case t < s.At:
		return s.From, s.At
	case t >= s.At+step*(spikeSteps-1):
		return s.To, 0
	default:
		n = int64((t-s.At)/step) + 1
		return s.From + (s.To-s.From)*n/spikeSteps, s.At + time.Duration(n)*step
	}
}

// Leak wants so much more each second, until it is killed.
type Leak struct {
	From, PerSecond int64 // bytes
}

// Wants grows by the second.
func (l Leak) Wants(t time.Duration) (int64, time.Duration) {
	n := int64(max(0, t) / time.Second)
	return l.From + n*l.PerSecond, time.Duration(n+1) * time.Second
}

// MemoryTrace is a recorded demand: one figure in bytes per interval, over and over again.
type MemoryTrace struct {
	Interval time.Duration
	Bytes    []int64
}

// Wants is the figure whose interval t falls in.
func (r MemoryTrace) Wants(t time.Duration) (int64, time.Duration) {
	if len(r.Bytes) == 0 || r.Interval <= 0 || t < 0 {
		return 0, 0
	}
	i := int64(t / r.Interval)
	return r.Bytes[i%int64(len(r.Bytes))], time.Duration(i+1) * r.Interval
}

// kernelTakes is what a small guest's kernel and its programs hold.
const kernelTakes = 48 << 20

// GuestFromCmdline is the default of Options.Guest, in the words of the test guest: with ek.touch=MB in the kernel's command
// line a guest holds so many MiB besides what its kernel takes, reports, and takes memory back when it runs out;
// else nothing is known of its memory.
func GuestFromCmdline(spec hypervisor.Spec) Guest {
	for _, text := range strings.Fields(spec.Boot.Cmdline) {
		if value, is := strings.CutPrefix(text, "ek.touch="); is {
			if n, err := strconv.ParseUint(value, 10, 20); err == nil {
				return Guest{Memory: Bytes(kernelTakes + int64(n)<<20), Deflates: true}
			}
		}
	}
	return Guest{}
}

// swapBack is how fast a guest reads back what it swapped out, as long as its swap has something: it needs just that.
const swapBack = 8 << 20 // bytes per second

// guestMemory is the state of a guest's memory at since, and what was counted of it until then. It is saved with its VM.
type guestMemory struct {
	Since    int64   `json:"since"`
	Asked    int64   `json:"asked,omitempty"`   // by its workload; Wanted is that, or nothing once it was killed
	Wanted   int64   `json:"wanted"`            // from since on
	Swapped  int64   `json:"swapped,omitempty"` // at since
	In       float64 `json:"in,omitempty"`      // bytes that were swapped in and out
	Out      float64 `json:"out,omitempty"`
	Deflated bool    `json:"deflated,omitempty"` // it took memory back, and stays so until its balloon is set
	Took     int64   `json:"took,omitempty"`     // bytes that it took back, all in all
	Kills    int     `json:"kills,omitempty"`    // how often something was killed for want of memory
	Killed   bool    `json:"killed,omitempty"`   // and not started again since
}

// GuestMemory is how a guest fares.
type GuestMemory struct {
	Wanted, Swapped    int64 // bytes, now
	SwapIn, SwapOut    int64 // bytes, since boot
	TookBack           int64 // bytes that it took from its balloon because it ran out of memory
	Kills              int   // processes that were killed because there was none
	Balloon, Allowed   int64 // bytes that it has, and that it is to have
	Follows, Reporting bool
}

// minBalloon is how far a guest can follow its balloon down: what it holds does not go.
func (v *vm) minBalloon() int64 {
	if v.guest.Memory == nil {
		return 0
	}
	return max(0, v.memory.Wanted-v.guest.Swap)
}

// swapped is what is in a guest's swap.
func (v *vm) swapped(balloon int64) int64 {
	return max(0, min(v.memory.Wanted-balloon, v.guest.Swap))
}

// swaps are the bytes swapped in and out by now, as time goes on from since.
func (v *vm) swaps(now, balloon int64) (in, out float64) {
	m := &v.memory
	now = v.guestTime(now)
	swapped := v.swapped(balloon)
	in = m.In + float64(max(0, m.Swapped-swapped))
	out = m.Out + float64(max(0, swapped-m.Swapped))
	if v.guest.Memory != nil && (swapped > 0 && m.Swapped > 0) {
		in += swapBack * float64(now-m.Since) / 1e9
	}
	return in, out
}

// foldMemory makes now the instant that the guest's memory is counted from.
func (v *vm) foldMemory(now, speed int64) {
	balloon := v.balloonNow(now, speed)
	v.memory.In, v.memory.Out = v.swaps(now, balloon)
	v.memory.Swapped, v.memory.Since = v.swapped(balloon), v.guestTime(now)
}

// wantsMemory brings what the guest wants to now, and says until when it wants that.
func (v *vm) wantsMemory(now, speed int64) (until int64, grew bool) {
	if v.guest.Memory == nil || v.idle() {
		return never, false
	}
	if now < v.bootAt {
		return v.bootAt, false
	}
	t := time.Duration(now - v.bootAt)
	wanted, end := v.guest.Memory.Wants(t)
	until = never
	if end > t && int64(end) < never-v.bootAt {
		until = v.bootAt + int64(end)
	}
	wanted = max(0, wanted)
	before := v.memory.Asked
	v.memory.Asked = wanted
	if wanted == before || v.memory.Killed && wanted > before { // what was killed is started again when less is wanted
		return until, false
	}
	v.foldMemory(now, speed)
	v.balloon, v.balloonAt = v.balloonNow(now, speed), max(now, v.balloonAt)
	m := &v.memory
	m.Wanted, m.Killed = wanted, false
	if deficit := wanted - v.guest.Swap - v.balloon; deficit > 0 {
		if v.guest.Deflates && !v.guest.Deaf {
			took := min(deficit, v.spec.Memory-v.balloon)
			if took > 0 {
				v.balloon, m.Deflated, m.Took, grew = v.balloon+took, true, m.Took+took, true
				deficit -= took
			}
		}
		if deficit > 0 {
			m.Kills, m.Killed, m.Wanted = m.Kills+1, true, 0
		}
	}
	_, m.Out = v.swaps(now, v.balloon)
	m.Swapped = v.swapped(v.balloon)
	return until, grew
}

// armMemory sets a timer for right after each change of what a guest wants, so that memory that it takes back is reported in time.
func (m *machine) armMemory(v *vm) {
	if m.w.restoring || v.idle() || v.guest.Memory == nil || !v.guest.Deflates {
		return
	}
	next := v.bootAt
	if t := time.Duration(m.at - v.bootAt); t >= 0 {
		_, until := v.guest.Memory.Wants(t)
		if until <= t {
			return // for ever
		}
		next += int64(until)
	}
	m.when(next+1, func() {
		if m.byName[v.spec.Name] == v {
			m.armMemory(v)
		}
	})
}

// report fills in what the guest reports about its memory.
func (v *vm) report(s *hypervisor.Stats, now, balloon int64) {
	at := v.guestTime(now)
	if v.guest.Memory == nil || v.guest.Deaf || at < v.bootAt {
		return
	}
	swapped := v.swapped(balloon)
	in, out := v.swaps(now, balloon)
	s.Reported = time.Unix(0, at).UTC()
	s.Available = max(0, balloon-(v.memory.Wanted-swapped))
	s.Unused = s.Available
	s.SwapIn, s.SwapOut, s.MajorFaults = int64(in), int64(out), int64(math.Floor(in/4096))
	s.Resident = min(balloon, v.memory.Wanted-swapped) + overhead // what it does not hold it has reported as free
}

// GuestMemory of a VM of ours.
func (w *World) GuestMemory(host, id string) (g GuestMemory, err error) {
	err = w.on(host, func(m *machine) error {
		v := m.ours(id)
		if v == nil {
			return fmt.Errorf("memory of %s: %w", id, hypervisor.ErrNotFound)
		}
		balloon := v.balloonNow(m.at, w.timing.Balloon)
		in, out := v.swaps(m.at, balloon)
		g = GuestMemory{Wanted: v.memory.Wanted, Swapped: v.swapped(balloon), SwapIn: int64(in), SwapOut: int64(out), TookBack: v.memory.Took, Kills: v.memory.Kills,
			Balloon: balloon, Allowed: v.spec.Balloon, Follows: !v.stuck, Reporting: v.guest.Memory != nil && !v.guest.Deaf}
		return nil
	})
	return g, err
}
