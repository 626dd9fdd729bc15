package periodic

import (
	"math"
	"slices"
)

const (
	alikeWithin = 2.0  // factor by which the spreads of two jobs may differ that count as equally steady
	minSpread   = 0.01 // the least spread: steadier jobs count as equally steady
	eachGives   = 60   // runs that each peer gives, so that jobs count the same; one of fewer runs gives some several times
)

// Peer is how the later runs of a job compared with what its earlier ones typically did: what a model of the earlier ones would have met.
type Peer struct {
	spread       float64   // of the earlier runs' work: MAD over median
	work, length []float64 // of the later runs, over the median of the earlier ones
}

// NewPeer compares the later half of a job's runs, in order of time, with the earlier one. There is none of too few runs, or of runs that do nothing.
func NewPeer(runs [][]float64) (l Peer, ok bool) { return PeerOfSizes(sizes(runs)) }

// PeerOfSizes does the same with the work and the length of each run, in any unit.
func PeerOfSizes(work, length []float64) (l Peer, ok bool) {
	if len(work) < MinRuns {
		return l, false
	}
	half := len(work) / 2
	typical, steps := median(slices.Clone(work[:half])), median(slices.Clone(length[:half]))
	if !(typical > 0) {
		return l, false
	}
	l.spread = max(minSpread, deviation(work[:half])/typical)
	for k := half; k < len(work); k++ {
		l.work, l.length = append(l.work, work[k]/typical), append(l.length, length[k]/steps)
	}
	return l, true
}

// sizes are the work and the steps of runs.
func sizes(runs [][]float64) (work, length []float64) {
	for _, r := range runs {
		sum := 0.0
		for _, v := range r {
			sum += v
		}
		work, length = append(work, sum), append(length, float64(len(r)))
	}
	return work, length
}

// unseenRun returns a run that is to be learned from beside a job's own ones, where these are too few for a chance: n runs say nothing
// about less than 1/(n+1). It is the job's typical run, made so long and so heavy that only the share chance of the later runs of its
// peers is longer, or heavier. Peers are the jobs about as steady as this one (alikeWithin, or less alike where these have too few
// runs). steps bound the run: no reservation serves a run that is longer than its window. It assumes that jobs of equal spread have
// equal tails, which is true as a mean over jobs if at all. nil: the job's own runs are enough, or those of all peers too few.
func unseenRun(runs [][]float64, peers []Peer, chance float64, steps int) []float64 {
	if len(runs) == 0 || !(chance > 0) || Supports(len(runs), chance) {
		return nil
	}
	work, _ := sizes(runs)
	middle := slices.Sorted(slices.Values(work))[(len(work)-1)/2]
	if !(middle > 0) {
		return nil
	}
	typical := runs[slices.Index(work, middle)]
	var heavier, longer []float64
	spread := max(minSpread, deviation(work)/middle)
	for within, seen := alikeWithin, 0; ; within *= alikeWithin {
		heavier, longer, seen = nil, nil, 0
		all := true
		for i := range peers {
			l := &peers[i]
			if l.spread > within*spread || l.spread*within < spread {
				all = false
				continue
			}
			seen += len(l.work)
			for k := range eachGives {
				at := k * len(l.work) / eachGives
				heavier, longer = append(heavier, l.work[at]), append(longer, l.length[at])
			}
		}
		if float64(seen)*chance >= 1 {
			break
		}
		if all {
			return nil
		}
	}
	return enlarged(typical, max(1, percentile(longer, 1-chance)), max(1, percentile(heavier, 1-chance)), steps)
}

// ToServe returns the runs that a reservation has to serve, so that the next run has more work than any of them with the chance. They are a
// job's own runs without the heaviest that the chance leaves out (conformal by their work: the rank ceil((n+1)(1-chance)) is kept). Where
// these are too few, they are all of them and an unseen one. promised is the chance that follows, never below 1/(n+1): the unseen run adds
// nothing to it.
func ToServe(runs [][]float64, peers []Peer, chance float64, steps int) (serve [][]float64, promised float64) {
	n := len(runs)
	rank := int(math.Ceil(float64(n+1)*(1-chance) - 1e-9))
	if rank > n || rank < 1 {
		if unseen := unseenRun(runs, peers, chance, steps); unseen != nil {
			return append(slices.Clone(runs), unseen), MinChance(n)
		}
		return runs, MinChance(n)
	}
	work, _ := sizes(runs)
	heaviest := slices.Sorted(slices.Values(work))[rank-1]
	for i, r := range runs {
		if work[i] <= heaviest {
			serve = append(serve, r)
		}
	}
	return serve, 1 - float64(rank)/float64(n+1)
}

// enlarged is a run that takes longer times as long and does heavier times the work, as far as it lies within so many steps.
func enlarged(run []float64, longer, heavier float64, steps int) (out []float64) {
	for k := range min(steps, int(math.Ceil(longer*float64(len(run))-1e-9))) {
		from, to := float64(k)/longer, float64(k+1)/longer
		sum := 0.0
		for x := int(from); x < len(run) && float64(x) < to; x++ {
			sum += run[x] * (min(to, float64(x+1)) - max(from, float64(x)))
		}
		out = append(out, heavier*sum)
	}
	return out
}
