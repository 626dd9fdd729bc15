package allocator

// CountBound is the part of UpperBound that adds up and counts CPU.
func CountBound(p Problem) float64 { return countBound(&p) }

// MixBound is what the mix of CPU and memory makes of a bound.
func MixBound(p Problem, bound float64) float64 { return mixBound(&p, bound) }

// Aligned is where the packing by the nearest mix puts each VM of a problem with one VM to a group; nil if it finds nothing.
func Aligned(p Problem, lowest, highest float64) []int32 {
	group := make([]int32, len(p.Groups))
	for g := range group {
		group[g] = int32(g)
	}
	return aligned(&p, group, lowest, highest, func() bool { return false })
}
