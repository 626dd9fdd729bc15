package state

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// SubjectKind is what a role can be bound to.
type SubjectKind string

// The kinds of subjects.
const (
	SubjectUser  SubjectKind = "user"  // of the issuer of OpenID Connect, by its claim sub
	SubjectGroup SubjectKind = "group" // of the issuer, by its name
	SubjectToken SubjectKind = "token" // of the API, by its id
)

// SubjectKinds returns all kinds of subjects.
func SubjectKinds() []SubjectKind { return []SubjectKind{SubjectUser, SubjectGroup, SubjectToken} }

// Subject is who a role can be bound to. Users and groups of different issuers are different subjects.
type Subject struct {
	Kind   SubjectKind `json:"kind"`
	Issuer string      `json:"issuer,omitempty"` // of users and groups
	Name   string      `json:"name"`             // sub, the name of the group, or the id of the token
}

// key of a subject in the index. No part has a control character.
func (s Subject) key() string { return string(s.Kind) + "\x01" + s.Issuer + "\x01" + s.Name }

// String names a subject in events: ASCII, the same on every server.
func (s Subject) String() string { return string(s.Kind) + " " + strconv.QuoteToASCII(s.Name) }

// RoleBinding gives a subject a role, in the cluster or in a tenant. A subject has at most one in each.
type RoleBinding struct {
	ID      string  `json:"id"` // BindingID of subject and tenant
	Subject Subject `json:"subject"`
	Role    Role    `json:"role"`
	Tenant  string  `json:"tenant,omitempty"` // "": the cluster
	// MadeAt is the time of the last log entry that set the role; MadeBy is the caller that asked for it, as audit.Actor writes it.
	MadeAt time.Time `json:"madeAt"`
	MadeBy string    `json:"madeBy,omitempty"`
}

// BindingID is the id of the binding of a subject in a tenant, 16 hex digits. It follows from them, so that a subject has one
// binding there.
func BindingID(s Subject, tenant string) string {
	sum := sha256.Sum256([]byte(s.key() + "\x01" + tenant))
	return hex.EncodeToString(sum[:8])
}

// RoleDrop takes a binding away.
type RoleDrop struct {
	ID string `json:"id"`
	By string `json:"by,omitempty"` // the caller, as audit.Actor writes it
}

// Revocation refuses the tokens that the issuer of OpenID Connect made for a user before a time.
type Revocation struct {
	ID      string    `json:"id"` // of the user, as the audit log and the API have it: oidc:HASH
	Subject string    `json:"subject"`
	Before  time.Time `json:"before"` // tokens that were issued earlier are refused
	// MadeAt is the time of the log entry.
	MadeAt time.Time `json:"madeAt,omitzero"`
	MadeBy string    `json:"madeBy,omitempty"`
}

// MaxTokenLife is how long after it was issued a token of OpenID Connect is accepted at most, whatever a server's configuration
// says. A revocation serves as long.
const MaxTokenLife = 7 * 24 * time.Hour

// Limits of bindings and revocations.
const (
	MaxRoleBindings = 1000 // rows of the cluster's own
	// maxTenantBindings is how many bindings a tenant may have. They do not count against MaxRoleBindings, as tokens do not.
	maxTenantBindings = 100
	maxSubject        = 255    // bytes
	maxIssuer         = 2048   // bytes
	maxRevocations    = 10_000 // rows
)

// SubjectNameRule says what names of subjects are valid.
const SubjectNameRule = "must be 1 to 255 bytes of UTF-8 without control characters"

// ValidSubjectName says whether a name keeps SubjectNameRule.
func ValidSubjectName(name string) bool {
	return name != "" && len(name) <= maxSubject && utf8.ValidString(name) && strings.IndexFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) < 0
}

