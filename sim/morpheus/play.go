package morpheus

import (
	"cmp"
	"slices"

	"evenkeel/cluster/scheduler/reservation"
)

// done is what work may be left of a run that has ended: rounding.
const done = 1e-6

// progress of a run. Its use of each minute becomes due in that minute after its start, as if it got all that it asks for. What it does not get becomes debt,
// which later minutes can pay (sec. 5).
type progress struct {
	usage []float64
	next  int // minute of its use that comes next
	debt  float64
}

// demand is what it uses and asks for in this minute.
func (p *progress) demand() float64 {
	if p.next < len(p.usage) {
		return p.debt + p.usage[p.next]
	}
	return p.debt
}

// pass lets a minute pass in which it may use so many containers, and returns what it used.
func (p *progress) pass(containers float64) (used float64) {
	demand := p.demand()
	used = min(demand, max(0, containers))
	p.debt, p.next = demand-used, p.next+1
	return used
}

func (p *progress) ended() bool { return p.next >= len(p.usage) && p.debt <= done }

// alone plays a run that gets so many containers in each minute of its period, and nothing else, until it is due.
func alone(r *Run, due int, containers func(minute int) float64) (end int, inTime bool) {
	p := progress{usage: r.Usage}
	for minute := r.begin(); minute < due; minute++ {
		p.pass(containers(minute))
		if p.ended() {
			return minute + 1, true
		}
	}
	return due, false
}

// outcome of a play.
type outcome struct {
	Runs     int
	Missed   int       // runs that had not ended when they were due
	Hopeless int       // of them those that would have missed with all they ask for
	ByJob    []float64 // by contract: the share of its runs that missed
	Used     float64   // container-minutes
	Reserved float64   // container-minutes, in the same runs
	Granted  float64   // container-minutes by re-provisioning
	Cluster  float64   // containers
	ratios   []float64 // by contract: reserved over used
}

// missShare is the share of runs that missed, as a mean over jobs: each counts as one.
func (o *outcome) missShare() (share float64) {
	for _, m := range o.ByJob {
		share += m / float64(len(o.ByJob))
	}
	return share
}

// count enters the runs of one contract: whether each missed, what each used, and what all had reserved.
func (o *outcome) count(c *contract, missed []bool, used, reserved float64) {
	n := 0
	for i, m := range missed {
		if !m {
			continue
		}
		n++
		if c.hopeless(&c.future[i]) {
			o.Hopeless++
		}
	}
	o.Runs += len(missed)
	o.Missed += n
	o.ByJob = append(o.ByJob, float64(n)/float64(max(1, len(missed))))
	o.Used += used
	o.Reserved += reserved
	o.ratios = append(o.ratios, reserved/max(1, used))
}

// hopeless runs miss with all they ask for: their inputs come too late, or they take too long.
func (c *contract) hopeless(r *Run) bool { return r.begin()+len(r.Usage) > c.due }

// work is what a run uses in all.
func (r *Run) work() (containerMinutes float64) {
	for _, u := range r.Usage {
		containerMinutes += u
	}
	return containerMinutes
}

// onlyReserved plays all runs in their slots, with nothing else: the worst case of fig. 9c.
func (p *plan) onlyReserved(contracts []contract) outcome {
	o := outcome{Cluster: p.peak}
	for i := range contracts {
		c, s := &contracts[i], &p.slots[i]
		missed, used := make([]bool, len(c.future)), 0.0
		for k := range c.future {
			_, inTime := alone(&c.future[k], c.due, s.at)
			missed[k] = !inTime
			used += c.future[k].work()
		}
		o.count(c, missed, used, s.sum()*float64(len(c.future)))
	}
	return o
}

// byUsers plays all runs with what their owners ask for, scaled: each has so many containers from its start until it ends or is due, and nothing else.
func byUsers(contracts []contract, scale float64) outcome {
	o := outcome{}
	for i := range contracts {
		c := &contracts[i]
		has := c.userScaled(scale)
		missed, used, reserved := make([]bool, len(c.future)), 0.0, 0.0
		for k := range c.future {
			r := &c.future[k]
			end, inTime := alone(r, c.due, func(int) float64 { return has })
			missed[k] = !inTime
			used += r.work()
			reserved += has * float64(max(0, end-r.begin()))
		}
		o.count(c, missed, used, reserved)
	}
	return o
}

// userScaled is what a job's owner asks for, times scale: whole containers, one at least.
func (c *contract) userScaled(scale float64) float64 {
	return max(1, float64(int(scale*float64(c.job.User)+0.5)))
}

// userSkyline is what the owner asks for, scaled, for as long as the longest past run takes with it, up to the deadline.
func (c *contract) userSkyline(scale float64) []float64 {
	has, longest := c.userScaled(scale), 1
	for _, past := range c.past {
		end, _ := alone(&Run{Usage: past}, c.window(), func(int) float64 { return has })
		longest = max(longest, end)
	}
	return slices.Repeat([]float64{has}, longest)
}

// active is a run that goes on.
type active struct {
	progress
	contract, run int
	first         int // minute since the first day at which its period starts
	begin, due    int // minutes since the first day
	recent        []float64
	used          float64 // container-minutes, in a slot
}

