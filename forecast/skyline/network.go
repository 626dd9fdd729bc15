package skyline

import "math"

// network is the dual of the fit with debts, as a flow of minimum cost. Run i sends at most supply to time nodes t; what
// arrives at t earns C_it, the run's work from step t on, and passes all later steps. A step's price rises with the flow
// through it: its pieces, in ascending order of price. The potential of time node t is S_t, the skyline's work from step t
// on; that of a run is the negative of its debt.
//
// Nodes are the runs 0..n-1, the steps n..n+k-1, and the end, n+k. Arcs from runs have no upper bound, so only those in the
// spanning tree have flow. Flows are whole numbers and the tree is kept strongly feasible (Cunningham 1976), so that
// degenerate pivots cannot cycle.
type network struct {
	n, k  int
	work  []float64 // C_it, by run, then step
	steps []stepArc

	parent, first, next, prev []int32 // the tree: children are lists of siblings
	depth                     []int32
	flow                      []int64 // of the arc to the parent, unless it is a step's
	potential                 []float64
	tolerance                 float64

	stack []int32
	at    int // the run where pricing goes on; n: the steps
}

// stepArc is the arc of one step, from its time node to the next.
type stepArc struct {
	price    []float64 // of its pieces, ascending
	capacity []int64
	level    int   // pieces below are full
	part     int64 // flow in the piece level, while the arc is in the tree
	inTree   bool
}

// arc is one that may enter the tree: flow from tail to head.
type arc struct {
	tail, head int32
	step       int // whose arc it is; -1: from a run
	forward    bool
	reduced    float64 // cost of one unit around the cycle, below 0
}

const none = int32(-1)

// newNetwork starts with no flow.
func newNetwork(n, k int, work []float64, steps []stepArc, supply int64) *network {
	nodes := n + k + 1
	w := &network{
		n: n, k: k, work: work, steps: steps,
		parent: make([]int32, nodes), first: make([]int32, nodes), next: make([]int32, nodes), prev: make([]int32, nodes),
		depth: make([]int32, nodes), flow: make([]int64, nodes), potential: make([]float64, nodes),
	}
	largest := 0.0
	for _, c := range work {
		largest = max(largest, c)
	}
	w.tolerance = 1e-13 * largest
	root := int32(n + k)
	for v := range w.first {
		w.first[v], w.parent[v] = none, none
	}
	for i := range n {
		w.flow[i] = supply
		w.adopt(int32(i), root)
	}
	for t := k - 1; t >= 0; t-- {
		w.steps[t].inTree = true
		w.adopt(int32(n+t), int32(n+t+1))
	}
	w.refresh()
	return w
}

// adopt makes v a child of p.
func (w *network) adopt(v, p int32) {
	w.parent[v] = p
	w.prev[v], w.next[v] = none, w.first[p]
	if f := w.first[p]; f != none {
		w.prev[f] = v
	}
	w.first[p] = v
}

// cut takes v from its parent.
func (w *network) cut(v int32) {
	if w.prev[v] != none {
		w.next[w.prev[v]] = w.next[v]
	} else {
		w.first[w.parent[v]] = w.next[v]
	}
	if w.next[v] != none {
		w.prev[w.next[v]] = w.prev[v]
	}
	w.parent[v] = none
}

// stepOf is the step whose arc connects v and its parent, -1 if it comes from a run.
func (w *network) stepOf(v int32) int {
	if int(v) < w.n || int(w.parent[v]) < w.n {
		return -1
	}
	return int(min(v, w.parent[v])) - w.n
}

// up says whether the arc between v and its parent leads to the parent.
func (w *network) up(v int32) bool { return int(v) < w.n || w.parent[v] == v+1 }

// cost is what the arc between v and its parent costs.
func (w *network) cost(v int32) float64 {
	if s := w.stepOf(v); s >= 0 {
		a := &w.steps[s]
		return a.price[a.level]
	}
	p := w.parent[v]
	if int(v) < w.n {
		return w.runCost(v, p)
	}
	return w.runCost(p, v)
}

// runCost is the cost of the arc from run i to node v, 0 or less.
func (w *network) runCost(i, v int32) float64 {
	if int(v) == w.n+w.k {
		return 0
	}
	return -w.work[int(i)*w.k+int(v)-w.n]
}

// residual is how much more may go between v and its parent, towards the parent or away from it.
func (w *network) residual(v int32, towards bool) int64 {
	along := towards == w.up(v)
	if s := w.stepOf(v); s >= 0 {
		a := &w.steps[s]
		if along {
			return a.capacity[a.level] - a.part
		}
		return a.part
	}
	if along {
		return math.MaxInt64
	}
	return w.flow[v]
}

// send changes the flow between v and its parent.
func (w *network) send(v int32, towards bool, amount int64) {
	if towards != w.up(v) {
		amount = -amount
	}
	if s := w.stepOf(v); s >= 0 {
		w.steps[s].part += amount
	} else {
		w.flow[v] += amount
	}
}

// refresh computes depths and potentials of all nodes from the tree.
func (w *network) refresh() {
	root := int32(w.n + w.k)
	w.depth[root], w.potential[root] = 0, 0
	w.stack = append(w.stack[:0], root)
	for len(w.stack) > 0 {
		p := w.stack[len(w.stack)-1]
		w.stack = w.stack[:len(w.stack)-1]
		for v := w.first[p]; v != none; v = w.next[v] {
			w.depth[v] = w.depth[p] + 1
			if w.up(v) {
				w.potential[v] = w.potential[p] + w.cost(v)
			} else {
				w.potential[v] = w.potential[p] - w.cost(v)
			}
			w.stack = append(w.stack, v)
		}
	}
}

