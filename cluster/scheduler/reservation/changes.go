package reservation

import (
	"fmt"
	"math"
)

// ChangeKind is what of a request is changed.
type ChangeKind string

// The changes that are tried.
const (
	LaterDue      ChangeKind = "due"      // Value: the new Due, steps
	LowerMinYield ChangeKind = "minYield" // Value: the new MinYield
	SmallerDemand ChangeKind = "demand"   // Value: the part of each stage that fits
)

// Change is the least change of one kind that was tried and fits.
type Change struct {
	Kind  ChangeKind
	Value float64
	Text  string
}

// triesOfChange bounds the work for one kind: the answer is the least within 1/2^tries of the range.
const triesOfChange = 6

// changes tries what would let a refused request in.
func (a *Agenda) changes(r Request) (out []Change) {
	fits := func(r Request) bool {
		f, refusal, err := a.find(r)
		return err == nil && refusal == nil && f != nil
	}
	period := r.period(a.cluster.Steps)
	due := func(x float64) Request {
		c := r
		c.Due += int(math.Ceil(x * float64(period-(r.Due-r.Earliest))))
		return c
	}
	if period > r.Due-r.Earliest {
		if x, ok := smallest(func(x float64) bool { return fits(due(x)) }); ok {
			v := due(x).Due
			out = append(out, Change{LaterDue, float64(v), fmt.Sprintf("due %d steps later", v-r.Due)})
		}
	}
	if r.Elastic == nil {
		now := r.MinYield
		if now == 0 {
			now = 1
		}
		lower := func(x float64) Request {
			c := r
			c.MinYield = now * (1 - 0.9*x)
			return c
		}
		if x, ok := smallest(func(x float64) bool { return fits(lower(x)) }); ok {
			v := lower(x).MinYield
			out = append(out, Change{LowerMinYield, v, fmt.Sprintf("minYield %.2f", v)})
		}
	}
	smaller := func(x float64) Request { return r.scaled(1 - 0.95*x) }
	if x, ok := smallest(func(x float64) bool { return fits(smaller(x)) }); ok {
		out = append(out, Change{SmallerDemand, 1 - 0.95*x, fmt.Sprintf("%.0f%% of the demand", 100*(1-0.95*x))})
	}
	return out
}

// smallest is the smallest x in (0, 1] for which ok holds, by bisection; false if it does not for 1.
func smallest(ok func(x float64) bool) (float64, bool) {
	if !ok(1) {
		return 0, false
	}
	low, high := 0.0, 1.0
	for range triesOfChange {
		if mid := (low + high) / 2; ok(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	return high, true
}

// scaled is the request with a part of its demand: fewer VMs if it is elastic, else VMs that need less.
func (r Request) scaled(part float64) Request {
	stages := make([]Stage, len(r.Stages))
	for k, s := range r.Stages {
		stages[k] = Stage{s.VMs, s.Cores * part, s.Memory * part}
		if r.Elastic != nil {
			stages[k].VMs = int(math.Ceil(float64(s.VMs) * part))
		}
	}
	r.Stages = stages
	return r
}
