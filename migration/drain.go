package migration

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"evenkeel/allocator"
)

// Drainage is which hosts are to be emptied, and within which bounds.
type Drainage struct {
	// Hosts by index. They take no VM meanwhile, not for a while either.
	Hosts []int

	// Budget is the most bytes that may be moved; math.Inf(1): no bound.
	Budget float64

	// Partial: what can leave leaves, though others cannot. If not, either all leave or nothing moves.
	Partial bool

	// LeastGain is the part by which the minimum yield has to rise for VMs to be moved that need not
	// be. 0: any gain will do; math.Inf(1): none does.
	LeastGain float64

	// Deadline is when the moves are to have ended, in seconds from their beginning; 0: none.
	Deadline float64
}

// Drained is how hosts are emptied.
type Drained struct {
	// Plan moves off the hosts what can leave. It is not Feasible, and has no steps, if something is
	// in the way and Drainage.Partial is not set.
	Plan

	// Blockers are the VMs that cannot leave, by group and number.
	Blockers []Blocker

	// Late are the steps that are predicted to end after the deadline.
	Late []int
}

// Empties tells whether nothing is left on the hosts in the end.
func (d *Drained) Empties() bool { return d.Feasible && len(d.Blockers) == 0 }

// Drain plans how to empty hosts: all VMs that run there go, others make way where there is no room
// otherwise; rules and floors hold at every instant. Of all ways within the budget that are found it takes the one with the
// greatest minimum yield, and of those with equal ones the one with the fewest bytes; LeastGain says what a gain is.
// Where nobody has to leave nothing moves. Every VM must have a host.
func Drain(p Problem, d Drainage) (Drained, error) {
	e, err := newEmptying(p, d)
	if err != nil {
		return Drained{}, fmt.Errorf("empty hosts: %w", err)
	}
	return e.run()
}

// emptying is what Drain does.
type emptying struct {
	p      Problem           // floors being no more than what everybody has; the hosts being cordoned
	q      allocator.Problem // the same, any memory being enough
	f      *fleet
	d      Drainage
	leaves []bool // [host]
	steps  int64
	caps   []float64 // [group]: before
	least  float64
	mean   float64
	broken []bool // [host]: a rule or the memory is not kept there now
	stuck  map[int]cause
}

func newEmptying(p Problem, d Drainage) (*emptying, error) {
	e := &emptying{p: p, d: d, leaves: make([]bool, len(p.Hosts)), steps: p.Steps, stuck: map[int]cause{}}
	if math.IsNaN(d.Budget) || math.IsNaN(d.LeastGain) || math.IsNaN(d.Deadline) {
		return nil, fmt.Errorf("budget %v, least gain %v, deadline %v: not a number", d.Budget, d.LeastGain, d.Deadline)
	}
	if e.steps <= 0 || e.steps > askSteps {
		e.steps = askSteps // for each placement that is asked for
	}
	e.p.Hosts = slices.Clone(p.Hosts)
	for _, j := range d.Hosts {
		if j < 0 || j >= len(p.Hosts) {
			return nil, fmt.Errorf("host %d of %d", j, len(p.Hosts))
		}
		e.leaves[j], e.p.Hosts[j].Cordoned = true, true
	}
	var err error
	if e.f, err = e.p.fleet(); err != nil {
		return nil, err
	}
	if vm := slices.Index(e.f.home, -1); vm >= 0 {
		return nil, fmt.Errorf("VM %s runs on no host", e.f.name(vm))
	}
	if err := e.before(); err != nil {
		return nil, err
	}
	e.broken = e.f.brokenHosts(e.f.home)
	return e, nil
}

