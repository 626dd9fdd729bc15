// Package dfrs repeats the simulations of Stillwell, Vivien and Casanova, "Dynamic Fractional Resource Scheduling vs. Batch
// Scheduling" (arXiv 1106.4985), with Evenkeel beside them, and writes the report.
package dfrs

import (
	"fmt"
	"math/rand/v2"

	"evenkeel/sim/batch"
	"evenkeel/sim/trace"
	"evenkeel/sim/workload"
)

// Instance is jobs on a cluster.
type Instance struct {
	Set     string  // "unscaled", "scaled", or the name of a log
	Load    float64 // offered
	Cluster batch.Cluster
	Jobs    []batch.Job
}

// Jobs of a synthetic instance in the paper.
const Jobs = 1000

// What the paper has in every simulation: nodes of the synthetic cluster, the penalty. The paper
// does not state a node's memory; only bytes moved depend on it.
const (
	nodes      = 128
	penalty    = 300     // s
	nodeMemory = 8 << 30 // bytes
	week       = 7 * 86400
)

// Names of the synthetic sets.
const (
	Unscaled = "unscaled"
	Scaled   = "scaled"
)

// Synthetic draws n workloads of so many jobs by the Lublin-Feitelson model, and scales each to the loads.
func Synthetic(seed uint64, n, jobs int, loads []float64) ([]Instance, error) {
	var all []Instance
	c := batch.Cluster{Nodes: nodes, Memory: nodeMemory, Penalty: penalty}
	for i := range n {
		drawn, err := workload.NewLublin(nodes).Draw(seed<<16+uint64(i), jobs)
		if err != nil {
			return nil, err
		}
		workload.DrawNeeds(seed<<16+uint64(i), drawn)
		all = append(all, Instance{Unscaled, workload.OfferedLoad(nodes, drawn), c, shared(drawn)})
		for _, load := range loads {
			scaled, err := workload.ScaleLoad(nodes, drawn, load)
			if err != nil {
				return nil, err
			}
			all = append(all, Instance{Scaled, load, c, shared(scaled)})
		}
	}
	return all, nil
}

func shared(jobs []workload.BatchJob) []batch.Job {
	out := make([]batch.Job, len(jobs))
	for i, j := range jobs {
		out[i] = batch.Job(j)
	}
	return out
}

// machine is what a log's header does not say.
type machine struct {
	cores  int     // of a node
	memory float64 // of a node, bytes; 0: what jobs have is drawn as for synthetic ones
}

// machines by trace.Log.Computer. All others have nodes of one core.
var machines = map[string]machine{
	"Linux cluster (Seth)":    {2, 2 << 30},   // 120 nodes
	"Thinking Machines CM-5":  {32, 32 << 25}, // partitions of 32 processors with 32 MiB each
	"Intel iPSC/860":          {1, 0},
	"IBM SP2":                 {1, 0},
	"IBM SP2 (fat and small)": {1, 0},
}

// Weeks cuts a log into the jobs of each week, each of which begins with an empty cluster, and takes n of them, evenly spread; 0:
// all. A job whose processors fill whole nodes has a task for each node, which needs all of it; any other has one task for
// each processor. Tasks have what the log says of their memory, though at least a tenth of a node; where it says nothing it is drawn.
func Weeks(name string, l trace.Log, n int, seed uint64) (all []Instance, notes []string, err error) {
	m, known := machines[l.Computer]
	if !known {
		m = machine{cores: 1}
	}
	if l.Processors == 0 {
		return nil, nil, fmt.Errorf("%s: the header does not give the number of processors", name)
	}
	memory := m.memory
	if memory == 0 {
		memory = nodeMemory
	}
	c := batch.Cluster{Nodes: max(1, l.Processors/m.cores), Memory: memory, Penalty: penalty}
	random := rand.New(rand.NewPCG(seed, 0x7765656b))
	var weeks [][]batch.Job
	drawn, large := 0, 0
	for _, j := range l.Jobs {
		part := j.Memory / memory // of one processor
		if m.memory == 0 || j.Memory == 0 {
			part = 0
			drawn++
		}
		b := batch.Job{Submit: j.Submit, Run: max(1, j.Run), Tasks: j.Processors, CPU: 1 / float64(m.cores), Memory: part}
		if whole := float64(m.cores); j.Processors%m.cores == 0 && part*whole <= 1 {
			b.Tasks, b.CPU, b.Memory = j.Processors/m.cores, 1, part*whole
		}
		if part == 0 {
			b.Memory = workload.DrawMemory(random)
		}
		b.Memory = max(0.1, b.Memory)
		at := int(j.Submit / week)
		for len(weeks) <= at {
			weeks = append(weeks, nil)
		}
		if _, err := batch.Run(c, []batch.Job{b}, batch.FCFS()); err != nil {
			large++
			continue
		}
		weeks[at] = append(weeks[at], b)
	}
	if large > 0 {
		notes = append(notes, fmt.Sprintf("%s: %d jobs that the cluster cannot hold left out", name, large))
	}
	notes = append(notes, fmt.Sprintf("%s: memory drawn for %d of %d jobs", name, drawn, len(l.Jobs)))
	few := 0
	var full [][]batch.Job
	for _, jobs := range weeks {
		if len(jobs) < 20 {
			few++
			continue
		}
		full = append(full, jobs)
	}
	if few > 0 {
		notes = append(notes, fmt.Sprintf("%s: %d weeks with fewer than 20 jobs left out", name, few))
	}
	take := len(full)
	if n > 0 {
		take = min(n, take)
	}
	for i := range take {
		jobs := full[i*len(full)/take]
		work := 0.0
		for _, j := range jobs {
			work += j.Run * j.CPU * float64(j.Tasks)
		}
		all = append(all, Instance{name, work / float64(c.Nodes) / week, c, jobs})
	}
	return all, notes, nil
}
