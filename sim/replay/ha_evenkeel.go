package replay

import (
	"evenkeel/forecast"
	"evenkeel/sim/flex"
)

// haKnown counts as Evenkeel would: what the tasks of a host are likely to use at most at any one time. Each task uses a part of its request; the
// part is distributed as the parts of all tasks that were observed so far. The count is the sum of the means, or what is used now if that is more, and a
// buffer of K2 standard deviations of the sum (forecast.Buffer), because tasks peak at different times. That must fit the host. Besides, memory in use
// must keep to what is allowed, as with Ha. CPU need not: where it is short tasks are slower and none ends.
type haKnown struct {
	allowed
	buffer [2]forecast.Buffer // of CPU, of memory
	used   []flex.Vector      // in the latest tick
	fresh  []flex.Vector      // asked for by those that it does not show
	asked  []flex.Vector
	square []flex.Vector // sums of the squares of what is asked for
	seen   float64       // weight of what follows
	mean   flex.Vector
	second flex.Vector
}

// haForget is how much less what was seen weighs a tick later: half after 700.
const haForget = 0.999

func (h *haKnown) Begin(capacity []flex.Vector) {
	n := len(capacity)
	h.capacity, h.used, h.fresh = capacity, make([]flex.Vector, n), make([]flex.Vector, n)
	h.asked, h.square = make([]flex.Vector, n), make([]flex.Vector, n)
	h.seen, h.mean, h.second = 0, flex.Vector{}, flex.Vector{}
}

func (h *haKnown) Placed(host int, request flex.Vector) {
	h.fresh[host] = h.fresh[host].Plus(request)
	h.asked[host] = h.asked[host].Plus(request)
	for k, r := range request {
		h.square[host][k] += r * r
	}
}

func (h *haKnown) Ended(host int, request flex.Vector, _ int) {
	h.asked[host] = h.asked[host].Minus(request)
	for k, r := range request {
		h.square[host][k] = max(0, h.square[host][k]-r*r)
	}
}

func (h *haKnown) Measure(m *measuredTick) {
	copy(h.used, m.Used)
	copy(h.asked, m.Asked) // sums and differences drift
	clear(h.fresh)
	if m.Components > 0 {
		w := float64(m.Components)
		h.mean, h.second = h.mean.Times(haForget*h.seen).Plus(m.Mean.Times(w)), h.second.Times(haForget*h.seen).Plus(m.Square.Times(w))
		h.seen = haForget*h.seen + w
		h.mean, h.second = h.mean.Times(1/h.seen), h.second.Times(1/h.seen)
	}
}

func (h *haKnown) Counts(request flex.Vector) flex.Vector {
	if h.seen > 0 {
		for k := range request {
			request[k] *= min(1, h.mean[k])
		}
	}
	return request
}

func (h *haKnown) Taken(host int) flex.Vector {
	if h.seen == 0 {
		return h.taken(host, h.of.Minus(h.asked[host]))
	}
	var available flex.Vector
	for k, used := range h.used[host] {
		// New ones are in the mean of all, and beside what is used now.
		likely := max(used+h.mean[k]*h.fresh[host][k], h.mean[k]*h.asked[host][k])
		spread := max(0, h.second[k]-h.mean[k]*h.mean[k]) * h.square[host][k]
		need := likely + h.buffer[k].Size(0, forecast.Normal(likely, spread))
		available[k] = h.capacity[host][k] - need
	}
	available[flex.Memory] = min(available[flex.Memory], h.of[flex.Memory]-h.used[host][flex.Memory])
	return h.taken(host, available)
}

// Standard deviations of buffer with which docs/reproduction/ha.md was made: tried on days of other seeds than those it reports.
const (
	haBufferCPU    = 1
	haBufferMemory = 2.75
)

// HaEvenkeel is Ha's cluster under Evenkeel: each host is filled with what its tasks are likely to use at most at any one time.
func HaEvenkeel(allowedCPU, allowedMemory float64) (*Placer, error) {
	of := func(deviations float64) forecast.Buffer {
		return forecast.Buffer{K2: deviations, Spread: forecast.Deviation}
	}
	p := &Placer{label: "Evenkeel", limit: 1, inOrder: true, counting: &haKnown{allowed: allowed{of: flex.Vector{allowedCPU, allowedMemory}},
		buffer: [2]forecast.Buffer{of(haBufferCPU), of(haBufferMemory)}}}
	return p, p.checkAllowed(allowedCPU, allowedMemory)
}
