// Package client is the Go client of Evenkeel's REST API. vcctl uses it; so
// may other programs.
//
// Every problem document comes back as an *Error, and a server that cannot be
// reached as ErrUnreachable. The package keeps no state besides connections,
// never writes a token anywhere, and asks again only where that is safe: event streams, waits, and,
// where it knows several servers, what surely did not arrive or has an idempotency key.
package client
