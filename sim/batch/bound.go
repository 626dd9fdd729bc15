package batch

import (
	"math"
	"slices"
)

const (
	// boundPrecision is how far the bound may be below what its argument allows, relative.
	boundPrecision = 0.005
	// boundIntervals is how many intervals of time are distinguished; neighbours are joined beyond that, which only lowers the bound.
	boundIntervals = 2500
)

// Bound is a lower bound on the greatest bounded stretch of any schedule of the jobs (arXiv 1106.4985, theorem 1), also of one that
// knows all run times: memory is left aside, and work may go to any node at any instant, only that no job advances faster than
// with yield 1. A stretch S gives every job a deadline; S is out of reach if the work does not fit between submissions and
// deadlines, which is a question of a maximum flow from jobs to intervals of time. The greatest S that is proved out of reach is found by
// bisection.
func Bound(c Cluster, jobs []Job) (float64, error) {
	if err := validate(c, jobs); err != nil {
		return 0, err
	}
	if fluid(c, jobs, 1) {
		return 1, nil
	}
	low, high := 1.0, 2.0
	for !fluid(c, jobs, high) {
		low, high = high, high*2
	}
	for high > low*(1+boundPrecision) {
		if middle := math.Sqrt(low * high); fluid(c, jobs, middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return low, nil
}

// fluid says whether the work fits if no stretch is above a bound. false is a proof.
func fluid(c Cluster, jobs []Job, stretch float64) bool {
	deadline := func(j *Job) float64 { return j.Submit + stretch*max(Threshold, j.Run) }
	var cuts []float64
	for i := range jobs {
		cuts = append(cuts, jobs[i].Submit, deadline(&jobs[i]))
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	if every := (len(cuts) + boundIntervals - 1) / boundIntervals; every > 1 {
		some := cuts[:0:0]
		for i := 0; i < len(cuts); i += every {
			some = append(some, cuts[i])
		}
		if last := cuts[len(cuts)-1]; some[len(some)-1] < last {
			some = append(some, last)
		}
		cuts = some
	}
	intervals := len(cuts) - 1
	f := flow{level: make([]int32, len(jobs)+intervals+2), next: make([]int32, len(jobs)+intervals+2), first: make([]int32, len(jobs)+intervals+2)}
	for i := range f.first {
		f.first[i] = -1
	}
	source, sink := len(jobs)+intervals, len(jobs)+intervals+1
	total := 0.0
	for i := range jobs {
		j := &jobs[i]
		rate := j.CPU * float64(j.Tasks)
		total += rate * j.Run
		f.join(source, i, rate*j.Run)
		begin, end := j.Submit, deadline(j)
		k, _ := slices.BinarySearch(cuts, begin)
		if k > 0 && (k == len(cuts) || cuts[k] > begin) {
			k--
		}
		for ; k < intervals && cuts[k] < end; k++ {
			f.join(i, len(jobs)+k, rate*(min(end, cuts[k+1])-max(begin, cuts[k])))
		}
	}
	for k := range intervals {
		f.join(len(jobs)+k, sink, float64(c.Nodes)*(cuts[k+1]-cuts[k]))
	}
	f.epsilon = total * 1e-12
	return f.maxFlow(source, sink) >= total*(1-1e-6)
}

// flow is a network, for Dinic's algorithm.
type flow struct {
	first, next, level []int32 // of each node: first edge, edge to be tried next, distance from the source
	edges              []flowEdge
	epsilon            float64 // residual capacities below it count as none
}

// flowEdge i and i^1 are opposite.
type flowEdge struct {
	to, after int32 // after: next edge of the same node
	room      float64
}

func (f *flow) join(from, to int, room float64) {
	f.edges = append(f.edges, flowEdge{int32(to), f.first[from], room})
	f.first[from] = int32(len(f.edges) - 1)
	f.edges = append(f.edges, flowEdge{int32(from), f.first[to], 0})
	f.first[to] = int32(len(f.edges) - 1)
}

// maxFlow is the greatest flow.
func (f *flow) maxFlow(source, sink int) float64 {
	sum := 0.0
	queue := make([]int32, 0, len(f.first))
	for {
		for i := range f.level {
			f.level[i] = -1
		}
		f.level[source] = 0
		queue = append(queue[:0], int32(source))
		for i := 0; i < len(queue) && f.level[sink] < 0; i++ {
			for e := f.first[queue[i]]; e >= 0; e = f.edges[e].after {
				if d := &f.edges[e]; d.room > f.epsilon && f.level[d.to] < 0 {
					f.level[d.to] = f.level[queue[i]] + 1
					queue = append(queue, d.to)
				}
			}
		}
		if f.level[sink] < 0 {
			return sum
		}
		copy(f.next, f.first)
		sum += f.push(source, sink, math.Inf(1))
	}
}

// push sends as much as it can from a node on, up to an amount, along edges that lead one level further.
func (f *flow) push(at, sink int, amount float64) float64 {
	if at == sink {
		return amount
	}
	sent := 0.0
	for ; f.next[at] >= 0; f.next[at] = f.edges[f.next[at]].after {
		e := f.next[at]
		d := &f.edges[e]
		if d.room <= f.epsilon || f.level[d.to] != f.level[at]+1 {
			continue
		}
		got := f.push(int(d.to), sink, min(amount-sent, d.room))
		d.room -= got
		f.edges[e^1].room += got
		if sent += got; amount-sent <= f.epsilon {
			return sent
		}
	}
	return sent
}
