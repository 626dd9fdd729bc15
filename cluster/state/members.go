package state

import (
	"crypto/subtle"
	"fmt"
	"slices"
	"time"
)

// MemberDrop takes a member out of the cluster and revokes its certificates. The row of the member's host goes too; that host must have
// no VM. If the host is proved dead, its deleted VMs go too: no agent is left to clear them away.
type MemberDrop struct {
	Name string `json:"name"`
}

// Join lets a member in on a token, once. The proposer's clock decides whether the token has expired.
type Join struct {
	Token  string `json:"token"` // id
	Hash   string `json:"hash"`  // of the secret that was shown
	Member Member `json:"member"`
	// Machine is the run of the machine that the member is on. If it is the run in which the host's agent last renewed the lease, the
	// host's VMs run there and nowhere else: see CheckJoin.
	Machine Machine `json:"machine,omitzero"`
}

// Certificate records that a certificate was issued to a member.
type Certificate struct {
	Member string `json:"member"`
	Serial Serial `json:"serial"`
}

// Audit records an event that the cluster's own state does not show: a connection
// refused, a fence device tried.
type Audit struct {
	Kind   string `json:"kind"`
	Object string `json:"object"`
	Name   string `json:"name"`
	Text   string `json:"text"`
}

// Members returns the members in order of their names.
func (s *Snapshot) Members() []Member { return all[Member](s, tMembers, "id") }

// Member returns the member of that name.
func (s *Snapshot) Member(name string) (Member, bool) { return first[Member](s, tMembers, "id", name) }

// JoinTokens returns the join tokens in order of their ids.
func (s *Snapshot) JoinTokens() []JoinToken { return all[JoinToken](s, tTokens, "id") }

// JoinToken returns the join token of that id.
func (s *Snapshot) JoinToken(id string) (JoinToken, bool) {
	return first[JoinToken](s, tTokens, "id", id)
}

// Revoked says whether the certificate of that number is revoked.
func (s *Snapshot) Revoked(number string) bool {
	_, gone := first[Revoked](s, tRevoked, "id", number)
	return gone
}

// RevokedCertificates returns the revoked certificates in order of their numbers.
func (s *Snapshot) RevokedCertificates() []Revoked { return all[Revoked](s, tRevoked, "id") }

// Format is the version of the log and of snapshots that every server can read. While servers are upgraded it is that of the
// older ones, so that any server can take over from any other.
func (s *Snapshot) Format() int { return s.readable(FormatVersion) }

// readable is Format for a program that knows the versions up to newest.
func (s *Snapshot) readable(newest int) int {
	// It is asked for every command.
	if m, ok := peek[Member](s, tMembers, "format"); ok {
		return min(newest, m.Format)
	}
	return newest
}

func (w *writer) memberPut(b *Member) error {
	old, known := w.read().Member(b.Name)
	m := *b
	if err := w.refuseOlderServer(m); err != nil {
		return err
	}
	if !known && m.JoinIndex != 0 { // a row that was read before the member was removed
		return fmt.Errorf("member %s: %w", b.Name, ErrNotFound)
	}
	m.JoinedAt, m.JoinIndex = w.at, w.index
	if known {
		m.JoinedAt, m.JoinIndex, m.Serials = old.JoinedAt, old.JoinIndex, old.Serials
	}
	w.put(tMembers, &m)
	if m.Server && m.Format > 0 && m.Format < versionsSince {
		w.dropAllVersions()
		w.dropPeriodic()
	}
	switch {
	case !known:
		w.event("member-joined", "member", m.Name, "%s at %s", rolesOf(m), m.Address)
	case old.Address != m.Address:
		w.event("member-moved", "member", m.Name, "now at %s", m.Address)
	case old.Version != m.Version:
		w.event("member-upgraded", "member", m.Name, "runs %s now", m.Version)
	}
	return nil
}

func rolesOf(m Member) string {
	switch {
	case m.Server && m.Agent:
		return "server and agent"
	case m.Server:
		return "server"
	}
	return "agent"
}

