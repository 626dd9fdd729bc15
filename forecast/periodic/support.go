package periodic

import (
	"fmt"
	"math"
	"strconv"
)

// MinChance is the smallest chance to miss that so many runs can support. Of n+1 like runs each is equally likely to need most: the next
// one does with the chance 1/(n+1).
func MinChance(runs int) float64 { return 1 / float64(runs+1) }

// RunsFor is how many runs a job must have to support a chance to miss.
func RunsFor(chance float64) int { return int(math.Ceil(1/chance-1e-9)) - 1 }

// Supports reports whether so many runs can support a chance to miss.
func Supports(runs int, chance float64) bool { return chance >= MinChance(runs)-1e-9 }

// Percent writes a chance in percent, rounded up to a tenth: no text may promise less than was proved.
func Percent(chance float64) string {
	return strconv.FormatFloat(math.Ceil(1000*chance-1e-6)/10, 'f', -1, 64) + "%"
}

// Support says which chance the runs of a model support where its owner asked for a smaller one; "" where the model promises what was
// asked. limit is the most runs that are learned from; 0: all.
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
