package agenda

import (
	"slices"
	"time"

	"evenkeel/cluster/state"
)

// stepFor is the step of a contract with a recurrence: fine if it comes again within minApart, by its first few hundred times. One that
// cannot be read has none of its own.
func stepFor(recurrence string) time.Duration {
	r, zone, err := recurrenceOf(recurrence)
	if err != nil {
		return step
	}
	from := time.Date(r.Start.Year(), r.Start.Month(), r.Start.Day(), r.Start.Hour(), r.Start.Minute(), r.Start.Second(), 0, zone)
	times, err := firstFew(from, func(to time.Time) ([]time.Time, error) { return r.Between(from, to, zone) })
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

// firstFew are the first maxFits or more of what comes from a time on, as between finds them before another time; all of the next year if
// they are fewer. A rule that comes often is not searched for a year.
func firstFew[T any](from time.Time, between func(to time.Time) ([]T, error)) (all []T, err error) {
	for _, days := range []int{2, 30, 366} {
		if all, err = between(from.AddDate(0, 0, days)); err != nil || len(all) >= maxFits {
			break
		}
	}
	return all, err
}

// stepOf is the step of a contract, at most that of the agenda: contracts of long runs have longer ones.
func stepOf(c *state.SignOff) time.Duration {
	return min(step, max(fineStep, time.Duration(c.Step)*time.Second))
}

// setStep chooses the step of the agenda: that of its finest contract, or for many hosts one of longerSteps. In longer steps than its own
// the slot of a contract takes all of the steps that it begins or ends in.
func (x *planner) setStep() {
	x.step = step
	for _, job := range x.jobs {
		x.step = min(x.step, stepOf(&job.SignOff))
	}
	hosts := len(x.openHosts())
	for _, longer := range longerSteps {
		if hosts*int(horizon/x.step) <= maxCells {
			return
		}
		x.step = max(x.step, longer)
	}
}

// apart is the text of the slots of a group of a job that have steps finer than the agenda's: several may lie in one of its steps. The slots
// of a job never overlap in time.
func (x *planner) apart(c *state.SignOff, job, group string) string {
	if x.step <= stepOf(c) {
		return ""
	}
	return job + "/" + group
}

// openHosts are the hosts of the agenda: all but those that take no slot, as they are lost or cordoned. If all are, all are.
func (x *planner) openHosts() []state.Host {
	all := x.s.Hosts()
	open := slices.DeleteFunc(slices.Clone(all), func(h state.Host) bool { return h.Cordoned || h.Lost.Proof != "" })
	if len(open) == 0 {
		return all
	}
	return open
}
