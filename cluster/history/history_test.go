package history

import (
	"fmt"
	"math"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"
)

var start = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// plain is a sample of so many cores and bytes, so long after start.
func plain(after time.Duration, cpu, memory float64) Sample {
	return Sample{At: start.Add(after), CPU: cpu, Cap: 2, Throttled: 0.25, Memory: memory, Balloon: 1 << 30}
}

// dumb is the buckets of samples by their definition.
func dumb(samples []Sample, res Resolution) []Bucket {
	if len(samples) == 0 {
		return nil
	}
	var out []Bucket
	latest := samples[len(samples)-1].At.Truncate(res.Step())
	for at := latest.Add(-res.Kept() + res.Step()); !at.After(latest); at = at.Add(res.Step()) {
		b := Bucket{At: at, CPUMax: math.Inf(-1), MemoryMax: math.Inf(-1), Cap: math.NaN()}
		throttled, nt, balloon, nb := 0.0, 0, 0.0, 0
		for _, s := range samples {
			if !s.At.Truncate(res.Step()).Equal(at) {
				continue
			}
			if !math.IsNaN(s.CPU) {
				b.CPUSamples++
				b.CPU, b.CPUMax, b.Cap = b.CPU+s.CPU, max(b.CPUMax, s.CPU), s.Cap
				if s.Censored {
					b.Censored++
				}
				throttled, nt = throttled+s.Throttled, nt+1
			}
			if !math.IsNaN(s.Memory) {
				b.MemorySamples++
				b.Memory, b.MemoryMax = b.Memory+s.Memory, max(b.MemoryMax, s.Memory)
				balloon, nb = balloon+s.Balloon, nb+1
			}
		}
		if b.CPUSamples+b.MemorySamples == 0 {
			continue
		}
		none := func(v float64, n int) float64 {
			if n == 0 {
				return math.NaN()
			}
			return v
		}
		b.CPUMax, b.MemoryMax = none(b.CPUMax, b.CPUSamples), none(b.MemoryMax, b.MemorySamples)
		b.CPU, b.Censored, b.Memory = b.CPU/float64(b.CPUSamples), b.Censored/float64(b.CPUSamples), b.Memory/float64(b.MemorySamples)
		b.Throttled, b.Balloon = throttled/float64(nt), balloon/float64(nb)
		out = append(out, b)
	}
	return out
}

// same says how two lists of buckets differ, "" if they do not but for rounding.
func same(got, want []Bucket) string {
	if len(got) != len(want) {
		return fmt.Sprintf("%d buckets, want %d", len(got), len(want))
	}
	close := func(a, b float64) bool {
		return math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 1e-5*max(1, math.Abs(a), math.Abs(b))
	}
	for i, g := range got {
		w := want[i]
		if !g.At.Equal(w.At) || g.CPUSamples != w.CPUSamples || g.MemorySamples != w.MemorySamples || !close(g.CPU, w.CPU) || !close(g.CPUMax, w.CPUMax) ||
			!close(g.Cap, w.Cap) || !close(g.Throttled, w.Throttled) || !close(g.Censored, w.Censored) || !close(g.Memory, w.Memory) ||
			!close(g.MemoryMax, w.MemoryMax) || !close(g.Balloon, w.Balloon) {
			return fmt.Sprintf("bucket %d is\n%+v, want\n%+v", i, g, w)
		}
	}
	return ""
}

