package replay

import (
	"fmt"

	"evenkeel/forecast"
	"evenkeel/sim/flex"
)

// allowed is what of every host tasks may be given: less than the host has, which is the margin for what estimates miss.
type allowed struct {
	of       flex.Vector
	capacity []flex.Vector
}

// taken is what counts where so much is available.
func (a *allowed) taken(host int, available flex.Vector) flex.Vector {
	return a.capacity[host].Minus(available)
}

// haRequests counts what was asked for, of what is allowed.
type haRequests struct {
	byRequest
	allowed
}

func (h *haRequests) Begin(capacity []flex.Vector) {
	h.byRequest.Begin(capacity)
	h.capacity = capacity
}

// Ended frees at once what was asked for.
func (h *haRequests) Ended(host int, request flex.Vector, _ int) {
	h.asked[host] = h.asked[host].Minus(request)
}

func (h *haRequests) Taken(host int) flex.Vector {
	return h.taken(host, h.of.Minus(h.asked[host]))
}

// haEstimate counts what the host itself says is available (Ha, eq. 5 and 6): the lesser of what is allowed less what its tasks use, and
// of its capacity less its damped estimate (eq. 1 to 4).
type haEstimate struct {
	allowed
	factor float64
	load   [][2]forecast.Damped // by host
	used   []flex.Vector        // in the latest tick
}

func (h *haEstimate) Begin(capacity []flex.Vector) {
	h.capacity, h.used = capacity, make([]flex.Vector, len(capacity))
	h.load = make([][2]forecast.Damped, len(capacity))
	for i := range h.load {
		h.load[i] = [2]forecast.Damped{forecast.NewDamped(h.factor), forecast.NewDamped(h.factor)}
	}
}

func (h *haEstimate) Placed(host int, request flex.Vector) {
	for k := range request {
		h.load[host][k].Place(request[k])
	}
}

func (h *haEstimate) Ended(host int, request flex.Vector, measured int) {
	for k := range request {
		h.load[host][k].Exit(request[k], measured)
	}
}

func (h *haEstimate) Measure(m *measuredTick) {
	copy(h.used, m.Used)
	for i := range h.load {
		for k := range h.load[i] {
			h.load[i][k].Observe(m.Used[i][k])
		}
	}
}

func (h *haEstimate) Counts(request flex.Vector) flex.Vector { return request }

func (h *haEstimate) Taken(host int) flex.Vector {
	var available flex.Vector
	for k := range available {
		available[k] = h.load[host][k].Available(h.of[k], h.used[host][k], h.capacity[host][k])
	}
	return h.taken(host, available)
}

// HaReservation starts tasks in order, each on the host with the most left, as long as what all asked for keeps to what is allowed of the
// host: cores and bytes.
func HaReservation(allowedCPU, allowedMemory float64) (*Placer, error) {
	p := &Placer{label: "reservation", limit: 1, inOrder: true, counting: &haRequests{allowed: allowed{of: flex.Vector{allowedCPU, allowedMemory}}}}
	return p, p.checkAllowed(allowedCPU, allowedMemory)
}

// Ha is HaReservation by what hosts estimate to be available (sec. IV and VI), with a damping factor above 0 and at most 1.
func Ha(allowedCPU, allowedMemory, factor float64) (*Placer, error) {
	if !(factor > 0 && factor <= 1) {
		return nil, fmt.Errorf("policy Ha: a damping factor of %g", factor)
	}
	p := &Placer{label: "Ha", limit: 1, inOrder: true, counting: &haEstimate{allowed: allowed{of: flex.Vector{allowedCPU, allowedMemory}}, factor: factor}}
	return p, p.checkAllowed(allowedCPU, allowedMemory)
}

func (p *Placer) checkAllowed(cpu, memory float64) error {
	if !(cpu > 0 && memory > 0) {
		return fmt.Errorf("policy %s: %g cores and %g bytes of a host are allowed", p.label, cpu, memory)
	}
	return p.check()
}
