package state

import (
	memdb "github.com/hashicorp/go-memdb"

	"evenkeel/cluster/capacity"
)

// applyCache keeps rows and counts that Apply reads often. The state has all of them; the cache only saves lookups.
type applyCache struct {
	db      *memdb.MemDB   // the database whose rows are cached
	vcs     map[string]*VC // rows, by id; not all of them. nil: none are kept
	changed []string       // VCs that were put or dropped in the transaction
	ops     int            // operations that are kept, or unknown
	events  eventCounts
}

// begin is the cache of a transaction.
func (h applyCache) begin() applyCache {
	h.events = h.events.begin()
	return h
}

// unknown is an unknown number of operations.
const unknown = -1

// maxCached is how many VCs are cached; with more all are looked up again.
const maxCached = 1 << 16

func (h *applyCache) store(vc *VC) {
	if h.vcs == nil {
		return
	}
	if len(h.vcs) >= maxCached {
		clear(h.vcs)
	}
	h.vcs[vc.ID] = vc
}

// put takes in a row that is in the transaction now.
func (h *applyCache) put(row any) {
	if vc, is := row.(*VC); is {
		h.changed = append(h.changed, vc.ID)
		h.store(vc)
	}
}

// drop takes out a row that was in the transaction.
func (h *applyCache) drop(row any) {
	switch r := row.(type) {
	case *VC:
		h.changed = append(h.changed, r.ID)
		delete(h.vcs, r.ID)
	case *Operation:
		if h.ops != unknown {
			h.ops--
		}
	}
}

// putOperation writes an operation, and counts it.
func (w *writer) putOperation(op *Operation) {
	if _, there := peek[Operation](w.read(), tOps, "id", op.ID); !there && w.cache.ops != unknown {
		w.cache.ops++
	}
	w.put(tOps, op)
}

// cachedVC is SharedVC, nil if there is none. Looking VCs up in the tree takes most of the time of adding up a host's load.
func (w *writer) cachedVC(id string) *VC {
	if vc := w.cache.vcs[id]; vc != nil {
		return vc
	}
	vc, ok := w.read().SharedVC(id)
	if ok {
		w.cache.store(vc)
	}
	return vc
}

// ledgerOf is Snapshot.LedgerOf in the transaction.
func (w *writer) ledgerOf(host string) capacity.Ledger { return w.read().ledgerOf(host, w.cachedVC) }