// samples drawn in order of time, with gaps of any size, and with figures missing.
func drawn(t *rapid.T) []Sample {
	step := rapid.SampledFrom([]int{1, 1, 2, 50, 500})
	var out []Sample
	at := start.Add(time.Duration(rapid.IntRange(0, 10_000).Draw(t, "begin")) * RawStep)
	for range rapid.IntRange(1, 120).Draw(t, "samples") {
		at = at.Add(time.Duration(rapid.IntRange(1, step.Draw(t, "pace")).Draw(t, "gap")) * RawStep)
		s := Sample{At: at.Add(time.Duration(rapid.IntRange(0, 9999).Draw(t, "within")) * time.Millisecond),
			CPU: rapid.Float64Range(0, 64).Draw(t, "cpu"), Cap: rapid.SampledFrom([]float64{0, 0.5, 4}).Draw(t, "cap"),
			Throttled: rapid.Float64Range(0, 1).Draw(t, "throttled"), Censored: rapid.Bool().Draw(t, "censored"),
			Memory: rapid.Float64Range(0, 1<<40).Draw(t, "memory"), Balloon: rapid.Float64Range(0, 1<<40).Draw(t, "balloon")}
		switch rapid.IntRange(0, 9).Draw(t, "missing") {
		case 0:
			s.CPU, s.Throttled, s.Cap, s.Censored = math.NaN(), math.NaN(), 0, false
		case 1:
			s.Memory, s.Balloon = math.NaN(), math.NaN()
		}
		out = append(out, s)
	}
	return out
}

func historyOf(samples []Sample) *History {
	h := &History{}
	for _, s := range samples {
		h.Add(s)
	}
	return h
}

func TestBucketsAreWhatTheyAreDefinedAs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		samples := drawn(t)
		h := historyOf(samples)
		for res := range resolutions {
			if diff := same(h.Buckets(res, time.Time{}), dumb(samples, res)); diff != "" {
				t.Fatalf("%v: %s", res.Step(), diff)
			}
		}
	})
}

// A VM that ran here and there: what either host measured, merged, is what one host would have that measured it all.
func TestMergeIsAsMeasuredInOnePlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		samples := drawn(t)
		from := rapid.IntRange(0, len(samples)).Draw(t, "moved")
		back := rapid.IntRange(from, len(samples)).Draw(t, "moved back")
		a, b := historyOf(append(append([]Sample{}, samples[:from]...), samples[back:]...)), historyOf(samples[from:back])
		m := Merge(a, b)
		for res := range resolutions {
			got, want := m.Buckets(res, time.Time{}), dumb(samples, res)
			// Wide buckets that both hosts have a part of, longer ago than Raw goes back, keep the larger part.
			if res > Raw && back < len(samples) || len(samples) > 0 && samples[len(samples)-1].At.Sub(samples[0].At) > Raw.Kept()-time.Hour {
				if len(got) != len(want) {
					t.Fatalf("%v: %d buckets, want %d", res.Step(), len(got), len(want))
				}
				continue
			}
			if diff := same(got, want); diff != "" {
				t.Fatalf("%v: %s", res.Step(), diff)
			}
		}
		for name, again := range map[string]*History{"with itself": Merge(m, m), "with a part": Merge(m, a), "the other way round": Merge(b, a)} {
			if same := string(Encode(again, nil)) == string(Encode(m, nil)); !same {
				t.Fatalf("merged %s it is another", name)
			}
		}
	})
}

func TestMergeAtTheHandOver(t *testing.T) {
	var all []Sample
	for i := range 400 {
		all = append(all, plain(time.Duration(i)*RawStep, float64(i%7), float64(i)))
	}
	a, b := historyOf(all[:395]), historyOf(all[395:]) // in the middle of a minute, of five, and of an hour
	m := Merge(b, a)
	for res := range resolutions {
		if diff := same(m.Buckets(res, time.Time{}), dumb(all, res)); diff != "" && res != Hour {
			t.Errorf("%v: %s", res.Step(), diff)
		}
	}
	if got := m.Buckets(Hour, time.Time{}); len(got) != 2 || got[1].CPUSamples != 40 {
		t.Errorf("hours: %+v", got)
	}
}

func TestTailExtends(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		samples := drawn(t)
		if span := samples[len(samples)-1].At.Sub(samples[0].At); span >= Raw.Kept()-RawStep {
			t.Skip("longer than Raw")
		}
		cut := rapid.IntRange(0, len(samples)).Draw(t, "written")
		h, whole := historyOf(samples[:cut]), historyOf(samples)
		at, _ := h.Last()
		tail, _, err := Decode(Encode(whole.Tail(at), nil))
		if err != nil {
			t.Fatal(err)
		}
		h.Extend(tail)
		h.Extend(tail)
		for res := range resolutions {
			if diff := same(h.Buckets(res, time.Time{}), whole.Buckets(res, time.Time{})); diff != "" {
				t.Fatalf("%v: %s", res.Step(), diff)
			}
		}
	})
}

