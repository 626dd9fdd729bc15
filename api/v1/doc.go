// Package v1 holds the wire types of Evenkeel's REST API, version 1, and the
// one parser of what users write: VC files, sizes and the bodies of requests.
//
// Units: CPU in cores (float64), memory and disk in bytes (Size, int64),
// yields in [0, 1], times in RFC 3339.
//
// The package is pure: no I/O, no clock, no defaults that depend on a cluster.
// It knows nothing of the cluster's own types; the server maps between the two.
package v1
