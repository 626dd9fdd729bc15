package state

import (
	"maps"
	"slices"
)

// kindsShareSince is the version of the format from which on the kinds of events share what is kept.
const kindsShareSince = 2

// The owners of events, tenants and the cluster, share keepEvents: while there are more, the owner of the most loses one. So an owner
// keeps at least keepEvents over the number of owners, whatever the others do, and more where they use less. The kinds of an owner's
// events share likewise: the kind with the most loses its oldest. So a script that creates and deletes pushes out no rare kind. For an
// entry of an older format the oldest event of all is dropped.

// ownEvents are how many events an owner has (Event.OwnerOf), and of each kind.
type ownEvents struct {
	sum   int
	kinds map[string]int
}

// eventCounts are how many events are kept. delta has the changes of a transaction until it is committed.
type eventCounts struct {
	kept  map[string]ownEvents // by owner; nil: not counted yet
	delta map[string]ownEvents // of the transaction
}

// begin is for a transaction: the same counts, and nothing beside them.
func (c eventCounts) begin() eventCounts { return eventCounts{c.kept, map[string]ownEvents{}} }

// commit takes what the transaction counted into the counts.
func (c eventCounts) commit() eventCounts {
	if c.kept == nil {
		return eventCounts{}
	}
	for owner, own := range c.delta {
		for kind, n := range own.kinds {
			count(c.kept, owner, kind, n)
		}
	}
	return eventCounts{kept: c.kept}
}

// count adds n events of a kind to those of an owner.
func count(in map[string]ownEvents, owner, kind string, n int) {
	own, there := in[owner]
	if !there {
		own.kinds = map[string]int{}
	}
	own.sum += n
	if own.kinds[kind] += n; own.kinds[kind] == 0 {
		delete(own.kinds, kind)
	}
	if in[owner] = own; len(own.kinds) == 0 {
		delete(in, owner)
	}
}

// maxOf is the highest of two sums of counts, and the first by name of several; total is the sum of all.
func maxOf[V any](kept, delta map[string]V, size func(V) int) (name string, total int) {
	highest := 0
	look := func(of string, n int) {
		if total += n; n > highest || n == highest && n > 0 && of < name {
			name, highest = of, n
		}
	}
	for of, v := range kept {
		look(of, size(v)+size(delta[of]))
	}
	for of, v := range delta {
		if _, there := kept[of]; !there {
			look(of, size(v))
		}
	}
	return name, total
}

// largest is the owner of the most events, and the kind of which that has most; total is how many events there are of all owners.
func (c eventCounts) largest() (owner, kind string, total int) {
	owner, total = maxOf(c.kept, c.delta, func(own ownEvents) int { return own.sum })
	kind, _ = maxOf(c.kept[owner].kinds, c.delta[owner].kinds, func(n int) int { return n })
	return owner, kind, total
}

// forgetEvents drops what is too much once there is a new event.
func (w *writer) forgetEvents(e *Event) {
	if w.version < kindsShareSince {
		w.cache.events = eventCounts{}
		if e.Seq > keepEvents {
			if old, ok := first[Event](w.read(), tEvents, "id", e.Seq-keepEvents); ok {
				w.drop(tEvents, &old)
			}
		}
		return
	}
	counts := &w.cache.events
	if counts.kept == nil { // all that are there, with the new one
		*counts = eventCounts{map[string]ownEvents{}, map[string]ownEvents{}}
		each(w.read(), func(e *Event) bool { count(counts.kept, e.OwnerOf(), e.Kind, 1); return true }, tEvents, "id")
	} else {
		count(counts.delta, e.OwnerOf(), e.Kind, 1)
	}
	for {
		owner, kind, total := counts.largest()
		if total <= keepEvents {
			return
		}
		old, ok := first[Event](w.read(), tEvents, "owner", ownKind(owner, kind))
		if !ok {
			panic("state: no event " + kind + " of " + owner + " is kept, of those that were counted")
		}
		w.drop(tEvents, &old)
		count(counts.delta, owner, kind, -1)
	}
}

// ownKind is the key of the events of a kind that an owner has.
func ownKind(owner, kind string) string { return owner + tenantSeparator + kind }

// ownerOf is the tenant that an operation belongs to; "" for those of the cluster.
func (op *Operation) ownerOf() string {
	if op.VC == "" {
		return ""
	}
	tenant, _ := SplitName(op.Name)
	return tenant
}

// forgetOperations drops operations beyond keepOperations: the oldest of the owners with the most. Age goes by log index. The id does
// not give the age: it carries the time by the proposer's clock, which may be set back.
func (w *writer) forgetOperations() {
	if w.cache.ops == unknown {
		w.cache.ops = 0
		each(w.read(), func(*Operation) bool { w.cache.ops++; return true }, tOps, "id")
	}
	if w.cache.ops <= keepOperations {
		return
	}
	if !w.read().HasTenants() {
		w.dropOperations(func(dropped int, _ string) bool { return dropped < w.cache.ops-keepOperations })
		return
	}
	excess := map[string]int{}
	each(w.read(), func(op *Operation) bool { excess[op.ownerOf()]++; return true }, tOps, "id")
	share := level(slices.Sorted(maps.Values(excess)), keepOperations)
	w.dropOperations(func(_ int, owner string) bool {
		excess[owner]--
		return excess[owner] >= share
	})
}

// dropOperations drops those that a function wants to be dropped. It is asked of each, the oldest first.
func (w *writer) dropOperations(drop func(dropped int, owner string) bool) {
	var old []*Operation
	each(w.read(), func(op *Operation) bool {
		if drop(len(old), op.ownerOf()) {
			old = append(old, op)
		}
		return true
	}, tOps, "age")
	for _, op := range old {
		w.drop(tOps, op)
	}
}

// level returns the highest limit such that the counts of a sorted list, each cut to the limit, add up to at most sum. Owners below the
// limit leave the rest of their share to the others.
func level(sorted []int, sum int) int {
	for i, n := range sorted {
		if share := sum / (len(sorted) - i); n > share {
			return share
		}
		sum -= n
	}
	return slices.Max(sorted)
}
