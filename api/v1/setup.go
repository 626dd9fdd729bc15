package v1

// SetupSocket is where a vcd that runs as a member answers its host's root.
const SetupSocket = "/run/evenkeel/vcd.sock"

// SetupState is what a vcd says of itself on its local socket.
type SetupState struct {
	Member  bool   `json:"member"` // it has an identity
	Name    string `json:"name"`
	Cluster string `json:"cluster,omitempty"`
	Roles   string `json:"roles,omitempty"`
	Address string `json:"address"`
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
