package state

import (
	memdb "github.com/hashicorp/go-memdb"
)

// Snapshot is a consistent view of the state at one log index. Its rows are constants.
type Snapshot struct {
	txn *memdb.Txn
}

func first[T any](s *Snapshot, table, index string, args ...any) (T, bool) {
	obj, err := s.txn.First(table, index, args...)
	if err != nil {
		panic("state: " + table + ": " + err.Error())
	}
	if obj == nil {
		var zero T
		return zero, false
	}
	return *obj.(*T), true
}

func all[T any](s *Snapshot, table, index string, args ...any) []T {
	it, err := s.txn.Get(table, index, args...)
	if err != nil {
		panic("state: " + table + ": " + err.Error())
	}
	var out []T
	for obj := it.Next(); obj != nil; obj = it.Next() {
		out = append(out, *obj.(*T))
	}
	return out
}

// peek is first without a copy: the caller must not change the row.
func peek[T any](s *Snapshot, table, index string, args ...any) (*T, bool) {
	obj, err := s.txn.First(table, index, args...)
	if err != nil {
		panic("state: " + table + ": " + err.Error())
	}
	if obj == nil {
		return nil, false
	}
	return obj.(*T), true
}

// final returns the last row of an index, which the caller must not change.
func final[T any](s *Snapshot, table, index string) (*T, bool) {
	obj, err := s.txn.Last(table, index)
	if err != nil {
		panic("state: " + table + ": " + err.Error())
	}
	if obj == nil {
		return nil, false
	}
	return obj.(*T), true
}

// each calls f with the rows, which f must not change, until f returns false.
func each[T any](s *Snapshot, f func(*T) bool, table, index string, args ...any) {
	it, err := s.txn.Get(table, index, args...)
	if err != nil {
		panic("state: " + table + ": " + err.Error())
	}
	for obj := it.Next(); obj != nil; obj = it.Next() {
		if !f(obj.(*T)) {
			return
		}
	}
}

// EachHost calls f with the hosts by name, in order, until it returns false. The rows are constants: with
// many of them, copies are what takes the time.
func (s *Snapshot) EachHost(f func(*Host) bool) { each(s, f, tHosts, "id") }

// EachVC is EachHost for the VCs, in order of their ids.
func (s *Snapshot) EachVC(f func(*VC) bool) { each(s, f, tVCs, "id") }

// EachVM is EachHost for the VMs, in order of their ids.
func (s *Snapshot) EachVM(f func(*VM) bool) { each(s, f, tVMs, "id") }

// EachVMOn is EachVM for the VMs that are placed on that host, and then for those that an open move takes there.
func (s *Snapshot) EachVMOn(host string, f func(*VM) bool) {
	more := true
	again := func(vm *VM) bool { more = f(vm); return more }
	if s.eachVM("host", host, again); more {
		s.eachVM("movingTo", host, again)
	}
}

// EachVMMoving is EachVM for those with an open move, in order of their targets.
func (s *Snapshot) EachVMMoving(f func(*VM) bool) { s.eachVM("movingTo_prefix", "", f) }

// eachVM is EachVM for those that an index names.
func (s *Snapshot) eachVM(index, key string, f func(*VM) bool) { each(s, f, tVMs, index, key) }

// Index is the log index of the last command applied.
func (s *Snapshot) Index() uint64 {
	p, _ := first[position](s, tIndex, "id", "log")
	return p.Index
}

// PlacementIndex is the log index of the last change on which placements and shares depend: a host's limits or load, or a VC's
// desired state.
func (s *Snapshot) PlacementIndex() uint64 {
	last := s.TakenOut()
	if h, ok := final[Host](s, tHosts, "version"); ok {
		last = max(last, h.Version)
	}
	if vc, ok := final[VC](s, tVCs, "modified"); ok {
		last = max(last, vc.ModifyIndex)
	}
	return last
}

// TakenOut is the log index at which a host was last removed from the cluster, 0 if none was.
func (s *Snapshot) TakenOut() uint64 {
	p, _ := first[position](s, tIndex, "id", "log")
	return p.Placement
}

// EachHostSince is EachHost for those whose Version is beyond an index, in order of their versions.
func (s *Snapshot) EachHostSince(index uint64, f func(*Host) bool) {
	it, err := s.txn.LowerBound(tHosts, "version", index+1)
	if err != nil {
		panic("state: hosts: " + err.Error())
	}
	for obj := it.Next(); obj != nil && f(obj.(*Host)); obj = it.Next() {
	}
}

