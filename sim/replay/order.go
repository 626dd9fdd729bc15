package replay

import "math/bits"

// ranks is a set of small numbers that can be iterated in order, or from any of them on, without sorting: words of bits, and above them
// bits that say which of these words are not 0.
type ranks struct {
	levels [][]uint64
	n      int // members
}

func newRanks(size int) ranks {
	var r ranks
	for {
		size = (size + 63) / 64
		r.levels = append(r.levels, make([]uint64, max(size, 1)))
		if size <= 1 {
			return r
		}
	}
}

func (r *ranks) has(i int32) bool { return r.levels[0][i>>6]>>(i&63)&1 != 0 }

func (r *ranks) add(i int32) {
	if r.has(i) {
		return
	}
	r.n++
	for _, l := range r.levels {
		w, b := i>>6, uint64(1)<<(i&63)
		was := l[w]
		l[w] = was | b
		if was != 0 {
			return
		}
		i = w
	}
}

func (r *ranks) remove(i int32) {
	if !r.has(i) {
		return
	}
	r.n--
	for _, l := range r.levels {
		w := i >> 6
		l[w] &^= 1 << (i & 63)
		if l[w] != 0 {
			return
		}
		i = w
	}
}

// from is the least member that is not below i; -1 if there is none.
func (r *ranks) from(i int32) int32 {
	for k := 0; k < len(r.levels); k++ {
		l := r.levels[k]
		w := int(i >> 6)
		if w >= len(l) {
			return -1
		}
		if rest := l[w] >> (i & 63) << (i & 63); rest != 0 {
			at := int32(w<<6 + bits.TrailingZeros64(rest))
			for k--; k >= 0; k-- {
				at = at<<6 + int32(bits.TrailingZeros64(r.levels[k][at]))
			}
			return at
		}
		i = int32(w + 1)
	}
	return -1
}
