package signoff

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"evenkeel/cluster/scheduler/reservation"
	"evenkeel/migration"
)

// board is an agenda on some hosts, beside what runs there all the time.
type board struct {
	agenda   *reservation.Agenda
	hosts    []Host
	steps    int
	capacity reservation.Amount // of all hosts
	placed   []placed
}

// placed is a contract with its slot.
type placed struct {
	contract
	accepted *reservation.Accepted
	cores    []float64 // of the slot, by step
	out      *Job
}

func (p *placed) slotAt(at int, r reservation.Resource) float64 {
	if i := at - p.accepted.Slot.Start; i >= 0 && i < len(p.accepted.Slot.Amounts) {
		return p.accepted.Slot.Amounts[i][r]
	}
	return 0
}

// errNoRoom: the VMs that run all the time do not fit the hosts.
var errNoRoom = errors.New("they find no host")

// newBoard puts the residents on the hosts, largest memory first, each where least memory is left.
func newBoard(hosts []Host, residents []Resident, steps int) (*board, error) {
	b := &board{hosts: hosts, steps: steps}
	c := reservation.Cluster{Steps: steps}
	free := slices.Clone(hosts)
	for _, h := range hosts {
		c.Hosts = append(c.Hosts, migration.Host{Name: h.Name, CPU: h.CPU, Memory: h.Memory})
		b.capacity[reservation.Cores] += h.CPU
		b.capacity[reservation.Memory] += h.Memory
	}
	order := slices.Clone(residents)
	slices.SortStableFunc(order, func(a, b Resident) int { return cmp.Or(cmp.Compare(b.Memory, a.Memory), cmp.Compare(b.CPU, a.CPU)) })
	for i, r := range order {
		g := migration.Group{Cluster: fmt.Sprint(i), Name: r.Name, Count: r.Count, CPU: r.CPU, Memory: r.Memory, MinYield: 1}
		for range r.Count {
			best := -1
			for h := range free {
				if free[h].CPU >= r.CPU && free[h].Memory >= r.Memory && (best < 0 || free[h].Memory < free[best].Memory) {
					best = h
				}
			}
			if best < 0 {
				return nil, fmt.Errorf("place the VMs of %s, of %.4g cores and %.4g GiB each: %w", r.Name, r.CPU, r.Memory/gib, errNoRoom)
			}
			free[best].CPU, free[best].Memory = free[best].CPU-r.CPU, free[best].Memory-r.Memory
			g.Hosts = append(g.Hosts, best)
		}
		c.Residents = append(c.Residents, g)
	}
	var err error
	b.agenda, err = reservation.New(c, reservation.DefaultOptions())
	return b, err
}

// maxHosts is up to how many hosts are looked at for how many are needed, as a multiple of those that there are, and besides.
const maxHosts, moreHosts = 4, 16

// needed is the least number of hosts on which all requests have slots beside the residents; further hosts are like the average one. 0: more than are looked at.
func needed(hosts []Host, residents []Resident, steps int, requests []reservation.Request) int {
	var mean Host
	for _, h := range hosts {
		mean.CPU, mean.Memory = mean.CPU+h.CPU/float64(len(hosts)), mean.Memory+h.Memory/float64(len(hosts))
	}
	fits := func(n int) bool {
		some := slices.Clone(hosts[:min(n, len(hosts))])
		for i := len(some); i < n; i++ {
			some = append(some, Host{fmt.Sprintf("another-%d", i), mean.CPU, mean.Memory})
		}
		b, err := newBoard(some, residents, steps)
		if err != nil {
			return false
		}
		for _, r := range requests {
			// A load that the sums exceed is refused before the agenda looks for changes that would fit.
			if s, err := b.agenda.Load().Place(r, reservation.DefaultOptions()); err != nil || s.Cost > 1+1e-9 {
				return false
			}
			if a, _, err := b.agenda.Accept(r); err != nil || a == nil {
				return false
			}
		}
		return true
	}
	low, high := 0, maxHosts*len(hosts)+moreHosts
	if !fits(high) {
		return 0
	}
	for high-low > 1 {
		if middle := (low + high) / 2; fits(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return high
}

// finish enters a run that has ended or is due.
func (p *placed) finish(inTime, short bool) {
	if short {
		p.out.Short++
	}
	if !inTime || short {
		p.out.MissedAfter++
	}
}

// demandOf is by what jobs are ordered: the largest part of the cluster first, as large pieces find room while there is some.
func (b *board) demandOf(r *reservation.Request) (sum float64) {
	for _, s := range r.Stages {
		sum += max(s.Cores/b.capacity[reservation.Cores], s.Memory/b.capacity[reservation.Memory])
	}
	if math.IsNaN(sum) {
		return 0
	}
	return sum * float64(b.steps) / float64(r.Period)
}