// AnyQueued says whether a VC is to run and is not admitted.
func (s *Snapshot) AnyQueued() bool {
	_, waits := final[VC](s, tVCs, "waiting")
	return waits
}

// Meta is the cluster's own row; false before the cluster was made.
func (s *Snapshot) Meta() (Meta, bool) {
	m, ok := final[Meta](s, tMeta, "id")
	if !ok {
		return Meta{}, false
	}
	return *m, true
}

// Hosts returns the hosts in order of their names.
func (s *Snapshot) Hosts() []Host { return all[Host](s, tHosts, "id") }

// Host returns the host of that name.
func (s *Snapshot) Host(name string) (Host, bool) { return first[Host](s, tHosts, "id", name) }

// VCs returns the VCs in order of their ids, that is of their age.
func (s *Snapshot) VCs() []VC { return all[VC](s, tVCs, "id") }

// VC returns the VC of that id.
func (s *Snapshot) VC(id string) (VC, bool) { return first[VC](s, tVCs, "id", id) }

// SharedVC is VC without a copy: the caller must not change the row.
func (s *Snapshot) SharedVC(id string) (*VC, bool) { return peek[VC](s, tVCs, "id", id) }

// VCNamed returns the VC of that name.
func (s *Snapshot) VCNamed(name string) (VC, bool) { return first[VC](s, tVCs, "name", name) }

// VMs returns the VMs in order of their ids.
func (s *Snapshot) VMs() []VM { return all[VM](s, tVMs, "id") }

// VM returns the VM of that id.
func (s *Snapshot) VM(id string) (VM, bool) { return first[VM](s, tVMs, "id", id) }

// VMNamed returns the VM of that name.
func (s *Snapshot) VMNamed(name string) (VM, bool) { return first[VM](s, tVMs, "name", name) }

// VMsOf returns the VMs of a VC, by its id.
func (s *Snapshot) VMsOf(vc string) []VM { return all[VM](s, tVMs, "vc", vc) }

// VMsOn returns the VMs that are placed on that host, whatever their phase.
func (s *Snapshot) VMsOn(host string) []VM { return all[VM](s, tVMs, "host", host) }

// Images returns the images in order of their names.
func (s *Snapshot) Images() []Image { return all[Image](s, tImages, "id") }

// Image returns the image of that name.
func (s *Snapshot) Image(name string) (Image, bool) { return first[Image](s, tImages, "id", name) }

// Operations returns the operations in order of their ids, that is of their age.
func (s *Snapshot) Operations() []Operation { return all[Operation](s, tOps, "id") }

// Operation returns the operation of that id.
func (s *Snapshot) Operation(id string) (Operation, bool) {
	return first[Operation](s, tOps, "id", id)
}

// Remembered returns the answer given before for an idempotency key.
func (s *Snapshot) Remembered(key string) (Remembered, bool) {
	return first[Remembered](s, tIdem, "id", key)
}

// EventsAfter returns the events with a greater number than seq, oldest first, at most limit of them (0: all). The oldest
// events are dropped after a while: see keepEvents.
func (s *Snapshot) EventsAfter(seq uint64, limit int) []Event {
	it, err := s.txn.LowerBound(tEvents, "id", seq+1)
	if err != nil {
		panic("state: events: " + err.Error())
	}
	var out []Event
	for obj := it.Next(); obj != nil && (limit == 0 || len(out) < limit); obj = it.Next() {
		out = append(out, *obj.(*Event))
	}
	return out
}

// LastEvent is the number of the newest event, 0 if there was none.
func (s *Snapshot) LastEvent() uint64 {
	p, _ := first[position](s, tIndex, "id", "log")
	return p.Seq
}

// GroupOf returns the group of the VC to which a VM belongs.
func (v VC) GroupOf(vm VM) (Group, bool) {
	if g := v.SharedGroup(vm.Group); g != nil {
		return *g, true
	}
	return Group{}, false
}

// SharedGroup returns the group of that name, which the caller must not change; nil if there is none, or no VC.
func (v *VC) SharedGroup(name string) *Group {
	if v == nil {
		return nil
	}
	for i := range v.Groups {
		if v.Groups[i].Name == name {
			return &v.Groups[i]
		}
	}
	return nil
}
