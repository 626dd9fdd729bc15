package trace

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Request is a VM, a pod or a job that was asked for.
type Request struct {
	Name     string  // unique within what was read; "": the files have no names
	Batch    int     // requests that one tenant made together have the same, from 0; -1: not in the files
	Submit   float64 // seconds from the beginning of the trace
	Start    float64 // when it was placed, seconds from the beginning; NaN: never, or not known
	Run      float64 // seconds from Start, or from Submit where Start is not known; NaN: not known
	Censored bool    // it still ran when the trace ended: Run is a lower bound
	CPU      float64 // cores; NaN: not known
	Memory   float64 // bytes; NaN: not known
	GPUs     float64
}

// Machine is a host of a trace.
type Machine struct {
	Name   string
	CPU    float64 // cores
	Memory float64 // bytes
	GPUs   int
}

// bySubmit orders requests; those that came together stay as they were.
func bySubmit(r []Request) {
	slices.SortStableFunc(r, func(a, b Request) int { return cmp.Compare(a.Submit, b.Submit) })
}

// read opens a file, packed or not, within the bounds of o, and hands it to each.
func (s Source) read(o Options, each func(r io.Reader) error) error {
	f, err := s.FS.Open(s.Name)
	if err != nil {
		return err
	}
	defer f.Close()
	b := bufio.NewReader(f)
	r := io.Reader(b)
	if head, _ := b.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		if r, err = gzip.NewReader(b); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	if err := each(&bounded{r: r, left: min(o.MaxFileBytes, o.MaxTotalBytes)}); err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	return nil
}

// table reads comma-separated values under a header. each gets a row's fields in the order of columns; all of these must
// be there, and others may.
func table(r io.Reader, limit int, columns []string, each func(field []string) error) error {
	c := csv.NewReader(r)
	c.ReuseRecord = true
	header, err := c.Read()
	if err == io.EOF {
		return errors.New("no header")
	}
	if err != nil {
		return err
	}
	at := make([]int, len(columns))
	for i, name := range columns {
		if at[i] = slices.IndexFunc(header, func(h string) bool { return strings.TrimSpace(h) == name }); at[i] < 0 {
			return fmt.Errorf("no column %q in the header", name)
		}
	}
	field := make([]string, len(columns))
	for n := 0; ; n++ {
		row, err := c.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if n == limit {
			return fmt.Errorf("more than %d rows", limit)
		}
		for i, k := range at {
			field[i] = strings.TrimSpace(row[k])
		}
		if err := each(field); err != nil {
			line, _ := c.FieldPos(0)
			return fmt.Errorf("line %d: %w", line, err)
		}
	}
}

// amount reads a number of at least 0 that is there and could be.
func amount(what, text string) (float64, error) {
	v, err := number(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	if !(v <= 1e15) { // NaN too
		return 0, fmt.Errorf("%s: %q is no amount that could be", what, text)
	}
	return v, nil
}

// maybe is amount of a field that may be empty: the file does not state the value.
func maybe(what, text string) (float64, error) {
	if text == "" {
		return math.NaN(), nil
	}
	return amount(what, text)
}
