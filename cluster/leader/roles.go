package leader

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"evenkeel/cluster/state"
)

// BindingsOf subjects, as this server's state has them: those in the cluster first, then by tenant.
func (c *Service) BindingsOf(subjects ...state.Subject) (out []state.RoleBinding) {
	s := c.o.State.Snapshot()
	if !s.HasRoleBindings() {
		return nil
	}
	for _, of := range subjects {
		out = append(out, s.BindingsOf(of)...)
	}
	slices.SortStableFunc(out, func(a, b state.RoleBinding) int { return strings.Compare(a.Tenant, b.Tenant) })
	return out
}

// RoleBinding of that id, as this server's state has it.
func (c *Service) RoleBinding(id string) (state.RoleBinding, bool) {
	return c.o.State.Snapshot().RoleBinding(id)
}

// Revocation of the user of that id, as this server's state has it.
func (c *Service) Revocation(id string) (state.Revocation, bool) {
	return c.o.State.Snapshot().Revocation(id)
}

// GrantRole binds a role, or changes the role of the binding that there is; made says which. dryRun: only say whether it could be.
func (c *Service) GrantRole(ctx context.Context, b state.RoleBinding, dryRun bool) (_ state.RoleBinding, made bool, err error) {
	b.ID = state.BindingID(b.Subject, b.Tenant)
	s := c.o.State.Snapshot()
	_, there := s.RoleBinding(b.ID)
	if !state.ValidSubjectName(b.Subject.Name) {
		return b, false, &Invalid{Fields: []FieldError{{Field: "subject.name", Text: state.SubjectNameRule}}}
	}
	if err := s.CheckRolePut(b); err != nil || dryRun {
		return b, !there, err
	}
	if err := c.propose(ctx, state.KindRolePut, b); err != nil {
		return b, false, fmt.Errorf("bind role %s to %s: %w", b.Role, b.Subject, err)
	}
	row, _ := c.RoleBinding(b.ID)
	return row, !there, nil
}

// RevokeRole takes a binding away, and returns it. dryRun: only say whether it could be.
func (c *Service) RevokeRole(ctx context.Context, d state.RoleDrop, dryRun bool) (state.RoleBinding, error) {
	b, err := c.o.State.Snapshot().CheckRoleDrop(d)
	if err != nil || dryRun {
		return b, err
	}
	return b, c.propose(ctx, state.KindRoleDrop, d)
}

// RevokeUser refuses what the issuer of OpenID Connect made for a user before a time. dryRun: only say whether it could be.
func (c *Service) RevokeUser(ctx context.Context, r state.Revocation, dryRun bool) (state.Revocation, error) {
	if err := c.o.State.Snapshot().CheckRevocation(r); err != nil || dryRun {
		return r, err
	}
	if err := c.propose(ctx, state.KindSubjectRevoke, r); err != nil {
		return r, fmt.Errorf("revoke the tokens of user %s: %w", r.Subject, err)
	}
	row, _ := c.Revocation(r.ID)
	return row, nil
}
