package forecast

import (
	"fmt"
	"math"
)

// MarginSettings say how a Penalty follows the quality of service (Flex, sec. 4.2 and Algorithm 3).
type MarginSettings struct {
	Start  float64 // P at first, at least Min
	Min    float64 // P never falls below it (Pmin); at least 1
	Max    float64 // P never rises above it; 0 is no bound
	Decay  float64 // alpha in (0, 1): P shrinks by this factor while quality is above Target
	Growth float64 // beta > 0: P grows by beta (P - 1) when quality is below Target and falling
	Target float64 // rho in (0, 1): the share of VMs that shall get what they are owed (eq. 14)
}

// FlexPenalty is what Flex was evaluated with (sec. 5.1). Once P has come down to its minimum of 1, growth by
// P - 1 is growth by nothing: P stays at 1 for good, whatever the quality.
var FlexPenalty = MarginSettings{Start: 1.5, Min: 1, Decay: 0.99, Growth: 1, Target: 0.99}

// QualityPenalty is FlexPenalty with a minimum from which it can rise again, and with a bound, so that one bad hour does not
// close the hosts for the next: from 2 to 1.5 it takes 29 good samples.
var QualityPenalty = MarginSettings{Start: 1.5, Min: 1.01, Max: 2, Decay: 0.99, Growth: 1, Target: 0.99}

// Check says what is wrong with settings.
func (s MarginSettings) Check() error {
	switch {
	case !(s.Min >= 1) || math.IsInf(s.Min, 0):
		return fmt.Errorf("penalty: a minimum of %g, expected at least 1", s.Min)
	case s.Max != 0 && !(s.Max >= s.Min):
		return fmt.Errorf("penalty: a maximum of %g, expected at least the minimum of %g", s.Max, s.Min)
	case !(s.Start >= s.Min) || math.IsInf(s.Start, 0) || s.Max != 0 && s.Start > s.Max:
		return fmt.Errorf("penalty: a start of %g, expected one within its bounds", s.Start)
	case !(s.Decay > 0 && s.Decay < 1):
		return fmt.Errorf("penalty: a decay of %g, expected one between 0 and 1", s.Decay)
	case !(s.Growth > 0) || math.IsInf(s.Growth, 0):
		return fmt.Errorf("penalty: a growth of %g, expected more than 0", s.Growth)
	case !(s.Target > 0 && s.Target < 1):
		return fmt.Errorf("penalty: a target of %g, expected one between 0 and 1", s.Target)
	}
	return nil
}

// Penalty is the factor P by which estimated load is counted larger than it is (Flex, eq. 13: L = P L^): the worse the
// quality of service that admission by estimates has led to, the larger. It learns from quality, not from the errors of the estimate.
type Penalty struct {
	settings MarginSettings
	value    float64
	last     float64 // the quality before; NaN: none yet
}

// NewPenalty is a penalty at its start.
func NewPenalty(s MarginSettings) (Penalty, error) {
	if err := s.Check(); err != nil {
		return Penalty{}, err
	}
	return Penalty{settings: s, value: s.Start, last: math.NaN()}, nil
}

// Value is P.
func (p *Penalty) Value() float64 { return p.value }

// Observe takes the quality of the whole cluster over the latest period, in [0, 1] (eq. 14). Above the target P shrinks; below it, and
// worse than the time before, P grows; else it stays. A first quality has none before it and counts as falling when it is
// below the target. NaN, where nothing ran, changes nothing.
func (p *Penalty) Observe(quality float64) {
	if math.IsNaN(quality) {
		return
	}
	s := p.settings
	switch {
	case quality > s.Target:
		p.value = max(p.value*s.Decay, s.Min)
	case quality < s.Target && !(quality >= p.last):
		highest := s.Max
		if highest == 0 {
			highest = math.MaxFloat64
		}
		p.value = min(p.value+s.Growth*(p.value-1), highest)
	}
	p.last = quality
}
