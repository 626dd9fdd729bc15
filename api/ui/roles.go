package ui

import (
	"net/http"
	"net/url"
	"strings"

	"evenkeel/api/v1"
)

type rolesData struct {
	rows[v1.RoleBinding]
	Would string     // what a form would do
	Asked url.Values // that form, or one that was refused
}

func readRoles(v *visit) (rolesData, error) {
	all, err := v.api.RoleBindings(v.r.Context())
	v.Title, v.Live = "Roles", true
	return rolesData{rows: rowsOf(v, all, func(b v1.RoleBinding) string {
		return strings.Join([]string{b.ID, b.Subject.Kind, b.Subject.Name, b.Role, b.Tenant}, " ")
	})}, err
}

// bindingText says what a role binding gives.
func bindingText(b v1.RoleBinding) string {
	where := "in the cluster"
	if b.Tenant != "" {
		where = "in tenant " + b.Tenant
	}
	return b.Subject.Kind + " " + b.Subject.Name + " " + b.Role + " " + where
}

func changeRoles(v *visit) error {
	do, dry, form := v.asked()
	ctx, opts := v.r.Context(), options(nil, dry)
	var would string
	var err error
	switch do {
	case "grant":
		var made v1.RoleBinding
		made, err = v.api.GrantRole(ctx, v1.RoleBindingRequest{Subject: v1.Subject{Kind: form.Get("kind"), Name: strings.TrimSpace(form.Get("name"))},
			Role: form.Get("role"), Tenant: strings.TrimSpace(form.Get("tenant"))}, opts...)
		would = "It would make " + bindingText(made) + "."
	case "revoke":
		var ended v1.RoleBinding
		ended, err = v.api.RevokeRole(ctx, form.Get("id"), opts...)
		would = "It would end this: " + bindingText(ended) + "."
	default:
		return refuse(http.StatusBadRequest, "The form asks for nothing that is known", do)
	}
	problem, err := refusal(err)
	if err != nil {
		return err
	}
	if problem == nil && !dry {
		return v.to("/ui/roles", nil)
	}
	return again(v, "roles", problem, readRoles, func(d *rolesData) {
		if do == "grant" {
			d.Asked = form
		}
		if problem == nil {
			d.Would = would
		}
	})
}
