package trace

import (
	"fmt"
	"io"
	"math"
	"path"
	"strings"
	"time"
)

// bitbrainsColumns are the columns that are read, by their names in the header.
var bitbrainsColumns = [...]string{"Timestamp [ms]", "CPU cores", "CPU capacity provisioned [MHZ]", "CPU usage [MHZ]",
	"Memory capacity provisioned [KB]", "Memory usage [KB]"}

func knownBitbrains(head []byte) bool {
	return strings.HasPrefix(firstLine(head), bitbrainsColumns[0]+";")
}

// readBitbrains reads the file of one VM. The header says milliseconds, the published files hold seconds: both are understood.
func readBitbrains(c *collector, name string, r io.Reader) error {
	vm := strings.TrimSuffix(name, path.Ext(name))
	var at [len(bitbrainsColumns)]int
	last := -1 // the last column that is read; -1: no header yet
	var rows []sample
	cpu, memory := math.NaN(), math.NaN() // provisioned
	err := lines(r, func(text string) error {
		if last < 0 {
			for i, want := range bitbrainsColumns {
				if at[i] = column(text, want); at[i] < 0 {
					return fmt.Errorf("no column %q in the header", want)
				}
				last = max(last, at[i])
			}
			return nil
		}
		if len(rows) >= 4*c.o.MaxLength {
			return fmt.Errorf("more than %d rows", 4*c.o.MaxLength)
		}
		var v [len(bitbrainsColumns)]float64
		rest := text
		for k := 0; k <= last; k++ {
			var field string
			var more bool
			if field, rest, more = strings.Cut(rest, ";"); !more && k < last {
				return fmt.Errorf("%d columns, expected at least %d", k+1, last+1)
			}
			for i := range at {
				if at[i] != k {
					continue
				}
				n, err := number(field)
				if err != nil {
					return fmt.Errorf("%s: %w", bitbrainsColumns[i], err)
				}
				v[i] = n
			}
		}
		when := v[0]
		if when > 1e11 {
			when /= 1000
		}
		if !(when < 1e11) {
			return fmt.Errorf("a row without a time")
		}
		row := sample{at: int64(when), values: [2]float64{v[3], v[5]}}
		if !(v[1] > 0) { // off
			row.values = [2]float64{math.NaN(), math.NaN()}
		} else {
			cpu, memory = larger(cpu, v[2]), larger(memory, v[4])
		}
		rows = append(rows, row)
		return nil
	})
	if err != nil {
		return err
	}
	g, err := newGrid(rows, c.o.MaxLength)
	if err != nil {
		return err
	}
	switch {
	case len(g.values[0]) == 0:
		return c.leaveOut(name, "%d rows of one time", len(rows))
	case g.repeated*100 > len(rows):
		return c.leaveOut(name, "%d of %d rows repeat a time: the rows of several machines", g.repeated, len(rows))
	}
	if g.repeated > 0 {
		c.note("%s: %d rows repeat a time, the first of each counts", name, g.repeated)
	}
	s := Series{Set: string(Bitbrains), VM: vm, Step: time.Duration(g.step) * time.Second, Start: time.Unix(g.start, 0).UTC()}
	s.Resource, s.Values, s.Limit = CPU, g.values[0], cpu
	if s.Measured() == 0 {
		return c.leaveOut(name, "the VM was never on")
	}
	if err := c.add(s); err != nil {
		return err
	}
	s.Resource, s.Values, s.Limit = Memory, g.values[1], memory
	return c.add(s)
}

// column is the place of a name in a header, -1 if it is not there.
func column(header, name string) int {
	for i, field := range strings.Split(header, ";") {
		if strings.EqualFold(strings.TrimSpace(field), name) {
			return i
		}
	}
	return -1
}

// larger of a and b, where a may be unknown and a b of 0 says nothing.
func larger(a, b float64) float64 {
	if b > 0 && !(a >= b) {
		return b
	}
	return a
}
