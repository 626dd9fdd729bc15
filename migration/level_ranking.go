package migration

import "slices"

// ranking is the hosts by level, lowest first; of equal ones that with the greatest number first.
type ranking struct {
	hosts []ranked
	level []float64 // [host]: by which it is ranked
}

type ranked struct {
	level float64
	host  int
}

func (a ranked) compare(b ranked) int {
	return ascending(a.level, b.level, b.host-a.host)
}

func (r *ranking) sort(h *shedding) {
	r.hosts, r.level = r.hosts[:0], r.level[:0]
	for j, need := range h.need {
		l := need / h.cpu[j]
		r.hosts, r.level = append(r.hosts, ranked{l, j}), append(r.level, l)
	}
	slices.SortFunc(r.hosts, ranked.compare)
}

// top is the greatest level, and its host.
func (r *ranking) top() (level float64, host int) {
	last := r.hosts[len(r.hosts)-1]
	return last.level, last.host
}

// update moves a host to the place that its level has now.
func (r *ranking) update(h *shedding, j int) {
	was, now := ranked{r.level[j], j}, ranked{h.need[j] / h.cpu[j], j}
	r.level[j] = now.level
	from, _ := slices.BinarySearchFunc(r.hosts, was, ranked.compare)
	to, _ := slices.BinarySearchFunc(r.hosts, now, ranked.compare)
	if from < to {
		to--
		copy(r.hosts[from:to], r.hosts[from+1:to+1])
	} else {
		copy(r.hosts[to+1:from+1], r.hosts[to:from])
	}
	r.hosts[to] = now
}
