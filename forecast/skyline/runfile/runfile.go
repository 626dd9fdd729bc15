// Package runfile reads the run files of `vcctl periodic fit`: one run a line, as a JSON object. It takes bytes
// and never does I/O.
package runfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"unicode/utf8"
)

// Bounds of a file.
const (
	MaxFile   = 16 << 20 // bytes
	MaxRuns   = 10_000
	MaxSteps  = 10_000  // of a run
	MaxValues = 200_000 // runs times the steps of the longest
	MaxUsage  = 1e18    // of a step, in any unit
	MaxStep   = 31 * 86400.0
	maxName   = 253 // bytes
)

// Run is what one run used.
type Run struct {
	Name  string
	Step  float64 // seconds
	Usage []float64
	// Throttled marks the steps in which something held the run back: it needed at least what it used there. nil: none.
	Throttled []bool

	steps []int // of Throttled
}

// Parse reads all runs of a file. They have one step, and names of their own. Errors name the line.
func Parse(file []byte) (runs []Run, err error) {
	if len(file) > MaxFile {
		return nil, fmt.Errorf("longer than %d MiB", MaxFile>>20)
	}
	seen, longest, n := map[string]int{}, 0, 0
	for line := range bytes.Lines(file) {
		n++
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		r, err := parseRun(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		longest = max(longest, len(r.Usage))
		switch at := seen[r.Name]; {
		case at > 0:
			return nil, fmt.Errorf("line %d: run %q stands in line %d, too", n, r.Name, at)
		case len(runs) > 0 && r.Step != runs[0].Step:
			return nil, fmt.Errorf("line %d: step is %v s, that of the runs before %v s", n, r.Step, runs[0].Step)
		case len(runs) == MaxRuns:
			return nil, fmt.Errorf("line %d: more than %d runs", n, MaxRuns)
		case (len(runs)+1)*longest > MaxValues:
			return nil, fmt.Errorf("line %d: %d runs of up to %d steps are more than %d values", n, len(runs)+1, longest, MaxValues)
		}
		seen[r.Name] = n
		runs = append(runs, r)
	}
	if len(runs) == 0 {
		return nil, errors.New("there is no run")
	}
	return runs, nil
}

// parseRun reads the object of one run. Each field but throttled must be there, none twice, and no other.
func parseRun(line []byte) (Run, error) {
	var r Run
	if !utf8.Valid(line) {
		return r, errors.New("not valid UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(line))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return r, errors.New("not a JSON object")
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return r, malformed(d, err)
		}
		key, _ := t.(string)
		if seen[key] {
			return r, fmt.Errorf("field %q stands twice", key)
		}
		seen[key] = true
		if err := r.field(d, key); err != nil {
			return r, err
		}
	}
	if _, err := d.Token(); err != nil {
		return r, malformed(d, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return r, fmt.Errorf("text after the end of the object at byte %d", d.InputOffset())
	}
	for _, key := range []string{"run", "step", "usage"} {
		if !seen[key] {
			return r, fmt.Errorf("%s is missing", key)
		}
	}
	for _, k := range r.steps {
		if k >= len(r.Usage) {
			return r, fmt.Errorf("throttled has step %d, and usage has %d steps, from 0 on", k, len(r.Usage))
		}
		if r.Throttled == nil {
			r.Throttled = make([]bool, len(r.Usage))
		}
		r.Throttled[k] = true
	}
	r.steps = nil
	return r, nil
}

func malformed(d *json.Decoder, err error) error {
	return fmt.Errorf("not JSON at byte %d: %w", d.InputOffset(), err)
}

// field reads the value of a key.
func (r *Run) field(d *json.Decoder, key string) error {
	switch key {
	case "run":
		t, err := d.Token()
		if err != nil {
			return malformed(d, err)
		}
		var text bool
		if r.Name, text = t.(string); !text || r.Name == "" || len(r.Name) > maxName {
			return fmt.Errorf("run must be a name of 1 to %d bytes", maxName)
		}
	case "step":
		t, err := d.Token()
		if err != nil {
			return malformed(d, err)
		}
		var number bool
		if r.Step, number = t.(float64); !number || r.Step <= 0 || r.Step > MaxStep {
			return fmt.Errorf("step must be a number of seconds, above 0 and at most %v", MaxStep)
		}
	case "usage":
		err := numbers(d, key, MaxUsage, func(v float64) { r.Usage = append(r.Usage, math.Abs(v)) }) // no -0
		if err == nil && len(r.Usage) == 0 {
			return errors.New("usage has no step")
		}
		return err
	case "throttled":
		whole := true
		err := numbers(d, key, MaxSteps, func(v float64) { r.steps, whole = append(r.steps, int(v)), whole && v == math.Trunc(v) })
		if err == nil && !whole {
			return errors.New("throttled must be an array of whole numbers, of steps from 0 on")
		}
		return err
	default:
		return fmt.Errorf("unknown field %q: known are run, step, usage and throttled", key)
	}
	return nil
}

// numbers reads an array of numbers from 0 to a limit.
func numbers(d *json.Decoder, key string, limit float64, take func(v float64)) error {
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return fmt.Errorf("%s must be an array of numbers", key)
	}
	n := 0
	for ; d.More(); n++ {
		t, err := d.Token()
		if err != nil {
			return malformed(d, err)
		}
		v, number := t.(float64)
		switch {
		case !number || v < 0 || v > limit:
			return fmt.Errorf("%s[%d] must be a number from 0 to %v", key, n, limit)
		case n == MaxSteps:
			return fmt.Errorf("%s has more than %d steps", key, MaxSteps)
		}
		take(v)
	}
	if _, err := d.Token(); err != nil {
		return malformed(d, err)
	}
	return nil
}
