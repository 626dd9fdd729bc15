package batch

// greedy finds nodes for a job: one task after another goes where the tasks' needs sum to least, of those nodes that have the
// memory; of equal ones the first. nil: there is no room.
func (s *state) greedy(j *job) []int {
	room := 0
	for n := range s.memory {
		if room += int((1 + slack - s.memory[n]) / j.Memory); room >= j.Tasks {
			break
		}
	}
	if room < j.Tasks {
		return nil
	}
	nodes := make([]int, 0, j.Tasks)
	for len(nodes) < j.Tasks {
		best := -1
		for n := range s.cpu {
			if s.fits(j, n) && (best < 0 || s.cpu[n] < s.cpu[best]-slack) {
				best = n
			}
		}
		if best < 0 {
			break
		}
		nodes = append(nodes, best)
		s.cpu[best] += j.CPU
		s.memory[best] += j.Memory
	}
	for _, n := range nodes {
		s.cpu[n] -= j.CPU
		s.memory[n] -= j.Memory
	}
	if len(nodes) < j.Tasks {
		return nil
	}
	return nodes
}

// startGreedily places a job if there is room.
func (s *state) startGreedily(j *job) bool {
	nodes := s.greedy(j)
	if nodes != nil {
		s.place(j, nodes)
	}
	return nodes != nil
}

// force places a job though others must be lifted for it: from the lowest priority on until it fits; then those are put back where
// they were, from the highest priority on, for which there is room all the same. It is what GreedyP does with a new job. The jobs that
// stay lifted are returned, the highest priority first.
func (s *state) force(j *job) (lifted []*job) {
	was := map[*job][]int{}
	runs := s.byRank(placed)
	for !s.startGreedily(j) {
		if len(runs) == 0 {
			break
		}
		last := runs[len(runs)-1]
		runs = runs[:len(runs)-1]
		was[last] = last.nodes
		s.lift(last)
		lifted = append([]*job{last}, lifted...)
	}
	keep := lifted[:0]
	for _, l := range lifted {
		nodes := was[l]
		s.place(l, nodes)
		for _, n := range nodes {
			if s.memory[n] > 1+slack {
				s.lift(l)
				keep = append(keep, l)
				break
			}
		}
	}
	return keep
}
