package allocator

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// aligner packs VMs one after the other, each on the host whose free CPU and memory have the mix that is nearest to the
// VM's: of all hosts that take it the one where the angle between the two vectors is least, in shares of what all hosts
// have. What is scarce in sum then runs out on all hosts at once. The dot product as a measure of fit is that of
// Panigrahy et al. 2011, Heuristics for Vector Bin Packing; here the length of the free vector does not count.
type aligner struct {
	p        *Problem
	hosts    []int32   // not cordoned
	cpu, mem []float64 // [vm]: need, as shares of all hosts
	utilized float64   // memory: need over what there is

	freeCPU, freeMem []float64 // [host]
	dirCPU, dirMem   []float64 // [host]: unit vector
	size             []float64 // [vm]
	order            []int32
	on               []int32 // [vm]: host
}

// alignedHosts is how many hosts are compared for a VM; of more, that many at random.
const alignedHosts = 256

// newAligner is nil where the hosts have nothing. group is the group of each VM.
func newAligner(p *Problem, group []int32) *aligner {
	a := &aligner{p: p}
	var cpu, mem float64
	for j := range p.Hosts {
		if h := &p.Hosts[j]; !h.Cordoned {
			cpu += h.CPU
			mem += h.Memory
			a.hosts = append(a.hosts, int32(j))
		}
	}
	if !(cpu > 0 && mem > 0) {
		return nil
	}
	n, h := len(group), len(p.Hosts)
	a.cpu, a.mem, a.size = make([]float64, n), make([]float64, n), make([]float64, n)
	for i, g := range group {
		a.cpu[i], a.mem[i] = p.Groups[g].CPU/cpu, p.Groups[g].Memory/mem
		a.utilized += a.mem[i]
	}
	a.freeCPU, a.freeMem, a.dirCPU, a.dirMem = make([]float64, h), make([]float64, h), make([]float64, h), make([]float64, h)
	a.order, a.on = make([]int32, n), make([]int32, n)
	return a
}

// pack places all VMs so that their yield is at least y, with CPU counting tilt times as much in the angle. The answer
// is good until the next call.
func (a *aligner) pack(y, tilt float64) (on []int32, ok bool) {
	var cpu, mem, need float64
	for _, j := range a.hosts {
		cpu += a.p.Hosts[j].CPU
		mem += a.p.Hosts[j].Memory
	}
	for i := range a.cpu {
		need += y * a.cpu[i]
	}
	// The largest first, by the resource that is scarcer the more.
	for i := range a.order {
		a.order[i] = int32(i)
		a.size[i] = max(y*a.cpu[i]*need, a.mem[i]*a.utilized)
	}
	slices.SortFunc(a.order, func(i, k int32) int { return cmp.Or(cmp.Compare(a.size[k], a.size[i]), cmp.Compare(i, k)) })
	for _, j := range a.hosts {
		a.freeCPU[j], a.freeMem[j] = tilt*a.p.Hosts[j].CPU/cpu, a.p.Hosts[j].Memory/mem
		a.turn(j)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, i := range a.order {
		c, m := tilt*y*a.cpu[i], a.mem[i]
		n := len(a.hosts)
		if n > alignedHosts {
			for k := range alignedHosts {
				o := k + rng.IntN(n-k)
				a.hosts[k], a.hosts[o] = a.hosts[o], a.hosts[k]
			}
			n = alignedHosts
		}
		j := a.nearest(a.hosts[:n], c, m)
		if j < 0 {
			if j = a.nearest(a.hosts[n:], c, m); j < 0 {
				return nil, false
			}
		}
		a.freeCPU[j] -= c
		a.freeMem[j] -= m
		a.turn(j)
		a.on[i] = j
	}
	return a.on, true
}

// turn sets the direction of what host j has free.
func (a *aligner) turn(j int32) {
	c, m := a.freeCPU[j], a.freeMem[j]
	a.dirCPU[j], a.dirMem[j] = 0, 0
	if length := math.Sqrt(c*c + m*m); length > 0 {
		a.dirCPU[j], a.dirMem[j] = c/length, m/length
	}
}

// nearest is the host that takes CPU c and memory m with the least angle, -1 if none takes it.
func (a *aligner) nearest(hosts []int32, c, m float64) int32 {
	best, at := -1.0, int32(-1)
	for _, j := range hosts {
		if c > a.freeCPU[j] || m > a.freeMem[j] {
			continue
		}
		if s := c*a.dirCPU[j] + m*a.dirMem[j]; s > best {
			best, at = s, j
		}
	}
	return at
}

// aligned is the placement of the greatest yield above lowest that an aligner finds, at most highest; nil if none.
func aligned(p *Problem, group []int32, lowest, highest float64, stopped func() bool) []int32 {
	a := newAligner(p, group)
	if a == nil {
		return nil
	}
	var best []int32
	for _, tilt := range alignedTilts {
		from := lowest
		bisect(from, highest, max(searchTolerance, (highest-from)/alignedParts), func(y float64) float64 {
			if stopped() {
				return -1
			}
			on, ok := a.pack(y, tilt)
			if !ok {
				return -1
			}
			best, lowest = append(best[:0], on...), y
			return y
		})
	}
	return best
}

// alignedParts is into how many parts aligned divides the yields.
const alignedParts = 64

// alignedTilts are how much CPU counts beside memory in the angle.
var alignedTilts = [...]float64{1, 0.25, 4}
