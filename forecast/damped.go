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

// Amounts are of every resource, of a host or of a VM.
type Amounts struct {
	// Compressible: a VM that gets less is slower.
	CPU       float64 // cores
	DiskIO    float64 // bytes a second
	NetworkIO float64 // bytes a second

	// Non-compressible: a VM that gets less fails.
	Memory float64 // bytes
	Disk   float64 // bytes
}

const (
	resources    = 5 // in the order of Amounts
	compressible = 3 // of these, the first ones
)

func (a Amounts) list() [resources]float64 {
	return [...]float64{a.CPU, a.DiskIO, a.NetworkIO, a.Memory, a.Disk}
}

func (a Amounts) apply(f func(i int, x float64) float64) Amounts {
	l := a.list()
	for i, x := range l {
		l[i] = f(i, x)
	}
	return Amounts{l[0], l[1], l[2], l[3], l[4]}
}

// Within says whether a fits into room, and if not what would come of it: slower where a compressible resource is short,
// fails where a non-compressible one is (Ha, sec. V). NaN fits.
func (a Amounts) Within(room Amounts) (slower, fails bool) {
	have := room.list()
	for i, x := range a.list() {
		if x > have[i] {
			slower = slower || i < compressible
			fails = fails || i >= compressible
		}
	}
	return slower, fails
}

// DampedLoad is a Damped for every resource of a host, or of a VM: each resource is estimated by itself. The zero value is ready.
type DampedLoad struct{ of [resources]Damped }

// NewDampedLoad has factors of its own for compressible resources, which may be trusted sooner, and others.
func NewDampedLoad(compressibleFactor, otherFactor float64) (l DampedLoad) {
	for i := range l.of {
		if i < compressible {
			l.of[i] = NewDamped(compressibleFactor)
		} else {
			l.of[i] = NewDamped(otherFactor)
		}
	}
	return l
}

// Place is Damped.Place for every resource.
func (l *DampedLoad) Place(request Amounts) {
	for i, x := range request.list() {
		l.of[i].Place(x)
	}
}

// Observe is Damped.Observe for every resource; NaN stands for one that was not measured.
func (l *DampedLoad) Observe(used Amounts) {
	for i, x := range used.list() {
		l.of[i].Observe(x)
	}
}

// Exit is Damped.Exit for every resource; steps are what Steps said when the request was placed.
func (l *DampedLoad) Exit(request Amounts, steps Amounts) {
	at := steps.list()
	for i, x := range request.list() {
		l.of[i].Exit(x, l.of[i].steps-int(at[i]))
	}
}

// Steps is Damped.Steps for every resource.
func (l *DampedLoad) Steps() Amounts {
	return Amounts{}.apply(func(i int, _ float64) float64 { return float64(l.of[i].steps) })
}

// Estimate is Damped.Estimate for every resource.
func (l *DampedLoad) Estimate() Amounts {
	return Amounts{}.apply(func(i int, _ float64) float64 { return l.of[i].estimate })
}

// Available is Damped.Available for every resource.
func (l *DampedLoad) Available(allowance, usedByVMs, capacity Amounts) Amounts {
	used, all := usedByVMs.list(), capacity.list()
	return allowance.apply(func(i int, x float64) float64 { return l.of[i].Available(x, used[i], all[i]) })
}
