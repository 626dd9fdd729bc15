package v1

import "time"

// Auth says how a person can log in.
type Auth struct {
	OIDC *OIDC `json:"oidc,omitempty" doc:"The OpenID Connect issuer whose tokens this server takes; left out: none."`
}

// OIDC is what a client needs to know of the issuer.
type OIDC struct {
	Issuer   string   `json:"issuer" doc:"The issuer's identifier, a URL." example:"https://id.example.org"`
	ClientID string   `json:"clientID,omitempty" doc:"The public client to log in with; left out: vcctl cannot log in."`
	Audience string   `json:"audience" doc:"What tokens must be for. If it is the client, ID tokens serve, else access tokens."`
	MaxAge   float64  `json:"maxAgeSeconds" doc:"How long after it was issued a token is good at most, in seconds."`
	Scopes   []string `json:"scopes,omitempty" doc:"Scopes to ask for; left out: openid, profile, groups and offline_access, as far as the issuer lists them."`
}

// Self is the holder of the token of the request.
type Self struct {
	ID     string         `json:"id" doc:"The id of the token, or of the subject of OpenID Connect: oidc: and a hash of issuer and subject."`
	Name   string         `json:"name" doc:"Of the token, or of the person."`
	Role   string         `json:"role" doc:"What the holder may do in this request."`
	Tenant string         `json:"tenant,omitempty" doc:"Tenant in which the holder has the role; left out: the cluster."`
	Actor  string         `json:"actor" doc:"The holder's id in the audit log: token:ID or oidc:SUBJECT."`
	Until  *time.Time     `json:"until,omitempty" doc:"When the token ends; left out: never."`
	Groups []string       `json:"groups,omitempty" doc:"The groups that the issuer names."`
	Roles  []AssignedRole `json:"roles" nullable:"false" doc:"All roles that the holder has. One in the cluster comes before those in tenants; of those, the request's parameter tenant chooses."`
}