func (b *RoleBinding) valid() error {
	refuse := func(field, text string) error {
		return fmt.Errorf("role binding %q: %s %s: %w", b.ID, field, text, ErrInvalid)
	}
	ofIssuer := b.Subject.Kind != SubjectToken
	switch {
	case !slices.Contains(SubjectKinds(), b.Subject.Kind):
		return refuse("subject kind", fmt.Sprintf("%q is not known", b.Subject.Kind))
	case !ValidSubjectName(b.Subject.Name):
		return refuse("subject name", SubjectNameRule)
	case ofIssuer != (b.Subject.Issuer != "") || len(b.Subject.Issuer) > maxIssuer || !isPrintable(b.Subject.Issuer):
		return refuse("subject issuer", "is needed with a user and a group alone: at most 2048 printable ASCII characters")
	case b.ID != BindingID(b.Subject, b.Tenant):
		return refuse("id", "is not that of subject and tenant")
	case b.Tenant == "" && !slices.Contains(Roles(), b.Role):
		return refuse("role", fmt.Sprintf("%q is not known to the cluster", b.Role))
	case b.Tenant != "" && !slices.Contains(TenantRoles(), b.Role):
		return refuse("role", fmt.Sprintf("%q is not known to tenants", b.Role))
	case len(b.MadeBy) > maxMadeBy || !isPrintable(b.MadeBy):
		return refuse("madeBy", "must be at most 200 printable ASCII characters")
	}
	return nil
}

func (d *RoleDrop) valid() error {
	if len(d.By) > maxMadeBy || !isPrintable(d.By) {
		return fmt.Errorf("role binding %q: by must be at most 200 printable ASCII characters: %w", d.ID, ErrInvalid)
	}
	return check("role binding", d.ID, "id", d.ID)
}

func (r *Revocation) valid() error {
	switch {
	case len(r.ID) > maxSubject || !isPrintable(r.ID) || len(r.Subject) > maxSubject || !isPrintable(r.Subject):
		return fmt.Errorf("revocation of %q: id and subject must be at most %d printable ASCII characters: %w", r.ID, maxSubject, ErrInvalid)
	case len(r.MadeBy) > maxMadeBy || !isPrintable(r.MadeBy):
		return fmt.Errorf("revocation of %q: madeBy must be at most 200 printable ASCII characters: %w", r.ID, ErrInvalid)
	}
	return check("revocation", r.Subject, "id", r.ID, "subject", r.Subject)
}

// RoleBindings returns the bindings in order of their ids.
func (s *Snapshot) RoleBindings() []RoleBinding { return all[RoleBinding](s, tRoleBindings, "id") }

// RoleBinding returns the binding of that id.
func (s *Snapshot) RoleBinding(id string) (RoleBinding, bool) {
	return first[RoleBinding](s, tRoleBindings, "id", id)
}

// BindingsOf a subject, in order of their ids.
func (s *Snapshot) BindingsOf(of Subject) []RoleBinding {
	return all[RoleBinding](s, tRoleBindings, "subject", of.key())
}

// HasRoleBindings says whether there is any binding.
func (s *Snapshot) HasRoleBindings() bool {
	_, any := final[RoleBinding](s, tRoleBindings, "id")
	return any
}

// bindingsIn is how many bindings a tenant has; "": the cluster.
func (s *Snapshot) bindingsIn(tenant string) (n int) {
	each(s, func(*RoleBinding) bool { n++; return true }, tRoleBindings, "tenant", tenant)
	return n
}

// Revocations returns the revocations in order of their ids.
func (s *Snapshot) Revocations() []Revocation { return all[Revocation](s, tRevocations, "id") }

// Revocation returns that of the user of that id.
func (s *Snapshot) Revocation(id string) (Revocation, bool) {
	return first[Revocation](s, tRevocations, "id", id)
}

// CheckRolePut says why a role cannot be bound; nil if it can.
func (s *Snapshot) CheckRolePut(b RoleBinding) error {
	if err := b.valid(); err != nil {
		return err
	}
	if b.Tenant != "" {
		if of, ok := s.Tenant(b.Tenant); !ok || !s.HasTenants() {
			return fmt.Errorf("tenant %s: %w", b.Tenant, ErrNotFound)
		} else if of.Suspended {
			return fmt.Errorf("tenant %s is %w", b.Tenant, ErrSuspended)
		}
	}
	if b.Subject.Kind == SubjectToken {
		if _, there := s.Token(b.Subject.Name); !there {
			return fmt.Errorf("token %s: %w", b.Subject.Name, ErrNotFound)
		}
	}
	if _, there := s.RoleBinding(b.ID); there {
		return nil
	}
	limit := MaxRoleBindings
	if b.Tenant != "" {
		limit = maxTenantBindings
	}
	if n := s.bindingsIn(b.Tenant); n >= limit {
		return fmt.Errorf("there are %d role bindings here already, and no more than %d are kept; revoke some first: %w", n, limit, ErrConflict)
	}
	return nil
}

