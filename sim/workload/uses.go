package workload

import (
	"errors"
	"math"
	"math/rand/v2"
)

// Uses are patterns of what components use of their requests, for components of which only the requests are known.
type Uses struct {
	Patterns []Pattern
	Of       []PairOfUse

	// Life: memory patterns are as long as the life of the component, however long that is. Otherwise both have Step seconds from one value to the next.
	Life bool
	Step float64
}

// PairOfUse are the patterns of one component's CPU and memory.
type PairOfUse struct{ CPU, Memory int32 }

const (
	serviceKinds = 400
	serviceDays  = 3
	serviceStep  = 300
	serviceDay   = 86400 / serviceStep
)

// ServiceUses are drawn for VMs that run for their own sake. Nothing of a VM is copied; means are fitted to what Cortez et al., "Resource Central" (SOSP
// 2017), sec. 3, state of Azure's VMs: 60% of them use less than 20% of their CPU on average. Three quarters stay below 50% at their 95th percentile; theirs, of
// the peaks in five minutes, are 40%: bursts are rarer here.
//
//	CPU      mean over time log-normal, median 0.16, sigma 0.9, cut to 0.01 .. 0.95; 40% of the VMs follow the day, with a peak of 1.3 to 2.5 times
//	         the mean; noise that is forgotten by a fifth each 5 minutes, of 0.3 of the level; 0 to 3 bursts a day to 1.5 to 6 times the level; never above 1
//	memory   level uniform in 0.25 .. 0.85; follows the day by up to a tenth of it; wanders by 2% of it; never above 1
//
// Azure's data do not have memory in use: the figures for memory are a guess.
func ServiceUses(seed uint64) *Uses {
	rng := rand.New(rand.NewPCG(seed, 0x73657276))
	u := &Uses{Step: serviceStep}
	for range serviceKinds {
		peak := rng.Float64() // of the day
		daily := 0.0
		if rng.Float64() < 0.4 {
			daily = 0.3 + 1.2*rng.Float64()
		}
		cpu := make(Pattern, serviceDays*serviceDay)
		level := cut(0.16*math.Exp(0.9*rng.NormFloat64()), 0.01, 0.95)
		noise := 0.0
		wave := func(i int) float64 { return math.Sin(2 * math.Pi * (float64(i)/serviceDay - peak)) }
		for i := range cpu {
			noise = 0.8*noise + 0.3*0.6*rng.NormFloat64() // 0.6: so that its deviation is 0.3
			cpu[i] = float32(cut(level*(1+daily*max(-1/max(1, daily), wave(i)))*(1+noise), 0, 1))
		}
		for range serviceDays * rng.IntN(4) {
			at, long, high := rng.IntN(len(cpu)), 1+rng.IntN(6), 1.5+4.5*rng.Float64()
			for i := at; i < at+long; i++ {
				cpu[i%len(cpu)] = float32(cut(level*high, 0, 1))
			}
		}
		memory := make(Pattern, len(cpu))
		level, noise = 0.25+0.6*rng.Float64(), 0
		swing := 0.1 * rng.Float64()
		for i := range memory {
			noise = 0.98*noise + 0.02*0.2*rng.NormFloat64()
			memory[i] = float32(cut(level*(1+swing*wave(i)+noise), 0, 1))
		}
		u.add(cpu, memory)
	}
	return u
}

// BatchUses are drawn for jobs: BatchPatterns, whose memory lasts as long as the job.
func BatchUses(seed uint64) *Uses {
	rng := rand.New(rand.NewPCG(seed, 0x62617463))
	u := &Uses{Patterns: BatchPatterns(rng, paceKinds, paceLength), Life: true, Step: 300}
	for i := 0; i+1 < len(u.Patterns); i += 2 {
		u.Of = append(u.Of, PairOfUse{int32(i), int32(i + 1)})
	}
	return u
}

// FullUse is all of what was asked for, all the time.
func FullUse() *Uses {
	return &Uses{Patterns: []Pattern{{1}}, Of: []PairOfUse{{0, 0}}, Step: 300}
}

func (u *Uses) add(cpu, memory Pattern) {
	n := int32(len(u.Patterns))
	u.Patterns = append(u.Patterns, cpu, memory)
	u.Of = append(u.Of, PairOfUse{n, n + 1})
}

func (u *Uses) check() error {
	if len(u.Of) == 0 || !(u.Step > 0) {
		return errors.New("workload: no patterns of use")
	}
	return nil
}

// give draws a pair for an application. Of one VM both are taken from the same place; components of a job are up to four values apart.
func (u *Uses) give(rng *rand.Rand, a *ask) {
	pair := u.Of[rng.IntN(len(u.Of))]
	n := len(u.Patterns[pair.CPU])
	place := float32(rng.IntN(n))
	a.cpuUse = Use{Pattern: pair.CPU, Offset: place, Step: float32(u.Step)}
	a.memoryUse = Use{Pattern: pair.Memory, Offset: place, Step: float32(u.Step)}
	if a.count > 1 {
		a.cpuUse.Spread = float32(min(4, n))
	}
	if u.Life {
		length := float64(len(u.Patterns[pair.Memory]))
		a.memoryUse.Offset, a.memoryUse.Step = 0, float32(max(0.001, a.life/length))
		if a.count > 1 {
			a.memoryUse.Spread = float32(0.02 * length)
		}
	}
}
