package allocator

import "math/rand/v2"

// roundingEpsilon is the probability that RRNZ gives to hosts which the relaxed
// solution does not use (sec. 3.2).
const roundingEpsilon = 0.01

// RRND places every VM at random on one of the hosts among which a solution of
// the relaxed program (relax) splits it, with the parts as probabilities; a host
// without the memory is struck out (sec. 3.2, RRND). All VMs are placed again,
// cordoned hosts take none, and the CPU is divided as Allocate does. Equal seeds
// give equal answers. ok is false if a VM finds no host, which proves nothing,
// if the relaxed program has no solution that relax finds, or if p is malformed.
func RRND(p Problem, seed uint64) (s Solution, ok bool) { return roundRandomly(p, seed, 0) }

// RRNZ is RRND with a probability of 0.01 instead of zero for the hosts that the
// relaxed solution does not use (sec. 3.2, RRNZ).
func RRNZ(p Problem, seed uint64) (s Solution, ok bool) {
	return roundRandomly(p, seed, roundingEpsilon)
}

func roundRandomly(p Problem, seed uint64, epsilon float64) (Solution, bool) {
	if p.Validate() != nil {
		return Solution{}, false
	}
	vms := vmsOf(&p)
	_, parts, ok := relax(&p, vms)
	if !ok {
		return Solution{}, false
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	f := newFilling(&p)
	weight := make([]float64, len(p.Hosts))
	at := make([]int, len(vms))
	for k, v := range vms {
		for j := range weight {
			weight[j] = epsilon
		}
		for _, e := range parts[k] {
			weight[e.host] = e.weight
		}
		memory := p.Groups[v.group].Memory
		for at[k] = -1; at[k] < 0; {
			j := drawHost(rng, weight)
			if j < 0 {
				return Solution{}, false
			}
			if memory > f.freeMemory[j] {
				weight[j] = 0
				continue
			}
			f.put(v.group, j)
			at[k] = j
		}
	}
	return placedSolution(&p, vms, at), true
}

// drawHost draws an index with the weights as relative probabilities, -1 if
// all are zero.
func drawHost(rng *rand.Rand, weight []float64) int {
	sum := 0.0
	for _, w := range weight {
		sum += w
	}
	if sum <= 0 {
		return -1
	}
	x, last := rng.Float64()*sum, -1
	for j, w := range weight {
		if w > 0 {
			last = j
			if x -= w; x < 0 {
				return j
			}
		}
	}
	return last // the sum was rounded up
}
