package ui

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"evenkeel/api/v1"
)

// tenantPath is the page of a tenant.
func tenantPath(name string) string { return "/ui/tenants/" + url.PathEscape(name) }

type tenantRow struct {
	v1.Tenant
	Quota v1.Quota
}

type tenantsData struct {
	rows[tenantRow]
	Dry   *v1.Tenant // that would be created
	Asked url.Values // the form of Dry, or one that was refused
}

func readTenants(v *visit) (tenantsData, error) {
	ctx := v.r.Context()
	v.Title, v.Live = "Tenants", true
	all, err := v.api.Tenants(ctx)
	if err != nil {
		return tenantsData{}, err
	}
	quotas, err := v.api.Quotas(ctx)
	if err != nil {
		return tenantsData{}, err
	}
	of := map[string]v1.Quota{}
	for _, q := range quotas {
		of[q.Tenant] = q
	}
	list := make([]tenantRow, len(all))
	for i, t := range all {
		list[i] = tenantRow{t, of[t.Name]}
	}
	return tenantsData{rows: rowsOf(v, list, func(t tenantRow) string { return t.Name + " " + t.DisplayName + " " + t.State })}, nil
}

func createTenant(v *visit) error {
	_, dry, form := v.asked()
	q := v1.TenantRequest{Name: strings.TrimSpace(form.Get("name")), DisplayName: strings.TrimSpace(form.Get("displayName"))}
	made, err := v.api.CreateTenant(v.r.Context(), q, options(nil, dry)...)
	problem, err := refusal(err)
	if err != nil {
		return err
	}
	if problem == nil && !dry {
		return v.to(tenantPath(made.Name), nil)
	}
	return again(v, "tenants", problem, readTenants, func(d *tenantsData) {
		if d.Asked = form; problem == nil {
			d.Dry = &made
		}
	})
}

type tenantData struct {
	Tenant v1.Tenant
	Quota  v1.Quota
	Would  string     // what a form would do
	Asked  url.Values // that form, or one that was refused
}

func readTenant(v *visit) (tenantData, error) {
	ctx, name := v.r.Context(), v.r.PathValue("tenant")
	var d tenantData
	var err error
	if d.Tenant, err = v.api.Tenant(ctx, name); err != nil {
		return d, err
	}
	if d.Quota, err = v.api.Quota(ctx, name); err != nil {
		return d, err
	}
	v.Title, v.Live = "Tenant "+d.Tenant.Name, true
	return d, nil
}

func changeTenant(v *visit) error {
	name := v.r.PathValue("tenant")
	do, dry, form := v.asked()
	ctx, opts := v.r.Context(), options(nil, dry)
	var would string
	var err error
	patch := func(q v1.TenantPatch) {
		var t v1.Tenant
		if t, err = v.api.ChangeTenant(ctx, name, q, opts...); err == nil {
			would = "The tenant would be " + t.State + ", with the display name " + strconv.Quote(t.DisplayName) + "."
		}
	}
	switch do {
	case "name":
		text := strings.TrimSpace(form.Get("displayName"))
		patch(v1.TenantPatch{DisplayName: &text})
	case "suspend", "resume":
		state := map[string]string{"suspend": "suspended", "resume": "active"}[do]
		patch(v1.TenantPatch{State: &state})
	case "delete":
		err, would = v.api.DeleteTenant(ctx, name, opts...), "It would be deleted: it owns nothing."
	case "quota":
		var q v1.Quota
		q, err = v.api.SetQuota(ctx, name, v1.QuotaPatch{Limits: map[string]string{form.Get("key"): strings.TrimSpace(form.Get("limit"))}}, opts...)
		if at := slices.IndexFunc(q.Items, func(l v1.QuotaLimit) bool { return l.Key == form.Get("key") }); err == nil && at >= 0 {
			l := q.Items[at]
			would = l.Key + ": the limit would be " + limit(l.Unit, l.Limit) + "; " + limit(l.Unit, &l.Used) + " is used."
		}
	default:
		return unknownForm(do)
	}
	problem, err := refusal(err)
	if err != nil {
		return err
	}
	if problem == nil && !dry {
		if do == "delete" {
			return v.to("/ui/tenants", nil)
		}
		return v.to(tenantPath(name), nil)
	}
	return again(v, "tenant", problem, readTenant, func(d *tenantData) {
		if d.Asked = form; problem == nil {
			d.Would = would
		}
	})
}
