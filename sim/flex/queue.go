package flex

import (
	"fmt"
	"math"
)

// Order says which entry is next in a Queue.
type Order int

const (
	FirstCome     Order = iota // as they came, and those that did not fit after all that wait (Algorithms 1 and 3: FlexF)
	LargestMemory              // most memory first, then as they came (Algorithm 2, sec. 4.3: FlexL)
)

// Backoff is how long a task that did not fit waits, in any one unit of time: First, and twice as long each time until Max. The paper
// leaves the figures to Kubernetes.
type Backoff struct{ First, Max float64 }

// Waiting is a task in a Queue.
type Waiting struct {
	Task    int // as the caller numbers it
	Request Vector
	Tries   int // how often it did not fit

	came  int     // its place in the order of arrival
	ready float64 // not before
}

// Queue holds tasks that wait for a host.
type Queue struct {
	order   Order
	backoff Backoff
	ready   waiting // in the queue's order
	later   waiting // by the time they are ready
	came    int
}

// NewQueue is an empty queue.
func NewQueue(order Order, b Backoff) (*Queue, error) {
	if order != FirstCome && order != LargestMemory {
		return nil, fmt.Errorf("flex: no order %d", order)
	}
	if !(b.First >= 0) || !(b.Max >= b.First) || math.IsInf(b.Max, 0) {
		return nil, fmt.Errorf("flex: a back-off from %g to %g", b.First, b.Max)
	}
	q := &Queue{order: order, backoff: b}
	q.ready.before = func(a, b *Waiting) bool { return a.came < b.came }
	if order == LargestMemory {
		q.ready.before = func(a, b *Waiting) bool {
			if a.Request[Memory] != b.Request[Memory] {
				return a.Request[Memory] > b.Request[Memory]
			}
			return a.came < b.came
		}
	}
	q.later.before = func(a, b *Waiting) bool {
		if a.ready != b.ready {
			return a.ready < b.ready
		}
		return a.came < b.came
	}
	return q, nil
}

// Len is how many wait.
func (q *Queue) Len() int { return len(q.ready.all) + len(q.later.all) }

// Push takes a new task.
func (q *Queue) Push(task int, request Vector) {
	q.ready.push(Waiting{Task: task, Request: request, came: q.next()})
}

// Next takes out the task that is to be tried at a time, and false where all that wait have been tried and are backing off.
func (q *Queue) Next(now float64) (Waiting, bool) {
	for len(q.later.all) > 0 && q.later.all[0].ready <= now {
		q.ready.push(q.later.pop())
	}
	if len(q.ready.all) == 0 {
		return Waiting{}, false
	}
	return q.ready.pop(), true
}

// Retry puts a task back that fits on no host now. It is tried again after its back-off; where that is 0, it is still
// not handed out again at the same time.
func (q *Queue) Retry(w Waiting, now float64) {
	wait := q.backoff.Max
	if w.Tries < 60 {
		wait = min(q.backoff.First*float64(uint64(1)<<w.Tries), q.backoff.Max)
	}
	w.Tries++
	w.ready = max(now+wait, math.Nextafter(now, math.Inf(1)))
	if q.order == FirstCome {
		w.came = q.next() // to the end of the queue
	}
	q.later.push(w)
}

// Wake is when the first of those that back off is ready, and false if none does.
func (q *Queue) Wake() (at float64, ok bool) {
	if len(q.later.all) == 0 {
		return 0, false
	}
	return q.later.all[0].ready, true
}

func (q *Queue) next() int {
	q.came++
	return q.came
}

// waiting is a heap.
type waiting struct {
	all    []Waiting
	before func(a, b *Waiting) bool
}

func (h *waiting) push(w Waiting) {
	h.all = append(h.all, w)
	for i := len(h.all) - 1; i > 0; {
		up := (i - 1) / 2
		if !h.before(&h.all[i], &h.all[up]) {
			return
		}
		h.all[i], h.all[up] = h.all[up], h.all[i]
		i = up
	}
}

func (h *waiting) pop() Waiting {
	top, last := h.all[0], len(h.all)-1
	h.all[0] = h.all[last]
	h.all = h.all[:last]
	for i := 0; ; {
		c := 2*i + 1
		if c >= last {
			return top
		}
		if c+1 < last && h.before(&h.all[c+1], &h.all[c]) {
			c++
		}
		if !h.before(&h.all[c], &h.all[i]) {
			return top
		}
		h.all[i], h.all[c] = h.all[c], h.all[i]
		i = c
	}
}
