// Package series draws series for tests of models that predict.
package series

import (
	"math"
	"math/rand/v2"
)

// Noise is a series of n values around 50.
func Noise(n int, seed uint64) []float64 {
	r := rand.New(rand.NewPCG(seed, 1))
	ys := make([]float64, n)
	for i := range ys {
		ys[i] = 50 + 5*r.NormFloat64()
	}
	return ys
}

// Shapes are series that trouble models.
func Shapes() map[string][]float64 {
	s := map[string][]float64{
		"constant": make([]float64, 300), "zero": make([]float64, 300), "noise": Noise(400, 1), "tiny": Noise(300, 2),
		"huge": Noise(300, 3), "gaps": Noise(400, 4), "every second": Noise(400, 5), "jumps": Noise(400, 6),
		"negative": Noise(300, 7), "a long gap": Noise(500, 8), "absurd": Noise(300, 9), "nothing": make([]float64, 50),
		"one in between": make([]float64, 300), "period": Noise(600, 10), "trend": Noise(300, 11),
	}
	r := rand.New(rand.NewPCG(9, 9))
	for i := range s["constant"] {
		s["constant"][i] = 7.3
		s["tiny"][i] *= 1e-80
		s["huge"][i] *= 1e80
		s["negative"][i] -= 50
		s["trend"][i] += float64(i)
	}
	for i := range s["gaps"] {
		if r.IntN(3) == 0 {
			s["gaps"][i] = math.NaN()
		}
		if i%2 == 1 {
			s["every second"][i] = math.NaN()
		}
		if i/60%2 == 1 {
			s["jumps"][i] *= 100
		}
		if i >= 150 {
			s["a long gap"][i] = math.NaN()
		}
	}
	for i := range s["nothing"] {
		s["nothing"][i] = math.NaN()
	}
	for i := range s["period"] {
		s["period"][i] += 30 * math.Sin(2*math.Pi*float64(i)/24)
	}
	s["absurd"][200], s["absurd"][201], s["absurd"][202] = math.Inf(1), -1e300, math.MaxFloat64
	s["one in between"][150] = 1e9
	return s
}

// Autoregressive is a series with a level of 20 whose neighbours resemble each other.
func Autoregressive(n int, seed uint64) []float64 {
	r := rand.New(rand.NewPCG(seed, 3))
	ys := make([]float64, n)
	x := 0.0
	for i := range ys {
		x = 0.9*x + r.NormFloat64()
		ys[i] = 20 + x
	}
	return ys
}
