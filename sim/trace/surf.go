package trace

import (
	"fmt"
	"io"
	"math"
	"time"
)

// surfSet is the name of the set in series.
const surfSet = "surf"

// LoadSURF reads the jobs of the SURF Lisa cluster as OpenDC packages them, in order of submission, and what CPU each used (MHz, every
// 30 s), in the same order; a job without fragments has no series. CPU and memory of a request are not known: OpenDC's columns
// for them hold constants.
func LoadSURF(o Options, tasks, fragments Source) ([]Request, []Series, error) {
	o = o.withDefaults()
	var jobs []Request
	submitted := map[string]float64{} // ms since 1970
	first := math.Inf(1)
	columns := []string{"id", "submission_time", "duration"}
	err := tasks.read(o, func(r io.Reader) error {
		return table(r, o.MaxLength, columns, func(field []string) error {
			if _, twice := submitted[field[0]]; twice {
				return fmt.Errorf("job %q is there twice", field[0])
			}
			at, err := amount(columns[1], field[1])
			if err != nil {
				return err
			}
			run, err := amount(columns[2], field[2])
			if err != nil {
				return err
			}
			submitted[field[0]] = at
			first = min(first, at)
			jobs = append(jobs, Request{Name: field[0], Batch: -1, Submit: at, Start: math.NaN(), Run: run / 1000, CPU: math.NaN(), Memory: math.NaN()})
			return nil
		})
	})
	if err != nil {
		return nil, nil, err
	}
	used, step := map[string][]float64{}, 0.0
	columns = []string{"id", "duration", "cpu_usage"}
	err = fragments.read(o, func(r io.Reader) error {
		return table(r, o.MaxValues, columns, func(field []string) error {
			if _, ok := submitted[field[0]]; !ok {
				return fmt.Errorf("a fragment of job %q, which was not submitted", field[0])
			}
			d, err := amount(columns[1], field[1])
			if err != nil {
				return err
			}
			if step == 0 {
				step = d
			}
			if d != step || d < 1000 || d > 1e9 {
				return fmt.Errorf("a fragment of %g ms, the first has %g", d, step)
			}
			v, err := number(field[2])
			if err != nil {
				return err
			}
			if len(used[field[0]]) == o.MaxLength {
				return fmt.Errorf("job %q has more than %d fragments", field[0], o.MaxLength)
			}
			used[field[0]] = append(used[field[0]], v)
			return nil
		})
	})
	if err != nil {
		return nil, nil, err
	}
	bySubmit(jobs)
	var series []Series
	for i, j := range jobs {
		jobs[i].Submit = (j.Submit - first) / 1000
		if values := used[j.Name]; len(values) > 0 {
			series = append(series, Series{Set: surfSet, VM: j.Name, Resource: CPU, Step: time.Duration(step) * time.Millisecond,
				Start: time.UnixMilli(int64(j.Submit)).UTC(), Values: values, Limit: math.NaN()})
		}
	}
	return jobs, series, nil
}
