package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Pace is the workload of Pace, Milios, Carra and Michiardi, "Dynamic Resource Shaping for Compute Clusters", sec. IV-A, as far as they state
// it. They sampled private distributions, drawn from Google's trace of 2011; what stands here is fitted to the sentences of the paper:
//
//	what                 paper                                             here
//	applications         150,000 batch ones, rigid and elastic             the same; 60% elastic (their testbed's mix, sec. V-A)
//	components           "from a few to tens of thousands"                 Pareto from 3 with exponent 1.05, up to 20,000 (see below)
//	elastic ones         core components are compulsory                    3 core components as in sec. V-A, the rest elastic
//	memory of one        "a few MB to a few dozens of GB"                  log-normal, median 2.6 GB, sigma 1.3, cut to 4 MB .. 48 GB
//	CPU of one           "up to 6 CPU cores"                               log-normal, median 0.5, sigma 0.8, cut to 0.05 .. 6
//	runtime              "a few dozens of seconds to several weeks"        log-normal, sigma 2.4, cut to 30 s .. 3 weeks; the median so that Load holds
//	inter-arrival times  bimodal: "fast-paced bursts, longer intervals"    9 of 10 exponential with a twelfth of the mean, the others with 9.25 means
//	time                 "roughly 3 months"                                Days
//	use                  requests are for the peak; below 40% or 80% of    Patterns: shapes of batch work whose peak is the request,
//	                     it is used in most cases (sec. I)                 mean some 45% of it; memory low at first
//
// No application asks for more than Widest of the cluster: those with many components have small ones. None is more than
// Largest of all that the cluster can do in the time, or one draw would be the whole workload.
//
// The paper does not say either how fast memory use changes. By default all of a shape passes in an application's life, however short that is:
// the hard case for a forecast. With Sampled, short applications live through only the first part of their shape.
//
// Nothing in the paper says how loaded the cluster was. With less asked for than there is no application waits and no policy can be better
// than another; Load is set so that reservation has to queue.
type Pace struct {
	Apps    int
	Hosts   int
	CPU     float64 // of a host, cores
	Memory  float64 // of a host, bytes
	Days    float64 // in which all arrive
	Load    float64 // what is asked for over what there is, of the resource of which more is
	Elastic float64 // share of applications
	Widest  float64 // share of the cluster, at most, that one application asks for
	Largest float64 // share of the cluster's work in all the time, at most, that one application is
	Sampled float64 // seconds from one value of memory use to the next, at least; below 4: 4
}

// TraceSampling is how far apart the samples of use lie in Google's trace of 2011, seconds: with it as Pace.Sampled nothing changes faster than that trace can show.
const TraceSampling = 300.0

// Scaled is the same with so many hosts, applications and days. Few applications are larger, each, or they could not be enough.
func (p Pace) Scaled(hosts, apps int, days float64) Pace {
	p.Hosts, p.Apps, p.Days = hosts, apps, days
	p.Largest = max(p.Largest, 20/float64(max(1, apps)))
	return p
}

// PaceDefault is the size of the paper.
var PaceDefault = Pace{Apps: 150000, Hosts: 250, CPU: 32, Memory: 128e9, Days: 85, Load: 1.3, Elastic: 0.6, Widest: 0.25, Largest: 0.002}

const (
	paceKinds    = 512 // patterns
	paceLength   = 1024
	maxPace      = 20000 // components
	paceCore     = 3
	paceShortest = 30.0
	paceLongest  = 21 * 86400.0
)

