// Package audit records which caller asked for what, from where, and with which outcome. It keeps a file of its own, apart from
// the cluster's events: refused strangers cannot push records of others out of it.
package audit

import "context"

// Actor is the caller of a request.
type Actor struct {
	// ID is "token:ID" for a token of the API, "oidc:SUBJECT" for one of OpenID Connect, "certificate:SERIAL" for a member's certificate, "local" for root on a
	// host's own socket, and "" for one that is not authenticated.
	ID string `json:"id"`
	// Name of the token or member, as its maker wrote it.
	Name string `json:"name,omitempty"`
	// Tenant that it is of; "": the cluster. The object of its request is then one of that tenant.
	Tenant string `json:"tenant,omitempty"`
	// Client is the address that the request came from, host:port.
	Client string `json:"client,omitempty"`
	// Request is the id of the request (X-Request-Id).
	Request string `json:"request,omitempty"`
}

// String names the actor in events and messages: "token deploy (3f2a9c...)", "member h2".
func (a Actor) String() string {
	switch {
	case a.ID == "":
		return "not authenticated"
	case a.Name == "":
		return a.ID
	}
	return a.Name + " (" + a.ID + ")"
}

type actorKey struct{}

// With returns a context in which that actor asks.
func With(ctx context.Context, a Actor) context.Context { return context.WithValue(ctx, actorKey{}, a) }

// Of returns the actor that asks in a context; the zero Actor if none is known.
func Of(ctx context.Context) Actor {
	a, _ := ctx.Value(actorKey{}).(Actor)
	return a
}
