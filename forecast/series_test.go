package forecast

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// usage is made-up CPU use of a VM in cores: a day's wave, noise that remembers, bursts.
func usage(n int, seed uint64) []float64 {
	r := rand.New(rand.NewPCG(seed, 11))
	ys := make([]float64, n)
	memory := 0.0
	for i := range ys {
		memory = 0.8*memory + 0.1*r.NormFloat64()
		ys[i] = max(0, 1+0.5*math.Sin(2*math.Pi*float64(i)/1440)+memory)
		if r.IntN(40) == 0 {
			ys[i] += 2 * r.Float64()
		}
	}
	return ys
}

func observe(t testing.TB, s *Series, from int64, ys []float64) {
	t.Helper()
	for i, y := range ys {
		if err := s.Observe(from+int64(i), y, false); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSeriesTrust(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for _, c := range []struct {
		name   string
		feed   func(s *Series)
		reason string // part of it; "" is trusted
	}{
		{"nothing", func(s *Series) {}, "only 0 values"},
		{"a few", func(s *Series) { observe(t, s, 0, usage(20, 1)) }, "only 20 values"},
		{"enough", func(s *Series) { observe(t, s, 0, usage(400, 1)) }, ""},
		{"constant", func(s *Series) { observe(t, s, 0, make([]float64, 200)) }, ""},
		{"silent", func(s *Series) {
			observe(t, s, 0, usage(400, 1))
			for i := range int64(8) {
				_ = s.Observe(400+i, math.NaN(), false)
			}
		}, "nothing was measured in the last 8 steps"},
		{"back again", func(s *Series) {
			observe(t, s, 0, usage(400, 1))
			observe(t, s, 420, usage(30, 2))
		}, ""},
		{"away for long", func(s *Series) {
			observe(t, s, 0, usage(400, 1))
			observe(t, s, 2000, usage(30, 2))
		}, "only 30 values"},
		{"at its cap", func(s *Series) {
			observe(t, s, 0, usage(400, 1))
			for i := range int64(20) {
				_ = s.Observe(400+i, 2, true)
			}
		}, "at their cap"},
		{"explodes", func(s *Series) {
			// Ten times as much in each step.
			observe(t, s, 0, usage(400, 1))
			for i := range int64(12) {
				_ = s.Observe(400+i, math.Pow(10, float64(i)), false)
			}
		}, "above the 97.5% quantile"},
		{"wild, but honestly so", func(s *Series) {
			for i := range int64(500) {
				_ = s.Observe(i, math.Exp(2*r.NormFloat64()), false)
			}
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := New(Options{})
			c.feed(s)
			trusted, reason := s.Trusted()
			if trusted != (c.reason == "") || !strings.Contains(reason, c.reason) || trusted != (reason == "") {
				t.Errorf("trusted: %v, %q; want a reason with %q", trusted, reason, c.reason)
			}
		})
	}
}

// Under a cap that hides two values of five, those that stay below it say nothing of how much would be used.
func TestSeriesUnderACapIsNotTrusted(t *testing.T) {
	const limit, steps = 1.2, 2000
	s := New(Options{Positive: true, Max: 8})
	r := rand.New(rand.NewPCG(12, 12))
	trusted := 0
	for i := range int64(steps) {
		y := math.Exp(r.NormFloat64())
		if err := s.Observe(i, min(y, limit), y > limit); err != nil {
			t.Fatal(err)
		}
		if ok, _ := s.Trusted(); ok {
			trusted++
		}
	}
	t.Logf("trusted in %d of %d steps", trusted, steps)
	if trusted > steps/100 {
		t.Errorf("trusted in %d of %d steps", trusted, steps)
	}
	// Once the cap no longer binds it is trusted again, and now and then a value at the cap changes nothing.
	for i := range int64(600) {
		_ = s.Observe(steps+i, math.Exp(r.NormFloat64()), i%100 == 0)
	}
	if ok, reason := s.Trusted(); !ok {
		t.Errorf("600 steps after: %s", reason)
	}
}

func TestSeriesForecast(t *testing.T) {
	s := New(Options{Positive: true, Max: 4})
	if f := s.Forecast(10); f.Ahead != nil || f.Trusted || f.Shares != nil {
		t.Errorf("of nothing: %+v", f)
	}
	ys := usage(600, 5)
	observe(t, s, 100, ys)
	f := s.Forecast(20)
	if f.Step != 699 || len(f.Ahead) != 20 || !f.Trusted || f.Reason != "" {
		t.Fatalf("step %d, %d ahead, trusted %v: %q", f.Step, len(f.Ahead), f.Trusted, f.Reason)
	}
	if err := check(f.Ahead); err != nil {
		t.Error(err)
	}
	sum := 0.0
	for _, x := range f.Shares {
		sum += x.Share
		if x.Share < 0 {
			t.Errorf("%s has a share of %v", x.Model, x.Share)
		}
	}
	if math.Abs(sum-1) > 1e-9 {
		t.Errorf("shares sum to %v", sum)
	}
	if len(f.Calibration) < 10 || f.Calibration[0].Model != "mixture" {
		t.Fatalf("calibration: %+v", f.Calibration)
	}
	for _, c := range f.Calibration[0].Horizons {
		if c.Values < 50 || c.Coverage[2] < 0.9 || c.Coverage[2] > 0.99 || c.Coverage[0] > c.Coverage[1] || !(c.Pinball > 0) {
			t.Errorf("%d ahead: %+v", c.Steps, c)
		}
	}
	for _, steps := range []int{-1, 0, 1, 5000} {
		if n := len(s.Forecast(steps).Ahead); n < 1 || n > 1000 {
			t.Errorf("asked for %d steps, got %d", steps, n)
		}
	}
	for range 50 { // at its ends, quantiles stay within the bounds
		_ = s.Observe(mustLast(s)+1, 4, false)
	}
	for h, p := range s.Forecast(10).Ahead {
		if p.Quantiles[0] < 0 || p.Quantiles[levels-1] > 4 {
			t.Errorf("%d ahead: %v", h+1, p.Quantiles)
		}
	}
}

func mustLast(s *Series) int64 {
	n, _ := s.Last()
	return n
}

func TestSeriesRefusesThePast(t *testing.T) {
	s := New(Options{})
	observe(t, s, -5, []float64{1, 2, 3})
	for _, step := range []int64{-4, -3, math.MinInt64} {
		if err := s.Observe(step, 1, false); !errors.Is(err, ErrPast) {
			t.Errorf("step %d: %v", step, err)
		}
	}
	if err := s.Observe(math.MaxInt64, 1, false); err != nil {
		t.Error(err)
	}
}

// drawn is a series of any kind, with gaps, and steps left out.
func drawn(rt *rapid.T, s *Series, label string) {
	step, _ := s.Last()
	level := rapid.Float64Range(0, 100).Draw(rt, label+" level")
	spread := rapid.SampledFrom([]float64{0, 1e-6, 0.1, 10, 1e6}).Draw(rt, label+" spread")
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, label+" seed"), 1))
	for range rapid.IntRange(0, 100).Draw(rt, label+" values") {
		step += 1
		if r.IntN(50) == 0 {
			step += int64(r.IntN(30))
		}
		y := level + spread*r.NormFloat64()
		if r.IntN(20) == 0 {
			y = math.NaN()
		}
		if r.IntN(60) == 0 {
			level *= 3
		}
		if err := s.Observe(step, y, r.IntN(15) == 0); err != nil {
			rt.Fatal(err)
		}
	}
}

