package workload

import (
	"fmt"
	"math"
	"math/rand/v2"

	"evenkeel/sim/trace"
)

// Lives are drawn for VMs whose lives the record does not have: log-normal, fitted to the published ones of Azure's VMs (Cortez et al. 2017, sec. 3:
// most end within an hour, those that outlast a day take nearly all core-hours).
const (
	drawnLifeMedian = 1800.0 // seconds
	drawnLifeSigma  = 2.3
	maxDrawnLife    = 30 * 86400.0
)

// Requested makes a workload of VMs or pods that were asked for. Each is an application of one component, from when it was submitted for as long as it ran.
// Its use is drawn from u. One that still ran when the record ended outlasts what is played. Those that were never placed, and so have no life, are left out;
// where the record has no lives at all, they are drawn. GPUs are not played. More load than the record has is not made up: the cluster is emptier.
//
// With a load or a number, as many are drawn from the record as that takes; arrivals stay as they were.
func Requested(requests []trace.Request, u *Uses, c Cut) (*Workload, float64, []string, error) {
	if err := c.check(); err != nil {
		return nil, 0, nil, err
	}
	if err := u.check(); err != nil {
		return nil, 0, nil, err
	}
	rng := rand.New(rand.NewPCG(c.Seed, 0x72657175))
	reported, record := false, 0.0
	for _, r := range requests {
		reported = reported || !math.IsNaN(r.Run)
		record = max(record, r.Submit)
	}
	span := c.Span
	if span == 0 {
		span = min(week, record-c.From+60)
	}
	if !(span > 0) {
		return nil, 0, nil, fmt.Errorf("workload: the record is %g days long, nothing is left after %g days", record/86400, c.From/86400)
	}
	var asks []ask
	never, gpus := 0, 0
	for i, r := range requests {
		if r.Submit < c.From || r.Submit >= c.From+span {
			continue
		}
		a := ask{arrival: r.Submit - c.From, life: r.Run, stays: r.Censored && r.Submit-c.From+r.Run >= span, count: 1, cpu: r.CPU, memory: r.Memory, source: int32(i), of: i}
		if r.Batch >= 0 {
			a.source = int32(r.Batch)
		}
		switch {
		case math.IsNaN(a.cpu) || math.IsNaN(a.memory):
			never++
			continue
		case !reported:
			a.life = min(maxDrawnLife, max(60, drawnLifeMedian*math.Exp(drawnLifeSigma*rng.NormFloat64())))
		case math.IsNaN(a.life):
			never++
			continue
		}
		a.life = max(1, a.life)
		if r.GPUs > 0 {
			gpus++
		}
		asks = append(asks, a)
	}
	total := len(asks) + never
	asks, notes := fitting(asks, c.Hosts, "VMs")
	if never > 0 {
		notes = append(notes, fmt.Sprintf("%d of %d were never placed, or the record lacks what they asked for, and are left out", never, total))
	}
	if !reported {
		notes = append(notes, fmt.Sprintf("lives are drawn: log-normal, median %g minutes, sigma %g", drawnLifeMedian/60, drawnLifeSigma))
	}
	if gpus > 0 {
		notes = append(notes, fmt.Sprintf("GPUs of %d are not played", gpus))
	}
	n, there := len(asks), load(asks, c.all(), span)
	asks = some(rng, asks, &c, span, nil)
	switch {
	case len(asks) < n:
		notes = append(notes, fmt.Sprintf("%d of the %d of these %.3g days are played, drawn by the seed", len(asks), n, span/86400))
	case c.Load > 0 && there < c.Load*(1-1e-9) || c.Apps > n:
		notes = append(notes, fmt.Sprintf("all %d of these %.3g days are played: they ask for %.3g times what there is, no more", n, span/86400, there))
	}
	for i := range asks {
		u.give(rng, &asks[i])
	}
	w, err := workloadOf(asks, u.Patterns, span)
	return w, span, notes, err
}
