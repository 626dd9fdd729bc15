package signoff

import (
	"cmp"
	"math"
	"slices"

	"evenkeel/cluster/scheduler/reservation"
)

// tolerance is what of a step's need may be missing: rounding.
const tolerance = 1e-6

// playing is a run that goes on in its slot.
type playing struct {
	run
	job     *placed
	at      int     // steps after the begin of its period
	elapsed int     // steps since it started
	debt    float64 // core-steps that it has yet to do
	used    float64 // core-steps
	recent  [2][]float64
	short   bool // of memory
}

// step is the one of all steps since 1970, on the agenda's clock, that comes next.
func (p *playing) step(o *Options) int { return clockSeconds(p.period, o.Zone)/int(o.Step) + p.at }

// demand is what it needs in this step: cores, and bytes. A slot with a yield y is 1/y as long, and the run's memory goes as slowly.
func (p *playing) demand() (cores, memory float64) {
	cores = p.debt
	if p.elapsed < len(p.Usage) {
		cores += p.Usage[p.elapsed]
	}
	if n := len(p.MemoryUsage); n > 0 {
		memory = p.MemoryUsage[min(n-1, int(float64(p.elapsed)*p.job.accepted.Slot.Yield))]
	}
	return cores, memory
}

func (p *playing) ended() bool { return p.elapsed >= len(p.Usage) && p.debt <= tolerance }

// has is what the slot has for it now.
func (p *playing) has() reservation.Amount {
	s := &p.job.accepted.Slot
	if i := p.at - s.Start; i >= 0 && i < len(s.Amounts) {
		return s.Amounts[i]
	}
	return reservation.Amount{}
}

// play plays the runs that were not learned from, of all jobs that have slots, on one agenda, and adds what came of each to its job.
func (b *board) play(o *Options) {
	var all []*playing
	for i := range b.placed {
		j := &b.placed[i]
		for _, r := range j.runs[j.learned:] {
			begin := int(math.Ceil(r.Begin.Sub(r.period).Seconds()/o.Step - 1e-9))
			all = append(all, &playing{run: r, job: j, at: max(begin, j.accepted.Slot.Start)})
		}
	}
	slices.SortStableFunc(all, func(a, b *playing) int { return cmp.Compare(a.step(o), b.step(o)) })
	var running []*playing
	for now := 0; len(all) > 0 || len(running) > 0; now++ {
		if len(running) == 0 {
			now = max(now, all[0].step(o))
		}
		for len(all) > 0 && all[0].step(o) <= now {
			running = append(running, all[0])
			all = all[1:]
		}
		slices.SortStableFunc(running, func(a, b *playing) int { return cmp.Compare(a.job.due-a.at, b.job.due-b.at) })
		granted := make([]reservation.Amount, len(b.hosts))
		kept := running[:0]
		for _, p := range running {
			if p.at < p.job.due {
				b.pass(p, granted, o)
			}
			if done := p.ended(); done || p.at >= p.job.due {
				p.job.finish(done && p.at <= p.job.due, p.short)
			} else {
				kept = append(kept, p)
			}
		}
		running = kept
	}
}

// pass lets a step pass for a run: it has its slot, and what it is late by or its memory needs beyond, as far as its hosts have room.
func (b *board) pass(p *playing, granted []reservation.Amount, o *Options) {
	has := p.has()
	var demand, asks, extra reservation.Amount
	demand[reservation.Cores], demand[reservation.Memory] = p.demand()
	asks = demand
	asks[reservation.Cores] = min(demand[reservation.Cores], has[reservation.Cores]+reservation.Late(p.job.cores, p.at-p.job.accepted.Slot.Start, p.used, demand[reservation.Cores]))
	room := b.room(p, granted)
	rules, total := reservation.DefaultReprovisioning(), b.granted(granted)
	for k, r := range []reservation.Resource{reservation.Cores, reservation.Memory} {
		if p.recent[k] == nil { // what was reserved before it came counts
			p.recent[k] = []float64{p.job.slotAt(p.at-2, r), p.job.slotAt(p.at-1, r)}
		}
		g := rules.Decide(reservation.Instance{Demand: asks[r], Reserved: has[r], Recent: p.recent[k]},
			reservation.Room{Capacity: b.capacity[r], Planned: b.capacity[r] - total[r] - room[r], Granted: total[r]})
		extra[r] = g.Extra
		p.recent[k] = append(p.recent[k][1:], has[r]+g.Extra)
	}
	for _, h := range p.job.accepted.Witness.Hosts {
		for r := range extra {
			granted[h][r] += extra[r] / float64(len(p.job.accepted.Witness.Hosts))
		}
	}
	used := min(demand[reservation.Cores], has[reservation.Cores]+extra[reservation.Cores])
	p.debt = demand[reservation.Cores] - used
	p.used += used
	p.short = p.short || demand[reservation.Memory] > (has[reservation.Memory]+extra[reservation.Memory])*(1+tolerance)+1
	p.job.out.GrantedCoreHours += extra[reservation.Cores] * o.Step / 3600
	p.job.out.GrantedGiBHours += extra[reservation.Memory] / gib * o.Step / 3600
	p.elapsed++
	p.at++
}

// room is what the hosts of a run's VMs have besides, for all of them evenly.
func (b *board) room(p *playing, granted []reservation.Amount) (room reservation.Amount) {
	hosts := p.job.accepted.Witness.Hosts
	on := map[int]float64{}
	for _, h := range hosts {
		on[h]++
	}
	step := (p.job.request.Phase + p.at) % b.steps
	for r := range room {
		room[r] = math.Inf(1)
		for h, n := range on {
			free := b.agenda.Free(h, step, step+1)
			room[r] = min(room[r], max(0, free[r]-granted[h][r])*float64(len(hosts))/n)
		}
	}
	return room
}

func (b *board) granted(by []reservation.Amount) (sum reservation.Amount) {
	for _, g := range by {
		for r := range sum {
			sum[r] += g[r]
		}
	}
	return sum
}
