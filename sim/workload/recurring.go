package workload

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"evenkeel/sim/trace"
)

// Recurring says how Recurrent makes periodic jobs of recorded days.
type Recurring struct {
	Part float64 // of the load is of periodic jobs; the rest is VMs of one's own, as Measured draws them
}

const (
	day = 86400.0
	// playedIn is how many seconds a run takes in which a day of the record is played: five minutes pass in one.
	playedIn = day / 5
	// learnDays is how many days of a record are the past at least; of longer ones it is learnPart of them.
	learnDays = 8
	learnPart = 2.0 / 3
	// wholeDay is the share of a day's values that must have been measured.
	wholeDay = 0.9
	// Slack of a run, in durations: uniform. Almost 70% of the jobs of Jyothi et al. could run twice or more before they are due (fig. 9a).
	minSlack, maxSlack = 0.25, 3
)

// recordedDays are the whole days of one VM, as shares of what it had.
type recordedDays struct {
	cpu, memory []Pattern
	cores       float64 // what it had; 0: unknown
	bytes       float64
	step        float64 // seconds, as recorded
}

// Recurrent plays the days of recorded VMs as the runs of daily jobs, beside VMs that come one by one (Measured with Cut.Poisson).
//
// Each job is a VM of which at least nine whole days were recorded. The first of them, two thirds and at least eight, are its past; the others are played,
// one a day. Each takes a fifth of a day, so that there is slack: every value of five minutes counts for one. Runs are submitted at a full hour of the day,
// drawn for each job, and are due between 1.25 and four times their length later. Jobs are drawn until they make up their part of the load: the VMs in
// a random order, and then copies of them at other hours and, where sizes are drawn, of other sizes. The unit of the set decides what is known of sizes, as
// for Measured.
func Recurrent(series []trace.Series, r Recurring, c Cut) (*Workload, float64, []string, error) {
	if err := c.check(); err != nil {
		return nil, 0, nil, err
	}
	if !(r.Part > 0 && r.Part < 1) || c.Load == 0 || c.Apps > 0 || c.From > 0 {
		return nil, 0, nil, errors.New("workload: recurring work needs a load, of which a part above 0 and below 1 is periodic; its record is taken from its first day on, whatever the number of applications")
	}
	vms, longest := daysOf(series)
	past := max(learnDays, int(float64(longest)*learnPart))
	days := min(longest-past, int(week/day))
	if c.Span > 0 {
		days = min(days, int(c.Span/day))
	}
	if days < 1 {
		return nil, 0, nil, fmt.Errorf("workload: the VMs have at most %d whole days with CPU and memory: %d are learned from, and one at least is played", longest, past)
	}
	vms = slices.DeleteFunc(vms, func(d recordedDays) bool { return len(d.cpu) < past+days })
	span := float64(days) * day
	jobs := recurrence{days: days, rng: rand.New(rand.NewPCG(c.Seed, 0x72656375)), cut: &c}
	if err := jobs.draw(vms, past, r.Part*c.Load, span); err != nil {
		return nil, 0, nil, err
	}
	end := 0.0
	for _, a := range jobs.apps {
		end = max(end, a.Due)
	}
	others := c
	others.Poisson, others.Load, others.Span = true, (1-r.Part)*c.Load, end
	w, _, notes, err := Measured(series, others)
	if err != nil {
		return nil, 0, nil, err
	}
	jobs.join(w)
	notes = append(notes, fmt.Sprintf("%d periodic jobs are the days of %d VMs, %d days learned from and %d played, each in %.3g hours", len(w.Periodic), len(vms), past, days, playedIn/3600))
	return w, end, notes, w.Validate()
}

// daysOf cuts the VMs of a record into whole days; longest is how many the VM with most of them has.
func daysOf(series []trace.Series) (vms []recordedDays, longest int) {
	for _, v := range measuredVMs(series, false) {
		if v.memory == nil || math.Mod(day, v.step) != 0 {
			continue
		}
		d := recordedDays{step: v.step}
		if trace.Format(v.cpu.Set) == trace.Bitbrains && v.cpu.Limit > 0 && v.memory.Limit > 0 {
			d.cores, d.bytes = v.cpu.Limit/BitbrainsCore, v.memory.Limit*1024
		}
		n := int(day / v.step)
		for first := untilMidnight(v.cpu.Start, v.step); first+n <= len(v.cpu.Values); first += n {
			if known := measuredIn(v.cpu.Values[first : first+n]); float64(known) >= wholeDay*float64(n) {
				d.cpu = append(d.cpu, shape(v.cpu, first, first+n-1, whole(v.cpu)))
				d.memory = append(d.memory, shape(v.memory, first, first+n-1, whole(v.memory)))
			}
		}
		vms = append(vms, d)
		longest = max(longest, len(d.cpu))
	}
	return vms, longest
}