// before is the yields as they are, and floors that are no more than that.
func (e *emptying) before() error {
	e.q = e.p.allocation()
	for j := range e.q.Hosts {
		e.q.Hosts[j].Memory = allocator.GreatestNumber // what is there is there
	}
	sol, err := allocator.Allocate(e.q)
	if err != nil {
		return fmt.Errorf("the CPU that VMs have now: %w", err)
	}
	e.caps, e.least, e.mean = sol.CPU, sol.MinYield, sol.AverageYield
	if e.p.Caps != nil {
		e.caps = slices.Clone(e.p.Caps)
		e.least, e.mean = e.f.yields(e.caps, e.q.Groups)
	}
	e.p.Groups = loweredFloors(e.p.Groups, e.caps)
	for g := range e.p.Groups {
		e.q.Groups[g].MinYield = e.p.Groups[g].MinYield
	}
	return nil
}

// loweredFloors are groups whose virtual clusters must not get less than they have, where that is below
// their floor already.
func loweredFloors(groups []Group, caps []float64) []Group {
	has := map[string]float64{}
	yield := func(g int) float64 {
		if groups[g].CPU <= 0 {
			return 1
		}
		return min(1, caps[g]/groups[g].CPU)
	}
	for g := range groups {
		if y, ok := has[groups[g].Cluster]; groups[g].Cluster != "" && groups[g].Count > 0 && (!ok || yield(g) < y) {
			has[groups[g].Cluster] = yield(g)
		}
	}
	out := slices.Clone(groups)
	for g := range out {
		y, ok := has[out[g].Cluster]
		if !ok {
			y = yield(g)
		}
		if y < out[g].MinYield {
			out[g].MinYield = y * (1 - 1e-9)
		}
	}
	return out
}

func (e *emptying) run() (Drained, error) {
	var going []int // that have to go
	for vm, j := range e.f.home {
		switch {
		case !e.leaves[j]:
		case e.f.held[vm]:
			e.stuck[vm] = held
		default:
			going = append(going, vm)
		}
	}
	var ways []candidate
	if len(e.stuck) == 0 || e.d.Partial {
		ways = e.ways(going, true)
	}
	all := len(going)
	if len(ways) == 0 {
		if going = e.most(going); e.d.Partial {
			ways = e.ways(going, true)
		}
	}
	out := Drained{Plan: Plan{MinYieldBefore: e.least, AverageYieldBefore: e.mean, MinYieldDuring: e.least, UpperBound: 1, Takes: math.Inf(1)}}
	if len(ways) > 0 && (e.d.Partial || len(going) == all && len(e.stuck) == 0) {
		out.Plan = e.plan(e.choose(ways))
	}
	e.blockers(&out)
	e.late(&out)
	out.Reason = e.words(&out, all)
	return out, nil
}

// late finds the steps that miss the deadline.
func (e *emptying) late(out *Drained) {
	for i, s := range out.Steps {
		if e.d.Deadline > 0 && s.Kind == Move && s.Begins+s.Seconds > e.d.Deadline {
			out.Late = append(out.Late, i)
		}
	}
}

func (e *emptying) words(out *Drained, going int) string {
	names := make([]string, len(e.d.Hosts))
	for i, j := range e.d.Hosts {
		names[i] = "host " + e.p.Hosts[j].Name
	}
	what := listed(names)
	text := ""
	switch n := len(out.Blockers); {
	case !out.Feasible && n > 0:
		return fmt.Sprintf("%s cannot be emptied: %s cannot leave; nothing is moved", what, counted(n, "VM"))
	case !out.Feasible:
		return fmt.Sprintf("no way was found to empty %s", what)
	case n > 0:
		text = fmt.Sprintf("%s of %s take %d of %d VMs off %s; %s cannot leave", counted(out.Moves, "move"), size(out.Bytes), going+e.count(held)-n, going+e.count(held), what, counted(n, "VM"))
	case going == 0:
		return what + " runs no VM"
	default:
		text = fmt.Sprintf("%s of %s to empty %s", counted(out.Moves, "move"), size(out.Bytes), what)
	}
	if gain := out.MinYieldAfter - out.MinYieldBefore; math.Abs(gain) < sameYield {
		text += fmt.Sprintf("; the minimum yield stays %.4f", out.MinYieldAfter)
	} else {
		text += fmt.Sprintf("; the minimum yield goes from %.4f to %.4f", out.MinYieldBefore, out.MinYieldAfter)
	}
	if len(out.Late) > 0 {
		text += fmt.Sprintf("; %s would end after the deadline: the moves take about %.0f s", counted(len(out.Late), "move"), out.Seconds)
	}
	return text
}

