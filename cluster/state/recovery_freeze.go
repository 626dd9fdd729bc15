package state

import (
	"fmt"
	"io"
	"time"
)

// PrepareRestore copies a saved state so that it can be put in force again, on a cluster whose hosts went on without it.
// Nothing is started or stopped until every host has reported what it runs.
//
// The epoch of the copy is above the saved one, above that of the state it replaces (now; nil if that is not known), and not
// below the seconds since 1970 at that time. So it is new also where the newest state is not known.
//
// The copy drops what lease renewals had reported of how hosts enforce their leases, watchdogs included (Host.Fencing), and every
// proof that a host was lost. The recovery freeze waits also for hosts that joined since the state was saved: they may run its VMs.
// Members, revoked certificates and tokens decide who may connect. Of these the copy has the current ones, not the saved ones. If the
// saved state is another cluster's, it has both: see beside. The recovery freeze waits for the hosts in waitFor, too, and the cluster
// accepts their agents: an operator knows that they had joined, though neither state does.
//
// reason is a noun: "restore", "recovery".
func PrepareRestore(in io.Reader, out io.Writer, reason string, at time.Time, now *Snapshot, waitFor ...string) error {
	s, err := prepareRestore(in, reason, at, now, FormatVersion, waitFor...)
	if err != nil {
		return err
	}
	return s.Snapshot().Save(out)
}

// prepareRestore is PrepareRestore for a log entry of that format version. Every program that applies such an entry knows the format up
// to that version.
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

// beside adds the members, tokens and certificates of the present cluster to the saved state of another cluster that replaces it. So
// the operator who restores keeps access, and the present servers stay servers. Tokens of tenants are left out.
func (w *writer) beside(now *Snapshot) {
	w.waitForNew(now)
	for _, m := range w.read().Members() { // a saved member's format counts again once its server has joined here
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
		if t.Tenant == "" { // a tenant of the same name in the other cluster is another one
			w.put(tAdmins, &t)
		}
	}
	w.bindingsBeside(now)
	for _, r := range now.RevokedCertificates() {
		w.put(tRevoked, &r)
	}
}

// waitForNew makes the recovery freeze wait for hosts that the saved state does not know.
func (w *writer) waitForNew(now *Snapshot) {
	for _, h := range now.Hosts() {
		if _, known := w.read().Host(h.Name); !known {
			w.put(tHosts, &h)
		}
	}
}

// since brings the saved state of this same cluster up to date: members, hosts, certificates, tokens and role bindings came and went
// since. Members, tokens and role bindings become those of now. The present rows of tenants, hosts that joined since, and revocations
// of certificates and of users' tokens are added to the saved ones.
func (w *writer) since(now *Snapshot) {
	w.waitForNew(now)
	replace(w, now, tMembers, (*Snapshot).Members)
	replace(w, now, tTokens, (*Snapshot).JoinTokens)
	replace(w, now, tAdmins, (*Snapshot).Tokens)
	w.tenantsSince(now)
	if w.read().readable(FormatVersion) < versionsSince {
		w.dropAllVersions()
		w.dropPeriodic()
	}
	w.bindingsSince(now)
	for _, r := range now.RevokedCertificates() {
		w.put(tRevoked, &r)
	}
}

// replace replaces the rows of a table by those of another state.
func replace[T any](w *writer, by *Snapshot, table string, rows func(*Snapshot) []T) {
	for _, row := range rows(w.read()) {
		w.drop(table, &row)
	}
	for _, row := range rows(by) {
		w.put(table, &row)
	}
}
