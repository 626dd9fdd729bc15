package server

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/api/v1"
	"evenkeel/cluster/leader"
	"evenkeel/cluster/state"
)

const tagTenant = "Tenants"

// Tenants is what the API asks of the cluster's tenants. *leader.Service is one.
type Tenants interface {
	PutTenant(ctx context.Context, name, by string, create, dryRun bool, change func(*state.Tenant)) (state.Tenant, error)
	DropTenant(ctx context.Context, name, by string, dryRun bool) error
	// Suspended says whether a tenant is suspended or gone, as this server knows it.
	Suspended(tenant string) bool
}

type tenantAnswer struct {
	Status int
	Body   v1.Tenant
}

func (s *Server) registerTenants(api huma.API) {
	get(api, route{"listTenants", "/v1/tenants", tagTenant, "List tenants", "All tenants by name; to a token of a tenant, that one alone."},
		func(ctx context.Context, in *struct{ ReadParams }) (*answerOf[v1.List[v1.Tenant]], error) {
			rows, v, err := s.tenants(ctx, in.ReadParams)
			if err != nil {
				return nil, err
			}
			return &answerOf[v1.List[v1.Tenant]]{Body: v1.List[v1.Tenant]{Items: each(rows, tenantIn(v))}}, nil
		})
	get(api, route{"getTenant", "/v1/tenants/{name}", tagTenant, "Get a tenant", "One tenant."},
		func(ctx context.Context, in *struct {
			NameParam
			ReadParams
		}) (*answerOf[v1.Tenant], error) {
			row, v, err := s.tenant(ctx, in.ReadParams, in.Name)
			if err == nil && row.Name == state.QuotaDefaults {
				err = noTenant(in.Name)
			}
			if err != nil {
				return nil, err
			}
			return &answerOf[v1.Tenant]{Body: tenantIn(v)(row)}, nil
		})
	change(api, http.MethodPost, route{"createTenant", "/v1/tenants", tagTenant, "Create a tenant", "It owns nothing yet: make a token for it."}, http.StatusCreated, v1.TenantRequest{}, s.createTenant)
	change(api, http.MethodPatch, route{"changeTenant", "/v1/tenants/{name}", tagTenant, "Change a tenant", "What is left out stays. A suspended tenant's tokens are refused; what runs goes on."},
		http.StatusOK, v1.TenantPatch{}, s.changeTenant)
	change(api, http.MethodDelete, route{"deleteTenant", "/v1/tenants/{name}", tagTenant, "Delete a tenant", "One that owns nothing: delete its virtual clusters and revoke its tokens first (409)."},
		http.StatusNoContent, nil, func(ctx context.Context, in *struct {
			NameParam
			ChangeParams
		}) (*struct{}, error) {
			bounded, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			if err := s.cluster.DropTenant(bounded, in.Name, madeBy(ctx), in.DryRun); err != nil {
				return nil, s.fail(ctx, err)
			}
			return nil, nil
		})
	get(api, route{"listQuotas", "/v1/quotas", tagTenant, "List quotas", "What each tenant may use and uses; to a token of a tenant, that one alone."},
		func(ctx context.Context, in *struct{ ReadParams }) (*answerOf[v1.List[v1.Quota]], error) {
			rows, v, err := s.tenants(ctx, in.ReadParams)
			if err != nil {
				return nil, err
			}
			return &answerOf[v1.List[v1.Quota]]{Body: v1.List[v1.Quota]{Items: each(rows, func(t state.Tenant) v1.Quota { return quotaOf(v, t.Name) })}}, nil
		})
	get(api, route{"getQuota", "/v1/quotas/{name}", tagTenant, "Get a quota", "What a tenant may use, and what it uses now. Use is summed up for every answer. The name * has the limits of tenants that set none of their own."},
		func(ctx context.Context, in *struct {
			NameParam
			ReadParams
		}) (*answerOf[v1.Quota], error) {
			row, v, err := s.tenant(ctx, in.ReadParams, in.Name)
			if err != nil {
				return nil, err
			}
			return &answerOf[v1.Quota]{Body: quotaOf(v, row.Name)}, nil
		})
	change(api, http.MethodPatch, route{"changeQuota", "/v1/quotas/{name}", tagTenant, "Change a quota",
		"Keys that are left out stay. A limit below what is used stops nothing: what would use more is refused from then on."}, http.StatusOK, v1.QuotaPatch{}, s.changeQuota)
}

// tenants are those that the principal of a request may see.
func (s *Server) tenants(ctx context.Context, r ReadParams) ([]state.Tenant, *leader.View, error) {
	v, err := s.viewOfAny(ctx, r.Consistency)
	if err != nil {
		return nil, nil, err
	}
	rows := v.Tenants()
	if own := principalOf(ctx).of(); own != "" {
		rows = slices.DeleteFunc(rows, func(t state.Tenant) bool { return t.Name != own })
	}
	return rows, v, nil
}

// tenant of that name, if the principal of the request may see it.
func (s *Server) tenant(ctx context.Context, r ReadParams, name string) (state.Tenant, *leader.View, error) {
	v, err := s.viewOfAny(ctx, r.Consistency)
	if err != nil {
		return state.Tenant{}, nil, err
	}
	own := principalOf(ctx).of()
	row, there := v.Tenant(name)
	if name == state.QuotaDefaults && own == "" {
		row, there = v.QuotaDefaults(), true
	}
	if !there || own != "" && own != name {
		return row, nil, noTenant(name)
	}
	return row, v, nil
}