// Draw makes the workload; equal seeds make equal ones.
func (p Pace) Draw(rng *rand.Rand) (*Workload, error) {
	if p.Apps < 1 || p.Hosts < 1 || !(p.CPU > 0) || !(p.Memory > 0) || !(p.Days > 0) || !(p.Load > 0) ||
		!(p.Elastic >= 0 && p.Elastic <= 1) || !(p.Widest > 0 && p.Widest <= 1) || !(p.Largest > 0) {
		return nil, fmt.Errorf("workload: %+v makes no sense", p)
	}
	w := &Workload{Patterns: BatchPatterns(rng, paceKinds, paceLength)}
	gap := p.Days * 86400 / float64(p.Apps)
	at := 0.0
	longs := make([]float64, p.Apps)  // log of the runtime over the median
	shares := make([]float64, p.Apps) // of the cluster, of the resource of which more is asked for
	var cpu, memory float64
	for i := range p.Apps {
		if i > 0 {
			mean := gap / 12
			if rng.Float64() < 0.1 {
				mean = gap * 9.25
			}
			at += mean * rng.ExpFloat64()
		}
		w.Apps = append(w.Apps, p.app(rng, w, at))
		longs[i] = 2.4 * rng.NormFloat64()
		var c, m float64
		for _, g := range w.Of(i) {
			c += float64(g.Count) * g.CPU
			m += float64(g.Count) * g.Memory
		}
		shares[i] = max(c/(p.CPU*float64(p.Hosts)), m/(p.Memory*float64(p.Hosts)))
		cpu, memory = cpu+c, memory+m
	}
	p.last(w, longs, shares, cpu/(p.CPU*float64(p.Hosts)) < memory/(p.Memory*float64(p.Hosts)))
	return w, nil
}

// app draws one application, without its work.
func (p Pace) app(rng *rand.Rand, w *Workload, at float64) App {
	n := int(min(3*math.Pow(1-rng.Float64(), -1/1.05), maxPace))
	cpu := cut(0.5*math.Exp(0.8*rng.NormFloat64()), 0.05, min(6, p.CPU))
	memory := cut(2.6e9*math.Exp(1.3*rng.NormFloat64()), 4e6, min(48e9, p.Memory))
	// Rounded, as people do: to 1/20 core, to MB.
	highest := p.Widest * float64(p.Hosts) / float64(n)
	cpu = max(0.01, min(math.Ceil(cpu*20)/20, math.Floor(highest*p.CPU*100)/100))
	memory = max(1e6, min(math.Ceil(memory/1e6)*1e6, math.Floor(highest*p.Memory/1e6)*1e6))
	a := App{Arrival: at, First: int32(len(w.Groups)), Groups: 1, Source: int32(rng.IntN(500))}
	g := Group{Count: int32(n), CPU: cpu, Memory: memory,
		// How fast the use of CPU changes is the application's own: values lie 2 to 30 minutes apart. Components are up to four values apart.
		CPUUse: Use{Pattern: int32(2 * rng.IntN(paceKinds/2)), Offset: float32(rng.IntN(paceLength)), Step: float32(120 * math.Pow(15, rng.Float64())), Spread: 4},
		// Memory follows the life of the application; its components are up to 2% of it apart.
		MemoryUse: Use{Pattern: int32(2*rng.IntN(paceKinds/2) + 1), Step: 1, Spread: 0.02 * paceLength}}
	elastic := rng.Float64() < p.Elastic
	if elastic && n > paceCore {
		core := g
		core.Count = paceCore
		g.Count, g.Elastic = int32(n-paceCore), true
		w.Groups = append(w.Groups, core)
		a.Groups = 2
	}
	w.Groups = append(w.Groups, g)
	return a
}

// last finds the median runtime with which the load holds, and gives every application its work.
func (p Pace) last(w *Workload, longs, shares []float64, memory bool) {
	longest := func(i int) float64 { return min(paceLongest, p.Largest*p.Days*86400/shares[i]) }
	work := func(i int, median float64) float64 {
		return max(paceShortest, min(median*math.Exp(longs[i]), longest(i)))
	}
	area := func(median float64) (load float64) {
		for i := range w.Apps {
			t, c := work(i, median), 0.0
			for _, g := range w.Of(i) {
				if memory {
					c += float64(g.Count) * g.Memory / p.Memory
				} else {
					c += float64(g.Count) * g.CPU / p.CPU
				}
			}
			load += t * c / float64(p.Hosts)
		}
		return load / (p.Days * 86400)
	}
	low, high := 1.0, 1e7
	for range 60 {
		if mid := math.Sqrt(low * high); area(mid) < p.Load {
			low = mid
		} else {
			high = mid
		}
	}
	for i := range w.Apps {
		a := &w.Apps[i]
		a.Work = work(i, low)
		for g := a.First; g < a.First+a.Groups; g++ {
			// The whole of the shape, but neither faster than memory can be filled nor slower than anything changes.
			w.Groups[g].MemoryUse.Step = float32(cut(a.Work/paceLength, max(4, p.Sampled), 900))
		}
	}
}

