package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/api/v1"
)

const (
	permissionsPath = "/v1/auth/permissions"
	canIPath        = "/v1/auth/can-i"
)

// permissions are the lines of the table rights that need a role, by kind and verb.
func permissions() (out []v1.Permission) {
	for pattern, r := range rights {
		if r.cluster == permitAnyone {
			continue
		}
		at := slices.IndexFunc(out, func(p v1.Permission) bool { return p.Kind == r.kind && p.Verb == r.verb })
		if at < 0 {
			at = len(out)
			out = append(out, v1.Permission{Kind: r.kind, Verb: r.verb, Roles: rolesOf(pattern)})
		}
		out[at].Operations = append(out[at].Operations, pattern)
	}
	for _, p := range out {
		slices.Sort(p.Operations)
	}
	slices.SortFunc(out, func(a, b v1.Permission) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Verb, b.Verb))
	})
	return out
}

// kindNamed is how the table calls a kind: also in the plural, and by vcctl's word.
func kindNamed(text string) string {
	text = strings.TrimSuffix(strings.ToLower(text), "s")
	switch text {
	case "vc":
		return "virtual-cluster"
	case "setting", "metric":
		return text + "s"
	case "statu":
		return "status"
	}
	return text
}

func (s *Server) registerPermissions(api huma.API) {
	get(api, route{"getPermissions", permissionsPath, tagAuth, "List one's permissions", "What the role of the holder of the token allows, by kind and verb."},
		func(ctx context.Context, in *struct{ TenantParams }) (*answerOf[v1.Permissions], error) {
			p, err := s.acting(ctx, in.TenantParams)
			if err != nil {
				return nil, err
			}
			may := slices.DeleteFunc(permissions(), func(q v1.Permission) bool { return !slices.Contains(q.Roles, string(p.Role)) })
			return &answerOf[v1.Permissions]{Body: v1.Permissions{Role: string(p.Role), Tenant: p.Tenant, Items: may}}, nil
		})
	get(api, route{"canI", canIPath, tagAuth, "Ask whether one may do something", "Whether the role of the holder of the token allows a verb on a kind. Quotas, and what the cluster is doing, may still refuse it."},
		func(ctx context.Context, in *struct {
			Verb string `query:"verb" required:"true" maxLength:"63" doc:"What is to be done, such as get, create or delete; GET /v1/auth/permissions lists verbs."`
			Kind string `query:"kind" required:"true" maxLength:"63" doc:"Kind of objects, such as virtual-cluster (or vc), vm or token; also in the plural."`
			TenantParams
		}) (*answerOf[v1.MayI], error) {
			p, err := s.acting(ctx, in.TenantParams)
			if err != nil {
				return nil, err
			}
			q, err := permissionOf(in.Verb, in.Kind)
			if err != nil {
				return nil, err
			}
			return &answerOf[v1.MayI]{Body: mayI(p, q)}, nil
		})
}

// acting is the principal of a request, with the role that it has in the tenant that the request names.
func (s *Server) acting(ctx context.Context, t TenantParams) (*principal, error) {
	_, err := s.scoped(ctx, t, ReadParams{Consistency: "stale"})
	return principalOf(ctx), err
}

// permissionOf a verb on a kind.
func permissionOf(verb, kind string) (v1.Permission, error) {
	var kinds, verbs []string
	for _, p := range permissions() {
		switch {
		case p.Kind == kindNamed(kind) && p.Verb == strings.ToLower(verb):
			return p, nil
		case p.Kind == kindNamed(kind):
			verbs = append(verbs, p.Verb)
		}
		kinds = append(kinds, p.Kind)
	}
	if len(verbs) > 0 {
		return v1.Permission{}, invalidParameter("query", "verb", verb, "is nothing that is done to a %s: it must be one of %s", kindNamed(kind), strings.Join(verbs, ", "))
	}
	return v1.Permission{}, invalidParameter("query", "kind", kind, "must be one of %s", strings.Join(slices.Compact(kinds), ", "))
}

func mayI(p *principal, q v1.Permission) v1.MayI {
	out := v1.MayI{Allowed: slices.Contains(q.Roles, string(p.Role)), Role: string(p.Role), Tenant: p.Tenant, Permission: q}
	as := "the role " + out.Role
	if p.Tenant != "" {
		as += " of tenant " + p.Tenant
	}
	may := "may"
	if !out.Allowed {
		may = "may not"
	}
	out.Text = fmt.Sprintf("%s %s %s %s", as, may, q.Verb, q.Kind)
	if !out.Allowed {
		out.Text += "; it needs " + strings.Join(q.Roles, " or ")
	}
	return out
}
