package allocator

// relax solves the relaxed program of sec. 2.5 and 3.1, in which e_ij, the part
// of VM i that is on host j, need not be a whole number:
//
//	sum_j e_ij = 1, a_ij <= e_ij C_j, sum_i a_ij <= C_j, sum_i e_ij m_i <= M_j,
//	sum_j a_ij = Y alpha_i
//
// It returns the yield and for each VM its e_ij > 0.
//
// The solution is built directly, by the rule of the north-west corner, twice:
// the CPU Y alpha_i is dealt out host after host, VM after VM, in the order given,
// and so is what is left of e_ij beyond a_ij / C_j, up to the hosts' memory. Both
// have a forest as their support, so that no other solution has the same zeros
// and the same full hosts: it is a vertex, as a simplex solver would give, with
// less than 2 H split VMs.
//
// With equal hosts of enough memory in sum, and no need above one host, this
// works at Y = min(1, H C / sum alpha_i), the optimum (sec. 3.1). Otherwise Y is
// the greatest yield, to searchTolerance, at which the rule works, which may be
// below the relaxed optimum. ok is false if it does not work at zero either.
func relax(p *Problem, vms []vmRef) (y float64, parts [][]cell, ok bool) {
	r := relaxation{p: p, vms: vms}
	try := func(target float64) float64 {
		found, ok := r.corner(target)
		if !ok {
			return -1
		}
		y, parts = target, found
		return target
	}
	searchYield(Bound(*p), try)
	return y, parts, parts != nil
}

type relaxation struct {
	p   *Problem
	vms []vmRef
}

// corner builds the solution for yield y.
func (r *relaxation) corner(y float64) (parts [][]cell, ok bool) {
	parts = make([][]cell, len(r.vms))
	rest := make([]float64, len(r.vms)) // of e_ij, not dealt out yet
	memory := make([]float64, len(r.p.Hosts))
	for j := range memory {
		memory[j] = r.p.Hosts[j].Memory
	}
	slack := 0.0 // CPU that rounding may leave over
	for j := range r.p.Hosts {
		slack += 1e-12 * r.p.Hosts[j].CPU
	}
	j, free := -1, 0.0
	for k, v := range r.vms {
		rest[k] = 1
		for left := y * r.p.Groups[v.group].CPU; left > slack; {
			if free <= 0 {
				if j++; j == len(r.p.Hosts) {
					return nil, false
				}
				if !r.p.Hosts[j].Cordoned {
					free = r.p.Hosts[j].CPU
				}
				continue
			}
			given := min(left, free)
			left -= given
			free -= given
			e := given / r.p.Hosts[j].CPU
			parts[k] = append(parts[k], cell{j, e})
			rest[k] -= e
			memory[j] -= e * r.p.Groups[v.group].Memory
			if memory[j] < -provedSlack*r.p.Hosts[j].Memory {
				return nil, false
			}
		}
		if rest[k] < -provedSlack {
			return nil, false
		}
	}
	return parts, r.cornerRest(parts, rest, memory)
}

// cornerRest deals out what is left of each VM to the memory that is left.
func (r *relaxation) cornerRest(parts [][]cell, rest, memory []float64) bool {
	j := 0
	for k, v := range r.vms {
		m := r.p.Groups[v.group].Memory
		for rest[k] > provedSlack {
			for j < len(memory) && (r.p.Hosts[j].Cordoned || memory[j] <= provedSlack*r.p.Hosts[j].Memory && m > 0) {
				j++
			}
			if j == len(memory) {
				return false
			}
			e := rest[k]
			if m > 0 {
				e = min(e, memory[j]/m)
			}
			rest[k] -= e
			memory[j] -= e * m
			add(&parts[k], j, e)
		}
	}
	return true
}

// add adds w to the cell of host j.
func add(cells *[]cell, j int, w float64) {
	for i := range *cells {
		if (*cells)[i].host == j {
			(*cells)[i].weight += w
			return
		}
	}
	*cells = append(*cells, cell{j, w})
}
