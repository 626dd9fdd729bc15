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
}

// Member is a vcd of the cluster.
type Member struct {
	Name     string    `json:"name"`
	Server   bool      `json:"server"`
	Agent    bool      `json:"agent"`
	Address  string    `json:"address"`
	Version  string    `json:"version,omitempty" doc:"Of its software: a server's as the leader recorded it; of a member that is an agent alone, what it says in gossip, a hint. Empty if it is not known."`
	JoinedAt time.Time `json:"joinedAt"`
	Gossip   string    `json:"gossip" doc:"there, or silent: a hint of the members' own talk, never proof."`
	// Of a server.
	Leader  bool    `json:"leader,omitempty"`
	Voter   bool    `json:"voter,omitempty"`
	Healthy bool    `json:"healthy,omitempty"`
	Contact float64 `json:"contact,omitempty" doc:"Seconds since it last answered the leader; below 0: it has not answered this one yet."`
	Behind  uint64  `json:"behind,omitempty" doc:"Entries in force that its state does not hold yet."`
	Trouble string  `json:"trouble,omitempty"`
	SlowLog string  `json:"slowLog,omitempty" doc:"What is to be said of its log, if appends to that are slow."`
	// Of an agent: its host's lease.
	Lease string `json:"lease,omitempty"`
}

// JoinTokenRequest asks for a token that lets one member in.
type JoinTokenRequest struct {
	Server  bool     `json:"server,omitempty"`
	Agent   bool     `json:"agent,omitempty"`
	NoVote  bool     `json:"noVote,omitempty" doc:"A server that follows the log and never votes: it takes requests, and does not count for a majority."`
	For     string   `json:"for,omitempty" maxLength:"63" pattern:"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$" patternDescription:"the name of a member, a DNS label in lower case" doc:"Name of the member that it lets in, and no other; also one that is in the cluster already and lost what it had. Its old certificates count no more then."`
	Seconds *float64 `json:"seconds,omitempty" minimum:"60" maximum:"604800" doc:"Life of the token: 60 to 604800; default 3600."`
	Comment string   `json:"comment,omitempty" maxLength:"200"`
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
	ID      string    `json:"id"`
	Token   string    `json:"token,omitempty" doc:"Shown once, when it is made."`
	Server  bool      `json:"server"`
	Agent   bool      `json:"agent"`
	NoVote  bool      `json:"noVote,omitempty"`
	For     string    `json:"for,omitempty" maxLength:"63" pattern:"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$" patternDescription:"the name of a member, a DNS label in lower case" doc:"The one member that it lets in, if it names one."`
	Until   time.Time `json:"until"`
	UsedBy  string    `json:"usedBy,omitempty"`
	Comment string    `json:"comment,omitempty"`
}

// LeaderRequest hands leadership on.
type LeaderRequest struct {
	To string `json:"to,omitempty" doc:"Name of a voting server; empty: the one whose log is the newest."`
}

// ReasonRequest comes with what an operator has to answer for.
type ReasonRequest struct {
	Reason string `json:"reason,omitempty" maxLength:"500"`
}

// FenceRequest is for the fence device of a host.
type FenceRequest struct {
	Test bool `json:"test,omitempty" doc:"Only ask the device whether the power is on."`
}

// Acknowledgement is an answer in words.
type Acknowledgement struct {
	Text string `json:"text"`
}

// Snapshot is a saved state of the cluster.
type Snapshot struct {
	Cluster         string    `json:"cluster"`
	Index           uint64    `json:"index"`
	Term            uint64    `json:"term"`
	Epoch           uint64    `json:"epoch"`
	Time            time.Time `json:"time"`
	Server          string    `json:"server"`
	Version         string    `json:"version"`
	Hosts           int       `json:"hosts"`
	Members         int       `json:"members"`
	VirtualClusters int       `json:"virtualClusters"`
	VMs             int       `json:"vms"`
	Images          int       `json:"images"`
}

// TokenRequest asks for a token of the API.
type TokenRequest struct {
	Name    string   `json:"name" maxLength:"63" doc:"What it is for: 1 to 63 printable ASCII characters. Names need not be unique."`
	Role    string   `json:"role" enum:"admin,operator,auditor,metrics" doc:"What its holder may do. admin: everything. operator: everything but tokens, join tokens, the audit log and snapshots. auditor: reads, but no consoles and snapshots, and the audit log. metrics: /metrics only."`
	Seconds *float64 `json:"seconds,omitempty" minimum:"60" maximum:"315360000" doc:"Life of the token; left out: without an end."`
}

// Token of the API.
type Token struct {
	ID       string     `json:"id,omitempty" doc:"16 hex digits; also stands in the token. Empty in the answer of a dry run."`
	Token    string     `json:"token,omitempty" doc:"ekt_ID.SECRET. Shown once, when it is made."`
	Name     string     `json:"name"`
	Role     string     `json:"role"`
	Until    *time.Time `json:"until,omitempty" doc:"When it expires; left out: never."`
	MadeAt   *time.Time `json:"madeAt,omitempty"`
	MadeBy   string     `json:"madeBy,omitempty" doc:"Who asked for it."`
	LastUsed *time.Time `json:"lastUsed,omitempty" doc:"Behind by up to 10 minutes; left out: not used so far."`
}

// TokenRevocation is what came of revoking a token, or would come of it.
type TokenRevocation struct {
	ID           string `json:"id"`
	Name         string `json:"name"`
	Role         string `json:"role"`
	DryRun       bool   `json:"dryRun,omitempty"`
	EventStreams int    `json:"eventStreams" doc:"Event streams that it ends on the server that leads."`
	Consoles     int    `json:"consoles" doc:"Consoles that it ends there."`
	LongPolls    int    `json:"longPolls" doc:"Long polls that it ends there."`
	Text         string `json:"text"`
}
