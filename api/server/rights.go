package server

// right is what a route does, and what it needs of a role.
type right struct {
	verb, kind string     // what is done, to which kind of objects: the routes of one verb and kind need the same
	cluster    permission // of a role of the cluster
	tenant     permission // of a role of a tenant, in its own; "": no such role may. What a route shows to a tenant is decided in scope.go.
}

// rights are all routes of the API, as the mux names them. A route that is not here is the admins' only. HEAD is GET. The table of
// permissions in the documentation, `vcctl auth can-i` and the OpenAPI document follow from it.
var rights = map[string]right{
	"GET /livez":   {"get", "health", permitAnyone, ""},
	"GET /readyz":  {"get", "health", permitAnyone, ""},
	"GET /metrics": {"get", "metrics", permitMetrics, ""},

	"POST " + joinPath: {"join", "cluster", permitAnyone, ""}, // brings a join token

	"GET " + authPath:        {"get", "login", permitAnyone, ""}, // how to log in
	"GET " + selfPath:        {"get", "self", permitSelf, ""},
	"GET " + permissionsPath: {"get", "self", permitSelf, ""},
	"GET " + canIPath:        {"get", "self", permitSelf, ""},

	"GET /openapi.json": {"get", "api", permitRead, permitView},

	"GET /v1/cluster/status":            {"get", "status", permitRead, permitView},
	"GET /v1/cluster/settings":          {"get", "settings", permitRead, permitView},
	"PATCH /v1/cluster/settings":        {"change", "settings", permitOperate, ""},
	"GET /v1/cluster/members":           {"get", "member", permitRead, ""},
	"DELETE /v1/cluster/members/{name}": {"delete", "member", permitOperate, ""},
	"GET /v1/cluster/certificates":      {"get", "certificate", permitRead, ""},
	"POST /v1/cluster/leader":           {"transfer", "leadership", permitOperate, ""},
	"POST /v1/cluster/fencing/enable":   {"change", "fencing", permitOperate, ""},
	"POST /v1/cluster/fencing/disable":  {"change", "fencing", permitOperate, ""},
	"GET " + snapshotPath:               {"save", "snapshot", permitAdminister, ""}, // holds cloud-init data and hashes of tokens
	"POST " + snapshotPath:              {"restore", "snapshot", permitAdminister, ""},

	"POST /v1/cluster/members/{name}/certificate": {"renew", "certificate", permitOperate, ""},

	// A join token of a server is worth the CA's key.
	"GET /v1/cluster/join-tokens":   {"get", "join-token", permitAudit, ""},
	"POST /v1/cluster/join-tokens":  {"create", "join-token", permitAdminister, ""},
	"GET /v1/tokens":                {"get", "token", permitAudit, permitOwn},
	"POST /v1/tokens":               {"create", "token", permitAdminister, permitOwn},
	"DELETE /v1/tokens/{id}":        {"revoke", "token", permitAdminister, permitOwn},
	"GET /v1/audit":                 {"get", "audit-log", permitAudit, ""},
	"GET /v1/role-bindings":         {"get", "role", permitAudit, permitOwn},
	"POST /v1/role-bindings":        {"grant", "role", permitAdminister, permitOwn},
	"DELETE /v1/role-bindings/{id}": {"revoke", "role", permitAdminister, permitOwn},
	"GET " + revocationsPath:        {"get", "revocation", permitAudit, ""},
	"POST " + revocationsPath:       {"revoke", "user", permitAdminister, ""},

	"GET /v1/tenants":           {"get", "tenant", permitRead, permitView},
	"POST /v1/tenants":          {"create", "tenant", permitOperate, ""},
	"GET /v1/tenants/{name}":    {"get", "tenant", permitRead, permitView},
	"PATCH /v1/tenants/{name}":  {"change", "tenant", permitOperate, ""},
	"DELETE /v1/tenants/{name}": {"delete", "tenant", permitOperate, ""},
	"GET /v1/quotas":            {"get", "quota", permitRead, permitView},
	"GET /v1/quotas/{name}":     {"get", "quota", permitRead, permitView},
	"PATCH /v1/quotas/{name}":   {"change", "quota", permitOperate, ""},

	"GET /v1/cluster/rightsizing": {"get", "cluster", permitRead, ""},
	"GET /v1/events":              {"get", "event", permitRead, permitView},
	"GET /v1/operations":          {"get", "operation", permitRead, permitView},
	"GET /v1/operations/{id}":     {"get", "operation", permitRead, permitView},

	"GET /v1/images":           {"get", "image", permitRead, permitView},
	"GET /v1/images/{name}":    {"get", "image", permitRead, permitView},
	"POST /v1/images":          {"create", "image", permitOperate, ""},
	"DELETE /v1/images/{name}": {"delete", "image", permitOperate, ""},

	"GET /v1/virtual-clusters":                {"get", "virtual-cluster", permitRead, permitView},
	"POST /v1/virtual-clusters":               {"create", "virtual-cluster", permitOperate, permitEdit},
	"GET /v1/virtual-clusters/{name}":         {"get", "virtual-cluster", permitRead, permitView},
	"PATCH /v1/virtual-clusters/{name}":       {"change", "virtual-cluster", permitOperate, permitEdit},
	"DELETE /v1/virtual-clusters/{name}":      {"delete", "virtual-cluster", permitOperate, permitEdit},
	"POST /v1/virtual-clusters/{name}/start":  {"start", "virtual-cluster", permitOperate, permitEdit},
	"POST /v1/virtual-clusters/{name}/stop":   {"stop", "virtual-cluster", permitOperate, permitEdit},
	"GET /v1/virtual-clusters/{name}/explain": {"get", "virtual-cluster", permitRead, permitView},

	"PUT /v1/virtual-clusters/{name}":           {"change", "virtual-cluster", permitOperate, permitEdit},
	"POST /v1/virtual-clusters/{name}/rollback": {"change", "virtual-cluster", permitOperate, permitEdit},
	"GET /v1/virtual-clusters/{name}/spec":      {"get", "virtual-cluster", permitRead, permitView}, // without cloud-init data, unless the role may change it
	"GET /v1/virtual-clusters/{name}/versions":  {"get", "virtual-cluster", permitRead, permitView},

	"GET /v1/periodic":                  {"get", "periodic", permitRead, permitView},
	"GET /v1/periodic/{name}":           {"get", "periodic", permitRead, permitView},
	"POST /v1/periodic/{name}/accept":   {"sign-off", "periodic", permitOperate, permitEdit},
	"POST /v1/periodic/{name}/override": {"sign-off", "periodic", permitOperate, permitEdit},
	"POST /v1/periodic/{name}/reject":   {"sign-off", "periodic", permitOperate, permitEdit},

	"GET /v1/vms":                 {"get", "vm", permitRead, permitView},
	"GET /v1/vms/{name}":          {"get", "vm", permitRead, permitView},
	"GET /v1/vms/{name}/samples":  {"get", "vm", permitRead, permitView},
	"GET /v1/vms/{name}/forecast": {"get", "vm", permitRead, permitView},
	"POST /v1/vms/{name}/start":   {"start", "vm", permitOperate, permitEdit},
	"POST /v1/vms/{name}/stop":    {"stop", "vm", permitOperate, permitEdit},
	"POST /v1/vms/{name}/restart": {"restart", "vm", permitOperate, permitEdit},
	"POST /v1/vms/{name}/reset":   {"reset", "vm", permitOperate, permitEdit},
	"POST /v1/vms/{name}/migrate": {"migrate", "vm", permitOperate, ""},
	"GET /v1/vms/{name}/console":  {"open", "console", permitOperate, permitEdit}, // its input is root's keyboard in many guests

	"GET /v1/hosts":                      {"get", "host", permitRead, ""},
	"GET /v1/hosts/{name}":               {"get", "host", permitRead, ""},
	"PUT /v1/hosts/{name}/cordon":        {"cordon", "host", permitOperate, ""},
	"POST /v1/hosts/{name}/cordon":       {"cordon", "host", permitOperate, ""},
	"DELETE /v1/hosts/{name}/cordon":     {"cordon", "host", permitOperate, ""},
	"GET /v1/hosts/{name}/drain":         {"get", "host", permitRead, ""},
	"POST /v1/hosts/{name}/drain":        {"drain", "host", permitOperate, ""},
	"DELETE /v1/hosts/{name}/drain":      {"drain", "host", permitOperate, ""},
	"GET /v1/hosts/{name}/empty":         {"get", "host", permitRead, ""},
	"POST /v1/hosts/{name}/confirm-dead": {"confirm-dead", "host", permitOperate, ""},
	"POST /v1/hosts/{name}/fence":        {"fence", "host", permitOperate, ""},
	"GET /v1/drain-batches":              {"get", "host", permitRead, ""},

	"GET /v1/plans":                  {"get", "plan", permitRead, ""},
	"GET /v1/plans/{id}":             {"get", "plan", permitRead, ""},
	"POST /v1/plans/{id}/apply":      {"apply", "plan", permitOperate, ""},
	"POST /v1/plans/{id}/stop":       {"stop", "plan", permitOperate, ""},
	"GET /v1/failover-capacity":      {"get", "cluster", permitRead, ""},
	"POST " + simulatePath:           {"simulate", "cluster", permitOperate, ""}, // changes nothing, but takes a saved state and much CPU
	"GET /v1/migrations":             {"get", "migration", permitRead, permitView},
	"GET /v1/migrations/{id}":        {"get", "migration", permitRead, permitView},
	"POST /v1/migrations/{id}/abort": {"abort", "migration", permitOperate, ""},
	"POST /v1/rebalance":             {"rebalance", "cluster", permitOperate, ""},
	"GET /v1/rebalance/curve":        {"get", "cluster", permitRead, ""},
}
