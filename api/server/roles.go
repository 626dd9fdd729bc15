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

// tenantRoutes are the routes that roles of tenants may use, with the permission that each needs. A route that is not here is for
// roles of the cluster only. What a route shows to a tenant is decided in scope.go.
var tenantRoutes = map[string]permission{
	"GET /openapi.json": permitView,

	"GET /v1/tenants":        permitView,
	"GET /v1/tenants/{name}": permitView,
	"GET /v1/quotas":         permitView,
	"GET /v1/quotas/{name}":  permitView,

	"GET /v1/tokens":         permitOwn,
	"POST /v1/tokens":        permitOwn,
	"DELETE /v1/tokens/{id}": permitOwn,

	"GET /v1/events":          permitView,
	"GET /v1/operations":      permitView,
	"GET /v1/operations/{id}": permitView,

	"GET /v1/images":        permitView,
	"GET /v1/images/{name}": permitView,

	"GET /v1/virtual-clusters":                permitView,
	"POST /v1/virtual-clusters":               permitEdit,
	"GET /v1/virtual-clusters/{name}":         permitView,
	"PATCH /v1/virtual-clusters/{name}":       permitEdit,
	"DELETE /v1/virtual-clusters/{name}":      permitEdit,
	"POST /v1/virtual-clusters/{name}/start":  permitEdit,
	"POST /v1/virtual-clusters/{name}/stop":   permitEdit,
	"GET /v1/virtual-clusters/{name}/explain": permitView,

	"PUT /v1/virtual-clusters/{name}":           permitEdit,
	"POST /v1/virtual-clusters/{name}/rollback": permitEdit,
	"GET /v1/virtual-clusters/{name}/spec":      permitView, // without cloud-init data, unless the role may edit
	"GET /v1/virtual-clusters/{name}/versions":  permitView,

	"GET /v1/vms":                 permitView,
	"GET /v1/vms/{name}":          permitView,
	"GET /v1/vms/{name}/samples":  permitView,
	"GET /v1/vms/{name}/forecast": permitView,
	"GET /v1/vms/{name}/console":  permitEdit,
	"POST /v1/vms/{name}/start":   permitEdit,
	"POST /v1/vms/{name}/stop":    permitEdit,
	"POST /v1/vms/{name}/restart": permitEdit,
	"POST /v1/vms/{name}/reset":   permitEdit,

	"GET /v1/migrations":      permitView,
	"GET /v1/migrations/{id}": permitView,
}

