package main

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"evenkeel/allocator/rightsizing"
	"evenkeel/cluster/scheduler/reservation"
	"evenkeel/forecast"
	"evenkeel/sim/baseline"
	"evenkeel/sim/fitted"
	"evenkeel/sim/flex"
	"evenkeel/sim/replay"
	"evenkeel/sim/workload"
)

// policyHelp is what --policy takes.
const policyHelp = `Policies, as NAME, and where a forecast is made NAME:FORECAST or NAME:FORECAST:K1:K2
  reservation   what was asked for is allocated as long as it is there; first come, first served
  leastfit      the same on the host with the smallest share asked for; what does not fit waits aside, and delays no other
  oversub       leastfit up to twice of what there is (oversub:1.5: so many times)
  flexf, flexl  Flex (2020): by measured load times a penalty that follows quality of service, the first or the largest in memory first; the least
                penalty is 1.01 (flexf:1: so much). flex: both
  ha            Ha et al. 2016: by what hosts estimate to be available, damping factor 0.125, up to 0.9 of a host (ha:0.2:0.8: other ones)
  fcfs, easy    batch scheduling: hosts of one's own, first come, first served, or with backfilling. Run times are known exactly
  morpheus      Jyothi et al. 2016: periodic jobs have slots on hosts in an agenda, by what their past runs used, missed with a chance of 0.1 (morpheus:0.05:
                so much); all else gets what that leaves over the time that applications live; what does not fit waits aside
  optimistic    what will be used is allocated, whether or not there is so much; what finds no memory left fails
  pessimistic   the same, but what is stopped is decided before (Pace et al. 2018, Algorithm 1). pace: both
  pessimistic-hard  the same, and memory above the allocation ends a component also where its host has some left
  evenkeel      as production shapes: mixture, quantile for a buffer, CPU compressible, pressure answered before the kernel does
  declared, conservative, balanced, aggressive
                as the daemons run a cluster of that setting: needs as declared, or estimated with that aggressiveness; VMs are moved where that brings enough, within a
                budget of bytes; where a forecast is not trusted use counts; hosts keep room for what their VMs used together; only memory in use evicts
Where a host has no memory left the kernel ends components, under every policy.
Forecasts (of the use until the next tick)
  oracle        the truth: a bound on what forecasts can be worth
  persist       the latest value; fast, says nothing of how sure it is, so that K2 does nothing
  last          the latest value, with the errors it made
  arima10, gp10 trained on the ten past values, as in the paper
  arima, gp     the same, trained on 200 and 120 values, from 40 on
  mixture       as in production
K1 is the share of the request that is added to a forecast, K2 how many standard deviations (of evenkeel: how many times the distance from the
mean to the quantile of 97.5%).
What a policy cannot play is refused before anything runs: leastfit, oversub, flex, ha and morpheus start no elastic components (--rigid); fcfs and easy
want what ends by itself, not VMs that are there all along; ha wants equal hosts, and nothing larger than what it may give of one.`

// namedPolicies takes names that stand for several apart.
func namedPolicies(specs []string) (all []string) {
	for _, s := range specs {
		switch s = strings.TrimSpace(s); s {
		case "flex":
			all = append(all, "flexf", "flexl")
		case "pace":
			all = append(all, "optimistic", "pessimistic")
		default:
			all = append(all, s)
		}
	}
	return all
}

// baseOf is the name of a policy without its settings.
func baseOf(spec string) string {
	name, _, _ := strings.Cut(spec, ":")
	return name
}

// Ha's settings where none are given: its damping factor, and what may be given of a host.
const (
	haDamping = 0.125
	haAllowed = 0.9
)

