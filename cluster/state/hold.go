package state

import (
	"fmt"
	"io"
	"time"
)

// Held copies a saved state so that it can be put in force again, on a cluster whose
// hosts went on without it: nothing is started or stopped until every host has said what it
// runs (design rule 1). Its epoch is above its own, above floor (that of the state it replaces), and
// not below the seconds since 1970 at that time, so that it is new also where the newest state is not known.
// What renewals had said of watchdogs is forgotten. reason is a noun: "restore", "recovery".
func Held(in io.Reader, out io.Writer, reason string, at time.Time, floor uint64) error {
	s := New()
	if err := s.Restore(in); err != nil {
		return err
	}
	w := newWriter(s.db.Txn(true), 0, at)
	w.index = w.pos.Index
	m, ok := w.read().Meta()
	if !ok {
		w.txn.Abort()
		return fmt.Errorf("hold after %s: the saved state knows no cluster", reason)
	}
	m.Epoch = max(m.Epoch+1, floor+1, uint64(max(0, at.Unix())))
	m.Hold = Hold{}
	for _, h := range w.read().Hosts() {
		h.Fencing, h.Lost = Fencing{}, Loss{}
		w.put(tHosts, &h)
		m.Hold.Pending = append(m.Hold.Pending, h.Name)
	}
	if len(m.Hold.Pending) > 0 {
		m.Hold.Reason = reason
	}
	w.put(tMeta, &m)
	w.event("hold-began", "cluster", m.ID, "%s: nothing is started or stopped until %d hosts have said what they run", reason, len(m.Hold.Pending))
	w.put(tIndex, &w.pos)
	w.txn.Commit()
	return s.Snapshot().Save(out)
}
