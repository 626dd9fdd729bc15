package flex

// Share divides one resource of a host among its tasks as weighted fair share does in Flex's three cases (sec. 3). request, demand and
// given have equal lengths; given is overwritten and returned. The sum given is min(capacity, sum of demand), and no task
// is given more than it demands.
//
//  1. All demand fits: each task has its demand.
//  2. It does not, but all requests do: each task has its demand up to its request, and what is left is shared by request among
//     the tasks that want more.
//  3. Neither fits: the capacity is shared by request, up to what is both demanded and requested; what is then left is
//     shared by what is still demanded.
//
// So a task is left short of both its demand and its request only where min(demand, request) summed over the
// tasks exceeds the capacity: see Owed.
func Share(capacity float64, request, demand, given []float64) []float64 {
	var wanted, requested float64
	for j, d := range demand {
		wanted += d
		requested += request[j]
	}
	if wanted <= capacity {
		copy(given, demand)
		return given
	}
	for j := range given {
		given[j] = 0
	}
	left := capacity
	if requested <= capacity {
		for j, d := range demand {
			given[j] = min(d, request[j])
			left -= given[j]
		}
		fill(left, request, demand, given)
		return given
	}
	upTo := make([]float64, len(demand))
	for j, d := range demand {
		upTo[j] = min(d, request[j])
	}
	left = fill(left, request, upTo, given)
	if left > 0 {
		still := make([]float64, len(demand))
		for j, d := range demand {
			still[j] = d - given[j]
		}
		fill(left, still, demand, given)
	}
	return given
}

// Owed is what a task must be given for its quality of service to hold (sec. 5.1): its demand, or its request if
// that is less.
func Owed(request, demand float64) float64 { return min(request, demand) }

// Satisfies says whether a task was given what it is owed.
func Satisfies(request, demand, given float64) bool { return given >= Owed(request, demand)*(1-1e-9) }

// fill distributes what is left in proportion to weights, to no task above its limit; a task at its limit leaves the rest to the
// others. Tasks without a weight are served, evenly, after all others are at their limits. It returns what no task wanted.
func fill(left float64, weight, limit, given []float64) float64 {
	for _, even := range [...]bool{false, true} {
		for left > 0 {
			var sum float64
			for j := range given {
				if limit[j] > given[j] {
					sum += weighed(weight[j], even)
				}
			}
			if sum == 0 {
				break
			}
			full, spent := false, 0.0
			for j := range given {
				w := weighed(weight[j], even)
				if room := limit[j] - given[j]; room > 0 && w > 0 && room <= left*(w/sum) { // left/sum may be beyond all numbers
					given[j] = limit[j]
					spent += room
					full = true
				}
			}
			if full {
				left = max(0, left-spent)
				continue
			}
			for j := range given {
				if limit[j] > given[j] {
					given[j] = min(given[j]+left*(weighed(weight[j], even)/sum), limit[j])
				}
			}
			return 0
		}
	}
	return left
}

func weighed(weight float64, even bool) float64 {
	if !even {
		return weight
	}
	if weight > 0 {
		return 0
	}
	return 1
}