// CheckRoleDrop returns the binding that would go, or why it cannot.
func (s *Snapshot) CheckRoleDrop(d RoleDrop) (RoleBinding, error) {
	b, ok := s.RoleBinding(d.ID)
	if !ok {
		return b, fmt.Errorf("role binding %s: %w", d.ID, ErrNotFound)
	}
	return b, nil
}

// CheckRevocation says why a user cannot be revoked; nil if it can.
func (s *Snapshot) CheckRevocation(r Revocation) error {
	if err := r.valid(); err != nil {
		return err
	}
	if _, there := s.Revocation(r.ID); there {
		return nil
	}
	n := 0
	each(s, func(*Revocation) bool { n++; return true }, tRevocations, "id")
	if n >= maxRevocations {
		return fmt.Errorf("there are %d revocations already, and no more than %d are kept: each ends after %s: %w", n, maxRevocations, MaxTokenLife, ErrConflict)
	}
	return nil
}

func (b RoleBinding) where() string {
	if b.Tenant == "" {
		return "in the cluster"
	}
	return "in tenant " + b.Tenant
}

func (w *writer) rolePut(put *RoleBinding) error {
	b := *put
	if err := w.read().CheckRolePut(b); err != nil {
		return err
	}
	b.MadeAt = w.at
	was := ""
	if old, there := w.read().RoleBinding(b.ID); there {
		was = fmt.Sprintf(", it was %s", old.Role)
	}
	w.put(tRoleBindings, &b)
	w.event("role-granted", "role-binding", b.ID, "%s has role %s %s%s%s", b.Subject, b.Role, b.where(), was, askedBy(b.MadeBy))
	return nil
}

func (w *writer) roleDrop(d *RoleDrop) error {
	b, err := w.read().CheckRoleDrop(*d)
	if err != nil {
		return err
	}
	w.drop(tRoleBindings, &b)
	w.event("role-revoked", "role-binding", b.ID, "%s has role %s %s no longer%s", b.Subject, b.Role, b.where(), askedBy(d.By))
	return nil
}

// dropBindings drops the bindings that go with a token or a tenant.
func (w *writer) dropBindings(rows []RoleBinding) {
	for _, b := range rows {
		w.drop(tRoleBindings, &b)
	}
}

func (w *writer) subjectRevoke(b *Revocation) error {
	if err := w.read().CheckRevocation(*b); err != nil {
		return err
	}
	r := *b
	r.MadeAt = w.at
	if old, there := w.read().Revocation(r.ID); there && old.Before.After(r.Before) {
		r.Before = old.Before
	}
	w.put(tRevocations, &r)
	w.event("user-revoked", "user", r.ID, "tokens that were issued to the user %s before %s are refused%s", strconv.QuoteToASCII(r.Subject), r.Before.UTC().Format(time.RFC3339), askedBy(r.MadeBy))
	return nil
}

// forgetRevocations drops revocations that refuse no token any more: every token issued before them is older than MaxTokenLife. The
// extra day allows for wrong clocks.
func (w *writer) forgetRevocations() {
	forgetRows(w, tRevocations, func(r *Revocation) bool { return w.at.Sub(r.Before) > MaxTokenLife+24*time.Hour })
}

// bindingsSince replaces the bindings of a saved state by those of now, as for tokens. Of the two revocations of a user the later one
// stays.
func (w *writer) bindingsSince(now *Snapshot) {
	replace(w, now, tRoleBindings, (*Snapshot).RoleBindings)
	w.revocationsOf(now)
}

// bindingsBeside adds the present cluster's own bindings, and its revocations, to the state of another cluster that replaces it. It
// leaves bindings in tenants out: a tenant of the same name in the other cluster is another one.
func (w *writer) bindingsBeside(now *Snapshot) {
	for _, b := range now.RoleBindings() {
		if b.Tenant == "" {
			w.put(tRoleBindings, &b)
		}
	}
	w.revocationsOf(now)
}

func (w *writer) revocationsOf(now *Snapshot) {
	for _, r := range now.Revocations() {
		if saved, there := w.read().Revocation(r.ID); !there || saved.Before.Before(r.Before) {
			w.put(tRevocations, &r)
		}
	}
}
