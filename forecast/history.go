package forecast

import "math"

// window is how many values a history keeps. In minutes that is 8.5 hours; what repeats daily is the seasonal expert's.
const window = 512

// largest absolute value that counts as measured: float32, in which most of what is learned is kept, must hold its square.
const largest = 1e17

// stated is the largest absolute value of a quantile that counts as stated, and so of one that stands for a value.
const stated = largest * 10

// modest says whether numbers that are measured may have been stated, or be a difference of such.
func modest(x []float32) bool {
	for _, v := range x {
		if math.Abs(float64(v)) > 4*stated {
			return false
		}
	}
	return true
}

// history is the latest values of one series. A value that was not measured is filled with the value that was expected, so
// that lags keep their distance, and marked, so that it is not used as a measurement.
type history struct {
	ring  [window]float64 // by n modulo window
	known [window / 64]uint64
	n     int // values pushed, filled ones included
	seen  int // values measured
}

func (h *history) push(y float64, measured bool) {
	i := h.n & (window - 1)
	h.ring[i] = y
	if measured {
		h.known[i/64] |= 1 << (i % 64)
		h.seen++
	} else {
		h.known[i/64] &^= 1 << (i % 64)
	}
	h.n++
}

// size is how many values can be looked at.
func (h *history) size() int { return min(h.n, window) }

// at is the value k steps before the newest, 0 <= k < size.
func (h *history) at(k int) float64 { return h.ring[(h.n-1-k)&(window-1)] }

// measured says whether at(k) was measured.
func (h *history) measured(k int) bool {
	i := (h.n - 1 - k) & (window - 1)
	return h.known[i/64]&(1<<(i%64)) != 0
}

// whole says whether the newest n values were measured: models look back so far, and rely on no value that was filled in.
func (h *history) whole(n int) bool {
	for k := range min(n, h.size()) {
		if !h.measured(k) {
			return false
		}
	}
	return true
}

// latest are the measured ones of the newest n values, newest first, in dst's memory.
func (h *history) latest(dst []float64, n int) []float64 {
	dst = dst[:0]
	for k := range min(n, h.size()) {
		if h.measured(k) {
			dst = append(dst, h.at(k))
		}
	}
	return dst
}

func (h *history) archive(a *archive) {
	a.floats(h.ring[:])
	for _, y := range h.ring {
		a.require(math.Abs(y) <= stated, "a value is too great")
	}
	for i := range h.known {
		a.uint64(&h.known[i])
	}
	a.count(&h.n, math.MaxInt32)
	a.count(&h.seen, h.n)
}

// countable says whether y counts as measured.
func countable(y float64) bool { return math.Abs(y) <= largest }

// room is where values may be believed to lie: the range of what was measured, with as much again on either side.
func (h *history) room() (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for k := range h.size() {
		if h.measured(k) {
			low, high = min(low, h.at(k)), max(high, h.at(k))
		}
	}
	if low > high {
		return h.at(0), h.at(0)
	}
	return low - (high - low), high + (high - low)
}
