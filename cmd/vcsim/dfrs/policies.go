package dfrs

import (
	"fmt"

	"evenkeel/sim/batch"
)

// published is the paper's table 2: mean degradation from the bound on the weeks of HPC2N's log, the unscaled and the scaled synthetic
// workloads.
var published = []struct {
	name                    string
	hpc2n, unscaled, scaled float64
}{
	{"FCFS", 3578.5, 5457.2, 5869.3},
	{"EASY", 3041.9, 4955.4, 5262.0},
	{"Greedy*", 949.8, 2435.0, 3204.3},
	{"GreedyP*", 13.5, 37.5, 115.7},
	{"GreedyPM*", 13.8, 33.8, 124.0},
	{"GreedyPM*/per", 17.9, 20.3, 17.9},
	{"GreedyP*/per/MINVT=600", 6.9, 4.9, 6.1},
	{theirBest, 6.9, 4.8, 6.1},
	{"MCB8*/MINVT=600", 12.0, 6.9, 13.2},
	{"MCB8*/per/MINVT=600", 13.6, 7.8, 12.2},
	{"/per/MINVT=600", 105.0, 43.0, 40.4},
}

// theirBest is the paper's best algorithm, theirLong the same with the period that the paper recommends (ten times the penalty and more), ours
// their rival.
const (
	theirBest = "GreedyPM*/per/MINVT=600"
	theirLong = "GreedyPM*/per=3600/MINVT=600"
	ours      = "Evenkeel"
	frugal    = "Evenkeel, frugal"
)

// Policies of the main tables: the paper's, and Evenkeel.
func Policies() []Entry {
	var all []Entry
	for _, p := range published {
		all = append(all, parsed(p.name))
	}
	return append(all, parsed(theirLong), Entry{ours, batch.DefaultEvenkeel()}, Entry{frugal, frugalEvenkeel()})
}

// parsed is a policy that is known to the package by that name: the tests try all.
func parsed(name string) Entry {
	p, err := batch.Parse(name)
	if err != nil {
		p = batch.FCFS()
		name += ": " + err.Error()
	}
	return Entry{name, p}
}

// frugalEvenkeel pauses fewer jobs for those that wait.
func frugalEvenkeel() batch.Evenkeel {
	e := batch.DefaultEvenkeel()
	e.Precedence = 4
	return e
}

// sweptLoad is the load at which settings are varied.
const sweptLoad = 0.7

// Swept is the instances that settings are varied on, n at most.
func Swept(all []Instance, n int) (some []Instance) {
	for _, i := range all {
		if len(some) < n && i.Set == Scaled && i.Load == sweptLoad {
			some = append(some, i)
		}
	}
	return some
}

// periods of the sweep, seconds.
var periods = []float64{600, 1200, 1800, 3600, 7200, 14400}

// Sweeps are Evenkeel and the paper's best with one setting changed at a time.
func Sweeps() []Entry {
	all := []Entry{{ours, batch.DefaultEvenkeel()}}
	vary := func(name string, change func(*batch.Evenkeel)) {
		e := batch.DefaultEvenkeel()
		change(&e)
		if e != batch.DefaultEvenkeel() {
			all = append(all, Entry{name, e})
		}
	}
	for _, v := range []float64{1, 3} {
		vary(fmt.Sprintf("behind counts ^%g", v), func(e *batch.Evenkeel) { e.Behind = v })
	}
	for _, v := range []float64{1, 1.5, 4, 8} {
		vary(fmt.Sprintf("precedence %g", v), func(e *batch.Evenkeel) { e.Precedence = v })
	}
	for _, v := range []float64{0, 300, 1200} {
		vary(fmt.Sprintf("grace %g s", v), func(e *batch.Evenkeel) { e.MinResidency = v })
	}
	for _, v := range []float64{0, 300} {
		vary(fmt.Sprintf("young up to %g s", v), func(e *batch.Evenkeel) { e.Young = v })
	}
	vary("no moves", func(e *batch.Evenkeel) { e.MoveBytes = 0 })
	vary("a quarter of all memory may move", func(e *batch.Evenkeel) { e.MoveBytes = 0.25 })
	vary("moves for any gain, at every period", func(e *batch.Evenkeel) { e.MinGain, e.CoolDown = 0, 0 })
	for _, v := range periods {
		vary(ourPeriod(v), func(e *batch.Evenkeel) { e.Period = v })
		all = append(all, parsed(theirPeriod(v)))
	}
	return append(all, parsed("EASY"))
}

func ourPeriod(seconds float64) string { return fmt.Sprintf("period %g s", seconds) }

func theirPeriod(seconds float64) string {
	return fmt.Sprintf("GreedyPM*/per=%g/MINVT=600", seconds)
}
