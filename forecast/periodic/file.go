package periodic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
)

// Bounds of a file of runs.
const (
	MaxFile    = 64 << 20 // bytes
	maxRuns    = 200_000
	maxRunName = 253       // bytes, of each text
	maxSteps   = 10_000    // of the use of a run
	maxValues  = 4_000_000 // of the use of all runs
	maxAmount  = 1e18      // of cores, bytes or VMs
)

// Recorded is a run with what is known of it beside its times.
//
// Many fields: it is one line of a file.
type Recorded struct {
	Run
	Started      time.Time     // when its VMs began to work; zero: at Begin
	Inputs, Read time.Time     // last write to its inputs, first read of its outputs; zero: not known
	Deadline     time.Duration // after the begin of its period, as its owner declared it; 0: none
	Count        int           // VMs; 0: 1
	CPU, Memory  float64       // declared, of each VM, in cores and bytes; 0: not known
	Step         float64       // seconds of a step of what follows
	Usage        []float64     // cores, of all VMs together, from Started on; nil: not known
	MemoryUsage  []float64     // bytes, likewise
	Throttled    []bool        // steps in which something held it back; nil: none
}

// From is when its VMs began to work.
func (r *Recorded) From() time.Time {
	if r.Started.IsZero() {
		return r.Begin
	}
	return r.Started
}

// ParseRuns reads the file of `vcctl periodic find`: one run a line, as a JSON object. Errors name the line.
func ParseRuns(file []byte) (runs []Run, err error) {
	all, err := ParseRecorded(file)
	for i := range all {
		runs = append(runs, all[i].Run)
	}
	return runs, err
}

// ParseRecorded reads the same file with all that is known of the runs.
func ParseRecorded(file []byte) (runs []Recorded, err error) {
	if len(file) > MaxFile {
		return nil, fmt.Errorf("longer than %d MiB", MaxFile>>20)
	}
	n, values := 0, 0
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
		if values += len(r.Usage) + len(r.MemoryUsage); values > maxValues {
			return nil, fmt.Errorf("line %d: more than %d values of use", n, maxValues)
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// line is a run as the file has it.
//
// Many fields: it is one line of a file.
type line struct {
	Owner, Name, Job, Kind string
	Begin, End, Started    *time.Time
	Inputs, Read           *time.Time
	Deadline               string
	Count                  int
	CPU, Memory, Step      float64
	Usage, MemoryUsage     []float64
	Throttled              []int
}

func parseRun(text []byte) (r Recorded, err error) {
	var v line
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return r, fmt.Errorf("%w (known are owner, name, job, kind, begin and end; started, inputs, read, deadline, count, cpu, memory, step, usage, memoryUsage and throttled)", err)
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
	r = Recorded{Run: Run{Owner: v.Owner, Name: v.Name, Job: v.Job, Kind: v.Kind, Begin: *v.Begin}, Count: v.Count, CPU: v.CPU, Memory: v.Memory,
		Step: v.Step, Usage: v.Usage, MemoryUsage: v.MemoryUsage}
	for _, t := range []struct{ from, to *time.Time }{{v.End, &r.End}, {v.Started, &r.Started}, {v.Inputs, &r.Inputs}, {v.Read, &r.Read}} {
		if t.from != nil {
			*t.to = *t.from
		}
	}
	return r, r.finish(&v)
}

// finish checks what is known beside the times, and takes in what is written in another form.
func (r *Recorded) finish(v *line) (err error) {
	if v.Deadline != "" {
		if r.Deadline, err = time.ParseDuration(v.Deadline); err != nil || r.Deadline <= 0 {
			return fmt.Errorf("deadline %s is no time after the begin of the period, such as 2h30m", strconv.Quote(v.Deadline))
		}
	}
	if r.Count < 0 || r.Count > 100_000 || !amount(r.CPU) || !amount(r.Memory) {
		return fmt.Errorf("count, cpu and memory are %d VMs of %v cores and %v bytes: at most 100,000 VMs are possible", r.Count, r.CPU, r.Memory)
	}
	r.Count = max(1, r.Count)
	if len(r.Usage)+len(r.MemoryUsage) > 0 && !(r.Step >= 1 && r.Step <= 86400) {
		return fmt.Errorf("step is %v: usage needs the seconds of a step, 1 to 86400", r.Step)
	}
	for _, u := range []struct {
		name   string
		values []float64
	}{{"usage", r.Usage}, {"memoryUsage", r.MemoryUsage}} {
		if len(u.values) > maxSteps {
			return fmt.Errorf("%s has %d steps, %d are possible", u.name, len(u.values), maxSteps)
		}
		for k, x := range u.values {
			if !amount(x) {
				return fmt.Errorf("%s has %v in step %d, from 0 on", u.name, x, k)
			}
		}
	}
	for _, k := range v.Throttled {
		if k < 0 || k >= len(r.Usage) {
			return fmt.Errorf("throttled has step %d, and usage has %d steps, from 0 on", k, len(r.Usage))
		}
		if r.Throttled == nil {
			r.Throttled = make([]bool, len(r.Usage))
		}
		r.Throttled[k] = true
	}
	return nil
}

func amount(x float64) bool { return x >= 0 && x <= maxAmount && !math.IsNaN(x) }
