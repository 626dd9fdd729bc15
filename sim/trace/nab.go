package trace

import (
	"fmt"
	"io"
	"math"
	"path"
	"strconv"
	"strings"
	"time"
)

// nabTime is the form of NAB's times, in an unstated zone that is taken for UTC.
const nabTime = "2006-01-02 15:04:05"

func knownNAB(head []byte) bool { return firstLine(head) == "timestamp,value" }

// readNAB reads one series of the Numenta Anomaly Benchmark.
func readNAB(c *collector, name string, r io.Reader) error {
	var rows []sample
	header := true
	err := lines(r, func(text string) error {
		if header {
			header = false
			if knownNAB([]byte(text)) {
				return nil
			}
		}
		when, value, _ := strings.Cut(text, ",")
		t, err := time.Parse(nabTime, strings.TrimSpace(when))
		if err != nil {
			return fmt.Errorf("time %s is not like %s", strconv.Quote(when), nabTime)
		}
		v, err := number(value)
		if err != nil {
			return err
		}
		if len(rows) >= 4*c.o.MaxLength {
			return fmt.Errorf("more than %d rows", 4*c.o.MaxLength)
		}
		rows = append(rows, sample{at: t.Unix(), values: [2]float64{v, math.NaN()}})
		return nil
	})
	if err != nil {
		return err
	}
	g, err := newGrid(rows, c.o.MaxLength)
	if err != nil {
		return err
	}
	if len(g.values[0]) == 0 {
		return c.leaveOut(name, "%d rows of one time", len(rows))
	}
	if g.repeated > 0 {
		c.note("%s: %d rows repeat a time, the first of each counts", name, g.repeated)
	}
	base := path.Base(name)
	return c.add(Series{Set: string(NAB), VM: strings.TrimSuffix(base, path.Ext(base)), Resource: CPU,
		Step: time.Duration(g.step) * time.Second, Start: time.Unix(g.start, 0).UTC(), Values: g.values[0], Limit: 100})
}
