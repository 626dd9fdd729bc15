package transport

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/pki"
)

// Frame is one line of a stream of desired state: JSON, ended by a line feed. One without Head only says that the leader is
// alive.
type Frame struct {
	// N counts the frames of a stream that have a Head: 1, 2, 3, ...; the first of them is whole.
	// In a frame without, it is that of the last one with.
	N uint64 `json:"n"`
	// Head is the desired state without its VMs.
	Head *agent.Desired `json:"head,omitempty"`
	// Changed are VMs that are new or not as they were, Removed the ids of those that are there no more.
	Changed []agent.VM `json:"changed,omitempty"`
	Removed []string   `json:"removed,omitempty"`
	// Servers of the cluster ("host:port") are sent at first and when they changed.
	Servers []string `json:"servers,omitempty"`
	// Revoked certificates are sent likewise. A member that received one keeps it until the certificate has expired.
	Revoked []pki.Revocation `json:"revoked,omitempty"`
	// Gossip is the version of the gossip keys (GossipKeys), sent likewise.
	Gossip string `json:"gossip,omitempty"`
}

func idOf(vm agent.VM) string { return vm.Spec.Identity.VM }

func byID(a, b agent.VM) int { return strings.Compare(idOf(a), idOf(b)) }

// desiredEncoder makes frames of a sequence of states. The zero value begins a stream.
type desiredEncoder struct {
	n    uint64
	head agent.Desired
	vms  map[string]*agent.VM // in the last state itself, which no code changes
}

// frame is what changed since the last state; false if nothing did. The id of a VM identifies it: there is one VM of each id.
func (e *desiredEncoder) frame(want agent.Desired) (Frame, bool) {
	head := want
	head.VMs = nil
	out := Frame{Head: &head}
	now := make(map[string]*agent.VM, len(want.VMs))
	for i := range want.VMs {
		vm := &want.VMs[i]
		id := idOf(*vm)
		now[id] = vm
		if old, had := e.vms[id]; !had || !same(old, vm) {
			out.Changed = append(out.Changed, *vm)
		}
	}
	for id := range e.vms {
		if _, has := now[id]; !has {
			out.Removed = append(out.Removed, id)
		}
	}
	if e.n > 0 && len(out.Changed)+len(out.Removed) == 0 && reflect.DeepEqual(e.head, head) {
		return Frame{}, false
	}
	slices.SortFunc(out.Changed, byID)
	slices.Sort(out.Removed)
	e.n++
	out.N, e.head, e.vms = e.n, head, now
	return out, true
}

// canWait says whether a state differs from the last one in nothing but its indexes, if at all. Then something happened in the
// cluster that does not concern the host, or that the host reported itself: that a VM which it was to start runs.
func (e *desiredEncoder) canWait(want agent.Desired) bool {
	if e.n == 0 || len(want.VMs) != len(e.vms) {
		return false
	}
	head := want
	head.VMs, head.Index, head.RequiredIndex = nil, e.head.Index, e.head.RequiredIndex
	if !reflect.DeepEqual(head, e.head) {
		return false
	}
	for i := range want.VMs {
		vm := &want.VMs[i]
		was, had := e.vms[idOf(*vm)]
		if !had {
			return false
		}
		old := *was
		if old.MayStart && vm.Seen && !vm.MayStart {
			old.MayStart, old.Seen = false, true
		}
		if !same(&old, vm) {
			return false
		}
	}
	return true
}

// same says whether two desired states of a VM are equal.
func same(a, b *agent.VM) bool {
	if (a.Move == nil) != (b.Move == nil) || a.Move != nil && *a.Move != *b.Move {
		return false
	}
	x, y := *a, *b
	x.Move, y.Move = nil, nil
	return x == y
}

// desiredDecoder puts states together again. The zero value begins a stream.
type desiredDecoder struct {
	n   uint64
	now agent.Desired
}

// take takes in a frame. changed: there is a new state in now, its VMs ordered by id. An error means that a frame is missing;
// the stream has to begin again.
func (d *desiredDecoder) take(f Frame) (changed bool, err error) {
	if f.Head == nil {
		if f.N != d.n {
			return false, fmt.Errorf("desired state: the leader is at change %d, this is %d", f.N, d.n)
		}
		return false, nil
	}
	if f.N != d.n+1 {
		return false, fmt.Errorf("desired state: change %d came after %d", f.N, d.n)
	}
	gone := make(map[string]bool, len(f.Removed)+len(f.Changed))
	for _, id := range f.Removed {
		gone[id] = true
	}
	for _, vm := range f.Changed {
		if gone[idOf(vm)] {
			return false, fmt.Errorf("desired state: change %d has VM %s twice", f.N, idOf(vm))
		}
		gone[idOf(vm)] = true
	}
	next := *f.Head
	next.VMs = make([]agent.VM, 0, len(d.now.VMs)+len(f.Changed)) // a new slice: the last state was handed out
	for _, vm := range d.now.VMs {
		if !gone[idOf(vm)] {
			next.VMs = append(next.VMs, vm)
		}
	}
	next.VMs = append(next.VMs, f.Changed...)
	slices.SortFunc(next.VMs, byID)
	d.n, d.now = f.N, next
	return true, nil
}
