package state

import (
	"maps"
	"slices"
)

// What is kept of the past is divided among tenants and the cluster: the owner of the most loses its oldest. So a
// tenant keeps its share, keepEvents over the number of those that have events, whatever the others do; and it keeps more where they
// use less. Before there are tenants the oldest event of all goes, as in servers that do not know tenants.

// eventCounts are how many events are kept of each owner (Event.OwnerOf). A transaction counts beside them until it is committed.
type eventCounts struct {
	kept  map[string]int // nil: not counted yet
	delta map[string]int // of the transaction
}

// begin is for a transaction: the same counts, and nothing beside them.
func (c eventCounts) begin() eventCounts { return eventCounts{c.kept, map[string]int{}} }

// commit takes what the transaction counted into the counts.
func (c eventCounts) commit() eventCounts {
	if c.kept == nil {
		return eventCounts{}
	}
	for owner, n := range c.delta {
		if c.kept[owner] += n; c.kept[owner] == 0 {
			delete(c.kept, owner)
		}
	}
	return eventCounts{kept: c.kept}
}

// largest is the owner of the most events, the first by name of several; total is how many there are.
func (c eventCounts) largest() (owner string, total int) {
	highest := 0
	look := func(of string, n int) {
		if total += n; n > highest || n == highest && n > 0 && of < owner {
			owner, highest = of, n
		}
	}
	for of, n := range c.kept {
		look(of, n+c.delta[of])
	}
	for of, n := range c.delta {
		if _, there := c.kept[of]; !there {
			look(of, n)
		}
	}
	return owner, total
}

// forgetEvents drops what is too much once there is a new event.
func (w *writer) forgetEvents(e *Event) {
	if !w.read().HasTenants() {
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
		kept := map[string]int{}
		each(w.read(), func(e *Event) bool { kept[e.OwnerOf()]++; return true }, tEvents, "id")
		*counts = eventCounts{kept, map[string]int{}}
	} else {
		counts.delta[e.OwnerOf()]++
	}
	for {
		owner, total := counts.largest()
		if total <= keepEvents {
			return
		}
		old, ok := first[Event](w.read(), tEvents, "owner", owner)
		if !ok {
			panic("state: no event of " + owner + " is kept, of those that were counted")
		}
		w.drop(tEvents, &old)
		counts.delta[owner]--
	}
}

// ownerOf is the tenant that an operation belongs to; "" for those of the cluster.
func (op *Operation) ownerOf() string {
	if op.VC == "" {
		return ""
	}
	tenant, _ := SplitName(op.Name)
	return tenant
}

// forgetOperations drops the oldest operations where there are more than keepOperations, of those who have the most. The index of an
// operation gives its age: its id carries the time by the clock of the member that proposed it, and that clock may be set back.
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

// level is the highest number to which those of a sorted list can be cut so that they add up to at most a sum: what each of many may
// keep, where those with less leave the rest to the others.
func level(sorted []int, sum int) int {
	for i, n := range sorted {
		if share := sum / (len(sorted) - i); n > share {
			return share
		}
		sum -= n
	}
	return slices.Max(sorted)
}
