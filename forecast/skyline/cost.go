package skyline

import (
	"cmp"
	"slices"
)

// growth bounds what a held-back step may have needed: it is charged for over-allocation only above this multiple of its
// use.
const growth = 2

// kink is a value at which the cost of a step bends: its slope rises there by over + under.
type kink struct {
	at          float64
	over, under float64
}

// stepCost is N times the part of the objective that one step has alone: a convex function of what is reserved there.
type stepCost struct {
	kinks []kink  // by at, no two equal
	under float64 // their sum: the slope below all kinks is -under
	over  float64 // their sum: the slope above all kinks
}

// newStepCost takes the use of one step by run. under is the price of a unit that each run falls short of.
func newStepCost(use func(run int) (value float64, censored bool), alpha float64, under []float64) stepCost {
	all := make([]kink, 0, len(under))
	for i, u := range under {
		if v, censored := use(i); censored {
			all = append(all, kink{at: v, under: u}, kink{at: growth * v, over: alpha})
		} else {
			all = append(all, kink{at: v, over: alpha, under: u})
		}
	}
	slices.SortStableFunc(all, func(a, b kink) int { return cmp.Compare(a.at, b.at) })
	c := stepCost{kinks: all[:0]}
	for _, k := range all {
		c.under += k.under
		c.over += k.over
		if n := len(c.kinks); n > 0 && c.kinks[n-1].at == k.at {
			c.kinks[n-1].over += k.over
			c.kinks[n-1].under += k.under
			continue
		}
		c.kinks = append(c.kinks, k)
	}
	return c
}

// minimum is a value at which the cost less price*value is minimal. The price is at least 0 and at most over.
func (c *stepCost) minimum(price float64) float64 {
	slope := -c.under
	for _, k := range c.kinks {
		slope += k.over + k.under
		if slope >= price {
			return k.at
		}
	}
	return c.kinks[len(c.kinks)-1].at
}

// excess is by how much the cost at a, less price*a, is above that at b. It is summed from what lies between the two, so
// that large costs do not cancel.
func (c *stepCost) excess(a, b, price float64) float64 {
	sign := 1.0
	if a < b {
		a, b, sign = b, a, -1
	}
	slope, from, sum := -c.under-price, b, 0.0
	for _, k := range c.kinks {
		if k.at > from {
			to := min(k.at, a)
			sum += slope * (to - from)
			if from = to; from == a {
				return sign * sum
			}
		}
		slope += k.over + k.under
	}
	return sign * (sum + slope*(a-from))
}

// arc is the step's arc in the network: price by flow, from 0 to over. Flows are multiples of 1/scale.
func (c *stepCost) arc(scale float64) (a stepArc) {
	slope, filled := -c.under, int64(0)
	for _, k := range c.kinks {
		slope += k.over + k.under
		if upTo := int64(min(slope, c.over) * scale); upTo > filled {
			a.price = append(a.price, k.at)
			a.capacity = append(a.capacity, upTo-filled)
			filled = upTo
		}
	}
	return a
}