func TestWhatIsNotTaken(t *testing.T) {
	nan := math.NaN()
	h := &History{}
	for _, s := range []Sample{
		{At: start, CPU: nan, Memory: nan},
		{At: start, CPU: -1, Memory: math.Inf(1)},
		{At: time.Time{}, CPU: 1},
		{At: time.Unix(1<<40, 0), CPU: 1},
	} {
		if h.Add(s) || !h.Empty() {
			t.Errorf("%+v was taken", s)
		}
	}
	h.Add(plain(0, 1, 1))
	if h.Add(plain(9*time.Second, 5, 5)) {
		t.Error("a second sample within ten seconds was taken")
	}
	if b := h.Buckets(Hour, time.Time{}); len(b) != 1 || b[0].CPU != 1 || b[0].CPUSamples != 1 {
		t.Errorf("%+v", b)
	}
}

func TestClockIsSetBack(t *testing.T) {
	h := &History{}
	for i := range 100 {
		h.Add(plain(time.Duration(i)*RawStep, 1, 1))
	}
	if h.Add(plain(98*RawStep, 1, 1)) {
		t.Error("a clock that shivers is one that was set back")
	}
	if !h.Add(plain(50*RawStep, 9, 1)) {
		t.Error("after the clock was set back nothing is taken")
	}
	last, _ := h.Last()
	if raw := h.Buckets(Raw, time.Time{}); !last.Equal(start.Add(50*RawStep)) || raw[len(raw)-1].CPU != 9 || len(raw) != 51 {
		t.Errorf("%d buckets, the last at %v", len(raw), last)
	}
	// The same hour over and over again does not grow beyond what it has room for.
	for range 20 {
		for i := range 100 {
			h.Add(plain(time.Duration(i)*RawStep, 1, 1))
		}
	}
	if _, _, err := Decode(Encode(h, nil)); err != nil {
		t.Error(err)
	}
}

func TestSince(t *testing.T) {
	h := historyOf([]Sample{plain(0, 1, 1), plain(10*time.Second, 2, 1), plain(time.Minute, 3, 1)})
	for since, want := range map[time.Duration]int{-time.Hour: 3, 9 * time.Second: 3, 10 * time.Second: 2, 20 * time.Second: 1, 70 * time.Second: 0} {
		if got := h.Buckets(Raw, start.Add(since)); len(got) != want {
			t.Errorf("since %v: %d buckets, want %d", since, len(got), want)
		}
	}
}

// What a VM costs its host at most is what is promised.
func TestMemory(t *testing.T) {
	if size := unsafe.Sizeof(slot{}); size != slotBytes {
		t.Fatalf("a slot has %d bytes, not %d", size, slotBytes)
	}
	h := &History{}
	sizes := map[time.Duration]int{}
	for at := time.Duration(0); at < 31*24*time.Hour; at += RawStep {
		h.Add(plain(at, 1, 1))
		if at == time.Hour || at == 24*time.Hour {
			sizes[at] = h.Bytes()
		}
	}
	if n := h.Bytes(); n > MaxBytes || n < MaxBytes-2<<10 {
		t.Errorf("a full history takes %d bytes, %d are promised", n, MaxBytes)
	}
	if sizes[time.Hour] > MaxBytes/4 || sizes[24*time.Hour] > MaxBytes*11/20 {
		t.Errorf("after an hour and a day: %v, of %d in the end", sizes, MaxBytes)
	}
	t.Logf("bytes: %v, in the end %d; encoded %d", sizes, h.Bytes(), len(Encode(h, nil)))
	for res, want := range map[Resolution]int{Raw: 360, Minute: 360, FiveMinutes: 576, Hour: 720} {
		if got := len(h.Buckets(res, time.Time{})); got != want {
			t.Errorf("%v: %d buckets, want %d", res.Step(), got, want)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	h := &History{}
	at := start
	b.ReportAllocs()
	for b.Loop() {
		at = at.Add(RawStep)
		h.Add(Sample{At: at, CPU: 1, Memory: 1})
	}
}
