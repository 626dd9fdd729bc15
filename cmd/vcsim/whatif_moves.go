package main

import (
	"fmt"
	"hash/fnv"
	"math"
	"time"

	"evenkeel/cluster/scheduler/rebalance"
	"evenkeel/cluster/state"
	"evenkeel/migration"
	"evenkeel/sim/replay"
)

// moving lets a policy move VMs that run, as the production loop does. At the times that rebalance.Trigger says it carries out a plan of
// package migration within a budget, if rebalance.Worth finds the plan worth its bytes. Where the first application that waits has no room,
// it carries out a plan that makes some. Moves take no time here; what they send is the memory in use.
type moving struct {
	replay.Policy
	rightsizing *replay.Rightsizing // that the policy is; nil: VMs need what they declared
	settings    state.MoveSettings

	balance rebalance.Trigger
	ended   []time.Time
	moved   map[int32]movedVM // by slot
	tried   float64           // when room was looked for last, seconds
	stuck   int32             // for which application
	freed   int               // Cluster.Freed at that time
	slots   []int32           // of the groups of a problem
	err     error             // the first that a planner had
}

type movedVM struct {
	born uint32
	at   float64 // seconds
}

// planEffort bounds the search for a plan: a tenth of production's, which looks once in a while and not thousands of times.
const planEffort = migration.DefaultSteps / 10

func withMoves(p replay.Policy, settings state.MoveSettings) *moving {
	m := &moving{Policy: p, settings: settings}
	m.rightsizing, _ = p.(*replay.Rightsizing)
	return m
}

// Begin implements replay.Policy.
func (m *moving) Begin(c *replay.Cluster) replay.Enforcement {
	m.balance, m.ended, m.moved, m.err = rebalance.Trigger{}, nil, map[int32]movedVM{}, nil
	m.tried, m.stuck, m.freed = math.Inf(-1), -1, -1
	return m.Policy.Begin(c)
}

// Rightsize implements replay.Policy.
func (m *moving) Rightsize(c *replay.Cluster) {
	m.Policy.Rightsize(c)
	m.rebalance(c)
	m.room(c)
}

// clock is a time of a replay as production has them.
func clock(seconds float64) time.Time {
	return time.Unix(0, 0).Add(time.Duration(seconds * float64(time.Second)))
}

// need of a VM, cores: what it is expected to use, or what it declared.
func (m *moving) need(c *replay.Cluster, slot int32) float64 {
	if m.rightsizing == nil {
		return c.RequestCPU[slot]
	}
	cpu, _ := m.rightsizing.Need(slot)
	return max(cpu, c.CPU[slot]) // a VM that has just begun has what it declared
}

func (m *moving) rebalance(c *replay.Cluster) {
	in := rebalance.Observation{Now: clock(c.Now), MinYield: 1, Hosts: 1, Ended: m.ended}
	need, have := 0.0, 0.0
	change := fnv.New64a()
	for s, app := range c.App {
		if app < 0 {
			continue
		}
		n := m.need(c, int32(s))
		need += n
		if n > 0 {
			in.MinYield = min(in.MinYield, c.CPU[s]/n)
		}
		fmt.Fprintln(change, s, c.Born[s], n)
	}
	for _, h := range c.Hosts {
		have += h.CPU
	}
	in.Load, in.Change = need/have, change.Sum64()
	var verdict rebalance.Verdict
	if m.balance, verdict = m.balance.Due(rebalance.PaceOf(m.settings), in); !verdict.Evaluate {
		return
	}
	p := m.problem(c, func(s int32) float64 { return m.need(c, s) }, 0, -1)
	p.Budget = float64(m.settings.Budget())
	pl, err := migration.New(p)
	if err != nil {
		m.fail(c, err)
		return
	}
	if plan, not := rebalance.Worth(pl, p.Budget, m.settings.WithDefaults().MinGain, true); not == "" {
		m.carryOut(c, plan)
		for g, s := range m.slots {
			c.Allocate(s, min(plan.CPU[g], c.RequestCPU[s]), c.Memory[s])
		}
		m.ended = append(m.ended, in.Now)
	}
}

