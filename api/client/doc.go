// Package client is the Go client of Evenkeel's REST API. vcctl uses it; so
// may other programs.
//
// Every problem document comes back as an *Error, and a server that cannot be
// reached as ErrUnreachable. The package keeps no state besides connections,
// retries nothing but event streams, and never writes a token anywhere.
package client
