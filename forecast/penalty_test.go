package forecast

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestPenaltyByHand(t *testing.T) {
	flex, given := FlexPenalty, FlexPenalty
	given.Min = 1.01
	short := MarginSettings{Start: 1.02, Min: 1.01, Decay: 0.5, Growth: 1, Target: 0.9}
	for name, c := range map[string]struct {
		s       MarginSettings
		quality []float64
		want    []float64
	}{
		"good: alpha P":                        {flex, []float64{1, 0.995}, []float64{1.485, 1.47015}},
		"at the target: as it was":             {flex, []float64{0.99}, []float64{1.5}},
		"bad and falling: P + beta (P - 1)":    {flex, []float64{0.98, 0.97}, []float64{2, 3}},
		"bad and rising, or level: as it was":  {flex, []float64{0.9, 0.95, 0.95, 0.94}, []float64{2, 2, 2, 3}},
		"not measured":                         {flex, []float64{math.NaN(), 0.98, math.NaN(), 0.97}, []float64{1.5, 2, 2, 3}},
		"a minimum of 1 holds P for good":      {MarginSettings{Start: 1.001, Min: 1, Decay: 0.5, Growth: 1, Target: 0.9}, []float64{1, 0.8, 0.7, 0.1}, []float64{1, 1, 1, 1}},
		"from 1.01 it rises: 1.02, 1.04, 1.08": {short, []float64{1, 0.8, 0.7, 0.6}, []float64{1.01, 1.02, 1.04, 1.08}},
		"no further than the bound":            {MarginSettings{Start: 1.5, Min: 1.01, Max: 2.5, Decay: 0.99, Growth: 1, Target: 0.99}, []float64{0.9, 0.8, 0.7}, []float64{2, 2.5, 2.5}},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := NewPenalty(c.s)
			if err != nil {
				t.Fatal(err)
			}
			for i, q := range c.quality {
				if p.Observe(q); math.Abs(p.Value()-c.want[i]) > 1e-12 {
					t.Fatalf("after quality %v: %v, want %v", c.quality[:i+1], p.Value(), c.want[i])
				}
			}
		})
	}
}

func TestPenaltyRefuses(t *testing.T) {
	for name, change := range map[string]func(*MarginSettings){
		"a minimum below 1":                func(s *MarginSettings) { s.Min = 0.99 },
		"a minimum that is none":           func(s *MarginSettings) { s.Min = math.NaN() },
		"a start below the minimum":        func(s *MarginSettings) { s.Start = 1 },
		"a start above the maximum":        func(s *MarginSettings) { s.Start = 3 },
		"a start without end":              func(s *MarginSettings) { s.Max, s.Start = 0, math.Inf(1) },
		"a maximum below the least":        func(s *MarginSettings) { s.Max = 1 },
		"a decay of 1":                     func(s *MarginSettings) { s.Decay = 1 },
		"no growth":                        func(s *MarginSettings) { s.Growth = 0 },
		"a target that no host can exceed": func(s *MarginSettings) { s.Target = 1 },
	} {
		s := QualityPenalty
		change(&s)
		if _, err := NewPenalty(s); err == nil {
			t.Errorf("%s: taken: %+v", name, s)
		}
	}
	for _, s := range []MarginSettings{FlexPenalty, QualityPenalty} {
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	}
}

// Whatever is observed, P stays within its bounds and follows the quality. A P above 1 rises whenever the quality falls below its
// target; P = 1 does not rise, which a minimum above 1 avoids. Nor does a P so near to 1 that rounding takes its growth.
func TestPenaltyLaws(t *testing.T) {
	const nearest = 1 + 1e-9
	rapid.Check(t, func(t *rapid.T) {
		s := MarginSettings{
			Min:    rapid.Float64Range(1, 1.2).Draw(t, "min"),
			Decay:  rapid.Float64Range(0.5, 0.999).Draw(t, "decay"),
			Growth: rapid.Float64Range(0.01, 4).Draw(t, "growth"),
			Target: rapid.Float64Range(0.5, 0.999).Draw(t, "target"),
		}
		s.Start = s.Min + rapid.Float64Range(0, 2).Draw(t, "start")
		if rapid.Bool().Draw(t, "bounded") {
			s.Max = s.Start + rapid.Float64Range(0, 5).Draw(t, "max")
		}
		p, err := NewPenalty(s)
		if err != nil {
			t.Fatal(err)
		}
		last := math.NaN()
		for _, q := range rapid.SliceOfN(rapid.Float64Range(0, 1), 1, 400).Draw(t, "quality") {
			before := p.Value()
			p.Observe(q)
			after := p.Value()
			if !(after >= s.Min) || math.IsInf(after, 0) || s.Max > 0 && after > s.Max {
				t.Fatalf("P = %v with %+v", after, s)
			}
			falls := q < s.Target && !(q >= last)
			switch {
			case q > s.Target && after > before, q <= s.Target && after < before, !falls && after > before:
				t.Fatalf("quality %v after %v: P went from %v to %v with %+v", q, last, before, after, s)
			case falls && before > nearest && (s.Max == 0 || before < s.Max) && !(after > before) && before < math.MaxFloat64:
				t.Fatalf("quality fell from %v to %v: P stayed at %v with %+v", last, q, before, s)
			}
			last = q
		}
	})
}
