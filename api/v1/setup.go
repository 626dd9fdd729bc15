package v1

import "time"

// SetupSocket is where a vcd that runs as a member answers its host's root.
const SetupSocket = "/run/evenkeel/vcd.sock"

// SetupState is what a vcd says of itself on its local socket.
type SetupState struct {
	Member  bool   `json:"member"` // it has an identity
	Name    string `json:"name"`
	Cluster string `json:"cluster,omitempty"`
	Roles   string `json:"roles,omitempty"`
	Address string `json:"address"`       // for members, host:port
	API     string `json:"api,omitempty"` // for clients of the API, host:port, where it has a port of its own
	Ready   bool   `json:"ready"`
	Reason  string `json:"reason,omitempty"` // why it is not
	Version string `json:"version"`
}

// SetupInit asks a vcd to make a new cluster.
type SetupInit struct {
	MinYield *float64 `json:"minYield,omitempty"`
}

// SetupJoin asks a vcd to enter a cluster.
type SetupJoin struct {
	Token     string   `json:"token"`
	Addresses []string `json:"addresses"` // of servers, host:port
}

// SetupAnswer is what became of it. The admin token is there once, after init.
type SetupAnswer struct {
	SetupState
	AdminToken string `json:"adminToken,omitempty"`
	CA         string `json:"ca,omitempty"` // PEM

	Host []HostFinding `json:"host,omitempty"` // problems and warnings of the host that runs VMs
}

// HostFinding is what a host lacks.
type HostFinding struct {
	Check string `json:"check"`          // such as kvm, watchdog, moves
	Level string `json:"level"`          // problem: no VM runs here as it should; warning: part of Evenkeel will not work here
	Text  string `json:"text"`           // what it lacks
	Mend  string `json:"mend,omitempty"` // a command, or a page of the documentation
}

// Member is a vcd of the cluster.
type Member struct {
	Name     string    `json:"name" doc:"Name of the member, and of its host."`
	Server   bool      `json:"server" doc:"Whether it keeps the log."`
	Agent    bool      `json:"agent" doc:"Whether it runs VMs."`
	Address  string    `json:"address" doc:"Where other members reach it."`
	Version  string    `json:"version,omitempty" doc:"Of its software: a server's as the leader recorded it; of a member that is an agent alone, what it says in gossip, a hint. Empty if it is not known."`
	JoinedAt time.Time `json:"joinedAt" doc:"When it was let in."`
	// CertificateUntil is zero where the cluster issued it none.
	CertificateUntil time.Time `json:"certificateUntil,omitzero" doc:"When its newest certificate of the cluster's CA expires; it is renewed before. Left out with a PKI of your own."`
	Gossip           string    `json:"gossip" doc:"reachable, or silent: a hint of the members' own talk, never proof."`
	// Of a server.
	Leader  bool    `json:"leader,omitempty" doc:"Whether it leads."`
	Voter   bool    `json:"voter,omitempty" doc:"Whether it votes."`
	Healthy bool    `json:"healthy,omitempty" doc:"Whether the leader finds it well."`
	Contact float64 `json:"contact,omitempty" doc:"Seconds since it last answered the leader; below 0: it has not answered this one yet."`
	Behind  uint64  `json:"behind,omitempty" doc:"Entries in force that its state does not hold yet."`
	Trouble string  `json:"trouble,omitempty" doc:"Why it is not well."`
	SlowLog string  `json:"slowLog,omitempty" doc:"What is to be said of its log, if appends to that are slow."`
	// Of an agent: its host's lease.
	Lease string `json:"lease,omitempty" doc:"State of the lease, as of a host."`
}

// Certificate of a member.
type Certificate struct {
	Member string    `json:"member" doc:"Name of the member."`
	Serial string    `json:"serial" doc:"Its number, in hexadecimal digits."`
	Until  time.Time `json:"until" doc:"When it expires."`
	Newest bool      `json:"newest" doc:"Whether it is the member's newest. The older ones are good until they expire, or the member is removed or let in again."`
}

// JoinTokenRequest asks for a token that lets one member in.
type JoinTokenRequest struct {
	Server  bool     `json:"server,omitempty" doc:"Let the member in as a server."`
	Agent   bool     `json:"agent,omitempty" doc:"Let the member in as an agent."`
	NoVote  bool     `json:"noVote,omitempty" doc:"A server that follows the log and never votes: it takes requests, and does not count for a majority."`
	For     string   `json:"for,omitempty" maxLength:"63" pattern:"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$" patternDescription:"the name of a member, a DNS label in lower case" doc:"Name of the member that it lets in, and no other; also one that is in the cluster already and lost what it had. Its old certificates count no more then."`
	Seconds *float64 `json:"seconds,omitempty" minimum:"60" maximum:"604800" doc:"Life of the token: 60 to 604800; default 3600."`
	Comment string   `json:"comment,omitempty" maxLength:"200" doc:"What it is for."`
}

func (q *JoinTokenRequest) check(fault func(field, format string, args ...any)) {
	switch {
	case !q.Server && !q.Agent:
		fault("agent", "give the member a role: server, agent or both")
	case q.NoVote && !q.Server:
		fault("noVote", "is for servers: an agent has no vote anyway")
	}
}

