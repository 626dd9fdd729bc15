package morpheus

import (
	"math"
	"math/rand/v2"
)

// adHocShare of the cluster that jobs which are not periodic ask for at most (fig. 12).
const adHocShare = 0.75

// adHoc is work without a deadline, by the table of the Hadoop trace: as soon as one job ends the next comes, and all that are there ask for no more than
// adHocShare of the cluster.
type adHoc struct {
	rng     *rand.Rand
	limit   float64
	next    adHocJob
	running []adHocJob
	used    float64 // container-minutes
	ended   int
}

type adHocJob struct{ containers, left float64 } // left: container-minutes

func newAdHoc(seed uint64, cluster float64) *adHoc {
	a := &adHoc{rng: rand.New(rand.NewPCG(seed, 0x6164686f63)), limit: adHocShare * cluster}
	a.draw()
	return a
}

func (a *adHoc) draw() {
	c := drawClass(a.rng)
	wide := math.Ceil(c.containers * math.Exp(sizeSpread*a.rng.NormFloat64()))
	wide = max(1, min(wide, math.Floor(a.limit)))
	a.next = adHocJob{wide, wide * c.seconds / 60 * math.Exp(sizeSpread*a.rng.NormFloat64())}
}

// demands of the jobs that are there in this minute.
func (a *adHoc) demands() []float64 {
	asked := 0.0
	for _, j := range a.running {
		asked += j.containers
	}
	for a.limit >= 1 && asked+a.next.containers <= a.limit {
		asked += a.next.containers
		a.running = append(a.running, a.next)
		a.draw()
	}
	out := make([]float64, len(a.running))
	for i, j := range a.running {
		out[i] = min(j.containers, j.left)
	}
	return out
}

// pass lets a minute pass in which each job may use so many containers.
func (a *adHoc) pass(given []float64) {
	kept := a.running[:0]
	for i, j := range a.running {
		j.left -= given[i]
		a.used += given[i]
		if j.left > done {
			kept = append(kept, j)
		} else {
			a.ended++
		}
	}
	a.running = kept
}
