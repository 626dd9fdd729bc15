package reservation

import "errors"

// Load is the sums of an agenda: what is reserved in each step, and what there is. Steps follow each other in a circle.
type Load struct {
	capacity Amount
	used     []Amount
}

// maxSteps is more than a week of steps of 30 seconds.
const maxSteps = 1 << 16

// NewLoad is an empty agenda's. A capacity of math.Inf(1) is no bound.
func NewLoad(capacity Amount, steps int) (*Load, error) {
	if steps < 1 || steps > maxSteps {
		return nil, errors.New("an agenda has 1 to 65,536 steps")
	}
	for _, c := range capacity {
		if !(c > 0) {
			return nil, errors.New("an agenda needs a capacity above 0 of every resource")
		}
	}
	return &Load{capacity, make([]Amount, steps)}, nil
}

// Steps of the agenda.
func (l *Load) Steps() int { return len(l.used) }

// Used is what is reserved in a step.
func (l *Load) Used(step int) Amount { return l.used[step%len(l.used)] }

// Cost is c(t) of sec. 6.3: the greatest share of a resource that is reserved in a step.
func (l *Load) Cost(step int) float64 {
	c, _ := l.Used(step).share(l.capacity)
	return c
}

// Peak is the highest cost of all steps.
func (l *Load) Peak() (cost float64) {
	for t := range l.used {
		cost = max(cost, l.Cost(t))
	}
	return cost
}

// Add reserves a slot that Place returned.
func (l *Load) Add(s *Slot) { l.change(s, 1) }

// Remove takes an added slot back.
func (l *Load) Remove(s *Slot) { l.change(s, -1) }

func (l *Load) change(s *Slot, times float64) {
	s.each(len(l.used), func(step, at int) { l.used[step] = l.used[step].plus(s.Amounts[at], times) })
}

// folded is the load that a run meets in each step of its window: the greatest, by resource, over all runs (sec. 6.3, multiple
// instances).
func (l *Load) folded(r *Request) []Amount {
	steps, period := len(l.used), r.period(len(l.used))
	out := make([]Amount, r.Due-r.Earliest)
	for first := r.Phase + r.Earliest; first < r.Phase+r.Earliest+steps; first += period {
		for x := range out {
			for i, u := range l.used[(first+x)%steps] { // in place: this loop is most of placing short periods
				out[x][i] = max(out[x][i], u)
			}
		}
	}
	return out
}
