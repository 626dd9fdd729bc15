package ets

import "math"

// simplex is the search of Nelder and Mead (The Computer Journal 7, 1965), with the usual factors, in memory of its own.
type simplex struct {
	f                 func(x []float64) float64 // to be made least; NaN counts as infinite
	points            [][]float64               // one more than dimensions
	values            []float64
	center, try, try2 []float64
	calls             int
}

func newSimplex(dimensions int, f func(x []float64) float64) *simplex {
	s := &simplex{f: f, values: make([]float64, dimensions+1)}
	line := func() []float64 { return make([]float64, dimensions) }
	for range dimensions + 1 {
		s.points = append(s.points, line())
	}
	s.center, s.try, s.try2 = line(), line(), line()
	return s
}

func (s *simplex) at(x []float64) float64 {
	s.calls++
	if v := s.f(x); !math.IsNaN(v) {
		return v
	}
	return math.Inf(1)
}

// search moves x to the least value it finds with about calls evaluations, in which all restarts are counted: from a place that
// is found it begins again with fresh steps until that gains less than tolerance. It returns the value.
func (s *simplex) search(x, steps []float64, calls int, tolerance float64) float64 {
	s.calls = 0
	best := math.Inf(1)
	for scale := 1.0; s.calls < calls; scale = -scale / 2 {
		v := s.once(x, steps, scale, calls, tolerance)
		if gain := best - v; gain <= tolerance || math.IsNaN(gain) {
			return v
		}
		best = v
	}
	return best
}

func (s *simplex) once(x, steps []float64, scale float64, calls int, tolerance float64) float64 {
	n := len(x)
	for i, p := range s.points {
		copy(p, x)
		if i > 0 {
			p[i-1] += scale * steps[i-1]
		}
		s.values[i] = s.at(p)
	}
	for {
		s.order()
		if spread := s.values[n] - s.values[0]; s.calls >= calls || spread <= tolerance*0.01 || math.IsNaN(spread) {
			copy(x, s.points[0])
			return s.values[0]
		}
		for i := range s.center {
			s.center[i] = 0
			for _, p := range s.points[:n] {
				s.center[i] += p[i] / float64(n)
			}
		}
		reflected := s.toward(s.try, -1)
		switch {
		case reflected < s.values[0]:
			if expanded := s.toward(s.try2, -2); expanded < reflected {
				s.replace(s.try2, expanded)
			} else {
				s.replace(s.try, reflected)
			}
			continue
		case reflected < s.values[n-1]:
			s.replace(s.try, reflected)
			continue
		}
		part := 0.5
		if reflected < s.values[n] {
			part = -0.5
		}
		if contracted := s.toward(s.try2, part); contracted < min(reflected, s.values[n]) {
			s.replace(s.try2, contracted)
			continue
		}
		for i := 1; i <= n; i++ {
			for j := range s.points[i] {
				s.points[i][j] = (s.points[i][j] + s.points[0][j]) / 2
			}
			s.values[i] = s.at(s.points[i])
		}
	}
}

// toward puts into x what lies part of the way from the center to the worst point, and returns its value.
func (s *simplex) toward(x []float64, part float64) float64 {
	worst := s.points[len(s.points)-1]
	for i := range x {
		x[i] = s.center[i] + part*(worst[i]-s.center[i])
	}
	return s.at(x)
}

// replace puts x in the place of the worst point.
func (s *simplex) replace(x []float64, value float64) {
	last := len(s.points) - 1
	copy(s.points[last], x)
	s.values[last] = value
}

// order sorts the points by value; most are in order already.
func (s *simplex) order() {
	for i := 1; i < len(s.points); i++ {
		for j := i; j > 0 && s.values[j] < s.values[j-1]; j-- {
			s.values[j], s.values[j-1] = s.values[j-1], s.values[j]
			s.points[j], s.points[j-1] = s.points[j-1], s.points[j]
		}
	}
}
