package forecast

import "math"

// DampingFactor is Ha's a: with it few tasks failed in their evaluation, and larger factors made hosts no faster (Ha, sec. V-C).
const DampingFactor = 0.125

// Damped estimates how much of one resource a host, or a VM, is using, in the resource's own unit: it trusts what
// was asked for at first, and use the more the longer it is seen (Ha, sec. IV, eq. 1-4). The zero value stands for no use, damped
// by DampingFactor.
type Damped struct {
	factor   float64
	estimate float64
	steps    int
}

// NewDamped is an estimate of 0 with a damping factor; one that is not in (0, 1] counts as DampingFactor.
func NewDamped(factor float64) Damped {
	if !(factor > 0 && factor <= 1) {
		factor = DampingFactor
	}
	return Damped{factor: factor}
}

func (d *Damped) damping() float64 {
	if d.factor == 0 {
		return DampingFactor
	}
	return d.factor
}

// Place adds what is asked for where something is placed (eq. 2).
func (d *Damped) Place(request float64) { d.estimate += request }

// Observe takes measured use: (1-a)E + aU (eq. 1), and U where that is more (eq. 3). NaN changes nothing.
func (d *Damped) Observe(used float64) {
	if math.IsNaN(used) {
		return
	}
	a := d.damping()
	d.estimate = max((1-a)*d.estimate+a*used, used)
	d.steps++
}

// Exit takes away what is left of a request after n observations (eq. 4): what use has replaced by then is gone
// with the use itself. The estimate never falls below 0: eq. 3 may have taken the request out of it before.
func (d *Damped) Exit(request float64, n int) {
	d.estimate = max(0, d.estimate-math.Pow(1-d.damping(), float64(max(0, n)))*request)
}

// Estimate is the use that is counted with (E).
func (d *Damped) Estimate() float64 { return d.estimate }

// Steps counts the observations so far. What is placed at one count and exits at another was observed as often as
// they differ: the n of Exit.
func (d *Damped) Steps() int { return d.steps }

// Available is what may still be placed: the lesser of allowance less what the VMs use (eq. 5) and capacity less
// the host's estimate, which holds what is no VM's too (eq. 6). It is below 0 where a host is overloaded.
func (d *Damped) Available(allowance, usedByVMs, capacity float64) float64 {
	return min(allowance-usedByVMs, capacity-d.estimate)
}
