package morpheus

import (
	"fmt"
	"math"

	"evenkeel/cluster/scheduler/reservation"
)

// placement is how skylines come into the agenda.
type placement string

const (
	lowCost     placement = "LowCost"     // sec. 6.3, with the alignment penalty of sec. 7
	unaligned   placement = "unaligned"   // the same without the penalty
	alignRight  placement = "align-right" // as late as its window allows, whatever the load
	atArrival   placement = "at arrival"  // as soon as its inputs are there, whatever the load
	alignWeight           = 0.1           // reservation.DefaultOptions has it, too
)

// slot is what a job has reserved in each of its periods, by minute.
type slot struct {
	start   int // minutes after the start of its period
	amounts []float64
}

func (s *slot) at(minute int) float64 {
	if i := minute - s.start; i >= 0 && i < len(s.amounts) {
		return s.amounts[i]
	}
	return 0
}

func (s *slot) sum() (containerMinutes float64) {
	for _, a := range s.amounts {
		containerMinutes += a
	}
	return containerMinutes
}

// plan is an agenda: the slots of contracts, in their order, and the containers that they have together.
type plan struct {
	slots []slot
	load  *reservation.Load
	peak  float64 // containers: the least cluster that has room for all slots
}

// reserved is what all slots have in a minute since the first day.
func (p *plan) reserved(minute int) float64 { return p.load.Used(minute)[reservation.Cores] }

// place asks the agenda for a slot for each contract, in their order.
func place(contracts []contract, skylines [][]float64, how placement) (*plan, error) {
	mean := 0.0
	for i := range contracts {
		for _, v := range skylines[i] {
			mean += math.Ceil(v) / float64(contracts[i].job.Period)
		}
	}
	load, err := reservation.NewLoad(reservation.Amount{reservation.Cores: max(1, mean), reservation.Memory: math.Inf(1), reservation.VMs: math.Inf(1)}, Day)
	if err != nil {
		return nil, err
	}
	p := &plan{load: load, slots: make([]slot, len(contracts))}
	for i := range contracts {
		s, err := load.Place(request(&contracts[i], skylines[i], how), reservation.Options{Alignment: alignWeight, AlignRight: how == alignRight})
		if err != nil {
			return nil, fmt.Errorf("place %s: %w", contracts[i].job.Name, err)
		}
		load.Add(&s)
		p.slots[i].start = s.Start
		for _, a := range s.Amounts {
			p.slots[i].amounts = append(p.slots[i].amounts, a[reservation.Cores])
		}
	}
	for minute := range Day {
		p.peak = max(p.peak, p.reserved(minute))
	}
	return p, nil
}

// request is a contract's, with whole containers: what the skyline has in a minute is rounded up.
func request(c *contract, skyline []float64, how placement) reservation.Request {
	r := reservation.Request{Name: c.job.Name, Period: c.job.Period, Phase: c.job.Phase, Earliest: c.arrival, Due: c.due, Unsteady: c.unsteady && how != unaligned,
		Elastic: &reservation.Elastic{Unit: reservation.Amount{reservation.Cores: 1, reservation.VMs: 1}}}
	for _, v := range skyline {
		r.Stages = append(r.Stages, reservation.Stage{VMs: int(math.Ceil(v - 1e-9))})
	}
	for n := len(r.Stages); n > 1 && r.Stages[n-1].VMs == 0; n-- {
		r.Stages = r.Stages[:n-1]
	}
	if how == atArrival {
		r.Due = r.Earliest + len(r.Stages)
	}
	return r
}
