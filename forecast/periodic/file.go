package periodic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Bounds of a file of runs.
const (
	MaxFile    = 64 << 20 // bytes
	maxRuns    = 200_000
	maxRunName = 253 // bytes, of each text
)

// ParseRuns reads the file of `vcctl periodic find`: one run a line, as a JSON object. Errors name the line.
func ParseRuns(file []byte) (runs []Run, err error) {
	if len(file) > MaxFile {
		return nil, fmt.Errorf("longer than %d MiB", MaxFile>>20)
	}
	n := 0
	for line := range bytes.Lines(file) {
		n++
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if len(runs) == maxRuns {
			return nil, fmt.Errorf("line %d: more than %d runs", n, maxRuns)
		}
		r, err := parseRun(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		runs = append(runs, r)
	}
	return runs, nil
}

func parseRun(line []byte) (r Run, err error) {
	var v struct {
		Owner, Name, Job, Kind string
		Begin, End             *time.Time
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return r, fmt.Errorf("%w (known are owner, name, job, kind, begin and end)", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return r, fmt.Errorf("text after the end of the object at byte %d", d.InputOffset())
	}
	for _, f := range []struct{ name, text string }{{"owner", v.Owner}, {"name", v.Name}, {"job", v.Job}, {"kind", v.Kind}} {
		if len(f.text) > maxRunName {
			return r, fmt.Errorf("%s has %d bytes, %d are possible", f.name, len(f.text), maxRunName)
		}
	}
	switch {
	case v.Name == "" && v.Job == "":
		return r, errors.New("name is missing")
	case v.Begin == nil:
		return r, errors.New("begin is missing: a time such as 2026-11-22T02:00:10Z")
	case v.Begin.Year() < 1970 || v.Begin.Year() > 9000:
		return r, fmt.Errorf("begin %s is not between the years 1970 and 9000", v.Begin.Format(time.RFC3339))
	}
	r = Run{Owner: v.Owner, Name: v.Name, Job: v.Job, Kind: v.Kind, Begin: *v.Begin}
	if v.End != nil {
		r.End = *v.End
	}
	return r, nil
}
