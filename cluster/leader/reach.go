package leader

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"

	"evenkeel/cluster/agent"
	"evenkeel/cluster/scheduler/moves"
	"evenkeel/cluster/state"
	"evenkeel/hypervisor"
)

// Peers returns hosts to which an agent is to test the route: those that report.
func (c *Service) Peers(_ context.Context, q agent.PeersWanted) (agent.Peers, error) {
	s := c.o.State.Snapshot()
	if _, ok := s.Host(q.Host); !ok {
		return agent.Peers{}, fmt.Errorf("hosts that host %s may send VMs to: host %s: %w", q.Host, q.Host, ErrNotFound)
	}
	out := c.current.Load().failover.Unavailable(s)
	var all []agent.Peer
	s.EachHost(func(h *state.Host) bool {
		if h.MigrateURI != "" && h.Name != q.Host && h.Lost.Proof == "" && out[h.Name] == "" {
			all = append(all, agent.Peer{Host: h.Name, URI: h.MigrateURI})
		}
		return true
	})
	return nextPeers(all, q), nil
}

// nextPeers returns those of all that are asked for again, and the next ones of the ring, each once.
func nextPeers(all []agent.Peer, q agent.PeersWanted) agent.Peers {
	slices.SortFunc(all, func(a, b agent.Peer) int { return strings.Compare(a.Host, b.Host) })
	out := agent.Peers{Peers: []agent.Peer{}, Next: q.After}
	add := func(p agent.Peer) {
		if !slices.Contains(out.Peers, p) {
			out.Peers = append(out.Peers, p)
		}
	}
	at := func(host string) (int, bool) {
		i := sort.Search(len(all), func(i int) bool { return all[i].Host >= host })
		return i, i < len(all) && all[i].Host == host
	}
	for _, host := range q.Again[:min(len(q.Again), agent.PeersAtOnce)] {
		if i, is := at(host); is {
			add(all[i])
		}
	}
	i, is := at(q.After)
	if is {
		i++
	}
	for n := range min(q.Max, len(all), agent.PeersAtOnce) {
		p := all[(i+n)%len(all)]
		add(p)
		out.Next = p.Host
	}
	return out
}

// MissingRoutes returns the hosts that cannot send VMs to others, as their agents report it, in sentences; equal causes once.
// Reports of, and about, hosts that are silent do not count.
func (v *View) MissingRoutes() []moves.MissingRoute {
	routes := moves.Routes{}
	for _, h := range v.Hosts() {
		live := v.host(h.Name)
		if live.unavailable != "" || h.Lost.Proof != "" {
			continue
		}
		for _, n := range live.MissingRoutes {
			if to, ok := v.Host(n.To); n.To != "" && (!ok || v.host(n.To).unavailable != "" || to.Lost.Proof != "") {
				continue
			}
			if routes[h.Name] == nil {
				routes[h.Name] = map[string]hypervisor.Obstacle{}
			}
			routes[h.Name][n.To] = hypervisor.Obstacle{Why: n.Why, Here: n.Here}
		}
	}
	return routes.Sum()
}