func (e *emptying) count(c cause) (n int) {
	for _, x := range e.stuck {
		if x == c {
			n++
		}
	}
	return n
}

func listed(names []string) string {
	switch n := len(names); {
	case n == 0:
		return "no host"
	case n == 1:
		return names[0]
	case n <= 4:
		text := names[0]
		for _, name := range names[1 : n-1] {
			text += ", " + name
		}
		return text + " and " + names[n-1]
	}
	return fmt.Sprintf("%s, %s and %d more", names[0], names[1], len(names)-2)
}

// ways are placements in which these VMs have left, that keep rules and floors and can be reached within
// the budget: the cheapest that is found, and, if well, the one with the greatest minimum yield.
func (e *emptying) ways(vms []int, well bool) []candidate {
	if len(vms) == 0 {
		return e.sound([]candidate{{at: slices.Clone(e.f.home)}}, false)
	}
	well = well && !math.IsInf(e.d.LeastGain, 1)
	found := e.simple(vms)
	few := len(e.f.home) <= someVMs
	if !few && !well {
		if ways := e.sound(found, false); len(ways) > 0 {
			return ways
		}
	}
	s, err := e.without(vms)
	if err != nil {
		return e.sound(found, false)
	}
	if few {
		s.best(0, e.steps)
	}
	if well { // unless no placement could gain enough
		if ways := e.sound(e.taken(&found, s), false); len(ways) > 0 && ways[0].yield*(1+e.d.LeastGain) >= e.bound()-sameYield {
			return ways
		}
		s.run()
	}
	if ways := e.sound(e.taken(&found, s), well); len(ways) > 0 {
		return ways
	}
	if !e.f.rules.Required() {
		if at := s.room(); at != nil {
			s.found = append(s.found, candidate{at: at})
		}
	}
	if few || e.f.rules.Required() && len(e.f.home) <= manyVMs {
		s.best(s.f.total, e.steps)
	}
	if ways := e.sound(e.taken(&found, s), well); len(ways) > 0 {
		return ways
	}
	if c := e.escape(vms); c != nil {
		return e.sound([]candidate{*c}, false)
	}
	return nil
}

// taken are placements that a search found, besides others.
func (e *emptying) taken(found *[]candidate, s *search) []candidate {
	for i := range s.found {
		*found = append(*found, candidate{at: s.found[i].at, yield: s.found[i].yield})
	}
	s.found = nil
	return *found
}

// without is the search in which VMs that have to go have no host, so that to place them is free.
func (e *emptying) without(vms []int) (*search, error) {
	p := e.p
	p.Groups = slices.Clone(e.p.Groups)
	goes := make([]bool, len(e.f.home))
	for _, vm := range vms {
		goes[vm] = true
	}
	for g := range p.Groups {
		q := &p.Groups[g]
		if q.Hosts == nil {
			continue
		}
		q.Hosts = slices.Clone(q.Hosts)
		q.Held = slices.Clone(q.Held)
		for i := range q.Hosts {
			switch vm := e.f.first[g] + i; {
			case goes[vm]:
				q.Hosts[i] = -1
			case q.Hosts[i] >= 0 && e.leaves[q.Hosts[i]] && !e.f.held[vm]:
				q.Held = append(q.Held, i) // it stays, as things are
			}
		}
	}
	f, err := p.fleet()
	if err != nil {
		return nil, err
	}
	return newSearch(f), nil
}

// simple are placements in which nobody moves but those that have to.
func (e *emptying) simple(vms []int) (found []candidate) {
	for _, m := range manners {
		s := newSeats(e.f)
		for _, vm := range vms {
			s.move(vm, -1)
		}
		if _, stuck := s.place(vms, m); stuck != nil {
			continue
		}
		found = append(found, candidate{at: slices.Clone(s.at)})
		if s.even(vms) {
			found = append(found, candidate{at: slices.Clone(s.at)})
		}
	}
	return found
}

