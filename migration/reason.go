package migration

import (
	"fmt"
	"math"
)

// explain says for every move why it is made.
func (f *fleet) explain(steps []Step, at []int) {
	hosts := len(f.p.Hosts)
	after := make([]float64, hosts)
	comes := make([]int, hosts) // first VM that comes, and how many
	count := make([]int, hosts)
	for vm, j := range at {
		after[j] += f.of(vm).CPU
		if f.home[vm] != j {
			if count[j] == 0 {
				comes[j] = vm
			}
			count[j]++
		}
	}
	share := func(need float64, j int) float64 {
		if need <= 0 {
			return 100
		}
		return min(100, 100*f.p.Hosts[j].CPU/need)
	}
	name := func(j int) string { return f.p.Hosts[j].Name }
	for i := range steps {
		s := &steps[i]
		if s.Kind == Adjust {
			continue
		}
		vm := f.first[s.Group] + s.VM
		end := at[vm]
		switch from := s.From; {
		case s.Kind == Start:
			s.Reason = fmt.Sprintf("has no host yet; host %s can give its VMs %.1f%% of what they need in the end", name(s.To), share(after[s.To], s.To))
		case s.Staging:
			s.Reason = fmt.Sprintf("waits on host %s on its way to host %s, so that host %s has room for others meanwhile", name(s.To), name(end), name(from))
		case from != f.home[vm]:
			s.Reason = fmt.Sprintf("goes on from host %s, where it has waited, to host %s", name(from), name(s.To))
		case share(f.need[from], from) < share(after[s.To], s.To)-1e-6:
			s.Reason = fmt.Sprintf("host %s can give its VMs %.1f%% of what they need, host %s %.1f%% in the end", name(from), share(f.need[from], from), name(s.To), share(after[s.To], s.To))
		case count[from] > 0:
			s.Reason = fmt.Sprintf("makes way on host %s for %s", name(from), f.name(comes[from]))
			if count[from] > 1 {
				s.Reason += fmt.Sprintf(" and %d more", count[from]-1)
			}
		default:
			s.Reason = fmt.Sprintf("leaves host %s for host %s, which keeps the rules and the least yields", name(from), name(s.To))
		}
	}
}

// why says why a plan is as it is.
func (pl *Planner) why(p *Plan, budget float64) string {
	if starts := len(p.Steps) - p.Moves - adjusts(p.Steps); starts > 0 {
		text := fmt.Sprintf("%s to start beside those that run; the minimum yield is %.4f", Counted(starts, "VM"), p.MinYieldAfter)
		if p.Moves > 0 {
			text = fmt.Sprintf("%s of %s, to make room; %s", Counted(p.Moves, "move"), size(p.Bytes), text)
		}
		return text
	}
	gain := p.MinYieldAfter - p.MinYieldBefore
	switch {
	case p.Moves == 0 && p.MinYieldBefore >= 1-sameYield:
		return "no beneficial move: every VM has all that it needs"
	case p.Moves == 0 && p.MinYieldAfter >= p.UpperBound-sameYield:
		return fmt.Sprintf("no beneficial move: no placement has a minimum yield above %.4f", p.UpperBound)
	case p.Moves == 0:
		text := fmt.Sprintf("no beneficial move within %s: the minimum yield stays %.4f", size(budget), p.MinYieldAfter)
		if next := pl.next(p.MinYieldAfter); next != nil {
			text += fmt.Sprintf("; %.4f takes at least %s", next.yield, size(next.direct))
		}
		return text
	}
	text := fmt.Sprintf("%s of %s %s the minimum yield from %.4f to %.4f (%+.4f)", Counted(p.Moves, "move"), size(p.Bytes), verb(p.Moves, "bring"), p.MinYieldBefore, p.MinYieldAfter, gain)
	if n := len(p.Passed); n > 0 {
		text += "; better ones were passed over: " + p.Passed[0].Reason
	}
	return text
}

// next is the cheapest candidate with a greater minimum yield; nil: none.
func (pl *Planner) next(yield float64) (best *candidate) {
	for i := range pl.s.found {
		if c := &pl.s.found[i]; c.yield > yield+1e-6 && pl.good(c) && (best == nil || c.direct < best.direct) {
			best = c
		}
	}
	return best
}

// Counted returns a number with its noun, in the plural but for 1.
func Counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// verb of n things: 1 move brings, 2 moves bring.
func verb(n int, plural string) string {
	if n == 1 {
		return plural + "s"
	}
	return plural
}

func adjusts(steps []Step) (n int) {
	for i := range steps {
		if steps[i].Kind == Adjust {
			n++
		}
	}
	return n
}

// size writes bytes.
func size(b float64) string {
	if math.IsInf(b, 1) {
		return "any number of bytes"
	}
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for ; b >= 1024 && i < len(units)-1; i++ {
		b /= 1024
	}
	return fmt.Sprintf("%.4g %s", b, units[i])
}
