package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/api/oidc"
	"evenkeel/api/v1"
	"evenkeel/cluster/state"
)

const (
	bindingsPath    = "/v1/role-bindings"
	revocationsPath = "/v1/auth/revocations"
	tagRole         = "Roles"
)

// Roles is what the API asks of the roles that are bound in the cluster. *leader.Service is one.
type Roles interface {
	// BindingsOf subjects, RoleBinding of an id and Revocation of a user, as this server knows them.
	BindingsOf(subjects ...state.Subject) []state.RoleBinding
	RoleBinding(id string) (state.RoleBinding, bool)
	Revocation(user string) (state.Revocation, bool)
	GrantRole(ctx context.Context, b state.RoleBinding, dryRun bool) (_ state.RoleBinding, made bool, err error)
	RevokeRole(ctx context.Context, d state.RoleDrop, dryRun bool) (state.RoleBinding, error)
	RevokeUser(ctx context.Context, r state.Revocation, dryRun bool) (state.Revocation, error)
}

type bindingAnswer struct {
	Status int
	Body   v1.RoleBinding
}

func (s *Server) registerRoles(api huma.API) {
	get(api, route{"listRoleBindings", bindingsPath, tagRole, "List role bindings", "Who has which role in the cluster and in tenants, besides what tokens and the configuration of the servers give. To a role of a tenant, those in it."},
		func(ctx context.Context, in *struct {
			TenantParams
			ReadParams
		}) (*answerOf[v1.List[v1.RoleBinding]], error) {
			x, err := s.scopedOrAll(ctx, in.TenantParams, in.ReadParams)
			if err != nil {
				return nil, err
			}
			rows := slices.DeleteFunc(x.v.RoleBindings(), func(b state.RoleBinding) bool { return !x.hasBinding(b) })
			return &answerOf[v1.List[v1.RoleBinding]]{Body: v1.List[v1.RoleBinding]{Items: each(rows, x.binding)}}, nil
		})
	change(api, http.MethodPost, route{"grantRole", bindingsPath, tagRole, "Grant a role",
		"To a user or a group of the OpenID Connect issuer, or to a token. The owner of a tenant grants roles to the tenant's own tokens alone. A token that expires grants none. For a role of the cluster, tenant in the body says where. The subject has one role in the cluster and one in each tenant: the new one takes the place of another."},
		http.StatusCreated, v1.RoleBindingRequest{}, s.grantRole)
	change(api, http.MethodDelete, route{"revokeRole", bindingsPath + "/{id}", tagRole, "Revoke a role",
		"It is gone from now on, and what runs by it (event streams, consoles, long polls) ends within 5 s, on every server."},
		http.StatusOK, nil, s.revokeRole)
	get(api, route{"listUserRevocations", revocationsPath, tagAuth, "List revocations of users", "The users of OpenID Connect whose tokens from before a time are refused."},
		func(ctx context.Context, in *struct{ ReadParams }) (*answerOf[v1.List[v1.UserRevocation]], error) {
			v, err := s.view(ctx, in.Consistency)
			if err != nil {
				return nil, err
			}
			return &answerOf[v1.List[v1.UserRevocation]]{Body: v1.List[v1.UserRevocation]{Items: each(v.Revocations(), userRevocation)}}, nil
		})
	change(api, http.MethodPost, route{"revokeUser", revocationsPath, tagAuth, "Revoke a user's tokens",
		"The tokens that the OpenID Connect issuer made for the user so far are refused, and what runs with them ends within 5 s, on every server. Those that it makes later than 30 s from now are taken: end the sessions of the user at the issuer first."},
		http.StatusOK, v1.UserRevocationRequest{}, s.revokeUser)
}

func (s *Server) grantRole(ctx context.Context, in *struct {
	TenantParams
	ChangeParams
	JSONBody
}) (*bindingAnswer, error) {
	q, err := body[v1.RoleBindingRequest](in.JSONBody)
	if err != nil {
		return nil, err
	}
	principal := principalOf(ctx)
	if q.Tenant, err = tenantOfChange(principal, in.TenantParams, q.Tenant); err != nil {
		return nil, err
	}
	role := state.Role(q.Role)
	if err := roleOfTenant(v1.TokenRequest{Role: q.Role, Tenant: q.Tenant}); err != nil {
		return nil, err
	}
	if principal == nil || !covers(principal.Role, role) {
		return nil, newProblem(http.StatusForbidden, v1.ProblemForbidden, fmt.Sprintf("the role %s may do what the role of this request may not", role))
	}
	if err := mayBind(principal, q.Subject); err != nil {
		return nil, err
	}
	b := state.RoleBinding{Subject: state.Subject{Kind: state.SubjectKind(q.Subject.Kind), Name: q.Subject.Name}, Role: role, Tenant: q.Tenant, MadeBy: madeBy(ctx)}
	if b.Subject.Kind == state.SubjectToken {
		row, there := s.cluster.Token(b.Subject.Name)
		if !there || principal.of() != "" && row.Tenant != principal.of() {
			return nil, notFound("token %s: not found", b.Subject.Name)
		}
		if err := mayReach(principal, row.From); err != nil {
			return nil, err
		}
	} else if err := mayReach(principal, nil); err != nil { // people come from everywhere
		return nil, err
	} else if b.Subject.Issuer, err = s.issuer(); err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	named(ctx, state.BindingID(b.Subject, b.Tenant))
	row, made, err := s.cluster.GrantRole(bounded, b, in.DryRun)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	out := &bindingAnswer{Status: http.StatusOK, Body: s.bindingFor(principal, row)}
	if made && !in.DryRun {
		out.Status = http.StatusCreated
	}
	return out, nil
}