// routes are all routes of the API, as the mux names them, with the permission that each needs. A route that is not
// here is the admins' only. HEAD is GET.
var routes = map[string]permission{
	"GET /livez":   permitAnyone,
	"GET /readyz":  permitAnyone,
	"GET /metrics": permitMetrics,

	"POST " + joinPath: permitAnyone, // brings a join token

	"GET " + authPath: permitAnyone, // how to log in
	"GET " + selfPath: permitSelf,

	"GET /openapi.json": permitRead,

	"GET /v1/cluster/status":            permitRead,
	"GET /v1/cluster/settings":          permitRead,
	"PATCH /v1/cluster/settings":        permitOperate,
	"GET /v1/cluster/members":           permitRead,
	"DELETE /v1/cluster/members/{name}": permitOperate,
	"POST /v1/cluster/leader":           permitOperate,
	"POST /v1/cluster/fencing/enable":   permitOperate,
	"POST /v1/cluster/fencing/disable":  permitOperate,
	"GET " + snapshotPath:               permitAdminister, // holds cloud-init data and hashes of tokens
	"POST " + snapshotPath:              permitAdminister,

	// A join token of a server is worth the CA's key.
	"GET /v1/cluster/join-tokens":  permitAudit,
	"POST /v1/cluster/join-tokens": permitAdminister,
	"GET /v1/tokens":               permitAudit,
	"POST /v1/tokens":              permitAdminister,
	"DELETE /v1/tokens/{id}":       permitAdminister,
	"GET /v1/audit":                permitAudit,

	"GET /v1/tenants":           permitRead,
	"POST /v1/tenants":          permitOperate,
	"GET /v1/tenants/{name}":    permitRead,
	"PATCH /v1/tenants/{name}":  permitOperate,
	"DELETE /v1/tenants/{name}": permitOperate,
	"GET /v1/quotas":            permitRead,
	"GET /v1/quotas/{name}":     permitRead,
	"PATCH /v1/quotas/{name}":   permitOperate,

	"GET /v1/cluster/rightsizing": permitRead,
	"GET /v1/events":              permitRead,
	"GET /v1/operations":          permitRead,
	"GET /v1/operations/{id}":     permitRead,

	"GET /v1/images":           permitRead,
	"GET /v1/images/{name}":    permitRead,
	"POST /v1/images":          permitOperate,
	"DELETE /v1/images/{name}": permitOperate,

	"GET /v1/virtual-clusters":                permitRead,
	"POST /v1/virtual-clusters":               permitOperate,
	"GET /v1/virtual-clusters/{name}":         permitRead,
	"PATCH /v1/virtual-clusters/{name}":       permitOperate,
	"DELETE /v1/virtual-clusters/{name}":      permitOperate,
	"POST /v1/virtual-clusters/{name}/start":  permitOperate,
	"POST /v1/virtual-clusters/{name}/stop":   permitOperate,
	"GET /v1/virtual-clusters/{name}/explain": permitRead,

	"PUT /v1/virtual-clusters/{name}":           permitOperate,
	"POST /v1/virtual-clusters/{name}/rollback": permitOperate,
	"GET /v1/virtual-clusters/{name}/spec":      permitRead, // without cloud-init data, unless the role may operate
	"GET /v1/virtual-clusters/{name}/versions":  permitRead,

	"GET /v1/vms":                 permitRead,
	"GET /v1/vms/{name}":          permitRead,
	"GET /v1/vms/{name}/samples":  permitRead,
	"GET /v1/vms/{name}/forecast": permitRead,
	"POST /v1/vms/{name}/start":   permitOperate,
	"POST /v1/vms/{name}/stop":    permitOperate,
	"POST /v1/vms/{name}/restart": permitOperate,
	"POST /v1/vms/{name}/reset":   permitOperate,
	"POST /v1/vms/{name}/migrate": permitOperate,
	"GET /v1/vms/{name}/console":  permitOperate, // its input is root's keyboard in many guests

	"GET /v1/hosts":                      permitRead,
	"GET /v1/hosts/{name}":               permitRead,
	"PUT /v1/hosts/{name}/cordon":        permitOperate,
	"POST /v1/hosts/{name}/cordon":       permitOperate,
	"DELETE /v1/hosts/{name}/cordon":     permitOperate,
	"GET /v1/hosts/{name}/drain":         permitRead,
	"POST /v1/hosts/{name}/drain":        permitOperate,
	"DELETE /v1/hosts/{name}/drain":      permitOperate,
	"GET /v1/hosts/{name}/empty":         permitRead,
	"POST /v1/hosts/{name}/confirm-dead": permitOperate,
	"POST /v1/hosts/{name}/fence":        permitOperate,
	"GET /v1/drain-batches":              permitRead,

	"GET /v1/plans":                  permitRead,
	"GET /v1/plans/{id}":             permitRead,
	"POST /v1/plans/{id}/apply":      permitOperate,
	"POST /v1/plans/{id}/stop":       permitOperate,
	"GET /v1/failover-capacity":      permitRead,
	"POST " + simulatePath:           permitOperate, // changes nothing, but takes a saved state and much CPU
	"GET /v1/migrations":             permitRead,
	"GET /v1/migrations/{id}":        permitRead,
	"POST /v1/migrations/{id}/abort": permitOperate,
	"POST /v1/rebalance":             permitOperate,
	"GET /v1/rebalance/curve":        permitRead,
}

// may says whether a role has the permission of a route, by its pattern.
func may(role state.Role, pattern string) bool {
	need, known := routes[pattern]
	if !known {
		need = permitAdminister
	}
	if of, open := tenantRoutes[pattern]; open && slices.Contains(grants[role], of) {
		return true
	}
	return need == permitAnyone || slices.Contains(grants[role], need)
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
			if routes[pattern] == permitAnyone {
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