// shift adds d to the potentials of v and all below, and renews their depths.
func (w *network) shift(v int32, d float64) {
	w.stack = append(w.stack[:0], v)
	for len(w.stack) > 0 {
		v := w.stack[len(w.stack)-1]
		w.stack = w.stack[:len(w.stack)-1]
		w.depth[v] = w.depth[w.parent[v]] + 1
		w.potential[v] += d
		for c := w.first[v]; c != none; c = w.next[c] {
			w.stack = append(w.stack, c)
		}
	}
}

// solve pivots until no arc outside the tree lowers the cost.
func (w *network) solve() {
	for fresh := true; ; {
		a, found := w.price()
		switch {
		case found:
			w.enter(a)
			fresh = false
		case fresh:
			return
		default: // sums of small changes may have drifted
			w.refresh()
			fresh = true
		}
	}
}

// price looks for an arc to enter: the best of a block of runs, or of the steps.
func (w *network) price() (best arc, found bool) {
	block := w.n/w.k + 1
	for seen := 0; seen <= w.n; {
		for range block {
			if w.at >= w.n {
				found = w.priceSteps(&best) || found
				w.at = 0
			} else {
				found = w.priceRun(w.at, &best) || found
				w.at++
			}
			seen++
		}
		if found {
			return best, true
		}
	}
	return best, false
}

// priceRun puts the best arc of run i into best, if it is better.
func (w *network) priceRun(i int, best *arc) (better bool) {
	lowest, at := 0.0, w.n+w.k
	row, level := w.work[i*w.k:(i+1)*w.k], w.potential[w.n:w.n+w.k]
	for t, c := range row {
		if r := level[t] - c; r < lowest {
			lowest, at = r, w.n+t
		}
	}
	reduced := lowest - w.potential[i]
	if reduced >= -w.tolerance || reduced >= best.reduced {
		return false
	}
	*best = arc{tail: int32(i), head: int32(at), step: -1, reduced: reduced}
	return true
}

// priceSteps puts the best arc of a step into best, if it is better.
func (w *network) priceSteps(best *arc) (better bool) {
	for s := range w.steps {
		a := &w.steps[s]
		if a.inTree {
			continue
		}
		v := int32(w.n + s)
		drop := w.potential[v] - w.potential[v+1]
		if a.level < len(a.price) {
			if r := a.price[a.level] - drop; r < -w.tolerance && r < best.reduced {
				*best, better = arc{tail: v, head: v + 1, step: s, forward: true, reduced: r}, true
			}
		}
		if a.level > 0 {
			if r := drop - a.price[a.level-1]; r < -w.tolerance && r < best.reduced {
				*best, better = arc{tail: v + 1, head: v, step: s, reduced: r}, true
			}
		}
	}
	return better
}

// bound is the arc that limits what a cycle can take.
type bound struct {
	amount int64
	at     int32 // the lower node of the arc; none: the arc that enters
	tail   bool  // it is above the entering arc's tail
}

// enter sends what the cycle of the arc can take, and puts the arc in the tree in place of the last one that blocks,
// seen from the cycle's highest node along the flow.
func (w *network) enter(e arc) {
	b := bound{amount: math.MaxInt64, at: none}
	if e.step >= 0 {
		a := &w.steps[e.step]
		if e.forward {
			b.amount = a.capacity[a.level]
		} else {
			b.amount = a.capacity[a.level-1]
		}
	}
	u, v := e.tail, e.head
	for u != v { // up to the highest node, the deeper end first
		if w.depth[u] >= w.depth[v] {
			// Of equal bounds above the tail, the first is the last along the flow.
			if r := w.residual(u, false); r < b.amount {
				b = bound{amount: r, at: u, tail: true}
			}
			u = w.parent[u]
			continue
		}
		if r := w.residual(v, true); r <= b.amount && r < math.MaxInt64 {
			b = bound{amount: r, at: v}
		}
		v = w.parent[v]
	}
	if b.amount > 0 {
		for x := e.tail; x != u; x = w.parent[x] {
			w.send(x, false, b.amount)
		}
		for x := e.head; x != u; x = w.parent[x] {
			w.send(x, true, b.amount)
		}
	}
	if b.at == none { // the step's piece is full, or empty
		if e.forward {
			w.steps[e.step].level++
		} else {
			w.steps[e.step].level--
		}
		return
	}
	if s := w.stepOf(b.at); s >= 0 {
		a := &w.steps[s]
		a.inTree = false
		if a.part > 0 {
			a.level++
		}
		a.part = 0
	}
	w.replace(e, b)
}

// replace hangs what is below the blocking arc to the entering one.
func (w *network) replace(e arc, b bound) {
	low, above, change := e.head, e.tail, -e.reduced
	if b.tail {
		low, above, change = e.tail, e.head, e.reduced
	}
	flow := b.amount
	for v, p := low, above; ; { // turn the path from low up to the blocking arc round
		old, oldFlow := w.parent[v], w.flow[v]
		w.cut(v)
		w.adopt(v, p)
		w.flow[v] = flow
		if v == b.at {
			break
		}
		v, p, flow = old, v, oldFlow
	}
	if e.step >= 0 {
		a := &w.steps[e.step]
		a.inTree, a.part = true, b.amount
		if !e.forward {
			a.level--
			a.part = a.capacity[a.level] - b.amount
		}
	}
	w.shift(low, change)
}

// sent calls see with what run i sends to each step.
func (w *network) sent(i int, see func(t int, flow int64)) {
	if up := int(w.parent[i]); up < w.n+w.k {
		see(up-w.n, w.flow[i])
	}
	for v := w.first[i]; v != none; v = w.next[v] {
		see(int(v)-w.n, w.flow[v])
	}
}
