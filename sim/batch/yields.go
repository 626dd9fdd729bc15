package batch

// fillEvenly gives every job that is placed the greatest yield such that no yield can rise but at the cost of a smaller
// one (OPT=MIN of the paper): all rise together until a node is full, those on it stop, the others go on.
func (s *state) fillEvenly() {
	need, left := make([]float64, s.Nodes), make([]float64, s.Nodes)
	var rising []*job
	for _, j := range s.jobs {
		if placed(j) {
			rising = append(rising, j)
			for _, n := range j.nodes {
				need[n] += j.CPU
			}
		}
	}
	for n := range left {
		left[n] = 1
	}
	full := make([]bool, s.Nodes)
	for len(rising) > 0 {
		level := 1.0
		for n := range need {
			if need[n] > slack {
				level = min(level, left[n]/need[n])
			}
		}
		for n := range need {
			full[n] = level < 1 && need[n] > slack && left[n]/need[n] <= level*(1+1e-12)
		}
		keep := rising[:0]
		for _, j := range rising {
			stops := level == 1
			for _, n := range j.nodes {
				stops = stops || full[n]
			}
			if !stops {
				keep = append(keep, j)
				continue
			}
			j.yield = level
			for _, n := range j.nodes {
				need[n] -= j.CPU
				left[n] -= j.CPU * level
			}
		}
		rising = keep
	}
}
