package batch

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// OnSubmission is what the paper's family does with a job that was just submitted.
type OnSubmission int

const (
	Wait      OnSubmission = iota // nothing, until the period is over
	Greedy                        // it starts if there is room
	GreedyP                       // it starts; others may be paused for it
	GreedyPM                      // it starts; others may be moved or paused for it
	RepackAll                     // all jobs are placed again by MCB8
)

// Sharing is the family of algorithms of arXiv 1106.4985 with OPT=MIN: CPU is shared such that no yield can rise but at the
// cost of a smaller one.
type Sharing struct {
	On            OnSubmission
	Opportunistic bool    // "*": jobs that wait are started when there is room for them
	Period        float64 // seconds after which all jobs are placed again by MCB8; 0: never

	// MinVirtual and MinFlow pin a job when others are placed again: until it has made MinVirtual seconds of progress, or has been in the
	// cluster for MinFlow seconds. At most one is set.
	MinVirtual, MinFlow float64
}

// Parse reads names as in the paper, as "GreedyPM*/per/OPT=MIN/MINVT=600", with a period of 600 s; "/per=3600" has another.
// FCFS and EASY are names, too.
func Parse(name string) (Policy, error) {
	switch name {
	case "FCFS":
		return FCFS(), nil
	case "EASY":
		return EASY(), nil
	}
	p := Sharing{}
	fields := strings.Split(name, "/")
	base, star := strings.CutSuffix(fields[0], "*")
	p.Opportunistic = star
	known := false
	for on, n := range onNames {
		if n == base {
			p.On, known = OnSubmission(on), true
		}
	}
	if !known {
		return nil, fmt.Errorf("policy %q: %q is none of FCFS, EASY, Greedy, GreedyP, GreedyPM and MCB8", name, fields[0])
	}
	for _, w := range fields[1:] {
		key, value, has := strings.Cut(w, "=")
		seconds, err := strconv.ParseFloat(value, 64)
		good := err == nil && seconds > 0 && seconds <= 1e9
		switch {
		case key == "per" && !has:
			p.Period = 600
		case key == "per" && good:
			p.Period = seconds
		case key == "MINVT" && good && p.MinFlow == 0:
			p.MinVirtual = seconds
		case key == "MINFT" && good && p.MinVirtual == 0:
			p.MinFlow = seconds
		case w == "OPT=MIN":
		default:
			return nil, fmt.Errorf("policy %q: %q is not understood", name, w)
		}
	}
	if p.Period == 0 && (p.On == Wait || !p.Opportunistic) {
		return nil, fmt.Errorf("policy %q never starts a job that found no room once", name)
	}
	return p, nil
}

var onNames = []string{"", "Greedy", "GreedyP", "GreedyPM", "MCB8"}

// Name is the paper's.
func (p Sharing) Name() string {
	name := onNames[p.On]
	if p.Opportunistic {
		name += "*"
	}
	if p.Period == 600 {
		name += "/per"
	} else if p.Period > 0 {
		name += fmt.Sprintf("/per=%g", p.Period)
	}
	name += "/OPT=MIN"
	if p.MinVirtual > 0 {
		name += fmt.Sprintf("/MINVT=%g", p.MinVirtual)
	}
	if p.MinFlow > 0 {
		name += fmt.Sprintf("/MINFT=%g", p.MinFlow)
	}
	return name
}

func (p Sharing) start(s *state) scheduler {
	return &sharing{Sharing: p, state: s, clock: newClock(p.Period, s.now)}
}

type sharing struct {
	Sharing
	*state
	clock
}

func (p *sharing) share() error {
	p.fillEvenly()
	return nil
}

func (p *sharing) decide(e event) error {
	tick := p.strikes(e, p.now)
	var lifted []*job
	switch {
	case tick || p.On == RepackAll && (len(e.arrived) > 0 || e.ended && p.Opportunistic):
		p.repack(p.pinned)
	case p.On == Wait || p.On == RepackAll:
	default:
		for _, j := range e.arrived {
			if p.On == Greedy {
				p.startGreedily(j)
			} else {
				lifted = append(lifted, p.force(j)...)
			}
		}
	}
	if p.On == GreedyPM {
		for _, j := range p.byRank(func(j *job) bool { return contains(lifted, j) && waiting(j) }) {
			p.startGreedily(j)
		}
	}
	if !p.Opportunistic || p.On == RepackAll {
		return nil
	}
	for _, j := range p.byRank(waiting) {
		// A job that has just been lifted would come back elsewhere: that is a move, which only GreedyPM makes.
		if !contains(lifted, j) {
			p.startGreedily(j)
		}
	}
	return nil
}

func contains(some []*job, one *job) bool {
	for _, j := range some {
		if j == one {
			return true
		}
	}
	return false
}

// pinned says whether a job stays where it is when others are placed again.
func (p *sharing) pinned(j *job) bool {
	switch {
	case p.MinVirtual > 0:
		return j.done < p.MinVirtual
	case p.MinFlow > 0:
		return j.flow(p.now) < p.MinFlow
	}
	return false
}

// clock strikes once every period, whether or not the policy runs at that time.
type clock struct{ period, first, next float64 }

func newClock(period, now float64) clock {
	if period <= 0 {
		return clock{next: math.Inf(1)}
	}
	return clock{period: period, first: now, next: now + period}
}

func (c *clock) wake() float64 { return c.next }

// strikes says whether the clock strikes now; it then waits for the next time. Periods that were missed are skipped.
func (c *clock) strikes(e event, now float64) bool {
	if !e.woken {
		return false
	}
	on := now <= c.next+1e-6
	c.next = c.first + c.period*(math.Floor((now-c.first)/c.period+1e-9)+1)
	return on
}