// policyOn makes the policy of a specification for hosts; without hosts it only says whether there is such a policy.
func policyOn(spec string, hosts []replay.Host) (replay.Policy, error) {
	part := strings.Split(spec, ":")
	var p *replay.Placer
	var err error
	switch part[0] {
	case "fcfs", "easy":
		if len(part) > 1 {
			return nil, fmt.Errorf("policy %q has no settings", spec)
		}
		return &replay.WholeHosts{Backfill: part[0] == "easy"}, nil
	case "morpheus":
		v, err := settings(spec, 0.1)
		if err == nil && v[0] >= 1 {
			err = errors.New("a chance is below 1")
		}
		if err != nil {
			return nil, fmt.Errorf("policy %q: %w", spec, err)
		}
		return &replay.Morpheus{Label: spec, Miss: v[0], Options: reservation.DefaultOptions(), Extra: reservation.DefaultReprovisioning()}, nil
	case "leastfit":
		if len(part) > 1 {
			return nil, fmt.Errorf("policy %q has no settings", spec)
		}
		p = replay.LeastFit()
	case "oversub":
		var v []float64
		if v, err = settings(spec, 2); err == nil {
			p, err = replay.OverSub(v[0])
		}
	case "flexf", "flexl":
		penalty := forecast.QualityPenalty
		var v []float64
		if v, err = settings(spec, penalty.Min); err == nil {
			penalty.Min = v[0]
			order := flex.FirstCome
			if part[0] == "flexl" {
				order = flex.LargestMemory
			}
			p, err = replay.FlexPolicy(order, penalty, 1)
		}
	case "ha":
		host := replay.Host{CPU: 1, Memory: 1}
		if len(hosts) > 0 {
			host = hosts[0]
		}
		var v []float64
		if v, err = settings(spec, haDamping, haAllowed); err == nil {
			if v[1] > 1 {
				return nil, fmt.Errorf("policy %q: no more than all of a host may be given", spec)
			}
			p, err = replay.Ha(v[1]*host.CPU, v[1]*host.Memory, v[0])
		}
	default:
		return policyNamed(spec)
	}
	if err != nil {
		return nil, fmt.Errorf("policy %q: %w", spec, err)
	}
	return p.Killing().Named(spec), nil
}

// settings are the numbers after the name, and those that stand in where there are fewer.
func settings(spec string, otherwise ...float64) ([]float64, error) {
	part := strings.Split(spec, ":")[1:]
	if len(part) > len(otherwise) {
		return nil, fmt.Errorf("%d settings, there are at most %d", len(part), len(otherwise))
	}
	for i, text := range part {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !(v > 0 && v <= 1e6) {
			return nil, fmt.Errorf("%q is no number above 0", text)
		}
		otherwise[i] = v
	}
	return otherwise, nil
}

// playsPace says why a policy cannot play pace's workload.
func playsPace(spec string, p workload.Pace) error {
	switch name := baseOf(spec); name {
	case "leastfit", "oversub", "flexf", "flexl", "ha", "morpheus":
		if p.Elastic > 0 {
			return fmt.Errorf("policy %s starts no elastic components: --rigid draws applications without, or leave it out", spec)
		}
	}
	if baseOf(spec) == "ha" {
		return haPlays(spec, workload.Group{Count: 1, CPU: min(6, p.CPU), Memory: min(48e9, p.Memory)}, []replay.Host{{CPU: p.CPU, Memory: p.Memory}})
	}
	return nil
}

// playable says why a policy cannot play a workload.
func (p *playing) playable(spec string) error {
	switch baseOf(spec) {
	case "fcfs", "easy":
		if p.endless {
			return fmt.Errorf("policy %s gives hosts to what ends by itself, at a time that it knows, and these VMs are there all along: leave it out, or let them come and go (--arrivals poisson)", spec)
		}
	case "ha":
		for _, g := range p.w.Groups {
			if err := haPlays(spec, g, p.hosts); err != nil {
				return err
			}
		}
	}
	return nil
}

// haPlays says whether Ha can ever start a group of components. One that it cannot start would block the queue behind it.
func haPlays(spec string, g workload.Group, hosts []replay.Host) error {
	v, err := settings(spec, haDamping, haAllowed)
	if err != nil {
		return err
	}
	for _, h := range hosts {
		if h != hosts[0] {
			return fmt.Errorf("policy %s allows the same of every host, and these are not equal", spec)
		}
	}
	cpu, memory := v[1]*hosts[0].CPU, v[1]*hosts[0].Memory
	each := float64(g.Count)
	if g.CPU > 0 {
		each = min(each, math.Floor(cpu/g.CPU*(1+1e-9)))
	}
	if g.Memory > 0 {
		each = min(each, math.Floor(memory/g.Memory*(1+1e-9)))
	}
	if each*float64(len(hosts)) < float64(g.Count) {
		return fmt.Errorf("policy %s gives at most %.4g cores and %.4g GB of each of %d hosts: an application of %d components of %.4g cores and %.4g GB would never start and hold up all others. ha:%g:1 gives all of a host",
			spec, cpu, memory/1e9, len(hosts), g.Count, g.CPU, g.Memory/1e9, v[0])
	}
	return nil
}

