// Package server is Evenkeel's REST API: it authenticates and checks a request,
// passes it to the cluster's control, and turns the answer into wire types
// or into a problem document (RFC 9457) that names the field at fault.
//
// It decides nothing about virtual clusters, keeps no state of its own besides
// counters, and never answers without a token but for /livez, /readyz, /v1/auth and the log-in of the dashboard (api/ui).
// The OpenAPI document at /openapi.json is made from this code.
package server
