package agenda

import (
	"time"

	"evenkeel/cluster/state"
	"evenkeel/forecast/periodic"
)

// stepFor is the step of a contract with a recurrence: fine if it comes again within minApart, by its first few hundred times. One that
// cannot be read has none of its own.
func stepFor(recurrence string) time.Duration {
	r, err := periodic.ParseRecurrence(recurrence)
	if err != nil {
		return step
	}
	zone, err := time.LoadLocation(r.Zone)
	if err != nil {
		return step
	}
	from := time.Date(r.Start.Year(), r.Start.Month(), r.Start.Day(), r.Start.Hour(), r.Start.Minute(), r.Start.Second(), 0, zone)
	times, err := r.Between(from, from.AddDate(0, 0, 2), zone)
	if err != nil {
		return step
	}
	for i := 1; i < min(len(times), maxFits); i++ {
		if times[i].Sub(times[i-1]) < minApart {
			return fineStep
		}
	}
	return step
}

// stepOf is the step of a contract, at most that of the agenda: contracts of long runs have longer ones.
func stepOf(c *state.SignOff) time.Duration {
	return min(step, max(fineStep, time.Duration(c.Step)*time.Second))
}

// setStep chooses the step of the agenda: that of its finest contract, as far as the hosts are few enough. In longer steps than its own the
// slot of a contract takes all of the steps that it begins or ends in.
func (x *planner) setStep() {
	x.step = step
	for _, job := range x.jobs {
		x.step = min(x.step, stepOf(&job.SignOff))
	}
	hosts := 0
	x.s.EachHost(func(*state.Host) bool { hosts++; return true })
	if hosts*int(horizon/x.step) > maxCells {
		x.step = step
	}
}
