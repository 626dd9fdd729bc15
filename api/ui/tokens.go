package ui

import (
	"net/url"
	"strings"
	"time"

	"evenkeel/api/v1"
)

// Roles that a token can have: in the cluster, and in a tenant. Which of them this session may give, the API says.
var (
	clusterRoles = []string{"admin", "operator", "auditor", "metrics"}
	tenantRoles  = []string{"owner", "editor", "viewer"}
)

// MayTokens says whether the role may see tokens and the roles of people: those of the cluster, or of its own tenant.
func (v *visit) MayTokens() bool { return v.MayAudit() || v.MayMakeTokens() }

// MayMakeTokens says whether the role may make and revoke them.
func (v *visit) MayMakeTokens() bool {
	return v.Self.Role == "admin" || v.Self.Tenant != "" && v.Self.Role == "owner"
}

// GivenRoles are those that the forms of tokens and roles offer.
func (v *visit) GivenRoles() []string {
	if v.OfCluster() {
		return append(clusterRoles[:len(clusterRoles):len(clusterRoles)], tenantRoles...)
	}
	return tenantRoles
}

type tokensData struct {
	rows[v1.Token]
	Made    *v1.Token           // with its secret, which no other page has
	Dry     *v1.Token           // what would be made
	Ended   *v1.TokenRevocation // what a revocation would end
	Command string              // that does what was checked
	Asked   url.Values          // the form of Dry, or one that was refused
}

func readTokens(v *visit) (tokensData, error) {
	all, err := v.api.Tokens(v.r.Context())
	v.Title, v.Live = "Tokens", true
	return tokensData{rows: rowsOf(v, all, func(t v1.Token) string {
		return strings.Join(append([]string{t.Name, t.ID, t.Role, t.Tenant}, t.From...), " ")
	})}, err
}

// changeTokens makes a token or revokes one. The page that answers has the new token's secret: it is the answer to a form, under no
// address of its own, and no browser keeps it (Cache-Control: no-store).
func changeTokens(v *visit) error {
	do, dry, form := v.asked()
	ctx, opts := v.r.Context(), options(nil, dry)
	var made v1.Token
	var ended v1.TokenRevocation
	var command string
	var err error
	switch do {
	case "create":
		var q v1.TokenRequest
		if q, err = tokenOf(form); err == nil {
			command = tokenCommand(form)
			made, err = v.api.MakeToken(ctx, q, opts...)
		}
	case "revoke":
		command = shellCommand("vcctl", "token", "revoke", form.Get("id"))
		ended, err = v.api.RevokeToken(ctx, form.Get("id"), opts...)
	default:
		return unknownForm(do)
	}
	problem, err := refusal(err)
	if err != nil {
		return err
	}
	if problem == nil && !dry && do == "revoke" {
		return v.to("/ui/tokens", nil)
	}
	return again(v, "tokens", problem, readTokens, func(d *tokensData) {
		switch {
		case problem != nil && do == "create":
			d.Asked = form
		case problem != nil:
		case !dry:
			d.Made = &made
		case do == "create":
			d.Dry, d.Command, d.Asked = &made, command, form
		default:
			d.Ended, d.Command = &ended, command
		}
	})
}

// tokenOf reads the fields of a form. What is left empty is as the API has it without.
func tokenOf(form url.Values) (v1.TokenRequest, error) {
	q := v1.TokenRequest{Name: strings.TrimSpace(form.Get("name")), Role: form.Get("role"), Tenant: strings.TrimSpace(form.Get("tenant")), From: rangesOf(form)}
	if text := strings.TrimSpace(form.Get("expires")); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			return q, &v1.Invalid{Fields: []v1.FieldError{{Field: "expires", Message: "must be hours, minutes and seconds, such as 720h or 1h30m", Value: text}}}
		}
		seconds := d.Seconds()
		q.Seconds = &seconds
	}
	return q, nil
}

// rangesOf addresses that a form names, with commas or spaces between.
func rangesOf(form url.Values) []string {
	return strings.FieldsFunc(form.Get("from"), func(c rune) bool { return c == ',' || c == ' ' })
}

// tokenCommand makes the token that a form asks for.
func tokenCommand(form url.Values) string {
	parts := []string{"vcctl", "token", "create", strings.TrimSpace(form.Get("name")), "--role", form.Get("role")}
	for _, flag := range []struct{ name, value string }{
		{"tenant", strings.TrimSpace(form.Get("tenant"))}, {"expires", strings.TrimSpace(form.Get("expires"))}, {"from", strings.Join(rangesOf(form), ",")},
	} {
		if flag.value != "" {
			parts = append(parts, "--"+flag.name, flag.value)
		}
	}
	return shellCommand(parts...)
}
