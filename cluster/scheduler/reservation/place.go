package reservation

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Options of a placement.
type Options struct {
	// Alignment is what an unsteady job pays, in units of the cost, for lying half a window from the middle of its window;
	// in between linearly (sec. 7).
	Alignment float64
	// AlignRight places a run as late as it can, at the parallelism of its skyline, whatever the load: the baseline of sec. 9.
	AlignRight bool
	// NoChanges: a refusal does not say what would let the request in. That takes up to twenty more searches.
	NoChanges bool
}

// DefaultOptions are what the agenda uses.
func DefaultOptions() Options { return Options{Alignment: 0.1} }

const (
	trials      = 24      // end points, or starts, that are tried in each of two rounds
	lengths     = 12      // by which a rigid run is stretched
	rigidEffort = 1 << 18 // steps whose cost is computed for one rigid request, per round
)

// candidate is a slot, and by what it is chosen.
type candidate struct {
	slot  Slot
	price float64 // cost and penalty
}

// Place finds the slot of least cost for a request, and does not add it. The slot's Cost is above 1 if it does not fit the sums. An
// error is a request that is malformed, or that does not fit its own window.
func (l *Load) Place(r Request, o Options) (Slot, error) {
	all, err := l.candidates(&r, o)
	if err != nil {
		return Slot{}, err
	}
	return all[0].slot, nil
}

// candidates are the slots that were tried, cheapest first, of equal ones the earliest.
func (l *Load) candidates(r *Request, o Options) ([]candidate, error) {
	if err := r.validate(len(l.used)); err != nil {
		return nil, err
	}
	var all []candidate
	if r.Elastic != nil {
		all = l.elasticCandidates(r, o)
	} else {
		all = l.rigidCandidates(r, o)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("reserve for %s: its %d stages do not fit its window of %d steps", r.Name, len(r.Stages), r.Due-r.Earliest)
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.price, b.price), cmp.Compare(b.slot.Yield, a.slot.Yield), cmp.Compare(a.slot.End(), b.slot.End()))
	})
	return all, nil
}

// penalty is the alignment penalty of a run [start, end) of a window that begins at 0.
func (o Options) penalty(r *Request, start, end int) float64 {
	if !r.Unsteady {
		return 0
	}
	window := float64(r.Due - r.Earliest)
	return o.Alignment * math.Abs(float64(start+end)/2-window/2) / (window / 2)
}

func (l *Load) elasticCandidates(r *Request, o Options) (out []candidate) {
	e := newElastic(l, r)
	shortest, window := e.shortest(), len(e.base)
	tried := map[int]float64{}
	try := func(end int) {
		if _, done := tried[end]; done || end < shortest || end > window {
			return
		}
		start, counts, cost, ok := e.endingAt(end)
		if !ok {
			return
		}
		s := Slot{Request: *r, Start: r.Earliest + start, Cost: cost, Yield: 1, Amounts: make([]Amount, end-start)}
		for x := range s.Amounts {
			s.Amounts[x] = s.Amounts[x].plus(e.unit, float64(counts[start+x]))
		}
		price := cost + o.penalty(r, start, end)
		tried[end] = price
		out = append(out, candidate{s, price})
	}
	if o.AlignRight {
		if shortest > window {
			return nil
		}
		e.base = e.base[window-shortest:]
		window = shortest
		try(shortest)
		for i := range out {
			out[i].slot.Start += r.Due - r.Earliest - shortest
		}
		return out
	}
	inRounds(shortest, window, trials, try, tried)
	return out
}

// inRounds tries numbers from low to high: a coarse grid with both ends, then a finer one around the best.
func inRounds(low, high, n int, try func(int), tried map[int]float64) {
	if low > high {
		return
	}
	stride := max(1, (high-low)/n)
	for x := low; x < high; x += stride {
		try(x)
	}
	try(high)
	best, price := high, math.Inf(1)
	for x, p := range tried {
		if p < price || p == price && x < best {
			best, price = x, p
		}
	}
	fine := max(1, 2*stride/n)
	for x := best - stride + fine; x < best+stride; x += fine {
		try(x)
	}
}

func (l *Load) rigidCandidates(r *Request, o Options) (out []candidate) {
	g := &rigid{l.folded(r), l.capacity, r.Stages}
	window, own := len(g.base), len(r.Stages)
	longest := own
	if y := r.MinYield; y > 0 && !o.AlignRight {
		longest = int(min(float64(window), math.Floor(float64(own)/y+1e-9)))
	}
	if own > window {
		return nil
	}
	n := min(lengths, longest-own+1)
	for i := range n {
		length := own
		if n > 1 {
			length += i * (longest - own) / (n - 1)
		}
		amounts := g.stretched(length)
		tried, low := map[int]float64{}, math.Inf(1)
		try := func(start int) {
			if _, done := tried[start]; done || start < 0 || start+length > window {
				return
			}
			cost := g.cost(amounts, start, low)
			price := cost + o.penalty(r, start, start+length)
			tried[start] = price
			if price > low {
				return
			}
			low = price
			out = append(out, candidate{Slot{Request: *r, Start: r.Earliest + start, Amounts: amounts, Cost: cost, Yield: float64(own) / float64(length)}, price})
		}
		if o.AlignRight {
			try(window - length)
			continue
		}
		inRounds(0, window-length, max(trials, rigidEffort/(length*n)), try, tried)
	}
	return out
}