// untilMidnight is how many steps of a series lie before its first midnight.
func untilMidnight(start time.Time, step float64) int {
	if start.IsZero() {
		return 0
	}
	into := start.Sub(start.Truncate(24 * time.Hour)).Seconds()
	return int(math.Ceil(math.Mod(day-into, day) / step))
}

func measuredIn(values []float64) (n int) {
	for _, v := range values {
		if !math.IsNaN(v) {
			n++
		}
	}
	return n
}

// recurrence is periodic jobs as they are drawn. First of an app's groups counts in groups, and patterns likewise, until join.
type recurrence struct {
	days     int
	rng      *rand.Rand
	cut      *Cut
	jobs     []Periodic
	apps     []App
	groups   []Group
	patterns []Pattern
}

// draw draws jobs until what their runs ask for is so much of all hosts over the span.
func (r *recurrence) draw(vms []recordedDays, past int, load, span float64) error {
	all := r.cut.all()
	pasts := make([][]PastRun, len(vms))
	firstPattern := make([]int32, len(vms)) // of the days that are played: CPU, memory; -1: none yet
	for i := range firstPattern {
		firstPattern[i] = -1
	}
	cpu, memory := 0.0, 0.0
	for max(cpu, memory) < load {
		was := len(r.jobs)
		for _, i := range r.rng.Perm(len(vms)) {
			if max(cpu, memory) >= load {
				break
			}
			d := &vms[i]
			a := ask{count: 1, life: playedIn, cpu: d.cores, memory: d.bytes}
			if a.cpu == 0 {
				a.cpu, a.memory = drawSize(r.rng)
			}
			if !a.fits(r.cut.Hosts) {
				continue
			}
			if firstPattern[i] < 0 {
				firstPattern[i] = int32(len(r.patterns))
				pasts[i] = d.past(past)
				for k := range r.days {
					r.patterns = append(r.patterns, d.cpu[past+k], d.memory[past+k])
				}
			}
			r.add(i, a, pasts[i], firstPattern[i])
			part := playedIn * float64(r.days) / span
			cpu, memory = cpu+part*a.cpu/all.CPU, memory+part*a.memory/all.Memory
		}
		if len(r.jobs) == was || len(r.jobs) > 1e5 {
			return errors.New("workload: no recorded VM fits the hosts, or so many would be needed for the load that it makes no sense")
		}
	}
	return nil
}

// add a job and its runs.
func (r *recurrence) add(vm int, a ask, past []PastRun, pattern int32) {
	j := Periodic{Period: day, Begin: 3600 * float64(r.rng.IntN(24)), Of: int32(vm), Past: past,
		Window: PastStep * math.Ceil(playedIn*(1+minSlack+(maxSlack-minSlack)*r.rng.Float64())/PastStep)}
	r.jobs = append(r.jobs, j)
	for k := range r.days {
		at := float64(k)*day + j.Begin
		r.apps = append(r.apps, App{Arrival: at, Work: playedIn, Due: at + j.Window, Job: int32(len(r.jobs)), First: int32(len(r.groups)), Groups: 1})
		use := Use{Pattern: pattern + int32(2*k), Step: float32(playedIn / float64(len(r.patterns[pattern])))}
		r.groups = append(r.groups, Group{Count: 1, CPU: a.cpu, Memory: a.memory, CPUUse: use, MemoryUse: Use{Pattern: use.Pattern + 1, Step: use.Step}})
	}
}

// join puts the jobs' runs among the applications of w.
func (r *recurrence) join(w *Workload) {
	groups, patterns, source := int32(len(w.Groups)), int32(len(w.Patterns)), int32(0)
	for _, a := range w.Apps {
		source = max(source, a.Source+1)
	}
	for _, a := range r.apps {
		a.First += groups
		a.Source = source + a.Job
		w.Apps = append(w.Apps, a)
	}
	for _, g := range r.groups {
		g.CPUUse.Pattern += patterns
		g.MemoryUse.Pattern += patterns
		w.Groups = append(w.Groups, g)
	}
	w.Patterns = append(w.Patterns, r.patterns...)
	w.Periodic = r.jobs
	w.Sort()
}

// past is what the runs of the first days used, step by step.
func (d *recordedDays) past(days int) (out []PastRun) {
	values := len(d.cpu[0])
	each := playedIn / float64(values) // seconds that a value is played for
	steps := int(math.Ceil(playedIn / PastStep))
	for k := range days {
		run := PastRun{make([]float64, steps), make([]float64, steps)}
		for i := range values {
			at := min(steps-1, int(float64(i)*each/PastStep))
			run.CPU[at] += float64(d.cpu[k][i]) * each / PastStep
			run.Memory[at] = max(run.Memory[at], float64(d.memory[k][i]))
		}
		out = append(out, run)
	}
	return out
}
