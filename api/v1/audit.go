package v1

import "time"

// AuditList is the answer of GET /v1/audit.
type AuditList struct {
	Items   []AuditRecord `json:"items" doc:"Newest last."`
	Missing []string      `json:"missing,omitempty" doc:"What is not in the answer, and why: servers that could not be asked, lines that are damaged."`
}

// AuditRecord says who asked for what, and what came of it.
type AuditRecord struct {
	At      time.Time   `json:"at" doc:"When it was answered, by the clock of the server."`
	Server  string      `json:"server" doc:"The server that answered."`
	Seq     uint64      `json:"seq" doc:"Number of the record on its server. Server and number name the record."`
	Actor   AuditActor  `json:"actor" doc:"Who asked."`
	Verb    string      `json:"verb" doc:"The id of the operation in this document, or what a member did by itself (issueCertificate, renewCertificate), or what was refused (unauthenticated, connection-refused, join-refused, refusals)."`
	Object  AuditObject `json:"object" doc:"What it was done to."`
	Outcome string      `json:"outcome" enum:"ok,refused,failed" doc:"refused: 401, 403, 429; failed: any other error."`
	Status  int         `json:"status,omitempty" doc:"HTTP status of the answer; none where nothing was answered by HTTP."`
	Count   uint64      `json:"count,omitempty" doc:"How many the record stands for, if more than one may be."`
	Detail  string      `json:"detail,omitempty" doc:"The outcome in words, where there is more to say."`
}

// AuditActor is who asked.
type AuditActor struct {
	ID      string `json:"id" doc:"token:ID, oidc:SUBJECT of OpenID Connect, certificate:SERIAL of a member, local for root on a host's own socket, empty for one that is not authenticated."`
	Name    string `json:"name,omitempty" doc:"Of the token or member."`
	Tenant  string `json:"tenant,omitempty" doc:"Tenant that it is of, whose the object then is; left out: the cluster."`
	Client  string `json:"client,omitempty" doc:"Address that the request came from."`
	Request string `json:"request,omitempty" doc:"X-Request-Id. Clients choose it, so it may repeat."`
}

// AuditObject is what was asked about.
type AuditObject struct {
	Kind string `json:"kind,omitempty" doc:"What kind of thing it is: vc, host, token and so on."`
	Name string `json:"name,omitempty" doc:"Its name, or its id where it has no name."`
}