// policyNamed makes the policy of a specification: "pessimistic:gp:0.05:3".
func policyNamed(spec string) (replay.Policy, error) {
	part := strings.Split(spec, ":")
	if len(part) == 3 || len(part) > 4 {
		return nil, fmt.Errorf("policy %q: must be NAME, NAME:FORECAST or NAME:FORECAST:K1:K2", spec)
	}
	name := part[0]
	if name == "reservation" && len(part) == 1 {
		return &replay.Reservation{}, nil
	}
	p := &replay.Rightsizing{Label: spec, Yield: 1, Trust: 3, How: replay.Enforcement{Capped: true}, Buffer: forecast.Buffer{K1: 0.05, K2: 3}}
	foresight := "oracle"
	switch name {
	case "optimistic":
		p.Options.Policy = rightsizing.Optimistic
	case "pessimistic":
	case "pessimistic-hard":
		p.How.Hard = true
	case "evenkeel":
		ownSettings(p)
		foresight = "mixture"
	default:
		return nil, fmt.Errorf("policy %q: there is no %q", spec, name)
	}
	if len(part) > 1 {
		foresight = part[1]
	}
	if err := foresee(p, foresight); err != nil {
		return nil, fmt.Errorf("policy %q: %w", spec, err)
	}
	if foresight == "oracle" && len(part) < 4 {
		p.Buffer.K1, p.Buffer.K2 = 0, 0
	}
	if len(part) == 4 {
		for i, k := range []*float64{&p.Buffer.K1, &p.Buffer.K2} {
			v, err := strconv.ParseFloat(part[2+i], 64)
			if err != nil || !(v >= 0 && v <= 1e6) {
				return nil, fmt.Errorf("policy %q: K%d is %q, no number from 0 on", spec, i+1, part[2+i])
			}
			*k = v
		}
	}
	return p, nil
}

// sideBySide does all parts, each in a goroutine of its own.
func sideBySide(parts int, do func(part int)) {
	if parts == 1 {
		do(0)
		return
	}
	var all sync.WaitGroup
	for part := range parts {
		all.Go(func() { do(part) })
	}
	all.Wait()
}

// ownSettings sets how Evenkeel itself rightsizes.
func ownSettings(p *replay.Rightsizing) {
	p.Buffer = forecast.Buffer{K1: 0.02, K2: 1, Spread: forecast.Quantile, Level: 0.975}
	p.Yield = 0.5
	p.How.Capped = false
	p.EmergencyEviction = true
	p.Options.Rest = 600
}

// foresee sets the forecast of that name.
func foresee(p *replay.Rightsizing, name string) error {
	models := func(f func() func(phase int) forecast.Model) replay.Foresight {
		return &replay.Models{Kind: name, New: f, Parts: runtime.GOMAXPROCS(0), Beside: sideBySide}
	}
	model := func(f func(phase int, w *fitted.Workspace) forecast.Model) replay.Foresight {
		return models(func() func(phase int) forecast.Model {
			w := fitted.NewWorkspace()
			return func(phase int) forecast.Model { return f(phase, w) }
		})
	}
	minResidency := int64(600) // Pace, sec. V: 10 minutes
	switch name {
	case "oracle":
		p.Foresight, minResidency = &replay.Oracle{}, 0
	case "persist":
		p.Foresight = &replay.Persist{}
	case "last":
		p.Foresight = model(func(int, *fitted.Workspace) forecast.Model { return baseline.NewLast() })
	case "arima":
		p.Foresight = model(func(phase int, w *fitted.Workspace) forecast.Model { return fitted.NewARIMA(phase, w) })
	case "gp":
		p.Foresight = model(func(phase int, w *fitted.Workspace) forecast.Model { return fitted.NewGP(phase, w) })
	case "arima10":
		p.Foresight = models(replay.FewARIMA)
	case "gp10":
		p.Foresight = models(replay.FewGP)
	case "mixture":
		p.Foresight = &replay.Series{Steps: 1}
	default:
		return fmt.Errorf("there is no forecast %q", name)
	}
	p.Options.MinAge = minResidency
	return nil
}