func (w *writer) memberDrop(b *MemberDrop) error {
	m, ok := w.read().Member(b.Name)
	if !ok {
		return fmt.Errorf("member %s: %w", b.Name, ErrNotFound)
	}
	if meta, _ := w.read().Meta(); slices.Contains(meta.RecoveryFreeze.Pending, b.Name) {
		return fmt.Errorf("member %s: its host has not said yet what it runs after the %s; confirm first that it is dead: %w", b.Name, meta.RecoveryFreeze.Reason, ErrConflict)
	}
	if h, ok := w.read().Host(b.Name); ok {
		on, to := w.leaveDead(h, w.read().VMsOn(b.Name)), w.read().VMsMovingTo(b.Name)
		if n := len(on) + len(to); n > 0 {
			return fmt.Errorf("member %s: its host has %d VMs: %w", b.Name, n, ErrInUse)
		}
		w.drop(tHosts, &h)
		w.pos.Placement = w.index
	}
	for _, s := range m.Serials {
		w.put(tRevoked, &Revoked{Number: s.Number, Name: m.Name, Until: s.Until})
	}
	w.drop(tMembers, &m)
	w.event("member-removed", "member", m.Name, "it was %s; its certificates count no more", rolesOf(m))
	return nil
}

// LeavesWith says whether a VM leaves the state with its host when that is removed: the VM is deleted, it is proved not to run,
// and the host is dead, so that no agent is left to clear the VM away. The end of a lease says nothing of a host's disks.
func (v VM) LeavesWith(h Host) bool {
	return (h.Lost.Proof == ProofOperator || h.Lost.Proof == ProofFence) && v.Goal == GoalDelete && !v.ConsumesResources() && v.Host == h.Name && v.MovingTo == ""
}

// leaveDead drops the VMs that leave the state with their dead host (see LeavesWith), and returns the others.
func (w *writer) leaveDead(h Host, on []VM) (left []VM) {
	for _, vm := range on {
		if !vm.LeavesWith(h) {
			left = append(left, vm)
			continue
		}
		w.drop(tVMs, &vm)
		w.event("vm-deleted", "vm", vm.Name, "left behind on host %s, which is dead: %s", h.Name, h.Lost.Text)
		w.sweep(vm.VC)
	}
	return left
}

func (w *writer) tokenPut(b *JoinToken) error {
	t := *b
	t.MadeAt, t.UsedBy, t.UsedAt = w.at, "", time.Time{}
	if _, taken := w.read().JoinToken(t.ID); taken {
		return fmt.Errorf("join token %s exists already: %w", t.ID, ErrConflict)
	}
	w.put(tTokens, &t)
	w.event("join-token-made", "cluster", t.ID, "join token for one %s, until %s", rolesOf(Member{Server: t.Server, Agent: t.Agent}), t.Until.UTC().Format(time.RFC3339))
	return nil
}

// ErrToken says that the join token is not known, used, expired, for fewer rights, for another member, or shown with the wrong secret.
var ErrToken = fmt.Errorf("join token refused")

// noHash stands for the hash of a token that is not known. No secret has it, and comparing with it takes as long as with a token's.
const noHash = "0000000000000000000000000000000000000000000000000000000000000000"

// Admits says whether the token admits a member that showed a secret of that hash: nil, or an error that wraps ErrToken. The
// zero token stands for one that is not known. The secret is compared in constant time, and first, whatever else is wrong.
func (t JoinToken) Admits(hash string, m Member, at time.Time) error {
	known := t.Hash
	if known == "" {
		known = noHash
	}
	match := subtle.ConstantTimeCompare([]byte(known), []byte(hash)) == 1
	refuse := func(why string) error { return fmt.Errorf("join token %s %s: %w", t.ID, why, ErrToken) }
	switch {
	case t.ID == "":
		return fmt.Errorf("a join token that is not known: %w", ErrToken)
	case !match:
		return refuse("came with the wrong secret")
	case t.UsedBy != "":
		return refuse("was used by " + t.UsedBy + " already")
	case at.After(t.Until):
		return refuse("ended at " + t.Until.UTC().Format(time.RFC3339))
	case m.Server && !t.Server || m.Agent && !t.Agent:
		return refuse("gives fewer rights")
	case t.For != "" && t.For != m.Name:
		return refuse("is for member " + t.For)
	}
	return nil
}

// RunsOn says whether m is the run of the machine in which the host's agent last renewed its lease.
func (h Host) RunsOn(m Machine) bool { return m.ID != "" && m.Boot != "" && m == h.Machine }