func (s *Server) createTenant(ctx context.Context, in *struct {
	ChangeParams
	JSONBody
}) (*tenantAnswer, error) {
	q, err := body[v1.TenantRequest](in.JSONBody)
	if err != nil {
		return nil, err
	}
	named(ctx, q.Name)
	return s.putTenant(ctx, q.Name, http.StatusCreated, in.DryRun, func(t *state.Tenant) {
		t.DisplayName, t.Labels = q.DisplayName, maps.Clone(q.Labels)
		if q.MaxPriority != nil {
			t.MaxPriority = *q.MaxPriority
		}
	})
}

func (s *Server) changeTenant(ctx context.Context, in *struct {
	NameParam
	ChangeParams
	JSONBody
}) (*tenantAnswer, error) {
	q, err := body[v1.TenantPatch](in.JSONBody)
	if err != nil {
		return nil, err
	}
	if in.Name == state.QuotaDefaults {
		return nil, noTenant(in.Name)
	}
	return s.putTenant(ctx, in.Name, http.StatusOK, in.DryRun, func(t *state.Tenant) {
		if q.DisplayName != nil {
			t.DisplayName = *q.DisplayName
		}
		if q.Labels != nil {
			t.Labels = maps.Clone(q.Labels)
		}
		if q.State != nil {
			t.Suspended = *q.State == "suspended"
		}
		if q.MaxPriority != nil {
			t.MaxPriority = *q.MaxPriority
		}
	})
}

func (s *Server) putTenant(ctx context.Context, name string, status int, dryRun bool, change func(*state.Tenant)) (*tenantAnswer, error) {
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	row, err := s.cluster.PutTenant(bounded, name, madeBy(ctx), status == http.StatusCreated, dryRun, change)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	if dryRun {
		status = http.StatusOK
	}
	v, err := s.viewOfAny(ctx, "stale") // the settings are what it adds
	if err != nil {
		return nil, err
	}
	return &tenantAnswer{Status: status, Body: tenantIn(v)(row)}, nil
}

func (s *Server) changeQuota(ctx context.Context, in *struct {
	NameParam
	ChangeParams
	JSONBody
}) (*answerOf[v1.Quota], error) {
	q, err := body[v1.QuotaPatch](in.JSONBody)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	row, err := s.cluster.PutTenant(bounded, in.Name, madeBy(ctx), false, in.DryRun, func(t *state.Tenant) {
		for key, text := range q.Limits {
			switch limit, unlimited, unset, _ := v1.ParseLimit(key, text); { // QuotaPatch.check has refused what cannot be read
			case unset:
				delete(t.Quota, state.QuotaKey(key))
			case unlimited:
				t.Quota[state.QuotaKey(key)] = state.Unlimited
			default:
				t.Quota[state.QuotaKey(key)] = state.Limit(limit)
			}
		}
	})
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	v, err := s.cluster.View(bounded, true) // what was just done is known here
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	out := quotaOf(v, in.Name)
	if in.DryRun {
		for i := range out.Items {
			item := &out.Items[i]
			if limit, set := row.Quota[state.QuotaKey(item.Key)]; set {
				item.Limit, item.From = limitOf(limit), "tenant"
			}
		}
	}
	return &answerOf[v1.Quota]{Body: out}, nil
}

// tenantIn is a tenant as a view has it, with what the settings let it name.
func tenantIn(v *leader.View) func(state.Tenant) v1.Tenant {
	meta, _ := v.Meta()
	return func(t state.Tenant) v1.Tenant {
		out := tenantOf(t)
		out.Networks = state.OpenTo(meta.Settings.Networks, t.Name, state.DefaultNetwork)
		out.Pools = state.OpenTo(meta.Settings.Pools, t.Name, meta.Settings.Pool)
		return out
	}
}

func tenantOf(t state.Tenant) v1.Tenant {
	out := v1.Tenant{Name: t.Name, DisplayName: t.DisplayName, Labels: t.Labels, State: "active", MaxPriority: t.MaxPriority, CreatedAt: t.CreatedAt}
	if t.Suspended {
		out.State = "suspended"
	}
	return out
}

// quotaOf a tenant, or of QuotaDefaults.
func quotaOf(v *leader.View, tenant string) v1.Quota {
	out := v1.Quota{Tenant: tenant, Items: []v1.QuotaLimit{}, OverQuota: []string{}}
	use := state.Use{}
	if tenant != state.QuotaDefaults {
		use = v.UseOf(tenant)
	}
	for _, key := range state.QuotaKeys() {
		limit, from := v.LimitOf(tenant, key)
		item := v1.QuotaLimit{Key: string(key), Unit: v1.QuotaUnits[string(key)], Limit: limitOf(limit), From: "unset", Used: use[key]}
		switch from {
		case "":
		case tenant:
			item.From = "tenant"
		default:
			item.From = "defaults"
		}
		if limit != state.Unlimited && use[key] > float64(limit) {
			out.OverQuota = append(out.OverQuota, item.Key)
		}
		out.Items = append(out.Items, item)
	}
	return out
}

// limitOf is nil for what is unlimited.
func limitOf(l state.Limit) *float64 {
	if l == state.Unlimited {
		return nil
	}
	v := float64(l)
	return &v
}
