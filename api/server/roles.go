package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"evenkeel/api/v1"
	"evenkeel/cluster/state"
)

// permission is what a route needs of a role.
type permission string

const (
	permitAnyone     permission = "anyone"     // no token at all
	permitSelf       permission = "self"       // read one's own role
	permitMetrics    permission = "metrics"    // read what monitoring scrapes
	permitRead       permission = "read"       // read the cluster, secrets and consoles apart
	permitAudit      permission = "audit"      // read who may do what, and who did
	permitOperate    permission = "operate"    // change virtual clusters, hosts, images, settings and members; open consoles
	permitAdminister permission = "administer" // make and revoke tokens of the API and of members; save and restore the whole state

	// Of tenants, in their own.
	permitView permission = "view" // read what the tenant owns, consoles apart
	permitEdit permission = "edit" // change virtual clusters; open consoles
	permitOwn  permission = "own"  // make and revoke tokens of the tenant
)

// grants are the permissions of each role. A role that is not here has none.
var grants = map[state.Role][]permission{
	state.RoleAdmin:    {permitSelf, permitMetrics, permitRead, permitAudit, permitOperate, permitAdminister},
	state.RoleOperator: {permitSelf, permitMetrics, permitRead, permitOperate},
	state.RoleAuditor:  {permitSelf, permitMetrics, permitRead, permitAudit},
	state.RoleMetrics:  {permitSelf, permitMetrics},
	state.RoleOwner:    {permitSelf, permitView, permitEdit, permitOwn},
	state.RoleEditor:   {permitSelf, permitView, permitEdit},
	state.RoleViewer:   {permitSelf, permitView},
}

// may says whether a role has the permission of a route, by its pattern.
func may(role state.Role, pattern string) bool {
	need, known := rights[pattern]
	if !known {
		need.cluster = permitAdminister
	}
	if need.tenant != "" && slices.Contains(grants[role], need.tenant) {
		return true
	}
	return need.cluster == permitAnyone || slices.Contains(grants[role], need.cluster)
}

// rolesOf a route are those that may use it, the one with the most rights first.
func rolesOf(pattern string) []string {
	var out []string
	for _, role := range slices.Concat(state.Roles(), state.TenantRoles()) {
		if may(role, pattern) {
			out = append(out, string(role))
		}
	}
	return out
}

// forbidden is the answer to a principal whose role does not reach for a route.
func forbidden(p *principal, pattern string) *problem {
	if p.Role == "" {
		return withoutRole(p)
	}
	allowed := rolesOf(pattern)
	role := string(p.Role)
	if p.Tenant != "" {
		role += " of tenant " + p.Tenant
	}
	return newProblem(http.StatusForbidden, v1.ProblemForbidden, fmt.Sprintf("token %s has the role %s; %s needs %s",
		p.label(), role, pattern, strings.Join(allowed, " or ")))
}

// recordingMux is a mux that knows which patterns were registered.
type recordingMux struct {
	http.ServeMux
	patterns []string
}

// HandleFunc implements humago.Mux.
func (m *recordingMux) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	m.patterns = append(m.patterns, pattern)
	m.ServeMux.HandleFunc(pattern, h)
}

// describeRoles writes into the OpenAPI document which roles may use each operation.
func describeRoles(doc *huma.OpenAPI) {
	for path, item := range doc.Paths {
		for method, op := range map[string]*huma.Operation{http.MethodGet: item.Get, http.MethodPost: item.Post,
			http.MethodPut: item.Put, http.MethodPatch: item.Patch, http.MethodDelete: item.Delete} {
			if op == nil {
				continue
			}
			pattern := method + " " + path
			if rights[pattern].cluster == permitAnyone {
				continue
			}
			allowed := rolesOf(pattern)
			op.Security = []map[string][]string{{"token": allowed}}
			op.Description = strings.TrimSpace(op.Description + "\n\nRoles: " + strings.Join(allowed, ", ") + ".")
			if denied := op.Responses["401"]; denied != nil {
				op.Responses["403"] = &huma.Response{Description: "Forbidden", Content: denied.Content}
			}
		}
	}
}
