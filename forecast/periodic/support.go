package periodic

import (
	"fmt"
	"math"
	"strconv"
)

// MinChance is the smallest chance to miss that so many runs can support: of n+1 like runs, the one that needs more than all others is the next one with a chance of 1/(n+1).
func MinChance(runs int) float64 { return 1 / float64(runs+1) }

// RunsFor is how many runs a job must have to support a chance to miss.
func RunsFor(chance float64) int { return int(math.Ceil(1/chance-1e-9)) - 1 }

// Supports reports whether so many runs can support a chance to miss.
func Supports(runs int, chance float64) bool { return chance >= MinChance(runs)-1e-9 }

// Percent writes a chance in percent, rounded up to a tenth: no text may promise less than was proved.
func Percent(chance float64) string {
	return strconv.FormatFloat(math.Ceil(1000*chance-1e-6)/10, 'f', -1, 64) + "%"
}

// Support says what the runs of a model support, where its owner asked for a smaller chance than it promises; "" where it promises what was asked. Of a longer past the last
// limit runs are learned from; 0: all.
func (m Model) Support(limit int) string {
	if m.Miss <= m.Asked+1e-9 {
		return ""
	}
	text := fmt.Sprintf("asked %s, %d runs support %s", Percent(m.Asked), m.Runs, Percent(m.Miss))
	switch more := RunsFor(m.Asked) - m.Runs; {
	case more <= 0:
		return text + ": some of them need something in steps in which no other run does"
	case limit > 0 && m.Runs+more > limit:
		return fmt.Sprintf("%s; it takes %d, and the last %d at most are learned from", text, m.Runs+more, limit)
	case more == 1:
		return text + ": one more run would support it"
	default:
		return fmt.Sprintf("%s: %d more runs would support it", text, more)
	}
}
