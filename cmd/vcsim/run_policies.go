package main

import (
	"fmt"
	"strconv"
	"strings"

	"evenkeel/allocator/shape"
	"evenkeel/forecast"
	"evenkeel/replay"
)

// policyHelp is what --policy takes.
const policyHelp = `Policies, as NAME or NAME:FORECAST or NAME:FORECAST:K1:K2
  reservation   what was asked for is allocated as long as it is there
  optimistic    what will be used is allocated, whether or not there is so much; whoever finds no memory left fails
  pessimistic   the same, but who gives way is decided before (Pace et al. 2018, Algorithm 1)
  pessimistic-hard  the same, and memory above the allocation ends a component also where its host has some left
  evenkeel      as production shapes: mixture, quantile for a buffer, CPU compressible, pressure answered before the kernel does
Forecasts (of the use until the next tick)
  oracle        the truth: a bound on what forecasts can be worth
  persist       the latest value; fast, says nothing of how sure it is, so that K2 does nothing
  last          the latest value, with the errors it made
  arima10, gp10 trained on the ten past values, as in the paper
  arima, gp     the same as parts of production: trained on 200 and 120 values, from 40 on
  mixture       as in production
K1 is the share of the request that is added to a forecast, K2 how many standard deviations (of evenkeel: how many times the distance from the
mean to the quantile of 97.5%).`

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
	p := &replay.Shaping{Label: spec, Yield: 1, Trust: 3, How: replay.Enforcement{Capped: true}, Buffer: forecast.Buffer{K1: 0.05, K2: 3}}
	foresight := "oracle"
	switch name {
	case "optimistic":
		p.Options.Policy = shape.Optimistic
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

// ownSettings are how Evenkeel shapes.
func ownSettings(p *replay.Shaping) {
	p.Buffer = forecast.Buffer{K1: 0.02, K2: 1, Spread: forecast.Quantile, Level: 0.975}
	p.Yield = 0.5
	p.How.Capped = false
	p.Relief = true
	p.Options.Rest = 600
}

// foresee sets the forecast of that name.
func foresee(p *replay.Shaping, name string) error {
	model := func(f func(phase int, w *forecast.Workspace) forecast.Model) replay.Foresight {
		w := forecast.NewWorkspace()
		return &replay.Models{Kind: name, New: func(phase int) forecast.Model { return f(phase, w) }}
	}
	grace := int64(600) // Pace, sec. V: 10 minutes
	switch name {
	case "oracle":
		p.Foresight, grace = &replay.Oracle{}, 0
	case "persist":
		p.Foresight = &replay.Persist{}
	case "last":
		p.Foresight = model(func(int, *forecast.Workspace) forecast.Model { return forecast.NewLast() })
	case "arima":
		p.Foresight = model(func(phase int, w *forecast.Workspace) forecast.Model { return forecast.NewARIMA(phase, w) })
	case "gp":
		p.Foresight = model(func(phase int, w *forecast.Workspace) forecast.Model { return forecast.NewGP(phase, w) })
	case "arima10":
		p.Foresight = &replay.Models{Kind: name, New: replay.FewARIMA()}
	case "gp10":
		f, err := replay.FewGP()
		if err != nil {
			return err
		}
		p.Foresight = &replay.Models{Kind: name, New: f}
	case "mixture":
		p.Foresight = &replay.Series{Steps: 1}
	default:
		return fmt.Errorf("there is no forecast %q", name)
	}
	p.Options.Grace = grace
	return nil
}
