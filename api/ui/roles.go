package ui

import (
	"net/url"
	"strings"

	"evenkeel/api/v1"
)

type rolesData struct {
	rows[v1.RoleBinding]
	Revoked []v1.UserRevocation // people whose earlier tokens are refused; the cluster's roles see them
	Would   string              // what a form would do
	Asked   url.Values          // that form, or one that was refused
}

func readRoles(v *visit) (rolesData, error) {
	all, err := v.api.RoleBindings(v.r.Context())
	v.Title, v.Live = "Roles", true
	var revoked []v1.UserRevocation
	if err == nil && v.OfCluster() {
		revoked, err = v.api.UserRevocations(v.r.Context())
	}
	return rolesData{Revoked: revoked, rows: rowsOf(v, all, func(b v1.RoleBinding) string {
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
	case "revoke-user":
		var ended v1.UserRevocation
		ended, err = v.api.RevokeUser(ctx, v1.UserRevocationRequest{User: strings.TrimSpace(form.Get("user"))}, opts...)
		would = "It would refuse the tokens that were issued to user " + ended.User + " before " + formatTime(ended.Before) + "."
	default:
		return unknownForm(do)
	}
	problem, err := refusal(err)
	if err != nil {
		return err
	}
	if problem == nil && !dry {
		return v.to("/ui/roles", nil)
	}
	return again(v, "roles", problem, readRoles, func(d *rolesData) {
		if do != "revoke" {
			d.Asked = form
		}
		if problem == nil {
			d.Would = would
		}
	})
}
