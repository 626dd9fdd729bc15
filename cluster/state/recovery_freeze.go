package state

import (
	"fmt"
	"io"
	"time"
)

// PrepareRestore copies a saved state so that it can be put in force again, on a cluster whose
// hosts went on without it: nothing is started or stopped until every host has said what it
// runs (design rule 1). Its epoch is above its own, above that of the state it replaces (now; nil if that is not
// known), and not below the seconds since 1970 at that time, so that it is new also where the newest state is not known.
// What renewals had said of watchdogs is forgotten. Hosts that came since it was saved are waited for as well: they
// may run its VMs. Who may come in is as it is now, and not as it was: members, the certificates that were
// revoked, and tokens; of another cluster's state that is put in force here, as it is now and as it was. Hosts in
// waitFor are waited for, too, and their agents listened to: somebody knows that they had joined, though neither state does.
// reason is a noun: "restore", "recovery".
func PrepareRestore(in io.Reader, out io.Writer, reason string, at time.Time, now *Snapshot, waitFor ...string) error {
	s, err := prepareRestore(in, reason, at, now, FormatVersion, waitFor...)
	if err != nil {
		return err
	}
	return s.Snapshot().Save(out)
}

// prepareRestore by a program that knows the format up to that version, as all programs do that apply an entry of it.
func prepareRestore(in io.Reader, reason string, at time.Time, now *Snapshot, version int, waitFor ...string) (*Store, error) {
	s := New()
	if err := s.restore(in, version); err != nil {
		return nil, err
	}
	w := newWriter(s.db.Txn(true), 0, at)
	w.index = w.pos.Index
	m, ok := w.read().Meta()
	if !ok {
		w.txn.Abort()
		return nil, fmt.Errorf("hold after %s: the saved state knows no cluster", reason)
	}
	var is Meta
	if now != nil {
		is, _ = now.Meta()
	}
	switch {
	case now == nil:
	case is.ID == m.ID:
		w.since(now)
	default:
		w.beside(now)
	}
	for _, name := range waitFor {
		if _, known := w.read().Host(name); !known {
			w.put(tHosts, &Host{Name: name, CreateIndex: w.index, Version: w.index})
		}
		if _, known := w.read().Member(name); !known {
			w.put(tMembers, &Member{Name: name, Agent: true, Format: version, JoinedAt: at, JoinIndex: w.index})
		}
	}
	m.Epoch = max(m.Epoch+1, is.Epoch+1, uint64(max(0, at.Unix())))
	m.RecoveryFreeze = RecoveryFreeze{}
	for _, h := range w.read().Hosts() {
		h.Fencing, h.Lost = Fencing{}, Loss{}
		w.put(tHosts, &h)
		m.RecoveryFreeze.Pending = append(m.RecoveryFreeze.Pending, h.Name)
	}
	if len(m.RecoveryFreeze.Pending) > 0 {
		m.RecoveryFreeze.Reason = reason
	}
	w.put(tMeta, &m)
	w.event("recovery-freeze-began", "cluster", m.ID, "%s: nothing is started or stopped until %d hosts have said what they run", reason, len(m.RecoveryFreeze.Pending))
	forgetRows(w, tRestore, every[restorePart])
	w.put(tIndex, &w.pos)
	w.txn.Commit()
	return s, nil
}

// beside the state of another cluster, which this one takes over, what holds of members, tokens and certificates is what
// both say: who restores it does not lose access by it, and the servers that there are stay servers.
func (w *writer) beside(now *Snapshot) {
	w.waitForNew(now)
	for _, m := range w.read().Members() { // what its servers know counts once they are here again
		m.Format = 0
		w.put(tMembers, &m)
	}
	for _, m := range now.Members() {
		w.put(tMembers, &m)
	}
	for _, t := range now.JoinTokens() {
		w.put(tTokens, &t)
	}
	for _, t := range now.Tokens() {
		w.put(tAdmins, &t)
	}
	for _, r := range now.RevokedCertificates() {
		w.put(tRevoked, &r)
	}
}

// waitForNew hosts, which the saved state does not know.
func (w *writer) waitForNew(now *Snapshot) {
	for _, h := range now.Hosts() {
		if _, known := w.read().Host(h.Name); !known {
			w.put(tHosts, &h)
		}
	}
}

// since the state was saved, hosts, members, certificates and tokens came and went: what holds of them is
// what now says.
func (w *writer) since(now *Snapshot) {
	w.waitForNew(now)
	replace(w, now, tMembers, (*Snapshot).Members)
	replace(w, now, tTokens, (*Snapshot).JoinTokens)
	replace(w, now, tAdmins, (*Snapshot).Tokens)
	for _, r := range now.RevokedCertificates() {
		w.put(tRevoked, &r)
	}
}

// replace the rows of a table by those of another state.
func replace[T any](w *writer, by *Snapshot, table string, rows func(*Snapshot) []T) {
	for _, row := range rows(w.read()) {
		w.drop(table, &row)
	}
	for _, row := range rows(by) {
		w.put(table, &row)
	}
}
