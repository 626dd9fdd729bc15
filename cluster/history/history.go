package history

import (
	"math"
	"time"
)

// Resolution is the resolution of a ring.
type Resolution int

// The resolutions, the finest first.
const (
	Raw         Resolution = iota // 10 s, for 1 h
	Minute                        // for 6 h
	FiveMinutes                   // for 2 days
	Hour                          // for 30 days
	resolutions
)

// tiers: how wide a bucket is and how many there are at most.
var tiers = [resolutions]struct {
	step time.Duration
	n    int
}{
	Raw:         {RawStep, 360},
	Minute:      {time.Minute, 360},
	FiveMinutes: {5 * time.Minute, 576},
	Hour:        {time.Hour, 720},
}

// RawStep is how often a VM is measured for its history.
const RawStep = 10 * time.Second

// MaxBytes is the most memory that a History takes.
const MaxBytes = (360+360+576+720)*slotBytes + 1<<10

// slotBytes is the size of a slot in memory.
const slotBytes = 40

// Step is how wide a bucket of the resolution is.
func (r Resolution) Step() time.Duration { return tiers[r].step }

// Kept is how far back buckets of the resolution go.
func (r Resolution) Kept() time.Duration { return tiers[r].step * time.Duration(tiers[r].n) }

// Sample is one measurement. NaN stands for what was not measured.
type Sample struct {
	// At is the middle of the time that it is of.
	At time.Time
	// CPU is what the vCPUs used, in cores; Cap the cap, in cores, 0 = none.
	CPU, Cap float64
	// Throttled is the part of the time for which the cap stopped a thread, all vCPUs together: 0 to 1.
	Throttled float64
	// Censored: the VM would have used more than CPU, had it been let.
	Censored bool
	// Memory is what the VM used, in bytes: its balloon less what the guest reports as available; where the guest reports
	// nothing, the host's memory that the VM took. Balloon is what it had.
	Memory, Balloon float64
}

// Bucket is what was measured in one step of a resolution. NaN stands for what was not measured.
type Bucket struct {
	At        time.Time // its begin; a multiple of the step
	CPU       float64   // mean, cores
	CPUMax    float64   // the largest of its samples
	Cap       float64   // the last one in it; 0 = none
	Throttled float64   // mean share of time
	Censored  float64   // share of its samples
	Memory    float64   // mean, bytes
	MemoryMax float64
	Balloon   float64 // mean, bytes
	// CPUSamples and MemorySamples are how many samples the bucket has of each: fewer than the step has room for where the VM
	// did not run all the time, or the bucket has not ended.
	CPUSamples, MemorySamples int
}

// slot is a Bucket in the form in which it is kept.
type slot struct {
	index                uint32 // time since 1970 in steps
	cpu, cpuMax          float32
	cap                  float32
	throttled            float32
	memory, memoryMax    float32
	balloon              float32
	nCPU, nMem, censored uint16
}

// History is the history of one VM. The zero value is an empty one. It is not safe for concurrent use.
type History struct {
	rings [resolutions]ring
}

// ring has slots, of ascending index.
type ring struct {
	slots []slot
	first int // where the oldest is, once the ring is full
}

func (r *ring) len() int { return len(r.slots) }

// at is the i-th slot, the oldest first.
func (r *ring) at(i int) *slot {
	if i += r.first; i >= len(r.slots) {
		i -= len(r.slots)
	}
	return &r.slots[i]
}

func (r *ring) last() *slot {
	if len(r.slots) == 0 {
		return nil
	}
	return r.at(len(r.slots) - 1)
}

// add adds a slot that is later than all others.
func (r *ring) add(s slot, limit int) {
	if len(r.slots) < limit {
		if len(r.slots) == cap(r.slots) { // by a quarter: what is kept for good should fit well
			grown := make([]slot, len(r.slots), min(limit, max(16, len(r.slots)*5/4)))
			copy(grown, r.slots)
			r.slots = grown
		}
		r.slots = append(r.slots, s)
		return
	}
	r.slots[r.first] = s
	if r.first++; r.first == len(r.slots) {
		r.first = 0
	}
}

// keep keeps only the first n slots.
func (r *ring) keep(n int) {
	if n == r.len() {
		return
	}
	kept := make([]slot, n)
	for i := range kept {
		kept[i] = *r.at(i)
	}
	*r = ring{slots: kept}
}

// from is where the valid slots of the ring begin: those within its span of the latest one.
func (r *ring) from(res Resolution) int {
	last := r.last()
	if last == nil {
		return 0
	}
	i := 0
	for uint32(tiers[res].n) <= last.index-r.at(i).index { //nolint:gosec // a small constant
		i++
	}
	return i
}

// indexOf returns a time in steps of a resolution; false for times that no history has.
func indexOf(at time.Time, res Resolution) (uint32, bool) {
	n := at.Unix() / int64(tiers[res].step/time.Second)
	return uint32(n), at.Unix() >= 0 && n < math.MaxUint32 //nolint:gosec // checked beside it
}

func timeOf(index uint32, res Resolution) time.Time {
	return time.Unix(int64(index)*int64(tiers[res].step/time.Second), 0).UTC()
}