// evenRounds bounds how often even improves.
const evenRounds = 400

// even lets the VMs given go from the host with the least yield to others, one by one, or change places
// with another of them, as long as that makes the least yield greater.
func (s *seats) even(vms []int) (better bool) {
	if s.f.rules.Required() {
		return false
	}
	mine := make([][]int, len(s.open))
	for _, vm := range vms {
		mine[s.at[vm]] = append(mine[s.at[vm]], vm)
	}
	for range evenRounds {
		worst, y := -1, 1.0
		for j := range mine {
			if len(mine[j]) > 0 {
				if z := s.yield(j); z < y {
					worst, y = j, z
				}
			}
		}
		if worst < 0 || !s.relieve(worst, y*(1+1e-9), mine) {
			return better
		}
		better = true
	}
	return better
}

// relieve brings host j, and whoever takes its VMs, above a yield.
func (s *seats) relieve(j int, y float64, mine [][]int) bool {
	begin := len(s.done)
	bestVM, bestTo, bestBack, best := -1, -1, -1, y
	for _, vm := range slices.Clone(mine[j]) {
		for to := range s.open {
			if to == j || !s.open[to] {
				continue
			}
			try := func(back int) {
				// As it would be, and back again.
				if back >= 0 {
					s.move(back, -1)
				}
				s.move(vm, -1)
				if s.may(to, []int{vm}) && (back < 0 || s.may(j, []int{back})) {
					z := s.yieldWith(to, []int{vm})
					if back >= 0 {
						z = min(z, s.yieldWith(j, []int{back}))
					} else {
						z = min(z, s.yield(j))
					}
					if z > best {
						bestVM, bestTo, bestBack, best = vm, to, back, z
					}
				}
				s.undo(begin)
			}
			try(-1)
			for _, back := range slices.Clone(mine[to]) {
				if s.f.of(back).CPU < s.f.of(vm).CPU {
					try(back)
				}
			}
		}
	}
	if bestVM < 0 {
		return false
	}
	go_ := func(vm, to int) {
		from := s.at[vm]
		mine[from] = slices.DeleteFunc(mine[from], func(o int) bool { return o == vm })
		mine[to] = append(mine[to], vm)
		s.move(vm, to)
	}
	go_(bestVM, bestTo)
	if bestBack >= 0 {
		go_(bestBack, j)
	}
	return true
}

// sound are the placements that can be reached within the budget and keep what has to be kept: of those found the
// cheapest, and, if well, the one with the greatest minimum yield, and of such the cheapest.
func (e *emptying) sound(found []candidate, well bool) (ways []candidate) {
	for i := range found {
		c := &found[i]
		c.direct = e.f.cost(c.at)
		if c.yield == 0 {
			if sol, err := e.divide(c.at); err == nil {
				c.yield = sol.MinYield
			}
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.direct, b.direct), cmp.Compare(b.yield, a.yield))
	})
	cheapest := -1
	for i := range found {
		c := &found[i]
		if cheapest >= 0 && c.direct >= found[cheapest].bytes {
			break
		}
		if e.reach(c) && (cheapest < 0 || c.bytes < found[cheapest].bytes) {
			cheapest = i
		}
	}
	if cheapest < 0 {
		return nil
	}
	ways = []candidate{found[cheapest]}
	if !well {
		return ways
	}
	slices.SortStableFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.yield, a.yield), cmp.Compare(a.direct, b.direct))
	})
	best := -1
	for i := range found {
		c := &found[i]
		if c.yield <= ways[0].yield+sameYield || best >= 0 && c.yield < found[best].yield-sameYield {
			break
		}
		if best >= 0 && c.direct >= found[best].bytes || !e.reach(c) || c.yield <= ways[0].yield+sameYield {
			continue
		}
		if best < 0 || c.bytes < found[best].bytes {
			best = i
		}
	}
	if best >= 0 {
		ways = append(ways, found[best])
	}
	return ways
}

