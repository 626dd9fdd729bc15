package ui

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"time"

	"evenkeel/api/v1"
)

// Bounds on the picture of a job: runs on top of each other, and points of one.
const (
	maxDrawnRuns  = 20
	maxDrawnSteps = 160
)

// skyline is cores in steps of one length.
type skyline struct {
	step  time.Duration
	cores []float64
}

func skylineOf(step string, cores []float64) skyline {
	d, err := time.ParseDuration(step)
	if err != nil || d <= 0 {
		return skyline{}
	}
	return skyline{d, cores}
}

func (s skyline) length() time.Duration { return time.Duration(len(s.cores)) * s.step }

// peak within a span of time.
func (s skyline) peak(from, to time.Duration) (peak float64) {
	if s.step <= 0 {
		return 0
	}
	for k := max(int(from/s.step), 0); k < len(s.cores) && time.Duration(k)*s.step < to; k++ {
		peak = max(peak, s.cores[k])
	}
	return peak
}

// drawn are the runs of the picture: the newest whose use is known.
func (d jobData) drawn() (out []skyline) {
	for i := len(d.Job.History) - 1; i >= 0 && len(out) < maxDrawnRuns; i-- {
		if r := d.Job.History[i]; len(r.Cores) > 0 {
			if s := skylineOf(r.Step, r.Cores); s.step > 0 {
				out = append(out, s)
			}
		}
	}
	return out
}

func (d jobData) reserved() skyline {
	if c := d.Reserved(); c != nil {
		return skylineOf(c.Step, c.Cores)
	}
	return skyline{}
}

// span is how long the picture is, and its height in cores.
func (d jobData) span() (length time.Duration, top float64) {
	reserved := d.reserved()
	for _, s := range append(d.drawn(), reserved) {
		length, top = max(length, s.length()), max(top, s.peak(0, s.length()))
	}
	return length, top
}

// Picture of what is reserved and what each run used, from the start of the run on. The table has the figures.
func (d jobData) Picture() template.HTML {
	const width, height = 600.0, 180.0
	length, top := d.span()
	if length <= 0 || top <= 0 || math.IsNaN(top) || math.IsInf(top, 0) {
		return ""
	}
	steps := func(s skyline) string {
		n := min(len(s.cores), maxDrawnSteps)
		if n == 0 {
			return ""
		}
		// Each point has the most of the time that it stands for.
		var b strings.Builder
		fmt.Fprintf(&b, "M0 %.0f", height)
		for k := range n {
			from, to := s.length()*time.Duration(k)/time.Duration(n), s.length()*time.Duration(k+1)/time.Duration(n)
			fmt.Fprintf(&b, "V%.1fH%.1f", height*(1-min(s.peak(from, to)/top, 1)), width*float64(to)/float64(length))
		}
		fmt.Fprintf(&b, "V%.0f", height)
		return b.String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="curve skyline" viewBox="-10 -10 %.0f %.0f" role="img" aria-label="Cores reserved and used from the start of a run on; the table has the figures"><path d="M0 0V%.0fH%.0f"/>`, width+20, height+20, height, width)
	fmt.Fprintf(&b, `<path class="reserved" d="%s"/>`, steps(d.reserved()))
	for _, s := range d.drawn() {
		fmt.Fprintf(&b, `<path class="run" d="%s"/>`, steps(s))
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // made of constants and numbers
}

// skylineRow is a row of the table behind the picture.
type skylineRow struct {
	From            string
	Reserved        float64
	Mean, Max       float64 // of the runs that are drawn
	Above           int     // runs that used more than is reserved
	Runs            int     // that went on then
	ReservedIsKnown bool
}

// Table behind the picture: at most 48 spans of time.
func (d jobData) Table() (out []skylineRow) {
	length, _ := d.span()
	if length <= 0 {
		return nil
	}
	reserved, runs := d.reserved(), d.drawn()
	step := reserved.step
	for _, s := range runs {
		if step == 0 || s.step < step {
			step = s.step
		}
	}
	n := min(int((length+step-1)/step), 48)
	for k := range n {
		from, to := length*time.Duration(k)/time.Duration(n), length*time.Duration(k+1)/time.Duration(n)
		row := skylineRow{From: v1.FormatDuration(from.Round(time.Second)), Reserved: reserved.peak(from, to), ReservedIsKnown: reserved.step > 0}
		for _, s := range runs {
			if s.length() <= from {
				continue
			}
			used := s.peak(from, to)
			row.Runs++
			row.Mean += used
			row.Max = max(row.Max, used)
			if used > row.Reserved+1e-9 {
				row.Above++
			}
		}
		if row.Runs > 0 {
			row.Mean /= float64(row.Runs)
		}
		out = append(out, row)
	}
	return out
}

// Drawn is how many runs the picture has.
func (d jobData) Drawn() int { return len(d.drawn()) }
