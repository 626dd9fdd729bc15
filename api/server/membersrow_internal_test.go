package server

import (
	"strings"
	"testing"

	"evenkeel/cluster/node"
	"evenkeel/cluster/state"
)

// A member's version is the recorded one, or else what the member states in gossip, which is not verified.
func TestVersionOfMember(t *testing.T) {
	peer := func(version string) *node.Peer {
		return &node.Peer{Name: "h4", Meta: node.GossipMeta{Version: version}}
	}
	for what, c := range map[string]struct {
		recorded string
		peer     *node.Peer
		version  string
		gossip   string
	}{
		"a server":                {"1.2", peer("1.2"), "1.2", "reachable"},
		"a server that has begun": {"1.2", peer("1.3"), "1.2", "reachable"},
		"a server that is silent": {"1.2", nil, "1.2", "silent"},
		"an agent":                {"", peer("1.3"), "1.3", "reachable"},
		"an agent that is silent": {"", nil, "", "silent"},
		"an agent that lies":      {"", peer("\x1b[2J" + strings.Repeat("v", 400)), "?[2J" + strings.Repeat("v", 57) + "...", "reachable"},
	} {
		m := memberOf(state.Member{Name: "h4", Server: c.recorded != "", Agent: true, Version: c.recorded}, c.peer)
		if m.Version != c.version || m.Gossip != c.gossip {
			t.Errorf("%s: version %q, gossip %s, want %q, %s", what, m.Version, m.Gossip, c.version, c.gossip)
		}
	}
}
