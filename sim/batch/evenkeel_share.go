package batch

import (
	"fmt"
	"slices"

	"evenkeel/allocator"
	"evenkeel/migration"
)

// planSteps bounds the work for one plan: some milliseconds.
const planSteps = 300_000

// rebalance moves tasks if that raises the minimum yield by enough.
func (p *evenkeel) rebalance() error {
	if p.MoveBytes <= 0 || p.now-p.planned < p.CoolDown {
		return nil
	}
	problem := migration.Problem{Steps: planSteps}
	for n := range p.Nodes {
		problem.Hosts = append(problem.Hosts, migration.Host{Name: fmt.Sprint(n), CPU: 1, Memory: 1 + slack})
	}
	var running []*job
	for _, j := range p.jobs {
		if !placed(j) {
			continue
		}
		g := migration.Group{Name: fmt.Sprint(j.number), Count: j.Tasks, CPU: j.CPU, Memory: j.Memory, Hosts: j.nodes}
		if !p.movable(j) {
			for vm := range j.Tasks {
				g.Pinned = append(g.Pinned, vm)
			}
		}
		running = append(running, j)
		problem.Groups = append(problem.Groups, g)
	}
	planner, err := migration.New(problem)
	if err != nil {
		return fmt.Errorf("planning moves: %w", err)
	}
	plan := planner.Plan(p.MoveBytes * float64(p.Nodes))
	if !plan.Feasible || plan.Moves == 0 || plan.MinYieldAfter < plan.MinYieldBefore*(1+p.MinGain) {
		return nil
	}
	p.planned = p.now
	for i, j := range running {
		if moved(j.nodes, sorted(plan.Hosts[i])) > 0 {
			p.lift(j)
		}
	}
	for i, j := range running {
		if waiting(j) {
			p.place(j, plan.Hosts[i])
		}
	}
	return nil
}

func sorted(nodes []int) []int {
	nodes = slices.Clone(nodes)
	slices.Sort(nodes)
	return nodes
}

// minShare is promised to every job, as far as half the node is enough for that: no job stands still.
const minShare = 0.01

// share lets the allocator divide the CPU above floors. On each node the young are promised what they need, as far as there is
// enough, and the others an equal part of the rest; a job's floor is the least promise of its nodes.
func (p *evenkeel) share() error {
	young, old := make([]float64, p.Nodes), make([]float64, p.Nodes)
	for _, j := range p.jobs {
		for _, n := range j.nodes {
			if j.done < p.Young {
				young[n] += j.CPU
			} else {
				old[n] += j.CPU
			}
		}
	}
	problem := allocator.Problem{Hosts: p.hosts()}
	var running []*job
	for _, j := range p.jobs {
		if !placed(j) {
			continue
		}
		floor := 1.0
		for _, n := range j.nodes {
			rest := min(0.5, minShare*old[n])
			if j.done < p.Young {
				floor = min(floor, (1-rest)/young[n])
			} else {
				floor = min(floor, max(rest, 1-young[n])/old[n])
			}
		}
		g := j.group()
		g.MinYield = floor * (1 - slack)
		running = append(running, j)
		problem.Groups = append(problem.Groups, g)
	}
	solution, err := allocator.Allocate(problem)
	if err != nil {
		return fmt.Errorf("dividing the CPU: %w", err)
	}
	for i, j := range running {
		j.yield = min(1, solution.CPU[i]/j.CPU)
	}
	return nil
}
