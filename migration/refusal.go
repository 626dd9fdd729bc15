package migration

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// refusals are what hosts were asked about a VM, and why each said no.
type refusals struct {
	asked                                                int
	cordoned, unavailable, memory, yields, rules, routes []verdict
}

// noHost begins the refusal of all hosts.
const noHost = "no host can take it: "

// refusal sums up why no host takes a VM that is on one of those that leave: "" if one would. Hosts that leave
// themselves are no choice.
func (s *placementTable) refusal(vm int, leaves []bool) (Cause, string, []Advice) {
	var r refusals
	for j := range s.open {
		if j == s.f.home[vm] || leaves != nil && leaves[j] {
			continue
		}
		v := s.judge(vm, j)
		if v.cause == "" {
			return "", "", nil
		}
		r.add(v, s.f.p.Hosts[j].Unavailable != "")
	}
	if r.asked == 0 {
		return ByCordon, "there is no other host", s.f.lastly(vm)
	}
	x := explanation{s: s, vm: vm}
	x.cordon(r)
	x.memory(r)
	x.yield(r)
	x.rules(r)
	x.routes(r)
	return x.cause, noHost + strings.Join(x.parts, "; "), append(x.advice, s.f.lastly(vm)...)
}

// lastly returns the advice that helps whatever the cause is. Another host is of no use to a VM that requires one by its name.
func (f *fleet) lastly(vm int) []Advice {
	if r, g := f.p.Rules, f.group[vm]; r != nil && g < len(r.Affinity) {
		if a := r.Affinity[g]; a != nil && slices.ContainsFunc(a.Require, func(term string) bool { return strings.HasPrefix(term, "host:") }) {
			return []Advice{StopIt}
		}
	}
	return []Advice{addHost, StopIt}
}

// add a verdict. unavailable: the host takes no VM, though no operator cordoned it.
func (r *refusals) add(v verdict, unavailable bool) {
	r.asked++
	switch v.cause {
	case ByRules:
		r.rules = append(r.rules, v)
	case ByMemory:
		r.memory = append(r.memory, v)
	case ByYield:
		r.yields = append(r.yields, v)
	case ByCordon:
		if unavailable {
			r.unavailable = append(r.unavailable, v)
		} else {
			r.cordoned = append(r.cordoned, v)
		}
	case ByRoute:
		r.routes = append(r.routes, v)
	}
}

// explanation is a refusal in words. Its cause is that of the last part added. Rules and routes give the cause only where they
// keep the VM from every host, or no part before them gave one.
type explanation struct {
	s      *placementTable
	vm     int
	cause  Cause
	parts  []string
	advice []Advice
}

func (x *explanation) add(cause Cause, part string, advice string) {
	x.cause = cause
	x.parts, x.advice = append(x.parts, part), append(x.advice, Advice(advice))
}

func (x *explanation) host(j int) string { return "host " + x.s.f.p.Hosts[j].Name }

// count says something of one host by its name, of more by their number.
func (x *explanation) count(vs []verdict, one, many string) string {
	if len(vs) == 1 {
		return x.host(vs[0].host) + " " + one
	}
	return fmt.Sprintf("%d hosts %s", len(vs), many)
}

func (x *explanation) cordon(r refusals) {
	if len(r.cordoned) > 0 {
		x.add(ByCordon, x.count(r.cordoned, "is cordoned", "are cordoned"), "uncordon "+x.host(r.cordoned[0].host))
	}
	if len(r.unavailable) > 0 {
		first := r.unavailable[0].host
		why := x.host(first) + " " + x.s.f.p.Hosts[first].Unavailable
		if n := len(r.unavailable); n > 1 {
			why = fmt.Sprintf("%d hosts take no VMs now, the first because %s", n, why)
		}
		x.add(ByCordon, why, "bring "+x.host(first)+" back")
	}
}

// memory names the host with the least deficit, of those that take VMs if there are any.
func (x *explanation) memory(r refusals) {
	if len(r.memory) == 0 {
		return
	}
	slices.SortStableFunc(r.memory, func(a, b verdict) int { return cmp.Compare(a.deficit, b.deficit) })
	v := r.memory[max(0, slices.IndexFunc(r.memory, func(v verdict) bool { return x.s.open[v.host] }))]
	why := fmt.Sprintf("%s has %s of memory too little for it", x.host(v.host), size(v.deficit))
	if n := len(r.memory); n > 1 {
		why = fmt.Sprintf("%d hosts have too little memory for it, %s least: %s", n, x.host(v.host), size(v.deficit))
	}
	free := fmt.Sprintf("free %s on %s", size(v.deficit), x.host(v.host))
	switch {
	case x.s.open[v.host]:
	case x.s.f.p.Hosts[v.host].Unavailable != "":
		free += " and bring it back"
	default:
		free += " and uncordon it"
	}
	x.add(ByMemory, why, free)
}

func (x *explanation) yield(r refusals) {
	if len(r.yields) > 0 {
		x.add(ByYield, x.count(r.yields, "could not give its VMs what they must have", "could not give their VMs what they must have"),
			fmt.Sprintf("lower the least yield of %s, or of VMs on %s", x.s.f.of(x.vm).title(), x.host(r.yields[0].host)))
	}
}

func (x *explanation) rules(r refusals) {
	if len(r.rules) > 0 {
		x.add(x.unlessOthers(r.rules, r.asked, ByRules), x.s.explainRules(x.vm, r.rules), "loosen the rules of "+x.s.f.of(x.vm).title())
	}
}

func (x *explanation) routes(r refusals) {
	if len(r.routes) > 0 {
		x.add(x.unlessOthers(r.routes, r.asked, ByRoute), x.s.explainRoutes(x.vm, r.routes), "have "+x.host(x.s.f.home[x.vm])+" reach "+x.host(r.routes[0].host))
	}
}

// unlessOthers returns cause if it is that of every host asked, or no other was found before; else the one found
// before.
func (x *explanation) unlessOthers(vs []verdict, asked int, cause Cause) Cause {
	if len(vs) == asked || x.cause == "" {
		return cause
	}
	return x.cause
}

// explainRoutes says why a VM cannot be sent to hosts, equal reasons once.
func (s *placementTable) explainRoutes(vm int, routes []verdict) string {
	to := map[string][]string{}
	var causes []string
	for _, v := range routes {
		if to[v.route] == nil {
			causes = append(causes, v.route)
		}
		to[v.route] = append(to[v.route], s.f.p.Hosts[v.host].Name)
	}
	for i, why := range causes {
		causes[i] = fmt.Sprintf("host %s cannot send VMs to %s: %s", s.f.p.Hosts[s.f.home[vm]].Name, listed(to[why]), why)
	}
	return strings.Join(causes, "; ")
}

// explainRules says what rules keep a VM from hosts.
func (s *placementTable) explainRules(vm int, rules []verdict) string {
	name := func(j int) string { return "host " + s.f.p.Hosts[j].Name }
	i := slices.IndexFunc(rules, func(v verdict) bool { return v.other >= 0 })
	switch n := len(rules); {
	case n == 1 && i >= 0:
		return fmt.Sprintf("%s has %s, which it must be apart from", name(rules[i].host), s.f.name(rules[i].other))
	case n == 1:
		return fmt.Sprintf("its rules keep it from %s", name(rules[0].host))
	case i >= 0:
		return fmt.Sprintf("its rules keep it from %d hosts (as %s, which it must be apart from, on %s)", n, s.f.name(rules[i].other), name(rules[i].host))
	}
	return fmt.Sprintf("its rules keep it from %d hosts", len(rules))
}
