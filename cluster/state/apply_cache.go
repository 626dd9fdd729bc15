package state

import memdb "github.com/hashicorp/go-memdb"

// atHand is what who applies knows of the state besides the state itself: it says nothing that is not in there, and saves looking for it.
type atHand struct {
	db      *memdb.MemDB   // that it is of
	seen    map[string]*VC // rows, by id; not all of them. nil: none are kept
	changed []string       // VCs that were put or dropped in the transaction
	ops     int            // operations that are kept, or unknown
}

// unknown number of operations.
const unknown = -1

// mostSeen is how many VCs are kept at hand; with more all are looked up anew.
const mostSeen = 1 << 16

func (h *atHand) see(vc *VC) {
	if h.seen == nil {
		return
	}
	if len(h.seen) >= mostSeen {
		clear(h.seen)
	}
	h.seen[vc.ID] = vc
}

// put a row that is in the transaction now.
func (h *atHand) put(row any) {
	if vc, is := row.(*VC); is {
		h.changed = append(h.changed, vc.ID)
		h.see(vc)
	}
}

// drop a row that was in the transaction.
func (h *atHand) drop(row any) {
	switch r := row.(type) {
	case *VC:
		h.changed = append(h.changed, r.ID)
		delete(h.seen, r.ID)
	case *Operation:
		if h.ops != unknown {
			h.ops--
		}
	}
}

// putOperation keeps an operation, and counts it.
func (w *writer) putOperation(op *Operation) {
	if _, there := peek[Operation](w.read(), tOps, "id", op.ID); !there && w.hand.ops != unknown {
		w.hand.ops++
	}
	w.put(tOps, op)
}

// seeVC is SeeVC, nil if there is none. Looking VCs up in the tree takes most of the time of adding up a host's load.
func (w *writer) seeVC(id string) *VC {
	if vc := w.hand.seen[id]; vc != nil {
		return vc
	}
	vc, ok := w.read().SeeVC(id)
	if ok {
		w.hand.see(vc)
	}
	return vc
}

// loadOf is Snapshot.LoadOf in the transaction.
func (w *writer) loadOf(host string) Load { return w.read().loadOf(host, w.seeVC) }
