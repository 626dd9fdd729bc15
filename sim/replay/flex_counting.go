package replay

import (
	"fmt"

	"evenkeel/forecast"
	"evenkeel/sim/flex"
)

// byRequest counts what was asked for.
type byRequest struct{ asked []flex.Vector }

func (b *byRequest) Begin(capacity []flex.Vector) { b.asked = make([]flex.Vector, len(capacity)) }

func (b *byRequest) Placed(host int, request flex.Vector) {
	b.asked[host] = b.asked[host].Plus(request)
}

// Ended counts at the next measurement.
func (b *byRequest) Ended(int, flex.Vector, int) {}

func (b *byRequest) Measure(m *measuredTick) { copy(b.asked, m.Asked) }

func (b *byRequest) Counts(request flex.Vector) flex.Vector { return request }

func (b *byRequest) Taken(host int) flex.Vector { return b.asked[host] }

// byLoad counts measured load times a penalty, and the requests of what no measurement has seen yet (Flex, eq. 9 and 13).
type byLoad struct {
	settings forecast.MarginSettings
	every    int // ticks from one update of the penalty to the next

	// margin > 0: a request counts as the part that all components use of theirs, times margin, and never as more than it is. 0: in full.
	margin float64

	penalty forecast.Penalty
	load    []flex.Vector
	fresh   []flex.Vector
	part    flex.Vector // that a request counts as
	ticks   int
}

func (b *byLoad) Begin(capacity []flex.Vector) {
	b.penalty, _ = forecast.NewPenalty(b.settings) // checked when the policy was made
	b.load, b.fresh, b.ticks = make([]flex.Vector, len(capacity)), make([]flex.Vector, len(capacity)), 0
	b.part = flex.Vector{1, 1}
}

func (b *byLoad) Placed(host int, request flex.Vector) {
	b.fresh[host] = b.fresh[host].Plus(b.Counts(request))
}

func (b *byLoad) Counts(request flex.Vector) flex.Vector {
	for k := range request {
		request[k] *= b.part[k]
	}
	return request
}

func (b *byLoad) Ended(int, flex.Vector, int) {}

func (b *byLoad) Measure(m *measuredTick) {
	copy(b.load, m.Used)
	clear(b.fresh)
	if b.margin > 0 {
		b.learn(m)
	}
	if b.ticks++; b.ticks%b.every == 0 {
		b.penalty.Observe(m.Quality)
	}
}

// learn finds what part of their requests components use.
func (b *byLoad) learn(m *measuredTick) {
	var used, asked flex.Vector
	for h := range m.Used {
		used, asked = used.Plus(m.Used[h]), asked.Plus(m.Asked[h])
	}
	for k := range used {
		b.part[k] = 1
		if asked[k] > 0 {
			b.part[k] = min(1, b.margin*used[k]/asked[k])
		}
	}
}

func (b *byLoad) Taken(host int) flex.Vector {
	return b.load[host].Times(b.penalty.Value()).Plus(b.fresh[host])
}

// flexRetry is how long a task that does not fit waits, s: twice as long each time. The paper leaves it to Kubernetes.
var flexRetry = flex.Backoff{First: 60, Max: 1800}

// flexCharge is what a task of the same source on a host costs: as much as 1% of load. The paper gives no figure.
const flexCharge = 0.01

// paged is how the hosts of Flex's evaluation share what is short, memory too: no task ends.
var paged = Enforcement{Paged: true}

// LeastFit counts requests, up to the capacity, and takes the host on which the largest share asked for is least (Flex, sec. 5.1).
func LeastFit() *Placer {
	return &Placer{label: "LeastFit", how: paged, retry: flexRetry, limit: 1, counting: &byRequest{}}
}

// OverSub is LeastFit that takes requests up to theta times the capacity.
func OverSub(theta float64) (*Placer, error) {
	p := &Placer{label: fmt.Sprintf("OverSub(%g)", theta), how: paged, retry: flexRetry, limit: theta, counting: &byRequest{}}
	return p, p.check()
}

// FlexPolicy is Flex with a penalty (sec. 4.3, Algorithm 3), updated once in so many ticks: FlexF where tasks go first come first, FlexL where
// the largest memory goes first.
func FlexPolicy(order flex.Order, penalty forecast.MarginSettings, every int) (*Placer, error) {
	label := "FlexF"
	if order == flex.LargestMemory {
		label = "FlexL"
	}
	if err := penalty.Check(); err != nil {
		return nil, fmt.Errorf("policy %s: %w", label, err)
	}
	if every < 1 {
		return nil, fmt.Errorf("policy %s: a penalty that is updated every %d ticks", label, every)
	}
	p := &Placer{label: label, how: paged, order: order, retry: flexRetry, limit: 1, charge: flexCharge,
		counting: &byLoad{settings: penalty, every: every}}
	return p, p.check()
}
