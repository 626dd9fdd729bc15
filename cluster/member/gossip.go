package member

import (
	"context"
	"net"
	"slices"

	"evenkeel/cluster/node"
)

// gossiping takes part in gossip until ctx ends. It logs and shows what it learns; nothing is decided by it.
func (m *Member) gossiping(ctx context.Context) {
	if m.o.Gossip == "" {
		return
	}
	roles := []string{}
	if m.identity.Server {
		roles = append(roles, "server")
	}
	if m.identity.Agent {
		roles = append(roles, "agent")
	}
	meta := node.GossipMeta{Roles: roles, Address: m.o.Advertise, Version: m.o.Version}
	g, err := node.OpenGossip(node.GossipOptions{Name: m.identity.Name, Bind: m.o.Gossip, Advertise: m.o.GossipAdvertise, Keys: m.gossipKeys.now().Keys, Log: m.log, Meta: meta, Wall: m.o.Now})
	if err != nil {
		m.log.Error("gossip", "error", err)
		return
	}
	defer func() {
		if err := g.Close(); err != nil {
			m.log.Debug("leave the gossip", "error", err)
		}
	}()
	m.talk.Store(g)
	m.gossipKeys.use(g)
	go g.Join(ctx, m.gossipAddresses)
	for {
		if now := m.leads.Load(); now != meta.Term { // agents that wait for a leader try at once
			meta.Term = now
			if err := g.SetMeta(meta); err != nil {
				m.log.Debug("announce the leader", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-m.announced:
		case h, open := <-g.Hints():
			if !open {
				return
			}
			if h.Kind != node.HintChanged {
				m.log.Info("gossip", "member", h.Name, "seems to have", h.Kind, "at", h.Gossip)
			}
			if h.Meta.Term != 0 || h.Kind == node.HintJoined && slices.Contains(h.Meta.Roles, "server") {
				m.hint()
			}
		}
	}
}

// Clocks returns how far the clocks of the members that were heard of lately are from this one's; nil if this member does not
// take part in gossip.
func (m *Member) Clocks() []node.Clock {
	if g := m.talk.Load(); g != nil {
		return g.Clocks()
	}
	return nil
}

// hint notifies this host's agent, if there is one, that there may be a leader.
func (m *Member) hint() {
	if a := m.orders.Load(); a != nil {
		a.Hint()
	}
}

// announce announces to all members that this server leads, or leads no more.
func (m *Member) announce() {
	select {
	case m.announced <- struct{}{}:
	default:
	}
}

// watchLeader notifies this host's agent when the server beside it knows of another leader, until ctx ends.
func (m *Member) watchLeader(ctx context.Context) {
	for {
		now, changed := m.node.Leadership()
		if now.Leader != "" {
			m.hint()
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// gossipAddresses returns the gossip addresses of other members: those in the state, or those of servers with this member's
// port.
func (m *Member) gossipAddresses() []string {
	var out []string
	if m.State != nil {
		for _, row := range m.State.Snapshot().Members() {
			if row.Gossip != "" && row.Name != m.identity.Name {
				out = append(out, row.Gossip)
			}
		}
	}
	_, port, err := net.SplitHostPort(m.o.Gossip)
	servers, _, readErr := readServers(m.o.Dir)
	if err != nil || readErr != nil {
		return out
	}
	for _, s := range servers {
		if host, _, err := net.SplitHostPort(s); err == nil && s != m.o.Advertise {
			out = append(out, net.JoinHostPort(host, port))
		}
	}
	return out
}

// Gossips returns the members that seem to be there, by gossip; nil if this member does not take part.
func (m *Member) Gossips() []node.Peer {
	if g := m.talk.Load(); g != nil {
		return g.Peers()
	}
	return nil
}