func TestSeriesLaws(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := Options{
			Period:   rapid.IntRange(0, 100).Draw(rt, "period"),
			Positive: rapid.Bool().Draw(rt, "positive"), Max: rapid.SampledFrom([]float64{0, 50}).Draw(rt, "most"),
		}
		s, twin := New(o), New(o)
		drawn(rt, s, "first")
		stored, err := s.MarshalBinary()
		if err != nil {
			rt.Fatal(err)
		}
		if len(stored) > 20_000 {
			rt.Errorf("%d bytes stored", len(stored))
		}
		twin, err = Restore(stored, twin.o.Workspace)
		if err != nil {
			rt.Fatal(err)
		}
		// Both give the same from here on, down to the bit; and calls that only read change nothing.
		seed := rapid.Uint64().Draw(rt, "second")
		for i, x := range []*Series{s, twin} {
			r := rand.New(rand.NewPCG(seed, 2))
			step, _ := x.Last()
			for range 60 {
				step++
				_ = x.Observe(step, 50+10*r.NormFloat64(), false)
				if i == 0 {
					x.Forecast(12)
				}
			}
		}
		a, b := s.Forecast(15), twin.Forecast(15)
		if !reflect.DeepEqual(a, b) {
			rt.Errorf("restored it differs:\n%+v\n%+v", a, b)
		}
		if err := check(a.Ahead); err != nil {
			rt.Error(err)
		}
		for h, p := range a.Ahead {
			if o.Positive && p.Quantiles[0] < 0 || o.Max > 0 && p.Quantiles[levels-1] > o.Max {
				rt.Errorf("%d ahead beyond the bounds: %v", h+1, p.Quantiles)
			}
		}
		one, _ := s.MarshalBinary()
		two, _ := twin.MarshalBinary()
		if !bytes.Equal(one, two) {
			rt.Error("restored it is stored differently")
		}
	})
}