// mayBind refuses a grant that the role of the principal alone would allow.
//
// A person acts in the first tenant in which it has a role, so that a binding in one tenant may change what its requests in others
// mean: only admins of the cluster bind people. A binding has no end: the holder of a token that ends makes none, or it would have the
// right after that (as with tokens, see endOf). People who log in may (see lastingEnd).
func mayBind(p *principal, to v1.Subject) error {
	switch {
	case p.of() != "" && state.SubjectKind(to.Kind) != state.SubjectToken:
		return newProblem(http.StatusForbidden, v1.ProblemForbidden,
			fmt.Sprintf("the role %s of tenant %s grants roles to tokens of the tenant alone: ask an admin of the cluster to bind the %s, or make a token", p.Role, p.Tenant, to.Kind))
	case !p.lastingEnd().IsZero():
		return newProblem(http.StatusForbidden, v1.ProblemForbidden,
			fmt.Sprintf("the role would outlive the token that asks for it, which ends at %s: ask with one that does not expire, or make a token with that role, which ends with this one", p.Until.UTC().Format(time.RFC3339)))
	}
	return nil
}

// mayReach refuses a grant to a subject that may use it from addresses where the principal's token is not good; no ranges
// are all addresses. As with new tokens (see rangesOf), a token with ranges must not give its power to requests from
// elsewhere.
func mayReach(p *principal, ranges []string) error {
	if state.RangesWithin(ranges, p.From) {
		return nil
	}
	return newProblem(http.StatusForbidden, v1.ProblemForbidden, "the role would be good where the token that asks is not, which is good from "+
		strings.Join(p.From, ", ")+": bind a token whose ranges are within these, or ask with a token without ranges")
}

// issuer whose users and groups are meant: that of this server's configuration.
func (s *Server) issuer() (string, error) {
	if s.opts.OpenID == nil {
		return "", newProblem(http.StatusConflict, v1.ProblemConflict, "this server takes no tokens of OpenID Connect, so that there are no users and groups: set oidc in vcd.yaml first")
	}
	return s.opts.OpenID.Config().Issuer, nil
}

func (s *Server) revokeRole(ctx context.Context, in *struct {
	IDParam
	TenantParams
	ChangeParams
}) (*answerOf[v1.RoleBinding], error) {
	own, err := tenantOfChange(principalOf(ctx), in.TenantParams, "")
	if err != nil {
		return nil, err
	}
	if row, there := s.cluster.RoleBinding(in.ID); own != "" && (!there || row.Tenant != own) { // by one way, so that both take equally long
		return nil, notFound("role binding %s: not found", in.ID)
	}
	// Not ended by its own effect, should the role be that of this request.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	row, err := s.cluster.RevokeRole(bounded, state.RoleDrop{ID: in.ID, By: madeBy(ctx)}, in.DryRun)
	if err != nil {
		return nil, s.fail(bounded, err)
	}
	return &answerOf[v1.RoleBinding]{Body: s.bindingFor(principalOf(ctx), row)}, nil
}

func (s *Server) revokeUser(ctx context.Context, in *struct {
	ChangeParams
	JSONBody
}) (*answerOf[v1.UserRevocation], error) {
	q, err := body[v1.UserRevocationRequest](in.JSONBody)
	if err != nil {
		return nil, err
	}
	issuer, err := s.issuer()
	if err != nil {
		return nil, err
	}
	subject := strings.TrimPrefix(q.User, oidc.IDPrefix)
	r := state.Revocation{ID: oidc.IDOf(issuer, subject), Subject: subject, MadeBy: madeBy(ctx),
		Before: time.Now().Add(oidc.Leeway).UTC().Truncate(time.Second).Add(time.Second)} // times of tokens are whole seconds
	named(ctx, r.ID)
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	row, err := s.cluster.RevokeUser(bounded, r, in.DryRun)
	if err != nil {
		return nil, s.fail(bounded, err)
	}
	return &answerOf[v1.UserRevocation]{Body: userRevocation(row)}, nil
}

// hasBinding says whether a binding is in the scope.
func (sc scope) hasBinding(b state.RoleBinding) bool { return sc.tenant == "" || sc.tenant == b.Tenant }

// binding as the scope shows it.
func (x scopedView) binding(b state.RoleBinding) v1.RoleBinding {
	return bindingOf(b, x.maker(b.MadeBy, x.v))
}

// bindingFor a principal that changed it.
func (s *Server) bindingFor(p *principal, b state.RoleBinding) v1.RoleBinding {
	return bindingOf(b, scope{tenant: p.of(), restricted: p.of() != ""}.maker(b.MadeBy, s.cluster))
}

func bindingOf(b state.RoleBinding, madeBy string) v1.RoleBinding {
	return v1.RoleBinding{ID: b.ID, Subject: v1.Subject{Kind: string(b.Subject.Kind), Name: b.Subject.Name}, Issuer: b.Subject.Issuer,
		Role: string(b.Role), Tenant: b.Tenant, MadeAt: b.MadeAt, MadeBy: madeBy}
}

func userRevocation(r state.Revocation) v1.UserRevocation {
	return v1.UserRevocation{ID: r.ID, User: r.Subject, Before: r.Before, Until: r.Before.Add(state.MaxTokenLife), MadeAt: r.MadeAt, MadeBy: r.MadeBy}
}
