package allocator

// CountBound is the part of UpperBound that adds up and counts CPU.
func CountBound(p Problem) float64 { return countBound(&p) }

// MixBound is what the mix of CPU and memory makes of a bound.
func MixBound(p Problem, bound float64) float64 { return mixBound(&p, bound) }
