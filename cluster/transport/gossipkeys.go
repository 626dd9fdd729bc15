package transport

import (
	"context"
	"fmt"
	"net/http"
)

// GossipKeys are the keys of the cluster's gossip, as the server that leads gives them. They are secret: they go to members
// only.
type GossipKeys struct {
	Version string   `json:"version"` // another one for other keys; it does not give them away
	Keys    [][]byte `json:"keys"`    // members seal with the first and open with all
	// Pending: the second is to be the first once all members can be taken to know it.
	Pending bool `json:"pending,omitempty"`
	// Covers are the serials of revoked certificates whose holders do not know the newest key.
	Covers []string `json:"covers,omitempty"`
}

// String is for logs: it leaves the keys out.
func (k GossipKeys) String() string { return "gossip keys " + k.Version }

// GoString is String, so that %#v shows no more.
func (k GossipKeys) GoString() string { return k.String() }

// gossipKeys answers a member that has other keys than the leader.
func (p *Peers) gossipKeys(w http.ResponseWriter, r *http.Request) {
	var ask struct{}
	if !readCall(w, r, maxCall, &ask) {
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	p.answer(w, r, p.o.GossipKeys())
}

// gossipVersion is the version of the keys that this server has.
func (p *Peers) gossipVersion() string {
	if p.o.GossipKeys == nil {
		return ""
	}
	return p.o.GossipKeys().Version
}

// GossipKeys asks a server (which asks the leader) for the keys of the cluster's gossip.
func (c *Client) GossipKeys(ctx context.Context, address string) (GossipKeys, error) {
	var out GossipKeys
	if err := post(ctx, c.http, urlOf(address, "gossip-keys").String(), nil, struct{}{}, &out); err != nil {
		return GossipKeys{}, fmt.Errorf("ask %s for the keys of gossip: %w", address, err)
	}
	return out, nil
}