func TestRestoreRefuses(t *testing.T) {
	s := New(Options{})
	observe(t, s, 0, usage(200, 1))
	good, _ := s.MarshalBinary()
	if _, err := Restore(good, nil); err != nil {
		t.Fatal(err)
	}
	seal := func(b []byte) []byte {
		b = bytes.Clone(b)
		binary.LittleEndian.PutUint32(b[len(b)-4:], crc32.ChecksumIEEE(b[:len(b)-4]))
		return b
	}
	longer := append(bytes.Clone(good), 0)
	other := bytes.Clone(good)
	other[4]++
	endless := bytes.Clone(good)
	copy(endless[50:], bytes.Repeat([]byte{0xff}, 64))
	flipped := bytes.Clone(good)
	flipped[1000] ^= 1
	for name, b := range map[string][]byte{
		"nothing": nil, "half": good[:len(good)/2], "half, sealed": seal(good[:len(good)/2]), "longer": longer, "longer, sealed": seal(longer),
		"another version": seal(other), "not numbers": seal(endless), "one bit": flipped, "something else": []byte("PNG something else"),
	} {
		if s, err := Restore(b, nil); !errors.Is(err, errArchive) || s != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// States that no series comes to are refused even if nothing is damaged.
func TestRestoreRefusesStates(t *testing.T) {
	inf := float32(math.MaxFloat32)
	for name, spoil := range map[string]func(s *Series){
		"nothing broken":              func(*Series) {},
		"a forecast that descends":    func(s *Series) { s.m.ahead[4][2], s.m.ahead[4][8] = s.m.ahead[4][8], s.m.ahead[4][2] },
		"a forecast that is too wide": func(s *Series) { s.m.ahead[9][levels-1] = 1e30 },
		"a correction out of bounds":  func(s *Series) { s.m.conformal.shift[2][1] = -3.5 },
		"an error below 0":            func(s *Series) { s.m.conformal.scale[1] = -1 },
		"an endless error":            func(s *Series) { s.m.conformal.scale[1] = inf },
		"endless, waiting":            func(s *Series) { s.m.conformal.waiting[3][5] = inf },
		"an endless expert, waiting":  func(s *Series) { s.m.weights.waiting[1][0][4] = -inf },
		"a square below 0":            func(s *Series) { s.m.weights.square[0][0] = -1 },
		"an endless value":            func(s *Series) { s.m.h.ring[7] = 1e30 },
		"more inside than came":       func(s *Series) { s.m.record[0][1].inside[2] = 2 * s.m.record[0][1].values },
		"fewer than none inside":      func(s *Series) { s.m.record[2][0].inside[0] = -1 },
		"more above than came":        func(s *Series) { s.m.record[2][0].above = s.m.record[2][0].values + 0.9 },
		"more capped than all":        func(s *Series) { s.capped = 1.5 },
	} {
		s := New(Options{})
		observe(t, s, 0, usage(150, 1))
		spoil(s)
		b, err := s.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		_, err = Restore(b, s.o.Workspace)
		if refused := errors.Is(err, errArchive); refused == (name == "nothing broken") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzRestore(f *testing.F) {
	s := New(Options{Period: 48, Max: 9})
	observe(f, s, 0, usage(120, 3))
	good, _ := s.MarshalBinary()
	f.Add(uint16(0), []byte{}, []byte{})
	f.Add(uint16(40), []byte{1, 2, 3, 4, 5, 6, 7, 8}, []byte{})
	f.Add(uint16(5), []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, []byte{9})
	f.Add(uint16(9000), bytes.Repeat([]byte{0x7f}, 400), []byte{})
	w := NewWorkspace()
	// A state with some bytes written over, sealed: nearly all of them are read. Whatever comes of it, it is no panic,
	// and what is predicted keeps the rules.
	f.Fuzz(func(t *testing.T, at uint16, over, more []byte) {
		b := bytes.Clone(good[:len(good)-4])
		copy(b[min(int(at), len(b)):], over)
		b = append(b, more...)
		b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
		s, err := Restore(b, w)
		if err != nil {
			return
		}
		step, _ := s.Last()
		for i := range 4 {
			p := s.Forecast(12) // of the state as it was stored first
			if p.Ahead != nil {
				if err := check(p.Ahead); err != nil {
					t.Fatal(err)
				}
			}
			for _, m := range p.Calibration {
				for _, c := range m.Horizons {
					for _, x := range append([]float64{c.Above}, c.Coverage[:]...) {
						if !(x >= 0 && x <= 1.01) {
							t.Fatalf("%s: %+v", m.Model, c)
						}
					}
				}
			}
			step++
			if s.Observe(step, float64(i), i == 1) != nil {
				return
			}
		}
	})
}

// What 20,000 series cost a minute: the time of one step of one series on average, fits included.
func BenchmarkSeriesStep(b *testing.B) {
	const many = 20
	w := NewWorkspace()
	ys := usage(5000, 1)
	series := make([]*Series, many)
	steps := make([]int, many)
	for i := range series {
		series[i] = New(Options{Workspace: w})
		observe(b, series[i], 0, ys[:600+i])
		steps[i] = 600 + i
	}
	var out [Horizon]Prediction
	b.ReportAllocs()
	b.ResetTimer()
	for n := range b.N {
		i := n % many
		_ = series[i].Observe(int64(steps[i]), ys[steps[i]%len(ys)], false)
		series[i].Predict(out[:])
		steps[i]++
	}
}

// What one series keeps, workspace apart.
func BenchmarkSeriesMemory(b *testing.B) {
	const many = 1000
	for range b.N {
		w := NewWorkspace()
		ys := usage(700, 1)
		series := make([]*Series, many)
		warm := New(Options{Workspace: w})
		observe(b, warm, 0, ys[:200])
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range series {
			series[i] = New(Options{Workspace: w})
			observe(b, series[i], 0, ys[i%300:i%300+60])
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		per := float64(after.HeapAlloc-before.HeapAlloc) / many
		if per > 20_000 {
			b.Errorf("%.0f bytes for a series, 20,000 are to be enough", per)
		}
		b.ReportMetric(per, "B/series")
		stored, _ := series[0].MarshalBinary()
		b.ReportMetric(float64(len(stored)), "B/stored")
		runtime.KeepAlive(series)
	}
}

func ExampleSeries() {
	s := New(Options{Positive: true, Max: 2})
	for i := range int64(200) {
		_ = s.Observe(i, 0.5, false)
	}
	f := s.Forecast(3)
	fmt.Println(f.Trusted, f.Ahead[2].Quantiles[Median])
	// Output: true 0.5
}

// A gap costs next to nothing per step: no model is fitted while nothing is measured.
func BenchmarkSeriesGap(b *testing.B) {
	s := New(Options{})
	observe(b, s, 0, usage(300, 1))
	step, _ := s.Last()
	b.ResetTimer()
	for b.Loop() {
		step += 500
		_ = s.Observe(step, 1, false)
	}
}
