// Package server is Evenkeel's REST API: it authenticates and checks a request,
// passes it to the cluster's control, and turns the answer into wire types
// or into a problem document (RFC 9457) that names the field at fault.
//
// It decides nothing about virtual clusters and keeps no state of its own besides counters. Without a token of the API it
// answers only /livez, /readyz, /v1/auth, the log-in of the dashboard (api/ui) and, for a good join token,
// /v1/cluster/join.
// The OpenAPI document at /openapi.json is made from this code.
package server
