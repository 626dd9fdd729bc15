package forecast

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// errArchive is what every refusal of stored bytes wraps.
var errArchive = errors.New("forecast: stored series cannot be read")

// archive writes the parts of a state to bytes or reads them back, in one order that the same code walks for both.
// After the first fault it does nothing more.
type archive struct {
	buf     []byte
	at      int // place of the next byte to be read
	reading bool
	err     error
}

func (a *archive) fail(format string, args ...any) {
	if a.err == nil {
		a.err = fmt.Errorf("%w: byte %d: "+format, append([]any{errArchive, a.at}, args...)...)
	}
}

func (a *archive) take(n int) []byte {
	if a.err == nil && len(a.buf)-a.at < n {
		a.fail("ends early")
	}
	if a.err != nil {
		return nil
	}
	a.at += n
	return a.buf[a.at-n : a.at]
}

func (a *archive) uint64(x *uint64) {
	if !a.reading {
		a.buf = binary.LittleEndian.AppendUint64(a.buf, *x)
	} else if b := a.take(8); b != nil {
		*x = binary.LittleEndian.Uint64(b)
	}
}

// require refuses what no series ever stores, if it was read.
func (a *archive) require(ok bool, what string) {
	if a.reading && !ok {
		a.fail("%s", what)
	}
}

// count is an integer from 0 to limit.
func (a *archive) count(x *int, limit int) {
	w := uint64(*x)
	a.uint64(&w)
	if a.reading && a.err == nil {
		if w > uint64(limit) {
			a.fail("count of %d, at most %d", w, limit)
			return
		}
		*x = int(w)
	}
}

// flag is a truth value.
func (a *archive) flag(x *bool) {
	n := 0
	if *x {
		n = 1
	}
	a.count(&n, 1)
	*x = n == 1
}

// float is a finite number.
func (a *archive) float(x *float64) {
	w := math.Float64bits(*x)
	a.uint64(&w)
	if a.reading && a.err == nil {
		v := math.Float64frombits(w)
		if math.Abs(v) > math.MaxFloat32 || v != v {
			a.fail("number %v", v)
			return
		}
		*x = v
	}
}

func (a *archive) floats(x []float64) {
	for i := range x {
		a.float(&x[i])
	}
}

// singles are numbers of half the size, each finite or, where gaps are allowed, NaN.
func (a *archive) singles(x []float32, gaps bool) {
	if !a.reading {
		for _, v := range x {
			a.buf = binary.LittleEndian.AppendUint32(a.buf, math.Float32bits(v))
		}
		return
	}
	b := a.take(4 * len(x))
	if b == nil {
		return
	}
	for i := range x {
		v := math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		if v != v && !gaps || v-v != 0 && v == v {
			a.fail("number %v", v)
			return
		}
		x[i] = v
	}
}