// CheckJoin says why a new member may not take the name of a member that is in the cluster, with a token that admits it: nil, or an
// error that wraps ErrConflict. The new member may be another machine. Then the cluster would take VMs that the old machine runs for
// ended, because the new one does not list them. So while its host has VMs, the name goes only to the run of the machine in which the
// agent last renewed the host's lease: what the hypervisor lists there is what became of the VMs. docs/explanation/safety.md has the
// argument.
func (s *Snapshot) CheckJoin(b Join) error {
	m := b.Member
	t, _ := s.JoinToken(b.Token)
	if _, known := s.Member(m.Name); !known {
		return nil
	}
	if t.For == "" {
		return fmt.Errorf("member %s is in the cluster already; remove it first, or let it in again with a token of its own (vcctl cluster join-token --for %s): %w", m.Name, m.Name, ErrConflict)
	}
	h, _ := s.Host(m.Name)
	meta, _ := s.Meta()
	// A host that has yet to send its inventory after a restore is an exception: the state's account of its VMs does not count. The
	// inventory of the new member then says what runs under that name. So it must be the same machine, or the old one must be off.
	if slices.Contains(meta.RecoveryFreeze.Pending, m.Name) || h.RunsOn(b.Machine) {
		return nil
	}
	for _, vm := range append(s.VMsOn(m.Name), s.VMsMovingTo(m.Name)...) {
		if !vm.ConsumesResources() {
			continue
		}
		why := "this machine is not known to be the one they run on: turn that one off"
		switch is := h.Machine; {
		case is == (Machine{}) || b.Machine == (Machine{}):
		case is.ID != b.Machine.ID:
			why = "this is another machine than the one they run on: turn that one off"
		default:
			why = "this machine was started again since they ran on it, and none of them runs"
		}
		return fmt.Errorf("member %s: its host holds VM %s and perhaps others, and %s, say so (vcctl host confirm-dead %s), and join again: %w", m.Name, vm.Name, why, m.Name, ErrConflict)
	}
	return nil
}

func (w *writer) join(b *Join) error {
	m := b.Member
	t, _ := w.read().JoinToken(b.Token)
	if err := t.Admits(b.Hash, m, w.at); err != nil {
		return fmt.Errorf("member %s: %w", m.Name, err)
	}
	if err := w.read().CheckJoin(*b); err != nil {
		return err
	}
	if old, known := w.read().Member(m.Name); known {
		if h, is := w.read().Host(m.Name); is && h.RunsOn(b.Machine) && h.Fencing != (Fencing{}) {
			h.Fencing = Fencing{} // what the agent before it reported of its lease proves nothing of the one to come
			w.put(tHosts, &h)
		}
		for _, s := range old.Serials {
			w.put(tRevoked, &Revoked{Number: s.Number, Name: old.Name, Until: s.Until})
		}
		old.Serials = nil
		w.put(tMembers, &old)
		w.event("member-rejoined", "member", m.Name, "let in again as %s at %s; its old certificates count no more", rolesOf(m), m.Address)
	}
	t.UsedBy, t.UsedAt = m.Name, w.at
	w.put(tTokens, &t)
	return w.memberPut(&m)
}

// MaxSerials is how many certificates that have not expired a member may have. All of them are revoked with it.
const MaxSerials = 16

// Certificates returns how many certificates of the member have not expired.
func (m Member) Certificates(at time.Time) (n int) {
	for _, s := range m.Serials {
		if !at.After(s.Until) {
			n++
		}
	}
	return n
}

// Has says whether the certificate of that number is recorded as the member's.
func (m Member) Has(number string) bool {
	return slices.ContainsFunc(m.Serials, func(s Serial) bool { return s.Number == number })
}

func (w *writer) certificate(b *Certificate) error {
	m, ok := w.read().Member(b.Member)
	if !ok {
		return fmt.Errorf("member %s: %w", b.Member, ErrNotFound)
	}
	m.Serials = slices.DeleteFunc(slices.Clone(m.Serials), func(s Serial) bool { return w.at.After(s.Until) })
	renewed := len(m.Serials) > 0
	if len(m.Serials) >= MaxSerials {
		return fmt.Errorf("member %s has %d certificates that have not ended: %w", m.Name, len(m.Serials), ErrConflict)
	}
	m.Serials = append(m.Serials, b.Serial)
	w.put(tMembers, &m)
	if renewed {
		w.event("certificate-renewed", "member", m.Name, "certificate %s, until %s", b.Serial.Number, b.Serial.Until.UTC().Format(time.RFC3339))
	}
	return nil
}
