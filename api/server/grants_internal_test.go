package server

import (
	"slices"
	"strings"
	"testing"

	"evenkeel/cluster/state"
	"evenkeel/internal/docpage"
)

func TestRoleThatAPrincipalActsIn(t *testing.T) {
	at := func(tenant string, role state.Role) assigned { return assigned{Tenant: tenant, Role: role} }
	bound := func(tenant string, role state.Role) state.RoleBinding {
		return state.RoleBinding{ID: "b-" + tenant + "-" + string(role), Tenant: tenant, Role: role}
	}
	for _, c := range []struct {
		what  string
		own   []assigned
		bound []state.RoleBinding
		asked string
		want  assigned
		all   int
	}{
		{"none", nil, nil, "film", assigned{}, 0},
		{"its own", []assigned{at("film", "viewer")}, nil, "", at("film", "viewer"), 1},
		{"its own, where another tenant is asked for", []assigned{at("film", "viewer")}, nil, "law", at("film", "viewer"), 1},
		{"the first of its own before bound ones", []assigned{at("film", "viewer")}, []state.RoleBinding{bound("acme", "owner")}, "", at("film", "viewer"), 2},
		{"the one that is asked for", []assigned{at("film", "viewer")}, []state.RoleBinding{bound("acme", "owner")}, "acme", assigned{"acme", "owner", "b-acme-owner"}, 2},
		{"the stronger one in a tenant", []assigned{at("film", "viewer")}, []state.RoleBinding{bound("film", "owner"), bound("film", "editor")}, "film", assigned{"film", "owner", "b-film-owner"}, 1},
		{"its own of equal ones", []assigned{at("film", "viewer")}, []state.RoleBinding{bound("film", "viewer")}, "film", at("film", "viewer"), 1},
		{"the cluster before tenants", []assigned{at("film", "owner")}, []state.RoleBinding{bound("", "metrics")}, "film", assigned{"", "metrics", "b--metrics"}, 2},
		{"the stronger one in the cluster", []assigned{at("", "auditor")}, []state.RoleBinding{bound("", "operator")}, "", assigned{"", "operator", "b--operator"}, 1},
		{"a token without a role", []assigned{at("", "")}, []state.RoleBinding{bound("", "admin")}, "", assigned{}, 1},
	} {
		p := &principal{}
		p.act(c.own, c.bound, c.asked)
		if got := (assigned{p.Tenant, p.Role, p.Binding}); got != c.want || len(p.roles) != c.all {
			t.Errorf("%s: %+v of %d, want %+v of %d", c.what, got, len(p.roles), c.want, c.all)
		}
	}
}

// All routes of one verb and kind need the same, so that one answer is right for all of them.
func TestOneRightForAVerbAndKind(t *testing.T) {
	seen := map[[2]string]string{}
	for _, pattern := range slices.Sorted(keys(rights)) {
		r := rights[pattern]
		line := [2]string{r.verb, r.kind}
		if before, there := seen[line]; there && (rights[before].cluster != r.cluster || rights[before].tenant != r.tenant) {
			t.Errorf("%s and %s are both %s %s, and need different rights", before, pattern, r.verb, r.kind)
		}
		seen[line] = pattern
		if r.verb == "" || kindNamed(r.kind) != r.kind || kindNamed(r.kind+"s") != r.kind {
			t.Errorf("%s: %q %q cannot be asked for", pattern, r.verb, r.kind)
		}
	}
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// TestRolesOfOperationsOnPage: docs/reference/api.md lists what each role may do.
func TestRolesOfOperationsOnPage(t *testing.T) {
	type line struct{ kind, roles string }
	var order []line
	verbs := map[line][]string{}
	for _, p := range permissions() {
		l := line{p.Kind, strings.Join(p.Roles, ", ")}
		if verbs[l] == nil {
			order = append(order, l)
		}
		verbs[l] = append(verbs[l], "`"+p.Verb+"`")
	}
	var table strings.Builder
	table.WriteString("| kind | verbs | roles that may |\n|---|---|---|\n")
	for _, l := range order {
		table.WriteString(docpage.Row("`"+l.kind+"`", strings.Join(verbs[l], ", "), l.roles))
	}
	if err := docpage.Part(reference+"api.md", "permissions", table.String(), writeDocs); err != nil {
		t.Error(err)
	}
}
