package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxSeconds bounds the time-out that a host may ask for.
const maxSeconds = 600

// guard is the watchdog itself, as a step function: events and times go in, lines for the log come
// out. It knows the connection that arms it by its number.
type guard struct {
	holder   int // connection that pets; 0: none, and the watchdog may still be counting
	timeout  time.Duration
	deadline time.Time // zero: disarmed
	last     byte      // last byte of the holder
}

var errFirstLine = errors.New(`the first line must be "timeout SECONDS"`)

// firstLine arms: the connection becomes the holder. A host that crashed and
// came back takes over; one whose predecessor still holds the line does too,
// for that one's end then changes nothing.
func (g *guard) firstLine(conn int, line string, now time.Time) (seconds int, err error) {
	number, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "timeout ")
	seconds, err = strconv.Atoi(number)
	if !ok || err != nil {
		return 0, errFirstLine
	}
	if seconds < 1 || seconds > maxSeconds {
		return 0, fmt.Errorf("time-outs go from 1 to %d seconds", maxSeconds)
	}
	g.holder, g.timeout, g.last = conn, time.Duration(seconds)*time.Second, 0
	g.deadline = now.Add(g.timeout)
	return seconds, nil
}

// bytes are pets of the holder. Bytes of other connections do not count. It says whether they counted.
func (g *guard) bytes(conn int, b []byte, now time.Time) bool {
	if conn != g.holder || len(b) == 0 || g.deadline.IsZero() {
		return false
	}
	g.last = b[len(b)-1]
	g.deadline = now.Add(g.timeout)
	return true
}

// end of a connection: of the holder, after V, it disarms.
func (g *guard) end(conn int) (stopped bool) {
	if conn != g.holder {
		return false
	}
	g.holder = 0
	if g.last == 'V' && !g.deadline.IsZero() {
		g.deadline = time.Time{}
		return true
	}
	return false
}

// reset is what a loss of power does to a watchdog: it counts nothing any more.
func (g *guard) reset() { *g = guard{} }

// expired says whether the host's time is up. It does so once for each time it was armed.
func (g *guard) expired(now time.Time) bool {
	if g.deadline.IsZero() || now.Before(g.deadline) {
		return false
	}
	g.deadline, g.holder = time.Time{}, 0
	return true
}
