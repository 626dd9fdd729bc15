package rightsizing

import "fmt"

// Text says in words why a component has its action, for memory in bytes.
func (r *Result) Text(p *Problem, c int) string {
	out, in := r.Outcomes[c], p.Components[c]
	host := p.Hosts[in.Host].Name
	switch out.Why {
	case Needed:
		if out.Action == Keep {
			return "it has what it is expected to need"
		}
		return "it is expected to need " + mib(out.Memory)
	case Unknown:
		return "nothing is forecast for it: it keeps what was asked for"
	case Young:
		return "it has not been seen for long enough: it keeps what was asked for"
	case Rested:
		return "its memory grew, or was short, a short while ago"
	case Stepped:
		return "it needs less, and gives it back step by step"
	case AtFloor:
		return "it needs less than the least memory it may have, " + mib(in.Floor)
	case AtDeclared:
		return "it is expected to need all that was asked for"
	case NoRoom:
		return fmt.Sprintf("it needs %s more, which host %s does not have", mib(out.Deficit), host)
	case IsFixed:
		return "its needs are those that were declared"
	case NoMemory:
		return fmt.Sprintf("those served before it leave host %s %s short of memory", host, mib(out.Deficit))
	case NoReserve:
		return fmt.Sprintf("those served before it leave host %s %s short of what it keeps for memory that a VM takes back by itself", host, mib(out.Deficit))
	case NoCPU:
		return fmt.Sprintf("those served before it leave host %s %.2f cores short", host, out.Deficit)
	case WithCore:
		core := p.Components[out.Core]
		deficit := mib(out.Deficit)
		if r.Outcomes[out.Core].Why == NoCPU {
			deficit = fmt.Sprintf("%.2f cores", out.Deficit)
		}
		return fmt.Sprintf("a core VM of its virtual cluster has no room: host %s is %s short", p.Hosts[core.Host].Name, deficit)
	}
	return out.Action.String()
}

func mib(bytes float64) string { return fmt.Sprintf("%.0f MiB", bytes/(1<<20)) }
