package server

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"evenkeel/api/v1"
	"evenkeel/cluster/state"
)

// assigned is a role that a principal has.
type assigned struct {
	Tenant  string // "": in the cluster
	Role    state.Role
	Binding string // id of the role binding that gives it; "": the token itself, or the configuration of the servers
}

// strongest are the roles that count: of those in the cluster, and of those in each tenant, the one with the most rights. The
// cluster comes first, then tenants in the order in which they occur. Of equal roles the first counts.
func strongest(all []assigned) (out []assigned) {
	rank := func(h assigned) int { return slices.Index(append(state.Roles(), state.TenantRoles()...), h.Role) }
	for _, h := range all {
		at := slices.IndexFunc(out, func(o assigned) bool { return o.Tenant == h.Tenant })
		switch {
		case at < 0:
			out = append(out, h)
		case rank(h) < rank(out[at]):
			out[at] = h
		}
	}
	slices.SortStableFunc(out, func(a, b assigned) int {
		switch {
		case (a.Tenant == "") == (b.Tenant == ""):
			return 0
		case a.Tenant == "":
			return -1
		}
		return 1
	})
	return out
}

// act gives a principal the role that it acts in: its role in the cluster, if it has one. Any other acts in one tenant in
// each request: in the one that the request names, if it has a role there, or else in the first. Its own roles come before
// the bound ones.
func (p *principal) act(own []assigned, bound []state.RoleBinding, asked string) {
	for _, b := range bound {
		own = append(own, assigned{Tenant: b.Tenant, Role: b.Role, Binding: b.ID})
	}
	p.roles = strongest(own)
	if len(p.roles) == 0 {
		return
	}
	by := p.roles[0]
	if at := slices.IndexFunc(p.roles, func(h assigned) bool { return h.Tenant == asked }); at > 0 && by.Tenant != "" {
		by = p.roles[at]
	}
	p.Role, p.Tenant, p.Binding = by.Role, by.Tenant, by.Binding
}

func assignedRole(h assigned) v1.AssignedRole {
	return v1.AssignedRole{Role: string(h.Role), Tenant: h.Tenant, Binding: h.Binding}
}

// revokedUser refuses a token that was issued before its user was revoked; nil: it was not.
func (s *Server) revokedUser(p *principal) *problem {
	r, there := s.cluster.Revocation(p.ID)
	if !there || !p.Issued.Before(r.Before) {
		return nil
	}
	return newProblem(http.StatusUnauthorized, v1.ProblemUnauthorized, fmt.Sprintf("tokens that were issued to %s before %s are revoked; after that time, log in again with `vcctl login`",
		p.label(), r.Before.UTC().Format(time.RFC3339)))
}