func cut(x, lowest, highest float64) float64 { return max(lowest, min(highest, x)) }

// BatchPatterns draws shapes of use whose peak is 1, of n values each. Those of even number are CPU: bursts above a quiet level, waves, phases, a wandering
// level. Those of odd number are the memory of a life: in most it begins low and is highest late, so that many components that fit at first do not later.
func BatchPatterns(rng *rand.Rand, kinds, n int) []Pattern {
	out := make([]Pattern, kinds)
	for k := range out {
		p := make(Pattern, n)
		base := 0.15 + 0.3*rng.Float64()
		if k%2 == 0 {
			p.processor(rng, base)
		} else {
			p.memory(rng, 0.7*base)
		}
		p.finish(rng)
		out[k] = p
	}
	return out
}

func (p Pattern) processor(rng *rand.Rand, base float64) {
	switch rng.IntN(4) {
	case 0: // bursts
		for i := range p {
			p[i] = float32(base)
			if rng.Float64() < 0.12 {
				p[i] = float32(base + (1-base)*rng.Float64())
			}
		}
	case 1: // waves
		period := float64(8 + rng.IntN(40))
		for i := range p {
			p[i] = float32(base + (0.75-base)*(0.5+0.5*math.Sin(2*math.Pi*float64(i)/period)))
		}
	case 2:
		p.phases(rng, base, 0.7, 6, 40)
	case 3:
		p.wander(rng, base)
	}
}

func (p Pattern) memory(rng *rand.Rand, base float64) {
	n := len(p)
	switch rng.IntN(5) {
	case 0: // fills up, and stays full
		full := 0.5 + 0.5*rng.Float64()
		for i := range p {
			p[i] = float32(0.5*base + (0.95-0.5*base)*min(1, float64(i)/(full*float64(n))))
		}
	case 1: // stages, each with more than the one before in most
		stages := 3 + rng.IntN(6)
		v := 0.5 * base
		for i := range p {
			if i > 0 && i*stages/n != (i-1)*stages/n {
				v = cut(v+(0.35*rng.Float64()-0.07), 0.05, 1)
			}
			p[i] = float32(v)
		}
	case 2: // fills up and is let go, again and again
		length := n/16 + rng.IntN(n/4)
		for i := range p {
			p[i] = float32(base + (0.9-base)*float64(i%length)/float64(length))
		}
	case 3: // a level, and rarely much more
		for i := 0; i < n; {
			high, length := base+0.05*rng.Float64(), n/25+rng.IntN(n/5)
			if rng.Float64() < 0.25 {
				high, length = 0.6+0.4*rng.Float64(), n/100+rng.IntN(n/40)
			}
			for ; length > 0 && i < n; length-- {
				p[i] = float32(high)
				i++
			}
		}
	case 4:
		p.wander(rng, base)
	}
}

// wander drifts about a level.
func (p Pattern) wander(rng *rand.Rand, base float64) {
	v := base
	for i := range p {
		v = cut(v+0.04*rng.NormFloat64()+0.02*(base+0.1-v), 0.05, 1)
		p[i] = float32(v)
	}
}

// phases of constant use, most of them low.
func (p Pattern) phases(rng *rand.Rand, base, high float64, lowest, more int) {
	for i := 0; i < len(p); {
		v := base
		if rng.Float64() < 0.3 {
			v = base + (high-base)*rng.Float64()
		}
		for length := lowest + rng.IntN(more); length > 0 && i < len(p); length-- {
			p[i] = float32(v)
			i++
		}
	}
}

// finish adds the noise that all use has, and makes the peak 1: what was asked for is what is needed at most.
func (p Pattern) finish(rng *rand.Rand) {
	highest := float32(0)
	for i := range p {
		p[i] = float32(cut(float64(p[i])*(1+0.01*rng.NormFloat64()), 0.01, 1))
		highest = max(highest, p[i])
	}
	for i := range p {
		p[i] /= highest
	}
}
