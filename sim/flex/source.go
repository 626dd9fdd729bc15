package flex

// Source counts on which hosts the tasks of one source run: one job, tenant or virtual cluster. The zero value has none.
type Source struct {
	on map[int]int // by host; no zeros
}

// Add counts a task on a host.
func (s *Source) Add(host int) {
	if s.on == nil {
		s.on = map[int]int{}
	}
	s.on[host]++
}

// Remove takes a task away from a host; one that is not there is none to take.
func (s *Source) Remove(host int) {
	if s.on[host] <= 1 {
		delete(s.on, host)
		return
	}
	s.on[host]--
}

// On is how many run on a host.
func (s *Source) On(host int) int { return s.on[host] }

// Hosts is on how many it runs.
func (s *Source) Hosts() int { return len(s.on) }

// minHosts is the least number on any of so many hosts. Minimum of a map: the order does not matter.
func (s *Source) minHosts(hosts int) int {
	if len(s.on) < hosts || hosts == 0 {
		return 0
	}
	lowest := -1
	for _, n := range s.on {
		if lowest < 0 || n < lowest {
			lowest = n
		}
	}
	return lowest
}
