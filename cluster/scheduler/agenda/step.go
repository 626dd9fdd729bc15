package agenda

import (
	"slices"
	"time"

	"evenkeel/cluster/state"
)

// stepFor is the step of a contract with a recurrence: fineStep if two of its first few hundred times are less than minApart apart,
// else step. A recurrence that cannot be read gets step.
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

// firstFew returns at least the first maxFits items from a time on, or those of the next year if they are fewer. between finds the
// items before a time. It is asked for longer and longer times: a rule that comes often is not searched for a year.
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

// apart returns the text by which the agenda knows that slots never overlap (Request.Apart): those of one group of a job whose steps
// are finer than the agenda's. "": the steps are not finer.
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
