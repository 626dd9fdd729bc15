package trace

import (
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// perDay values are in a file of one day, 5 minutes apart.
	perDay     = 288
	fiveMinute = 5 * time.Minute

	maxDays = 31 // of a job
)

// googleStart is the first day of the files: they were made of the trace of May 2011.
var googleStart = time.Date(2011, time.May, 1, 0, 0, 0, 0, time.UTC)

// googleDay is one day of a job.
type googleDay struct {
	day         int // from 1
	cpu, memory []float64
}

func knownGoogle2011(head []byte) bool {
	return everyLine(head, func(line string) bool {
		fields := strings.Fields(line)
		if len(fields) != 2 {
			return false
		}
		_, err := strconv.ParseFloat(fields[0], 64)
		_, err2 := strconv.ParseFloat(fields[1], 64)
		return err == nil && err2 == nil
	})
}

// readGoogle2011 reads one day of one job, vm_JOB_DAY; a file of another name is a VM of its own.
func readGoogle2011(c *collector, name string, r io.Reader) error {
	d := googleDay{day: 1}
	err := lines(r, func(text string) error {
		fields := strings.Fields(text)
		if len(fields) != 2 {
			return fmt.Errorf("%d columns, expected CPU and memory", len(fields))
		}
		if len(d.cpu) >= perDay {
			return fmt.Errorf("more than the %d rows of a day", perDay)
		}
		cpu, err := number(fields[0])
		if err != nil {
			return err
		}
		memory, err := number(fields[1])
		if err != nil {
			return err
		}
		d.cpu, d.memory = append(d.cpu, cpu), append(d.memory, memory)
		return nil
	})
	if err != nil {
		return err
	}
	if len(d.cpu) == 0 {
		return c.leaveOut(name, "no rows")
	}
	if len(d.cpu) < perDay {
		c.note("%s: %d rows of %d, the rest was not measured", name, len(d.cpu), perDay)
	}
	// No more is kept in between than add would take.
	if c.values += 2 * perDay; c.values > c.o.MaxValues {
		return fmt.Errorf("more than %d values in all", c.o.MaxValues)
	}
	job := path.Base(name)
	if rest, ok := strings.CutPrefix(job, "vm_"); ok {
		if id, day, ok := strings.Cut(rest, "_"); ok {
			n, err := strconv.Atoi(day)
			if err != nil || n < 1 || n > maxDays {
				return fmt.Errorf("%q is not a day of 1 to %d", day, maxDays)
			}
			job, d.day = id, n
		}
	}
	if slices.ContainsFunc(c.days[job], func(o googleDay) bool { return o.day == d.day }) {
		return fmt.Errorf("day %d of job %s is there twice", d.day, job)
	}
	c.days[job] = append(c.days[job], d)
	return nil
}

// concatenateDays makes one series of the days of each job, from its first to its last.
func (c *collector) concatenateDays() error {
	jobs := make([]string, 0, len(c.days))
	for job, days := range c.days {
		jobs = append(jobs, job)
		c.values -= 2 * perDay * len(days) // add counts them again
	}
	slices.Sort(jobs)
	for _, job := range jobs {
		days := c.days[job]
		slices.SortFunc(days, func(a, b googleDay) int { return a.day - b.day })
		first, last := days[0].day, days[len(days)-1].day
		var all [2][]float64
		for k := range all {
			all[k] = make([]float64, (last-first+1)*perDay)
			for i := range all[k] {
				all[k][i] = math.NaN()
			}
		}
		for _, d := range days {
			copy(all[0][(d.day-first)*perDay:], d.cpu)
			copy(all[1][(d.day-first)*perDay:], d.memory)
		}
		s := Series{Set: string(Google2011), VM: job, Step: fiveMinute, Start: googleStart.AddDate(0, 0, first-1), Limit: math.NaN()}
		for k, resource := range []Resource{CPU, Memory} {
			s.Resource, s.Values = resource, all[k]
			if err := c.add(s); err != nil {
				return err
			}
		}
	}
	return nil
}