// room makes room for the first application that waits, if that takes moves.
func (m *moving) room(c *replay.Cluster) {
	app := c.FirstWaiting()
	period := m.settings.WithDefaults().Period.Duration().Seconds()
	if app < 0 || app == m.stuck && (c.Freed == m.freed || c.Now-m.tried < period) || c.Fit(app) != nil {
		return
	}
	m.tried, m.stuck, m.freed = c.Now, app, c.Freed
	var freeCPU, freeMemory, cpu, memory float64
	for h := range c.Hosts {
		freeCPU += c.FreeCPU(int32(h))
		freeMemory += c.FreeMemory(int32(h))
	}
	for _, g := range c.Workload.Of(int(app)) {
		if !g.Elastic {
			cpu += float64(g.Count) * g.CPU
			memory += float64(g.Count) * g.Memory
		}
	}
	if cpu > freeCPU*(1+1e-9) || memory > freeMemory*(1+1e-9) {
		return // no moves make more than there is
	}
	pl, err := migration.New(m.problem(c, func(s int32) float64 { return c.CPU[s] }, 1, app))
	if err != nil {
		m.fail(c, err)
		return
	}
	if plan := pl.Plan(float64(m.settings.Budget())); plan.Feasible && plan.Moves > 0 {
		m.carryOut(c, plan)
	}
}

// problem is the cluster with a group for each VM, and with an application that waits (-1: none). lowest is the yield that each VM must
// have.
func (m *moving) problem(c *replay.Cluster, need func(slot int32) float64, lowest float64, app int32) migration.Problem {
	p := migration.Problem{Steps: planEffort}
	for h, host := range c.Hosts {
		const rounding = 1 + 1e-9
		p.Hosts = append(p.Hosts, migration.Host{Name: fmt.Sprint(h), CPU: host.CPU * rounding, Memory: host.Memory * rounding})
	}
	minResidency := m.settings.WithDefaults().MinResidency.Duration().Seconds()
	m.slots = m.slots[:0]
	for s, a := range c.App {
		if a < 0 {
			continue
		}
		slot := int32(s)
		g := migration.Group{Cluster: fmt.Sprint("a", a), Name: fmt.Sprint(s), Count: 1, CPU: need(slot), Memory: c.Memory[s], MinYield: lowest,
			Hosts: []int{int(c.On[s])}, Bytes: []float64{min(c.Memory[s], max(c.UsedMemory[s], 1))}}
		if c.Measured[s] == 0 {
			g.Bytes[0] = c.Memory[s]
		}
		if v, ok := m.moved[slot]; ok && v.born == c.Born[s] && c.Now-v.at < minResidency {
			g.Pinned = []int{0}
		}
		if p.Caps = append(p.Caps, min(c.CPU[s], g.CPU)); lowest > 0 {
			p.Caps[len(p.Caps)-1] = g.CPU
		}
		p.Groups = append(p.Groups, g)
		m.slots = append(m.slots, slot)
	}
	if app >= 0 {
		for i, g := range c.Workload.Of(int(app)) {
			if !g.Elastic {
				p.Groups = append(p.Groups, migration.Group{Cluster: "waits", Name: fmt.Sprint("w", i), Count: int(g.Count), CPU: g.CPU, Memory: g.Memory, MinYield: 1})
				p.Caps = append(p.Caps, g.CPU)
			}
		}
	}
	return p
}

func (m *moving) carryOut(c *replay.Cluster, plan migration.Plan) {
	for _, step := range plan.Steps {
		if step.Kind != migration.Move || step.Group >= len(m.slots) {
			continue
		}
		s := m.slots[step.Group]
		c.Move(s, int32(step.To))
		m.moved[s] = movedVM{c.Born[s], c.Now}
	}
}

func (m *moving) fail(c *replay.Cluster, err error) {
	if m.err == nil {
		m.err = fmt.Errorf("plan moves after %s: %w", time.Duration(c.Now*float64(time.Second)).Round(time.Second), err)
	}
}
