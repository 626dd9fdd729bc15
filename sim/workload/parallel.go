package workload

import (
	"fmt"
	"math/rand/v2"

	"evenkeel/sim/trace"
)

// ParallelLog is jobs of a parallel machine. Each is an application of one component per processor, of one core each, all of which are needed and make
// progress together. A component's memory is what the log has per processor; where it has none, a core's part of the smallest host's memory times a share
// that is drawn as DrawMemory does. Use is drawn from u. Work is the run time that was logged.
//
// With a load the gaps between submissions are made shorter or longer, all by one factor; with a number the jobs after so many are left out.
func ParallelLog(jobs []trace.ParallelJob, u *Uses, c Cut) (*Workload, float64, []string, error) {
	if err := c.check(); err != nil {
		return nil, 0, nil, err
	}
	rng := rand.New(rand.NewPCG(c.Seed, 0x73776620))
	smallest := c.smallest()
	span := c.Span
	if span == 0 {
		span = week
	}
	var asks []ask
	drawn := 0
	for _, j := range jobs {
		if j.Submit < c.From || j.Submit >= c.From+span {
			continue
		}
		a := ask{arrival: j.Submit - c.From, life: max(1, j.Run), count: j.Processors, cpu: 1, memory: j.Memory, source: int32(len(asks))}
		share := DrawMemory(rng)
		if a.memory == 0 {
			a.memory = share * smallest.Memory / max(1, smallest.CPU)
			drawn++
		}
		asks = append(asks, a)
	}
	if len(asks) == 0 {
		return nil, 0, nil, fmt.Errorf("workload: no job was submitted in the %g days from day %g on", span/86400, c.From/86400)
	}
	notes := []string{}
	if drawn > 0 {
		notes = append(notes, fmt.Sprintf("memory of %d of %d jobs is drawn: the log does not have it", drawn, len(asks)))
	}
	return parallel(rng, asks, u, c, span, notes)
}

// ParallelJobs is the same of jobs of the Lublin-Feitelson model with their needs: tasks that need parts of a node, which is the smallest host.
func ParallelJobs(jobs []BatchJob, u *Uses, c Cut) (*Workload, float64, []string, error) {
	if err := c.check(); err != nil {
		return nil, 0, nil, err
	}
	node := c.smallest()
	var asks []ask
	first := 0.0
	for i, j := range jobs {
		if i == 0 {
			first = j.Submit
		}
		asks = append(asks, ask{arrival: j.Submit - first, life: j.Run, count: j.Tasks, cpu: j.CPU * node.CPU, memory: j.Memory * node.Memory, source: int32(i)})
	}
	if len(asks) == 0 {
		return nil, 0, nil, fmt.Errorf("workload: no jobs")
	}
	span := asks[len(asks)-1].arrival + 1
	return parallel(rand.New(rand.NewPCG(c.Seed, 0x7061726c)), asks, u, c, span, nil)
}

func (c *Cut) smallest() Room {
	r := c.Hosts[0]
	for _, h := range c.Hosts {
		r.CPU, r.Memory = min(r.CPU, h.CPU), min(r.Memory, h.Memory)
	}
	return r
}

// parallel gives jobs their use, and their submissions the load.
func parallel(rng *rand.Rand, asks []ask, u *Uses, c Cut, span float64, notes []string) (*Workload, float64, []string, error) {
	if err := u.check(); err != nil {
		return nil, 0, nil, err
	}
	if c.Apps > 0 && len(asks) > c.Apps {
		asks = asks[:c.Apps]
		span = asks[len(asks)-1].arrival + 1
	}
	asks, out := fitting(asks, c.Hosts, "jobs")
	notes = append(notes, out...)
	// All of each job counts, also what goes on after the last was submitted.
	var cpu, memory float64
	all := c.all()
	for i := range asks {
		work := asks[i].life * float64(asks[i].count)
		cpu, memory = cpu+work*asks[i].cpu/all.CPU, memory+work*asks[i].memory/all.Memory
	}
	if c.Load > 0 {
		now := max(cpu, memory) / span
		by := now / c.Load
		for i := range asks {
			asks[i].arrival *= by
		}
		span *= by
		notes = append(notes, fmt.Sprintf("gaps between submissions are %.3g times as long as in the record, which asks for %.3g times what there is", by, now))
	}
	for i := range asks {
		u.give(rng, &asks[i])
	}
	w, err := workloadOf(asks, u.Patterns, span)
	return w, span, notes, err
}