// Add adds a sample. A sample that is older than the last by more than a step of Raw shows that the clock was set back: the
// buckets of the time after it are dropped. Add ignores a second sample within one step of Raw, and a sample in which nothing
// was measured.
func (h *History) Add(s Sample) bool {
	index, ok := indexOf(s.At, Raw)
	cpu, memory := finite(s.CPU), finite(s.Memory)
	if !ok || cpu < 0 && memory < 0 {
		return false
	}
	if last := h.rings[Raw].last(); last != nil && index <= last.index && index+1 >= last.index {
		return false
	}
	h.forgetFrom(s.At)
	one := slot{cpu: nan32, cpuMax: nan32, throttled: nan32, memory: nan32, memoryMax: nan32, balloon: nan32}
	if cpu >= 0 {
		one.cpu, one.cpuMax, one.nCPU = float32(cpu), float32(cpu), 1
		if limit := finite(s.Cap); limit > 0 {
			one.cap = float32(limit)
		}
		if share := finite(s.Throttled); share >= 0 {
			one.throttled = float32(min(share, 1))
		}
		if s.Censored {
			one.censored = 1
		}
	}
	if memory >= 0 {
		one.memory, one.memoryMax, one.nMem = float32(memory), float32(memory), 1
		if b := finite(s.Balloon); b >= 0 {
			one.balloon = float32(b)
		}
	}
	for res := range resolutions {
		at, _ := indexOf(s.At, res)
		one.index = at
		r := &h.rings[res]
		switch last := r.last(); {
		case last == nil || at > last.index:
			r.add(one, tiers[res].n)
		case res == Raw: // the clock was set back to within it
			*last = one
		default:
			last.join(one, tiers[res].step)
		}
	}
	return true
}

var nan32 = float32(math.NaN())

// finite returns the value, and a value below 0 for NaN and infinities.
func finite(v float64) float64 {
	if !(v >= 0) || v > math.MaxFloat32 {
		return -1
	}
	return v
}

// join adds a later slot of the same time, a step of which has room for a bounded number of samples: more come where a clock
// was set back.
func (s *slot) join(l slot, step time.Duration) {
	s.throttled = mean(s.throttled, s.nCPU, l.throttled, l.nCPU)
	s.balloon = mean(s.balloon, s.nMem, l.balloon, l.nMem)
	s.cpu, s.memory = mean(s.cpu, s.nCPU, l.cpu, l.nCPU), mean(s.memory, s.nMem, l.memory, l.nMem)
	s.cpuMax, s.memoryMax = larger(s.cpuMax, l.cpuMax), larger(s.memoryMax, l.memoryMax)
	if l.nCPU > 0 {
		s.cap = l.cap
	}
	room := uint16(step / RawStep) //nolint:gosec // at most 360
	s.nCPU, s.nMem = min(s.nCPU+l.nCPU, room), min(s.nMem+l.nMem, room)
	s.censored = min(s.censored+l.censored, s.nCPU)
}

// mean returns the mean of two means of n and m values; NaN is the mean of none.
func mean(a float32, n uint16, b float32, m uint16) float32 {
	switch {
	case a != a:
		return b
	case b != b || m == 0:
		return a
	}
	return float32(float64(a) + (float64(b)-float64(a))*float64(m)/float64(int(n)+int(m)))
}

func larger(a, b float32) float32 {
	if b > a || a != a {
		return b
	}
	return a
}

// forgetFrom drops the buckets that begin after that time.
func (h *History) forgetFrom(at time.Time) {
	for res := range resolutions {
		index, _ := indexOf(at, res)
		r := &h.rings[res]
		n := r.len()
		for n > 0 && r.at(n-1).index > index {
			n--
		}
		r.keep(n)
	}
}

// Last returns the begin of the latest bucket of Raw; false if there is none.
func (h *History) Last() (time.Time, bool) {
	if s := h.rings[Raw].last(); s != nil {
		return timeOf(s.index, Raw), true
	}
	return time.Time{}, false
}

// Empty says whether the history has no bucket.
func (h *History) Empty() bool {
	for res := range resolutions {
		if h.rings[res].len() > 0 {
			return false
		}
	}
	return true
}

// Buckets returns the buckets of a resolution that end after a time, the oldest first. The last may not have ended.
func (h *History) Buckets(res Resolution, since time.Time) []Bucket {
	r := &h.rings[res]
	var out []Bucket
	for i := r.from(res); i < r.len(); i++ {
		s := r.at(i)
		at := timeOf(s.index, res)
		if !at.Add(tiers[res].step).After(since) {
			continue
		}
		out = append(out, s.bucket(at))
	}
	return out
}

func (s *slot) bucket(at time.Time) Bucket {
	b := Bucket{At: at, CPU: float64(s.cpu), CPUMax: float64(s.cpuMax), Cap: float64(s.cap), Throttled: float64(s.throttled), Censored: math.NaN(),
		Memory: float64(s.memory), MemoryMax: float64(s.memoryMax), Balloon: float64(s.balloon), CPUSamples: int(s.nCPU), MemorySamples: int(s.nMem)}
	if s.nCPU > 0 {
		b.Censored = float64(s.censored) / float64(s.nCPU)
	} else {
		b.Cap = math.NaN()
	}
	return b
}

// Bytes is the memory that the history takes, except for the allocator's rounding.
func (h *History) Bytes() int {
	n := 0
	for res := range resolutions {
		n += cap(h.rings[res].slots) * slotBytes
	}
	return n
}
