package chaos

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// History has the requests of clients for objects that hold one value each ("" is none), and the answers.
type History struct {
	begun time.Time

	mu    sync.Mutex
	of    map[string][]porcupine.Operation
	acked map[string]int // writes by kind of object
}

// NewHistory begins now.
func NewHistory(now time.Time) *History {
	return &History{begun: now, of: map[string][]porcupine.Operation{}, acked: map[string]int{}}
}

// op is a write of a value, or a read.
type op struct {
	write bool
	value string
}

// answer is what was read, or whether the write was acknowledged.
type answer struct {
	value string
	known bool
}

// forever is when an operation without an answer may yet take effect.
const forever = int64(1) << 62

// Write is a write of a client: the object is to hold the value.
type Write struct {
	Client              int
	Kind, Object, Value string
	Asked               time.Time
}

// Wrote records a write that was requested and, unless acked is false, acknowledged. A refused write is not recorded. Values of one
// object differ from one another, except "".
func (h *History) Wrote(w Write, reported time.Time, acked bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := porcupine.Operation{ClientId: w.Client, Input: op{true, w.Value}, Output: answer{known: acked}, Call: int64(w.Asked.Sub(h.begun)), Return: forever}
	if acked {
		o.Return = int64(reported.Sub(h.begun))
		h.acked[w.Kind]++
	}
	h.of[w.Object] = append(h.of[w.Object], o)
}

// Read is what an object was seen to hold.
func (h *History) Read(client int, object, value string, asked, reported time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.of[object] = append(h.of[object], porcupine.Operation{ClientId: client, Input: op{false, ""}, Output: answer{value, true},
		Call: int64(asked.Sub(h.begun)), Return: int64(reported.Sub(h.begun))})
}

// Acked are the acknowledged writes by kind of object.
func (h *History) Acked() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[string]int{}
	for k, n := range h.acked {
		out[k] = n
	}
	return out
}

// register is an object with one value.
var register = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, in, out any) (bool, any) {
		switch o := in.(op); {
		case o.write:
			return true, o.value
		default:
			return out.(answer).value == state.(string), state
		}
	},
	DescribeOperation: func(in, out any) string {
		switch o, a := in.(op), out.(answer); {
		case o.write && a.known:
			return fmt.Sprintf("write %q", o.value)
		case o.write:
			return fmt.Sprintf("write %q: no answer", o.value)
		default:
			return fmt.Sprintf("read %q", a.value)
		}
	},
}

// checkTime bounds the check of one object's history.
const checkTime = 30 * time.Second

// Lost are the objects whose history no register can have: an acknowledged write is lost or came back, or a read saw
// what was not there.
func (h *History) Lost() (lost []string, unchecked int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var names []string
	for name := range h.of {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		ops := visible(h.of[name])
		switch porcupine.CheckOperationsTimeout(register, ops, checkTime) {
		case porcupine.Ok:
		case porcupine.Unknown:
			unchecked++
		default:
			var last []string
			for _, o := range ops[max(0, len(ops)-8):] {
				last = append(last, fmt.Sprintf("%.3f-%.3f s client %d: %s", float64(o.Call)/1e9, float64(o.Return)/1e9, o.ClientId, register.DescribeOperation(o.Input, o.Output)))
			}
			lost = append(lost, fmt.Sprintf("%s: no order of these %d operations explains what was read; the last: %q", name, len(ops), last))
		}
	}
	return lost, unchecked
}

// visible leaves out writes without an answer whose value was never read: they may never have happened, and prove nothing.
// Each one that is kept doubles the work of the check.
func visible(ops []porcupine.Operation) []porcupine.Operation {
	read := map[string]bool{"": true}
	for _, o := range ops {
		if !o.Input.(op).write {
			read[o.Output.(answer).value] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(ops), func(o porcupine.Operation) bool {
		in := o.Input.(op)
		return in.write && !o.Output.(answer).known && !read[in.value]
	})
}

// Objects that begin so and have a history.
func (h *History) Objects(prefix string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	for name := range h.of {
		if strings.HasPrefix(name, prefix) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Starts says what an object holds before the first request.
func (h *History) Starts(object, value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.of[object] = append(h.of[object], porcupine.Operation{ClientId: 99, Input: op{true, value}, Output: answer{known: true}, Call: -2, Return: -1})
}