// arrivals are all runs that are played, in order of their start.
func arrivals(contracts []contract) (all []*active) {
	for i := range contracts {
		c := &contracts[i]
		for k := range c.future {
			r := &c.future[k]
			first := c.job.Phase + r.Index*c.job.Period
			all = append(all, &active{progress: progress{usage: r.Usage}, contract: i, run: k, first: first, begin: first + r.begin(), due: first + c.due})
		}
	}
	slices.SortStableFunc(all, func(a, b *active) int { return cmp.Compare(a.begin, b.begin) })
	return all
}

// sharing says what each of the runs that go on may use in a minute.
type sharing func(minute int, running []*active) []float64

// together plays all runs minute by minute.
func together(contracts []contract, share sharing) (missed [][]bool) {
	missed = make([][]bool, len(contracts))
	for i := range contracts {
		missed[i] = make([]bool, len(contracts[i].future))
	}
	all := arrivals(contracts)
	var running []*active
	for minute, at := 0, 0; at < len(all) || len(running) > 0; minute++ {
		if len(running) == 0 {
			minute = max(minute, all[at].begin)
		}
		for ; at < len(all) && all[at].begin <= minute; at++ {
			running = append(running, all[at])
		}
		kept := running[:0]
		for _, a := range running {
			if minute < a.due {
				kept = append(kept, a)
			} else {
				missed[a.contract][a.run] = true
			}
		}
		running = kept
		given := share(minute, running)
		kept = running[:0]
		for i, a := range running {
			if a.pass(given[i]); !a.ended() {
				kept = append(kept, a)
			}
		}
		running = kept
	}
	return missed
}

// rules of re-provisioning.
type rules struct {
	reservation.Reprovisioning
	lateOnly bool // a run asks for no more than what it is late by (reservation.Late); in the paper it asks for all that it could use
}

func asInPaper() rules { return rules{Reprovisioning: reservation.DefaultReprovisioning()} }

func forLateRuns() rules { return rules{reservation.DefaultReprovisioning(), true} }

// inSlots gives each run what its slot has, and late ones more as sec. 7 does, on a cluster of so many containers. It adds what it grants to granted.
func (p *plan) inSlots(cluster float64, rules rules, granted *float64) sharing {
	return func(minute int, running []*active) []float64 {
		given := make([]float64, len(running))
		now, planned := 0.0, p.reserved(minute)
		for i, a := range running {
			s := &p.slots[a.contract]
			has, demand := s.at(minute-a.first), a.demand()
			if a.recent == nil { // what was reserved before it came counts
				for back := rules.Recent; back > 0; back-- {
					a.recent = append(a.recent, s.at(minute-a.first-back))
				}
			}
			asks := demand
			if rules.lateOnly {
				asks = min(demand, has+reservation.Late(s.amounts, minute-a.first-s.start, a.used, demand))
			}
			g := rules.Decide(reservation.Instance{Demand: asks, Reserved: has, Recent: a.recent}, reservation.Room{Capacity: cluster, Planned: planned, Granted: now})
			now += g.Extra
			given[i] = has + g.Extra
			a.used += min(given[i], demand)
			a.recent = append(a.recent[1:], given[i])
		}
		*granted += now
		return given
	}
}

// reprovisioned plays all runs in their slots, with re-provisioning.
func (p *plan) reprovisioned(contracts []contract, cluster float64, rules rules) outcome {
	o := outcome{Cluster: cluster}
	missed := together(contracts, p.inSlots(cluster, rules, &o.Granted))
	for i := range contracts {
		used := 0.0
		for k := range contracts[i].future {
			used += contracts[i].future[k].work()
		}
		o.count(&contracts[i], missed[i], used, p.slots[i].sum()*float64(len(contracts[i].future)))
	}
	return o
}

// equalShares is sharing without an agenda: all runs, and the jobs of others, have equal shares of a cluster of so many containers, as far as they ask for so much.
func equalShares(cluster float64, others *adHoc) sharing {
	return func(_ int, running []*active) []float64 {
		demands := make([]float64, len(running))
		for i, a := range running {
			demands[i] = a.demand()
		}
		if others == nil {
			return maxMin(demands, cluster)
		}
		given := maxMin(append(demands, others.demands()...), cluster)
		others.pass(given[len(running):])
		return given[:len(running)]
	}
}

// beside gives the jobs of others what the runs do not use.
func beside(runs sharing, cluster float64, others *adHoc) sharing {
	return func(minute int, running []*active) []float64 {
		given, left := runs(minute, running), cluster
		for i, a := range running {
			left -= min(given[i], a.demand())
		}
		others.pass(maxMin(others.demands(), max(0, left)))
		return given
	}
}

// fairly plays all runs without an agenda.
func fairly(contracts []contract, cluster float64, others *adHoc) outcome {
	o := outcome{Cluster: cluster}
	missed := together(contracts, equalShares(cluster, others))
	for i := range contracts {
		o.count(&contracts[i], missed[i], 0, 0)
	}
	return o
}

// maxMin shares an amount so that no demand gets more while another gets less and wants more.
func maxMin(demands []float64, amount float64) []float64 {
	order := make([]int, len(demands))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(demands[a], demands[b]) })
	out := make([]float64, len(demands))
	for at, i := range order {
		out[i] = min(demands[i], amount/float64(len(order)-at))
		amount -= out[i]
	}
	return out
}