// JoinToken lets one member in, once.
type JoinToken struct {
	ID      string    `json:"id" doc:"Id of the token; no secret."`
	Token   string    `json:"token,omitempty" doc:"Shown once, when it is made."`
	Server  bool      `json:"server" doc:"Whether the member becomes a server."`
	Agent   bool      `json:"agent" doc:"Whether the member becomes an agent."`
	NoVote  bool      `json:"noVote,omitempty" doc:"Whether the server never votes."`
	For     string    `json:"for,omitempty" maxLength:"63" pattern:"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$" patternDescription:"the name of a member, a DNS label in lower case" doc:"The one member that it lets in, if it names one."`
	Until   time.Time `json:"until" doc:"When it expires."`
	UsedBy  string    `json:"usedBy,omitempty" doc:"The member that used it; it lets no other in."`
	Comment string    `json:"comment,omitempty" doc:"What it is for."`
}

// LeaderRequest hands leadership on.
type LeaderRequest struct {
	To string `json:"to,omitempty" doc:"Name of a voting server; empty: the one whose log is the newest."`
}

// ReasonRequest comes with what an operator has to answer for.
type ReasonRequest struct {
	Reason string `json:"reason,omitempty" maxLength:"500" doc:"Why it is done; stands in the events and the audit log."`
}

// FenceRequest is for the fence device of a host.
type FenceRequest struct {
	Test bool `json:"test,omitempty" doc:"Only ask the device whether the power is on."`
}

// Acknowledgement is an answer in words.
type Acknowledgement struct {
	Text string `json:"text" doc:"What was done, or would be done in a dry run."`
}

// Snapshot is a saved state of the cluster.
type Snapshot struct {
	Cluster         string    `json:"cluster" doc:"Id of the cluster."`
	Index           uint64    `json:"index" doc:"Log index of the last change in it."`
	Term            uint64    `json:"term" doc:"Term of that change."`
	Epoch           uint64    `json:"epoch" doc:"Epoch of the cluster then."`
	Time            time.Time `json:"time" doc:"When it was saved."`
	Server          string    `json:"server" doc:"The server that saved it."`
	Version         string    `json:"version" doc:"Version of the software that saved it."`
	Hosts           int       `json:"hosts" doc:"Number of hosts."`
	Members         int       `json:"members" doc:"Number of members."`
	VirtualClusters int       `json:"virtualClusters" doc:"Number of virtual clusters."`
	VMs             int       `json:"vms" doc:"Number of VMs."`
	Images          int       `json:"images" doc:"Number of images."`
}

// TokenRequest asks for a token of the API.
type TokenRequest struct {
	Name    string   `json:"name" maxLength:"63" doc:"What it is for: 1 to 63 printable ASCII characters. Names need not be unique."`
	Role    string   `json:"role" enum:"admin,operator,auditor,metrics,owner,editor,viewer" doc:"What its holder may do. Of the cluster: admin: everything. operator: everything but tokens, join tokens, the audit log and snapshots. auditor: reads, but no consoles and snapshots, and the audit log. metrics: /metrics only. Of a tenant: owner: everything in it, its tokens included. editor: its virtual clusters, consoles included. viewer: reads."`
	Tenant  string   `json:"tenant,omitempty" maxLength:"63" doc:"Tenant that it is for, with a role of a tenant. Left out: the cluster, or the tenant of the token that asks."`
	From    []string `json:"from,omitempty" maxItems:"16" doc:"Addresses that it may be used from: ranges such as 10.0.0.0/24, or single addresses, each in one of the token that asks. Left out: those of that token, or all."`
	Seconds *float64 `json:"seconds,omitempty" minimum:"60" maximum:"315360000" doc:"Life of the token, at most that of the token that asks; left out: as long as that one, or without an end."`
}

// Token of the API.
type Token struct {
	ID       string     `json:"id,omitempty" doc:"16 hex digits; also stands in the token. Empty in the answer of a dry run."`
	Token    string     `json:"token,omitempty" doc:"ekt_ID.SECRET. Shown once, when it is made."`
	Name     string     `json:"name" doc:"What it is for."`
	Role     string     `json:"role" doc:"What its holder may do."`
	Tenant   string     `json:"tenant,omitempty" doc:"Tenant that it is for; left out: the cluster."`
	Until    *time.Time `json:"until,omitempty" doc:"When it expires; left out: never."`
	From     []string   `json:"from,omitempty" doc:"Ranges of addresses that it may be used from; left out: all."`
	MadeAt   *time.Time `json:"madeAt,omitempty" doc:"When it was made."`
	MadeBy   string     `json:"madeBy,omitempty" doc:"Who asked for it."`
	LastUsed *time.Time `json:"lastUsed,omitempty" doc:"Behind by up to 10 minutes; left out: not used so far."`
}

// TokenRevocation is what came of revoking a token, or would come of it.
type TokenRevocation struct {
	ID           string `json:"id" doc:"Id of the token."`
	Name         string `json:"name" doc:"What it was for."`
	Role         string `json:"role" doc:"What its holder could do."`
	DryRun       bool   `json:"dryRun,omitempty" doc:"Nothing was revoked."`
	EventStreams int    `json:"eventStreams" doc:"Event streams that it ends on the server that leads."`
	Consoles     int    `json:"consoles" doc:"Consoles that it ends there."`
	LongPolls    int    `json:"longPolls" doc:"Long polls that it ends there."`
	Text         string `json:"text" doc:"The outcome in words."`
}