// reach orders the moves to a placement; false: it costs too much, breaks something, or cannot be reached.
func (e *emptying) reach(c *candidate) bool {
	if c.direct > e.d.Budget || !e.keeps(c) {
		return false
	}
	if !c.ordered {
		if c.ops, c.why = newOrder(e.f, c.at).find(); c.why != "" {
			return false
		}
		c.ordered, c.bytes = true, 0
	}
	c.bytes = 0
	for _, x := range c.ops {
		if x.from >= 0 {
			c.bytes += e.f.bytes[x.vm]
		}
	}
	return c.bytes <= e.d.Budget
}

// keeps tells whether a placement keeps floors and rules, where they are kept now, and whether VMs go to
// hosts that take them; it corrects the yield.
func (e *emptying) keeps(c *candidate) bool {
	sol, err := e.divide(c.at)
	if err != nil || len(sol.Shortfall) > 0 {
		return false
	}
	c.yield = sol.MinYield
	comes := make([]bool, len(e.p.Hosts))
	for vm, j := range c.at {
		switch home := e.f.home[vm]; {
		case home == j:
		case j < 0 || e.p.Hosts[j].Cordoned || home >= 0 && e.f.held[vm] || !e.f.rules.Allowed(e.f.group[vm], j):
			return false
		default:
			comes[j] = true
		}
	}
	for j, broken := range e.f.brokenHosts(c.at) {
		if broken && (comes[j] || !e.broken[j]) {
			return false
		}
	}
	return true
}

// divide is the CPU of everybody in a placement.
func (e *emptying) divide(at []int) (allocator.Solution, error) {
	return allocator.Allocate(e.f.placed(e.q, at))
}

// brokenHosts are those that do not keep their memory or a rule in a placement.
func (f *fleet) brokenHosts(at []int) []bool {
	n := len(f.p.Hosts)
	broken, used, growth, groups := make([]bool, n), make([]float64, n), make([]float64, n), make([][]int, n)
	for vm, j := range at {
		used[j] += f.of(vm).Memory
		growth[j] = max(growth[j], f.of(vm).Growth)
		if f.p.Rules != nil {
			groups[j] = append(groups[j], f.group[vm])
		}
	}
	for j := range used {
		broken[j] = !fits(used[j], f.p.Hosts[j].room(growth[j])) && used[j] > 0 || f.p.Rules != nil && !f.rules.Kept(j, groups[j])
	}
	return broken
}

// bound of the minimum yield once the hosts are empty, or as they are if something stays there.
func (e *emptying) bound() float64 {
	q := e.p.allocation()
	if len(e.stuck) == 0 {
		kept := 0
		for j, h := range q.Hosts {
			if !e.leaves[j] {
				q.Hosts[kept] = h
				kept++
			}
		}
		q.Hosts = q.Hosts[:kept]
	}
	for g := range q.Groups {
		q.Groups[g].Hosts = nil
	}
	if len(q.Hosts) == 0 {
		return 1
	}
	return allocator.UpperBound(q)
}

// choose of ways, the cheapest first: a dearer one if it gains enough.
func (e *emptying) choose(ways []candidate) *candidate {
	best := &ways[0]
	for i := range ways[1:] {
		if c := &ways[1+i]; c.yield > best.yield+sameYield && c.yield >= ways[0].yield*(1+e.d.LeastGain) {
			best = c
		}
	}
	return best
}

// plan makes the steps.
func (e *emptying) plan(c *candidate) Plan {
	pl := &Planner{s: &search{f: e.f, p: e.q, bound: e.bound()}, caps: e.caps, least: e.least, mean: e.mean}
	p := pl.blank()
	pl.fill(&p, c)
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Kind == Move && e.leaves[s.From] && !s.Parks {
			s.Reason = fmt.Sprintf("host %s is to be emptied; host %s has room for it", e.p.Hosts[s.From].Name, e.p.Hosts[s.To].Name)
		}
	}
	return p
}
